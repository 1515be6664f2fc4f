//! Whether a connection is worth moving, by what others of its service have carried: for the policy `learned`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use handoff::policy::carried::{Carried, look_again};
use libc::c_int;

use crate::os;

/// Most services of a process. Of others nothing is known.
const SERVICES: usize = 64;

struct Service {
    /// Its port; 0 for none yet.
    port: AtomicU32,
    carried: Carried,
}

static ALL: [Service; SERVICES] =
    [const { Service { port: AtomicU32::new(0), carried: Carried::new() } }; SERVICES];

/// The number of the service of this port among all, if there is room.
fn number_of(port: u16) -> Option<usize> {
    let port = u32::from(port);
    ALL.iter().position(|service| {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let found = service.port.compare_exchange(0, port, success, failure);
        found.is_ok() || found == Err(port)
    })
}

/// What is known of one connection.
pub(super) struct Worth {
    /// The program has opened it: the peer has the port of the service.
    is_opened: AtomicBool,
    /// The number of its service, and one; 0 if nothing was asked, or there is no room.
    service: AtomicU32,
    /// It was not worth it, and is not to be looked at again before it has carried so many bytes.
    again: AtomicU64,
}

impl Worth {
    pub(super) const fn new() -> Self {
        Worth {
            is_opened: AtomicBool::new(false),
            service: AtomicU32::new(0),
            again: AtomicU64::new(0),
        }
    }

    pub(super) fn begin(&self) {
        self.is_opened.store(false, Ordering::Relaxed);
        self.service.store(0, Ordering::Relaxed);
        self.again.store(0, Ordering::Relaxed);
    }

    /// The program has opened the connection.
    pub(super) fn is_opened(&self) {
        self.is_opened.store(true, Ordering::Relaxed);
    }

    /// Whether a connection that has carried so many bytes is to move now.
    pub(super) fn is_it(&self, fd: c_int, bytes: u64) -> bool {
        if bytes < self.again.load(Ordering::Relaxed) {
            return false;
        }
        static NOTHING: Carried = Carried::new();
        let carried = self.service(fd).map_or(&NOTHING, |service| &service.carried);
        let is_worth = carried.is_worth(bytes);
        if !is_worth {
            self.again.store(look_again(bytes), Ordering::Relaxed);
        }
        is_worth
    }

    fn service(&self, fd: c_int) -> Option<&'static Service> {
        if self.service.load(Ordering::Relaxed) == 0 {
            let (local, remote) = os::ports(fd);
            let port = if self.is_opened.load(Ordering::Relaxed) { remote } else { local };
            // The kernel has told of none.
            let number = number_of(port).filter(|_| port != 0)?;
            self.service.store(number as u32 + 1, Ordering::Relaxed);
        }
        self.known()
    }

    fn known(&self) -> Option<&'static Service> {
        ALL.get((self.service.load(Ordering::Relaxed) as usize).checked_sub(1)?)
    }

    /// It has ended, and carried so many bytes. Without a policy that learns its service is not known.
    pub(super) fn ends(&self, bytes: u64) {
        if let Some(service) = self.known() {
            service.carried.ended(bytes);
        }
    }
}
