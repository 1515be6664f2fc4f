//! Reads and atomics that wait for their responses.

/// A request whose response has not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The work; `None` for a read as the ready message.
    pub(super) place: Option<u32>,
    pub(super) is_atomic: bool,
    /// What an atomic response names.
    pub(super) id: u32,
    /// Bytes of a read that have come.
    pub(super) received: u32,
}
