//! The memory of applications, which is not this crate's: a trait that the device implements.

use crate::mpa::deframe::Span;
use crate::rdmap::atomic::Operation;

/// Most pieces in one call of [`Memory::place`], and most extents in one of [`Memory::gather`]: as many as
/// process_vm_writev(2) takes (`UIO_MAXIOV`).
pub const BATCH_MAX: usize = 1024;

/// The device's name for memory: whatever it was given when the region was registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// Bytes and where they belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// The registered memory.
    pub memory: Handle,
    /// The first byte, from the begin of that memory.
    pub offset: u64,
    /// What is stored there. Not empty.
    pub bytes: &'a [u8],
    /// The last byte of this piece is the last of its message. The aligned word that ends there, of up to eight bytes of the
    /// message, is stored as one and after all others, as programs wait for it by reading memory. It may begin in the pieces
    /// before this one.
    pub ends_message: bool,
}

/// Pieces to be placed, in the order of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    pub(crate) placed: &'a [Placed],
    pub(crate) slices: &'a [&'a [u8]],
    /// Values that do not lie in the stream as they are stored.
    pub(crate) values: &'a [[u8; 8]],
}

impl<'a> Pieces<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.placed.len()
    }

    /// Whether there are none. [`Memory::place`] is not called then.
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Piece<'a>> + use<'a> {
        let Self { placed, slices, values } = *self;
        placed.iter().map(move |of| Piece {
            memory: of.memory,
            offset: of.offset,
            bytes: match of.from {
                Source::Stream(span) => span.of(slices),
                Source::Value(index) => values.get(index as usize).map_or(&[], |value| &value[..]),
            },
            ends_message: of.ends_message,
        })
    }
}

/// A [`Piece`] whose bytes are named by where they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) memory: Handle,
    pub(crate) offset: u64,
    pub(crate) from: Source,
    pub(crate) ends_message: bool,
    pub(crate) owner: Owner,
}

/// Whose bytes a piece has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The peer's, written by its own wish.
    Peer,
    /// Those of the receive at hand, or of one before it.
    Receive,
    /// The result of a request.
    Request(u32),
}

/// Where the bytes of a piece lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Stream(Span),
    Value(u32),
}

/// Bytes of registered memory that go into a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The registered memory.
    pub memory: Handle,
    /// The first byte, from the begin of that memory.
    pub offset: u64,
    /// Where they go: a place in the buffer.
    pub at: usize,
    /// How many bytes. Not zero.
    pub len: usize,
}

/// A byte of memory, by whichever region it is reached: two of them are equal if the bytes are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The address space, or the file.
    pub space: (u64, u64),
    /// The byte's number in there.
    pub at: u64,
}

/// The memory is not there, or not to be written: the application has unmapped it, or is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Pieces or extents, from the first on, that were done whole.
    pub done: usize,
}

/// Reads and writes the memory of applications. Regions and bounds have been checked before each call; the memory
/// may be gone all the same.
pub trait Memory {
    /// Stores all pieces, in their order as far as [`Piece::ends_message`] asks for it. What is stored is read by
    /// nobody but the application: a call that returns has made it visible to it.
    ///
    /// # Errors
    /// A piece could not be stored whole. No piece behind it was touched.
    fn place(&mut self, pieces: Pieces<'_>) -> Result<(), Fault>;

    /// Reads all extents into their places of the buffer.
    ///
    /// # Errors
    /// An extent could not be read whole.
    fn gather(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<(), Fault>;

    /// Does the operation to the eight bytes at `offset`, in the byte order of this machine, and returns what was
    /// there before. No other atomic operation on memory of this host, by whichever device, comes in between
    /// (`IBV_ATOMIC_HCA`). The place is aligned.
    ///
    /// # Errors
    /// It could not be read or written.
    fn atomic(&mut self, memory: Handle, offset: u64, operation: Operation) -> Result<u64, Fault>;

    /// Returns the byte at `offset`, whose region may overlap others. By default each handle is memory of its own.
    fn locate(&self, memory: Handle, offset: u64) -> Location {
        Location { space: (memory.0, 0), at: offset }
    }
}
