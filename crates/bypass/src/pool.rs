//! What stays where it is as long as the process lives, and is another thing's when it is not needed any more. A thread
//! that goes on with what was a descriptor's finds what it is now, as it does by the descriptor itself.

use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_int;

use crate::table::DESCRIPTORS;

/// Something that a pool has.
pub(crate) trait Pooled: Sync + 'static {
    /// One that is free, at this place.
    fn new(place: usize) -> Self;

    /// Takes it, if it is free. Returns whether it was.
    fn claim(&self) -> bool;
}

/// A place for each descriptor: where one has moved to another descriptor, a place that is another's is used.
pub(crate) struct Pool<T: 'static> {
    places: [AtomicPtr<T>; DESCRIPTORS],
}

/// Places that are looked at where a descriptor's own is taken.
const LOOKS: usize = 4096;

impl<T: Pooled> Pool<T> {
    pub(crate) const fn new() -> Self {
        Pool { places: [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS] }
    }

    /// One for this descriptor.
    pub(crate) fn claim(&self, fd: c_int) -> Option<&'static T> {
        let own = usize::try_from(fd).ok().filter(|own| *own < DESCRIPTORS)?;
        let others = (0..DESCRIPTORS).rev().take(LOOKS);
        std::iter::once(own)
            .chain(others)
            .map(|number| at(number, &self.places[number]))
            .find(|one| one.claim())
    }

    /// The one at this place, if any was ever there.
    pub(crate) fn get(&self, place: usize) -> Option<&'static T> {
        // SAFETY: null, or from a box that is never freed.
        unsafe { self.places.get(place)?.load(Ordering::Acquire).as_ref() }
    }
}

fn at<T: Pooled>(number: usize, place: &AtomicPtr<T>) -> &'static T {
    let there = place.load(Ordering::Acquire);
    // SAFETY: what is there is from a box that is never freed.
    if let Some(there) = unsafe { there.as_ref() } {
        return there;
    }
    let new = Box::into_raw(Box::new(T::new(number)));
    let null = std::ptr::null_mut();
    match place.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it is there, and is never freed.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: nobody has seen `new`, and `other` is never freed.
            unsafe {
                drop(Box::from_raw(new));
                &*other
            }
        }
    }
}
