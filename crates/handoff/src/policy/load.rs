//! How many connections the NIC runs: as many as it has time for ("Connection Handoff Policies for TCP Offload
//! Network Interfaces", OSDI'06: load control).
//!
//! The measure is the number of packets that wait to be received, since a NIC that has time has none waiting.
//! While their average is below a low mark and the NIC is full, it may have more connections; above a high mark
//! it must have fewer.

use wire::Nanos;

/// Settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadSettings {
    /// Most connections, whatever the load.
    pub max: u32,
    /// Packets that wait on average, below which there may be more connections.
    pub low: u32,
    /// Packets that wait on average, above which there must be fewer.
    pub high: u32,
    /// Time between changes.
    pub interval: Nanos,
}

impl Default for LoadSettings {
    fn default() -> Self {
        LoadSettings { max: 16_384, low: 16, high: 128, interval: 10_000_000 }
    }
}

/// Where the limit begins.
const FIRST: u32 = 64;
/// Share of a new sample in the average, as a shift.
const GAIN: u32 = 3;
/// Binary places of the average.
const PLACES: u32 = 8;

/// The number of connections that the NIC may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadControl {
    settings: LoadSettings,
    limit: u32,
    /// In 256ths of a packet.
    average: u64,
    changed: Nanos,
}

impl LoadControl {
    /// A NIC without load, at `now`.
    pub fn new(settings: LoadSettings, now: Nanos) -> Self {
        LoadControl { settings, limit: FIRST.min(settings.max), average: 0, changed: now }
    }

    /// A look at the NIC: so many packets wait, and so many connections are there.
    pub fn sample(&mut self, waiting: u32, connections: u32, now: Nanos) {
        let new = u64::from(waiting) << PLACES;
        self.average = self.average - (self.average >> GAIN) + (new >> GAIN);
        if now.saturating_sub(self.changed) < self.settings.interval {
            return;
        }
        self.changed = now;
        if self.average > u64::from(self.settings.high) << PLACES {
            // What is there counts, not what might be: a limit that nothing reaches lowers no load.
            let there = self.limit.min(connections);
            self.limit = there - there.div_ceil(8);
        } else if self.average <= u64::from(self.settings.low) << PLACES
            && connections >= self.limit
        {
            let more = (self.limit / 8).max(1);
            self.limit = self.limit.saturating_add(more).min(self.settings.max);
        }
    }

    /// Most connections now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// How many more may come.
    pub fn room(&self, connections: u32) -> u32 {
        self.limit.saturating_sub(connections)
    }

    /// How many must go.
    pub fn excess(&self, connections: u32) -> u32 {
        connections.saturating_sub(self.limit)
    }
}
