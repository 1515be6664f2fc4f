//! The states of a connection, and how it ends (RFC 9293 section 3.3.2).

use core::fmt;

/// State of a connection. LISTEN is a listener's, not a connection's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum State {
    /// No connection.
    Closed = 0,
    /// A SYN was sent.
    SynSent = 1,
    /// A SYN was sent and received, ours is not acknowledged.
    SynReceived = 2,
    /// Data flows both ways.
    Established = 3,
    /// We have closed; our FIN is not acknowledged.
    FinWait1 = 4,
    /// We have closed, the peer has not.
    FinWait2 = 5,
    /// The peer has closed, we have not.
    CloseWait = 6,
    /// Both closed at once; our FIN is not acknowledged.
    Closing = 7,
    /// The peer closed first, we after it; our FIN is not acknowledged.
    LastAck = 8,
    /// Both have closed; old segments die out.
    TimeWait = 9,
}

impl State {
    /// The state that a snapshot numbers so.
    pub fn from_number(number: u8) -> Option<State> {
        use State::*;
        [
            Closed,
            SynSent,
            SynReceived,
            Established,
            FinWait1,
            FinWait2,
            CloseWait,
            Closing,
            LastAck,
            TimeWait,
        ]
        .get(usize::from(number))
        .copied()
    }

    /// Whether both ends have seen each other's SYN.
    pub fn is_synchronized(self) -> bool {
        self >= State::Established
    }

    /// Whether the peer may still send data.
    pub fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether the application may still send data.
    pub fn may_send(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// Whether data or a FIN of ours can be in flight or waiting, in this state.
    pub fn transmits(self) -> bool {
        matches!(
            self,
            State::Established
                | State::FinWait1
                | State::CloseWait
                | State::Closing
                | State::LastAck
        )
    }

    /// The name, as `ss` and RFC 9293 spell it.
    pub fn name(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECEIVED",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a connection is no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// Both sides have closed, in order.
    Closed = 0,
    /// The peer refused it (ECONNREFUSED).
    Refused = 1,
    /// The peer reset it (ECONNRESET).
    Reset = 2,
    /// The peer did not answer (ETIMEDOUT).
    TimedOut = 3,
    /// An ICMP error reported that the peer cannot be reached (EHOSTUNREACH).
    Unreachable = 4,
    /// The application aborted it.
    Aborted = 5,
    /// It was frozen and lives elsewhere.
    Frozen = 6,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Closed => "closed",
            Reason::Refused => "connection refused",
            Reason::Reset => "connection reset by peer",
            Reason::TimedOut => "connection timed out",
            Reason::Unreachable => "no route to host",
            Reason::Aborted => "aborted",
            Reason::Frozen => "frozen",
        })
    }
}

impl core::error::Error for Reason {}
