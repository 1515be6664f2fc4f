//! connect(2) for the program, by its own socket: what waits for the connection, and what is asked of a socket first.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use sys::seccomp::Waiting;
use sys::stream;

use crate::relays::Cookie;

/// A call that waits for its connection to be established.
pub(crate) struct Connecting {
    pub(crate) waiting: Waiting,
    pub(crate) fd: i32,
    /// The program's socket, which is the supervisor's alone when the program has got the pair.
    pub(crate) socket: OwnedFd,
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
}

impl Connects {
    /// The number of the call by this socket.
    pub(crate) fn of(&self, cookie: Cookie) -> Option<u64> {
        self.all.iter().find(|(_, one)| one.cookie == cookie).map(|(number, _)| *number)
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

pub(crate) fn standing(socket: &OwnedFd) -> io::Result<Standing> {
    let mut state = [0];
    stream::option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(match state[0] {
        7 => Standing::None,
        2 | 3 => Standing::Connecting,
        _ => Standing::Other,
    })
}

/// Whether connect(2) gives a connection whose first packet is sent with the first bytes (`TCP_FASTOPEN_CONNECT`).
pub(crate) fn is_deferred(socket: &OwnedFd) -> bool {
    let mut value = [0; 4];
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
    stream::option(socket, level, name, &mut value).is_ok() && value != [0; 4]
}

/// How the attempt has ended, if it has.
pub(crate) fn outcome(socket: &OwnedFd) -> io::Result<Option<i32>> {
    if standing(socket)? == Standing::Connecting {
        return Ok(None);
    }
    let mut error = [0; 4];
    stream::option(socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error)?;
    Ok(Some(i32::from_ne_bytes(error)))
}
