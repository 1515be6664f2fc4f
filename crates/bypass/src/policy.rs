//! By which policy connections are offered: that of `wharf run --policy`, or else wharf's own (`handoff.policy`), which
//! may change at any time.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use handoff::policy::Policy;
use handoff::session::Said;

use crate::os;

/// wharf's, as it was read last.
struct Read {
    /// The number of its change.
    change: u64,
    policy: Policy,
}

/// See the module's documentation.
pub(crate) struct Policies {
    own: Option<Policy>,
    /// Where none was read.
    default: Policy,
    /// Null before the first is read. What it has pointed to is not freed: calls may go by it still. There are as many
    /// as an operator makes, a page each.
    read: AtomicPtr<Read>,
}

impl Policies {
    /// The program's own, or else wharf's.
    pub(crate) fn new(own: Option<Policy>) -> Self {
        Policies { own, default: Policy::default(), read: AtomicPtr::new(ptr::null_mut()) }
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
        // SAFETY: null, or in memory that is never unmapped, stored when it was whole.
        unsafe { self.read.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn read_again(&self, said: &Said<'_>) -> &Policy {
        let read = said.policy().and_then(|(change, text)| {
            let policy = text.as_str()?.parse().ok()?;
            os::keep(Read { change, policy })
        });
        if let Some(read) = read {
            self.read.store(ptr::from_ref(read).cast_mut(), Ordering::Release);
        }
        // One that is being written is read by the next call.
        read.or_else(|| self.last()).map_or(&self.default, |read| &read.policy)
    }
}
