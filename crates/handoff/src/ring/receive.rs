//! The receive ring: the NIC writes what comes, in its place even if a hole is before it, and the application
//! reads.

use super::atomic::Ordering;
use super::extent::Extents;
use super::{ANEW, BadSize, Call, Hostile, Known, Lost, Piece, Ring, join, split};
use crate::Epoch;

/// The application's side. Any number of threads may read: who has read while another was copying has taken what that
/// one copied, which begins anew.
#[derive(Clone, Copy, Debug)]
pub struct App<'a>(pub(super) Ring<'a>);

impl<'a> App<'a> {
    /// The application's side of this ring.
    pub fn new(ring: Ring<'a>) -> Self {
        App(ring)
    }

    /// Bytes to be read (`FIONREAD`): none while the NIC has been lent the ring.
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn len(&self) -> Result<u32, Lost> {
        match Call::begin(self.0.app) {
            Err(Lost) if self.is_lent() => Ok(0),
            call => call.map(|call| self.len_of(call)),
        }
    }

    /// Index of the next byte to be read, wherever the connection is.
    pub fn index(&self) -> u32 {
        split(self.0.app.load(Ordering::Acquire)).1
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn is_empty(&self) -> Result<bool, Lost> {
        self.len().map(|len| len == 0)
    }

    /// Bytes that it holds for now.
    pub fn size(&self) -> u32 {
        self.0.classes().size(self.0.extents().current.class)
    }

    fn len_of(&self, call: Call) -> u32 {
        let tail = self.0.nic.load(Ordering::Acquire) as u32;
        tail.wrapping_sub(call.index).min(self.0.capacity())
    }

    /// Reads bytes, and says how many: 0 if there are none.
    ///
    /// # Errors
    /// If the kernel has the connection, or gets it meanwhile, or another thread has read: nothing was read, whatever
    /// was copied.
    pub fn recv(&self, into: &mut [u8]) -> Result<u32, Lost> {
        self.recv_pieces([into])
    }

    /// Reads bytes into pieces, one after the other, all at one time.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_pieces<'p>(
        &self,
        into: impl IntoIterator<Item = &'p mut [u8]>,
    ) -> Result<u32, Lost> {
        let call = Call::begin(self.0.app)?;
        let count = self.copy(call, into);
        call.take_effect(self.0.app, count)?;
        Ok(count)
    }

    /// Reads bytes into pieces that stay there (`MSG_PEEK`).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek_pieces<'p>(
        &self,
        into: impl IntoIterator<Item = &'p mut [u8]>,
    ) -> Result<u32, Lost> {
        let call = Call::begin(self.0.app)?;
        let count = self.copy(call, into);
        call.take_effect(self.0.app, 0)?;
        Ok(count)
    }

    /// Passes over at most so many bytes (`MSG_TRUNC`), and says how many.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn skip(&self, most: u32) -> Result<u32, Lost> {
        let call = Call::begin(self.0.app)?;
        let count = most.min(self.len_of(call));
        call.take_effect(self.0.app, count)?;
        Ok(count)
    }

    /// Shows at most so many bytes where they lie, as many as lie in two pieces, to `copy`, which says how many it has copied.
    /// If they were the ring's until then, `give` hands on so many; they are read as far as it says.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); what was handed on is in the second value, and is there still.
    pub fn take_pieces(
        &self,
        most: u32,
        copy: impl FnOnce([Piece<'a>; 2]) -> u32,
        give: impl FnOnce(u32) -> u32,
    ) -> Result<u32, (Lost, u32)> {
        let call = Call::begin(self.0.app).map_err(|lost| (lost, 0))?;
        let there = most.min(self.len_of(call));
        let pieces = self.0.data.places(self.0.extents(), call.index, there);
        let copied = copy(pieces).min(there);
        // Where the kernel has the connection the memory may have become another's, or nobody's.
        call.take_effect(self.0.app, 0).map_err(|lost| (lost, 0))?;
        let count = give(copied).min(copied);
        call.take_effect(self.0.app, count).map_err(|lost| (lost, count))?;
        Ok(count)
    }

    fn copy<'p>(&self, call: Call, into: impl IntoIterator<Item = &'p mut [u8]>) -> u32 {
        let there = self.len_of(call);
        let extents = self.0.extents();
        let mut count = 0;
        for piece in into {
            let len = piece.len().min((there - count) as usize);
            self.0.data.read(extents, call.index.wrapping_add(count), &mut piece[..len]);
            count += len as u32;
            if count == there {
                break;
            }
        }
        count
    }
}

/// The NIC's side.
#[derive(Debug)]
pub struct Nic<'a> {
    pub(super) ring: Ring<'a>,
    /// Index behind the last byte that the application may read.
    pub(super) tail: u32,
    pub(super) known: Known,
    pub(super) extents: Extents,
}

/// What the NIC knows of a ring, for one that does not keep the memory borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    tail: u32,
    known: Known,
    extents: Extents,
}

impl Kept {
    /// Index behind the last byte that was published.
    pub fn tail(&self) -> u32 {
        self.tail
    }
}

impl<'a> Nic<'a> {
    /// Goes on with the ring of which this was [kept](Self::keep).
    pub fn resume(ring: Ring<'a>, kept: Kept) -> Self {
        Nic { ring, tail: kept.tail, known: kept.known, extents: kept.extents }
    }

    /// What is known, to go on with later.
    pub fn keep(&self) -> Kept {
        Kept { tail: self.tail, known: self.known, extents: self.extents }
    }

