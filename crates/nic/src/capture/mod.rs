//! Capture files, and the offload cores run over them in virtual time.
//!
//! [`Reader`] reads pcap and pcapng; [`Writer`] writes pcap, and pcapng where interfaces have different link types. [`lro()`], [`gso()`] and [`roundtrip()`]
//! take packets with their timestamps and give what the same cores would have given, at the times
//! at which they would have: no clock is looked at, so the same input gives the same output.
//!
//! Packets that the capture holds only the beginning of (`tcpdump -s`) go through as they are,
//! and are counted.

mod error;
mod gso;
mod link;
pub(crate) mod live;
mod lro;
mod read;
mod write;

pub use self::error::CaptureError;
pub use self::gso::gso;
pub use self::link::LinkCounts;
pub use self::live::{Captured, Wanted};
pub use self::lro::{lro, roundtrip};
pub use self::read::Reader;
pub use self::write::{Output, Writer};

use ::lro::Nanos;

use wire::VirtioNetHdr;

use crate::counters::Entry;

/// One packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it was captured, in nanoseconds since 1970.
    pub time: Nanos,
    /// Its length on the wire, in bytes; `data` may hold less.
    pub original_len: u32,
    /// The Ethernet frame, as far as it was captured: see [`Reader`] about other link layers.
    pub data: Vec<u8>,
}

impl Packet {
    /// A packet captured whole.
    pub fn new(time: Nanos, data: Vec<u8>) -> Packet {
        Packet { time, original_len: data.len() as u32, data }
    }

    /// Whether it was captured only in part.
    pub fn is_cut_short(&self) -> bool {
        (self.data.len() as u64) < u64::from(self.original_len)
    }
}

/// Completes a checksum that holds just the pseudo-header's sum: a capture made where a kernel
/// sends, on a card or a veth with checksum offload, has them. Returns whether there was one.
fn complete(packet: &mut Packet) -> bool {
    if packet.is_cut_short() {
        return false;
    }
    let Some((csum_start, csum_offset)) = wire::partial_checksum(&packet.data) else {
        return false;
    };
    let vnet = VirtioNetHdr { needs_csum: true, csum_start, csum_offset, ..Default::default() };
    ::gso::complete_checksum(&mut packet.data, &vnet).is_ok()
}

/// How finely a capture's timestamps are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Microseconds, as the first pcap format has them.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets read.
    pub packets_in: u64,
    /// Bytes read, as captured.
    pub bytes_in: u64,
    /// Packets written.
    pub packets_out: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// What became of them, and why.
    pub counters: Vec<Entry>,
}

impl Statistics {
    /// The counter `name` of `group`; 0 if there is none.
    pub fn counter(&self, group: &str, name: &str) -> u64 {
        let entry = self.counters.iter().find(|entry| entry.group == group && entry.name == name);
        entry.map_or(0, |entry| entry.value)
    }
}

/// Counts what passes through to `out`.
struct Counted<'a, O> {
    out: &'a mut O,
    packets: u64,
    bytes: u64,
}

impl<'a, O: Output> Counted<'a, O> {
    fn new(out: &'a mut O) -> Self {
        Counted { out, packets: 0, bytes: 0 }
    }

    fn write(&mut self, time: Nanos, original_len: u32, data: &[u8]) -> Result<(), CaptureError> {
        self.packets += 1;
        self.bytes += data.len() as u64;
        self.out.write(time, original_len, data)
    }

    fn write_whole(&mut self, time: Nanos, data: &[u8]) -> Result<(), CaptureError> {
        self.write(time, data.len() as u32, data)
    }
}

#[cfg(test)]
mod tests;
