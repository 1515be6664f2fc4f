//! The connection of a script: its numbers in the script and on the wire.

use std::collections::HashMap;
use std::net::SocketAddr;

use wire::Flags;

use super::seen::Seen;
use crate::script::TcpOption;
use crate::sockets::Fd;

/// State of the connection, as far as the mapping of numbers depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// A new socket.
    New,
    /// It listens: the first packet that arrives makes a connection of it.
    Listening,
    /// connect() was called; the SYN was not compared yet.
    Connecting,
    /// Our SYN was compared.
    SynSent,
    /// A packet has arrived for the listener, or for no socket.
    Received,
    /// Our SYN-ACK was compared.
    SynAckSent,
    /// accept() has returned it, or the peer has answered.
    Known,
}

/// The connection of the script, with its peer.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) phase: Phase,
    /// This end, once it is known.
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: SocketAddr,
    /// Our initial sequence number, on the wire and in the script.
    pub(super) local_isn: (u32, u32),
    /// The peer's initial sequence number, which the script chooses.
    pub(super) remote_isn: u32,
    /// The descriptor of the socket, once there is one.
    pub(super) fd: Option<Fd>,
    /// TSval of the script to TSval on the wire.
    timestamps: HashMap<u32, u32>,
    /// The first pair of them.
    first_timestamp: Option<(u32, u32)>,
}

impl Peer {
    pub(super) fn new(phase: Phase, remote: SocketAddr, fd: Option<Fd>) -> Self {
        Peer {
            phase,
            local: None,
            remote,
            local_isn: (0, 0),
            remote_isn: 0,
            fd,
            timestamps: HashMap::new(),
            first_timestamp: None,
        }
    }

    /// Added to the peer's numbers to get those on the wire. A SYN has its own number.
    pub(super) fn remote_offset(&self, flags: Flags) -> u32 {
        if flags.any(Flags::SYN) { 0 } else { self.remote_isn }
    }

    /// Added to our numbers to get those on the wire.
    pub(super) fn local_offset(&self, flags: Flags) -> u32 {
        let (wire, script) = self.local_isn;
        if flags.any(Flags::SYN) { wire.wrapping_sub(script) } else { wire }
    }

    /// Whether a packet belongs to this connection.
    pub(super) fn sent(&self, seen: &Seen) -> bool {
        seen.destination == self.remote && self.local.is_none_or(|local| local == seen.source)
    }

    /// The value on the wire for a TSecr of the script.
    pub(super) fn echo(&self, script: u32, scaled: bool) -> Result<u32, String> {
        if let Some(wire) = self.timestamps.get(&script) {
            return Ok(*wire);
        }
        match self.first_timestamp {
            Some((first, wire)) if scaled => Ok(script.wrapping_sub(first).wrapping_add(wire)),
            _ => Err(format!("ecr {script} echoes no timestamp that the script expected before")),
        }
    }

    /// Records that `script` stands for the timestamp `wire`, and returns `wire` as a number of the script.
    pub(super) fn timestamp(&mut self, script: u32, wire: u32) -> u32 {
        self.timestamps.insert(script, wire);
        let (first, first_wire) = *self.first_timestamp.get_or_insert((script, wire));
        wire.wrapping_sub(first_wire).wrapping_add(first)
    }

    /// A packet of ours with the script's numbers, except for timestamps.
    pub(super) fn to_script(&self, mut seen: Seen) -> Seen {
        seen.seq = seen.seq.wrapping_sub(self.local_offset(seen.flags));
        let remote = self.remote_offset(seen.flags);
        if seen.flags.any(Flags::ACK) {
            seen.ack = seen.ack.wrapping_sub(remote);
        }
        shift_sack(&mut seen.options, remote.wrapping_neg());
        seen
    }
}

/// Adds to all numbers of SACK blocks.
pub(super) fn shift_sack(options: &mut [TcpOption], by: u32) {
    for option in options {
        if let TcpOption::Sack(blocks) = option {
            for (start, end) in blocks {
                *start = start.wrapping_add(by);
                *end = end.wrapping_add(by);
            }
        }
    }
}

/// The byte of a stream at a place that is counted from 0: what is written, sent and read must agree.
pub(super) fn stream_byte(at: u32) -> u8 {
    (at % 251) as u8
}
