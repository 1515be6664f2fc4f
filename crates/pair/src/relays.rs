//! All connections, by the program's ends of their pairs.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sys::epoll::Epoll;
use sys::stream::{self, Name};
use sys::tcp::inode_of;
use sys::traced::{Search, Thread};

use crate::relay::{Next, PIECE, Relay};
use crate::theirs::Theirs;

/// Connections that have ended and are remembered, for what the program asks of its ends of theirs.
const ENDED_MAX: usize = 4096;

/// The number by which the kernel knows a socket, and no other until the machine is started anew (`SO_COOKIE`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cookie(u64);

impl Cookie {
    /// That of a socket.
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; 8];
        stream::option(socket, libc::SOL_SOCKET, libc::SO_COOKIE, &mut bytes)?;
        Ok(Cookie(u64::from_ne_bytes(bytes)))
    }
}

/// Where the program had its end when it got it.
#[derive(Clone, Copy, Debug)]
struct Place {
    thread: u32,
    fd: i32,
    /// The thread's, which outlives it.
    process: Option<u32>,
    inode: u64,
}

struct Entry {
    relay: Relay,
    cookie: Cookie,
    place: Place,
}

/// What is known of a connection that has ended.
pub(crate) struct Ended {
    /// Its own name and that of its peer.
    pub(crate) names: [Option<Name>; 2],
    /// Its error, unless the program was told.
    error: i32,
    /// The program's end has an error, too, as long as it was not told by a call of its own.
    is_said: bool,
}

impl Ended {
    /// The error that is pending at the program's end, which is told by this.
    pub(crate) fn take_error(&mut self, theirs: impl AsFd) -> i32 {
        let mut own = [0; 4];
        let asked = stream::option(theirs, libc::SOL_SOCKET, libc::SO_ERROR, &mut own);
        let error = std::mem::take(&mut self.error);
        if self.is_said && (asked.is_err() || own == [0; 4]) { 0 } else { error }
    }

    /// An error that the program was not told of after all.
    pub(crate) fn put_error(&mut self, error: i32) {
        (self.error, self.is_said) = (error, false);
    }
}

/// See the module's documentation.
pub(crate) struct Relays {
    all: HashMap<u64, Entry>,
    numbers: HashMap<Cookie, u64>,
    next: u64,
    /// The bit that tells their numbers from others' in the set.
    kind: u64,
    ended: HashMap<Cookie, Ended>,
    order: VecDeque<Cookie>,
    /// Those that have more to move.
    again: Vec<u64>,
    scratch: Vec<u8>,
    owners: Owners,
}

