//! Names of objects, and where they are.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use kind::Kind;

/// Bits of the generation, which are above those of the place. Generation zero is none.
const GENERATION_BITS: u32 = 12;

/// Names an object of kind `K`. A name is not used again before 4,094 other objects have had its place.
pub struct Id<K>(pub u32, PhantomData<K>);

impl<K> Id<K> {
    /// The name with this number, whether there is such an object or not.
    pub const fn new(number: u32) -> Self {
        Self(number, PhantomData)
    }
}

impl<K: Kind> Id<K> {
    /// The place of the object among those of its kind: less than their limit, and no other's while it exists.
    pub const fn place(self) -> usize {
        (self.0 & ((1 << K::PLACE_BITS) - 1)) as usize
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Id<K> {}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<K> Eq for Id<K> {}
impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
impl<K> core::hash::Hash for Id<K> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<K> Default for Id<K> {
    fn default() -> Self {
        Self::new(0)
    }
}
impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The kinds of objects.
pub mod kind {
    use super::GENERATION_BITS;

    /// A kind of objects.
    pub trait Kind {
        /// Bits of the place in a name: there are at most so many objects that these name all.
        const PLACE_BITS: u32;
    }

    /// Bits of the numbers of queue pairs and shared receive queues (InfiniBand Architecture Specification, volume 1,
    /// section 9.2: the destination QP of the base transport header): programs send them in three bytes.
    const NUMBER_BITS: u32 = 24;

    /// Protection domains.
    #[derive(Debug)]
    pub enum Pd {}
    /// Completion queues.
    #[derive(Debug)]
    pub enum Cq {}
    /// Shared receive queues.
    #[derive(Debug)]
    pub enum Srq {}
    /// Queue pairs.
    #[derive(Debug)]
    pub enum Qp {}

    impl Kind for Pd {
        const PLACE_BITS: u32 = 20;
    }
    impl Kind for Cq {
        const PLACE_BITS: u32 = 20;
    }
    impl Kind for Srq {
        const PLACE_BITS: u32 = NUMBER_BITS - GENERATION_BITS;
    }
    impl Kind for Qp {
        const PLACE_BITS: u32 = NUMBER_BITS - GENERATION_BITS;
    }
}

/// Names a protection domain.
pub type Pd = Id<kind::Pd>;
/// Names a completion queue.
pub type Cq = Id<kind::Cq>;
/// Names a shared receive queue.
pub type Srq = Id<kind::Srq>;
/// Names a queue pair; its number is the QP number.
pub type Qp = Id<kind::Qp>;

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Slab<K, T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    limit: usize,
    kind: PhantomData<K>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<K: Kind, T> Slab<K, T> {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.min(1 << K::PLACE_BITS);
        Self { places: Vec::new(), free: Vec::new(), limit, kind: PhantomData }
    }

    /// `None` if there are as many as there may be. The name is known before the object.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Id<K>) -> T) -> Option<Id<K>> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < self.limit => {
                self.places.push(Place { generation: 1, value: None });
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        let of = &mut self.places[place as usize];
        let id = Id::new(of.generation << K::PLACE_BITS | place);
        of.value = Some(make(id));
        Some(id)
    }

    #[inline]
    pub(crate) fn get(&self, id: Id<K>) -> Option<&T> {
        let place = self.places.get(id.place())?;
        place.value.as_ref().filter(|_| place.generation == id.0 >> K::PLACE_BITS)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: Id<K>) -> Option<&mut T> {
        let place = self.places.get_mut(id.place())?;
        let is_it = place.generation == id.0 >> K::PLACE_BITS;
        place.value.as_mut().filter(|_| is_it)
    }

    pub(crate) fn remove(&mut self, id: Id<K>) -> Option<T> {
        self.get(id)?;
        let at = id.place();
        let place = &mut self.places[at];
        let value = place.value.take();
        // Zero is no generation, so that no object has the number zero, nor a queue pair that of a special one.
        place.generation = (place.generation + 1) % (1 << GENERATION_BITS);
        place.generation = place.generation.max(1);
        self.free.push(at as u32);
        value
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
