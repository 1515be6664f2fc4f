//! What the engine's lane counts, beside its queue of the wire.

use iface::Dropped;

use crate::app::ServiceCounters;
use crate::counters::Entry;
use crate::port::Traffic;

/// What a [`Node`](super::node::Node) counts of segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCounters {
    /// Segments that were given to the engine, aggregates as one, and their payload bytes.
    pub(crate) segments_in: Traffic,
    /// Segments that the engine gave, super-packets as one, and their payload bytes.
    pub(super) segments_out: Traffic,
    /// Those of several segments, each way.
    pub(super) aggregates: u64,
    pub(super) super_packets: u64,
}

/// The counters of a lane, as they are now.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineCounters {
    pub(super) service: ServiceCounters,
    pub(super) segments: NodeCounters,
    pub(super) network: iface::Counters,
    pub(super) engine: tcp::Counters,
    pub(super) memory: tcp::Memory,
    /// Packets that LRO found to be damaged.
    pub(super) damaged: u64,
    /// Of the worker between host and engine.
    pub(super) short_way: ShortWay,
}

/// Packets between a host and the engine beside it, which do not go by the wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShortWay {
    pub(crate) from_host: Traffic,
    pub(crate) to_host: Traffic,
}

impl EngineCounters {
    /// Every counter, in a fixed order; and what the engine's memory is spent on now.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let EngineCounters { service, segments, network, engine, memory, damaged, .. } = self;
        let ShortWay { from_host, to_host } = &self.short_way;
        let plain = [
            ("service", "connections", service.connections),
            ("service", "begun", service.begun),
            ("service", "ended", service.ended),
            ("service", "failed", service.failed),
            ("service", "bytes_read", service.bytes_read),
            ("service", "bytes_written", service.bytes_written),
            ("service", "mismatches", service.mismatches),
            ("port", "rx_damaged", *damaged),
            ("segments", "received", segments.segments_in.frames),
            ("segments", "received_bytes", segments.segments_in.bytes),
            ("segments", "aggregates", segments.aggregates),
            ("segments", "sent", segments.segments_out.frames),
            ("segments", "sent_bytes", segments.segments_out.bytes),
            ("segments", "super_packets", segments.super_packets),
            ("network", "neighbours", network.neighbours),
            ("network", "solicitations", network.solicitations),
            ("network", "resolutions", network.resolutions),
            ("network", "pings", network.pings),
            ("network", "icmp_errors", network.icmp_errors),
            ("short_way", "from_host_packets", from_host.frames),
            ("short_way", "from_host_bytes", from_host.bytes),
            ("short_way", "to_host_packets", to_host.frames),
            ("short_way", "to_host_bytes", to_host.bytes),
            ("drop", "neighbour_silent", network.neighbour_silent),
            ("memory", "limit", memory.limit),
            ("memory", "promised", memory.promised),
            ("memory", "received", memory.received),
            ("memory", "sending", memory.sending),
            ("memory", "tables", memory.tables),
            ("memory", "kept", memory.kept),
        ];
        let dropped = Dropped::ALL.into_iter();
        let dropped = dropped.map(|why| ("drop", why.name(), network.dropped[why as usize]));
        let engine = engine.iter().map(|(name, value)| ("tcp", name, value));
        let all = plain.into_iter().chain(dropped).chain(engine);
        all.map(|(group, name, value)| Entry { group, name, value })
    }
}
