//! Names of objects, and where they are.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// Bits of the place; those above are the generation.
const PLACE_BITS: u32 = 20;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
/// Most objects of one kind.
pub(crate) const OBJECTS_MAX: usize = 1 << PLACE_BITS;

/// Names an object of kind `K`. A name is not used again before 4,096 other objects have had its place.
pub struct Id<K>(pub u32, PhantomData<K>);

impl<K> Id<K> {
    /// The name with this number, whether there is such an object or not.
    pub const fn new(number: u32) -> Self {
        Self(number, PhantomData)
    }
}

impl<K> Id<K> {
    /// Where it is among those of its kind: less than their limit, and no other's while it exists.
    pub(crate) const fn place(self) -> usize {
        (self.0 & PLACE_MASK) as usize
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

impl<K, T> Slab<K, T> {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.min(OBJECTS_MAX);
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
        let id = Id::new(of.generation << PLACE_BITS | place);
        of.value = Some(make(id));
        Some(id)
    }

    #[inline]
    pub(crate) fn get(&self, id: Id<K>) -> Option<&T> {
        let place = self.places.get((id.0 & PLACE_MASK) as usize)?;
        place.value.as_ref().filter(|_| place.generation == id.0 >> PLACE_BITS)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: Id<K>) -> Option<&mut T> {
        let place = self.places.get_mut((id.0 & PLACE_MASK) as usize)?;
        let is_it = place.generation == id.0 >> PLACE_BITS;
        place.value.as_mut().filter(|_| is_it)
    }

    pub(crate) fn remove(&mut self, id: Id<K>) -> Option<T> {
        self.get(id)?;
        let at = id.0 & PLACE_MASK;
        let place = &mut self.places[at as usize];
        let value = place.value.take();
        // Zero is no generation, so that no object has the number zero.
        place.generation = (place.generation + 1) & (u32::MAX >> PLACE_BITS);
        place.generation = place.generation.max(1);
        self.free.push(at);
        value
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
