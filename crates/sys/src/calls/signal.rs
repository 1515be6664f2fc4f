//! Signals that are counted, and that interrupt calls.

use std::os::unix::thread::{JoinHandleExt, RawPthread};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

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

/// Sends the signal to a thread, whose handle keeps it from being another's.
///
/// # Errors
/// errno(3).
pub fn interrupt<T>(thread: &JoinHandle<T>, which: Signals) -> Answer {
    let thread: RawPthread = thread.as_pthread_t();
    // SAFETY: the thread has not been joined, as its handle is there.
    match unsafe { libc::pthread_kill(thread, which.number()) } {
        0 => Ok(0),
        error => Err(error),
    }
}
