//! Connections of programs that the kernel has, as they were refused or have come back: an operator wants to know why.
//!
//! A program does not tell when it closes them. The kernel knows which there are still.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ::tcp::FourTuple;
use handoff::Refusal;
use handoff::session::status::Why;
use sys::netlink::{Connection, Protocol, sockets};
use sys::process::PeerCredentials;

use super::kernel::ends_of;

/// Most that are remembered.
const MOST: usize = 16_384;
/// How often the kernel is asked, when there are so many.
const EVERY: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct AtKernel {
    /// By what tells sockets apart.
    all: HashMap<u64, Known>,
    /// When the kernel was last asked which there are.
    asked: Option<Instant>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) path: FourTuple,
    /// The process that offered it.
    pub(crate) owner: PeerCredentials,
    pub(crate) why: Why,
    /// What tells its socket from others.
    pub(crate) cookie: u64,
    /// Bytes that it carried before it came back, both ways.
    pub(crate) carried: [u64; 2],
}

impl AtKernel {
    pub(super) fn new() -> Self {
        AtKernel { all: HashMap::new(), asked: None }
    }

    /// What was offered stays at the kernel.
    pub(super) fn refused(&mut self, socket: impl AsFd, owner: PeerCredentials, why: Refusal) {
        // What has no peer is no connection.
        if let Some(path) = ends_of(&socket) {
            let carried = self.carried(&socket);
            self.remember(&socket, path, owner, (Why::Refused(why), carried));
        }
    }

    /// Bytes that a connection carried before it came back, if it has.
    pub(super) fn carried(&self, socket: impl AsFd) -> [u64; 2] {
        if self.all.is_empty() {
            return [0; 2];
        }
        let cookie = sys::tcp::cookie_of(socket);
        let known = cookie.ok().and_then(|cookie| self.all.get(&cookie));
        known.map_or([0; 2], |known| known.carried)
    }

    /// A connection is the kernel's, for this reason, and has carried so many bytes before.
    pub(super) fn remember(
        &mut self,
        socket: impl AsFd,
        path: FourTuple,
        owner: PeerCredentials,
        (why, carried): (Why, [u64; 2]),
    ) {
        let Ok(cookie) = sys::tcp::cookie_of(socket) else { return };
        if self.all.len() >= MOST && !self.all.contains_key(&cookie) {
            self.sweep();
            if self.all.len() >= MOST {
                return;
            }
        }
        self.all.insert(cookie, Known { path, owner, why, cookie, carried });
    }

    /// A connection is about to move.
    pub(super) fn forget_offered(&mut self, socket: impl AsFd) {
        if self.all.is_empty() {
            return;
        }
        if let Ok(cookie) = sys::tcp::cookie_of(socket) {
            self.all.remove(&cookie);
        }
    }

    /// These are gone.
    pub(super) fn forget(&mut self, gone: &[u64]) {
        for cookie in gone {
            self.all.remove(cookie);
        }
    }

    /// All of them, and some that are gone.
    pub(super) fn all(&self) -> impl Iterator<Item = Known> + '_ {
        self.all.values().copied()
    }

    /// Forgets those that are gone, if that was not done just now.
    fn sweep(&mut self) {
        if self.asked.is_some_and(|asked| asked.elapsed() < EVERY) {
            return;
        }
        let listed =
            Connection::open(Protocol::Diag).map(|mut netlink| sockets::list(&mut netlink));
        if let Ok(Ok(listed)) = listed {
            let there: std::collections::HashSet<u64> =
                listed.iter().map(|socket| socket.cookie).collect();
            self.all.retain(|cookie, _| there.contains(cookie));
        }
        self.asked = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    #[test]
    fn what_is_closed_makes_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let end: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let path = FourTuple { local: end, remote: end };
        let owner = PeerCredentials { pid: 1, uid: 2, gid: 3 };
        let why = Why::Refused(Refusal::Quota);
        let mut known = AtKernel::new();
        known.remember(&open, path, owner, (why, [1, 2]));
        // Cookies that no socket has.
        for cookie in 1 << 63..(1 << 63) + MOST as u64 - 1 {
            known.all.insert(cookie, Known { path, owner, why, cookie, carried: [0; 2] });
        }
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        known.remember(&other, path, owner, (why, [0; 2]));
        if known.asked.is_none() || known.all().count() > 2 {
            return testkit::missing::lacks("sock_diag of TCP");
        }
        let cookies = [&open, &other].map(|socket| sys::tcp::cookie_of(socket).unwrap());
        assert!(cookies.iter().all(|cookie| known.all.contains_key(cookie)));
        assert_eq!(known.carried(&open), [1, 2]);
        known.forget_offered(&open);
        known.forget(&cookies[1..]);
        assert_eq!(known.all().count(), 0);
    }
}
