//! Flow keys, which identify flows, and the keyed hash that places them in tables.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::{Headers, Network, Transport};

/// The four-tuple, as it stands in the packet. Keys of IPv4 and IPv6 are never equal, nor are those of TCP
/// and UDP: an IPv4 key fills only the first address word.
#[derive(Clone, Copy, Debug)]
pub struct FlowKey {
    /// IPv6: two words of source address, two of destination; IPv4: both in the first.
    pub addresses: [u64; 4],
    /// Source and destination port.
    pub ports: u32,
    /// Otherwise IPv4.
    pub ipv6: bool,
    /// Otherwise TCP.
    pub udp: bool,
}

/// Word by word, as they were written: a wider load would have to wait for the stores.
impl PartialEq for FlowKey {
    #[inline]
    fn eq(&self, other: &FlowKey) -> bool {
        let differs = |i: usize| self.addresses[i] ^ other.addresses[i];
        self.ports == other.ports
            && self.ipv6 == other.ipv6
            && self.udp == other.udp
            && differs(0) == 0
            && (!self.ipv6 || differs(1) | differs(2) | differs(3) == 0)
    }
}

impl Eq for FlowKey {}

impl FlowKey {
    /// The key of no flow, all zero: for vacant entries of a table.
    pub const NONE: FlowKey = FlowKey { addresses: [0; 4], ports: 0, ipv6: false, udp: false };

    /// Reads the key of a TCP or UDP packet. `headers` are those of `bytes`.
    #[inline]
    pub(crate) fn read(bytes: &[u8], headers: &Headers) -> FlowKey {
        let word = |at: usize| {
            let b = &bytes[at..at + 8];
            u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
        };
        let at = headers.network_at;
        let ipv6 = matches!(headers.network, Network::Ipv6 { .. });
        let addresses = if ipv6 {
            [word(at + 8), word(at + 16), word(at + 24), word(at + 32)]
        } else {
            [word(at + 12), 0, 0, 0]
        };
        let p = &bytes[headers.transport_at..headers.transport_at + 4];
        let udp = headers.transport == Transport::Udp;
        FlowKey { addresses, ports: u32::from_ne_bytes([p[0], p[1], p[2], p[3]]), ipv6, udp }
    }

    /// The key of TCP segments between these ends. Addresses of two versions make a key of IPv6.
    #[inline]
    pub fn tcp(source: SocketAddr, destination: SocketAddr) -> FlowKey {
        let [from, to] = [source, destination].map(|end| end.port().to_be_bytes());
        let ports = u32::from_ne_bytes([from[0], from[1], to[0], to[1]]);
        let (addresses, ipv6) = match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let ([a, b, c, d], [e, f, g, h]) = (from.octets(), to.octets());
                ([u64::from_ne_bytes([a, b, c, d, e, f, g, h]), 0, 0, 0], false)
            }
            (from, to) => {
                let ([a, b], [c, d]) = (words(from), words(to));
                ([a, b, c, d], true)
            }
        };
        FlowKey { addresses, ports, ipv6, udp: false }
    }

    /// The key of packets in the other direction.
    pub fn reversed(&self) -> FlowKey {
        let [a, b, c, d] = self.addresses;
        let addresses = if self.ipv6 { [c, d, a, b] } else { [a.rotate_left(32), 0, 0, 0] };
        FlowKey { addresses, ports: self.ports.rotate_left(16), ..*self }
    }
}

/// The words of an address of IPv6, or of one of IPv4 in mapped form.
fn words(ip: IpAddr) -> [u64; 2] {
    let octets = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let (first, last) = octets.split_at(8);
    [first, last].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()))
}

/// A keyed hash of flow keys, of the family MULTILINEAR (Lemire and Kaser, "Strongly universal string
/// hashing is fast", The Computer Journal, 2014). Each 32-bit word of the flow key is multiplied by a
/// random factor of 64 bits, and a random summand stands for the kind of flow. The upper 32 bits of the
/// sum, modulo 2^64, are the hash.
///
/// # What is proved
/// Over random keys, the hashes of any two flows are independent, and each is uniform (the family is
/// strongly universal). So they are equal for one key in 2^32, and agree in any `n` of their bits for
/// one in 2^n. If the flows are of two kinds, the two summands make it so. If they are of one kind, they
/// differ in some word by 2^t times an odd number, t < 32; the factor of that word is random, so the
/// difference of the two sums is random in all but its lowest t bits, and the lowest 32 are cut off.
///
/// What a field adds to the sum depends on that field alone. So no value of one field takes another out
/// of the hash, as it can where fields are multiplied by each other.
///
/// # What is not
/// The proof is about pairs. Ports or addresses that count up become sums in even steps, and with one key
/// in a hundred those cluster so that linear probing takes ten times as many steps. Therefore
/// [`of`](Self::of) ends with a permutation, which keeps what is proved and breaks the even steps. It
/// leaves the upper bits the best mixed, from which [`bucket`] takes its number.
///
/// The sum is linear: one who sees hashes can compute the keys. No hash may leave the machine. Sequence
/// numbers, cookies and flow labels are made with SipHash.
#[derive(Clone, Copy)]
pub struct FlowHash {
    /// The kinds' summands: TCP and UDP over IPv4, TCP and UDP over IPv6.
    kinds: [u64; 4],
    /// The factors: a pair for each of the four address words, and that of the ports.
    factors: [u64; 9],
}

/// Keys are not for logs.
impl fmt::Debug for FlowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowHash").finish_non_exhaustive()
    }
}

impl FlowHash {
    /// Number of random words that make one hash.
    pub const KEYS: usize = 13;

    /// The hash with these keys, which are to be random and kept secret from senders of packets.
    pub const fn new(keys: [u64; Self::KEYS]) -> FlowHash {
        let [a, b, c, d, factors @ ..] = keys;
        FlowHash { kinds: [a, b, c, d], factors }
    }

