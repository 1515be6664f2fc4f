//! Which descriptors are connections: one load for a descriptor that is none.

use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_int;

use crate::connection::{Connection, DESCRIPTORS};

static TABLE: [AtomicPtr<Connection>; DESCRIPTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS];

/// The connection of a descriptor, if it has one that the layer looks at.
#[inline]
pub(crate) fn get(fd: c_int) -> Option<&'static Connection> {
    let place = TABLE.get(fd as usize)?;
    // SAFETY: what is there is from a box that is never freed: see `insert`.
    let connection = unsafe { place.load(Ordering::Acquire).as_ref() }?;
    connection.is_there().then_some(connection)
}

/// A new connection of this descriptor. The memory is that of the one that the descriptor had before, so that a
/// thread that still holds that finds a connection, if another than it thinks: as with descriptors themselves.
pub(crate) fn insert(fd: c_int) {
    let Some(place) = TABLE.get(fd as usize) else { return };
    // SAFETY: as in `get`.
    match unsafe { place.load(Ordering::Acquire).as_ref() } {
        Some(connection) => connection.begin(),
        None => {
            let new = Box::into_raw(Box::new(Connection::new(fd)));
            let null = std::ptr::null_mut();
            let stored = place.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire);
            match stored {
                // SAFETY: it was stored, and is never freed.
                Ok(_) => unsafe { &*new }.begin(),
                Err(other) => {
                    // SAFETY: `new` is of no use to anyone, and `other` is never freed.
                    unsafe {
                        drop(Box::from_raw(new));
                        (*other).begin();
                    }
                }
            }
        }
    }
}

/// In the child after fork: connections as they are at the kernel, with no lock that a thread of the parent's holds.
pub(crate) fn renew() {
    for fd in 0..DESCRIPTORS as c_int {
        if let Some(old) = get(fd) {
            let new = Box::into_raw(Box::new(Connection::new(fd)));
            // SAFETY: from a box, and never freed. The old one stays, too: it is the parent's memory, and small.
            unsafe { &*new }.inherit(old);
            TABLE[fd as usize].store(new, Ordering::Release);
        }
    }
}

/// All connections.
pub(crate) fn all() -> impl Iterator<Item = &'static Connection> {
    (0..DESCRIPTORS as c_int).filter_map(get)
}
