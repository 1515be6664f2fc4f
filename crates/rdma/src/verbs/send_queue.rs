//! A queue pair's send queue.

use alloc::vec;
use alloc::vec::Vec;

use super::Error;
use super::cq::Done;
use super::work::{Flags, Payload, SendRequest, Sge, Work};
use crate::rdmap::atomic::Operation;
use crate::status::Status;

/// How far a piece of work is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Not all of it is in the stream.
    Queued,
    /// A request is in the stream, and its response has not come.
    Waiting,
    /// It has ended, and waits for what is before it.
    Ended(Status),
}

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) wr_id: u64,
    pub(crate) work: Work,
    pub(crate) flags: Flags,
    /// Bytes of its message.
    pub(crate) len: u32,
    sges: u8,
    is_inline: bool,
    pub(crate) progress: Progress,
    /// The number of its message in its queue, once it is in the stream.
    pub(crate) msn: u32,
}

impl Entry {
    pub(crate) fn done(&self) -> Done {
        match self.work {
            Work::Send { .. } => Done::Send,
            Work::Write { .. } | Work::WriteImmediate { .. } => Done::Write,
            Work::Read { .. } => Done::Read,
            Work::Atomic { operation: Operation::FetchAdd { .. }, .. } => Done::FetchAdd,
            Work::Atomic { .. } => Done::CompareSwap,
            Work::Bind(_) => Done::Bind,
            Work::FastRegister(_) => Done::FastRegister,
            Work::LocalInvalidate { .. } => Done::LocalInvalidate,
        }
    }
}

/// Work in the order in which it was posted. Places are numbers that go around.
#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: Vec<Entry>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    sges_most: usize,
    inline_most: usize,
    depth: u32,
    mask: u32,
    /// The oldest that has not completed.
    pub(crate) head: u32,
    /// The oldest of which nothing is in the stream.
    pub(crate) next: u32,
    /// Where the next one is posted.
    pub(crate) tail: u32,
}

impl SendQueue {
    /// Bytes that one of this depth takes.
    pub(crate) fn bytes(depth: u32, sges_most: u8, inline_most: u32) -> usize {
        let slots = depth.max(1).next_power_of_two() as usize;
        let sges = usize::from(sges_most) * size_of::<Sge>();
        slots * (size_of::<Entry>() + sges + inline_most as usize)
    }

    pub(crate) fn new(depth: u32, sges_most: u8, inline_most: u32) -> Self {
        let slots = depth.max(1).next_power_of_two();
        let empty = Entry {
            wr_id: 0,
            work: Work::Send { invalidate: None },
            flags: Flags::default(),
            len: 0,
            sges: 0,
            is_inline: false,
            progress: Progress::Queued,
            msn: 0,
        };
        let (sges_most, inline_most) = (usize::from(sges_most), inline_most as usize);
        Self {
            entries: vec![empty; slots as usize],
            sges: vec![Sge::default(); slots as usize * sges_most],
            inline: vec![0; slots as usize * inline_most],
            sges_most,
            inline_most,
            depth,
            mask: slots - 1,
            head: 0,
            next: 0,
            tail: 0,
        }
    }

    fn at(&self, place: u32) -> usize {
        (place & self.mask) as usize
    }

    #[inline]
    pub(crate) fn entry(&self, place: u32) -> &Entry {
        &self.entries[self.at(place)]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, place: u32) -> &mut Entry {
        let at = self.at(place);
        &mut self.entries[at]
    }

    #[inline]
    pub(crate) fn sges(&self, place: u32) -> &[Sge] {
        let first = self.at(place) * self.sges_most;
        &self.sges[first..first + usize::from(self.entry(place).sges)]
    }

    /// The bytes of an inline message; `None` if it lies in elements.
    #[inline]
    pub(crate) fn inline(&self, place: u32) -> Option<&[u8]> {
        let entry = self.entry(place);
        let first = self.at(place) * self.inline_most;
        entry.is_inline.then(|| &self.inline[first..first + entry.len as usize])
    }

    /// Whether the request is one that this queue could take. Its message's length.
    pub(crate) fn accepts(&self, request: &SendRequest<'_>) -> Result<u32, Error> {
        let (sges, len) = match request.payload {
            Payload::Sges(sges) if sges.len() > self.sges_most => return Err(Error::Invalid),
            Payload::Sges(sges) => {
                (Some(sges.len()), sges.iter().map(|sge| u64::from(sge.len)).sum::<u64>())
            }
            Payload::Inline(bytes) if bytes.len() > self.inline_most => return Err(Error::Invalid),
            Payload::Inline(bytes) => (None, bytes.len() as u64),
        };
        if request.work.takes(sges, len) { Ok(len as u32) } else { Err(Error::Invalid) }
    }

    #[inline]
    pub(crate) fn post(&mut self, request: &SendRequest<'_>) -> Result<(), Error> {
        let len = self.accepts(request)?;
        if self.tail.wrapping_sub(self.head) >= self.depth {
            return Err(Error::Full);
        }
        let at = self.at(self.tail);
        let (sges, is_inline) = match request.payload {
            Payload::Sges(sges) => {
                let first = at * self.sges_most;
                self.sges[first..first + sges.len()].copy_from_slice(sges);
                (sges.len() as u8, false)
            }
            Payload::Inline(bytes) => {
                let first = at * self.inline_most;
                self.inline[first..first + bytes.len()].copy_from_slice(bytes);
                (0, true)
            }
        };
        self.entries[at] = Entry {
            wr_id: request.wr_id,
            work: request.work,
            flags: request.flags,
            len,
            sges,
            is_inline,
            progress: Progress::Queued,
            msn: 0,
        };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Whether nothing is posted that has not completed.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Whether a place is among what has not completed.
    pub(crate) fn has(&self, place: u32) -> bool {
        place.wrapping_sub(self.head) < self.tail.wrapping_sub(self.head)
    }

    /// All that has not completed, the oldest first.
    pub(crate) fn places(&self) -> impl Iterator<Item = u32> + use<> {
        let (head, tail) = (self.head, self.tail);
        (0..tail.wrapping_sub(head)).map(move |step| head.wrapping_add(step))
    }
}