impl Relays {
    pub(crate) fn new(kind: u64) -> Self {
        Relays {
            all: HashMap::new(),
            numbers: HashMap::new(),
            next: 0,
            kind,
            ended: HashMap::new(),
            order: VecDeque::new(),
            again: Vec::new(),
            scratch: vec![0; PIECE],
            owners: Owners::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether some have more to move at once.
    pub(crate) fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// A thread is to get a connection. It may have ended soon afterwards, and nobody knows then whose it was.
    pub(crate) fn expect(&mut self, thread: u32) {
        self.owners.process_of(thread);
    }

    /// A connection that a thread of the program's has got, by this socket and descriptor.
    pub(crate) fn add(
        &mut self,
        epoll: &Epoll,
        relay: Relay,
        theirs: impl AsFd,
        (thread, fd): (u32, i32),
    ) {
        // A socket has both.
        let Ok(cookie) = Cookie::of(&theirs) else { return };
        let inode = inode_of(&theirs).unwrap_or(0);
        let place = Place { thread, fd, process: self.owners.process_of(thread), inode };
        self.next += 1;
        let number = self.next;
        if let Err(error) = relay.watch(epoll, self.kind | number) {
            // The program finds its end closed.
            tracing::warn!("a connection is lost, which cannot be waited for: {error}");
            return;
        }
        self.numbers.insert(cookie, number);
        self.all.insert(number, Entry { relay, cookie, place });
    }

    /// The connection of a socket of the program's.
    pub(crate) fn of(&mut self, cookie: Cookie) -> Option<&mut Relay> {
        let number = self.numbers.get(&cookie)?;
        self.all.get_mut(number).map(|entry| &mut entry.relay)
    }

    /// What is known of a connection that is being established is as new as can be.
    pub(crate) fn look_at(&mut self, epoll: &Epoll, cookie: Cookie) {
        let number = self.numbers.get(&cookie).copied();
        let is_connecting = |entry: &Entry| entry.relay.is_connecting();
        if let Some(number) = number.filter(|it| self.all.get(it).is_some_and(is_connecting)) {
            self.turn(epoll, number);
        }
    }

    /// The same of one that has ended.
    pub(crate) fn ended(&mut self, cookie: Cookie) -> Option<&mut Ended> {
        self.ended.get_mut(&cookie)
    }

    /// Those that have more to move do so.
    pub(crate) fn turn_all(&mut self, epoll: &Epoll) {
        for number in std::mem::take(&mut self.again) {
            self.turn(epoll, number);
        }
    }

    /// One of them is ready for something.
    pub(crate) fn turn(&mut self, epoll: &Epoll, number: u64) {
        let Some(entry) = self.all.get_mut(&number) else { return };
        let next = entry.relay.turn(&mut self.scratch);
        match next {
            Next::Wait | Next::Again => {
                if next == Next::Again {
                    self.again.push(number);
                }
                if let Err(error) = entry.relay.wait_for_room(epoll, self.kind | number) {
                    tracing::warn!("a connection is lost, which cannot be waited for: {error}");
                    self.end(number, 0);
                }
            }
            Next::Closed => self.end(number, 0),
            Next::Reset(error) => self.end(number, error),
        }
    }

    fn end(&mut self, number: u64, error: i32) {
        let Some(Entry { relay, cookie, place }) = self.all.remove(&number) else { return };
        self.numbers.remove(&cookie);
        // With EPIPE it has had the end of the stream, and reads that again.
        if error != 0 && error != libc::EPIPE {
            self.owners.say_reset(cookie, place);
        }
        let is_said = error != 0 && relay.has_unread();
        self.ended.insert(cookie, Ended { names: relay.names(), error, is_said });
        self.order.push_back(cookie);
        if self.order.len() > ENDED_MAX {
            self.order.pop_front().map(|oldest| self.ended.remove(&oldest));
        }
        relay.close();
    }
}

/// The processes in which the program has its ends.
#[derive(Default)]
struct Owners {
    /// Of threads that have got some. Another thread may have the number by now: what is found is looked at.
    processes: HashMap<u32, u32>,
    /// When descriptors were counted from, and how many were looked at since.
    looked: Option<(Instant, usize)>,
}

impl Owners {
    /// Threads that are remembered.
    const THREADS_MAX: usize = 1024;
    /// How many descriptors are looked at for one end, and in one second for all: some tenths of the time at most, however
    /// many connections are reset.
    const LOOKS: usize = 4096;
    const LOOKS_PER_SECOND: usize = 1 << 16;

    fn process_of(&mut self, thread: u32) -> Option<u32> {
        if let Some(process) = self.processes.get(&thread) {
            return Some(*process);
        }
        let process = Thread::of_number(thread).process().ok()?;
        if self.processes.len() >= Self::THREADS_MAX {
            self.processes.clear();
        }
        self.processes.insert(thread, process);
        Some(process)
    }

    /// Has the program's end say that it was reset, and not that the stream has ended, when the supervisor's is closed: for
    /// the kernel it was if that leaves something unread (unix_release_sock), which only the program's end can have sent.
    fn say_reset(&mut self, cookie: Cookie, place: Place) {
        if let Some(theirs) = self.find(cookie, place) {
            // One without room has something unread.
            let _ = sys::calls::send(&theirs, &[0], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        }
    }

    /// The program's end: where it was, or else wherever the program has it by now, in processes that it has started, too.
    fn find(&mut self, cookie: Cookie, place: Place) -> Option<Theirs> {
        let at = |thread: u32| {
            let theirs = Thread::of_number(thread).descriptor(place.fd).ok().map(Theirs::new)?;
            Cookie::of(&theirs).is_ok_and(|found| found == cookie).then_some(theirs)
        };
        if let Some(theirs) = at(place.thread).or_else(|| at(place.process?)) {
            return Some(theirs);
        }
        let now = Instant::now();
        let second = |(since, _): &(Instant, usize)| now - *since < Duration::from_secs(1);
        let (since, looks) = self.looked.filter(second).unwrap_or((now, 0));
        let most = Self::LOOKS.min(Self::LOOKS_PER_SECOND.saturating_sub(looks));
        let mut search = Search::new(most);
        let likely = place.process.into_iter();
        let found = search.socket(place.inode, likely.chain(self.processes.values().copied()));
        self.looked = Some((since, looks + most - search.left()));
        found.map(Theirs::new)
    }
}
