//! The system that merges what the receiver gets.

use std::str::FromStr;

/// A way to receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Through wharf, whose LRO merges.
    On,
    /// Through wharf, frame by frame.
    Off,
    /// The kernel's own GRO: behind a TAP that is written frame by frame, or on the bare wire.
    KernelGro,
}

impl Case {
    /// All, in the order in which they are shown.
    pub const ALL: [Case; 3] = [Case::On, Case::Off, Case::KernelGro];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::On => "on",
            Case::Off => "off",
            Case::KernelGro => "kernel_gro",
        }
    }

    /// Who does the work: `wharf` or `kernel`.
    pub const fn system(self) -> &'static str {
        match self {
            Case::On | Case::Off => "wharf",
            Case::KernelGro => "kernel",
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Case::ALL.into_iter().find(|case| case.name() == name);
        found.ok_or_else(|| "the cases are on, off and kernel_gro".to_owned())
    }
}
