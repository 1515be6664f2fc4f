//! Waiting: ppoll(2) with nanosecond timeouts over a handful of descriptors, an event to wake a
//! waiting thread with, and signals as something to wait for.

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::clock;
use crate::error::check;
use crate::process::Signal;

/// Most descriptors of a [`PollSet`] by default, and of one call of [`poll`].
pub const CAPACITY: usize = 32;

/// Too many descriptors for a [`PollSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {capacity} descriptors to wait for at once")]
pub struct Full {
    /// Most descriptors of the set.
    pub capacity: usize,
}

impl From<Full> for io::Error {
    fn from(full: Full) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, full)
    }
}

/// Events to wait for on a descriptor. Errors and hang-ups are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Readable.
    Read,
    /// Writable.
    Write,
    /// Either.
    ReadWrite,
}

/// A small set of descriptors to wait for, at most `N`. It allocates nothing.
pub struct PollSet<'fd, const N: usize = CAPACITY> {
    fds: [libc::pollfd; N],
    length: usize,
    borrows: PhantomData<BorrowedFd<'fd>>,
}

impl PollSet<'_> {
    /// An empty set of [`CAPACITY`].
    pub fn new() -> Self {
        Self::empty()
    }
}

impl<'fd, const N: usize> PollSet<'fd, N> {
    /// An empty set.
    pub fn empty() -> Self {
        let empty = libc::pollfd { fd: -1, events: 0, revents: 0 };
        Self { fds: [empty; N], length: 0, borrows: PhantomData }
    }

    /// Adds a descriptor and returns its position, by which the other methods identify it.
    ///
    /// # Errors
    /// [`Full`] if the set holds `N` descriptors already; it is unchanged.
    pub fn add(&mut self, fd: BorrowedFd<'fd>, interest: Interest) -> Result<usize, Full> {
        let position = self.length;
        let place = self.fds.get_mut(position).ok_or(Full { capacity: N })?;
        *place = libc::pollfd { fd: fd.as_raw_fd(), events: events(interest), revents: 0 };
        self.length += 1;
        Ok(position)
    }

    /// Changes the events to wait for at `position`.
    pub fn set_interest(&mut self, position: usize, interest: Interest) {
        self.fds[..self.length][position].events = events(interest);
    }

    /// Waits until a descriptor is ready or `timeout` nanoseconds have passed (`None`: without a bound; 0:
    /// not at all). Returns how many are ready; an interruption by a signal handler counts as none.
    pub fn wait(&mut self, timeout: Option<u64>) -> io::Result<usize> {
        let timeout = timeout.map(clock::timespec);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let fds = &mut self.fds[..self.length];
        // SAFETY: `fds` is that many valid pollfds; `timeout` is null or points to a timespec that
        // outlives the call; a null signal mask leaves the thread's own.
        let ready = check(unsafe {
            libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, ptr::null())
        });
        match ready {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                fds.iter_mut().for_each(|fd| fd.revents = 0);
                Ok(0)
            }
            ready => ready.map(|ready| ready as usize),
        }
    }

    /// Whether the last wait found data, the end of the stream or an error at `position`: then reading will
    /// not block.
    pub fn readable(&self, position: usize) -> bool {
        self.found(position, libc::POLLIN | libc::POLLHUP | libc::POLLERR)
    }

    /// Whether the last wait found room to write, or an error, at `position`.
    pub fn writable(&self, position: usize) -> bool {
        self.found(position, libc::POLLOUT | libc::POLLERR)
    }

    /// Whether the last wait found an error or a hang-up at `position` (a TAP whose interface was deleted, an
    /// interface that is gone).
    pub fn failed(&self, position: usize) -> bool {
        self.found(position, libc::POLLERR | libc::POLLHUP | libc::POLLNVAL)
    }

    fn found(&self, position: usize, events: libc::c_short) -> bool {
        self.fds[..self.length][position].revents & events != 0
    }
}

