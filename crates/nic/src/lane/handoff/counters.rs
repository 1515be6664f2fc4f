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

/// What the agent counts of processes and their sessions: a worker has none of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AgentCounts {
    /// Processes that have a session, or may say Hello.
    pub(crate) sessions: u64,
    /// Processes without a session, as their users had enough.
    pub(crate) refused_user: u64,
    /// The same, as there was no place.
    pub(crate) refused_all: u64,
    /// Processes that did not say Hello in time.
    pub(crate) silent: u64,
    /// Processes that broke the protocol of the socket.
    pub(crate) broken: u64,
    /// Sockets in repair mode that were made unconnected before their programs had them again.
    pub(crate) unrepaired: u64,
}

impl AgentCounts {
    /// The group of these counters.
    pub(crate) const GROUP: &str = "handoff_sessions";

    /// Every counter, in a fixed order.
    pub(crate) fn entries(self) -> [(&'static str, u64); 6] {
        [
            ("open", self.sessions),
            ("refused_user", self.refused_user),
            ("refused_all", self.refused_all),
            ("silent", self.silent),
            ("broken", self.broken),
            ("unrepaired", self.unrepaired),
        ]
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
        // The agent's, which knows them.
        let sessions = AgentCounts::default().entries().into_iter().map(of(AgentCounts::GROUP));
        plain.chain(commands).chain(refused).chain(restored).chain(sessions)
    }
}
