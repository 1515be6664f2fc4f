//! Descriptors that another process has, had, or has sent, closed where that may take as long as it likes.
//!
//! close(2) waits in some cases for another process, if the descriptor is the last of its open file:
//!
//! - a TCP socket with `SO_LINGER` waits until its peer has all that it was sent, for up to 65,535 seconds;
//! - a Unix socket closes the descriptors that lie unread in its queue, which may be such sockets;
//! - a file of FUSE, or of a network file system, waits for its server, also if it is not the last;
//! - a file in an epoll(7) set waits for a thread that takes events out of the set, and that thread for its memory.
//!
//! So each owner, as a user is, has a thread that closes what was its, and no other thread waits. A timer interrupts that
//! thread, so that nobody lingers: what is to be sent is sent all the same, as whoever set `SO_LINGER` does not wait here.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use crate::alarm::Alarm;

/// How long the thread of an owner waits for more to close before it ends.
const IDLE: Duration = Duration::from_secs(2);
/// Bytes of stack: these threads make system calls only.
const STACK: usize = 64 << 10;

/// A descriptor of this kind; dropping it returns at once. The owner is a number that stands for whoever can make the
/// close wait, such as a user's.
#[derive(Debug)]
pub struct Foreign<T: Into<OwnedFd> = OwnedFd> {
    /// There until it is dropped.
    inner: Option<T>,
    owner: u32,
}

impl<T: Into<OwnedFd>> Foreign<T> {
    /// Closes `inner` for this owner when the result is dropped.
    pub fn new(inner: T, owner: u32) -> Self {
        Foreign { inner: Some(inner), owner }
    }
}

impl<T: Into<OwnedFd>> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // It is taken out by `drop` alone.
        self.inner.as_ref().unwrap_or_else(|| unreachable!("a descriptor that was dropped"))
    }
}

impl<T: Into<OwnedFd> + AsFd> AsFd for Foreign<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T: Into<OwnedFd>> Drop for Foreign<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            close(inner.into(), self.owner);
        }
    }
}

/// What is to be closed for one owner.
#[derive(Debug, Default)]
struct Owner {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<OwnedFd>,
    /// The owner's thread runs.
    has_thread: bool,
}

/// Those for whom something is to be closed, or was of late. Locked before the state of one of them.
static OWNERS: Mutex<BTreeMap<u32, Arc<Owner>>> = Mutex::new(BTreeMap::new());

fn owners() -> MutexGuard<'static, BTreeMap<u32, Arc<Owner>>> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the thread of this owner close a descriptor. Without memory for a thread it stays open until the next is closed.
fn close(fd: OwnedFd, number: u32) {
    let mut owners = owners();
    let owner = Arc::clone(owners.entry(number).or_default());
    let mut state = owner.state();
    state.waiting.push_back(fd);
    if state.has_thread {
        owner.more.notify_one();
        return;
    }
    let its = Arc::clone(&owner);
    let thread = Builder::new().name("closer".to_owned()).stack_size(STACK);
    state.has_thread = thread.spawn(move || run(number, &its)).is_ok();
}

/// Closes what is to be closed, until nothing has come for a while.
fn run(number: u32, owner: &Arc<Owner>) {
    let alarm = Alarm::new();
    loop {
        let mut state = owner.state();
        if state.waiting.is_empty() {
            let waited = owner.more.wait_timeout(state, IDLE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(fd) = state.waiting.pop_front() {
            drop(state);
            match &alarm {
                Ok(alarm) => alarm.during(|| drop(fd)),
                // It may linger; others of this owner wait for that.
                Err(_) => drop(fd),
            }
            continue;
        }
        drop(state);
        // In this order: what is closed from now on finds no owner, or waits for these locks.
        let mut owners = owners();
        let mut state = owner.state();
        if state.waiting.is_empty() {
            state.has_thread = false;
            owners.remove(&number);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::PacketSocket;
    use crate::poll::poll;
    use crate::sockopt;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    /// A socket that lingers for longer than any test, with bytes that its peer does not read, and the peer.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 1 << 16]).is_ok() {}
        let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
        sockopt::set(near.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
        (near.into(), far)
    }

    /// Whether the other end of a pair has been closed, which is waited for.
    fn is_closed(near: &UnixStream) -> bool {
        poll(&[near.as_fd()], Some(120_000_000_000)).unwrap().contains(0)
    }

    #[test]
    fn sockets_that_linger_are_closed_at_once() {
        let mut peers = Vec::new();
        for _ in 0..20 {
            let (socket, peer) = lingering();
            peers.push(peer);
            drop(Foreign::new(socket, 1));
            // The lingering socket is in the queue of a Unix socket, so that nothing shows that closing that may take long.
            let (socket, peer) = lingering();
            peers.push(peer);
            let (near, far) = PacketSocket::pair().unwrap();
            near.send(b"x", &[socket.as_fd()]).unwrap();
            drop(socket);
            drop(Foreign::new(far, 1));
            let (near, far) = UnixStream::pair().unwrap();
            drop(Foreign::new(far, 1));
            assert!(is_closed(&near));
        }
        // Nothing is lost by it.
        for mut peer in peers {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            assert!(all.len() > 1 << 16);
        }
    }

    #[test]
    fn what_is_closed_for_an_owner_is_closed_once_its_thread_has_ended() {
        for _ in 0..100 {
            let (near, far) = UnixStream::pair().unwrap();
            drop(Foreign::new(far, 4));
            assert!(is_closed(&near));
        }
        assert!(owners().contains_key(&4));
        let since = std::time::Instant::now();
        while owners().contains_key(&4) && since.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!owners().contains_key(&4), "its thread has not ended");
    }
}
