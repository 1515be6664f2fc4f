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

/// Bytes of each of the three parts that are summed at once: the instruction takes three cycles and can begin each.
const PART: usize = 256;

#[target_feature(enable = "sse4.2")]
fn crc32c_sse42(crc: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<{ 3 * PART }>();
    let crc = blocks.iter().fold(crc, |crc, block| crc32c_three(crc, block));
    let (eights, rest) = rest.as_chunks::<8>();
    let mut wide = u64::from(crc);
    for eight in eights {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*eight));
    }
    rest.iter().fold(wide as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

/// Three parts side by side. A CRC is linear: the register after two parts is that of the first, moved on by as many
/// zeros as the second has bytes, plus that of the second alone.
#[inline]
#[target_feature(enable = "sse4.2")]
fn crc32c_three(crc: u32, block: &[u8; 3 * PART]) -> u32 {
    let (words, _) = block.as_chunks::<8>();
    let (first, rest) = words.split_at(PART / 8);
    let (second, third) = rest.split_at(PART / 8);
    let (mut a, mut b, mut c) = (u64::from(crc), 0, 0);
    for ((x, y), z) in first.iter().zip(second).zip(third) {
        a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
        b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
        c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
    }
    after_zeros(after_zeros(a as u32) ^ b as u32) ^ c as u32
}

/// The register after a part of zeros.
#[inline]
fn after_zeros(crc: u32) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
    ZEROS[0][a] ^ ZEROS[1][b] ^ ZEROS[2][c] ^ ZEROS[3][d]
}

/// Effect of each byte of the register, after a part of zeros.
static ZEROS: [[u32; 256]; 4] = {
    // Of each bit first: what one is after another is the sum of theirs.
    let mut bits = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut crc = 1 << bit;
        let mut step = 0;
        while step < 8 * PART {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
            step += 1;
        }
        bits[bit] = crc;
        bit += 1;
    }
    let mut table = [[0; 256]; 4];
    let mut index = 0;
    while index < 4 * 256 {
        let (place, byte) = (index / 256, index % 256);
        let mut bit = 0;
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[place][byte] ^= bits[8 * place + bit];
            }
            bit += 1;
        }
        index += 1;
    }
    table
};

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
