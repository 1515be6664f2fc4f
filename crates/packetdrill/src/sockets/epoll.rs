//! epoll.

use std::collections::BTreeMap;

use super::{Entry, Fd, Host, Stop, fail};

/// Operation of `epoll_ctl()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// EPOLL_CTL_ADD
    Add,
    /// EPOLL_CTL_MOD
    Modify,
    /// EPOLL_CTL_DEL
    Delete,
}

/// Events of a descriptor, with what the application attached to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpollEvent {
    /// EPOLLIN and so on.
    pub events: u32,
    /// The application's data.
    pub data: u64,
}

/// An epoll descriptor.
#[derive(Default)]
pub(super) struct Epoll {
    interests: BTreeMap<Fd, Interest>,
}

struct Interest {
    wanted: EpollEvent,
    /// The last edge that was reported; `None` before the first.
    seen: Option<u64>,
}

impl Interest {
    fn new(wanted: EpollEvent) -> Self {
        Interest { wanted, seen: None }
    }
}

const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGES: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;

impl Host {
    /// `epoll_create()`.
    pub fn epoll_create(&mut self) -> Fd {
        self.insert(Entry::Epoll(Epoll::default()))
    }

    /// `epoll_ctl()`.
    ///
    /// # Errors
    /// EBADF, EINVAL, EEXIST, ENOENT.
    pub fn epoll_control(
        &mut self,
        epoll: Fd,
        operation: Operation,
        fd: Fd,
        wanted: EpollEvent,
    ) -> Result<(), Stop> {
        if !self.entries.contains_key(&fd) {
            return fail(libc::EBADF);
        }
        let interests = match self.entries.get_mut(&epoll) {
            Some(Entry::Epoll(epoll)) => &mut epoll.interests,
            Some(Entry::Tcp(_)) => return fail(libc::EINVAL),
            None => return fail(libc::EBADF),
        };
        match (operation, interests.contains_key(&fd)) {
            (Operation::Add, true) => return fail(libc::EEXIST),
            (Operation::Modify | Operation::Delete, false) => return fail(libc::ENOENT),
            (Operation::Add | Operation::Modify, _) => {
                interests.insert(fd, Interest::new(wanted));
            }
            (Operation::Delete, true) => {
                interests.remove(&fd);
            }
        }
        Ok(())
    }

    /// Removes a closed descriptor from all epoll descriptors.
    pub(super) fn forget_in_epolls(&mut self, fd: Fd) {
        for entry in self.entries.values_mut() {
            if let Entry::Epoll(epoll) = entry {
                epoll.interests.remove(&fd);
            }
        }
    }

    pub(super) fn epoll_has_events(&mut self, epoll: Fd) -> bool {
        !self.collect(epoll, 1, false).is_empty()
    }

    /// `epoll_wait()` that does not wait.
    pub(super) fn epoll_take(&mut self, epoll: Fd, most: usize) -> Result<Vec<EpollEvent>, Stop> {
        match self.entries.get(&epoll) {
            Some(Entry::Epoll(_)) => Ok(self.collect(epoll, most, true)),
            Some(Entry::Tcp(_)) => fail(libc::EINVAL),
            None => fail(libc::EBADF),
        }
    }

    fn collect(&mut self, epoll: Fd, most: usize, take: bool) -> Vec<EpollEvent> {
        let Some(Entry::Epoll(found)) = self.entries.get(&epoll) else { return Vec::new() };
        let watched: Vec<Fd> = found.interests.keys().copied().collect();
        let mut out = Vec::new();
        for fd in watched {
            if out.len() == most {
                break;
            }
            let (ready, edge) = (self.ready(fd) as u32, self.edge_of(fd));
            let Some(Entry::Epoll(found)) = self.entries.get_mut(&epoll) else { break };
            let Some(interest) = found.interests.get_mut(&fd) else { continue };
            let wanted = interest.wanted;
            let asleep = wanted.events & !(EDGES | ONCE) == 0;
            let events = ready & (wanted.events | ALWAYS);
            if events == 0 || asleep || (wanted.events & EDGES != 0 && interest.seen == Some(edge))
            {
                continue;
            }
            out.push(EpollEvent { events, data: wanted.data });
            if take {
                interest.seen = Some(edge);
                if wanted.events & ONCE != 0 {
                    interest.wanted.events &= EDGES | ONCE;
                }
            }
        }
        out
    }

    fn edge_of(&self, fd: Fd) -> u64 {
        match self.entries.get(&fd) {
            Some(Entry::Tcp(socket)) => socket.edge,
            _ => 0,
        }
    }
}
