//! Signals that are counted, and that interrupt calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Answer, answer};

/// Signals of a test's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signals {
    /// `SIGPIPE`.
    Pipe,
    /// `SIGUSR1`.
    User,
}

impl Signals {
    fn number(self) -> libc::c_int {
        match self {
            Signals::Pipe => libc::SIGPIPE,
            Signals::User => libc::SIGUSR1,
        }
    }

    fn counter(self) -> &'static AtomicUsize {
        static PIPE: AtomicUsize = AtomicUsize::new(0);
        static USER: AtomicUsize = AtomicUsize::new(0);
        match self {
            Signals::Pipe => &PIPE,
            Signals::User => &USER,
        }
    }
}

extern "C" fn handle(number: libc::c_int) {
    let which = if number == libc::SIGPIPE { Signals::Pipe } else { Signals::User };
    which.counter().fetch_add(1, Ordering::SeqCst);
}

/// Counts this signal from now on, instead of what it does else. `restarts` is `SA_RESTART`: calls that it interrupts
/// go on, as far as the kernel lets them (signal(7)).
///
/// # Errors
/// errno(3).
pub fn count(which: Signals, restarts: bool) -> Answer {
    // SAFETY: integers, for which zeros are valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = if restarts { libc::SA_RESTART } else { 0 };
    // SAFETY: the handler adds to an atomic, which is safe in any context; `action` is readable.
    answer(unsafe { libc::sigaction(which.number(), &raw const action, std::ptr::null_mut()) })
}

/// How often it has come.
pub fn counted(which: Signals) -> usize {
    which.counter().load(Ordering::SeqCst)
}

/// A thread of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task(libc::pid_t);

impl Task {
    /// The calling thread.
    pub fn own() -> Self {
        // SAFETY: it has no arguments.
        Task(unsafe { libc::gettid() })
    }

    /// Sends it the signal.
    ///
    /// # Errors
    /// errno(3): `ESRCH` if it has ended.
    pub fn interrupt(self, which: Signals) -> Answer {
        // SAFETY: it takes integers, and fails for a thread that is not of this process.
        answer(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, which.number()) })
    }
}
