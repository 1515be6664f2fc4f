//! Where an application reads events: a socket pair. The application has one end, of which a copy is kept here, so that
//! events can be taken back that it has not read.
//!
//! None is lost. Those that the socket has no room for wait, but of each object one of a kind: that there is another says
//! nothing that the application is not about to read. So they are bounded by the objects that there may be.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rdma::session::Reply;
use rdma::session::cm::CmEvent;
use sys::epoll::Epoll;
use sys::packets::PacketSocket;
use sys::poll::Interest;
use wire::Nanos;

use crate::token::{REGISTER_AGAIN, Token};

/// Events that wait for room at most: of 65,536 objects, with up to four kinds of events each.
const WAITING_MAX: usize = 4 << 16;
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
    kind: Kind,
    waiting: VecDeque<Vec<u8>>,
    /// What of those that wait each is about: see [`Kind::about`].
    about: BTreeSet<About>,
}

impl Outlet {
    /// And the application's end.
    pub(crate) fn new(kind: Kind) -> io::Result<(Self, OwnedFd)> {
        let (socket, theirs) = PacketSocket::pair()?;
        socket.set_send_buffer(UNREAD_BYTES)?;
        let theirs = OwnedFd::from(theirs);
        let given = theirs.try_clone()?;
        let (theirs, waiting, about) = (theirs.into(), VecDeque::new(), BTreeSet::new());
        Ok((Outlet { socket, theirs, kind, waiting, about }, given))
    }

    /// Says an event. Returns whether it waits for room, and [`flush`](Self::flush) is to be called when there is some.
    pub(crate) fn push(&mut self, event: &[u8]) -> bool {
        if self.waiting.is_empty() && self.send(event) {
            return false;
        }
        self.keep(event.to_vec());
        true
    }

    fn keep(&mut self, event: Vec<u8>) {
        if self.about.insert(self.kind.about(&event)) {
            self.waiting.push_back(event);
            debug_assert!(self.waiting.len() <= WAITING_MAX, "there are not so many objects");
        }
    }

    /// Says what waits, as far as there is room; whether some still waits.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(event) = self.waiting.front() {
            if !self.send(event) {
                return true;
            }
            self.about.remove(&self.kind.about(event));
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
        self.about.clear();
        let (taken, left): (_, Vec<_>) = all.into_iter().partition(|event| is_it(event));
        left.into_iter().for_each(|event| self.keep(event));
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

/// What an event is about: an object, and what of it.
type About = (u32, u8);

impl Kind {
    /// An event says nothing new if one that waits is about the same.
    fn about(self, event: &[u8]) -> About {
        let about = match self {
            Kind::Completions => event.first_chunk().map(|cq| (u64::from_ne_bytes(*cq) as u32, 0)),
            Kind::Context => decode_async(event).map(|(event, object)| (object, event)),
            Kind::Connections => Reply::decode(event)
                .ok()
                .and_then(|event| CmEvent::decode(&event))
                .map(|event| (event.id, event.kind as u8)),
        };
        debug_assert!(about.is_some(), "no event of {self:?}");
        about.unwrap_or_default()
    }
}

/// Most of a process.
const OUTLETS_MAX: usize = 4096;

/// All of a process, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    all: BTreeMap<u32, Outlet>,
    last: u32,
    /// Those that wait for room and could not be registered for that, and when they are registered again.
    unheard: BTreeSet<u32>,
    due: Option<Nanos>,
}

impl Outlets {
    /// Another one: its number, and the application's end.
    pub(crate) fn add(&mut self, kind: Kind) -> io::Result<(u32, OwnedFd)> {
        if self.all.len() >= OUTLETS_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (outlet, theirs) = Outlet::new(kind)?;
        loop {
            self.last = self.last.wrapping_add(1);
            if let Entry::Vacant(place) = self.all.entry(self.last) {
                place.insert(outlet);
                return Ok((self.last, theirs));
            }
        }
    }

    /// Whether it is there, and is of this kind.
    pub(crate) fn has(&self, number: u32, kind: Kind) -> bool {
        self.all.get(&number).is_some_and(|of| of.kind == kind)
    }

    /// Takes one of this kind away; whether there was one.
    pub(crate) fn remove(&mut self, number: u32, kind: Kind) -> bool {
        self.has(number, kind) && self.all.remove(&number).is_some()
    }

    /// Says an event where it is read, if that is there.
    pub(crate) fn say(&mut self, epoll: &Epoll, now: Nanos, number: u32, event: &[u8]) {
        if let Some(outlet) = self.all.get_mut(&number)
            && outlet.push(event)
        {
            let added = epoll.add_for(&*outlet, Token::Outlet(number).into(), Interest::Write);
            self.is_registered(now, number, added);
        }
    }

