//! libc's own functions, behind the ones that this library puts in front of them.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library that has it, found when it is first called.
pub(crate) struct Real {
    name: &'static CStr,
    address: AtomicPtr<libc::c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Real { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address, if it was found.
    #[inline]
    pub(crate) fn found(&self) -> *mut libc::c_void {
        self.address.load(Ordering::Relaxed)
    }

    /// Its address.
    #[inline]
    pub(crate) fn get(&self) -> *mut libc::c_void {
        let address = self.found();
        if address.is_null() { self.find() } else { address }
    }

    #[cold]
    pub(crate) fn find(&self) -> *mut libc::c_void {
        // SAFETY: the name ends with a NUL.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // An older libc lacks what only programs have that look for it, or make the system call by its number.
        let address = if address.is_null() { lacking as *mut libc::c_void } else { address };
        // Whoever else finds it finds the same.
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// In place of a function that libc lacks: as the system call fails that a kernel lacks.
extern "C" fn lacking() -> isize {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// The function of this name.
macro_rules! named {
    ($name:ident) => {{
        // SAFETY: the literal ends with its only NUL.
        let name = unsafe {
            std::ffi::CStr::from_bytes_with_nul_unchecked(
                concat!(stringify!($name), "\0").as_bytes(),
            )
        };
        $crate::real::Real::new(name)
    }};
}

/// Calls libc's own function of this name and type.
macro_rules! real {
    ($name:ident($($argument:expr),* $(,)?): fn($($of:ty),* $(,)?) -> $result:ty) => {{
        static REAL: $crate::real::Real = $crate::real::named!($name);
        #[allow(unused_unsafe)] // where the call itself stands in an unsafe block
        let function: unsafe extern "C-unwind" fn($($of),*) -> $result =
            // SAFETY: the address is that of the function of this name, whose type this is.
            unsafe { std::mem::transmute(REAL.get()) };
        function($($argument),*)
    }};
}

/// Declares `kernel`, which calls libc's own function of this name and type. Where that is found it takes no more than it
/// must, and keeps no argument: most calls of programs come to nothing else.
macro_rules! kernel {
    ($name:ident($($argument:ident: $of:ty),* $(,)?) -> $result:ty) => {
        #[inline(always)]
        unsafe fn kernel($($argument: $of),*) -> $result {
            static REAL: $crate::real::Real = $crate::real::named!($name);
            type Function = unsafe extern "C-unwind" fn($($of),*) -> $result;
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn first($($argument: $of),*) -> $result {
                // SAFETY: the address is that of the function of this name, whose type this is; the program's call.
                unsafe {
                    std::mem::transmute::<*mut libc::c_void, Function>(REAL.find())($($argument),*)
                }
            }
            let address = REAL.found();
            // SAFETY: the same.
            unsafe {
                if address.is_null() {
                    first($($argument),*)
                } else {
                    std::mem::transmute::<*mut libc::c_void, Function>(address)($($argument),*)
                }
            }
        }
    };
}

pub(crate) use {kernel, named, real};
