//! The receive ring: the NIC writes what comes, in its place even if a hole is before it, and the application
//! reads.

use super::atomic::Ordering;
use super::{BadSize, Call, Hostile, Known, Lost, Ring, join};
use crate::Epoch;

/// The application's side.
#[derive(Clone, Copy, Debug)]
pub struct App<'a>(Ring<'a>);

impl<'a> App<'a> {
    /// The application's side of this ring.
    pub fn new(ring: Ring<'a>) -> Self {
        App(ring)
    }

    /// Bytes to be read (`FIONREAD`).
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn len(&self) -> Result<u32, Lost> {
        Call::begin(self.0.app).map(|call| self.len_of(call))
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn is_empty(&self) -> Result<bool, Lost> {
        self.len().map(|len| len == 0)
    }

    fn len_of(&self, call: Call) -> u32 {
        let tail = self.0.nic.load(Ordering::Acquire) as u32;
        tail.wrapping_sub(call.index).min(self.0.capacity())
    }

    /// Reads bytes, and says how many: 0 if there are none.
    ///
    /// # Errors
    /// If the kernel has the connection, or gets it meanwhile: nothing was read, whatever was copied.
    pub fn recv(&self, into: &mut [u8]) -> Result<u32, Lost> {
        let call = Call::begin(self.0.app)?;
        let count = self.copy(call, into);
        call.take_effect(self.0.app, count)?;
        Ok(count)
    }

    /// Reads bytes that stay there (`MSG_PEEK`).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek(&self, into: &mut [u8]) -> Result<u32, Lost> {
        let call = Call::begin(self.0.app)?;
        let count = self.copy(call, into);
        call.take_effect(self.0.app, 0)?;
        Ok(count)
    }

    fn copy(&self, call: Call, into: &mut [u8]) -> u32 {
        let count = into.len().min(self.len_of(call) as usize);
        self.0.data.read(call.index, &mut into[..count]);
        count as u32
    }
}

/// The NIC's side.
#[derive(Debug)]
pub struct Nic<'a> {
    ring: Ring<'a>,
    /// Index behind the last byte that the application may read.
    tail: u32,
    known: Known,
}

/// What the NIC knows of a ring, for one that does not keep the memory borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    tail: u32,
    known: Known,
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
        Nic { ring, tail: kept.tail, known: kept.known }
    }

    /// What is known, to go on with later.
    pub fn keep(&self) -> Kept {
        Kept { tail: self.tail, known: self.known }
    }

    /// Opens the ring for an epoch of the NIC's: the first byte has this index, and these are there already.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn open(ring: Ring<'a>, epoch: Epoch, index: u32, queue: &[u8]) -> Result<Self, BadSize> {
        let len = u32::try_from(queue.len()).map_err(|_| BadSize)?;
        if len > ring.capacity() {
            return Err(BadSize);
        }
        ring.data.write(index, queue);
        let tail = index.wrapping_add(len);
        ring.nic.store(tail.into(), Ordering::Release);
        ring.app.store(join(epoch, index), Ordering::Release);
        Ok(Nic { ring, tail, known: Known { epoch, index } })
    }

    /// The ring of a NIC that has died in this epoch, and had written up to this index. The epoch ends, if it has not:
    /// what is not read then is for the kernel.
    ///
    /// # Errors
    /// If what the application wrote is not possible.
    pub fn recover(ring: Ring<'a>, epoch: Epoch, tail: u32) -> Result<Self, Hostile> {
        let mut known = Known { epoch, index: tail.wrapping_sub(ring.capacity()) };
        known.end(ring.app, ring.capacity())?;
        Ok(Nic { ring, tail, known })
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

    /// Free bytes, as far as it was [looked](Self::look).
    pub fn room(&self) -> u32 {
        self.ring.capacity() - self.len()
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
        self.ring.data.write(self.tail.wrapping_add(offset), &bytes[..count]);
        count
    }

    /// Lets the application read so many bytes more, at most as many as there is room for.
    pub fn publish(&mut self, count: u32) {
        self.tail = self.tail.wrapping_add(count.min(self.room()));
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
        self.ring.data.read(self.known.index, &mut into[..count]);
        count
    }
}
