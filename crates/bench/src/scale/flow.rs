//! Flows: the headers of their segments, and how much of them may be on its way.

use std::net::Ipv4Addr;

use ::tcp::Options;
use wire::ip::{Addresses, IpHeader};
use wire::{
    ETHERNET_LEN, Flags, IPV4_MIN_LEN, Mac, Seq, TCP_MIN_LEN, Tcp, protocol, write_ethernet,
};

use super::board::Board;

pub(super) const NIC: Mac = [2, 0, 0, 0, 0, 1];
pub(super) const ROUTER: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 0, 0, 254));
/// Where the engine is.
pub(super) const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 80);
const FIRST_PORT: u16 = 1_000;
const TCP_AT: usize = ETHERNET_LEN + IPV4_MIN_LEN;
/// Bytes in front of the payload, with timestamps.
pub(super) const HEADER: usize = TCP_AT + TCP_MIN_LEN + 12;
/// Payload of a segment: an MTU of 1,500 less the headers.
pub(super) const MSS: usize = ETHERNET_LEN + 1_500 - HEADER;
/// Segments of a flow that come one behind the other: what a sender's TSO puts on a wire at once.
const BURST: u32 = 32;
/// Bytes that may be on their way: less than a window without window scale.
const WINDOW: u32 = BURST * MSS as u32;
/// A flow that is not acknowledged for so long, in nanoseconds, goes back.
const TIMEOUT: u64 = 200_000_000;

/// Which flow: its place on the [`Board`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    /// The worker whose it is.
    pub(super) owner: usize,
    /// Which of its flows.
    pub(super) flow: usize,
}

/// How flows are numbered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// Flows of each worker.
    pub(super) each: usize,
}

impl Numbers {
    pub(super) fn place(self, number: Number) -> usize {
        number.owner * self.each + number.flow
    }

    fn remote(number: Number) -> (Ipv4Addr, u16) {
        (Ipv4Addr::new(11, 0, 0, number.owner as u8 + 1), FIRST_PORT + number.flow as u16)
    }

    /// Tells the board of a packet that the engine has sent, if it is a segment.
    pub(super) fn take(self, packet: &[u8], board: &Board) {
        let Some(to) = packet.get(ETHERNET_LEN + 16..).and_then(|ip| ip.first_chunk::<4>()) else {
            return;
        };
        let is_tcp = packet[12..14] == [8, 0] && packet[ETHERNET_LEN + 9] == protocol::TCP;
        let Some(Ok(tcp)) = packet.get(TCP_AT..).filter(|_| is_tcp).map(Tcp::new) else { return };
        let Some(owner) = to[3].checked_sub(1) else { return };
        let Some(flow) = tcp.destination().checked_sub(FIRST_PORT) else { return };
        let place = self.place(Number { owner: owner.into(), flow: flow.into() });
        if tcp.flags().any(Flags::RST) {
            board.count_reset();
        } else if tcp.flags().any(Flags::SYN) {
            let stamps = Options::parse(tcp.option_bytes()).timestamps;
            board.accept(place, tcp.seq(), stamps.map_or(Seq(0), |stamps| stamps.value));
        } else {
            board.acknowledge(place, tcp.ack());
        }
    }
}

/// The sending end of a connection.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) place: usize,
    header: [u8; HEADER],
    seq: Seq,
    /// As it was when the board was last looked at.
    acknowledged: Seq,
    /// When that changed.
    since: u64,
}

impl Flow {
    pub(super) fn new(numbers: Numbers, number: Number) -> Self {
        let ((source, port), seq) = (Numbers::remote(number), Seq(number.flow as u32));
        let addresses = Addresses::V4 { source, destination: LOCAL.0 };
        let ip = IpHeader::new(addresses, protocol::TCP);
        let mut header = [0; HEADER];
        write_ethernet(&mut header, NIC, ROUTER.0, ip.ether_type());
        ip.write(&mut header[ETHERNET_LEN..], HEADER - TCP_AT + MSS);
        let place = numbers.place(number);
        let mut flow = Flow { place, header, seq, acknowledged: seq, since: 0 };
        flow.put(0, &port.to_be_bytes());
        flow.put(2, &LOCAL.1.to_be_bytes());
        flow.put(12, &[(((HEADER - TCP_AT) / 4) << 4) as u8, 0, 0xff, 0xff]);
        flow.put(20, &[1, 1, 8, 10]);
        flow
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.header[TCP_AT + at..TCP_AT + at + bytes.len()].copy_from_slice(bytes);
    }

