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
}

impl Case {
    /// All, in the order in which they run.
    pub const ALL: [Case; 4] = [Case::Engine, Case::Bulk, Case::Rr, Case::Connect];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Engine => "engine",
            Case::Bulk => "bulk",
            Case::Rr => "rr",
            Case::Connect => "connect",
        }
    }
}
