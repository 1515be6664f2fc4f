//! The inner loop of [`super::sum_lanes`] compiled for AVX2 and AVX-512, and CRC32c by SSE4.2's
//! instruction, chosen at run time.
//!
//! For AVX2 the loop is the same safe code; only the call into a function with wider vectors is
//! `unsafe`.
#![allow(unsafe_code)]

use core::arch::x86_64::*;
use core::sync::atomic::{AtomicU8, Ordering};

/// Fewest bytes for which the call costs less than it saves.
pub(super) const WORTH_IT: usize = 128;

/// Sums `bytes` with the widest vectors that this CPU has. All that is not a jump to one of these is out of
/// line, so that no caller saves registers for it.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    match vectors() {
        // SAFETY: `vectors` saw the CPU and the OS support AVX-512F and BW.
        AVX512 => unsafe { sum_avx512(bytes) },
        // SAFETY: `vectors` saw the CPU and the OS support AVX2.
        AVX2 => unsafe { sum_avx2(bytes) },
        _ => super::sum_short(bytes),
    }
}

#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    super::sum_lanes::<{ super::WORDS }>(bytes)
}

/// As [`super::sum_lanes`], with a masked load for what is left at the end: the compiler's own loops
/// for that cost as much as the rest.
#[target_feature(enable = "avx512f,avx512bw")]
fn sum_avx512(bytes: &[u8]) -> u64 {
    let mut total = 0;
    for block in bytes.chunks(super::BLOCK) {
        // Sums of the words modulo 2^32, and of their upper halves, which do not overflow: together
        // they give the sum of the lower halves, without an operation a round to cut these off.
        let zero = _mm512_setzero_si512();
        let (mut whole, mut high) = ([zero; 2], [zero; 2]);
        let mut add = |n: usize, words| {
            whole[n] = _mm512_add_epi32(whole[n], words);
            high[n] = _mm512_add_epi32(high[n], _mm512_srli_epi32::<16>(words));
        };
        // A load that crosses a cache line is two. What comes before the first line begins is a round of its
        // own, if it is whole words.
        let before = block.as_ptr().addr().wrapping_neg() % 64;
        let before = if before % 2 == 0 { before.min(block.len()) } else { 0 };
        let (head, block) = block.split_at(before);
        // SAFETY: the mask leaves out all bytes but those of `head`, fewer than 64; the others are not accessed.
        add(0, unsafe { _mm512_maskz_loadu_epi8((1 << head.len()) - 1, head.as_ptr().cast()) });
        let (rounds, tail) = block.as_chunks::<64>();
        let (pairs, last) = rounds.as_chunks::<2>();
        for [even, odd] in pairs {
            // SAFETY: a round is 64 bytes, and the load asks for no alignment.
            add(0, unsafe { _mm512_loadu_si512(even.as_ptr().cast()) });
            // SAFETY: as above.
            add(1, unsafe { _mm512_loadu_si512(odd.as_ptr().cast()) });
        }
        for round in last {
            // SAFETY: as above.
            add(0, unsafe { _mm512_loadu_si512(round.as_ptr().cast()) });
        }
        let mask = (1 << tail.len()) - 1;
        // SAFETY: the mask leaves out all bytes but those of `tail`; the others are not accessed.
        add(1, unsafe { _mm512_maskz_loadu_epi8(mask, tail.as_ptr().cast()) });
        let whole = _mm512_add_epi32(whole[0], whole[1]);
        let high = _mm512_add_epi32(high[0], high[1]);
        let low = _mm512_sub_epi32(whole, _mm512_slli_epi32::<16>(high));
        // A block is 2^14 rounds of 16 bits in each lane.
        let wide = |lanes| {
            let odd = _mm512_srli_epi64::<32>(lanes);
            _mm512_add_epi64(_mm512_and_si512(lanes, _mm512_set1_epi64(0xffff_ffff)), odd)
        };
        total += _mm512_reduce_add_epi64(_mm512_add_epi64(wide(low), wide(high))) as u64;
    }
    total
}

/// Adds `bytes` to the register of a CRC32c; `None` if the CPU has no instruction for it.
#[inline]
pub(super) fn crc32c(crc: u32, bytes: &[u8]) -> Option<u32> {
    // SAFETY: `has_crc32` saw the CPU support SSE4.2.
    has_crc32().then(|| unsafe { crc32c_sse42(crc, bytes) })
}

#[target_feature(enable = "sse4.2")]
fn crc32c_sse42(crc: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut wide = u64::from(crc);
    for eight in eights {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*eight));
    }
    rest.iter().fold(wide as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

/// Whether the CPU has SSE4.2: Intel SDM volume 1, section 12.12.3.
#[inline]
fn has_crc32() -> bool {
    match CRC32.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = !cfg!(miri) && __cpuid(1).ecx & (1 << 20) != 0;
            CRC32.store(if found { FOUND } else { NONE }, Ordering::Relaxed);
            found
        }
        found => found == FOUND,
    }
}

const UNKNOWN: u8 = 0;
const FOUND: u8 = 4;
static CRC32: AtomicU8 = AtomicU8::new(UNKNOWN);
const NONE: u8 = 1;
const AVX2: u8 = 2;
const AVX512: u8 = 3;
static VECTORS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Which vectors the CPU has, whose registers the OS saves. Asked once.
#[inline]
fn vectors() -> u8 {
    match VECTORS.load(Ordering::Relaxed) {
        UNKNOWN => detect(),
        found => found,
    }
}

/// Asks, and notes the answer.
#[cold]
#[inline(never)]
fn detect() -> u8 {
    let found = detected();
    VECTORS.store(found, Ordering::Relaxed);
    found
}

/// Intel SDM volume 1, sections 14.3 and 15.2: OSXSAVE and AVX, XCR0's SSE, AVX and AVX-512 states,
/// then AVX2, AVX-512F and BW.
fn detected() -> u8 {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const SSE_AND_AVX_STATE: u64 = 6;
    const AVX512_STATE: u64 = 0xe0 | SSE_AND_AVX_STATE;
    const HAS_AVX2: u32 = 1 << 5;
    const HAS_AVX512: u32 = 1 << 16 | 1 << 30 | HAS_AVX2;
    if cfg!(miri) || __cpuid(0).eax < 7 {
        return NONE;
    }
    if __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return NONE;
    }
    // SAFETY: OSXSAVE is set, so XGETBV exists.
    let enabled = unsafe { _xgetbv(0) };
    let features = __cpuid_count(7, 0).ebx;
    let has = |state, wanted| enabled & state == state && features & wanted == wanted;
    if has(AVX512_STATE, HAS_AVX512) {
        AVX512
    } else if has(SSE_AND_AVX_STATE, HAS_AVX2) {
        AVX2
    } else {
        NONE
    }
}
