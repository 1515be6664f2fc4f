//! What the lane counts.

use handoff::command::{NicCounts, OsCounts};
use handoff::machine::SideCounts;

use super::lent::SpliceCounts;
use crate::counters::Entry;

/// Times for which connections stood still that changed sides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stops {
    count: u64,
    /// Nanoseconds, of all together.
    time: u64,
}

impl Stops {
    pub(super) fn add(&mut self, nanoseconds: u64) {
        self.count += 1;
        self.time += nanoseconds;
    }
}

/// The counters, as they are now.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandoffCounters {
    /// Connections that the NIC has, or is about to.
    pub(super) connections: u64,
    /// Most that there may be, by load.
    pub(super) load_limit: u64,
    pub(super) side: SideCounts,
    pub(super) commands: NicCounts,
    pub(super) events: OsCounts,
    pub(super) bad_commands: u64,
    pub(super) hostile: u64,
    pub(super) silenced: u64,
    pub(super) splices: SpliceCounts,
    pub(super) to_nic: Stops,
    pub(super) to_os: Stops,
}

impl HandoffCounters {
    /// Every counter, in a fixed order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let HandoffCounters { connections, side, commands, events, .. } = self;
        let plain = [
            ("connections", *connections),
            ("load_limit", self.load_limit),
            ("handoffs", side.handoffs),
            ("refused", side.refused.sum()),
            ("restored", side.restored.sum()),
            ("held", side.held),
            ("held_full", side.held_full),
            ("forwarded", side.forwarded),
            ("abandoned", side.abandoned),
            ("stale", side.stale),
            ("crossed", side.crossed),
            ("bad_commands", self.bad_commands),
            ("hostile", self.hostile),
            ("silenced", self.silenced),
            ("splices", self.splices.begun),
            ("spliced_bytes", self.splices.bytes),
            ("splices_refused", self.splices.refused),
            ("splices_taken_back", self.splices.taken_back),
            ("splices_over", self.splices.over),
            ("splices_left", self.splices.left),
            ("stops_to_nic", self.to_nic.count),
            ("stopped_to_nic_ns", self.to_nic.time),
            ("stops_to_os", self.to_os.count),
            ("stopped_to_os_ns", self.to_os.time),
        ];
        let of = |group: &'static str| move |(name, value)| Entry { group, name, value };
        let plain = plain.into_iter().map(of("handoff"));
        let commands = commands.entries().chain(events.entries()).map(of("handoff_commands"));
        let refused = side.refused.entries().map(of("handoff_refused"));
        let restored = side.restored.entries().map(of("handoff_restored"));
        plain.chain(commands).chain(refused).chain(restored)
    }
}
