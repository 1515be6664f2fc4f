//! Listeners that are to be ready though nothing is queued at them: for a connection that was taken from the queue and that no
//! call has got, because a signal had ended it.
//!
//! A program that waits for its listener by epoll would hear of that connection only when another comes. Nothing puts it back
//! into the queue. So the supervisor connects to the listener itself: that makes it readable, the program accepts, and gets
//! the connection that is kept for it. The supervisor's own is taken from the queue by a later call, to which it is none.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use sys::poll::{Interest, PollSet};
use sys::stream::{self, Name};
use sys::tcp::namespace_of;

use crate::relay::{ABORT, set_linger};
use crate::theirs::Theirs;

/// Attempts at a listener that shares its port (`SO_REUSEPORT`): by its own port each goes to any of them.
const ATTEMPTS: usize = 16;

struct Own {
    socket: OwnedFd,
    name: Name,
    until: Instant,
}

/// Connections to listeners that are the supervisor's own.
#[derive(Default)]
pub(crate) struct Wakes(Vec<Own>);

impl Wakes {
    /// Has a listener ready, unless it is. The connection is there until then, or is accepted.
    ///
    /// # Errors
    /// Those of socket(2) and connect(2), such as for a listener that is bound to a device. `Unsupported` for one of another
    /// network namespace.
    pub(crate) fn wake(&mut self, listener: &Theirs, until: Instant) -> io::Result<()> {
        let to = reachable(&Name::of(listener)?);
        for _ in 0..if flag(listener, libc::SO_REUSEPORT) { ATTEMPTS } else { 1 } {
            if is_ready(listener)? {
                break;
            }
            let family = to.family().unwrap_or(libc::AF_INET);
            let socket = sys::calls::socket(family).map_err(io::Error::from_raw_os_error)?;
            if namespace_of(&socket)? != namespace_of(listener)? {
                return Err(io::ErrorKind::Unsupported.into());
            }
            // Its end leaves nothing behind, at the listener's port least of all (TIME_WAIT).
            set_linger(&socket, ABORT)?;
            stream::set_nonblocking(&socket, true)?;
            match stream::connect(&socket, &to) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
                _ => {}
            }
            // With TCP_DEFER_ACCEPT it is queued with its first byte.
            let _ = sys::calls::send(&socket, &[0], libc::MSG_NOSIGNAL);
            self.0.push(Own { name: Name::of(&socket)?, socket, until });
        }
        Ok(())
    }

    /// Whether a connection with this peer that was accepted is the supervisor's own, which ends by this.
    pub(crate) fn end(&mut self, peer: &Name) -> bool {
        let at = self.0.iter().position(|own| own.name.bytes() == peer.bytes());
        at.map(|at| drop(self.0.swap_remove(at).socket)).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends those that nobody has accepted in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.retain(|own| own.until > now);
    }
}

/// Whether a call of accept(2) would find a connection.
pub(crate) fn is_ready(listener: &Theirs) -> io::Result<bool> {
    let mut set = PollSet::<1>::empty();
    let at = set.add(listener.as_fd(), Interest::Read)?;
    set.wait(Some(0))?;
    Ok(set.readable(at))
}

/// Where a listener of this name is reached from its own machine: for one of all addresses, at the loopback address.
fn reachable(name: &Name) -> Name {
    let mut bytes = name.bytes().to_vec();
    // struct sockaddr_in, struct sockaddr_in6.
    match name.family() {
        Some(libc::AF_INET) if bytes.get(4..8) == Some(&[0; 4]) => {
            bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
        }
        Some(libc::AF_INET6) if bytes.get(8..24) == Some(&[0; 16]) => bytes[23] = 1,
        _ => {}
    }
    Name::of_bytes(&bytes).unwrap_or(*name)
}

fn flag(socket: &Theirs, name: i32) -> bool {
    let mut value = [0; 4];
    stream::option(socket, libc::SOL_SOCKET, name, &mut value).is_ok() && value != [0; 4]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn a_listener_is_ready_by_a_connection_that_is_known_again() {
        for at in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let theirs = Theirs::new(listener.as_fd().try_clone_to_owned().unwrap());
            let mut wakes = Wakes::default();
            assert!(!is_ready(&theirs).unwrap());
            let until = Instant::now() + Duration::from_secs(60);
            wakes.wake(&theirs, until).unwrap();
            // It is there when the handshake is, which does not wait for a call.
            let (_connection, peer) = stream::accept(&theirs).unwrap();
            assert!(wakes.end(&peer), "{at}");
            assert!(!wakes.end(&peer) && wakes.is_empty());
            wakes.wake(&theirs, until).unwrap();
            wakes.expire(until);
            assert!(wakes.is_empty());
        }
    }
}
