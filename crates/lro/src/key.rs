//! What tells flows apart.

use wire::{Headers, Network, Transport};

/// The four-tuple. IPv4 and IPv6 do not meet, nor do TCP and UDP: an IPv4 key fills only the first
/// address word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowKey {
    pub(crate) addresses: [u64; 4],
    pub(crate) ports: u32,
    pub(crate) ipv6: bool,
    pub(crate) udp: bool,
}

/// Word by word as they were written: a wider comparison would have to wait for the writes.
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

impl FlowKey {
    pub(crate) const NOBODY: FlowKey =
        FlowKey { addresses: [0; 4], ports: 0, ipv6: false, udp: false };

    /// Reads the key of a TCP or UDP packet that [`Headers::parse`] has walked.
    #[inline]
    pub(crate) fn of(bytes: &[u8], headers: &Headers) -> FlowKey {
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

    /// The key of packets the other way.
    pub(crate) fn reversed(&self) -> FlowKey {
        let [a, b, c, d] = self.addresses;
        let addresses = if self.ipv6 { [c, d, a, b] } else { [a.rotate_left(32), 0, 0, 0] };
        FlowKey { addresses, ports: self.ports.rotate_left(16), ..*self }
    }

    /// A multiply-and-fold hash: two multiplications for IPv4.
    #[inline]
    pub(crate) fn hash(&self, seed: u64) -> u32 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        const K: [u64; 3] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3];
        let mut h = fold(self.addresses[0] ^ seed ^ K[0], u64::from(self.ports) ^ K[1]);
        if self.ipv6 {
            h = fold(self.addresses[1] ^ h ^ K[2], self.addresses[2] ^ K[0]);
            h = fold(self.addresses[3] ^ h, K[1]);
        }
        let h = fold(h ^ seed, K[2]);
        (h ^ h >> 32) as u32
    }
}
