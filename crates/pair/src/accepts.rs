//! accept(2) for the program: calls that wait for a connection, and connections that nobody has got yet.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use sys::seccomp::Waiting;
use sys::stream::{self, Name};

use crate::call::Room;
use crate::relays::Cookie;
use crate::theirs::Theirs;
use crate::wakes::{Wakes, is_ready};

/// How long a connection is kept for the next call, whose call was interrupted when it had come.
const SPARE_FOR: Duration = Duration::from_secs(60);
/// How long the next call may take before the program is told that there is something for it. One that is made again has
/// come by then as a rule.
const WAKE_AFTER: Duration = Duration::from_millis(5);

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

/// Connections of a listener that nobody has got.
#[derive(Default)]
struct Kept {
    all: VecDeque<Spare>,
    /// The listener, which is made ready at that instant.
    wakes: Option<(Theirs, Instant)>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Accepts {
    pub(crate) parked: BTreeMap<u64, Parked>,
    spare: HashMap<Cookie, Kept>,
    wakes: Wakes,
}

impl Accepts {
    /// The next connection of a listener.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, and those of accept4(2).
    pub(crate) fn next(&mut self, cookie: Cookie, socket: &Theirs) -> io::Result<(Theirs, Name)> {
        if let Some(kept) = self.spare.get_mut(&cookie) {
            let first = kept.all.pop_front();
            if kept.all.is_empty() {
                self.spare.remove(&cookie);
            }
            if let Some(Spare { tcp, peer, .. }) = first {
                return Ok((tcp, peer));
            }
        }
        loop {
            let (tcp, peer) = accept_now(socket)?;
            if !self.wakes.end(&peer) {
                return Ok((tcp, peer));
            }
        }
    }

    /// A connection that the call has not got for which it was accepted. Returns when the listener is made ready for it,
    /// unless another call comes first.
    pub(crate) fn keep(
        &mut self,
        (listener, cookie): (Theirs, Cookie),
        (tcp, peer): (Theirs, Name),
    ) -> Instant {
        let now = Instant::now();
        let kept = self.spare.entry(cookie).or_default();
        kept.all.push_back(Spare { tcp, peer, until: now + SPARE_FOR });
        kept.wakes.get_or_insert((listener, now + WAKE_AFTER)).1
    }

    /// Whether there is something to be looked after, though no call waits.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty() || !self.wakes.is_empty()
    }

    /// A call that waits at a listener for which a connection is kept.
    pub(crate) fn parked_with_spare(&self) -> Option<u64> {
        if self.spare.is_empty() {
            return None;
        }
        let has_one = |parked: &Parked| self.spare.contains_key(&parked.cookie);
        self.parked.iter().find(|(_, parked)| has_one(parked)).map(|(number, _)| *number)
    }

    /// Listeners are made ready for what is kept, and what was kept for too long is closed.
    pub(crate) fn look_after(&mut self) {
        let now = Instant::now();
        for kept in self.spare.values_mut() {
            if let Some((listener, _)) = kept.wakes.take_if(|(_, at)| *at <= now)
                && let Err(error) = self.wakes.wake(&listener, now + SPARE_FOR)
            {
                // The next connection has it ready.
                tracing::debug!("a listener is not made ready for a connection: {error}");
            }
        }
        self.spare.retain(|_, kept| {
            kept.all.retain(|spare| spare.until > now);
            !kept.all.is_empty()
        });
        self.wakes.expire(now);
    }

    /// When the next is to be looked after, if there is something of which the time is known.
    pub(crate) fn due(&self) -> Option<Instant> {
        let wakes = self.spare.values().filter_map(|kept| Some(kept.wakes.as_ref()?.1));
        wakes.chain(self.parked.values().filter_map(|one| one.until)).min()
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
    if !is_ready(socket)? {
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
