//! How a stream ends.

/// How a stream is to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Behind the last byte (`shutdown(2)`), and for good when the peer has closed, too, or does not in time.
    Orderly,
    /// At once.
    Abort,
}
