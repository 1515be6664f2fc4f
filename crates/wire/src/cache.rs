//! Prefetching: which memory the CPU is to load.
#![allow(unsafe_code)]

/// Bytes of a cache line on x86-64 and on most AArch64 machines.
const LINE: usize = 64;

/// Starts loading all cache lines of a value, without waiting for them.
#[inline]
pub fn prefetch<T>(value: &T) {
    prefetch_first(value, size_of::<T>());
}

/// Starts loading the cache lines of the first `bytes` of a value.
#[inline]
pub fn prefetch_first<T>(value: &T, bytes: usize) {
    let start = core::ptr::from_ref(value).cast::<u8>();
    for line in 0..bytes.min(size_of::<T>()).div_ceil(LINE) {
        prefetch_line(start.wrapping_add(line * LINE));
    }
}

/// Starts loading one cache line. Any address is valid, since a prefetch cannot fault.
#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and PREFETCHT0 is a hint that neither faults nor writes.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint that neither faults nor writes.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
