//! The order of untagged messages (RFC 5041 sections 4.3 and 5.3).
//!
//! The stream below is in order, and segments of a message are sent one behind the other, so that the next segment
//! of a queue is known: its message number and its offset. Any other is an error, not a gap.

use super::error::Untagged as Error;
use super::header::Untagged;
use super::{QUEUE_ATOMIC, QUEUE_READ, QUEUE_SEND, QUEUE_TERMINATE, QUEUES};

/// The next message of each queue, and how much of it has come.
#[derive(Clone, Debug)]
pub struct Sequence {
    queues: [Next; QUEUES],
}

#[derive(Clone, Copy, Debug)]
struct Next {
    msn: u32,
    /// Bytes of the message that have come; nothing has if it is not `open`.
    offset: u32,
    open: bool,
}

impl Default for Sequence {
    /// RFC 5041 section 4.3: the first message of a queue MUST have the number 1.
    fn default() -> Self {
        Self { queues: [Next { msn: 1, offset: 0, open: false }; QUEUES] }
    }
}

impl Sequence {
    /// Whether the segment is the next of its queue, and whether it begins a message. Nothing changes.
    ///
    /// # Errors
    /// The queue, the number or the offset is wrong (RFC 5041 section 7, in the order of its text).
    #[inline]
    pub fn check(&self, header: &Untagged) -> Result<bool, Error> {
        let queue = match header.queue {
            QUEUE_SEND | QUEUE_READ | QUEUE_TERMINATE | QUEUE_ATOMIC => header.queue as usize,
            _ => return Err(Error::InvalidQueue),
        };
        let next = &self.queues[queue];
        if header.msn != next.msn {
            return Err(Error::MsnRange);
        }
        if header.offset != next.offset {
            return Err(Error::InvalidOffset);
        }
        Ok(!next.open)
    }

    /// The segment that [`check`](Self::check) let pass is taken, with so many bytes of payload. Numbers go
    /// around (RFC 5041 section 4.3: MSNs wrap).
    ///
    /// # Errors
    /// The message would be longer than its offsets can say.
    #[inline]
    pub fn take(&mut self, header: &Untagged, payload: usize) -> Result<(), Error> {
        let Some(next) = self.queues.get_mut(header.queue as usize) else {
            return Err(Error::InvalidQueue);
        };
        if header.last {
            *next = Next { msn: next.msn.wrapping_add(1), offset: 0, open: false };
            return Ok(());
        }
        let offset = u32::try_from(payload).ok().and_then(|len| next.offset.checked_add(len));
        next.offset = offset.ok_or(Error::TooLong)?;
        next.open = true;
        Ok(())
    }

    /// Whether a message of the queue has begun and not ended.
    pub fn is_open(&self, queue: u32) -> bool {
        self.queues.get(queue as usize).is_some_and(|next| next.open)
    }

    /// The number of the queue's next message.
    pub fn msn(&self, queue: u32) -> u32 {
        self.queues.get(queue as usize).map_or(0, |next| next.msn)
    }
}
