//! The Internet checksum (RFC 1071), and [`Crc32c`].
//!
//! Sums are kept as 64-bit sums of native-order 16-bit words; one's-complement addition does not
//! care about byte order (RFC 1071 section 2), so bytes are swapped once, in [`Sum::fold`].

mod crc32c;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use crc32c::Crc32c;

/// State of a received frame's transport checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RxChecksum {
    /// Not verified: it is to be verified before the segment is used.
    Unverified,
    /// As [`Unverified`](Self::Unverified), but a checksum field that holds only the pseudo-header's sum is
    /// valid, too: the frame comes from a kernel on this machine that left the checksum to its card. For
    /// wires that never leave the machine and carry no header that marks such frames.
    MaybePartial,
    /// Valid: verified by hardware, or never computed because the frame did not leave this machine
    /// (`VIRTIO_NET_HDR_F_NEEDS_CSUM` on a received packet). The IPv4 header's checksum is verified in any
    /// case.
    Verified,
}

/// An unfolded one's-complement sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Sum(u64);

impl Sum {
    /// The sum of two sums.
    #[inline]
    pub const fn plus(self, other: Sum) -> Sum {
        // Both are far below 2^63: 2^16 words of 65,535 bytes need 32 bits.
        Sum(self.0 + other.0)
    }

    /// The sum with one 16-bit word added, given as a number.
    #[inline]
    pub const fn plus_word(self, word: u16) -> Sum {
        Sum(self.0 + word.to_be() as u64)
    }

    /// The sum with two 16-bit words added, given as one number.
    #[inline]
    pub const fn plus_double(self, double: u32) -> Sum {
        Sum(self.0 + double.to_be() as u64)
    }

    /// The 16-bit one's-complement sum, as a number. Bytes that hold their own correct checksum
    /// fold to 0xFFFF.
    #[inline]
    pub const fn fold(self) -> u16 {
        // A number plus itself with its halves exchanged has the sum of the halves in its upper
        // half, with the carry of the lower one, which is the same sum: the end-around carry.
        let s = (self.0.wrapping_add(self.0.rotate_right(32)) >> 32) as u32;
        let s = s.wrapping_add(s.rotate_right(16)) >> 16;
        (s as u16).to_be()
    }

    /// The checksum: the complement of the folded sum.
    #[inline]
    pub const fn complement(self) -> u16 {
        !self.fold()
    }
}

/// The sum of `bytes`; an odd last byte counts as the high byte of a word (RFC 1071 section 1).
#[inline]
pub fn sum(bytes: &[u8]) -> Sum {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= x86::WORTH_IT {
        return Sum(x86::sum(bytes));
    }
    Sum(sum_lanes::<WORDS>(bytes))
}

/// As [`sum`], for a payload, which is long as a rule and of a length that no compiler knows: what sums
/// short ones is out of line, where [`sum`] has it in place.
#[inline]
pub fn sum_payload(bytes: &[u8]) -> Sum {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= x86::WORTH_IT {
        return Sum(x86::sum(bytes));
    }
    Sum(sum_short(bytes))
}

/// [`sum_lanes`] as a function.
#[inline(never)]
fn sum_short(bytes: &[u8]) -> u64 {
    sum_lanes::<WORDS>(bytes)
}

/// Copies `from` into `to` and sums it.
///
/// Two passes, the second over what is in the first-level cache by then: measured faster than one
/// loop that does both, which compilers turn into vectors less well than either.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_and_sum(to: &mut [u8], from: &[u8]) -> Sum {
    to.copy_from_slice(from);
    sum(to)
}

/// The sum of an IPv4 pseudo-header (RFC 9293 section 3.1); `addresses` are source and
/// destination, eight bytes.
#[inline]
pub fn pseudo_v4(addresses: &[u8], protocol: u8, len: usize) -> Sum {
    sum(addresses).plus_word(u16::from(protocol)).plus(length(len))
}

/// The sum of an IPv6 pseudo-header (RFC 8200 section 8.1); `addresses` are 32 bytes.
#[inline]
pub fn pseudo_v6(addresses: &[u8], protocol: u8, len: usize) -> Sum {
    sum(addresses).plus_word(u16::from(protocol)).plus(length(len))
}

/// A 32-bit length as two words.
#[inline]
fn length(len: usize) -> Sum {
    Sum(0).plus_word((len >> 16) as u16).plus_word(len as u16)
}

/// 32-bit words summed by one round of the inner loop, if the CPU has no wider vectors.
const WORDS: usize = 8;

