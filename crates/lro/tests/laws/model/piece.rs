//! What is held of a packet.

use lro::Nanos;

use super::Told;
use crate::laws::naive::Tcp;
use crate::laws::rules::is_before;

/// A packet, or the part of it that is not held yet.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) number: usize,
    pub(super) packet: Tcp,
    pub(super) skip: usize,
    pub(super) len: usize,
    /// When it came, and until when the hole in front of it is waited for.
    pub(super) times: (Nanos, Nanos),
    pub(super) told: Told,
    /// It cannot go as it came.
    pub(super) raised: bool,
}

impl Piece {
    pub(super) fn seq(&self) -> u32 {
        self.packet.seq().wrapping_add(self.skip as u32)
    }

    pub(super) fn end(&self) -> u32 {
        self.seq().wrapping_add(self.len as u32)
    }

    pub(super) fn trim_front(&mut self, seq: u32) {
        let bytes = seq.wrapping_sub(self.seq()) as usize;
        (self.skip, self.len, self.raised) = (self.skip + bytes, self.len - bytes, true);
    }

    pub(super) fn trim_back(&mut self, seq: u32) {
        (self.len, self.raised) = (seq.wrapping_sub(self.seq()) as usize, true);
    }
}

impl Piece {
    /// It waited, and others that belong before it were sent later: what they told is newer. Whether the
    /// last of them is held.
    pub(super) fn catches_up(&mut self, last: &Told, held: bool) {
        if held && is_before(self.told.ack, last.ack) {
            (self.told.ack, self.told.window) = (last.ack, last.window);
        }
        if let (Some(new), Some(last)) = (&mut self.told.timestamps, last.timestamps) {
            if is_before(new.0, last.0) {
                (new.0, self.raised) = (last.0, true);
            }
            if is_before(new.1, last.1) {
                new.1 = last.1;
            }
        }
    }
}
