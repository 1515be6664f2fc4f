//! Memory of packets: a fixed number of equal chunks, each owned by one token.
//!
//! A pool belongs to one worker. Ports fill chunks and hand out [`Frame`] tokens; the holder of the
//! token owns the chunk, reads and writes it through the pool, and gives it back with
//! [`FramePool::free`]. A token that is dropped instead loses its chunk for the life of the pool:
//! memory-safe, but one frame less. Another thread that is given a token reads its bytes through a
//! [`FrameReader`] and sends the token back.
//!
//! Nothing allocates after [`FramePool::new`].

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;

/// The smallest chunk, in bytes (also the kernel's own bound for an AF_XDP UMEM).
pub const MIN_CHUNK_SIZE: u32 = 2048;

/// The largest chunk, in bytes. An AF_XDP UMEM takes chunks up to the page size only.
pub const MAX_CHUNK_SIZE: u32 = 32768;

/// Unique ownership of one chunk of a [`FramePool`], and the range of it that holds the frame.
///
/// Tokens are neither cloned nor made up: one comes from [`FramePool::alloc`] or from a port that
/// received into the chunk, and ends in [`FramePool::free`] or in a port's send queue.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is dropped instead of freed is lost to its pool"]
pub struct Frame {
    chunk: u32,
    pool: u32,
    /// `offset + len <= chunk_size` of the pool, always.
    offset: u16,
    len: u16,
    continues: bool,
}

impl Frame {
    /// Length of the frame's bytes.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the chunk in front of the frame.
    pub fn headroom(&self) -> usize {
        usize::from(self.offset)
    }

    /// Whether the packet goes on in the next frame (AF_XDP multi-buffer, `XDP_PKT_CONTD`).
    pub fn continues(&self) -> bool {
        self.continues
    }

    /// Sets whether the packet goes on in the next frame.
    pub fn set_continues(&mut self, continues: bool) {
        self.continues = continues;
    }

    /// Grows the frame by `n` bytes at the front, which hold whatever the headroom held. False, and
    /// nothing changes, if the headroom is smaller than that.
    #[must_use]
    pub fn push_front(&mut self, n: usize) -> bool {
        if n > self.headroom() {
            return false;
        }
        // `n` is at most the offset, and offset + len fits, so neither conversion can truncate.
        self.offset -= n as u16;
        self.len += n as u16;
        true
    }

    /// Drops `n` bytes at the front, or all of them if there are fewer.
    pub fn trim_front(&mut self, n: usize) {
        let n = n.min(self.len()) as u16;
        self.offset += n;
        self.len -= n;
    }

    /// Shortens the frame to `len` bytes; longer than it is changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len()) as u16;
    }

    /// The chunk's index in the pool.
    pub(crate) fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Whether the frame is of the pool with this id.
    pub(crate) fn pool_is(&self, id: u32) -> bool {
        self.pool == id
    }
}

/// What stands in front of a stamp (`STAMP_MAGIC` in bpf/redirect.c).
const STAMP_MAGIC: u64 = 0x7768_6172_6673_746d;

/// A fixed set of equal chunks of memory and the list of those that are free.
///
/// The free list is last in, first out, so that the chunk handed out next is the one most likely
/// still in the cache.
#[derive(Debug)]
pub struct FramePool {
    reader: FrameReader,
    chunks: u32,
    /// Freeing takes `&self`, so that one frame can be freed while another is read: no slice of a
    /// frame outlives a `&mut` borrow of the pool, and only those can hand a chunk out again to be
    /// written.
    free: RefCell<Vec<u32>>,
    /// Which chunks are not free: those whose tokens are with a holder or with the kernel.
    #[cfg(debug_assertions)]
    lent: RefCell<Vec<bool>>,
}

