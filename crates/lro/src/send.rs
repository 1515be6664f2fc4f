//! The host's Send Sequence Space (RFC 9293 section 3.3.1), as far as this worker sees it: which
//! acknowledgments the host is known to take.
//!
//! A host drops a segment, data and all, if it acknowledges what was never sent, or what is too old
//! (RFC 5961 section 5.2; Linux `tcp_ack`). That keeps out who knows the ports of a connection but not
//! its numbers. An aggregate has one acknowledgment, so among its segments none may be that the host
//! would have dropped: it would be let in by that of another, or have all others dropped with it. So
//! acknowledgments are joined if they are equal, or if both are known to be taken.
//!
//! - The host's packets tell SND.NXT, on their way to the wire ([`Lro::observe`](crate::Lro::observe)).
//! - SND.UNA is the newest acceptable acknowledgment of what was handed on, and nothing older counts as
//!   taken. Hosts do take older ones: by up to MAX.SND.WND (RFC 5961 section 5.2), or no more than was
//!   ever acknowledged (Linux `tcp_ack`). No bound is tighter than none, so that it does not matter which
//!   of them a host keeps, and the window's scale need not be known.
//! - What begins in the middle, or had packets go another way, begins at SND.NXT, of which nothing can
//!   have been acknowledged yet: a round trip later all is known.
//!
//! Pure acknowledgments of the host's do not move SND.NXT, so they cost nothing: that is all that a
//! host sends which only receives, and its peer's acknowledgments are all equal.

use wire::Seq;

/// The largest window (RFC 7323 section 2.3): no host has sent more than that unacknowledged.
const WINDOW_MAX: u32 = 1 << 30;

/// SND.UNA and SND.NXT; nothing is known at first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendSpace {
    /// Not before the host's SND.UNA.
    una: Seq,
    /// Not after the host's SND.NXT.
    nxt: Seq,
    is_known: bool,
}

impl SendSpace {
    /// The host's SND.NXT, once it has told.
    pub(crate) fn next_seq(&self) -> Option<Seq> {
        self.is_known.then_some(self.nxt)
    }

    /// Whether the host surely takes a segment with this acknowledgment.
    #[inline(always)]
    pub(crate) fn accepts(&self, ack: Seq) -> bool {
        self.is_known && ack - self.una <= self.nxt - self.una
    }

    /// The host has sent what lies between these.
    pub(crate) fn sends(&mut self, from: Seq, end: Seq) {
        // What came before `from` went another way, perhaps, and so has what acknowledged it.
        if !self.is_known || from.after(self.nxt) {
            *self = SendSpace { una: end, nxt: end, is_known: true };
        } else if end.after(self.nxt) {
            self.nxt = end;
            if self.nxt - self.una > WINDOW_MAX {
                self.una = end;
            }
        }
    }

    /// The host has been handed this acknowledgment.
    #[inline]
    pub(crate) fn acknowledged(&mut self, ack: Seq) {
        if self.accepts(ack) {
            self.una = ack;
        }
    }

    /// The host may have been handed acknowledgments that were not seen.
    pub(crate) fn lose_sight(&mut self) {
        self.una = self.nxt;
    }
}
