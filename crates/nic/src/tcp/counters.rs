//! What an endpoint counts beside the counters of the network and of the engine.

use iface::Dropped;

use crate::counters::Entry;
use crate::port::{Refused, Sent};

/// What a port counts.
#[derive(Clone, Debug, Default)]
pub(super) struct PortCounters {
    /// Packets and bytes that arrived.
    pub(super) received: Sent,
    /// Packets and bytes that were sent; frames, on a wire.
    pub(super) sent: Sent,
    /// Packets whose header made no sense.
    pub(super) unreadable: u64,
    /// Packets that the host's kernel did not take, by reason.
    pub(super) refused: [u64; Refused::ALL.len()],
    /// Packets that LRO found to be damaged.
    pub(super) lro_discarded: u64,
    /// Packets that fit no frame.
    pub(super) too_long: u64,
    /// Packets for which there was no memory.
    pub(super) no_memory: u64,
    /// Frames that the interface would not take.
    pub(super) lost: u64,
    /// Frames that were dropped in front of the port.
    pub(super) dropped: u64,
}

/// What an endpoint counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// Segments that were given to the engine, aggregates as one, and their payload bytes.
    pub(super) segments_in: Sent,
    /// Segments that the engine gave, super-packets as one, and their payload bytes.
    pub(super) segments_out: Sent,
    /// Those of several segments, each way.
    pub(super) aggregates: u64,
    pub(super) super_packets: u64,
    /// Connections there are now.
    pub(super) connections: u64,
    /// Those that came to the service, or were opened by it, and those that ended.
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// Those of them that did not end in order.
    pub(super) failed: u64,
    /// Bytes that the service has read and written.
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    /// Connections on which something else came than was sent, where that is looked at.
    pub(super) mismatches: u64,
    /// Times that the worker slept.
    pub(super) sleeps: u64,
}

impl Counters {
    /// Every counter, those of the port, the network and the engine among them, in a fixed order; and what the
    /// engine's memory is spent on now.
    pub(super) fn entries<'a>(
        &'a self,
        port: &'a PortCounters,
        network: &'a iface::Counters,
        engine: &'a tcp::Counters,
        memory: &tcp::Memory,
    ) -> impl Iterator<Item = Entry> + 'a {
        let service = [
            ("service", "connections", self.connections),
            ("service", "begun", self.begun),
            ("service", "ended", self.ended),
            ("service", "failed", self.failed),
            ("service", "bytes_read", self.bytes_read),
            ("service", "bytes_written", self.bytes_written),
            ("service", "mismatches", self.mismatches),
        ];
        let own = [
            ("port", "rx_packets", port.received.frames),
            ("port", "rx_bytes", port.received.bytes),
            ("port", "rx_dropped", port.dropped),
            ("port", "rx_damaged", port.lro_discarded),
            ("port", "tx_packets", port.sent.frames),
            ("port", "tx_bytes", port.sent.bytes),
            ("port", "tx_lost", port.lost),
            ("port", "tx_too_long", port.too_long),
            ("port", "no_memory", port.no_memory),
            ("port", "unreadable", port.unreadable),
            ("segments", "received", self.segments_in.frames),
            ("segments", "received_bytes", self.segments_in.bytes),
            ("segments", "aggregates", self.aggregates),
            ("segments", "sent", self.segments_out.frames),
            ("segments", "sent_bytes", self.segments_out.bytes),
            ("segments", "super_packets", self.super_packets),
            ("network", "neighbours", network.neighbours),
            ("network", "questions", network.questions),
            ("network", "resolutions", network.resolutions),
            ("network", "pings", network.pings),
            ("network", "icmp_errors", network.icmp_errors),
            ("worker", "sleeps", self.sleeps),
        ];
        let refused = Refused::ALL.into_iter();
        let refused = refused.map(|why| ("drop", why.name(), port.refused[why as usize]));
        let dropped = Dropped::ALL.into_iter();
        let dropped = dropped.map(|why| ("drop", why.name(), network.dropped[why as usize]));
        let silent = [("drop", "neighbour_silent", network.neighbour_silent)];
        let memory = [
            ("memory", "limit", memory.limit),
            ("memory", "promised", memory.promised),
            ("memory", "received", memory.received),
            ("memory", "sending", memory.sending),
            ("memory", "tables", memory.tables),
            ("memory", "kept", memory.kept),
        ];
        let engine = engine.iter().map(|(name, value)| ("tcp", name, value));
        let all = service.into_iter().chain(own).chain(dropped).chain(silent).chain(refused);
        all.chain(memory).chain(engine).map(|(group, name, value)| Entry { group, name, value })
    }
}

/// All counters, none of which has counted anything.
pub(crate) fn zero() -> Vec<Entry> {
    let (own, port, network, engine) =
        <(Counters, PortCounters, iface::Counters, tcp::Counters)>::default();
    own.entries(&port, &network, &engine, &tcp::Memory::default()).collect()
}
