//! The send ring: the application writes, the NIC sends from where the bytes lie, and frees what the peer has
//! acknowledged.

use super::atomic::Ordering;
use super::extent::Extents;
use super::{ANEW, BadSize, Call, Hostile, Known, Lost, Piece, Ring, join};
use crate::Epoch;

/// A call of the application's that has begun, and what it has found in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'a> {
    ring: Ring<'a>,
    call: Call,
    /// Index of the first byte that is not acknowledged.
    head: u32,
    /// Where its bytes would lie, and whether that is to be said first.
    extents: Extents,
    is_new: bool,
    room: u32,
}

impl<'a> Begun<'a> {
    #[inline]
    pub(super) fn of(ring: Ring<'a>, call: Call) -> Self {
        let (index, classes) = (call.index, ring.classes());
        let word = ring.nic.load(Ordering::Acquire);
        let (head, wanted) = (word as u32, (word >> 32) as u8);
        let before = ring.extents();
        let mut extents = before;
        if extents.may_begin(head) {
            let class = extents.current.class.max(wanted.min(classes.largest()));
            let is_anew = head == index && extents.used(index) >= ANEW;
            if class > extents.current.class || is_anew {
                extents = extents.next(index, class);
            } else if extents.is_far(head) {
                extents = extents.near(head, classes);
            }
        }
        let used = index.wrapping_sub(head);
        let room = classes.size(extents.current.class).saturating_sub(used);
        Begun { ring, call, head, extents, is_new: extents != before, room }
    }

    /// Free bytes.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Bytes that are not acknowledged.
    pub fn used(&self) -> u32 {
        self.end().wrapping_sub(self.head)
    }

    /// Index behind the last byte that was written.
    pub fn end(&self) -> u32 {
        self.call.index
    }

    /// Where its bytes are to lie, which is said then, and for how many there is room, at most so many.
    pub(super) fn place(&self, most: u32) -> (Extents, u32) {
        let room = self.room.min(most);
        if self.is_new && room > 0 {
            self.ring.set_extents(self.extents);
        }
        (self.extents, room)
    }

    /// Writes pieces, one after the other and all at one time, as far as there is room, but at most so many bytes.
    ///
    /// # Errors
    /// As [`App::send`].
    pub fn send_pieces<'p>(
        self,
        from: impl IntoIterator<Item = &'p [u8]>,
        most: u32,
    ) -> Result<u32, Lost> {
        let (extents, room) = self.place(most);
        let mut count = 0;
        for piece in from {
            let len = piece.len().min((room - count) as usize);
            self.ring.data.write(extents, self.end().wrapping_add(count), &piece[..len]);
            count += len as u32;
            if count == room {
                break;
            }
        }
        self.call.take_effect(self.ring.app, count)?;
        Ok(count)
    }

    /// Has at most so many bytes written where they will lie, by `fill`, which says how many it has written.
    ///
    /// # Errors
    /// As [`App::send`], whatever was written.
    pub fn fill(self, most: u32, fill: impl FnOnce([Piece<'a>; 2]) -> u32) -> Result<u32, Lost> {
        let (extents, room) = self.place(most);
        let count = fill(self.ring.data.places(extents, self.end(), room)).min(room);
        self.call.take_effect(self.ring.app, count)?;
        Ok(count)
    }
}

/// The application's side, for one thread at a time.
#[derive(Clone, Copy, Debug)]
pub struct App<'a>(pub(super) Ring<'a>);

impl<'a> App<'a> {
    /// The application's side of this ring.
    pub fn new(ring: Ring<'a>) -> Self {
        App(ring)
    }

    /// A call begins.
    ///
    /// # Errors
    /// If the kernel has the connection.
    #[inline]
    pub fn begin(&self) -> Result<Begun<'a>, Lost> {
        Call::begin(self.0.app).map(|call| Begun::of(self.0, call))
    }

    /// Free bytes.
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn room(&self) -> Result<u32, Lost> {
        self.begin().map(|call| call.room)
    }

    /// Bytes that are not acknowledged.
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn len(&self) -> Result<u32, Lost> {
        let call = Call::begin(self.0.app)?;
        Ok(call.index.wrapping_sub(self.0.nic.load(Ordering::Acquire) as u32))
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn is_empty(&self) -> Result<bool, Lost> {
        self.len().map(|len| len == 0)
    }

    /// Writes as many of the bytes as there is room for, and says how many: 0 if the ring is full.
    ///
    /// # Errors
    /// If the kernel has the connection, or gets it meanwhile: nothing was written.
    pub fn send(&self, bytes: &[u8]) -> Result<u32, Lost> {
        self.begin()?.send_pieces([bytes], u32::MAX)
    }

    /// Index behind the last byte that was written.
    ///
    /// # Errors
    /// If the kernel has the connection.
    pub fn end(&self) -> Result<u32, Lost> {
        Call::begin(self.0.app).map(|call| call.index)
    }
}