    /// One that waits for room is registered for that, or could not be: nothing tells then when there is some.
    fn is_registered(&mut self, now: Nanos, number: u32, added: io::Result<()>) {
        match added {
            // It may be there already.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                self.unheard.insert(number);
                self.due.get_or_insert(now.saturating_add(REGISTER_AGAIN));
            }
            _ => drop(self.unheard.remove(&number)),
        }
    }

    /// When [`expire`](Self::expire) is to be called.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.due
    }

    /// Registers those again that could not be, if there is no room yet.
    pub(crate) fn expire(&mut self, epoll: &Epoll, now: Nanos) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        for number in std::mem::take(&mut self.unheard) {
            if let Some(outlet) = self.all.get_mut(&number)
                && outlet.flush()
            {
                let added = epoll.add_for(&*outlet, Token::Outlet(number).into(), Interest::Write);
                self.is_registered(now, number, added);
            }
        }
    }

    /// Takes back events that were not read there: see [`Outlet::take_back`].
    pub(crate) fn take_back(
        &mut self,
        number: u32,
        is_it: impl FnMut(&[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        self.all.get_mut(&number).map_or_else(Vec::new, |outlet| outlet.take_back(is_it))
    }

    /// There is room again.
    pub(crate) fn flush(&mut self, epoll: &Epoll, number: u32) {
        if let Some(outlet) = self.all.get_mut(&number)
            && !outlet.flush()
        {
            let _ = epoll.remove(&*outlet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outlet, and what reads the number of each event that the application has not read.
    fn lab() -> (Outlet, impl FnMut() -> Option<u32>) {
        let (outlet, theirs) = Outlet::new(Kind::Completions).unwrap();
        let (theirs, mut buffer) = (PacketSocket::from(theirs), [0; 8]);
        let read = move || {
            theirs.receive(&mut buffer).ok()?;
            Some(u64::from_ne_bytes(buffer) as u32)
        };
        (outlet, read)
    }

    #[test]
    fn events_that_are_taken_back_leave_the_others_in_order() {
        const ALL: u32 = 1000;
        let (mut outlet, mut read) = lab();
        for number in 0..ALL {
            outlet.push(&completion(number));
        }
        assert!(outlet.waiting.len() > 900, "few of them have to be read to take some back");
        let mut first = vec![read().unwrap(), read().unwrap()];
        let number = |event: &[u8]| u64::from_ne_bytes(event.try_into().unwrap()) as u32;
        let taken = outlet.take_back(|event| number(event).is_multiple_of(3));
        let numbers: Vec<u32> = taken.iter().map(|event| number(event)).collect();
        assert_eq!(numbers, (2..ALL).filter(|n| n.is_multiple_of(3)).collect::<Vec<_>>());
        while let Some(event) = read() {
            first.push(event);
            outlet.flush();
        }
        let left = (0..ALL).filter(|n| *n < 2 || !n.is_multiple_of(3));
        assert_eq!(first, left.collect::<Vec<_>>());
        assert!(outlet.waiting.is_empty() && outlet.about.is_empty());
    }

    #[test]
    fn events_of_one_queue_take_no_place_of_another() {
        let (mut outlet, mut read) = lab();
        for _ in 0..10_000 {
            outlet.push(&completion(1));
        }
        outlet.push(&completion(2));
        assert_eq!(outlet.waiting.len(), 2);
        let mut all = Vec::new();
        while let Some(event) = read() {
            all.push(event);
            outlet.flush();
        }
        assert_eq!(all.pop(), Some(2));
        assert!(!all.is_empty() && all.iter().all(|event| *event == 1));
        // And it is told again.
        outlet.push(&completion(1));
        assert_eq!(read(), Some(1));
    }

    /// As where the user has no room for another (`fs.epoll.max_user_watches`).
    #[test]
    fn an_outlet_that_cannot_be_registered_is_later() {
        let (mut outlets, mut epoll) = (Outlets::default(), Epoll::new().unwrap());
        let (number, theirs) = outlets.add(Kind::Completions).unwrap();
        let (theirs, mut buffer) = (PacketSocket::from(theirs), [0; 8]);
        // As many as the kernel has room for, and some.
        let mut said = 0;
        while outlets.all[&number].waiting.len() < 2 {
            outlets.all.get_mut(&number).unwrap().push(&completion(said));
            said += 1;
        }
        outlets.is_registered(5, number, Err(io::ErrorKind::StorageFull.into()));
        let due = 5 + REGISTER_AGAIN;
        assert_eq!(outlets.deadline(), Some(due));
        outlets.is_registered(6, number, Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(outlets.deadline(), Some(due), "it is not put off");
        outlets.expire(&epoll, due - 1);
        assert_eq!(outlets.deadline(), Some(due));
        outlets.expire(&epoll, due);
        assert!(outlets.deadline().is_none() && outlets.unheard.is_empty());
        // It is registered already.
        outlets.say(&epoll, due, number, &completion(said));
        assert!(outlets.deadline().is_none());
        for expected in 0..=said {
            theirs.receive(&mut buffer).unwrap();
            assert_eq!(u64::from_ne_bytes(buffer), u64::from(expected));
            epoll.wait(0).unwrap();
            let has_room = epoll.ready().any(|of| Token::from(of) == Token::Outlet(number));
            if has_room {
                outlets.flush(&epoll, number);
            }
        }
    }

    #[test]
    fn what_an_event_is_about_is_its_object_and_its_kind() {
        assert_eq!(Kind::Context.about(&encode_async(4, 7)), (7, 4));
        assert_ne!(
            Kind::Completions.about(&completion(1)),
            Kind::Completions.about(&completion(2))
        );
        let kind = rdma::session::cm::Kind::Disconnected;
        let (status, id, listener, ird, ord) = (0, 9, 3, 0, 0);
        let event = CmEvent { kind, status, id, listener, ird, ord, local: None, remote: None };
        let event = event.encode(b"private").encode().unwrap();
        assert_eq!(Kind::Connections.about(&event), (9, kind as u8));
    }
}
