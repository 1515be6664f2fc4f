//! Counters of one direction.

/// Counters of one direction, since it was made. Every packet that arrived, and every copy, has departed, is
/// [held](crate::Degen::held), or was dropped for one of the reasons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets that arrived.
    pub arrived: u64,
    /// Their bytes.
    pub arrived_bytes: u64,
    /// Packets that departed.
    pub departed: u64,
    /// Their bytes.
    pub departed_bytes: u64,
    /// Packets dropped by `loss` or by the Gilbert-Elliott channel.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets dropped by CoDel.
    pub codel_dropped: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Copies not made because there was no memory.
    pub not_duplicated: u64,
    /// Packets with an inverted bit.
    pub corrupted: u64,
    /// Packets marked CE, for whatever reason.
    pub marked: u64,
    /// Packets held back for others to pass them.
    pub reordered: u64,
}

impl Counters {
    /// Name and value of each counter, in the order in which they are shown.
    pub fn entries(&self) -> [(&'static str, u64); 12] {
        [
            ("arrived", self.arrived),
            ("arrived_bytes", self.arrived_bytes),
            ("departed", self.departed),
            ("departed_bytes", self.departed_bytes),
            ("lost", self.lost),
            ("queue_full", self.queue_full),
            ("codel_dropped", self.codel_dropped),
            ("duplicated", self.duplicated),
            ("not_duplicated", self.not_duplicated),
            ("corrupted", self.corrupted),
            ("marked", self.marked),
            ("reordered", self.reordered),
        ]
    }
}