impl FramePool {
    /// A pool of `chunks` chunks of `chunk_size` bytes: a power of two between [`MIN_CHUNK_SIZE`]
    /// and [`MAX_CHUNK_SIZE`].
    ///
    /// # Errors
    /// `InvalidInput` for other sizes or no chunks, and the error of `mmap`.
    pub fn new(chunks: u32, chunk_size: u32) -> io::Result<Self> {
        if chunks == 0 {
            return Err(invalid("a frame pool needs at least one chunk"));
        }
        if !chunk_size.is_power_of_two() || !(MIN_CHUNK_SIZE..=MAX_CHUNK_SIZE).contains(&chunk_size)
        {
            return Err(invalid("the chunk size must be a power of two from 2048 to 32768"));
        }
        let len = (chunks as usize)
            .checked_mul(chunk_size as usize)
            .ok_or_else(|| invalid("the frame pool is larger than the address space"))?;
        let memory = Mapping::anonymous(len)?;
        memory.prefer_huge_pages();
        Ok(Self {
            reader: FrameReader { memory: Arc::new(memory), id: next_pool_id()?, chunk_size },
            chunks,
            free: RefCell::new((0..chunks).rev().collect()),
            #[cfg(debug_assertions)]
            lent: RefCell::new(vec![false; chunks as usize]),
        })
    }

    /// Takes a free chunk: an empty frame at its start. `None` if there is none.
    pub fn alloc(&mut self) -> Option<Frame> {
        let chunk = self.free.get_mut().pop()?;
        self.debug_check(chunk, true);
        Some(Frame { chunk, pool: self.id(), offset: 0, len: 0, continues: false })
    }

    /// Another frame with the same bytes. `None` if there is no free chunk.
    ///
    /// # Panics
    /// If the frame is another pool's.
    pub fn copy(&mut self, frame: &Frame) -> Option<Frame> {
        self.assert_own(frame);
        let mut copy = self.alloc()?;
        (copy.offset, copy.len, copy.continues) = (frame.offset, frame.len, frame.continues);
        let to = self.start_of(&copy).wrapping_add(usize::from(copy.offset));
        // SAFETY: `to` has the bytes of the copy in its own chunk, as `frame` has in its own at the same
        // place and of the same length; two tokens are two chunks, which do not overlap. Nothing refers
        // to a chunk that was free.
        unsafe { to.copy_from_nonoverlapping(self.bytes(frame).as_ptr(), frame.len()) };
        Some(copy)
    }

    /// Gives the chunk back.
    ///
    /// # Panics
    /// If the frame is another pool's.
    pub fn free(&self, frame: Frame) {
        self.assert_own(&frame);
        self.debug_check(frame.chunk, false);
        // Never beyond the capacity reserved by `new`: there are `chunks` tokens at most.
        self.free.borrow_mut().push(frame.chunk);
    }

