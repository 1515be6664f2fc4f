//! System calls, past all functions that this library stands in front of: `syscall(2)` is one of them.

use libc::{c_int, c_long, c_uint};

use crate::real::real;

/// What a system call takes: a word.
pub(crate) trait Word {
    /// As the kernel has it.
    fn word(self) -> c_long;
}

macro_rules! integers {
    ($($of:ty),*) => {$(
        impl Word for $of {
            fn word(self) -> c_long {
                self as c_long
            }
        }
    )*};
}

integers!(c_int, c_uint, c_long, usize);

impl<T> Word for *const T {
    fn word(self) -> c_long {
        self as c_long
    }
}

impl<T> Word for *mut T {
    fn word(self) -> c_long {
        self as c_long
    }
}

/// The system call of this number. Returns -1 and sets `errno` as libc's functions do.
///
/// # Safety
/// As of the system call.
pub(crate) unsafe fn call(number: c_long, words: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = words;
    // SAFETY: the caller's promise. That the function is variadic makes no difference to how integers are passed.
    unsafe {
        real!(syscall(number, a, b, c, d, e, f):
            fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long)
    }
}

/// What is there in place of a sixth word.
pub(crate) const NO_SIXTH: c_long = handoff::session::PAST_SUPERVISOR as c_long;

/// A system call with up to six words: all that it takes. Unsafe as the system call is. A supervisor beside the library does
/// not see it, if they are fewer.
macro_rules! trap {
    ($number:expr $(, $word:expr)* $(,)?) => {{
        let mut words = [0, 0, 0, 0, 0, $crate::trap::NO_SIXTH];
        let given: &[libc::c_long] = &[$($crate::trap::Word::word($word)),*];
        words[..given.len()].copy_from_slice(given);
        $crate::trap::call($number, words)
    }};
}

pub(crate) use trap;
