//! The agent's end of the way to the guard.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::foreign::Foreign;
use sys::packets::PacketSocket;

use super::message::Message;
use super::store::ToStore;

/// A way to the guard, which never waits for it: what it does not read at once is sent later.
#[derive(Debug, Default)]
pub(in crate::handoff) struct ToGuard {
    /// `None` if there is no guard.
    socket: Option<PacketSocket>,
    waiting: VecDeque<(Message, Vec<Foreign<OwnedFd>>)>,
    /// The way to a service manager that keeps the same.
    store: Option<ToStore>,
}

impl ToGuard {
    /// Another guard, which knows nothing.
    pub(in crate::handoff) fn begin(&mut self, socket: PacketSocket) {
        self.socket = Some(socket);
        self.waiting.clear();
    }

    /// What guards are told is kept there as well.
    pub(in crate::handoff) fn keep(&mut self, store: ToStore) {
        self.store = Some(store);
    }

    /// Whether it has not read for so long that there is hardly room for more.
    pub(in crate::handoff) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether somebody is to be told more who has not read yet, and when that is tried again is not known.
    pub(in crate::handoff) fn is_owing(&self) -> bool {
        self.is_behind() || self.store.as_ref().is_some_and(ToStore::is_behind)
    }

    /// Tells it something, with these descriptors.
    pub(in crate::handoff) fn tell(&mut self, message: Message, descriptors: &[BorrowedFd<'_>]) {
        if let Some(store) = &mut self.store {
            store.tell(message, descriptors);
        }
        let Some(socket) = &self.socket else { return };
        if self.waiting.is_empty() {
            match socket.send(&message.encode(), descriptors) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It has died, and another follows, which is told all.
                Err(_) => return self.end(),
            }
        }
        let own = descriptors
            .iter()
            .map(|fd| Ok(Foreign::new(fd.try_clone_to_owned()?, message.owner())));
        match own.collect::<io::Result<_>>() {
            Ok(own) => self.waiting.push_back((message, own)),
            Err(error) => {
                tracing::error!("the guard is not told of a connection: {error}");
            }
        }
    }

    /// Tells it what it had no room for.
    pub(in crate::handoff) fn flush(&mut self) {
        if let Some(store) = &mut self.store {
            store.flush();
        }
        while let Some((message, descriptors)) = self.waiting.front() {
            let Some(socket) = &self.socket else { return };
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match socket.send(&message.encode(), &borrowed) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.end(),
            }
        }
    }

    fn end(&mut self) {
        self.socket = None;
        self.waiting.clear();
    }
}
