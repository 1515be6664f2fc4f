//! What a worker counts, and what of it is published.

use crate::counters::{Entry, HostCounters};
use crate::lane::counters::EngineCounters;
use crate::lane::handoff::HandoffCounters;
use crate::peers::StrayCounters;
use crate::port::{Refused, WireCounters};
use crate::wire_queue::QueueCounters;

/// Counters of a worker's host lane, both ways, and of its queue of the wire.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Of the queue.
    pub queue: QueueCounters,
    /// Of the wire itself.
    pub wire: WireCounters,
    /// Of the host lane.
    pub host: HostCounters,
    /// Times the worker slept.
    pub sleeps: u64,
}

impl Counters {
    /// Those of the queue as an engine's port; where it is the engine's `alone`, all of them.
    fn port_entries(&self, alone: bool) -> impl Iterator<Item = Entry> {
        let Counters { queue, wire, sleeps, .. } = self;
        let sent = queue.sent - wire.taken_back;
        let both =
            [("port", "tx_too_long", queue.too_long), ("port", "no_memory", queue.no_memory)];
        let own = [
            ("port", "rx_packets", queue.received.frames),
            ("port", "rx_bytes", queue.received.bytes),
            ("port", "rx_dropped", wire.dropped),
            ("port", "tx_packets", sent.frames),
            ("port", "tx_bytes", sent.bytes),
            ("port", "tx_lost", wire.lost + queue.lost),
            ("port", "unreadable", wire.unreadable),
            ("worker", "sleeps", *sleeps),
        ];
        let refused = wire.refused;
        let refused = Refused::ALL.map(|why| ("drop", why.name(), refused[why as usize]));
        let own = own.into_iter().chain(refused).filter(move |_| alone);
        both.into_iter().chain(own).map(|(group, name, value)| Entry { group, name, value })
    }

    /// Every counter, in a fixed order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let Counters { queue, wire, host, sleeps } = self;
        let sent = queue.sent - wire.taken_back;
        let own = [
            ("wire", "rx_packets", queue.received.frames),
            ("wire", "rx_bytes", queue.received.bytes),
            ("wire", "rx_dropped", wire.dropped),
            ("wire", "tx_packets", sent.frames),
            ("wire", "tx_bytes", sent.bytes),
            ("wire", "tx_full", queue.full),
            ("wire", "tx_lost", wire.lost + queue.lost),
            ("worker", "sleeps", *sleeps),
        ];
        own.map(|(group, name, value)| Entry { group, name, value })
            .into_iter()
            .chain(host.entries())
    }
}

/// A worker's counters in the order in which they are published: of its host lane, of its engine lane, or of
/// both; and of the worker among its peers.
pub(crate) fn all<'a>(
    own: &'a Counters,
    lro: Option<&'a lro::Counters>,
    engine: Option<&'a EngineCounters>,
    (handoff, strays): (&'a HandoffCounters, &'a StrayCounters),
) -> impl Iterator<Item = Entry> + 'a {
    let lro = lro.map(|lro| {
        let lro = lro.entries().map(|(group, name, value)| Entry { group, name, value });
        own.entries().chain(lro).chain(handoff.entries())
    });
    let alone = lro.is_none();
    let engine = engine.map(|engine| engine.entries().chain(own.port_entries(alone)));
    lro.into_iter().flatten().chain(engine.into_iter().flatten()).chain(strays.entries())
}

/// The lanes of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lanes {
    /// The host's alone.
    Host,
    /// The engine's alone.
    Engine,
    /// Both.
    Both,
}

/// The counters of a worker with these lanes, none of which has counted anything.
pub(crate) fn zero(lanes: Lanes) -> Vec<Entry> {
    let (own, lro, engine, handoff, strays) = Default::default();
    let lro = (lanes != Lanes::Engine).then_some(&lro);
    all(&own, lro, (lanes != Lanes::Host).then_some(&engine), (&handoff, &strays)).collect()
}