/// The NIC's side.
#[derive(Debug)]
pub struct Nic<'a> {
    ring: Ring<'a>,
    /// Index of the first byte that is not acknowledged.
    head: u32,
    known: Known,
    /// The class that the application is to use.
    wanted: u8,
}

/// What the NIC knows of a ring, for one that does not keep the memory borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    head: u32,
    known: Known,
    wanted: u8,
}

impl Kept {
    /// Index of the first byte that is not released.
    pub fn head(&self) -> u32 {
        self.head
    }
}

impl<'a> Nic<'a> {
    /// Goes on with the ring of which this was [kept](Self::keep).
    pub fn resume(ring: Ring<'a>, kept: Kept) -> Self {
        Nic { ring, head: kept.head, known: kept.known, wanted: kept.wanted }
    }

    /// What is known, to go on with later.
    pub fn keep(&self) -> Kept {
        Kept { head: self.head, known: self.known, wanted: self.wanted }
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
        let wanted = ring.classes().for_bytes(len);
        let extents = Extents::begin(index, wanted);
        ring.data.write(extents, index, queue);
        ring.set_extents(extents);
        let end = index.wrapping_add(len);
        let nic = Nic { ring, head: index, known: Known { epoch, index: end }, wanted };
        nic.store();
        ring.app.store(join(epoch, end), Ordering::Release);
        Ok(nic)
    }

    /// The ring that another thread has opened for this epoch, with so many bytes from this index on.
    pub fn opened(ring: Ring<'a>, epoch: Epoch, head: u32, len: u32) -> Self {
        let wanted = ring.classes().for_bytes(len);
        Nic { ring, head, known: Known { epoch, index: head.wrapping_add(len) }, wanted }
    }

    fn store(&self) {
        let word = u64::from(self.wanted) << 32 | u64::from(self.head);
        self.ring.nic.store(word, Ordering::Release);
    }

    /// The ring of a NIC that has died in this epoch, whose first byte had this index. The epoch ends, if it has not:
    /// all bytes that are there then are those of calls that have taken effect.
    ///
    /// # Errors
    /// If what the application wrote is not possible.
    pub fn recover(ring: Ring<'a>, epoch: Epoch, head: u32) -> Result<Self, Hostile> {
        let mut known = Known { epoch, index: head };
        known.end(ring.app, ring.capacity())?;
        Ok(Nic { ring, head, known, wanted: 0 })
    }

    /// Index of the first byte that is not acknowledged.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Bytes that are there, as far as it was [looked](Self::look).
    pub fn len(&self) -> u32 {
        self.known.index.wrapping_sub(self.head)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it holds at most.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    fn room(&self) -> u32 {
        self.ring.capacity() - self.len()
    }

    /// Looks how many bytes the application has written since.
    ///
    /// # Errors
    /// If what it wrote there is not possible.
    pub fn look(&mut self) -> Result<u32, Hostile> {
        let room = self.room();
        self.known.look(self.ring.app, room)
    }

    /// Copies bytes that lie `offset` behind the first, and says how many there were. The application may change
    /// them at any time: what is judged, and summed, is the copy.
    pub fn peek(&self, offset: u32, into: &mut [u8]) -> usize {
        let there = self.len().saturating_sub(offset) as usize;
        let count = into.len().min(there);
        self.ring.data.read(
            self.ring.extents(),
            self.head.wrapping_add(offset),
            &mut into[..count],
        );
        count
    }

    /// The bytes that lie `offset` behind the first, at most `len` of them and as many as lie in two pieces. The
    /// application may change them at any time.
    #[cfg(not(loom))]
    pub fn bytes(&self, offset: u32, len: u32) -> [wire::Bytes<'a>; 2] {
        let len = len.min(self.len().saturating_sub(offset)) as usize;
        self.ring.data.bytes(self.ring.extents(), self.head.wrapping_add(offset), len)
    }

    /// Bytes that the application may have in it, as long as it does not [grow](Self::grow).
    pub fn size(&self) -> u32 {
        self.ring.classes().size(self.wanted)
    }

    /// Lets the application have twice as many bytes in it, if it can hold them.
    pub fn grow(&mut self) {
        self.wanted = self.ring.classes().largest().min(self.wanted + 1);
        self.store();
    }

    /// Frees the first bytes, at most those that are there. The mirror's SND.UNA is committed before.
    pub fn release(&mut self, count: u32) {
        self.head = self.head.wrapping_add(count.min(self.len()));
        self.store();
    }

    /// Ends the epoch: calls that have not taken effect lose. All bytes that are there then are those of calls
    /// that have.
    ///
    /// # Errors
    /// If what the application wrote is not possible. The epoch has ended all the same.
    pub fn flip(&mut self) -> Result<(), Hostile> {
        let room = self.room();
        let flipped = self.known.flip(self.ring.app, room);
        self.known.epoch = self.known.epoch.next();
        flipped.map(|_| ())
    }
}