    /// The frame's bytes.
    ///
    /// # Panics
    /// If the frame is another pool's.
    #[inline]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        let start = self.start_of(frame);
        // SAFETY: `start_of` checked that the frame is this pool's, so the chunk lies within the
        // mapping, and offset + len lies within the chunk (invariant of `Frame`). The memory was
        // zeroed by mmap, so it is initialised. Nothing writes to it while the slice lives:
        // the token is unique, so the chunk is not with the kernel to be received into, and should
        // the token be freed meanwhile, the chunk is handed out again (`alloc`), lent to receive
        // or written (`bytes_mut`) only through an exclusive borrow of this pool. (A frame given
        // to be sent meanwhile is only read by the kernel.)
        unsafe { std::slice::from_raw_parts(start.add(usize::from(frame.offset)), frame.len()) }
    }

    /// When a frame arrived, on [`clock::now`](crate::clock::now)'s clock, if the XDP program
    /// [stamps](crate::xdp::Redirect::attach_stamping) frames; else `None`. A stamp is returned once: the
    /// next frame in the same memory may come from a driver that leaves no room for stamps.
    ///
    /// # Panics
    /// If the frame is another pool's.
    pub fn take_stamp(&mut self, frame: &Frame) -> Option<u64> {
        let start = self.start_of(frame);
        let before = usize::from(frame.offset).checked_sub(2 * size_of::<u64>())?;
        // SAFETY: as for `bytes_mut`: the sixteen bytes in front of the frame lie in its own chunk.
        let stamp = unsafe { start.add(before).cast::<[u64; 2]>() };
        // SAFETY: as above; any bits are a number.
        let [magic, time] = unsafe { stamp.read_unaligned() };
        if magic != STAMP_MAGIC {
            return None;
        }
        // SAFETY: as above, and the pool is borrowed exclusively.
        unsafe { stamp.write_unaligned([0; 2]) };
        Some(time)
    }

    /// The frame's bytes, to write.
    ///
    /// # Panics
    /// If the frame is another pool's.
    #[inline]
    pub fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        let start = self.start_of(frame);
        // SAFETY: in bounds and initialised as in `bytes`. The pool is borrowed exclusively, so no
        // other slice of any chunk is alive, and the token is with the caller, so the kernel does
        // not use the chunk.
        unsafe { std::slice::from_raw_parts_mut(start.add(usize::from(frame.offset)), frame.len()) }
    }

    /// The frame's whole chunk, headroom and tailroom included, to write.
    ///
    /// # Panics
    /// If the frame is another pool's.
    pub fn chunk_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        let start = self.start_of(frame);
        // SAFETY: as in `bytes_mut`; the chunk has `chunk_size` bytes.
        unsafe { std::slice::from_raw_parts_mut(start, self.chunk_size()) }
    }

    /// Makes the frame the `len` bytes of its chunk that begin at `offset`.
    ///
    /// # Panics
    /// If they do not lie within the chunk, or the frame is another pool's.
    pub fn set_range(&self, frame: &mut Frame, offset: usize, len: usize) {
        self.assert_own(frame);
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.chunk_size()),
            "range {offset}+{len} is outside a chunk of {} bytes",
            self.chunk_size()
        );
        // Both are at most MAX_CHUNK_SIZE, which fits.
        (frame.offset, frame.len) = (offset as u16, len as u16);
    }

    /// Starts loading the frame's first two cache lines, where its headers are.
    #[inline]
    pub fn prefetch(&self, frame: &Frame) {
        let start = self.start_of(frame).wrapping_add(usize::from(frame.offset));
        prefetch_line(start);
        prefetch_line(start.wrapping_add(64));
    }

    /// Number of free chunks.
    pub fn available(&self) -> usize {
        self.free.borrow().len()
    }

    /// Number of chunks.
    pub fn capacity(&self) -> usize {
        self.chunks as usize
    }

    /// Bytes in a chunk.
    pub fn chunk_size(&self) -> usize {
        self.reader.chunk_size as usize
    }

    /// A reader of this pool's frames, for any thread.
    pub fn reader(&self) -> &FrameReader {
        &self.reader
    }

    /// The memory of all chunks, one after the other.
    pub(crate) fn memory(&self) -> &Arc<Mapping> {
        &self.reader.memory
    }

    /// A number that no other pool of this process has.
    pub(crate) fn id(&self) -> u32 {
        self.reader.id
    }

    /// The first byte of the frame's chunk.
    ///
    /// # Panics
    /// If the frame is another pool's.
    #[inline]
    pub(crate) fn start_of(&self, frame: &Frame) -> *mut u8 {
        self.reader.start_of(frame)
    }

    /// A token for a chunk whose own token was given to the kernel.
    ///
    /// # Panics
    /// If the range is not within a chunk of this pool.
    ///
    /// # Safety
    /// No token of this chunk exists, it is not in the free list, and the kernel no longer uses it.
    pub(crate) unsafe fn adopt(&self, chunk: u32, offset: u32, len: u32, continues: bool) -> Frame {
        assert!(chunk < self.chunks);
        let mut frame = Frame { chunk, pool: self.id(), offset: 0, len: 0, continues };
        self.set_range(&mut frame, offset as usize, len as usize);
        frame
    }

    #[inline]
    fn assert_own(&self, frame: &Frame) {
        self.reader.assert_own(frame);
    }

    /// Panics in a debug build if a chunk that is lent was lent already, or one that comes back was not:
    /// two tokens for one chunk, which `adopt` alone could have made. The free list has the others, once.
    #[inline]
    fn debug_check(&self, chunk: u32, lent: bool) {
        #[cfg(debug_assertions)]
        {
            let before = std::mem::replace(&mut self.lent.borrow_mut()[chunk as usize], lent);
            assert_ne!(before, lent, "chunk {chunk} has two tokens");
            let free = self.free.borrow().len();
            let more = u32::from(!lent) as usize;
            assert!(free + more <= self.capacity(), "{free} chunks of {} are free", self.chunks);
        }
        #[cfg(not(debug_assertions))]
        let _ = (chunk, lent);
    }
}

