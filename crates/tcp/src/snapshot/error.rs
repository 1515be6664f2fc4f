//! Why bytes are no snapshot, or a snapshot no connection.

use core::fmt;

/// What is wrong with a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotError {
    /// The bytes do not begin as a snapshot does.
    NotASnapshot,
    /// Another version of the format.
    Version(u16),
    /// The bytes end too early, or there are more than the length in the head.
    Length,
    /// A value outside of the range of its field: a boolean above 1, a state that does not exist.
    Encoding,
    /// The addresses are of two families, or not those of hosts, or a port is 0.
    Addresses,
    /// The state is no connection's, or does not agree with what was sent and received.
    State,
    /// The send sequence variables contradict each other (RFC 9293 section 3.3.1).
    SendSequence,
    /// What is in flight does not fill the space from `una` to `nxt`, or contradicts itself.
    Flight,
    /// The receive sequence variables contradict each other.
    ReceiveSequence,
    /// Blocks out of order are empty, not sorted, not behind a hole or not within the window.
    OutOfOrder,
    /// What SACK is to report is not there.
    Recent,
    /// A FIN does not agree with the state.
    Fin,
    /// An urgent pointer points to nothing that could be urgent.
    Urgent,
    /// A window is larger than what can be offered.
    Window,
    /// A window scale is above 14 (RFC 7323 section 2.3).
    WindowScale,
    /// A segment size or path MTU that no path has.
    SegmentSize,
    /// A queue is longer than a window can be.
    QueueLength,
    /// The congestion window is smaller than a segment, or larger than all windows.
    CongestionWindow,
    /// Recovery does not end within what is in flight.
    Recovery,
    /// A time is longer than a connection can last.
    Time,
    /// Keep-alive probes without a pause.
    Keepalive,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SnapshotError::*;
        f.write_str(match self {
            NotASnapshot => "no snapshot of a connection",
            Version(version) => return write!(f, "a snapshot of version {version}"),
            Length => "a snapshot of another length than it says",
            Encoding => "a value in the snapshot stands for nothing",
            Addresses => "the addresses are no two ends of a connection",
            State => "the state contradicts what was sent and received",
            SendSequence => "the send sequence variables contradict each other",
            Flight => "what is in flight contradicts the sequence numbers",
            ReceiveSequence => "the receive sequence variables contradict each other",
            OutOfOrder => "what lies behind holes contradicts the window",
            Recent => "what is to be acknowledged selectively is not there",
            Fin => "a FIN contradicts the state",
            Urgent => "an urgent pointer points to nothing",
            Window => "a window is too large",
            WindowScale => "a window scale is above 14",
            SegmentSize => "no path has such segments",
            QueueLength => "a queue is too long",
            CongestionWindow => "no connection has such a congestion window",
            Recovery => "the recovery point is not in flight",
            Time => "a time is too long",
            Keepalive => "keepalive has no rests",
        })
    }
}

impl core::error::Error for SnapshotError {}
