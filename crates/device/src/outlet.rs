//! Where an application reads events: a socket pair. The application has one end, of which a copy is kept here, so that
//! events can be taken back that it has not read.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::epoll::Epoll;
use sys::packets::PacketSocket;
use sys::poll::Interest;

use crate::token::Token;

/// Events that wait for room at most: an application that reads none loses those behind them.
const WAITING_MAX: usize = 4096;
/// What of them the kernel holds: some twenty. All of these are read when some are taken back.
const UNREAD_BYTES: i32 = 8192;
/// The longest event.
const EVENT_MAX: usize = rdma::session::MESSAGE_MAX;

/// Both ends.
#[derive(Debug)]
pub(crate) struct Outlet {
    socket: PacketSocket,
    /// The application's, by which events are taken back.
    theirs: PacketSocket,
    waiting: VecDeque<Vec<u8>>,
}

impl Outlet {
    /// And the application's end.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (socket, theirs) = PacketSocket::pair()?;
        socket.set_send_buffer(UNREAD_BYTES)?;
        let theirs = OwnedFd::from(theirs);
        let given = theirs.try_clone()?;
        Ok((Outlet { socket, theirs: theirs.into(), waiting: VecDeque::new() }, given))
    }

    /// Says an event. Returns whether it waits for room, and [`flush`](Self::flush) is to be called when there is some.
    pub(crate) fn push(&mut self, event: &[u8]) -> bool {
        if self.waiting.is_empty() && self.send(event) {
            return false;
        }
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(event.to_vec());
        }
        true
    }

    /// Says what waits, as far as there is room; whether some still waits.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(event) = self.waiting.front() {
            if !self.send(event) {
                return true;
            }
            self.waiting.pop_front();
        }
        false
    }

    /// Takes back, in their order, those events of this kind that the application has not read. Others stay.
    pub(crate) fn take_back(&mut self, mut is_it: impl FnMut(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; EVENT_MAX];
        // What is read here is said anew behind what another thread may read meanwhile: nothing is without need.
        let mut all = Vec::new();
        if self.theirs.any(&mut buffer, WAITING_MAX, &mut is_it).unwrap_or(true) {
            while let Ok(received) = self.theirs.receive(&mut buffer)
                && received.len > 0
            {
                all.push(buffer[..received.len].to_vec());
            }
        }
        all.extend(std::mem::take(&mut self.waiting));
        let (taken, left) = all.into_iter().partition(|event| is_it(event));
        self.waiting = VecDeque::from(left);
        self.flush();
        taken
    }

    /// Whether it is said, or nobody is there to hear it.
    fn send(&self, event: &[u8]) -> bool {
        match self.socket.send(event, &[]) {
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            Ok(()) => true,
        }
    }
}

impl AsFd for Outlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A completion event of this queue.
pub(crate) fn completion(cq: u32) -> [u8; 8] {
    u64::from(cq).to_ne_bytes()
}

/// An asynchronous event of an object.
pub(crate) fn encode_async(event: u8, object: u32) -> [u8; 16] {
    let words = [u64::from(event), u64::from(object)].map(u64::to_ne_bytes);
    std::array::from_fn(|at| words[at / 8][at % 8])
}

/// And back.
pub(crate) fn decode_async(event: &[u8]) -> Option<(u8, u32)> {
    let (words, []) = event.as_chunks::<8>() else { return None };
    let [event, object] =
        words.try_into().ok().map(|words: [[u8; 8]; 2]| words.map(u64::from_ne_bytes))?;
    Some((event.try_into().ok()?, object.try_into().ok()?))
}

/// What reads events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Of a context: asynchronous events.
    Context,
    /// A completion channel.
    Completions,
    /// A channel of the connection manager.
    Connections,
}

/// Most of a process.
const OUTLETS_MAX: usize = 4096;

/// All of a process, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    all: BTreeMap<u32, (Kind, Outlet)>,
    last: u32,
}

impl Outlets {
    /// Another one: its number, and the application's end.
    pub(crate) fn add(&mut self, kind: Kind) -> io::Result<(u32, OwnedFd)> {
        if self.all.len() >= OUTLETS_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (outlet, theirs) = Outlet::new()?;
        loop {
            self.last = self.last.wrapping_add(1);
            if let Entry::Vacant(place) = self.all.entry(self.last) {
                place.insert((kind, outlet));
                return Ok((self.last, theirs));
            }
        }
    }

    /// Whether it is there, and is of this kind.
    pub(crate) fn has(&self, number: u32, kind: Kind) -> bool {
        self.all.get(&number).is_some_and(|(of, _)| *of == kind)
    }

    /// Takes one of this kind away; whether there was one.
    pub(crate) fn remove(&mut self, number: u32, kind: Kind) -> bool {
        self.has(number, kind) && self.all.remove(&number).is_some()
    }

    /// Says an event where it is read, if that is there.
    pub(crate) fn say(&mut self, epoll: &Epoll, number: u32, event: &[u8]) {
        if let Some((_, outlet)) = self.all.get_mut(&number)
            && outlet.push(event)
        {
            // It may be registered already.
            let _ = epoll.add_for(&*outlet, Token::Outlet(number).into(), Interest::Write);
        }
    }

    /// Whether an event that is said there now is not lost.
    pub(crate) fn has_room(&self, number: u32) -> bool {
        self.all.get(&number).is_some_and(|(_, outlet)| outlet.waiting.len() < WAITING_MAX)
    }

    /// Takes back events that were not read there: see [`Outlet::take_back`].
    pub(crate) fn take_back(
        &mut self,
        number: u32,
        is_it: impl FnMut(&[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        self.all.get_mut(&number).map_or_else(Vec::new, |(_, outlet)| outlet.take_back(is_it))
    }

    /// There is room again.
    pub(crate) fn flush(&mut self, epoll: &Epoll, number: u32) {
        if let Some((_, outlet)) = self.all.get_mut(&number)
            && !outlet.flush()
        {
            let _ = epoll.remove(&*outlet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(events: &[Vec<u8>]) -> Vec<u32> {
        events.iter().map(|event| u32::from_ne_bytes(event[..].try_into().unwrap())).collect()
    }

    #[test]
    fn events_that_are_taken_back_leave_the_others_in_order() {
        const ALL: u32 = 1000;
        let (mut outlet, theirs) = Outlet::new().unwrap();
        let theirs = PacketSocket::from(theirs);
        let mut buffer = [0; 8];
        let mut read = || theirs.receive(&mut buffer).map(|_| buffer[..4].to_vec());
        for number in 0..ALL {
            outlet.push(&number.to_ne_bytes());
        }
        assert!(outlet.waiting.len() > 900, "few of them have to be read to take some back");
        let mut first = vec![read().unwrap(), read().unwrap()];
        let is_third =
            |event: &[u8]| u32::from_ne_bytes(event.try_into().unwrap()).is_multiple_of(3);
        let taken = outlet.take_back(is_third);
        assert_eq!(numbers(&taken), (2..ALL).filter(|n| n.is_multiple_of(3)).collect::<Vec<_>>());
        while let Ok(event) = read() {
            first.push(event);
            outlet.flush();
        }
        let left = (0..ALL).filter(|n| *n < 2 || !n.is_multiple_of(3));
        assert_eq!(numbers(&first), left.collect::<Vec<_>>());
    }
}