/// Reads the frames of one [`FramePool`], on whichever thread their tokens are.
///
/// It keeps the pool's memory mapped, so a token may outlive its pool.
#[derive(Clone, Debug)]
pub struct FrameReader {
    memory: Arc<Mapping>,
    id: u32,
    chunk_size: u32,
}

impl FrameReader {
    /// The frame's bytes, for as long as the token stays where it is.
    ///
    /// # Panics
    /// If the frame is another pool's.
    #[inline]
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        let start = self.start_of(frame);
        // SAFETY: `start_of` checked that the frame is of the pool whose mapping this is, so the
        // chunk lies within it, and offset + len lies within the chunk (invariant of `Frame`). The
        // memory was zeroed by mmap, so it is initialised, and the `Arc` keeps it mapped. Nothing
        // writes to the chunk while the slice lives: that takes the token, borrowed exclusively
        // (`bytes_mut`, `chunk_mut`) or given up (`free`, a port's queue), and the slice borrows
        // the one token there is. What the pool's thread wrote before it gave the token away is
        // seen here, because a token reaches another thread by what synchronises the two.
        unsafe { std::slice::from_raw_parts(start.add(usize::from(frame.offset)), frame.len()) }
    }

    /// The first byte of the frame's chunk.
    ///
    /// # Panics
    /// If the frame is another pool's.
    #[inline]
    fn start_of(&self, frame: &Frame) -> *mut u8 {
        self.assert_own(frame);
        // SAFETY: the index of a token of this pool is below `chunks`, so the result lies within
        // the mapping of chunks * chunk_size bytes.
        unsafe { self.memory.start().as_ptr().add(frame.chunk as usize * self.chunk_size as usize) }
    }

    #[inline]
    fn assert_own(&self, frame: &Frame) {
        assert!(frame.pool_is(self.id), "a frame was used with another pool than its own");
    }
}

