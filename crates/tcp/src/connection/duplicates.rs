//! Duplicate acknowledgments that we send: one for each segment out of order (RFC 5681 section 4.2), however
//! many arrived at once. A sender without SACK retransmits after three of them, and sends one more segment
//! for each that follows (RFC 5681 section 3.2): one for a whole batch or aggregate leaves it waiting for its
//! timer.

use wire::Flags;

use crate::connection::output::Planned;
use crate::connection::{Connection, Context};

/// With SACK so many are sent one by one. The rest of a batch gets one more in all, as its SACK blocks report
/// what a count would (TCP_FASTRETRANS_THRESH in Linux's __tcp_ack_snd_check). Linux delays that one by up to
/// a millisecond; here it waits for the end of the batch.
const SINGLY_MAX: u16 = 3;

/// Bytes of an acknowledgment without SACK, IP header and timestamps included, at most.
const ACK_LEN: u32 = 72;

/// Duplicate acknowledgments of the current RCV.NXT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DuplicateAcks {
    /// Those still to be sent.
    pub(crate) due: u16,
    /// Those sent one by one, or due to be, since RCV.NXT moved: counted with SACK only.
    pub(crate) singly: u8,
}

impl Connection {
    /// Makes duplicate acknowledgments due for `len` bytes out of order, in segments of `gso_size` if there
    /// is more than one.
    pub(crate) fn acknowledge_disorder(&mut self, len: u32, gso_size: u16) {
        let segments = segments(len, gso_size);
        let mut singly = segments;
        if self.hot.bits.sack() {
            let left = SINGLY_MAX.saturating_sub(u16::from(self.dup_acks.singly));
            singly = segments.min(left);
            self.dup_acks.singly += singly as u8;
            if singly < segments {
                self.acknowledge_now();
            }
        }
        if singly > 0 {
            self.dup_acks.due = self.dup_acks.due.saturating_add(singly);
            self.hot.bits.set_dup_acks_due(true);
        }
    }

    /// Drops those that are due, as RCV.NXT moves. As duplicates of the new RCV.NXT they would make the
    /// sender retransmit what it has only just sent.
    pub(crate) fn forget_dup_acks(&mut self) {
        self.dup_acks = DuplicateAcks::default();
        self.hot.bits.set_dup_acks_due(false);
    }

    /// The next of them. It is a segment of its own even where there is data to send: with data it would be
    /// no duplicate (RFC 5681 section 2).
    pub(crate) fn plan_dup_ack(&mut self, context: &mut Context<'_>) -> Planned {
        // An acknowledgment that is due for another reason goes first, and does not count as one of them.
        if !self.hot.bits.ack_now() {
            self.dup_acks.due = self.dup_acks.due.saturating_sub(1);
            self.hot.bits.set_dup_acks_due(self.dup_acks.due > 0);
            context.counters.duplicate_acks += 1;
        }
        context.counters.pure_acks += 1;
        self.plan_bare(self.acceptable_seq(), Flags::ACK, context.now)
    }
}

/// Number of segments in `len` bytes. Where a sender claims very small ones, the acknowledgments take no more
/// bytes than it has sent; three go in any case.
fn segments(len: u32, gso_size: u16) -> u16 {
    if gso_size == 0 {
        return 1;
    }
    let claimed = len.div_ceil(u32::from(gso_size));
    let most = (len / ACK_LEN).max(u32::from(SINGLY_MAX));
    u16::try_from(claimed.min(most)).unwrap_or(u16::MAX).max(1)
}
