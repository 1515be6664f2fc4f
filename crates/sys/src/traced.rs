//! What belongs to another process: its descriptors and its memory, for as long as a thread of it waits.

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::error::check;

/// A thread of another process, which this one may trace (ptrace(2), "Ptrace access mode checking").
///
/// It is known by its number, which may be another's soon: what is found is of that thread only if that still waits
/// afterwards for the answer for which it was told (`seccomp::Listener::waits`).
#[derive(Debug)]
pub struct Thread {
    number: u32,
    /// Stays that of this thread's process, whoever has the number.
    memory: OnceCell<File>,
}

impl Thread {
    /// The thread of this number.
    pub fn of_number(number: u32) -> Self {
        Thread { number, memory: OnceCell::new() }
    }

    /// Its memory, from the first call on: what is behind that is the same process's.
    ///
    /// # Errors
    /// `NotFound` if there is no such thread, `PermissionDenied` if it may not be traced.
    pub fn open_memory(&self) -> io::Result<&File> {
        if let Some(memory) = self.memory.get() {
            return Ok(memory);
        }
        let path = format!("/proc/{}/mem", self.number);
        let memory = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(self.memory.get_or_init(|| memory))
    }

    /// Another descriptor for a file of the thread's.
    ///
    /// # Errors
    /// `EBADF` if it has no such descriptor.
    pub fn descriptor(&self, fd: i32) -> io::Result<OwnedFd> {
        let pidfd = self.pidfd()?;
        // SAFETY: it takes integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
        let fd = check(fd as libc::c_int)?;
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A descriptor of the thread, readable when it has ended; before Linux 6.9, of its process.
    fn pidfd(&self) -> io::Result<OwnedFd> {
        let open = |number: u32, flags: libc::c_uint| -> io::Result<OwnedFd> {
            // SAFETY: it takes integers.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, flags) };
            let fd = check(fd as libc::c_int)?;
            // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        match open(self.number, libc::PIDFD_THREAD) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => open(self.process()?, 0),
            result => result,
        }
    }

    /// The process whose thread it is.
    fn process(&self) -> io::Result<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.number))?;
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        process.and_then(|text| text.trim().parse().ok()).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Whether a descriptor is closed by execve(2).
    ///
    /// # Errors
    /// `NotFound` if there is no such descriptor.
    pub fn closes_at_exec(&self, fd: i32) -> io::Result<bool> {
        let info = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.number))?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|text| i64::from_str_radix(text.trim(), 8).ok());
        Ok(flags.is_some_and(|flags| flags & i64::from(libc::O_CLOEXEC) != 0))
    }

    /// Reads its memory from this address on.
    ///
    /// # Errors
    /// `EFAULT` if not all of it can be read, and those of [`open_memory`](Self::open_memory).
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.open_memory()?.read_exact_at(into, at).map_err(|_| fault())
    }

    /// Writes to its memory from this address on. That it is for reading only is no hindrance (proc_pid_mem(5)).
    ///
    /// # Errors
    /// `EFAULT` if not all of it can be written, and those of [`open_memory`](Self::open_memory).
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.open_memory()?.write_all_at(bytes, at).map_err(|_| fault())
    }
}

fn fault() -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn memory_and_descriptors_of_a_thread_are_found() {
        // A process may do all that to itself.
        let thread = Thread::of_number(std::process::id());
        let mut cell = Box::new(*b"before");
        let at = cell.as_mut_ptr() as u64;
        let mut found = [0; 6];
        thread.read(at, &mut found).unwrap();
        assert_eq!(&found, b"before");
        thread.write(at, b"behind").unwrap();
        // SAFETY: the bytes are those of the box, read anew.
        assert_eq!(unsafe { (&raw const *cell).read_volatile() }, *b"behind");
        for wrong in [0, u64::MAX, u64::MAX / 2] {
            let error = thread.read(wrong, &mut found).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
            assert!(thread.write(wrong, &found).is_err());
        }
        let file = File::open("/dev/null").unwrap();
        let other = thread.descriptor(file.as_raw_fd()).unwrap();
        assert!(other.as_fd().as_raw_fd() != file.as_raw_fd());
        assert!(thread.closes_at_exec(file.as_raw_fd()).unwrap());
        assert_eq!(thread.descriptor(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(thread.closes_at_exec(-1).is_err());
        assert_eq!(thread.process().unwrap(), std::process::id());
        let none = Thread::of_number(0);
        assert!(none.open_memory().is_err() && none.descriptor(0).is_err());
    }
}