impl<const N: usize> Default for PollSet<'_, N> {
    fn default() -> Self {
        Self::empty()
    }
}

/// The events of poll(2) that `interest` asks for.
pub(crate) fn events(interest: Interest) -> libc::c_short {
    match interest {
        Interest::Read => libc::POLLIN,
        Interest::Write => libc::POLLOUT,
        Interest::ReadWrite => libc::POLLIN | libc::POLLOUT,
    }
}

/// Which of the descriptors given to [`poll`] are ready, by their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready(u32);

impl Ready {
    /// Whether the descriptor at `position` is ready.
    pub fn contains(self, position: usize) -> bool {
        position < CAPACITY && self.0 >> position & 1 == 1
    }

    /// Whether none is: the time has passed, or a signal handler has interrupted the wait.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Waits until one of `fds` is readable (or has failed) or `timeout` nanoseconds have passed
/// (`None`: for ever). `InvalidInput` for more than [`CAPACITY`] descriptors.
pub fn poll(fds: &[BorrowedFd<'_>], timeout: Option<u64>) -> io::Result<Ready> {
    let mut set = PollSet::new();
    for fd in fds {
        set.add(*fd, Interest::Read)?;
    }
    set.wait(timeout)?;
    let ready = |position: usize| set.readable(position) || set.failed(position);
    Ok(Ready((0..fds.len()).fold(0, |bits, at| bits | u32::from(ready(at)) << at)))
}

/// An event that one thread signals and another waits for (eventfd(2)). Any number of signals
/// before a [`drain`](Self::drain) count as one.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

/// One that another process has made.
impl From<OwnedFd> for EventFd {
    fn from(fd: OwnedFd) -> Self {
        EventFd(fd)
    }
}

impl EventFd {
    /// An event that has not happened yet.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes integers and touches no memory of ours.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) -> io::Result<()> {
        let one = 1u64;
        // SAFETY: `one` is eight readable bytes.
        let written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
        match check(written as libc::c_int) {
            // The counter is full of signals that were not drained: it is readable already.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result.map(drop),
        }
    }

    /// Clears all signals so far; returns whether there were any.
    pub fn drain(&self) -> io::Result<bool> {
        let mut count = 0u64;
        // SAFETY: `count` is eight writable bytes.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
        match check(read as libc::c_int) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            result => result.map(|_| true),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `SIGINT`, `SIGTERM`, `SIGHUP` and `SIGCHLD` as something to poll and read (signalfd(2)).
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the four signals for the calling thread and every thread that it starts from now on, and
    /// returns the descriptor at which they arrive. SIGHUP stays ignored if it is ignored (nohup(1)). To be
    /// called before threads are started: a thread that does not block a signal is killed by it. They stay
    /// blocked when this is dropped. Child processes started by [`std::process::Command`] have them unblocked
    /// again.
    pub fn block() -> io::Result<Self> {
        // SAFETY: sigset_t is made of integers; sigemptyset then gives it its true empty value.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: `set` is a valid sigset_t.
        unsafe { libc::sigemptyset(&mut set) };
        for signal in [Signal::Interrupt, Signal::Terminate, Signal::HangUp, Signal::Child] {
            // A blocked signal arrives even if it is ignored, against the purpose of nohup(1).
            if signal == Signal::HangUp && is_ignored(signal) {
                continue;
            }
            // SAFETY: `set` is a valid sigset_t and the number is that of a signal.
            unsafe { libc::sigaddset(&mut set, signal.number()) };
        }
        // SAFETY: `set` is a valid sigset_t; a null old set is allowed.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        // SAFETY: `set` is a valid sigset_t; -1 asks for a new descriptor.
        let fd =
            check(unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, if there is one.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        // SAFETY: signalfd_siginfo is made of integers, for which all zeroes is a valid value.
        let mut info: libc::signalfd_siginfo = unsafe { mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: `info` is `size` writable bytes.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        match check(read as libc::c_int) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Signal::from_number(info.ssi_signo as i32)),
        }
    }
}

/// Whether this process ignores the signal.
fn is_ignored(signal: Signal) -> bool {
    // SAFETY: sigaction is made of integers, for which all zeroes is a valid value; its handler is
    // an integer too, and 0 is SIG_DFL.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null new action changes nothing, and `action` is a valid place for the old one.
    let result = unsafe { libc::sigaction(signal.number(), ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_ready_until_it_is_drained() {
        let (quiet, event) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let fds = [quiet.as_fd(), event.as_fd()];
        assert!(poll(&fds, Some(0)).unwrap().is_empty());
        event.signal().unwrap();
        event.signal().unwrap();
        let ready = poll(&fds, None).unwrap();
        assert!(ready.contains(1) && !ready.contains(0) && !ready.contains(99));
        assert!(event.drain().unwrap());
        assert!(!event.drain().unwrap());
        assert!(poll(&fds, Some(1000)).unwrap().is_empty());
    }

    #[test]
    fn a_set_reports_what_it_was_asked_for() {
        let event = EventFd::new().unwrap();
        let mut set = PollSet::new();
        let at = set.add(event.as_fd(), Interest::Read).unwrap();
        assert_eq!(set.wait(Some(0)).unwrap(), 0);
        set.set_interest(at, Interest::ReadWrite);
        assert_eq!(set.wait(None).unwrap(), 1);
        assert!(set.writable(at) && !set.readable(at) && !set.failed(at));
    }

    #[test]
    fn the_far_end_closing_is_a_failure_and_readable() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(far);
        let mut set = PollSet::new();
        let at = set.add(near.as_fd(), Interest::Read).unwrap();
        set.wait(None).unwrap();
        assert!(set.failed(at) && set.readable(at));
    }

    fn is_ignored(signal: Signal) -> bool {
        // SAFETY: zeros are a valid sigaction, which the call overwrites; it changes nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal.number(), std::ptr::null(), &mut action);
            action.sa_sigaction == libc::SIG_IGN
        }
    }

    #[test]
    fn blocked_signals_arrive_where_they_are_read() {
        std::thread::spawn(|| {
            let signals = Signals::block().unwrap();
            assert_eq!(signals.read().unwrap(), None);
            for signal in [Signal::HangUp, Signal::Interrupt, Signal::Child, Signal::Terminate] {
                if is_ignored(signal) {
                    // As SIGHUP is under nohup: it never arrives.
                    continue;
                }
                // SAFETY: raise takes an integer; it sends to this thread, which blocks the signal.
                unsafe { libc::raise(signal.number()) };
                assert!(poll(&[signals.as_fd()], None).unwrap().contains(0));
                assert_eq!(signals.read().unwrap(), Some(signal));
                assert_eq!(signals.read().unwrap(), None);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let event = EventFd::new().unwrap();
        let fds = [event.as_fd(); CAPACITY + 1];
        assert_eq!(poll(&fds, Some(0)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(poll(&fds[1..], Some(0)).unwrap().is_empty());
    }

    #[test]
    fn a_full_set_refuses_one_more_and_serves_those_that_it_has() {
        const MANY: usize = 130;
        let (quiet, event) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        event.signal().unwrap();
        let mut set = PollSet::<MANY>::empty();
        for at in 0..MANY - 1 {
            assert_eq!(set.add(quiet.as_fd(), Interest::Read), Ok(at));
        }
        let last = set.add(event.as_fd(), Interest::Read).unwrap();
        assert_eq!(set.add(event.as_fd(), Interest::Read), Err(Full { capacity: MANY }));
        assert_eq!(set.wait(None).unwrap(), 1);
        assert!(set.readable(last) && !set.readable(0));
        let error = io::Error::from(Full { capacity: MANY });
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("130"), "{error}");
    }
}
