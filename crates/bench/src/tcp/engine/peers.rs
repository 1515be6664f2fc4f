//! A stack and the peers of its connections, of which no more is kept than the fields of a segment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::tcp::{Config, Events, FourTuple, Id, Nanos, Options, Segment, Stack, StackConfig, Transmit};
use wire::{Flags, Seq, TCP_MIN_LEN, Tcp, Timestamps};

use crate::Error;

/// Payload of a full segment: an MTU of 1,500 less the headers with timestamps.
pub(super) const MSS: usize = 1448;
/// Bytes of the TCP header of a segment with timestamps.
pub(super) const HEADER: usize = TCP_MIN_LEN + 12;
/// Segments in an aggregate or a super-packet: as many as an IP packet holds.
pub(super) const AGGREGATE: usize = 44;
/// Connections to a peer's address.
const PORTS: u32 = 50_000;
/// The peers' window, unscaled, and its scale: 8 MiB.
const WINDOW: (u16, u8) = (u16::MAX, 7);
/// The stack's window, which a batch fits in even if all of it is of one connection.
const RECEIVE_BUFFER: u32 = 1 << 20;

/// A header with timestamps, as it lies in a frame.
pub(super) type Header = [u8; HEADER];

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) echo: Seq,
}

/// What the stack has sent, as far as the peer goes by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) path: FourTuple,
    pub(super) payload: usize,
    header: [u8; 60],
}

impl Sent {
    #[inline]
    pub(super) fn new(transmit: &Transmit<'_>) -> Sent {
        let mut header = [0; 60];
        transmit.write_header(&mut header);
        Sent { path: transmit.path, payload: transmit.payload_len(), header }
    }
}

/// See the module's documentation.
pub(super) struct Peers {
    pub(super) stack: Stack,
    pub(super) peers: Vec<Peer>,
    /// Of the same connections, in the stack.
    pub(super) ids: Vec<Id>,
    pub(super) now: Nanos,
}

impl Peers {
    /// Opens so many connections to the stack.
    pub(super) fn connect(connections: u32) -> Result<Peers, Error> {
        let config = StackConfig { secret: [7; 16], half_open: 1024, connections };
        // Windows are promised to all, and read at once.
        let mut stack = Stack::new(config).with_memory(u64::MAX);
        let config = Config {
            receive_buffer: RECEIVE_BUFFER,
            receive_buffer_max: RECEIVE_BUFFER,
            ..Config::default()
        };
        let listening = stack.listen(None, LOCAL.1, Arc::new(config));
        listening.map_err(|error| failed(&error.to_string()))?;
        let peers = Vec::with_capacity(connections as usize);
        let ids = Vec::with_capacity(connections as usize);
        let mut peers = Peers { stack, peers, ids, now: 1_000_000_000 };
        for number in 0..connections {
            peers.open(number)?;
        }
        Ok(peers)
    }

    fn open(&mut self, number: u32) -> Result<(), Error> {
        let path = path(number);
        let options = Options {
            mss: Some(1460),
            window_scale: Some(WINDOW.1),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: self.clock(), echo: Seq(0) }),
            ..Options::default()
        };
        let mut segment = Segment {
            seq: Seq(number),
            ack: Seq(0),
            flags: Flags::SYN,
            window: WINDOW.0,
            urgent: 0,
            options,
            payload: &[],
            gso_size: 0,
            ce: false,
        };
        self.stack.receive(&path, &segment, self.now);
        let answer = self.stack.poll_transmit(self.now).ok_or_else(|| failed("no SYN-ACK"))?;
        let theirs = Options::parse(answer.options.as_slice()).timestamps;
        let echo = theirs.ok_or_else(|| failed("no timestamps"))?.value;
        segment.seq = Seq(number) + 1;
        segment.ack = answer.seq + 1;
        segment.flags = Flags::ACK;
        segment.options = Options {
            timestamps: Some(Timestamps { value: self.clock(), echo }),
            ..Options::default()
        };
        self.stack.receive(&path, &segment, self.now);
        match self.stack.next_event() {
            Some((id, events)) if events.any(Events::ACCEPTED) => {
                self.peers.push(Peer { seq: segment.seq, ack: segment.ack, echo });
                self.ids.push(id);
                Ok(())
            }
            _ => Err(failed("a connection was not accepted")),
        }
    }

    /// The timestamp clock of all peers, in milliseconds.
    fn clock(&self) -> Seq {
        Seq((self.now / 1_000_000) as u32)
    }

    /// The next segment of a peer with so much payload, as its header.
    pub(super) fn segment(&mut self, number: u32, payload: usize) -> Header {
        let clock = self.clock();
        let peer = &mut self.peers[number as usize];
        let flags = if payload == 0 { Flags::ACK } else { Flags::ACK.with(Flags::PSH) };
        let header = header(number, peer, flags, clock);
        peer.seq += payload as u32;
        header
    }

    /// A peer has got this, and what it answers: an acknowledgment of every second segment, or of all of
    /// them at once.
    pub(super) fn acknowledge(
        &mut self,
        sent: &Sent,
        at_once: bool,
        answers: &mut Vec<(FourTuple, Header)>,
    ) {
        let number = number(&sent.path);
        let clock = self.clock();
        let Ok(tcp) = Tcp::new(&sent.header[..]) else { return };
        let peer = &mut self.peers[number as usize];
        if let Some(timestamps) = Options::parse(tcp.option_bytes()).timestamps {
            peer.echo = timestamps.value;
        }
        let step = if at_once { sent.payload } else { 2 * MSS };
        let mut left = sent.payload;
        while left > 0 {
            let taken = left.min(step);
            peer.ack += taken as u32;
            left -= taken;
            answers.push((sent.path, header(number, peer, Flags::ACK, clock)));
        }
    }
}

/// Where the stack is.
pub(super) const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 80);

/// The ends of a connection, by its number.
pub(super) fn path(number: u32) -> FourTuple {
    let [_, a, b, c] = (number / PORTS).to_be_bytes();
    let remote = (Ipv4Addr::new(11, a, b, c), 1_000 + (number % PORTS) as u16);
    FourTuple { local: LOCAL.into(), remote: SocketAddr::from(remote) }
}

/// The connection's number, by its ends.
pub(super) fn number(path: &FourTuple) -> u32 {
    let IpAddr::V4(address) = path.remote.ip() else { return 0 };
    let [_, a, b, c] = address.octets();
    u32::from_be_bytes([0, a, b, c]) * PORTS + u32::from(path.remote.port() - 1_000)
}

pub(super) fn header(number: u32, peer: &Peer, flags: Flags, clock: Seq) -> Header {
    let mut header = [0; HEADER];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &path(number).remote.port().to_be_bytes());
    put(2, &LOCAL.1.to_be_bytes());
    put(4, &peer.seq.0.to_be_bytes());
    put(8, &peer.ack.0.to_be_bytes());
    put(12, &[((HEADER / 4) << 4) as u8, flags.0]);
    put(14, &WINDOW.0.to_be_bytes());
    put(20, &[1, 1, 8, 10]);
    put(24, &clock.0.to_be_bytes());
    put(28, &peer.echo.0.to_be_bytes());
    header
}

/// The engine did not do what it should.
pub(super) fn failed(why: &str) -> Error {
    Error::Failed { system: "wharf", why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_its_number() {
        for n in [0, 1, PORTS - 1, PORTS, 99_999, 1_000_000] {
            assert_eq!(number(&path(n)), n);
        }
    }
}
