//! Duplicate acknowledgments that we send: one for each segment out of order (RFC 5681 section 4.2), however
//! many came at once. A sender without SACK counts to three of them before it sends a segment again, and
//! lets another one go for each that follows (RFC 5681 section 3.2): one for a whole batch or aggregate
//! leaves it waiting for its timer.

use wire::Flags;

use crate::connection::output::Planned;
use crate::connection::{Connection, Context};

/// As many go singly where SACK was agreed to; one more stands for all others that came with them, as SACK
/// says of those what a count would (TCP_FASTRETRANS_THRESH in Linux's __tcp_ack_snd_check). Linux lets that
/// one wait for a millisecond; here the batch is what it waits for.
const SINGLY_MAX: u16 = 3;

/// Bytes of an acknowledgment without SACK, IP header and timestamps included, at most.
const ACK_LEN: u32 = 72;

/// Duplicate acknowledgments of RCV.NXT as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DuplicateAcks {
    /// That are to be sent.
    pub(crate) due: u16,
    /// That were sent singly, or are to be, since RCV.NXT moved: counted with SACK only.
    pub(crate) singly: u8,
}

impl Connection {
    /// What came is out of order: `len` bytes, in segments of `gso_size` if there is more than one.
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

    /// RCV.NXT moves: of what it was nothing is to be said any more. Duplicates of the new one would have
    /// the sender take for lost what it has only just sent.
    pub(crate) fn forget_dup_acks(&mut self) {
        self.dup_acks = DuplicateAcks::default();
        self.hot.bits.set_dup_acks_due(false);
    }

    /// The next of them. It is a segment of its own even where there is data to send, since data makes it no
    /// duplicate (RFC 5681 section 2).
    pub(crate) fn plan_dup_ack(&mut self, context: &mut Context<'_>) -> Planned {
        // Another acknowledgment that is due goes first, and stands for itself.
        if !self.hot.bits.ack_now() {
            self.dup_acks.due = self.dup_acks.due.saturating_sub(1);
            self.hot.bits.set_dup_acks_due(self.dup_acks.due > 0);
            context.counters.duplicate_acks += 1;
        }
        context.counters.pure_acks += 1;
        self.plan_bare(self.acceptable_seq(), Flags::ACK, context.now)
    }
}

/// How many segments that was. A sender that claims more than there could be room for on the wire draws no more
/// bytes than it has sent, but three acknowledgments in any case.
fn segments(len: u32, gso_size: u16) -> u16 {
    if gso_size == 0 {
        return 1;
    }
    let claimed = len.div_ceil(u32::from(gso_size));
    let most = (len / ACK_LEN).max(u32::from(SINGLY_MAX));
    u16::try_from(claimed.min(most)).unwrap_or(u16::MAX).max(1)
}
