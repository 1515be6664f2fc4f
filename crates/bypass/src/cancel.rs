//! Threads that are cancelled (pthread_cancel(3)).
//!
//! As in libc's own functions, a thread ends where a call begins, and where it waits: libc unwinds it, and what values put in
//! order when they are dropped is put in order. So all functions that lead there are of the ABI "C-unwind".
//!
//! A thread that may be cancelled at any instruction (`PTHREAD_CANCEL_ASYNCHRONOUS`) is not, as long as it is in a call
//! that has to do with a connection: it ends as others do, or when the call ends.

use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;

use crate::real::real;

/// PTHREAD_CANCEL_DEFERRED and PTHREAD_CANCEL_ASYNCHRONOUS of glibc's pthread.h.
const DEFERRED: c_int = 0;
pub(crate) const ASYNCHRONOUS: c_int = 1;

/// Whether threads of this program are cancelled, or can be at any instruction: few programs do that.
static IS_EXPECTED: AtomicBool = AtomicBool::new(false);

/// It has cancelled a thread, or is about to have one that can be cancelled at any instruction.
pub(crate) fn expect() {
    IS_EXPECTED.store(true, Ordering::Release);
}

/// Whether that is so.
#[inline]
pub(crate) fn is_expected() -> bool {
    IS_EXPECTED.load(Ordering::Relaxed)
}

/// The thread ends here if it was cancelled.
pub(crate) fn point() {
    // SAFETY: it has no arguments; the frames that it unwinds are of functions that may be.
    unsafe { real!(pthread_testcancel(): fn() -> ()) }
}

/// How the calling thread can be cancelled from now on; how it could be before. One that can be at any instruction, and
/// was, ends here.
fn set(kind: c_int) -> c_int {
    let mut before = DEFERRED;
    // SAFETY: `before` is writable.
    unsafe { real!(pthread_setcanceltype(kind, &raw mut before): fn(c_int, *mut c_int) -> c_int) };
    before
}

/// Makes a system call in which a thread is cancelled, in place of a function of libc's in which it is: it can be at any
/// instruction meanwhile, as in libc.
#[cold]
#[inline(never)]
pub(crate) fn within<T: Copy>(call: impl FnOnce() -> T) -> T {
    let before = set(ASYNCHRONOUS);
    let result = call();
    set(before);
    result
}

/// Does a call that has to do with a connection. The functions on the way here, and this one, have nothing to put in order.
#[inline(always)]
pub(crate) fn apart<T: Copy>(work: impl FnOnce() -> T) -> T {
    if IS_EXPECTED.load(Ordering::Relaxed) { deferred(true, work) } else { work() }
}

/// Does what is left of a call that has taken effect: the thread does not end before the program has what it returns, unless it
/// can be cancelled at any instruction.
#[inline(always)]
pub(crate) fn after<T: Copy>(work: impl FnOnce() -> T) -> T {
    if IS_EXPECTED.load(Ordering::Relaxed) { deferred(false, work) } else { work() }
}

#[cold]
#[inline(never)]
fn deferred<T: Copy>(begins: bool, work: impl FnOnce() -> T) -> T {
    let before = set(DEFERRED);
    if begins {
        point();
    }
    let result = work();
    set(before);
    result
}
