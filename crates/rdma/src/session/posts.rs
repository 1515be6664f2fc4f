//! Work queues in shared memory, by both sides.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::Hostile;
use super::area::{Area, Parts};
use super::work::{RECV_HEAD, SEND_HEAD, Send, Shape, is_signaled, read_sges};
use crate::verbs::State;
use crate::verbs::work::{Payload, Sge};

/// Words of the device's line.
const RETIRED: usize = 0;
const STATE: usize = 1;
const WANTED: usize = 2;

/// A work queue, as its application has it.
#[derive(Debug)]
pub struct Posts<'a> {
    parts: Parts<'a>,
    stride: usize,
    mask: u32,
    depth: u32,
    posted: u32,
    /// As it was last looked.
    retired: u32,
}

impl<'a> Posts<'a> {
    /// A queue that takes `depth` entries at most; `None` if it does not lie within the memory.
    pub fn new(area: Area, depth: u32, memory: &'a [AtomicU64]) -> Option<Self> {
        let parts = area.of(memory).filter(|_| depth <= area.slots)?;
        let (stride, mask) = (area.stride as usize, area.slots - 1);
        Some(Posts { parts, stride, mask, depth, posted: 0, retired: 0 })
    }

    /// The next entry; `None` if there are as many as there may be.
    #[inline]
    pub fn slot(&mut self) -> Option<&'a [AtomicU64]> {
        if self.posted.wrapping_sub(self.retired) >= self.depth {
            self.retired = self.parts.device[RETIRED].load(Ordering::Acquire) as u32;
            if self.posted.wrapping_sub(self.retired) >= self.depth {
                return None;
            }
        }
        Some(self.entry(self.posted))
    }

    /// The same for sends: an entry also has its place until the application has read its completion, or one behind it, so
    /// that a completion queue with as many places as the work queues that complete there has room for all that comes.
    #[inline]
    pub fn slot_after(&mut self, read: impl FnOnce() -> Option<u32>) -> Option<&'a [AtomicU64]> {
        if self.posted.wrapping_sub(self.retired) >= self.depth {
            self.retired = self.first_unread(read());
            if self.posted.wrapping_sub(self.retired) >= self.depth {
                return None;
            }
        }
        Some(self.entry(self.posted))
    }

    /// The first entry of which it is not known that its completion was read, if there was to be one. `read` says how many
    /// are over by what was read; what it says of a queue before that began anew is not believed.
    pub fn first_unread(&self, read: Option<u32>) -> u32 {
        let left = |over: u32| self.posted.wrapping_sub(over);
        let over = self.retired();
        let unread = read.filter(|read| left(*read) <= self.depth && left(*read) > left(over));
        unread.unwrap_or(over)
    }

    #[inline]
    fn entry(&self, index: u32) -> &'a [AtomicU64] {
        let at = (index & self.mask) as usize * self.stride;
        &self.parts.entries[at..at + self.stride]
    }

    /// The entry that [`slot`](Self::slot) has returned is written.
    #[inline]
    pub fn push(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// What was pushed since there were so many is none, if the device was not told of it yet.
    pub fn withdraw(&mut self, posted: u32) {
        self.posted = posted;
    }

    /// The device may see all that was pushed.
    #[inline]
    pub fn publish(&self) {
        self.parts.app[0].store(self.posted.into(), Ordering::Release);
    }

    /// Elements, or bytes by eight, for which an entry has room behind a head of so many words.
    pub fn room(&self, head: usize) -> usize {
        self.stride - head
    }

    /// Returns the number of a queue pair at which a message waits for a receive of this queue, or zero. It is loaded behind
    /// [`publish`](Self::publish) and a sequentially consistent fence: either this sees the number, or the device sees what was
    /// posted.
    #[inline]
    pub fn wanted(&self) -> u32 {
        self.parts.device[WANTED].load(Ordering::Relaxed) as u32
    }

    /// How many were posted so far, modulo 2^32.
    pub fn posted(&self) -> u32 {
        self.posted
    }

    /// How many of them are over, as the device says now.
    pub fn retired(&self) -> u32 {
        self.parts.device[RETIRED].load(Ordering::Acquire) as u32
    }

    /// The number that an entry's completion is known by, as the application has posted it.
    pub fn wr_id(&self, index: u32) -> u64 {
        self.entry(index)[0].load(Ordering::Relaxed)
    }

    /// Whether an entry of a send queue completes if all goes well, as it says itself.
    pub fn is_signaled(&self, index: u32) -> bool {
        is_signaled(self.entry(index)[1].load(Ordering::Relaxed))
    }

    /// The state of the queue pair, as the device says: of a send queue only.
    #[inline]
    pub fn state(&self) -> State {
        State::from_number(self.parts.device[STATE].load(Ordering::Acquire))
    }

    /// Begins anew, as the device does when the queue pair goes to [`State::Reset`].
    pub fn reset(&mut self) {
        (self.posted, self.retired) = (0, 0);
        self.publish();
    }
}

