//! By which policy connections are offered: that of `wharf run --policy`, or else wharf's own (`handoff.policy`), which
//! may change at any time.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use handoff::policy::Policy;
use handoff::session::Said;

/// wharf's, as it was read last.
struct Read {
    /// The number of its change.
    change: u64,
    policy: Policy,
}

/// See the module's documentation.
pub(crate) struct Policies {
    own: Option<Policy>,
    /// Null before the first is read. What it has pointed to is not freed: calls may go by it still. There are as many
    /// as an operator makes.
    read: AtomicPtr<Read>,
}

impl Policies {
    /// The program's own, or else wharf's.
    pub(crate) fn new(own: Option<Policy>) -> Self {
        Policies { own, read: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The policy now.
    #[inline]
    pub(crate) fn get(&self, said: &Said<'_>) -> &Policy {
        if let Some(own) = &self.own {
            return own;
        }
        let read = self.last();
        match read.filter(|read| read.change == said.policy_changes()) {
            Some(read) => &read.policy,
            None => self.read_again(said),
        }
    }

    fn last(&self) -> Option<&Read> {
        // SAFETY: null, or from a box that is never freed, stored when it was whole.
        unsafe { self.read.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn read_again(&self, said: &Said<'_>) -> &Policy {
        let read = said.policy().and_then(|(change, text)| {
            let policy = text.parse().ok()?;
            Some(Read { change, policy })
        });
        // One that is being written is read by the next call.
        let read = match (read, self.last()) {
            (None, Some(last)) => return &last.policy,
            (read, _) => read.unwrap_or(Read { change: 0, policy: Policy::default() }),
        };
        let read = Box::into_raw(Box::new(read));
        self.read.store(read, Ordering::Release);
        // SAFETY: it was made above, and is never freed.
        unsafe { &(*read).policy }
    }
}