    /// A segment without payload.
    pub(super) fn bare(&mut self, flags: Flags, now: u64) -> [u8; HEADER] {
        self.stamp(now);
        self.put(4, &self.seq.0.to_be_bytes());
        self.put(13, &[flags.0]);
        let mut bare = self.header;
        let source = Ipv4Addr::from(*bare[ETHERNET_LEN + 12..].first_chunk().unwrap_or(&[0; 4]));
        let addresses = Addresses::V4 { source, destination: LOCAL.0 };
        IpHeader::new(addresses, protocol::TCP).write(&mut bare[ETHERNET_LEN..], HEADER - TCP_AT);
        bare
    }

    /// Goes by the SYN-ACK from now on.
    pub(super) fn open(&mut self, (seq, stamp): (Seq, Seq), now: u64) {
        self.seq += 1;
        (self.acknowledged, self.since) = (self.seq, now);
        self.put(8, &(seq + 1).0.to_be_bytes());
        self.put(28, &stamp.0.to_be_bytes());
        self.stamp(now);
    }

    /// Sets the timestamp of the segments to come.
    fn stamp(&mut self, now: u64) {
        self.put(24, &((now / 1_000_000) as u32).to_be_bytes());
    }

    /// The next segment.
    fn segment(&mut self, is_last: bool) -> &[u8; HEADER] {
        let flags = if is_last { Flags::ACK.with(Flags::PSH) } else { Flags::ACK };
        self.put(4, &self.seq.0.to_be_bytes());
        self.put(13, &[flags.0]);
        self.seq += MSS as u32;
        &self.header
    }

    /// Whether there is room for a segment. The board is looked at only if there was none.
    fn has_room(&mut self, board: &Board, now: u64, repeated: &mut u64) -> bool {
        let has_room = |flow: &Flow| flow.seq - flow.acknowledged < WINDOW;
        if has_room(self) {
            return true;
        }
        let acknowledged = board.acknowledged(self.place);
        if acknowledged.after(self.acknowledged) {
            (self.acknowledged, self.since) = (acknowledged, now);
        } else if now - self.since > TIMEOUT {
            (self.seq, self.since) = (self.acknowledged, now);
            *repeated += 1;
        }
        has_room(self)
    }
}

/// Flows that take turns.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) flows: Vec<Flow>,
    /// Whose turn it is, and how many segments are left of it.
    turn: usize,
    left: u32,
    /// None has room, as far as is known in this batch.
    is_blocked: bool,
    /// Flows wait for acknowledgments.
    waits: bool,
    pub(super) repeated: u64,
}

impl Group {
    /// `waits`: there is an engine that acknowledges what they send.
    pub(super) fn new(flows: impl Iterator<Item = Flow>, waits: bool) -> Self {
        let flows = flows.collect();
        Group { flows, turn: 0, left: BURST, is_blocked: false, waits, repeated: 0 }
    }

    /// A batch begins.
    pub(super) fn begin(&mut self) {
        self.is_blocked = self.flows.is_empty();
    }

    /// The header of the next segment of any of them.
    pub(super) fn next(&mut self, board: &Board, now: u64) -> Option<&[u8; HEADER]> {
        if self.is_blocked {
            return None;
        }
        for _ in 0..=self.flows.len() {
            let flow = &mut self.flows[self.turn];
            if self.left > 0 && (!self.waits || flow.has_room(board, now, &mut self.repeated)) {
                self.left -= 1;
                return Some(self.flows[self.turn].segment(self.left == 0));
            }
            self.turn = (self.turn + 1) % self.flows.len();
            self.left = BURST;
            self.flows[self.turn].stamp(now);
        }
        self.is_blocked = true;
        None
    }
}
