//! How many connections the NIC runs: as many as it has time for ("Connection Handoff Policies for TCP Offload
//! Network Interfaces", OSDI'06: load control).
//!
//! The paper's measure is the number of packets that wait to be received, since a NIC that has time has none waiting.
//! Beside it stands the share of its time in which the NIC works: what waits while it rests is no load. A NIC that has
//! worked nearly all the time, and left many packets waiting on average, is saturated: it must have fewer connections,
//! unless those that wait become fewer already. Each connection's window lets some packets wait, as a sender fills the
//! queue before it on any NIC: how many are many is for each connection that there is.
//! One on which few wait may have more again, but not sooner than some time after it was saturated last, so that the
//! number does not go to and fro.

use wire::Nanos;

/// Settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadSettings {
    /// Most connections, whatever the load.
    pub max: u32,
    /// Packets that wait on average, up to which there may be more connections.
    pub low: u32,
    /// Packets that wait on average, above which there must be fewer, however few there are.
    pub high: u32,
    /// The same for each connection at the NIC, where that is more.
    pub each: u32,
    /// Percent of its time in which the NIC works at least when there must be fewer.
    pub busy: u32,
    /// How long it is watched before anything changes, and between changes.
    pub interval: Nanos,
    /// How long it must not have been saturated before there may be more.
    pub rest: Nanos,
}

impl Default for LoadSettings {
    fn default() -> Self {
        const MS: Nanos = 1_000_000;
        LoadSettings {
            max: 16_384,
            low: 512,
            high: 8192,
            each: 32,
            busy: 90,
            interval: 100 * MS,
            rest: 2_000 * MS,
        }
    }
}

/// One in so many goes, or comes, at a time.
const PART: u32 = 8;

/// What was seen in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Window {
    since: Nanos,
    /// Of which the NIC worked so long.
    busy: Nanos,
    /// Packets that waited, times how long: their average times the interval.
    waited: u128,
}

/// The number of connections that the NIC may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadControl {
    settings: LoadSettings,
    limit: u32,
    window: Window,
    /// The last turn, and whether it did anything.
    last: Nanos,
    worked: bool,
    /// Packets that waited on average in the interval before.
    before: u128,
    /// When the NIC was saturated last.
    saturated: Option<Nanos>,
}

impl LoadControl {
    /// A NIC without load, at `now`: it may have as many as there may be.
    pub fn new(settings: LoadSettings, now: Nanos) -> Self {
        let window = Window { since: now, busy: 0, waited: 0 };
        let limit = settings.max;
        let (before, saturated) = (0, None);
        LoadControl { settings, limit, window, last: now, worked: false, before, saturated }
    }

    /// The NIC begins a turn at `now`, which will have done something or not, and finds so many packets waiting. What
    /// lies between two turns is of the first. Returns whether an interval is over: then [`decide`](Self::decide) is
    /// to be called.
    #[inline]
    pub fn turn(&mut self, now: Nanos, worked: bool, waiting: u32) -> bool {
        let passed = now.saturating_sub(self.last);
        if self.worked {
            self.window.busy += passed;
        }
        self.window.waited += u128::from(waiting) * u128::from(passed);
        (self.last, self.worked) = (now, worked);
        now.saturating_sub(self.window.since) >= self.settings.interval
    }

    /// At the end of an interval, with so many connections at the NIC: may there be as many, fewer or more.
    pub fn decide(&mut self, connections: u32) {
        let now = self.last;
        let Window { since, busy, waited } = self.window;
        let passed = now.saturating_sub(since).max(1);
        self.window = Window { since: now, busy: 0, waited: 0 };
        let waiting = waited / u128::from(passed);
        let LoadSettings { max, low, high, each, busy: share, rest, .. } = self.settings;
        let high = u64::from(high).max(u64::from(each) * u64::from(connections));
        let is_busy = u128::from(busy) * 100 >= u128::from(passed) * u128::from(share);
        // What has gathered takes its time to go, though nothing gathers any more.
        let before = core::mem::replace(&mut self.before, waiting);
        let falls = waiting < before - before / 8;
        if is_busy && waiting > u128::from(high) {
            self.saturated = Some(now);
            if falls {
                return;
            }
            // What is there counts, not what might be: a limit that nothing reaches lowers no load.
            let there = self.limit.min(connections);
            self.limit = there - there.div_ceil(PART);
            return;
        }
        let has_rested = self.saturated.is_none_or(|at| now.saturating_sub(at) >= rest);
        if has_rested && waiting <= low.into() && connections >= self.limit {
            let more = (self.limit / PART).max(1);
            self.limit = self.limit.saturating_add(more).min(max);
        }
    }

    /// Most connections now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether there may be as many as without load.
    pub fn is_unlimited(&self) -> bool {
        self.limit >= self.settings.max
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
