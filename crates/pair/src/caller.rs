//! A thread of the program's that waits for the answer to its call.

use std::io;
use std::os::fd::AsFd;

use sys::seccomp::{Answer, Listener, Waiting};
use sys::stream::Name;
use sys::traced::Thread;

use crate::call::Room;
use crate::theirs::Theirs;

/// Why a call is not answered with what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It does not wait any more: a signal, or the thread's end.
    Gone,
    /// It has this error of errno(3).
    Error(i32),
    /// It is the kernel's: nothing is known of the thread, or it is none of the supervisor's.
    Kernel,
}

/// How a call went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// It has this result.
    With(i64),
    /// It has its result already, or waits on.
    Elsewhere,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or(Fault::Kernel, Fault::Error)
    }
}

/// See the module's documentation.
pub(crate) struct Caller<'a> {
    listener: &'a Listener,
    pub(crate) waiting: Waiting,
    thread: Thread,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(listener: &'a Listener, waiting: Waiting) -> Self {
        Caller { listener, waiting, thread: Thread::of_number(waiting.thread) }
    }

    /// Whether the call waits still.
    pub(crate) fn waits(&self) -> bool {
        self.listener.waits(self.waiting.id)
    }

    /// What was found counts only if the call waits still.
    fn checked<T>(&self, found: T) -> Result<T, Fault> {
        if self.waits() { Ok(found) } else { Err(Fault::Gone) }
    }

    /// Another descriptor for one of its files.
    pub(crate) fn file(&self, fd: i32) -> Result<Theirs, Fault> {
        // What is wrong with it, the kernel says.
        let file = self.thread.descriptor(fd).map(Theirs::new).map_err(|_| Fault::Kernel)?;
        self.checked(file)
    }

    /// Whether a descriptor is closed by execve(2).
    pub(crate) fn closes_at_exec(&self, fd: i32) -> Result<bool, Fault> {
        let closes = self.thread.closes_at_exec(fd).map_err(|_| Fault::Kernel)?;
        self.checked(closes)
    }

    /// Whether its process can have another descriptor. Where the kernel does not tell, it can.
    pub(crate) fn can_have_descriptors(&self) -> Result<bool, Fault> {
        self.checked(self.thread.can_have_descriptors().unwrap_or(true))
    }

    /// Its epoll sets.
    pub(crate) fn epoll_sets(&self) -> Result<Vec<i32>, Fault> {
        let sets = self.thread.epoll_sets().map_err(|_| Fault::Kernel)?;
        self.checked(sets)
    }

    /// Whether a descriptor is in one of them. Where the kernel does not tell, it is not.
    pub(crate) fn is_in_set(&self, fd: i32, set: i32) -> bool {
        self.thread.is_in_set(fd, set).unwrap_or(false)
    }

    /// Its memory may be used from now on: it is that of the thread whose call this is.
    fn open(&self) -> Result<(), Fault> {
        self.thread.open_memory().map_err(|_| Fault::Kernel)?;
        self.checked(())
    }

    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.open()?;
        self.thread.read(at, into)?;
        self.checked(())
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.open()?;
        Ok(self.thread.write(at, bytes)?)
    }

    /// An int of its memory.
    pub(crate) fn read_int(&self, at: u64) -> Result<i32, Fault> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Writes a name, as far as there is room for it, and how long it is (move_addr_to_user).
    pub(crate) fn write_name(&self, room: Room, name: &Name) -> Result<(), Fault> {
        let len = self.read_int(room.len_at)?;
        let len = usize::try_from(len).map_err(|_| Fault::Error(libc::EINVAL))?;
        let bytes = name.bytes();
        self.write(room.at, &bytes[..len.min(bytes.len())])?;
        self.write(room.len_at, &(bytes.len() as i32).to_ne_bytes())
    }

    /// Ends the call. Returns whether it has this result, or was not to have one: not if it had ended before.
    pub(crate) fn end(&self, result: Result<Done, Fault>) -> bool {
        let answer = match result {
            Ok(Done::With(value)) => Answer::Value(value),
            Err(Fault::Error(error)) => Answer::Error(error),
            Err(Fault::Kernel) => Answer::Kernel,
            Ok(Done::Elsewhere) => return true,
            Err(Fault::Gone) => return false,
        };
        self.listener.answer(self.waiting.id, answer)
    }

    /// Ends the call with a new descriptor for this file, which is returned.
    pub(crate) fn give(&self, file: impl AsFd, closes_at_exec: bool) -> Result<i32, Fault> {
        let given = self.listener.give(self.waiting.id, file, closes_at_exec);
        given.map_err(gone_or_error)
    }

    /// The descriptor is this file from now on.
    pub(crate) fn put(&self, file: impl AsFd, fd: i32) -> Result<(), Fault> {
        let closes = self.closes_at_exec(fd)?;
        let put = self.listener.put(self.waiting.id, file, fd as u32, closes);
        put.map_err(gone_or_error)
    }
}

fn gone_or_error(error: io::Error) -> Fault {
    match error.raw_os_error() {
        // ESRCH for one that ends while it is to have the file.
        Some(libc::ENOENT | libc::ESRCH) => Fault::Gone,
        _ => error.into(),
    }
}
