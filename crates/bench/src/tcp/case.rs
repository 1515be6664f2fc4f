//! The scenarios.

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Cycles for each segment inside the engine.
    Engine,
}

impl Case {
    /// All, in the order in which they run.
    pub const ALL: [Case; 1] = [Case::Engine];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Engine => "engine",
        }
    }
}
