//! Waiting on many descriptors (epoll(7)), level-triggered but where its name says otherwise.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::check;
use crate::poll::{self, Interest};

/// Most descriptors that one [`Epoll::wait`] reports.
const BATCH: usize = 64;

/// A set of descriptors, each with a number of the caller's.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    ready: Vec<libc::epoll_event>,
}

impl AsFd for Epoll {
    /// Readable while one of the set is to be reported.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// The error of `epoll_create1`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes an integer.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, ready: Vec::with_capacity(BATCH) })
    }

    /// Adds a descriptor, to be reported as `number` while it is readable or has failed. It leaves the set
    /// when the last descriptor of its open file is closed.
    ///
    /// # Errors
    /// The error of `epoll_ctl`: `AlreadyExists` for one that is in the set.
    pub fn add(&self, fd: impl AsFd, number: u64) -> io::Result<()> {
        self.add_for(fd, number, Interest::Read)
    }

    /// Adds a descriptor, to be reported as `number` while it has what `interest` asks for or has failed.
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn add_for(&self, fd: impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_fd(), number, interest)
    }

    /// Changes what a descriptor of the set is reported for, and as which number.
    ///
    /// # Errors
    /// The error of `epoll_ctl`: `NotFound` for one that is not in the set.
    pub fn change(&self, fd: impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_fd(), number, interest)
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd<'_>,
        number: u64,
        interest: Interest,
    ) -> io::Result<()> {
        // epoll's events have the values of poll's (epoll_ctl(2), `EPOLLIN` and `EPOLLOUT`).
        let mut event = libc::epoll_event { events: poll::events(interest) as u32, u64: number };
        let epoll = self.fd.as_raw_fd();
        // SAFETY: `event` is one readable epoll_event; both descriptors are open.
        check(unsafe { libc::epoll_ctl(epoll, operation, fd.as_raw_fd(), &mut event) }).map(drop)
    }

    /// Adds a descriptor, to be reported as `number` once whenever it becomes readable, or there is room to write to it,
    /// as far as each is asked for, and when it fails (`EPOLLET`).
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn add_edge(&self, fd: impl AsFd, number: u64, read: bool, write: bool) -> io::Result<()> {
        self.edge(libc::EPOLL_CTL_ADD, &fd, number, (read, write))
    }

    /// Changes what such a descriptor is reported for. What is so already is reported at once.
    ///
    /// # Errors
    /// The error of `epoll_ctl`: `NotFound` for one that is not in the set.
    pub fn change_edge(
        &self,
        fd: impl AsFd,
        number: u64,
        read: bool,
        write: bool,
    ) -> io::Result<()> {
        self.edge(libc::EPOLL_CTL_MOD, &fd, number, (read, write))
    }

    fn edge(
        &self,
        operation: libc::c_int,
        fd: &impl AsFd,
        number: u64,
        (read, write): (bool, bool),
    ) -> io::Result<()> {
        let part = |is: bool, event: libc::c_int| if is { event } else { 0 };
        let events = part(read, libc::EPOLLIN) | part(write, libc::EPOLLOUT) | libc::EPOLLET;
        let mut event = libc::epoll_event { events: events as u32, u64: number };
        let (epoll, fd) = (self.fd.as_raw_fd(), fd.as_fd());
        // SAFETY: `event` is one readable epoll_event; both descriptors are open.
        let result = unsafe { libc::epoll_ctl(epoll, operation, fd.as_raw_fd(), &mut event) };
        check(result).map(drop)
    }

    /// Removes a descriptor from the set.
    ///
    /// # Errors
    /// The error of `epoll_ctl`: `NotFound` for one that is not in the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        let (epoll, fd) = (self.fd.as_raw_fd(), fd.as_fd());
        // SAFETY: EPOLL_CTL_DEL ignores the event; both descriptors are open.
        let result = unsafe {
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut())
        };
        check(result).map(drop)
    }

    /// Waits until a descriptor is ready or `timeout` milliseconds have passed. A signal handler's
    /// interruption counts as none.
    ///
    /// # Errors
    /// The error of `epoll_wait`.
    pub fn wait(&mut self, timeout: u16) -> io::Result<()> {
        self.wait_for(timeout.into())
    }

    /// The same without a time-out.
    ///
    /// # Errors
    /// The error of `epoll_wait`.
    pub fn wait_forever(&mut self) -> io::Result<()> {
        self.wait_for(-1)
    }

    /// Nothing is ready, as far as was found out.
    pub fn forget(&mut self) {
        self.ready.clear();
    }

    fn wait_for(&mut self, timeout: libc::c_int) -> io::Result<()> {
        self.ready.clear();
        let (events, room) = (self.ready.as_mut_ptr(), BATCH as libc::c_int);
        // SAFETY: there is memory for BATCH events (reserved by `new`), of which the kernel writes
        // at most `room`.
        let ready = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events, room, timeout) };
        match check(ready) {
            // SAFETY: the kernel has written that many events, which is at most BATCH.
            Ok(ready) => unsafe { self.ready.set_len(ready as usize) },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The numbers of the descriptors that the last wait found ready, at most 64.
    pub fn ready(&self) -> impl Iterator<Item = u64> + '_ {
        self.ready.iter().map(|event| event.u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::EventFd;

    #[test]
    fn those_that_are_ready_are_reported_by_their_numbers() {
        let events: Vec<EventFd> = (0..100).map(|_| EventFd::new().unwrap()).collect();
        let mut epoll = Epoll::new().unwrap();
        for (event, number) in events.iter().zip(0..) {
            epoll.add(event, number).unwrap();
        }
        epoll.wait(0).unwrap();
        assert_eq!(epoll.ready().count(), 0);
        events[70].signal().unwrap();
        events[7].signal().unwrap();
        epoll.wait(1000).unwrap();
        let mut ready: Vec<u64> = epoll.ready().collect();
        ready.sort_unstable();
        assert_eq!(ready, [7, 70]);
        epoll.remove(&events[7]).unwrap();
        epoll.wait(1000).unwrap();
        assert!(epoll.ready().eq([70]));
        events.iter().for_each(|event| event.signal().unwrap());
        epoll.wait(1000).unwrap();
        assert_eq!(epoll.ready().count(), BATCH);
    }

    #[test]
    fn edges_are_reported_once() {
        use std::io::Write;
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut epoll = Epoll::new().unwrap();
        let found = |epoll: &mut Epoll| {
            epoll.wait(0).unwrap();
            epoll.ready().count()
        };
        epoll.add_edge(&near, 3, true, false).unwrap();
        assert_eq!(found(&mut epoll), 0);
        far.write_all(b"x").unwrap();
        assert_eq!([found(&mut epoll), found(&mut epoll)], [1, 0]);
        epoll.change_edge(&near, 3, false, true).unwrap();
        assert_eq!([found(&mut epoll), found(&mut epoll)], [1, 0]);
        epoll.change_edge(&near, 3, false, false).unwrap();
        assert_eq!(found(&mut epoll), 0);
        drop(far);
        assert_eq!([found(&mut epoll), found(&mut epoll)], [1, 0]);
    }

    #[test]
    fn a_socket_with_room_is_ready_to_be_written() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut epoll = Epoll::new().unwrap();
        epoll.add_for(&near, 3, Interest::Write).unwrap();
        epoll.wait(1000).unwrap();
        assert!(epoll.ready().eq([3]));
        epoll.remove(&near).unwrap();
        epoll.add_for(&near, 4, Interest::Read).unwrap();
        epoll.wait(0).unwrap();
        assert_eq!(epoll.ready().count(), 0);
    }
}
