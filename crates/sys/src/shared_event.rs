//! Events that another process has as well (eventfd(2)).
//!
//! All descriptors of an event are one open file: each holder may clear its `O_NONBLOCK` and fill its counter. write(2)
//! then waits for a reader, who never comes if the holder is hostile, and no flag of a call keeps it from that: pwritev2(2)
//! with `RWF_NOWAIT` is not supported there. The kernel itself signals an event without waiting (`eventfd_signal`: a full
//! counter stays full, and sleepers are woken all the same). It does so when asynchronous IO completes that names the
//! event (`IOCB_FLAG_RESFD`, io_submit(2)). The IO here is a poll(2) of an event of this process alone, which is always
//! ready, so that it completes within the call.
//!
//! There is one context of asynchronous IO for the process, as the machine has few of them (`fs.aio-max-nr`): a process
//! that will signal events makes it when it starts ([`prepare`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::error::check;
use crate::foreign::Foreign;
use crate::poll::EventFd;

/// `IOCB_CMD_POLL` and `IOCB_FLAG_RESFD` (include/uapi/linux/aio_abi.h).
const IOCB_CMD_POLL: u16 = 5;
const IOCB_FLAG_RESFD: u32 = 1;

/// Completions that the context holds before they are taken out.
const COMPLETIONS: usize = 256;
/// Completions that are taken out at once.
const BATCH: usize = 64;
/// Submissions of one signal: another thread may use up what this one has taken out.
const TRIES: usize = 1000;

/// `struct iocb` (include/uapi/linux/aio_abi.h). `aio_key` and `aio_rw_flags`, whose order depends on the machine, are zero.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event`: four words.
type Completion = [u64; 4];

/// A context of asynchronous IO, and what its IO polls.
#[derive(Debug)]
struct Context {
    id: libc::c_ulong,
    ready: EventFd,
}

static CONTEXT: OnceLock<Context> = OnceLock::new();

impl Context {
    /// Returns the context of this process, which the first call makes.
    fn get() -> io::Result<&'static Context> {
        if let Some(context) = CONTEXT.get() {
            return Ok(context);
        }
        let new = Context::new()?;
        // Another thread may have been faster; its context is used then.
        Ok(CONTEXT.get_or_init(|| new))
    }

    fn new() -> io::Result<Context> {
        let ready = EventFd::new()?;
        ready.signal()?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word, to a live one.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, COMPLETIONS as u32, &raw mut id) };
        check(made as libc::c_int)?;
        Ok(Context { id, ready })
    }

    /// Has the kernel signal this event.
    fn signal(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        let mut iocb = Iocb {
            opcode: IOCB_CMD_POLL,
            fd: self.ready.as_fd().as_raw_fd() as u32,
            buf: libc::POLLIN as u64,
            flags: IOCB_FLAG_RESFD,
            resfd: event.as_raw_fd() as u32,
            ..Iocb::default()
        };
        for _ in 0..TRIES {
            let one = &raw mut iocb;
            // SAFETY: `one` is a pointer to a live iocb, and the list has one entry. The kernel writes its key, and uses
            // neither when the call has returned: the poll names no memory.
            let submitted =
                unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, &raw const one) };
            match check(submitted as libc::c_int) {
                // The completions of earlier signals take all places.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.take_completions()?
                }
                result => return result.map(drop),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Makes room for more completions.
    fn take_completions(&self) -> io::Result<()> {
        let mut taken: [Completion; BATCH] = [[0; 4]; BATCH];
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (least, most) = (0, BATCH as libc::c_long);
        // SAFETY: the kernel writes at most BATCH events, for which there is room, and reads one timespec.
        let got = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                least,
                most,
                taken.as_mut_ptr(),
                &raw const none,
            )
        };
        check(got as libc::c_int).map(drop)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is this process's, and nothing uses it any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// Makes what signals need, so that none fails later for want of it.
///
/// # Errors
/// `WouldBlock` if the processes of this machine have as many requests as `fs.aio-max-nr` allows; what io_setup(2) and
/// eventfd(2) say.
pub fn prepare() -> io::Result<()> {
    Context::get().map(drop)
}

/// Event that this process and another have: either may signal it, and the other may do to it what it likes.
#[derive(Debug)]
pub struct SharedEvent(Foreign<OwnedFd>);

impl SharedEvent {
    /// Makes an event that has not happened yet, for a process of this owner (see [`Foreign`]).
    ///
    /// # Errors
    /// The error of `eventfd`.
    pub fn new(owner: u32) -> io::Result<Self> {
        // SAFETY: eventfd takes integers and touches no memory of ours.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        Ok(SharedEvent::of(unsafe { OwnedFd::from_raw_fd(fd) }, owner))
    }

    /// An event that another process has made.
    pub fn of(fd: OwnedFd, owner: u32) -> Self {
        SharedEvent(Foreign::new(fd, owner))
    }

    /// Makes the descriptor readable, and wakes all that wait for it. Never waits, whatever other holders have done.
    ///
    /// # Errors
    /// Those of [`prepare`]; `InvalidInput` for a descriptor that is no event.
    pub fn signal(&self) -> io::Result<()> {
        Context::get()?.signal(self.0.as_fd())
    }
}

impl AsFd for SharedEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::Epoll;
    use crate::stream::set_nonblocking;
    use std::fs::File;
    use std::io::{Read, Write};

    /// Largest value of the counter of an event.
    const FULL: u64 = u64::MAX - 1;

    /// Another holder's descriptor of the same event.
    fn other(event: &SharedEvent) -> File {
        event.as_fd().try_clone_to_owned().unwrap().into()
    }

    #[test]
    fn a_signal_makes_an_event_readable() {
        let event = SharedEvent::new(0).unwrap();
        let mut set = Epoll::new().unwrap();
        set.add(&event, 7).unwrap();
        set.wait(0).unwrap();
        assert_eq!(set.ready().count(), 0);
        event.signal().unwrap();
        event.signal().unwrap();
        set.wait(0).unwrap();
        assert_eq!(set.ready().collect::<Vec<_>>(), [7]);
        let mut count = [0; 8];
        other(&event).read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 2);
    }

    #[test]
    fn a_signal_of_a_full_event_that_may_block_waits_for_nobody_and_is_an_edge() {
        let event = SharedEvent::new(0).unwrap();
        let mut hostile = other(&event);
        set_nonblocking(&hostile, false).unwrap();
        let mut set = Epoll::new().unwrap();
        set.add_edge(&event, 7, true, false).unwrap();
        hostile.write_all(&FULL.to_ne_bytes()).unwrap();
        set.wait(0).unwrap();
        // More of them than the context has places.
        for _ in 0..3 * COMPLETIONS {
            event.signal().unwrap();
            set.wait(0).unwrap();
            assert_eq!(set.ready().collect::<Vec<_>>(), [7]);
        }
    }

    #[test]
    fn threads_signal_at_the_same_time() {
        let event = SharedEvent::new(0).unwrap();
        let (threads, signals) = (4, 2000);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..signals).for_each(|_| event.signal().unwrap()));
            }
        });
        let mut count = [0; 8];
        other(&event).read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), threads * signals);
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let file = File::open("/dev/null").unwrap();
        let error = SharedEvent::of(file.into(), 0).signal().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
