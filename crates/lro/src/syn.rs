//! What a SYN changes for a flow in use; what becomes of that is in [`anew`](crate::anew).

use wire::Seq;

/// A SYN that came while the flow was in use.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(2))]
pub(crate) struct PendingSyn {
    /// Where data of its connection begins.
    pub(crate) data_at: Seq,
    pub(crate) without_sack: bool,
    pub(crate) state: SynState,
}

/// What is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SynState {
    /// There is none.
    #[default]
    None,
    /// It is the host's own.
    FromHost,
    /// It came from the wire.
    FromWire,
    /// The host has answered that.
    Answered,
}

impl PendingSyn {
    /// There was a SYN, and whether another connection has begun is still to be told.
    pub(crate) fn is_open(&self) -> bool {
        self.state != SynState::None
    }
}
