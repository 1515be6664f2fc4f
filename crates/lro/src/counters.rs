//! What happened, and why. Every frame received is counted once more as passed, merged,
//! discarded, or is still held.

use crate::{Discard, Mismatch, Pass};

/// Why what a flow held was flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Flush {
    /// As long as an aggregate may be.
    Size,
    /// A PSH completed it.
    Psh,
    /// A FIN completed it.
    Fin,
    /// Shorter than the rest, so it is the last (lossless).
    Short,
    /// A packet of the flow that goes on as it came had to stay behind it.
    Order,
    /// The next segment did not fit, see the mismatches; or none would, as this one has CWR.
    Mismatch,
    /// Idle for longer than its usual interval allows (the paper, section IV.E).
    Timeout,
    /// Held for as long as allowed.
    Deadline,
    /// A hole was waited for as long as allowed, and stays.
    Hole,
    /// The caller had nothing else to do.
    Idle,
    /// Its descriptor or its frames were needed.
    Memory,
}

impl Flush {
    /// All causes, in the order of their discriminants.
    pub const ALL: [Flush; 11] = [
        Flush::Size,
        Flush::Psh,
        Flush::Fin,
        Flush::Short,
        Flush::Order,
        Flush::Mismatch,
        Flush::Timeout,
        Flush::Deadline,
        Flush::Hole,
        Flush::Idle,
        Flush::Memory,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Flush::Size => "size",
            Flush::Psh => "psh",
            Flush::Fin => "fin",
            Flush::Short => "short",
            Flush::Order => "order",
            Flush::Mismatch => "mismatch",
            Flush::Timeout => "timeout",
            Flush::Deadline => "deadline",
            Flush::Hole => "hole",
            Flush::Idle => "idle",
            Flush::Memory => "memory",
        }
    }
}

/// Counters of one [`Lro`](crate::Lro), all starting at 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Frames taken in.
    pub received: u64,
    /// Frames that became part of an aggregate.
    pub merged: u64,
    /// Aggregates: two frames or more, or one whose timestamp had to be that of one before it, or
    /// whose last bytes had come before.
    pub aggregates: u64,
    /// Payload bytes in those aggregates.
    pub aggregate_bytes: u64,
    /// Segments that came before their turn and were held for it.
    pub reordered: u64,
    /// Holes that nothing had filled when what was held behind them went on.
    pub holes: u64,
    /// Holes whose original came within `hole_timeout` after all, but too late: what is waited for the
    /// next one grows with each. Of a flow's holes that were waited for in vain one is watched at a time.
    pub holes_late: u64,
    /// Of those that were watched, the ones that a retransmission filled, or nothing in time. They are
    /// counted when the flow has its next hole or gets old data, so the last one may be missing.
    pub holes_lost: u64,
    /// Segments behind a hole that went on by themselves, so that the host makes a duplicate ACK of each.
    pub singles: u64,
    /// Segments of which only a part was new.
    pub trimmed: u64,
    /// Acknowledgments sent in the host's name.
    pub acknowledged: u64,
    /// Descriptors taken from one flow for another.
    pub recycled: u64,
    /// Frames passed as they came, by [`Pass::index`].
    pub passed: [u64; Pass::COUNT],
    /// Frames discarded, by [`Discard`].
    pub discarded: [u64; Discard::ALL.len()],
    /// What was held and flushed, by [`Flush`].
    pub flushed: [u64; Flush::ALL.len()],
    /// Segments that did not join, by [`Mismatch`].
    pub mismatched: [u64; Mismatch::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            received: 0,
            merged: 0,
            aggregates: 0,
            aggregate_bytes: 0,
            reordered: 0,
            holes: 0,
            holes_late: 0,
            holes_lost: 0,
            singles: 0,
            trimmed: 0,
            acknowledged: 0,
            recycled: 0,
            passed: [0; Pass::COUNT],
            discarded: [0; Discard::ALL.len()],
            flushed: [0; Flush::ALL.len()],
            mismatched: [0; Mismatch::ALL.len()],
        }
    }
}

impl Counters {
    /// Every counter as group, name and value; the groups are `lro`, `lro_pass`, `lro_discard`,
    /// `lro_flush` and `lro_mismatch`.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let plain = [
            ("received", self.received),
            ("merged", self.merged),
            ("aggregates", self.aggregates),
            ("aggregate_bytes", self.aggregate_bytes),
            ("reordered", self.reordered),
            ("holes", self.holes),
            ("holes_late", self.holes_late),
            ("holes_lost", self.holes_lost),
            ("singles", self.singles),
            ("trimmed", self.trimmed),
            ("acknowledged", self.acknowledged),
            ("recycled", self.recycled),
        ];
        plain
            .into_iter()
            .map(|(name, value)| ("lro", name, value))
            .chain(Pass::all().map(|p| ("lro_pass", p.name(), self.passed[p.index()])))
            .chain(
                Discard::ALL
                    .into_iter()
                    .map(|d| ("lro_discard", d.name(), self.discarded[d as usize])),
            )
            .chain(
                Flush::ALL.into_iter().map(|f| ("lro_flush", f.name(), self.flushed[f as usize])),
            )
            .chain(
                Mismatch::ALL
                    .into_iter()
                    .map(|m| ("lro_mismatch", m.name(), self.mismatched[m as usize])),
            )
    }
}
