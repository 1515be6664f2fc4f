//! How the rest of the process reaches the thread of a loop: it tells the loop to stop or what to go by
//! from now on, and reads what the loop has counted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sys::poll::{EventFd, Interest, PollSet};

/// In [`Handle::state`]: the loop is to end.
const STOP: u64 = 1;
/// What one change adds to [`Handle::state`].
const CHANGE: u64 = 2;

/// What a loop shares with the rest of the process: `C` is what it goes by, `P` what it publishes.
#[derive(Debug)]
pub struct Handle<C, P> {
    /// [`STOP`], and a count of the changes of `config`: one load shows both to the loop.
    state: AtomicU64,
    wake: EventFd,
    config: Mutex<C>,
    published: P,
}

/// The state of a handle, as its loop has last seen it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Whether the loop is to end.
    pub(crate) fn is_stopped(self) -> bool {
        self.0 & STOP != 0
    }
}

impl<C, P> Handle<C, P> {
    /// For a loop that starts with `config`.
    ///
    /// # Errors
    /// What `eventfd` says.
    pub fn new(config: C, published: P) -> io::Result<Self> {
        let (state, wake) = (AtomicU64::new(0), EventFd::new()?);
        Ok(Handle { state, wake, config: Mutex::new(config), published })
    }

    /// Asks the loop to finish what it has begun, and to end.
    pub fn stop(&self) {
        self.state.fetch_or(STOP, Ordering::Release);
        self.signal();
    }

    /// What the loop has last published.
    pub fn published(&self) -> &P {
        &self.published
    }

    /// Changes what the loop goes by, which sees it before its next packet.
    pub(crate) fn change(&self, change: impl FnOnce(&mut C)) {
        change(&mut self.config());
        self.state.fetch_add(CHANGE, Ordering::Release);
        self.signal();
    }

    /// What the loop is to go by.
    pub(crate) fn config(&self) -> MutexGuard<'_, C> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state now.
    pub(crate) fn state(&self) -> Seen {
        Seen(self.state.load(Ordering::Acquire))
    }

    /// Brings `seen` up to date, and returns whether [`config`](Self::config) has changed since.
    #[inline]
    pub(crate) fn look(&self, seen: &mut Seen) -> bool {
        let before = std::mem::replace(seen, self.state());
        (before.0 ^ seen.0) & !STOP != 0
    }

    /// Sleeps in the kernel until something is told, one of `ports` is ready, or so many nanoseconds are
    /// over.
    ///
    /// # Errors
    /// What `ppoll` says, or `read` of an eventfd.
    pub(crate) fn sleep<'fd>(
        &'fd self,
        ports: impl IntoIterator<Item = (BorrowedFd<'fd>, Interest)>,
        timeout: Option<u64>,
    ) -> io::Result<()> {
        let mut set = PollSet::new();
        let waker = set.add(self.wake.as_fd(), Interest::Read)?;
        for (port, interest) in ports {
            set.add(port, interest)?;
        }
        set.wait(timeout)?;
        if set.readable(waker) {
            self.wake.drain()?;
        }
        Ok(())
    }

    /// What becomes readable when something is told; for a loop that [sleeps](Self::sleep) in its own way.
    pub(crate) fn waker(&self) -> &EventFd {
        &self.wake
    }

    fn signal(&self) {
        // The one error is a counter about to overflow: then it is signalled already.
        let _ = self.wake.signal();
    }
}

/// What wakes a loop that sleeps.
pub(crate) trait Wake: Send + Sync {
    /// Ends its [sleep](Handle::sleep), or the next one.
    fn wake(&self);
}

impl<C: Send, P: Send + Sync> Wake for Handle<C, P> {
    fn wake(&self) {
        self.signal();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_once_and_a_stop_is_none() {
        let handle = Handle::new(0, ()).unwrap();
        let mut seen = handle.state();
        assert!(!handle.look(&mut seen));
        handle.change(|config| *config = 1);
        handle.change(|config| *config += 1);
        assert!(handle.look(&mut seen) && !seen.is_stopped());
        assert!(!handle.look(&mut seen));
        handle.stop();
        handle.stop();
        assert!(!handle.look(&mut seen) && seen.is_stopped());
        handle.change(|config| *config += 1);
        assert!(handle.look(&mut seen) && seen.is_stopped(), "a change does not undo a stop");
        assert_eq!(*handle.config(), 3);
    }

    #[test]
    fn what_is_told_before_a_sleep_ends_it() {
        let handle = Handle::new((), ()).unwrap();
        handle.stop();
        // It would last for ever.
        handle.sleep([], None).unwrap();
        handle.sleep([], Some(1)).unwrap();
    }
}
