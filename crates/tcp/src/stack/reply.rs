//! Answers that belong to no connection: resets, and SYN-ACKs with cookies.

use wire::{Flags, Seq};

use super::Stack;
use crate::options::Encoded;
use crate::segment::{FourTuple, Segment, Transmit};

/// Answers that wait to be sent, at most.
const ANSWERS_MAX: usize = 1024;

/// A segment that belongs to no connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) path: FourTuple,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) flags: Flags,
    pub(super) window: u16,
    pub(super) options: Encoded,
}

impl Reply {
    pub(super) fn transmit(&self) -> Transmit<'static> {
        Transmit {
            path: self.path,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: 0,
            options: self.options,
            payload: [&[], &[]],
            lent: 0,
            gso_size: 0,
            ect: false,
        }
    }
}

impl Stack {
    /// RFC 9293 section 3.5.2: a reset that the sender of `segment` will believe.
    pub(super) fn reset(&mut self, path: &FourTuple, segment: &Segment<'_>) {
        self.counters.resets += 1;
        let has_ack = segment.flags.any(Flags::ACK);
        let (seq, ack, flags) = if has_ack {
            (segment.ack, Seq(0), Flags::RST)
        } else {
            (Seq(0), segment.seq + segment.len(), Flags::RST.with(Flags::ACK))
        };
        let options = Encoded::default();
        self.reply(Reply { path: *path, seq, ack, flags, window: 0, options });
    }

    pub(super) fn reply(&mut self, reply: Reply) {
        if self.replies.len() < ANSWERS_MAX {
            self.replies.push_back(reply);
        } else {
            self.counters.answers_dropped += 1;
        }
    }
}
