//! How threads that wait in a set of the program's are woken: by the eventfd and the socket of each session, and by the
//! process's bell, which are registered there.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use libc::c_int;

use super::private::Private;
use super::set::{Set, kernel_ctl};
use super::{EDGE, IN};
use crate::os;
use crate::own::Own;
use crate::session::{self, Session};

/// The place of an eventfd that is always readable, and a number more; 0 before there is one. It wakes one thread of one
/// set: EPOLL_CTL_MOD has the kernel look at it again (`ep_modify`).
static BELL: AtomicU32 = AtomicU32::new(0);

fn bell() -> c_int {
    let known = BELL.load(Ordering::Acquire);
    let fd = known.checked_sub(1).map_or(-1, |place| Own::at_place(place as u16).fd());
    if fd >= 0 {
        return fd;
    }
    let new = Own::new(os::ready_descriptor());
    let word = u32::from(new.place_number()) + 1;
    match BELL.compare_exchange(known, word, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new.fd(),
        Err(other) => {
            new.close();
            other.checked_sub(1).map_or(-1, |place| Own::at_place(place as u16).fd())
        }
    }
}

/// Returns true if a descriptor is an epoll set, in which the bell is not. The kernel says so without /proc.
pub(super) fn is_set(fd: c_int) -> bool {
    let errno = os::errno();
    let is_set =
        kernel_ctl(fd, libc::EPOLL_CTL_DEL, bell(), 0, 0) == 0 || os::errno() == libc::ENOENT;
    os::set_errno(errno);
    is_set
}

/// In the child after fork: the bell was the parent's.
pub(super) fn forget_bell() {
    BELL.store(0, Ordering::Release);
}

const EVENTS: u32 = IN | EDGE;

/// Registers a descriptor of the layer's own. Returns false if the kernel refuses.
fn add(set: c_int, own: c_int) -> bool {
    kernel_ctl(set, libc::EPOLL_CTL_ADD, own, EVENTS, Private::Wake.data()) == 0
        || os::errno() == libc::EEXIST
}

impl Set {
    /// Has a session wake the threads that wait in the set. Returns false if that cannot be: the set is the kernel's to
    /// serve, or another process has it, too.
    pub(super) fn wake_by(&self, session: &Session) -> bool {
        if self.is_woken_by(session) {
            return true;
        }
        let Some(_lock) = self.registering.take() else { return false };
        if self.is_nested() || !self.is_alone() {
            return false;
        }
        let all = [bell(), session.wake.fd(), session.socket.fd()];
        let is_done = all.into_iter().all(|own| add(self.fd(), own));
        if is_done {
            self.now_woken_by(session);
        }
        is_done
    }

    /// Takes the layer's own registrations out of the set: another process, or another program, is about to have it. They
    /// would live on there, as wharf has the eventfd, too.
    pub(super) fn unwake(&self) {
        if !self.is_woken() {
            return;
        }
        let _lock = self.registering.take();
        self.now_woken_by_none();
        let errno = os::errno();
        let of_sessions = session::all_so_far().flat_map(|one| [one.wake.fd(), one.socket.fd()]);
        for own in of_sessions.chain([bell()]) {
            kernel_ctl(self.fd(), libc::EPOLL_CTL_DEL, own, 0, 0);
        }
        os::set_errno(errno);
    }

    /// Wakes one thread that waits in the set, if any does: there is something for it.
    pub(super) fn ring(&self) {
        // Either a thread that is about to wait sees what is there, or it is seen here.
        fence(Ordering::SeqCst);
        if !self.waiters.are_any() {
            return;
        }
        let errno = os::errno();
        let (fd, bell) = (self.fd(), bell());
        if kernel_ctl(fd, libc::EPOLL_CTL_MOD, bell, EVENTS, Private::Wake.data()) < 0 {
            // It was closed past the layer, and is another.
            add(fd, bell);
        }
        os::set_errno(errno);
    }

    /// The calling thread is about to wait in the kernel. Behind this it looks once more whether the set is woken, or for
    /// what is there.
    #[inline]
    pub(crate) fn begin_wait(&'static self) -> InWait {
        self.waiters.begin();
        InWait(self)
    }

    /// The same in a set that may have connections at a NIC: its sessions count it.
    pub(super) fn begin_sleep(&'static self) -> InWait {
        let in_wait = self.begin_wait();
        if !self.is_kernels() {
            self.settle_waiters();
        }
        in_wait
    }

    #[cold]
    #[inline(never)]
    fn settle_waiters(&self) {
        if self.waiters.settle() {
            self.ring();
        }
    }

    /// Counts a registration at a NIC, or one less, of this stay of the set's.
    pub(super) fn count_away(&self, stay: u32, is_more: bool) {
        if self.waiters.count_away(stay, is_more) {
            self.settle_waiters();
        }
    }
}

/// A thread that waits in a set.
pub(crate) struct InWait(&'static Set);

impl Drop for InWait {
    #[inline]
    fn drop(&mut self) {
        if self.0.waiters.end() {
            self.0.settle_waiters();
        }
    }
}
