//! Work that no handler of a signal comes into.

use libc::c_int;

use crate::trap::trap;

/// Signals of the kernel's about what the thread itself does: to keep them back would end the process.
const OWN: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
/// Bytes of a set of signals as the kernel has it.
const LEN: usize = 8;

/// As long as it lives, signals wait for this thread: what a handler would find half done is done when it runs. It takes
/// two system calls, and so is for what takes some anyway.
pub(crate) struct Quiet(u64);

impl Quiet {
    pub(crate) fn begin() -> Self {
        let own = OWN.into_iter().fold(0_u64, |all, signal| all | 1 << (signal - 1));
        let (all, mut before) = (!own, 0_u64);
        let errno = super::errno();
        let how = libc::SIG_BLOCK;
        // SAFETY: both sets are as long as the call is told.
        unsafe {
            trap!(libc::SYS_rt_sigprocmask, how, &raw const all, &raw mut before, LEN);
        }
        super::set_errno(errno);
        Quiet(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<u64>();
        let errno = super::errno();
        let how = libc::SIG_SETMASK;
        // SAFETY: the set is as long as the call is told, and none is written.
        unsafe { trap!(libc::SYS_rt_sigprocmask, how, &raw const self.0, none, LEN) };
        super::set_errno(errno);
    }
}