    /// A hash that is the same each time, with keys that are no secret (splitmix64; Steele, Lea and
    /// Flood, 2014): for tests and benchmarks, not for packets from outside.
    pub const fn from_seed(seed: u64) -> FlowHash {
        let mut keys = [0; Self::KEYS];
        let mut at = 0;
        while at < Self::KEYS {
            let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(at as u64 + 1));
            let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            keys[at] = z ^ z >> 31;
            at += 1;
        }
        FlowHash::new(keys)
    }

    /// The hash of a flow: at most 40 instructions for IPv6, 18 for IPv4 (x86-64).
    #[inline]
    pub fn of(&self, key: &FlowKey) -> u32 {
        spread(if key.ipv6 { self.sum_v6(key) } else { self.sum_v4(key) })
    }

    #[inline]
    fn sum_v6(&self, key: &FlowKey) -> u64 {
        let [a, b, c, d] = key.addresses;
        let source = self.words(0, a).wrapping_add(self.words(2, b));
        let destination = self.words(4, c).wrapping_add(self.words(6, d));
        let kind = self.kinds[2 + usize::from(key.udp)];
        self.ports(key).wrapping_add(kind).wrapping_add(source).wrapping_add(destination)
    }

    #[inline]
    fn sum_v4(&self, key: &FlowKey) -> u64 {
        let addresses = self.words(0, key.addresses[0]);
        self.ports(key).wrapping_add(self.kinds[usize::from(key.udp)]).wrapping_add(addresses)
    }

    #[inline]
    fn ports(&self, key: &FlowKey) -> u64 {
        u64::from(key.ports).wrapping_mul(self.factors[8])
    }

    /// What two 32-bit words that stand in one of 64 bits add. With `two` = low + 2^32 high and factors a
    /// and b this is low * a + high * (b + 2^32 a): the factor of `high` is as random as b is, and `low`
    /// need not be cut out.
    #[inline]
    fn words(&self, at: usize, two: u64) -> u64 {
        let upper = (two >> 32).wrapping_mul(self.factors[at + 1]);
        two.wrapping_mul(self.factors[at]).wrapping_add(upper)
    }
}

/// The upper half of the sum, permuted.
#[inline]
fn spread(sum: u64) -> u32 {
    let upper = (sum >> 32) as u32;
    (upper ^ upper >> 15).wrapping_mul(0x9e37_79b1)
}

/// The bucket of so many, below 2^32, in which a hash belongs: its upper bits.
#[inline]
pub fn bucket(hash: u32, buckets: usize) -> usize {
    ((u64::from(hash) * buckets as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = FlowKey> {
        (any::<[u64; 4]>(), any::<u32>(), any::<bool>())
            .prop_map(|(addresses, ports, udp)| FlowKey { addresses, ports, ipv6: true, udp })
    }

    /// The fields: eight address words, ports.
    fn with(key: &FlowKey, field: usize, value: u32) -> FlowKey {
        let mut key = *key;
        match (key.addresses.get_mut(field / 2), field % 2) {
            (None, _) => key.ports = value,
            (Some(word), 0) => *word = *word >> 32 << 32 | u64::from(value),
            (Some(word), _) => *word = *word << 32 >> 32 | u64::from(value) << 32,
        }
        key
    }

    proptest! {
        /// What a change of one field makes of the sum is the same whatever the others are, be they
        /// chosen by one who knows the keys.
        #[test]
        fn no_field_cancels_another(
            words: [u64; FlowHash::KEYS],
            one in keys(),
            other in keys(),
            field in 0..9usize,
            values: [u32; 2],
            of_the_keys in any::<prop::sample::Index>(),
        ) {
            let hash = FlowHash::new(words);
            // One that made the factor of the hash before this one zero, and its like.
            let known = of_the_keys.get(&words);
            let mut third = other;
            third.addresses = [*known, !known, known.wrapping_neg(), *known];
            let effect = |key: &FlowKey| {
                let [before, after] = values.map(|value| hash.sum_v6(&with(key, field, value)));
                after.wrapping_sub(before)
            };
            prop_assert_eq!(effect(&one), effect(&other));
            prop_assert_eq!(effect(&one), effect(&third));
        }

        /// The proof's formula, word by word.
        #[test]
        fn is_multilinear(words: [u64; FlowHash::KEYS], key in keys()) {
            let hash = FlowHash::new(words);
            let mut expected = words[2 + usize::from(key.udp)];
            for (at, two) in key.addresses.into_iter().enumerate() {
                let (low, high) = (two & 0xffff_ffff, two >> 32);
                let (a, b) = (words[4 + 2 * at], words[5 + 2 * at]);
                expected = expected.wrapping_add(low.wrapping_mul(a));
                expected = expected.wrapping_add(high.wrapping_mul(b.wrapping_add(a << 32)));
            }
            expected = expected.wrapping_add(u64::from(key.ports).wrapping_mul(words[12]));
            prop_assert_eq!(hash.sum_v6(&key), expected);
        }
    }

    /// The last steps can be undone: no two values of the sum become one.
    #[test]
    fn what_follows_the_sum_is_a_permutation() {
        let inverse = (0..5)
            .fold(1u32, |x: u32, _| x.wrapping_mul(2u32.wrapping_sub(x.wrapping_mul(0x9e37_79b1))));
        assert_eq!(inverse.wrapping_mul(0x9e37_79b1), 1);
        for upper in (0..=u32::MAX).step_by(65_537) {
            let x = spread(u64::from(upper) << 32).wrapping_mul(inverse);
            assert_eq!(x ^ x >> 15 ^ x >> 30, upper);
        }
    }
}
