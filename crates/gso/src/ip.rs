//! What changes in the IP header from segment to segment: lengths, and the ID of IPv4.

use wire::{Headers, IPV4_MIN_LEN, IPV6_LEN, Network, Sum, checksum};

use crate::{be16, put16};

const V4_TOTAL_LEN: usize = 2;
const V4_ID: usize = 4;
const V4_CHECKSUM: usize = 10;
const V6_PAYLOAD_LEN: usize = 4;

/// The changing part of the IP header that stands at `at`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IpPart {
    at: usize,
    version: Version,
}

#[derive(Clone, Copy, Debug, Default)]
enum Version {
    V4 {
        /// Sum of the header less total length, ID and checksum.
        sum: Sum,
        /// The same with the total length of a full segment.
        full: Sum,
        id: u16,
        /// What each segment adds to the ID: 1, or 0 for a fixed ID.
        step: u16,
    },
    #[default]
    V6,
}

impl IpPart {
    /// Clears in `template` what changes, and sums what does not. `None` if there is no IP.
    pub(crate) fn new(template: &mut [u8], headers: &Headers) -> Option<IpPart> {
        let at = headers.network_at;
        let version = match headers.network {
            Network::Ipv4 { .. } => {
                let header = &mut template[at..headers.transport_at];
                let id = be16(header, V4_ID);
                for field in [V4_TOTAL_LEN, V4_ID, V4_CHECKSUM] {
                    put16(header, field, 0);
                }
                let sum = checksum::sum(header);
                Version::V4 { sum, full: sum, id, step: 1 }
            }
            Network::Ipv6 { .. } => Version::V6,
            Network::Other(_) => return None,
        };
        Some(IpPart { at, version })
    }

    /// All segments get the ID of the super-packet.
    pub(crate) fn fix_id(&mut self) {
        if let Version::V4 { step, .. } = &mut self.version {
            *step = 0;
        }
    }

    /// Writes what all segments of `frame_len` bytes have to `template`, so that
    /// [`write_full`](Self::write_full) need not.
    pub(crate) fn settle(&mut self, template: &mut [u8], frame_len: usize) {
        let ip = &mut template[self.at..];
        let len = frame_len - self.at;
        match &mut self.version {
            Version::V4 { sum, full, .. } => {
                put16(ip, V4_TOTAL_LEN, len as u16);
                *full = sum.plus_word(len as u16);
            }
            Version::V6 => put16(ip, V6_PAYLOAD_LEN, (len - IPV6_LEN) as u16),
        }
    }

    /// Fills in segment `nth`, a full one.
    #[inline]
    pub(crate) fn write_full(&self, header: &mut [u8], nth: usize) {
        if let Version::V4 { full, id, step, .. } = self.version {
            let id = id.wrapping_add(step.wrapping_mul(nth as u16));
            let Some(ip) = header[self.at..].first_chunk_mut::<IPV4_MIN_LEN>() else { return };
            put16(ip, V4_ID, id);
            put16(ip, V4_CHECKSUM, full.plus_word(id).complement());
        }
    }

    /// Fills in segment `nth`, a frame of `frame_len` bytes; `header` begins with Ethernet.
    #[inline]
    pub(crate) fn write(&self, header: &mut [u8], nth: usize, frame_len: usize) {
        let ip = &mut header[self.at..];
        let len = frame_len - self.at;
        match self.version {
            Version::V4 { sum, id, step, .. } => {
                let id = id.wrapping_add(step.wrapping_mul(nth as u16));
                put16(ip, V4_TOTAL_LEN, len as u16);
                put16(ip, V4_ID, id);
                put16(ip, V4_CHECKSUM, sum.plus_word(len as u16).plus_word(id).complement());
            }
            Version::V6 => put16(ip, V6_PAYLOAD_LEN, (len - IPV6_LEN) as u16),
        }
    }
}
