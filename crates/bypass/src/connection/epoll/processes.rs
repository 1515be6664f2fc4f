//! Sets of several processes: a child of fork(2) has its parent's, and a program those that execve(2) does not close. Each
//! event goes to one of the processes that wait, so that the connections in such a set are the kernel's.

use std::sync::atomic::Ordering;

use libc::c_int;

use super::control::expose;
use super::set::{Set, all, at};
use super::{unseen, wake};
use crate::os;
use crate::sharers::{self, Number};
use crate::table;

impl Set {
    fn outlives_exec(&'static self) -> bool {
        let is_its = |fd: &c_int| at(*fd).is_some_and(|its| std::ptr::eq(its, self));
        table::all().filter(is_its).any(os::outlives_exec)
    }

    /// The process is about to fork.
    fn share(&self) {
        let shared = sharers::expect(Number::of(self.shared.load(Ordering::Acquire)));
        self.shared.store(Number::word(shared), Ordering::SeqCst);
        if shared.is_none() {
            self.nest();
        }
    }

    /// In the child after fork: the parent may wait there, too.
    fn inherit(&self) {
        let mut rest = self.ready.take();
        while let Some(link) = rest.next() {
            link.is_out();
        }
        self.registering.renew();
        self.now_woken_by_none();
        self.waiters.forget();
        if let Some(number) = Number::of(self.shared.load(Ordering::Acquire)) {
            sharers::join(number);
        }
    }
}

/// The process is about to fork: no wharf wakes it any more where the child waits, too. Connections come back to the kernel
/// by `give_back`.
pub(crate) fn before_fork(give_back: impl FnOnce()) {
    all().for_each(Set::share);
    give_back();
    all().for_each(Set::unwake);
    expose(|_| true);
}

/// There is no child.
pub(crate) fn fork_failed() {
    all()
        .filter_map(|set| Number::of(set.shared.load(Ordering::Acquire)))
        .for_each(sharers::give_up);
}

/// In the child after fork.
pub(crate) fn in_child() {
    wake::forget_bell();
    unseen::none_making();
    all().for_each(Set::inherit);
}

/// Another program is about to take the place of this one: nothing of the layer's own is in the sets that it gets.
pub(crate) fn before_exec() {
    all().filter(|set| set.outlives_exec()).for_each(Set::unwake);
    expose(Set::outlives_exec);
}

/// Entries of the sets that execve(2) closes.
pub(crate) fn closed_by_exec() -> impl Iterator<Item = Number> {
    let closed = |set: &&'static Set| !set.outlives_exec();
    all().filter(closed).filter_map(|set| Number::of(set.shared.load(Ordering::Acquire)))
}
