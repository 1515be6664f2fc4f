//! A lock for what takes a moment, which knows whose it is. A handler of a signal may come in the middle of that moment
//! and make a call that wants the lock, too: its own thread has it then, and goes on only when the handler returns.
//! Who does not get the lock does without, and has the kernel serve its call: see `Connection::restore`.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::os;

const FREE: u64 = 0;
/// Beside a thread's name: others wait.
const WAITED: u64 = 1;
/// So long others wait: one that a handler has left for good (siglongjmp(3)) stays taken.
const PATIENCE: Duration = Duration::from_secs(1);

/// A name for the calling thread: where it has its error number, which no other has.
fn own() -> u64 {
    // SAFETY: it has no arguments.
    unsafe { libc::__errno_location() as u64 }
}

/// See the module's documentation.
pub(crate) struct Lock<T> {
    /// The name of the thread that has it.
    owner: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is one thread's at a time, and may be any thread's.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock is this thread's.
pub(crate) struct Taken<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Lock { owner: AtomicU64::new(FREE), value: UnsafeCell::new(value) }
    }

    /// In the child after fork: the thread that had it is the parent's.
    pub(crate) fn renew(&self) {
        self.owner.store(FREE, Ordering::Relaxed);
    }

    /// Returns true if the calling thread has it.
    pub(crate) fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) & !WAITED == own()
    }

    /// Takes it, if it is free.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Taken<'_, T>> {
        let taken = self.owner.compare_exchange(FREE, own(), Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Taken(self))
    }

    /// Takes it, once others have done with it. `None` if the calling thread has it, or others do not let go.
    #[inline]
    pub(crate) fn take(&self) -> Option<Taken<'_, T>> {
        self.try_take().or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> Option<Taken<'_, T>> {
        let (own, errno) = (own(), os::errno());
        let until = os::now() + PATIENCE.as_nanos() as u64;
        let taken = loop {
            let owner = self.owner.load(Ordering::Relaxed);
            if owner == FREE {
                // Perhaps others wait still: this one wakes them.
                let new = own | WAITED;
                let taken =
                    self.owner.compare_exchange(FREE, new, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    break Some(Taken(self));
                }
                continue;
            }
            let left = until.saturating_sub(os::now());
            if owner & !WAITED == own || left == 0 {
                break None;
            }
            let waited = owner | WAITED;
            let marked =
                self.owner.compare_exchange(owner, waited, Ordering::Relaxed, Ordering::Relaxed);
            if marked.is_ok() || owner == waited {
                os::futex_wait(&self.owner, waited as u32, Some(Duration::from_nanos(left)));
            }
        };
        os::set_errno(errno);
        taken
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is this thread's.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is this thread's.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.owner.swap(FREE, Ordering::Release) & WAITED != 0 {
            let errno = os::errno();
            os::futex_wake_all(&self.0.owner);
            os::set_errno(errno);
        }
    }
}
