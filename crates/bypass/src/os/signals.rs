//! Work that no handler of a signal comes into.

use libc::c_int;

use crate::trap::trap;

/// Signals of the kernel's about what the thread itself does: to keep them back would end the process.
const OWN: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
/// Those of libc's own: a thread is cancelled, and changes its user, at once.
const LIBC: [c_int; 2] = [32, 33];
/// Bytes of a set of signals as the kernel has it.
const LEN: usize = 8;

/// As long as it lives, signals wait for this thread: what a handler would find half done is done when it runs. It takes
/// two system calls, and so is for what takes some anyway.
pub(crate) struct Quiet {
    before: u64,
    held: u64,
}

impl Quiet {
    pub(crate) fn begin() -> Self {
        Quiet::but(set(&OWN))
    }

    /// For a wait, which is long.
    pub(crate) fn for_a_wait() -> Self {
        Quiet::but(set(&OWN) | set(&LIBC))
    }

    fn but(others: u64) -> Self {
        let (all, mut before) = (!others, 0_u64);
        let errno = super::errno();
        let how = libc::SIG_BLOCK;
        // SAFETY: both sets are as long as the call is told.
        unsafe {
            trap!(libc::SYS_rt_sigprocmask, how, &raw const all, &raw mut before, LEN);
        }
        super::set_errno(errno);
        Quiet { before, held: all & !before }
    }

    /// The signals that wait where this does not live, as libc's functions have them.
    pub(crate) fn outside(&self) -> libc::sigset_t {
        // SAFETY: all-zero is a valid set, which begins with the words of the kernel's.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            (&raw mut set).cast::<u64>().write(self.before);
            set
        }
    }

    /// The signals that wait, which did not wait before.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }
}

/// As a set.
fn set(signals: &[c_int]) -> u64 {
    signals.iter().fold(0, |all, signal| all | 1 << (signal - 1))
}

/// Signals that wait for the thread, or for any of the process.
pub(crate) fn pending_signals() -> u64 {
    let mut all = 0_u64;
    // SAFETY: the set is as long as the call is told.
    unsafe { trap!(libc::SYS_rt_sigpending, &raw mut all, LEN) };
    all
}

/// Whether this one ends a call that waits: it has a handler, which does not have the call begun again.
pub(crate) fn interrupts(signal: c_int) -> bool {
    // SAFETY: all-zero is a valid sigaction, and nothing is set.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0 {
            return false;
        }
        action
    };
    let has_handler = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    has_handler && action.sa_flags & libc::SA_RESTART == 0
}

/// Makes this signalfd(2), or another one for -1, tell of these signals. The descriptor, or a negative number.
pub(crate) fn signal_descriptor(fd: c_int, signals: u64) -> c_int {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set is as long as the call is told.
    unsafe { trap!(libc::SYS_signalfd4, fd, &raw const signals, LEN, flags) as c_int }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<u64>();
        let errno = super::errno();
        let how = libc::SIG_SETMASK;
        // SAFETY: the set is as long as the call is told, and none is written.
        unsafe { trap!(libc::SYS_rt_sigprocmask, how, &raw const self.before, none, LEN) };
        super::set_errno(errno);
    }
}
