//! wharf's end of what its guard reads.
//!
//! Writing never waits for a guard that does not read (stopped, or starved): of states that have
//! not begun to go out only the latest is kept.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use sys::poll::{Interest, PollSet};
use sys::process::close_first;

#[derive(Debug)]
pub(super) struct Link {
    socket: UnixStream,
    /// What is going out, and how much of it has.
    going: Vec<u8>,
    gone: usize,
    /// The latest state, if it has not begun to go out.
    next: Option<Vec<u8>>,
}

impl Link {
    /// A link that says `first`, and its other end.
    pub(super) fn new(first: Vec<u8>) -> io::Result<(Link, UnixStream)> {
        let (socket, other) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        // The guard goes to work when it closes.
        let socket = close_first(socket);
        Ok((Link { socket, going: first, gone: 0, next: None }, other))
    }

    /// Says something that must be said.
    pub(super) fn say(&mut self, message: &[u8]) {
        self.going.extend_from_slice(message);
    }

    /// Says what goes for all that was said of its kind before.
    pub(super) fn say_latest(&mut self, message: Vec<u8>) {
        self.next = Some(message);
    }

    /// Whether something waits to go out.
    pub(super) fn waits(&self) -> bool {
        self.gone < self.going.len() || self.next.is_some()
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    /// The guard has gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.waits() {
            if self.gone == self.going.len() {
                self.going = self.next.take().unwrap_or_default();
                self.gone = 0;
            }
            match self.socket.write(&self.going[self.gone..]) {
                Ok(written) => self.gone += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all, or as much as the guard has read by then.
    ///
    /// # Errors
    /// The guard has gone, or `TimedOut`.
    pub(super) fn flush_all(&mut self, by: Instant) -> io::Result<()> {
        loop {
            self.flush()?;
            if !self.waits() {
                return Ok(());
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut set = PollSet::new();
            set.add(self.socket.as_fd(), Interest::Write)?;
            set.wait(Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))?;
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reader_that_sleeps_gets_the_latest_and_holds_nothing_up() {
        let (mut link, mut other) = Link::new(vec![b'f'; 1 << 20]).unwrap();
        link.flush().unwrap();
        assert!(link.waits(), "a megabyte fits no socket's buffer");
        for digit in b'0'..=b'9' {
            link.say_latest(vec![digit; 10]);
            link.flush().unwrap();
        }
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).map(|_| all)
        });
        link.flush_all(Instant::now() + Duration::from_secs(60)).unwrap();
        drop(link);
        let all = reader.join().unwrap().unwrap();
        assert_eq!(all[1 << 20..], [b'9'; 10]);
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error() {
        let (mut link, other) = Link::new(vec![1]).unwrap();
        drop(other);
        assert!(link.flush().is_err());
    }
}
