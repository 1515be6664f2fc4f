//! accept(2) for the program: calls that wait for a connection, and connections that nobody has got yet.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sys::poll::{Interest, PollSet};
use sys::seccomp::Waiting;
use sys::stream::{self, Name};

use crate::call::Room;
use crate::relays::Cookie;
use crate::theirs::Theirs;

/// How long a connection is kept for the next call, whose call was interrupted when it had come.
const SPARE_FOR: Duration = Duration::from_secs(60);

/// A call that waits for a connection.
pub(crate) struct Parked {
    pub(crate) waiting: Waiting,
    pub(crate) peer: Room,
    pub(crate) flags: i32,
    /// The listener, as long as the call waits: who closes it elsewhere has it closed then.
    pub(crate) socket: Theirs,
    pub(crate) cookie: Cookie,
    /// When it has waited long enough (`SO_RCVTIMEO`).
    pub(crate) until: Option<Instant>,
}

struct Spare {
    tcp: Theirs,
    peer: Name,
    until: Instant,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Accepts {
    pub(crate) parked: BTreeMap<u64, Parked>,
    spare: HashMap<Cookie, VecDeque<Spare>>,
}

impl Accepts {
    /// The next connection of a listener.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, and those of accept4(2).
    pub(crate) fn next(&mut self, cookie: Cookie, socket: &Theirs) -> io::Result<(Theirs, Name)> {
        if let Some(all) = self.spare.get_mut(&cookie) {
            let first = all.pop_front();
            if all.is_empty() {
                self.spare.remove(&cookie);
            }
            if let Some(Spare { tcp, peer, .. }) = first {
                return Ok((tcp, peer));
            }
        }
        accept_now(socket)
    }

    /// A connection that the call has not got for which it was accepted.
    pub(crate) fn keep(&mut self, cookie: Cookie, tcp: Theirs, peer: Name) {
        let until = Instant::now() + SPARE_FOR;
        self.spare.entry(cookie).or_default().push_back(Spare { tcp, peer, until });
    }

    /// Whether any are kept.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Closes those that were kept for too long.
    pub(crate) fn expire(&mut self) {
        let now = Instant::now();
        self.spare.retain(|_, all| {
            all.retain(|spare| spare.until > now);
            !all.is_empty()
        });
    }
}

/// Whether a socket listens for connections of TCP.
pub(crate) fn is_listener(socket: &Theirs) -> bool {
    int(socket, libc::SO_ACCEPTCONN) == Some(1) && is_tcp(socket)
}

/// Whether a socket is one of TCP. One of MPTCP gives connections of TCP with peers that have none.
pub(crate) fn is_tcp(socket: &Theirs) -> bool {
    let of_internet = matches!(int(socket, libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6));
    let protocol = int(socket, libc::SO_PROTOCOL);
    of_internet && matches!(protocol, Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
}

fn int(socket: &Theirs, name: i32) -> Option<i32> {
    let mut bytes = [0; 4];
    stream::option(socket, libc::SOL_SOCKET, name, &mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

/// The time of `SO_RCVTIMEO` or `SO_SNDTIMEO` from now on, if there is one.
pub(crate) fn deadline(socket: &Theirs, name: i32) -> Option<Instant> {
    let mut bytes = [0; 16];
    stream::option(socket, libc::SOL_SOCKET, name, &mut bytes).ok()?;
    let (seconds, micros) = bytes.split_first_chunk::<8>()?;
    let [seconds, micros] = [*seconds, *micros.first_chunk::<8>()?].map(u64::from_ne_bytes);
    let time = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?;
    if time.is_zero() { None } else { Instant::now().checked_add(time) }
}

/// accept4(2), which does not wait, though the listener may be one that does.
fn accept_now(socket: &Theirs) -> io::Result<(Theirs, Name)> {
    let accept = || stream::accept(socket).map(|(tcp, peer)| (Theirs::new(tcp), peer));
    if stream::is_nonblocking(socket)? {
        return accept();
    }
    let mut set = PollSet::<1>::empty();
    let at = set.add(socket.as_fd(), Interest::Read)?;
    set.wait(Some(0))?;
    if !set.readable(at) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // Somebody whose calls are not answered here, io_uring say, may take the connection first. This one waits a moment
    // then, and no longer.
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
    let mut before = [0; 16];
    stream::option(socket, level, name, &mut before)?;
    let mut moment = [0; 16];
    moment[8] = 1;
    stream::set_option(socket, level, name, &moment)?;
    let accepted = accept();
    stream::set_option(socket, level, name, &before)?;
    if let Ok((tcp, _)) = &accepted {
        // It has what the listener has.
        stream::set_option(tcp, level, name, &before)?;
    }
    accepted
}
