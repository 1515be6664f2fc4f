//! The inner loop of [`super::sum_lanes`] compiled for AVX2, chosen at run time.
//!
//! The loop is the same safe code; only the call into a function with wider vectors is `unsafe`.
#![allow(unsafe_code)]

use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use core::sync::atomic::{AtomicU8, Ordering};

/// Bytes from which the call costs less than it saves.
pub(super) const WORTH_IT: usize = 128;

/// Sums `bytes` with the widest vectors that this CPU has.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    if has_avx2() {
        // SAFETY: `has_avx2` saw the CPU and the OS support AVX2.
        unsafe { sum_avx2(bytes) }
    } else {
        super::sum_lanes(bytes)
    }
}

#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    super::sum_lanes(bytes)
}

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;
static AVX2: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Does the CPU have AVX2 and does the OS save its registers? Asked once.
#[inline]
fn has_avx2() -> bool {
    match AVX2.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = detect_avx2();
            AVX2.store(if found { PRESENT } else { ABSENT }, Ordering::Relaxed);
            found
        }
        state => state == PRESENT,
    }
}

/// Intel SDM volume 1, section 14.3: OSXSAVE and AVX, XCR0's SSE and AVX state, then AVX2.
#[cold]
fn detect_avx2() -> bool {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const SSE_AND_AVX_STATE: u64 = 6;
    const AVX2: u32 = 1 << 5;
    if cfg!(miri) || __cpuid(0).eax < 7 {
        return false;
    }
    if __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return false;
    }
    // SAFETY: OSXSAVE is set, so XGETBV exists.
    let enabled = unsafe { _xgetbv(0) };
    enabled & SSE_AND_AVX_STATE == SSE_AND_AVX_STATE && __cpuid_count(7, 0).ebx & AVX2 != 0
}