/// Bytes after which the lanes are emptied: far fewer rounds than overflow 32 bits with 16-bit
/// words, and a multiple of the round.
const BLOCK: usize = 1 << 20;

/// Sums of the low and the high halves of 32-bit words: two 16-bit words at a time, in lanes that
/// the compiler turns into vectors.
struct Lanes<const N: usize> {
    low: [u32; N],
    high: [u32; N],
}

impl<const N: usize> Lanes<N> {
    #[inline(always)]
    fn add(&mut self, round: &[u8]) {
        let words = round.chunks_exact(4);
        for ((low, high), word) in self.low.iter_mut().zip(&mut self.high).zip(words) {
            let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            *low += word & 0xffff;
            *high += word >> 16;
        }
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        self.low.iter().chain(&self.high).map(|&lane| u64::from(lane)).sum()
    }
}

/// The portable loop, `N` words of 32 bits at a time; compiled again with wider vectors in `x86`.
#[inline(always)]
fn sum_lanes<const N: usize>(bytes: &[u8]) -> u64 {
    let mut total = 0;
    for block in bytes.chunks(BLOCK) {
        let mut lanes = Lanes { low: [0; N], high: [0; N] };
        let rounds = block.chunks_exact(4 * N);
        total += sum_tail(rounds.remainder());
        rounds.for_each(|round| lanes.add(round));
        total += lanes.total();
    }
    total
}

/// Fewer bytes than a round: in words of 32 bits, then of 16, the odd byte last.
#[inline(always)]
fn sum_tail(tail: &[u8]) -> u64 {
    let doubles = tail.chunks_exact(4);
    let words = doubles.remainder().chunks_exact(2);
    let odd = words.remainder();
    let mut total: u64 =
        doubles.map(|w| u64::from(u32::from_ne_bytes([w[0], w[1], w[2], w[3]]))).sum();
    total += words.map(|w| u64::from(u16::from_ne_bytes([w[0], w[1]]))).sum::<u64>();
    if let [last] = odd {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    total
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// RFC 1071 section 4.1, word for word.
    fn rfc1071(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            if sum > 0xffff {
                sum = (sum & 0xffff) + 1;
            }
        }
        sum as u16
    }

    /// 0 and 0xFFFF are the same number in one's complement.
    fn same(a: u16, b: u16) -> bool {
        a % 0xffff == b % 0xffff
    }

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes).fold(), 0xddf2);
    }

    proptest! {
        #[test]
        fn every_path_agrees_with_rfc_1071(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let expected = rfc1071(&bytes);
            prop_assert!(same(sum(&bytes).fold(), expected));
            prop_assert!(same(sum_payload(&bytes).fold(), expected));
            prop_assert!(same(Sum(sum_lanes::<WORDS>(&bytes)).fold(), expected));
            let mut copy = Vec::from_iter(bytes.iter().map(|_| 0));
            prop_assert!(same(copy_and_sum(&mut copy, &bytes).fold(), expected));
            prop_assert_eq!(copy, bytes);
        }

        #[test]
        fn a_sum_of_parts_is_the_sum_of_the_whole(a in proptest::collection::vec(any::<u8>(), 0..200), b in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut a = a;
            if a.len() % 2 == 1 { a.pop(); }
            let whole: Vec<u8> = a.iter().chain(&b).copied().collect();
            prop_assert!(same(sum(&a).plus(sum(&b)).fold(), sum(&whole).fold()));
        }
    }

    /// Loads are aligned where they can be: every place in a cache line, odd ones included, and lengths that
    /// end before the line, with it and behind it.
    #[test]
    fn where_bytes_lie_changes_no_sum() {
        let bytes: Vec<u8> = (0..600u32).map(|n| ((n * n) >> 3) as u8).collect();
        for at in 0..=128 {
            for len in (0..=8).chain(120..=260).chain([400]) {
                let slice = &bytes[at..at + len];
                let expected = rfc1071(slice);
                assert!(same(sum(slice).fold(), expected), "{len} bytes at {at}");
                assert!(same(sum_payload(slice).fold(), expected), "{len} bytes at {at}");
            }
        }
    }

    #[test]
    fn any_length_of_ones_does_not_overflow() {
        for len in [65_536, 2 * BLOCK + 4 * WORDS + 2] {
            let bytes = std::vec![0xffu8; len];
            assert_eq!(sum(&bytes).fold(), 0xffff);
        }
    }
}
