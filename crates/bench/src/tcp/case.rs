//! The scenarios.

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Cycles for each segment inside the engine.
    Engine,
    /// Throughput of one connection, in and out.
    Bulk,
    /// How often a byte goes there and back.
    Rr,
    /// How often connections are opened and closed.
    Connect,
    /// Throughput where packets are lost at random.
    Recovery,
    /// How those of wharf and of the kernel share a bottleneck.
    Fairness,
}

impl Case {
    /// All, in the order in which they run.
    pub const ALL: [Case; 6] =
        [Case::Engine, Case::Bulk, Case::Rr, Case::Connect, Case::Recovery, Case::Fairness];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Engine => "engine",
            Case::Bulk => "bulk",
            Case::Rr => "rr",
            Case::Connect => "connect",
            Case::Recovery => "recovery",
            Case::Fairness => "fairness",
        }
    }
}