    /// Opens the ring for an epoch of the NIC's: the first byte has this index, these are there already, and as many as
    /// `room` are to fit in any case, if the ring can hold them.
    ///
    /// # Errors
    /// If those that are there do not fit.
    pub fn open(
        ring: Ring<'a>,
        epoch: Epoch,
        index: u32,
        queue: &[u8],
        room: u32,
    ) -> Result<Self, BadSize> {
        let len = u32::try_from(queue.len()).map_err(|_| BadSize)?;
        if len > ring.capacity() {
            return Err(BadSize);
        }
        let extents = Extents::begin(index, ring.classes().for_bytes(len.max(room)));
        ring.data.write(extents, index, queue);
        ring.set_extents(extents);
        let tail = index.wrapping_add(len);
        ring.nic.store(tail.into(), Ordering::Release);
        ring.app.store(join(epoch, index), Ordering::Release);
        Ok(Nic { ring, tail, known: Known { epoch, index }, extents })
    }

    /// The ring that another thread has opened for this epoch, with so many bytes from this index on, and room for as many
    /// as `room`.
    pub fn opened(ring: Ring<'a>, epoch: Epoch, index: u32, len: u32, room: u32) -> Self {
        let extents = Extents::begin(index, ring.classes().for_bytes(len.max(room)));
        Nic { ring, tail: index.wrapping_add(len), known: Known { epoch, index }, extents }
    }

    /// The ring of a NIC that has died in this epoch, and had written up to this index. The epoch ends, if it has not:
    /// what is not read then is for the kernel.
    ///
    /// # Errors
    /// If what the application wrote is not possible.
    pub fn recover(ring: Ring<'a>, epoch: Epoch, tail: u32) -> Result<Self, Hostile> {
        let mut known = Known { epoch, index: tail.wrapping_sub(ring.capacity()) };
        known.end(ring.app, ring.capacity())?;
        Ok(Nic { ring, tail, known, extents: ring.extents() })
    }

    /// Index behind the last byte that was published.
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Bytes that were not read, as far as it was [looked](Self::look).
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.known.index)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it holds, until it [grows](Self::grow).
    pub fn size(&self) -> u32 {
        self.ring.classes().size(self.extents.current.class)
    }

    /// Free bytes, as far as it was [looked](Self::look).
    pub fn room(&self) -> u32 {
        self.size().saturating_sub(self.len())
    }

    /// Holds twice as many bytes, of which those from this index on lie elsewhere: nothing was [put](Self::put) there yet.
    /// Returns whether it does: it cannot become larger without bound, nor before all bytes of a smaller one are read, nor
    /// may more bytes be before that index than it holds.
    pub fn grow(&mut self, from: u32) -> bool {
        let class = self.extents.current.class;
        let fits = from.wrapping_sub(self.known.index) <= self.size();
        let is_whole = self.extents.may_begin(self.known.index);
        let grows = fits && is_whole && class < self.ring.classes().largest();
        if grows {
            self.set_extents(self.extents.next(from, class + 1));
        }
        grows
    }

    /// Nothing is in it, nor was put behind what was published: what comes next lies at the beginning of its memory, if that
    /// is worth it.
    pub fn begin_anew(&mut self) {
        debug_assert!(self.is_empty(), "bytes would lie elsewhere");
        let extents = self.extents;
        if extents.may_begin(self.tail) && extents.used(self.tail) >= ANEW {
            self.set_extents(extents.next(self.tail, extents.current.class));
        }
    }

    fn set_extents(&mut self, extents: Extents) {
        self.extents = extents;
        self.ring.set_extents(extents);
    }

    /// Looks how many bytes the application has read since.
    ///
    /// # Errors
    /// If what it wrote there is not possible.
    pub fn look(&mut self) -> Result<u32, Hostile> {
        let len = self.len();
        self.known.look(self.ring.app, len)
    }

    /// Writes bytes `offset` behind the last that was published, as far as there is room, and says how many. They
    /// are not read before they are [published](Self::publish).
    pub fn put(&mut self, offset: u32, bytes: &[u8]) -> usize {
        let room = self.room().saturating_sub(offset) as usize;
        let count = bytes.len().min(room);
        self.ring.data.write(self.extents, self.tail.wrapping_add(offset), &bytes[..count]);
        count
    }

    /// Lets the application read so many bytes more, at most as many as there is room for.
    pub fn publish(&mut self, count: u32) {
        self.tail = self.tail.wrapping_add(count.min(self.room()));
        if self.extents.is_far(self.known.index) {
            let near = self.extents.near(self.known.index, self.ring.classes());
            self.set_extents(near);
        }
        self.ring.nic.store(self.tail.into(), Ordering::Release);
    }

    /// Ends the epoch: calls that have not taken effect lose. What is not read then is for the kernel.
    ///
    /// # Errors
    /// If what the application wrote is not possible. The epoch has ended all the same.
    pub fn flip(&mut self) -> Result<(), Hostile> {
        let len = self.len();
        let flipped = self.known.flip(self.ring.app, len);
        self.known.epoch = self.known.epoch.next();
        flipped.map(|_| ())
    }

    /// Copies bytes that were not read, from the first on, and says how many.
    pub fn peek(&self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.len() as usize);
        self.ring.data.read(self.extents, self.known.index, &mut into[..count]);
        count
    }

    /// Copies bytes that were [put](Self::put) behind those that were published, so far behind the first that was not read.
    pub fn peek_put(&self, offset: u32, into: &mut [u8]) {
        self.ring.data.read(self.extents, self.known.index.wrapping_add(offset), into);
    }
}