/// What the device knows of a work queue.
#[derive(Debug)]
pub struct Taken {
    area: Area,
    taken: u32,
    /// As it was last published.
    retired: u32,
}

/// A send that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum TakenSend<'s> {
    Send(Send, Payload<'s>),
    /// No entry.
    Malformed,
}

/// What is copied from entries.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) sges: Vec<Sge>,
    pub(super) inline: Vec<u8>,
}

impl Taken {
    /// An empty queue.
    pub fn new(area: Area) -> Self {
        Taken { area, taken: 0, retired: 0 }
    }

    /// Where it lies.
    pub fn area(&self) -> Area {
        self.area
    }

    /// How many entries wait.
    ///
    /// # Errors
    /// If there are more than there can be.
    #[inline]
    pub(super) fn waiting(&self, memory: &[AtomicU64]) -> Result<u32, Hostile> {
        let posted = memory[self.area.at as usize].load(Ordering::Acquire) as u32;
        let waiting = posted.wrapping_sub(self.taken);
        if waiting > self.area.slots { Err(Hostile) } else { Ok(waiting) }
    }

    fn entry<'a>(&self, memory: &'a [AtomicU64], index: u32) -> &'a [AtomicU64] {
        let Area { at, slots, stride } = self.area;
        let place = (index & (slots - 1)) as usize * stride as usize;
        &memory[at as usize + super::area::HEAD + place..][..stride as usize]
    }

    /// The number of the next entry that is taken.
    pub(super) fn index(&self) -> u32 {
        self.taken
    }

    /// The oldest entry is done with: the next one is the oldest.
    #[inline]
    pub(super) fn take(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Copies the oldest entry of a send queue.
    #[inline]
    pub(super) fn send<'s>(&self, memory: &[AtomicU64], into: &'s mut Copied) -> TakenSend<'s> {
        let entry = self.entry(memory, self.taken);
        let Some(head) = entry.first_chunk::<SEND_HEAD>() else { return TakenSend::Malformed };
        let words = core::array::from_fn(|at| head[at].load(Ordering::Relaxed));
        let Some(send) = Send::decode(words) else { return TakenSend::Malformed };
        match send.shape {
            Shape::Sges(count) => {
                if !read_sges(entry, SEND_HEAD, count, &mut into.sges) {
                    return TakenSend::Malformed;
                }
                TakenSend::Send(send, Payload::Sges(&into.sges))
            }
            Shape::Inline(len) => {
                let len = len as usize;
                if len > (entry.len() - SEND_HEAD) * 8 {
                    return TakenSend::Malformed;
                }
                into.inline.resize(len, 0);
                wire::Bytes::of_words(entry, SEND_HEAD * 8, len).copy_to(&mut into.inline);
                TakenSend::Send(send, Payload::Inline(&into.inline))
            }
        }
    }

    /// Copies the oldest entry of a receive queue: its number, and its elements; no elements if it has more than
    /// there can be.
    #[inline]
    pub(super) fn recv<'s>(
        &self,
        memory: &[AtomicU64],
        into: &'s mut Copied,
    ) -> (u64, Option<&'s [Sge]>) {
        let entry = self.entry(memory, self.taken);
        let Some([wr_id, count]) = entry.first_chunk::<RECV_HEAD>() else { return (0, None) };
        let count = u8::try_from(count.load(Ordering::Relaxed));
        let fits = count.is_ok_and(|count| read_sges(entry, RECV_HEAD, count, &mut into.sges));
        (wr_id.load(Ordering::Relaxed), fits.then_some(&into.sges[..]))
    }

    /// The number that an entry's completion is known by, as it is there now: it is the application's own affair.
    #[inline]
    pub(super) fn wr_id(&self, memory: &[AtomicU64], index: u32) -> u64 {
        self.entry(memory, index)[0].load(Ordering::Relaxed)
    }

    /// The oldest receive completes, and the application may have its place before it sees that. Returns its number:
    /// receives of a queue pair's own queue complete in their order, each of them once.
    #[inline]
    pub(super) fn retire_next(&mut self, memory: &[AtomicU64]) -> u32 {
        let index = self.retired;
        if index != self.taken {
            self.publish_retired(memory, index.wrapping_add(1));
        }
        index
    }

    /// An entry completes, and those before it are over: the application may have their places, before it sees the
    /// completion. Returns [`wr_id`](Self::wr_id).
    #[inline]
    pub(super) fn retire_to(&mut self, memory: &[AtomicU64], index: u32) -> u64 {
        let wr_id = self.wr_id(memory, index);
        let retired = index.wrapping_add(1);
        if retired.wrapping_sub(self.retired) <= self.taken.wrapping_sub(self.retired) {
            self.publish_retired(memory, retired);
        }
        wr_id
    }

    /// All that were taken are over, but the oldest that is not and those behind it: some of them may have completed, as
    /// those do that are posted while a stream ends.
    #[inline]
    pub(super) fn retire_before(&mut self, memory: &[AtomicU64], oldest: Option<u32>) {
        self.publish_retired(memory, oldest.unwrap_or(self.taken));
    }

    /// Tells the application how many entries are over, if the newest `left` of those that were taken are not.
    #[inline]
    pub(super) fn retire(&mut self, memory: &[AtomicU64], left: u32) {
        self.publish_retired(memory, self.taken.wrapping_sub(left));
    }

    #[inline]
    fn publish_retired(&mut self, memory: &[AtomicU64], retired: u32) {
        if retired != self.retired {
            self.retired = retired;
            self.device_word(memory, RETIRED).store(retired.into(), Ordering::Release);
        }
    }

    /// Asks the application to say when it has posted, by the number of this queue pair; or not any more.
    pub(super) fn want(&self, memory: &[AtomicU64], qp: Option<u32>) {
        let number = u64::from(qp.unwrap_or(0));
        self.device_word(memory, WANTED).store(number, Ordering::Relaxed);
    }

    pub(super) fn tell_state(&self, memory: &[AtomicU64], state: State) {
        self.device_word(memory, STATE).store(state as u64, Ordering::Release);
    }

    fn device_word<'a>(&self, memory: &'a [AtomicU64], word: usize) -> &'a AtomicU64 {
        &memory[self.area.at as usize + super::LINE + word]
    }

    /// Begins anew.
    pub(super) fn reset(&mut self, memory: &[AtomicU64]) {
        (self.taken, self.retired) = (0, 0);
        memory[self.area.at as usize].store(0, Ordering::Relaxed);
        self.device_word(memory, RETIRED).store(0, Ordering::Release);
        self.want(memory, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_has_its_place_until_its_completion_is_read() {
        const AREA: Area = Area { at: 0, slots: 4, stride: SEND_HEAD as u32 };
        let memory: Vec<AtomicU64> = (0..256).map(|_| AtomicU64::new(0)).collect();
        let (mut posts, mut taken) = (Posts::new(AREA, 4, &memory).unwrap(), Taken::new(AREA));
        let mut post = |read: Option<u32>| {
            let count = (0..8).take_while(|_| {
                posts.slot_after(|| read).is_some_and(|_| {
                    posts.push();
                    true
                })
            });
            count.count()
        };
        assert_eq!(post(Some(0)), 4);
        (0..4).for_each(|_| taken.take());
        taken.retire(&memory, 0);
        assert_eq!(post(Some(0)), 0, "all are over, and no completion was read");
        assert_eq!(post(Some(3)), 3);
        assert_eq!(post(Some(5)), 1, "what is not over has its place in any case");
        assert_eq!(post(Some(100)), 0, "that was before the queue began anew");
        (0..4).for_each(|_| taken.take());
        taken.retire(&memory, 0);
        assert_eq!(post(Some(100)), 4);
    }
}
