//! Signals that come while a thread waits by poll(2) in place of a call that blocks. poll(2) ends with each that has a
//! handler; the call ends with those alone whose handler does not have it begun again (`SA_RESTART`, signal(7)). So they are
//! held back until it is known which have come.

use std::cell::Cell;

use libc::c_int;

use crate::os::{self, Quiet};
use crate::own::Own;

/// The thread's signalfd(2), and the signals that it tells of.
struct Told(Cell<Option<(Own, u64)>>);

impl Drop for Told {
    fn drop(&mut self) {
        self.forget();
    }
}

thread_local! {
    static TOLD: Told = const { Told(Cell::new(None)) };
}

/// As long as it lives, signals wait for this thread.
pub(super) struct Held {
    quiet: Quiet,
    fd: c_int,
}

impl Held {
    /// `None` if there is no descriptor by which the thread could be told of them.
    pub(super) fn begin() -> Option<Held> {
        let quiet = Quiet::for_a_wait();
        let fd = TOLD.try_with(|told| told.fd(quiet.held())).unwrap_or(-1);
        (fd >= 0).then_some(Held { quiet, fd })
    }

    /// It is readable when one has come.
    pub(super) fn fd(&self) -> c_int {
        self.fd
    }

    /// Whether one has come that ends a call.
    pub(super) fn ends_call(&self) -> bool {
        let come = os::pending_signals() & self.quiet.held();
        (1..=64).any(|signal| come & 1 << (signal - 1) != 0 && os::interrupts(signal))
    }
}

impl Told {
    /// The descriptor, for these signals; a negative number if there can be none.
    fn fd(&self, signals: u64) -> c_int {
        // It may have been closed past the layer.
        match self.0.get().filter(|(own, _)| own.fd() >= 0) {
            Some((own, of)) if of == signals => own.fd(),
            Some((own, _)) if os::signal_descriptor(own.fd(), signals) >= 0 => {
                self.0.set(Some((own, signals)));
                own.fd()
            }
            _ => {
                self.forget();
                let own = Own::new(os::signal_descriptor(-1, signals));
                self.0.set(Some((own, signals)));
                own.fd()
            }
        }
    }

    fn forget(&self) {
        if let Some((own, _)) = self.0.take() {
            own.close();
        }
    }
}

/// After fork, in the child: the descriptor was the parent's.
pub(super) fn forget() {
    let _ = TOLD.try_with(|told| told.0.set(None));
}
