//! Validation of a segment apart from its processing: whether the connection's peer can have sent it.

use wire::{Flags, Seq};

use crate::connection::Connection;
use crate::{Segment, State};

/// Position of a segment relative to the window that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    /// Acceptable.
    Inside,
    /// All of it was received before.
    Old,
    /// It begins behind the window.
    Beyond,
}

impl Connection {
    /// Returns true if the segment lies in the window, has no old timestamp, and acknowledges what was sent (RFC 9293
    /// section 3.10.7.4, RFC 7323 section 5.3, RFC 5961 section 5.2). Nothing changes by it. The caller has verified
    /// its checksum.
    pub fn accepts(&self, segment: &Segment<'_>) -> bool {
        let is_old = match segment.options.timestamps {
            Some(timestamps) if self.hot.bits.timestamps() && self.hot.ts_recent != 0 => {
                timestamps.value.before(Seq(self.hot.ts_recent))
            }
            _ => false,
        };
        !is_old && self.fit(segment) == Fit::Inside && self.is_ack_acceptable(segment)
    }

    /// Returns true if the segment is a SYN that no old segment of this connection, which is in TIME-WAIT, can be
    /// mistaken for: it may open a new connection (RFC 9293 section 3.10.7.4, RFC 6191 section 2).
    pub fn makes_way(&self, segment: &Segment<'_>) -> bool {
        let flags = segment.flags.without(Flags::ECE.with(Flags::CWR));
        if flags != Flags::SYN || self.hot.state != State::TimeWait {
            return false;
        }
        match segment.options.timestamps {
            Some(timestamps) if self.hot.bits.timestamps() => {
                timestamps.value.after(Seq(self.hot.ts_recent))
            }
            _ => segment.seq.after(self.hot.rcv_nxt),
        }
    }

    /// RFC 9293 section 3.4 and 3.10.7.4, first check. A segment without data that lies before RCV.NXT, but was not
    /// acknowledged yet, still counts for its own acknowledgment.
    pub(crate) fn fit(&self, segment: &Segment<'_>) -> Fit {
        let len = segment.len();
        let is_old = if len == 0 {
            segment.seq.before(self.hot.rcv_acked)
        } else {
            !(segment.seq + len).after(self.hot.rcv_nxt)
        };
        if is_old {
            return Fit::Old;
        }
        let window = self.hot.rcv_edge - self.hot.rcv_nxt;
        let is_inside = if len == 0 {
            !segment.seq.after(self.hot.rcv_edge)
        } else {
            // With a closed window the acknowledgment still counts (RFC 9293 section 3.10.7.4).
            segment.seq.before(self.hot.rcv_edge) || window == 0 && segment.seq == self.hot.rcv_nxt
        };
        if is_inside { Fit::Inside } else { Fit::Beyond }
    }

    /// Returns true if the acknowledgment number is one that the peer can send (RFC 9293 section 3.10.7.4, fifth check).
    ///
    /// RFC 5961 section 5.2 accepts numbers up to a window back. After one byte sent that would be a whole window in
    /// which an attacker may guess, so no more is accepted than was ever acknowledged (tcp_ack in Linux).
    pub(crate) fn is_ack_acceptable(&self, segment: &Segment<'_>) -> bool {
        let (ack, una) = (segment.ack, self.hot.snd_una);
        let oldest = self.max_snd_wnd.min(self.bytes_acked);
        let too_old = ack.before(una) && una - ack > oldest;
        segment.flags.any(Flags::ACK) && !ack.after(self.hot.snd_nxt) && !too_old
    }
}
