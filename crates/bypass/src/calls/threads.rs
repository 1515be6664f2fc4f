//! pthread_cancel(3), of threads that wait at the NIC, and pthread_setcanceltype(3).

use libc::{c_int, pthread_t};

use crate::cancel;
use crate::connection::{self, Connection};
use crate::real::real;

/// # Safety
/// As pthread_cancel(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the program's call.
    let result = unsafe { real!(pthread_cancel(thread): fn(pthread_t) -> c_int) };
    // It may be one of those that wait.
    cancel::expect();
    connection::all().for_each(Connection::wake_waiters);
    result
}

/// # Safety
/// As pthread_setcanceltype(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int {
    if kind == cancel::ASYNCHRONOUS {
        cancel::expect();
    }
    // SAFETY: the program's call.
    unsafe { real!(pthread_setcanceltype(kind, before): fn(c_int, *mut c_int) -> c_int) }
}
