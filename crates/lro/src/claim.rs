//! What a SYN has said of a flow in use; what becomes of that is in [`anew`](crate::anew).

use wire::Seq;

/// A SYN that came while the flow was in use.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(2))]
pub(crate) struct Claim {
    /// Where data of its connection begins.
    pub(crate) data_at: Seq,
    pub(crate) without_sack: bool,
    pub(crate) standing: Standing,
}

/// What is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Standing {
    /// There is none.
    #[default]
    None,
    /// It is the host's own.
    OfHost,
    /// It came from the wire.
    Claimed,
    /// The host has answered that.
    Answered,
}

impl Claim {
    /// There was a SYN, and whether another connection has begun is still to be told.
    pub(crate) fn is_open(&self) -> bool {
        self.standing != Standing::None
    }
}
