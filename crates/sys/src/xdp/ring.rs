//! The single-producer, single-consumer rings that AF_XDP shares with the kernel
//! (Documentation/networking/af_xdp.rst, "Rings").
//!
//! The two indices run freely modulo 2^32. The producer publishes entries by a release store of
//! its index, which the consumer reads with acquire; the consumer hands slots back the same way
//! round. Each side keeps a copy of the other's index and reads it again only when the copy
//! leaves nothing, so that the cache line does not bounce per entry.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;

/// Where the parts of a ring lie in its mapping, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
}

#[derive(Debug)]
struct Ring<T> {
    mapping: Arc<Mapping>,
    layout: Layout,
    size: u32,
    entries: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Checks once that everything later accessed lies within the mapping, aligned.
    fn new(mapping: Arc<Mapping>, layout: Layout, size: u32) -> Self {
        assert!(size.is_power_of_two());
        let index_fits = |at: usize| at.is_multiple_of(4) && at <= mapping.len() - 4;
        let entries_len = size as usize * size_of::<T>();
        let fits = mapping.len() >= entries_len
            && index_fits(layout.producer)
            && index_fits(layout.consumer)
            && index_fits(layout.flags)
            && layout.entries.is_multiple_of(align_of::<T>())
            && layout.entries <= mapping.len() - entries_len;
        assert!(fits, "a ring of {size} entries does not fit its mapping: {layout:?}");
        Self { mapping, layout, size, entries: PhantomData }
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` checked that the four bytes lie within the mapping and are aligned (the
        // mapping is page-aligned). The mapping lives as long as the reference, and both this
        // process and the kernel access these bytes only atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.start().as_ptr().add(at).cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.index(self.layout.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.index(self.layout.consumer)
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: the slot is below `size`, and `new` checked that `size` entries lie within the
        // mapping, aligned.
        unsafe { self.mapping.start().add(self.layout.entries).cast::<T>().add(slot) }
    }
}

/// The side that puts entries in: FILL and TX.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Index of the next entry to write; ahead of the shared one until `submit`.
    next: u32,
    /// The consumer's index when last looked at.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    /// The producer of the ring at `layout` with `size` entries (a power of two).
    ///
    /// # Panics
    /// If the ring does not fit the mapping.
    ///
    /// # Safety
    /// The ring has no other producer, its consumer reads only published entries, and every bit
    /// pattern is a valid `T`.
    pub(super) unsafe fn new(mapping: Arc<Mapping>, layout: Layout, size: u32) -> Self {
        let ring = Ring::new(mapping, layout, size);
        let next = ring.producer().load(Ordering::Relaxed);
        let consumed = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, consumed }
    }

    /// Free slots, by a fresh look at the consumer.
    pub(super) fn room(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.room_when_last_seen()
    }

    fn room_when_last_seen(&self) -> u32 {
        // A consumer that ran ahead of the producer would be the kernel's fault; treat it as full.
        self.ring.size.saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Whether there is no free slot, after a fresh look if it seems so.
    pub(super) fn is_full(&mut self) -> bool {
        self.room_when_last_seen() == 0 && self.room() == 0
    }

    /// Writes an entry, which the consumer sees after `submit`. Gives it back if the ring is full.
    pub(super) fn push(&mut self, entry: T) -> Result<(), T> {
        if self.is_full() {
            return Err(entry);
        }
        // SAFETY: the pointer is valid and aligned (`Ring::entry`). The slot is free: the acquire
        // load of the consumer's index showed that it was read before, and the consumer reads it
        // again only after `submit`.
        unsafe { self.ring.entry(self.next).write_volatile(entry) };
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Publishes what was pushed.
    pub(super) fn submit(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Entries pushed, published or not, that the consumer has not taken.
    pub(super) fn queued(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// The entry that the consumer took last, as it was pushed; `None` where none can be it.
    pub(super) fn taken_last(&self) -> Option<T> {
        let last = self.ring.consumer().load(Ordering::Acquire).wrapping_sub(1);
        // One of the last `size` that were pushed, so its slot was written and not used again.
        if self.next.wrapping_sub(last).wrapping_sub(1) >= self.ring.size {
            return None;
        }
        // SAFETY: the pointer is valid and aligned (`Ring::entry`). This side alone writes the slot.
        Some(unsafe { self.ring.entry(last).read_volatile() })
    }

    /// Whether the kernel asks to be woken by a system call (`XDP_RING_NEED_WAKEUP`).
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.index(self.ring.layout.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP
            != 0
    }
}

/// The side that takes entries out: RX and COMPLETION.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Index of the next entry to read; ahead of the shared one until `release`.
    next: u32,
    /// The producer's index when last looked at.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    /// The consumer of the ring at `layout` with `size` entries (a power of two).
    ///
    /// # Panics
    /// If the ring does not fit the mapping.
    ///
    /// # Safety
    /// The ring has no other consumer, its producer writes only slots that were released, and
    /// every bit pattern is a valid `T`.
    pub(super) unsafe fn new(mapping: Arc<Mapping>, layout: Layout, size: u32) -> Self {
        let ring = Ring::new(mapping, layout, size);
        let next = ring.consumer().load(Ordering::Relaxed);
        let produced = ring.producer().load(Ordering::Acquire);
        Self { ring, next, produced }
    }

    /// Entries to read, by a fresh look at the producer if fewer than `wanted` are known of.
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        if self.available_when_last_seen() < wanted {
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        self.available_when_last_seen()
    }

    fn available_when_last_seen(&self) -> u32 {
        self.produced.wrapping_sub(self.next).min(self.ring.size)
    }

    /// The entry `ahead` places behind the next one, left in the ring; `None` if it is not among
    /// those known of by `available`.
    pub(super) fn peek(&self, ahead: u32) -> Option<T> {
        if ahead >= self.available_when_last_seen() {
            return None;
        }
        // SAFETY: the pointer is valid and aligned (`Ring::entry`). The acquire load of the
        // producer's index showed that the entry was written before, and the producer writes the
        // slot again only after `release`. Volatile, so that the value checked by the caller is
        // the value used, whatever the other side does.
        Some(unsafe { self.ring.entry(self.next.wrapping_add(ahead)).read_volatile() })
    }

    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.available(1) == 0 {
            return None;
        }
        let entry = self.peek(0)?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Hands the slots of the entries taken back to the producer.
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

// Miri runs these: `cargo miri test -p sys --lib xdp::ring`.
#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { producer: 0, consumer: 64, flags: 128, entries: 192 };

    /// Both ends of a ring in plain memory whose indices begin at `start`.
    fn ring(size: u32, start: u32) -> (Producer<u64>, Consumer<u64>) {
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let indices = Ring::<u64>::new(Arc::clone(&mapping), LAYOUT, size);
        indices.producer().store(start, Ordering::Relaxed);
        indices.consumer().store(start, Ordering::Relaxed);
        // SAFETY: these are the only producer and the only consumer, and any bits are a u64.
        unsafe {
            (
                Producer::new(Arc::clone(&mapping), LAYOUT, size),
                Consumer::new(mapping, LAYOUT, size),
            )
        }
    }

    #[test]
    fn entries_are_seen_after_submit_and_slots_are_free_after_release() {
        let (mut tx, mut rx) = ring(4, 0);
        for i in 0..4 {
            tx.push(i).unwrap();
        }
        assert_eq!(tx.push(4), Err(4));
        assert_eq!((rx.available(1), rx.pop()), (0, None));
        tx.submit();
        assert_eq!((tx.queued(), rx.available(1)), (4, 4));
        assert_eq!((rx.peek(3), rx.peek(4)), (Some(3), None));
        assert_eq!((rx.pop(), rx.pop()), (Some(0), Some(1)));
        assert_eq!(tx.room(), 0);
        rx.release();
        assert_eq!((tx.room(), tx.queued()), (2, 2));
        tx.push(4).unwrap();
        tx.submit();
        assert_eq!(std::iter::from_fn(|| rx.pop()).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn the_entry_taken_last_can_be_read_until_its_slot_is_used_again() {
        let (mut tx, mut rx) = ring(2, u32::MAX);
        assert_eq!(tx.taken_last(), Some(0), "whatever the slot in front of the first has");
        for i in 7..9 {
            tx.push(i).unwrap();
        }
        tx.submit();
        rx.pop();
        rx.release();
        assert_eq!(tx.taken_last(), Some(7));
        tx.push(9).unwrap();
        assert_eq!(tx.taken_last(), None);
    }

    #[test]
    fn indices_wrap_at_two_to_the_32() {
        let (mut tx, mut rx) = ring(8, u32::MAX - 2);
        for round in 0..4_u64 {
            for i in 0..8 {
                tx.push(round * 8 + i).unwrap();
            }
            assert!(tx.push(99).is_err());
            tx.submit();
            for i in 0..8 {
                assert_eq!(rx.pop(), Some(round * 8 + i));
            }
            assert_eq!(rx.pop(), None);
            rx.release();
        }
    }

    #[test]
    fn two_threads_see_every_entry_once_in_order() {
        let count = if cfg!(miri) { 300 } else { 200_000 };
        let (mut tx, mut rx) = ring(16, u32::MAX - 7);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for i in 0..count {
                    while tx.push(i).is_err() {
                        tx.submit();
                        std::thread::yield_now();
                    }
                    if i % 5 == 0 {
                        tx.submit();
                    }
                }
                tx.submit();
            });
            let mut expected = 0;
            while expected < count {
                match rx.pop() {
                    Some(entry) => {
                        assert_eq!(entry, expected);
                        expected += 1;
                    }
                    None => std::thread::yield_now(),
                }
                rx.release();
            }
        });
    }

    #[test]
    fn the_wakeup_flag_is_the_kernels() {
        let (tx, rx) = ring(2, 0);
        assert!(!tx.needs_wakeup());
        rx.ring.index(LAYOUT.flags).store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(tx.needs_wakeup());
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_ring_larger_than_its_mapping_is_refused() {
        ring(512, 0);
    }
}
