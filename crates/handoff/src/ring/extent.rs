//! Where the bytes of a ring lie in its memory.
//!
//! A ring begins small and becomes larger when it is what limits its connection, so that many connections take no more
//! memory, and no more of the cache, than they use:
//!
//! ```text
//!   | unused | class 0 | class 1: twice as large  | class 2: twice as large again ...
//! ```
//!
//! Bytes lie in an *extent*: one class of the memory, from an index on, which lies at its beginning. Who writes into the
//! ring begins the next extent, larger or the same one anew. The bytes before it stay where they are, and until those are
//! gone there is no other.

/// Bytes of the smallest class, if the ring is not smaller.
const SMALLEST: u32 = 64 << 10;
/// How far an index may be behind the beginning of its extent before that is counted on: well below 2 GB, within which
/// indices compare.
const FAR: u32 = 1 << 30;

/// The classes of a ring's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes {
    smallest: u32,
    largest: u8,
}

impl Classes {
    /// Of a ring that holds so many bytes, a power of two.
    pub(super) fn of(capacity: u32) -> Self {
        let smallest = capacity.clamp(1, SMALLEST);
        Classes { smallest, largest: (capacity / smallest).trailing_zeros() as u8 }
    }

    /// The largest of them.
    pub(super) fn largest(self) -> u8 {
        self.largest
    }

    /// Bytes of one, which is also where it begins.
    pub(super) fn size(self, class: u8) -> u32 {
        self.smallest << class.min(self.largest)
    }

    /// The smallest one that holds so many bytes; the largest if none does.
    pub(super) fn for_bytes(self, bytes: u32) -> u8 {
        (0..self.largest).find(|class| self.size(*class) >= bytes).unwrap_or(self.largest)
    }
}

/// Where bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Extent {
    /// Index of the byte at the beginning of the class, or one that is as good modulo its size.
    pub(super) from: u32,
    pub(super) class: u8,
}

impl Extent {
    pub(super) fn word(self) -> u64 {
        u64::from(self.class) << 32 | u64::from(self.from)
    }

    pub(super) fn of_word(word: u64) -> Self {
        Extent { from: word as u32, class: (word >> 32) as u8 }
    }

    /// Whether this index lies in it, and not before it.
    pub(super) fn has(self, index: u32) -> bool {
        index.wrapping_sub(self.from) < FAR * 2
    }
}

/// The last extent, and the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Extents {
    pub(super) current: Extent,
    pub(super) previous: Extent,
}

impl Extents {
    /// A ring whose first byte has this index.
    pub(super) fn begin(from: u32, class: u8) -> Self {
        let first = Extent { from, class };
        Extents { current: first, previous: first }
    }

    /// The extent of an index, and how many bytes from it on lie there.
    pub(super) fn of(self, index: u32) -> (Extent, u32) {
        let Extents { current, previous } = self;
        if current.has(index) {
            (current, u32::MAX)
        } else {
            (previous, current.from.wrapping_sub(index))
        }
    }

    /// Whether another extent may begin, of a ring whose first byte has this index: all bytes lie in the last one.
    pub(super) fn may_begin(self, head: u32) -> bool {
        self.current.has(head)
    }

    /// The next extent begins at this index.
    pub(super) fn next(self, from: u32, class: u8) -> Self {
        Extents { current: Extent { from, class }, previous: self.current }
    }

    /// Bytes of the last one before this index.
    pub(super) fn used(self, index: u32) -> u32 {
        index.wrapping_sub(self.current.from)
    }

    /// The same places by a beginning that is near this index, which is that of the first byte.
    pub(super) fn near(self, head: u32, classes: Classes) -> Self {
        let Extent { from, class } = self.current;
        let size = classes.size(class);
        let whole = head.wrapping_sub(from) / size * size;
        Extents { current: Extent { from: from.wrapping_add(whole), class }, ..self }
    }

    /// Whether that is due.
    pub(super) fn is_far(self, head: u32) -> bool {
        self.may_begin(head) && self.used(head) >= FAR
    }
}
