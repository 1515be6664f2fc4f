//! The endpoint as a host on the network, without IO: an [`Interface`] with the engine behind it.

use iface::{Interface, Received, Route};
use lro::Nanos;
use tcp::{FourTuple, Segment, Stack};
use wire::{Bytes, Mac};

use super::Arrived;
use super::counters::NodeCounters;
use super::output::Output;
use crate::app::Lender;
use crate::port::slice;
use crate::wire_queue::{Packet, TxQueue};

/// See the module's documentation.
pub(crate) struct Node {
    pub(super) interface: Interface,
    output: Output,
    pub(super) stack: Stack,
    pub(super) counters: NodeCounters,
}

/// How far [`Node::transmit`] got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// There was nothing to send.
    Nothing,
    /// Something was sent, and there may be more.
    Some,
    /// There is no room for more.
    Full,
}

impl Node {
    /// A host with this engine.
    pub(crate) fn new(interface: Interface, stack: Stack) -> Self {
        Node { interface, output: Output::new(), stack, counters: NodeCounters::default() }
    }

    /// Takes a packet.
    #[inline]
    pub(super) fn receive(&mut self, packet: Arrived<'_>, lender: &mut impl Lender, now: Nanos) {
        let Arrived { bytes, rest, checksum, gso_size } = packet;
        match self.interface.receive(&iface::Packet { bytes, rest, checksum }, now) {
            Ok(Received::Segment(segment)) => {
                self.give(&segment, rest, gso_size, lender, now);
            }
            Ok(Received::Error { local, remote, what, seq }) => {
                self.stack.unreachable(&FourTuple { local, remote }, what, seq, now);
            }
            // What was dropped is counted.
            Ok(Received::Consumed) | Err(_) => {}
        }
    }

    /// Gives the engine a segment.
    #[inline]
    fn give(
        &mut self,
        arrived: &iface::Segment<'_>,
        rest: &[&[u8]],
        gso_size: u16,
        lender: &mut impl Lender,
        now: Nanos,
    ) {
        let iface::Segment { local, remote, ref header, payload, ce } = *arrived;
        let path = FourTuple { local, remote };
        let segment = |payload| Segment { gso_size, ce, ..Segment::new(header, payload) };
        let mut receive = |segment: Segment<'_>| {
            if let Some(placement) = self.stack.receive(&path, &segment, now) {
                lender.store(placement, segment.payload);
            }
            segment.payload_len()
        };
        let len = match (payload, rest) {
            ([], rest) => receive(segment(rest)),
            (first, []) => receive(segment(&[first])),
            // There is one at most behind payload: see `iface::Segment::payload`.
            (first, [second, ..]) => receive(segment(&[first, second])),
        };
        self.counters.segments_in.count(len as usize);
        self.counters.aggregates += u64::from(gso_size > 0);
    }

    /// Runs what is due: the engine's timers, the ARP requests and neighbour solicitations.
    pub(super) fn on_time(&mut self, now: Nanos) {
        if self.stack.next_deadline().is_some_and(|due| now >= due) {
            self.stack.on_time(now);
        }
        self.interface.on_time(now);
    }

    /// When [`on_time`](Self::on_time) is to be called.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.stack.next_deadline().into_iter().chain(self.interface.next_deadline()).min()
    }

    /// Sends what there is to send: at most `max` segments of the engine's, and none after so many bytes of them.
    pub(super) fn transmit(
        &mut self,
        out: &mut impl TxQueue,
        now: Nanos,
        (max, max_bytes): (usize, usize),
        lender: &mut impl Lender,
    ) -> Progress {
        let Node { interface, output, stack, counters } = self;
        let mut progress = Progress::Nothing;
        while out.has_room() {
            let Some(frame) = interface.poll_transmit(now) else { break };
            progress = Progress::Some;
            out.send(&Packet::frame(frame.vnet, frame.bytes));
        }
        let mut bytes = 0;
        for _ in 0..max {
            if bytes >= max_bytes {
                return progress;
            }
            if !out.has_room() {
                return Progress::Full;
            }
            let Some(due) = stack.poll_due(now) else { return progress };
            progress = Progress::Some;
            lender.sends(stack, &due);
            let segment = stack.segment(&due);
            let route = match lender.next_hop(stack, &due, &segment.path) {
                Some(mac) => Ok(Route::At(mac)),
                None => interface.route(segment.path.remote.ip(), now),
            };
            let to = match route {
                Ok(Route::At(mac)) => mac,
                // Written when it is known.
                Ok(Route::Asking(_)) => Mac::default(),
                Err(_) => continue,
            };
            let Some((vnet, header)) = output.headers(interface, &segment, to) else { continue };
            counters.segments_out.count(segment.payload_len());
            bytes += segment.payload_len();
            let payload = match segment.lent {
                0 => segment.payload.map(Bytes::from),
                len => lender.lent(stack, &due, segment.seq, len),
            };
            counters.super_packets += u64::from(segment.gso_size > 0);
            match route {
                Ok(Route::Asking(hop)) => {
                    let [first, second] = payload;
                    let (mut one, mut two) = (Vec::new(), Vec::new());
                    let payload = [slice(first, &mut one), slice(second, &mut two)];
                    interface.hold(hop, vnet, [header, payload[0], payload[1]].concat());
                }
                _ => out.send(&Packet { vnet, header, payload }),
            }
        }
        progress
    }
}
