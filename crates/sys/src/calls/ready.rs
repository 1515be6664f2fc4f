//! Calls that say what is ready.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

use super::{Answer, answer, fd};

/// By which call it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// poll(2).
    Poll,
    /// ppoll(2).
    Ppoll,
    /// select(2).
    Select,
    /// pselect(2).
    Pselect,
}

/// What is ready of these descriptors within so many milliseconds; -1 waits for ever. `revents`, or of select and
/// pselect what the three sets have of `POLLIN`, `POLLOUT` and `POLLPRI`.
///
/// # Errors
/// errno(3).
pub fn poll(fds: &[(BorrowedFd<'_>, i16)], timeout: i32, call: Call) -> Answer<(usize, Vec<i16>)> {
    match call {
        Call::Poll | Call::Ppoll => by_poll(fds, timeout, call),
        Call::Select | Call::Pselect => by_select(fds, timeout, call),
    }
}

fn timespec(timeout: i32) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::from(timeout / 1000),
        tv_nsec: libc::c_long::from(timeout % 1000) * 1_000_000,
    }
}

fn by_poll(fds: &[(BorrowedFd<'_>, i16)], timeout: i32, call: Call) -> Answer<(usize, Vec<i16>)> {
    let entry = |(fd, events): &(BorrowedFd<'_>, i16)| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: *events,
        revents: 0,
    };
    let mut all: Vec<libc::pollfd> = fds.iter().map(entry).collect();
    let count = all.len() as libc::nfds_t;
    let time = timespec(timeout);
    let time = if timeout < 0 { null() } else { &raw const time };
    // SAFETY: `all` is writable for its length, and `time` is null or readable.
    let result = answer(unsafe {
        match call {
            Call::Poll => libc::poll(all.as_mut_ptr(), count, timeout),
            _ => libc::ppoll(all.as_mut_ptr(), count, time, null()),
        }
    });
    result.map(|count| (count, all.iter().map(|entry| entry.revents).collect()))
}

fn by_select(fds: &[(BorrowedFd<'_>, i16)], timeout: i32, call: Call) -> Answer<(usize, Vec<i16>)> {
    const BITS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    // SAFETY: integers only, for which zeros are valid: three empty sets.
    let mut sets: [libc::fd_set; 3] = unsafe { std::mem::zeroed() };
    let mut most = 0;
    for (fd, events) in fds {
        let fd = fd.as_raw_fd();
        assert!((fd as usize) < libc::FD_SETSIZE, "select(2) takes no descriptor {fd}");
        most = most.max(fd + 1);
        for (set, bit) in sets.iter_mut().zip(BITS) {
            if events & bit != 0 {
                // SAFETY: the descriptor is less than FD_SETSIZE.
                unsafe { libc::FD_SET(fd, set) };
            }
        }
    }
    let [read, write, except] = &mut sets;
    let at = timespec(timeout);
    let mut of = libc::timeval { tv_sec: at.tv_sec, tv_usec: at.tv_nsec / 1000 };
    let is_endless = timeout < 0;
    // SAFETY: the sets are writable, and so is the time if there is one.
    let result = answer(unsafe {
        match call {
            Call::Select => {
                let time = if is_endless { null_mut() } else { &raw mut of };
                libc::select(most, read, write, except, time)
            }
            _ => {
                let time = if is_endless { null() } else { &raw const at };
                libc::pselect(most, read, write, except, time, null())
            }
        }
    });
    let found = |fd: i32| {
        let is_in = |(set, bit): (&libc::fd_set, i16)| {
            // SAFETY: the descriptor is less than FD_SETSIZE.
            if unsafe { libc::FD_ISSET(fd, set) } { bit } else { 0 }
        };
        sets.iter().zip(BITS).map(is_in).sum()
    };
    result.map(|count| (count, fds.iter().map(|(fd, _)| found(fd.as_raw_fd())).collect()))
}

/// One event of epoll(7): what is ready, and the number that was given with the descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Event {
    /// The number.
    pub data: u64,
    /// `EPOLLIN` and others.
    pub events: u32,
}

/// A set of epoll(7).
#[derive(Debug)]
pub struct Set(OwnedFd);

impl Set {
    /// An empty set.
    ///
    /// # Errors
    /// That of epoll_create1(2).
    pub fn new() -> io::Result<Self> {
        // SAFETY: it takes an integer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this descriptor, which nothing else owns.
        Ok(Set(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// epoll_ctl(2) with this operation.
    ///
    /// # Errors
    /// errno(3).
    pub fn control(&self, op: i32, of: impl AsFd, event: Event) -> Answer {
        let mut event = libc::epoll_event { events: event.events, u64: event.data };
        // SAFETY: `event` is readable.
        answer(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd(of), &raw mut event) })
    }

    /// epoll_wait(2) for at most so many events, in the order of their numbers, and so many milliseconds.
    ///
    /// # Errors
    /// errno(3).
    pub fn wait(&self, most: usize, timeout: i32) -> Answer<Vec<Event>> {
        let mut all = vec![libc::epoll_event { events: 0, u64: 0 }; most];
        // SAFETY: `all` is writable for its length.
        let found = answer(unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), all.as_mut_ptr(), most as libc::c_int, timeout)
        })?;
        let event = |event: &libc::epoll_event| Event { data: event.u64, events: event.events };
        let mut all: Vec<Event> = all[..found].iter().map(event).collect();
        all.sort_unstable();
        Ok(all)
    }
}
