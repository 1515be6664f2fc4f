//! What all objects have: the device's names for them, requests to the device, and how they end.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::c_int;
use rdma::session::Request;

use crate::abi::*;
use crate::os::set_errno;
use crate::session::{self, Session, lock};

/// A context, as the library has it.
#[repr(C)]
pub(crate) struct Context {
    /// What the program sees is in here.
    pub(crate) verbs: verbs_context,
    /// The device's name for it.
    pub(crate) number: u32,
    /// It was told that the device is gone.
    pub(crate) was_told: AtomicBool,
}

/// The session; the calling program has a device by it.
///
/// # Errors
/// `ENODEV` in the child of a fork, which has none.
pub(crate) fn session() -> Result<&'static Session, c_int> {
    session::get().ok_or(libc::ENODEV)
}

/// What verbs return that return an errno.
pub(crate) fn code(done: Result<(), c_int>) -> c_int {
    done.map_or_else(
        |error| {
            set_errno(error);
            error
        },
        |()| 0,
    )
}

/// Asks the device.
pub(crate) fn ask(request: &Request<'_>) -> Result<rdma::session::Reply, c_int> {
    session()?.ask(request)
}

/// Its objects by the device's names, so that events find them.
pub(crate) struct Names<T>(Mutex<All<T>>);

struct All<T> {
    by_name: BTreeMap<u32, Pointer<T>>,
    /// Their addresses.
    addresses: BTreeSet<usize>,
}

struct Pointer<T>(*mut T);

// SAFETY: the pointer is handed to the program, whose affair it is.
unsafe impl<T> Send for Pointer<T> {}

impl<T> Names<T> {
    pub(crate) const fn new() -> Self {
        Names(Mutex::new(All { by_name: BTreeMap::new(), addresses: BTreeSet::new() }))
    }

    pub(crate) fn put(&self, number: u32, object: *mut T) {
        let mut all = lock(&self.0);
        all.addresses.insert(object.addr());
        if let Some(before) = all.by_name.insert(number, Pointer(object))
            && before.0 != object
        {
            all.addresses.remove(&before.0.addr());
        }
    }

    pub(crate) fn take(&self, number: u32) {
        let mut all = lock(&self.0);
        if let Some(object) = all.by_name.remove(&number) {
            all.addresses.remove(&object.0.addr());
        }
    }

    /// Whether this is one of them.
    pub(crate) fn has(&self, object: *mut T) -> bool {
        lock(&self.0).addresses.contains(&object.addr())
    }

    /// Does something with each while none of them can end.
    pub(crate) fn each(&self, mut then: impl FnMut(*mut T)) {
        lock(&self.0).by_name.values().for_each(|pointer| then(pointer.0));
    }

    /// Does something with an object while it cannot end.
    pub(crate) fn with<R>(&self, number: u32, then: impl FnOnce(*mut T) -> R) -> Option<R> {
        let all = lock(&self.0);
        all.by_name.get(&number).map(|pointer| then(pointer.0))
    }
}

/// The library's own of a program's context.
pub(crate) unsafe fn of(context: *mut ibv_context) -> *mut Context {
    context.byte_sub(offset_of!(verbs_context, context)).cast()
}

/// The device's name for a context.
pub(crate) unsafe fn number(context: *mut ibv_context) -> u32 {
    (*of(context)).number
}

/// Ends an object at the device, and here: with the device, all of them have ended.
pub(crate) unsafe fn ends<T>(request: &Request<'_>, object: *mut T) -> c_int {
    match ask(request) {
        Ok(_) | Err(libc::EIO) => {
            drop(Box::from_raw(object));
            0
        }
        Err(error) => code(Err(error)),
    }
}

/// Waits until all events of an object are acknowledged.
pub(crate) fn acknowledged(events: &AtomicU32) {
    while events.load(Ordering::Acquire) > 0 {
        crate::os::rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_known_by_its_name_and_by_its_address() {
        let names: Names<u32> = Names::new();
        let mut objects = [0_u32; 3];
        let [one, two, three] = [0, 1, 2].map(|at| &raw mut objects[at]);
        names.put(7, one);
        names.put(9, two);
        assert!(names.has(one) && names.has(two) && !names.has(three));
        // The device may use a name again before the end of the object that had it is seen.
        names.put(9, three);
        assert!(names.has(three) && !names.has(two));
        assert_eq!(names.with(9, |object| object == three), Some(true));
        names.take(7);
        names.take(8);
        assert!(!names.has(one) && names.with(7, |_| ()).is_none());
        let mut count = 0;
        names.each(|_| count += 1);
        assert_eq!(count, 1);
    }
}
