//! connect(2) for the program, by its own socket: what waits for the connection, and what is asked of a socket first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sys::seccomp::{Listener, Waiting};
use sys::stream::{self, Name};

use crate::caller::{Caller, Done, Fault};
use crate::relays::Cookie;
use crate::theirs::Theirs;

/// Calls that wait for a connection to be established.
pub(crate) struct Connecting {
    /// Each with its descriptor; the first has begun it, unless that was interrupted.
    pub(crate) calls: Vec<(Waiting, i32)>,
    /// The program's socket, which is the supervisor's alone when the program has got the pair.
    pub(crate) socket: Theirs,
    pub(crate) cookie: Cookie,
    pub(crate) to: Name,
    /// When it has waited long enough (`SO_SNDTIMEO`).
    pub(crate) until: Option<Instant>,
}

impl Connecting {
    /// Whether any of the calls waits still. Those that do not are forgotten.
    pub(crate) fn waits(&mut self, listener: &Listener) -> bool {
        self.calls.retain(|(waiting, _)| listener.waits(waiting.id));
        !self.calls.is_empty()
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Connects {
    pub(crate) all: BTreeMap<u64, Connecting>,
    pub(crate) sets: Sets,
    /// Results of calls that were interrupted when they had them, by the socket that the program has.
    owed: VecDeque<(Cookie, Result<Done, Fault>)>,
    /// By threads, until they make another call.
    last: HashMap<u32, Last>,
}

/// The last call of a thread, which was told that it has connected this socket, or that it is being connected, or the error of
/// the connection (`SO_ERROR`).
struct Last {
    arguments: [u64; 6],
    cookie: Cookie,
    result: Result<Done, Fault>,
}

impl Connects {
    /// Results that are kept, and threads of which that is.
    const OWED_MAX: usize = 1024;

    /// A call has not got its result. It is that of the call that is made again (`SA_RESTART` in sigaction(2)), to which the
    /// socket is not what it was to the first.
    pub(crate) fn owe(&mut self, cookie: Cookie, result: Result<Done, Fault>) {
        if self.owed.len() >= Self::OWED_MAX {
            // Most likely that socket is closed.
            self.owed.pop_front();
        }
        self.owed.push_back((cookie, result));
    }

    /// The result that a call by this socket has not got.
    pub(crate) fn take_owed(&mut self, cookie: Cookie) -> Option<Result<Done, Fault>> {
        let at = self.owed.iter().position(|(of, _)| *of == cookie)?;
        self.owed.remove(at).map(|(_, result)| result)
    }

    /// A call has this result, as far as the kernel tells. A signal may yet have come first, and the call is made again
    /// (seccomp_do_user_notification goes by the signal, though it has taken the answer).
    pub(crate) fn told(&mut self, waiting: &Waiting, cookie: Cookie, result: Result<Done, Fault>) {
        if self.last.len() >= Self::OWED_MAX {
            self.last.clear();
        }
        let Waiting { thread, arguments, .. } = *waiting;
        self.last.insert(thread, Last { arguments, cookie, result });
    }

    /// A thread makes a call. If it is as its last one was, that may be made again: the result that this has had.
    pub(crate) fn take_last(
        &mut self,
        waiting: &Waiting,
        cookie: Cookie,
    ) -> Option<Result<Done, Fault>> {
        let last = self.last.remove(&waiting.thread)?;
        let is_same = last.cookie == cookie && last.arguments == waiting.arguments;
        is_same.then_some(last.result)
    }

    /// A thread makes another call.
    pub(crate) fn forget(&mut self, thread: u32) {
        self.last.remove(&thread);
    }

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

/// How the attempt has ended, which is an error of its own or none; `WouldBlock` if it has not.
///
/// An error is asked for by another connect(2), as one that waits would have it: after a failure, the socket may connect anew.
/// Success is not: a library in front of libc would have that connection elsewhere, and the program may yet keep its socket.
pub(crate) fn outcome(socket: &Theirs, to: &Name) -> io::Result<()> {
    match standing(socket)? {
        Standing::Connecting => Err(io::ErrorKind::WouldBlock.into()),
        Standing::None => connect(socket, to, false),
        Standing::Other => Ok(()),
    }
}

/// connect(2), which does not wait: `WouldBlock` if the connection is not there yet. Afterwards the socket is as it was,
/// because others have it, too: threads of the program's, and the program itself if a signal ends its call.
pub(crate) fn connect(socket: impl AsFd, to: &Name, is_nonblocking: bool) -> io::Result<()> {
    stream::set_nonblocking(&socket, true)?;
    let connected = stream::connect(&socket, to);
    stream::set_nonblocking(socket, is_nonblocking)?;
    match connected {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        connected => connected,
    }
}