/// Pool ids are never reused: a token must not outlive its pool and then fit another one.
fn next_pool_id() -> io::Result<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1))
        .map_err(|_| io::Error::other("out of frame pool ids"))
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Starts loading one cache line; any address will do, since a prefetch cannot fault.
#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and PREFETCHT0 is a hint that neither faults nor writes.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint that neither faults nor writes.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_small_with_and_without_an_option_around_it() {
        assert_eq!(size_of::<Frame>(), 16);
        assert_eq!(size_of::<Option<Frame>>(), 16);
    }

    #[test]
    fn every_chunk_is_handed_out_once_and_the_last_freed_comes_first() {
        let mut pool = FramePool::new(3, 2048).unwrap();
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!((frames.len(), pool.available()), (3, 0));
        for (i, frame) in frames.iter_mut().enumerate() {
            pool.set_range(frame, 0, 2048);
            pool.bytes_mut(frame).fill(i as u8);
        }
        for (i, frame) in frames.iter().enumerate() {
            assert!(pool.bytes(frame).iter().all(|&b| b == i as u8));
        }
        let last = frames.pop().unwrap();
        let chunk = last.chunk();
        pool.free(last);
        let again = pool.alloc().unwrap();
        assert_eq!(again.chunk(), chunk);
        pool.free(again);
        frames.into_iter().for_each(|frame| pool.free(frame));
        assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    fn ranges_grow_into_the_headroom_and_shrink_at_both_ends() {
        let mut pool = FramePool::new(1, 2048).unwrap();
        let mut frame = pool.alloc().unwrap();
        pool.set_range(&mut frame, 4, 10);
        pool.bytes_mut(&mut frame).copy_from_slice(b"0123456789");
        assert!(!frame.push_front(5));
        assert!(frame.push_front(4));
        assert_eq!((frame.headroom(), frame.len()), (0, 14));
        frame.trim_front(5);
        frame.truncate(3);
        assert_eq!(pool.bytes(&frame), b"123");
        frame.truncate(100);
        frame.trim_front(100);
        assert!(frame.is_empty());
        assert_eq!(pool.chunk_mut(&mut frame).len(), 2048);
        pool.free(frame);
    }

    #[test]
    fn a_stamp_is_returned_once() {
        let mut pool = FramePool::new(1, 2048).unwrap();
        let mut frame = pool.alloc().unwrap();
        pool.set_range(&mut frame, 0, 16);
        let stamp = [STAMP_MAGIC.to_ne_bytes(), 5_u64.to_ne_bytes()].concat();
        pool.bytes_mut(&mut frame).copy_from_slice(&stamp);
        for (offset, stamp) in [(15, None), (17, None), (16, Some(5)), (16, None)] {
            pool.set_range(&mut frame, offset, 100);
            assert_eq!(pool.take_stamp(&frame), stamp, "{offset}");
        }
        pool.free(frame);
    }

    #[test]
    fn another_thread_reads_a_frame_and_sends_its_token_back() {
        let mut pool = FramePool::new(4, 2048).unwrap();
        let reader = pool.reader().clone();
        let (give, given) = std::sync::mpsc::channel::<Frame>();
        let (give_back, returned) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            for frame in given {
                let sum: u32 = reader.bytes(&frame).iter().map(|&b| u32::from(b)).sum();
                give_back.send((frame, sum)).unwrap();
            }
        });
        for round in 0..20u8 {
            // The owner writes other chunks while the thread reads this one.
            let mut frame = pool.alloc().unwrap();
            pool.set_range(&mut frame, 100, 50);
            pool.bytes_mut(&mut frame).fill(round);
            give.send(frame).unwrap();
            while let Some((frame, sum)) = returned.try_iter().next() {
                assert_eq!(sum % 50, 0);
                pool.free(frame);
            }
            if pool.available() == 0 {
                let (frame, _) = returned.recv().unwrap();
                pool.free(frame);
            }
        }
        drop(give);
        for (frame, sum) in returned {
            assert_eq!(sum, 50 * u32::from(pool.bytes(&frame)[0]));
            pool.free(frame);
        }
        thread.join().unwrap();
        assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    #[should_panic(expected = "another pool")]
    fn a_reader_refuses_the_token_of_another_pool() {
        let mut pool = FramePool::new(1, 2048).unwrap();
        let other = FramePool::new(1, 2048).unwrap();
        let frame = pool.alloc().unwrap();
        let _ = other.reader().bytes(&frame);
    }

    #[test]
    #[should_panic(expected = "outside a chunk")]
    fn a_range_past_the_chunk_is_refused() {
        let mut pool = FramePool::new(2, 2048).unwrap();
        let mut frame = pool.alloc().unwrap();
        pool.set_range(&mut frame, 2000, 49);
    }

    #[test]
    #[should_panic(expected = "another pool")]
    fn a_token_of_another_pool_is_refused() {
        let mut pool = FramePool::new(1, 2048).unwrap();
        let other = FramePool::new(1, 2048).unwrap();
        let frame = pool.alloc().unwrap();
        let _ = other.bytes(&frame);
    }

    #[test]
    fn sizes_that_cannot_work_are_refused() {
        for (chunks, chunk_size) in [(0, 2048), (1, 0), (1, 1024), (1, 3000), (1, 65536)] {
            let error = FramePool::new(chunks, chunk_size).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
