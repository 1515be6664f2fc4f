//! connect(2) for the program, by its own socket: what waits for the connection, and what is asked of a socket first.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use sys::seccomp::Waiting;
use sys::stream;

use crate::caller::{Caller, Fault};
use crate::relays::Cookie;
use crate::theirs::Theirs;

/// A call that waits for its connection to be established.
pub(crate) struct Connecting {
    pub(crate) waiting: Waiting,
    pub(crate) fd: i32,
    /// The program's socket, which is the supervisor's alone when the program has got the pair.
    pub(crate) socket: Theirs,
    pub(crate) cookie: Cookie,
    /// When it has waited long enough (`SO_SNDTIMEO`).
    pub(crate) until: Option<Instant>,
}

impl Connecting {
    /// The program has its socket back, as it was.
    pub(crate) fn give_back(self) {
        let _ = stream::set_nonblocking(&self.socket, false);
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Connects {
    pub(crate) all: BTreeMap<u64, Connecting>,
    pub(crate) sets: Sets,
}

impl Connects {
    /// The number of the call by this socket.
    pub(crate) fn of(&self, cookie: Cookie) -> Option<u64> {
        self.all.iter().find(|(_, one)| one.cookie == cookie).map(|(number, _)| *number)
    }
}

/// The epoll sets of threads that connect, as they were found. A socket that is in one is the kernel's to connect: a pair in
/// its place would not be in the set.
#[derive(Default)]
pub(crate) struct Sets(HashMap<u32, (Instant, Vec<i32>)>);

impl Sets {
    /// How long they are not looked for again, unless one is made.
    const GOOD_FOR: Duration = Duration::from_secs(1);
    /// Threads that are remembered.
    const THREADS_MAX: usize = 1024;

    /// A set is made.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether the caller has this descriptor in one.
    pub(crate) fn have(&mut self, caller: &Caller<'_>, fd: i32) -> Result<bool, Fault> {
        let thread = caller.waiting.thread;
        let known = self.0.get(&thread).filter(|(found, _)| found.elapsed() < Self::GOOD_FOR);
        if known.is_none() {
            if self.0.len() >= Self::THREADS_MAX {
                self.0.clear();
            }
            self.0.insert(thread, (Instant::now(), caller.epoll_sets()?));
        }
        let sets = self.0.get(&thread).map_or(&[][..], |(_, sets)| sets);
        Ok(sets.iter().any(|set| caller.is_in_set(fd, *set)))
    }
}

/// How a connection stands (include/net/tcp_states.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// There is none.
    None,
    /// It is being established.
    Connecting,
    Other,
}

pub(crate) fn standing(socket: &Theirs) -> io::Result<Standing> {
    let mut state = [0];
    stream::option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(match state[0] {
        7 => Standing::None,
        2 | 3 => Standing::Connecting,
        _ => Standing::Other,
    })
}

/// Whether connect(2) gives a connection whose first packet is sent with the first bytes (`TCP_FASTOPEN_CONNECT`).
pub(crate) fn is_deferred(socket: &Theirs) -> bool {
    let mut value = [0; 4];
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
    stream::option(socket, level, name, &mut value).is_ok() && value != [0; 4]
}

/// How the attempt has ended, if it has.
pub(crate) fn outcome(socket: &Theirs) -> io::Result<Option<i32>> {
    if standing(socket)? == Standing::Connecting {
        return Ok(None);
    }
    let mut error = [0; 4];
    stream::option(socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error)?;
    Ok(Some(i32::from_ne_bytes(error)))
}
