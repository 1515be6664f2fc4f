//! The names of a connection and of the time that it spends at one side.

/// Connection identifier: what the paper's commands call `cid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cid(pub u32);

/// How often a connection has changed sides. It is even while the OS has the connection and odd while the NIC
/// has it, so that one load tells whose the connection is. What was begun in one epoch takes no effect
/// in another. It has 30 bits, as the words of rings have two beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Epoch {
        Epoch(self.0.wrapping_add(1) & (u32::MAX >> 2))
    }

    /// Whether the NIC has the connection.
    pub const fn is_nic(self) -> bool {
        self.0 & 1 == 1
    }

    /// The low 16 bits, which commands carry: they tell a command of an earlier epoch from one of this, as no
    /// command lies in a ring while its connection changes sides 65,536 times.
    pub const fn tag(self) -> u16 {
        self.0 as u16
    }
}
