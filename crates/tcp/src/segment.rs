//! Segments: those received, which may be aggregates, and those to send, which may be super-packets.

use core::net::SocketAddr;

use wire::{Flags, Seq, Tcp};

use crate::options::{Encoded, Options};

/// The two ends of a connection, as seen from this one; `wire::FlowKey` is one direction, as it stands in packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FourTuple {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
}

/// A segment that has arrived. Its checksum was verified where it was parsed.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: Seq,
    /// Acknowledgment number; meaningful with [`Flags::ACK`].
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window field, unscaled.
    pub window: u16,
    /// Urgent pointer; meaningful with [`Flags::URG`].
    pub urgent: u16,
    /// Options.
    pub options: Options,
    /// The payload, in as many pieces as it lies in.
    pub payload: &'a [&'a [u8]],
    /// Payload bytes of each of the segments that an aggregate was made of; 0 for a plain segment.
    pub gso_size: u16,
    /// The IP header carried Congestion Experienced (RFC 3168 section 5).
    pub ce: bool,
}

impl<'a> Segment<'a> {
    /// The segment of a parsed header and the payload that belongs to it.
    #[inline]
    pub fn new<T: AsRef<[u8]>>(header: &Tcp<T>, payload: &'a [&'a [u8]]) -> Self {
        Segment {
            seq: header.seq(),
            ack: header.ack(),
            flags: header.flags(),
            window: header.window(),
            urgent: header.urgent(),
            options: Options::parse(header.option_bytes()),
            payload,
            gso_size: 0,
            ce: false,
        }
    }

    /// Bytes of payload.
    #[inline]
    pub fn payload_len(&self) -> u32 {
        match self.payload {
            [] => 0,
            [one] => one.len() as u32,
            many => many.iter().map(|piece| piece.len() as u32).sum(),
        }
    }

    /// Length in sequence space: payload, SYN and FIN (RFC 9293 section 3.4, SEG.LEN).
    #[inline]
    pub fn len(&self) -> u32 {
        self.payload_len()
            + u32::from(self.flags.any(Flags::SYN))
            + u32::from(self.flags.any(Flags::FIN))
    }

    /// Whether it takes no sequence space.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A segment to send. With `gso_size` it is a super-packet: its sender cuts it there, or leaves
/// that to a card.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The two ends: sent from `local` to `remote`.
    pub path: FourTuple,
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window field, scaled already.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, as they stand in the header.
    pub options: Encoded,
    /// The payload, in one or two pieces.
    pub payload: [&'a [u8]; 2],
    /// Bytes of payload that lie with the application, of a [lent](crate::Stack::thaw_lent) connection: those from `seq` on.
    /// There is no other payload then.
    pub lent: u32,
    /// Payload bytes of each packet, if there is more than one; 0 if there is one.
    pub gso_size: u16,
    /// The IP header is to carry ECT(0) (RFC 3168 section 6.1).
    pub ect: bool,
}

impl Transmit<'_> {
    /// Bytes of payload.
    pub fn payload_len(&self) -> usize {
        self.payload[0].len() + self.payload[1].len() + self.lent as usize
    }

    /// Bytes of the TCP header, options included.
    pub fn header_len(&self) -> usize {
        wire::TCP_MIN_LEN + self.options.as_slice().len()
    }

    /// Writes the header, with a checksum of zero. `into` has [`header_len`](Self::header_len) bytes
    /// or more.
    ///
    /// # Panics
    /// If `into` is shorter.
    #[inline]
    pub fn write_header(&self, into: &mut [u8]) {
        let options = self.options.as_slice();
        let (fixed, rest) = into.split_at_mut(wire::TCP_MIN_LEN);
        fixed[0..2].copy_from_slice(&self.path.local.port().to_be_bytes());
        fixed[2..4].copy_from_slice(&self.path.remote.port().to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12] = ((self.header_len() / 4) as u8) << 4;
        fixed[13] = self.flags.0;
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&[0, 0]);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        rest[..options.len()].copy_from_slice(options);
    }
}
