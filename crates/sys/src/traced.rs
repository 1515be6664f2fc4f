//! What belongs to another process: its descriptors and its memory, for as long as a thread of it waits.

mod search;

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::check;

pub use search::Search;

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

    /// Whether it can have another descriptor (`RLIMIT_NOFILE`), as far as is told: before Linux 6.2 it can.
    ///
    /// # Errors
    /// Those of stat(2) and of reading `/proc/PID/limits`.
    pub fn can_have_descriptors(&self) -> io::Result<bool> {
        let open = fs::metadata(format!("/proc/{}/fd", self.number))?.len();
        if open == 0 {
            return Ok(true);
        }
        // SAFETY: integers only, for which zeros are valid.
        let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
        let process = self.number as libc::pid_t;
        // SAFETY: the kernel writes one rlimit, and reads none.
        let asked = unsafe {
            libc::prlimit(process, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit)
        };
        if check(asked).is_ok() {
            return Ok(open < limit.rlim_cur);
        }
        // It is another user's. All may read this.
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.number))?;
        let most = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let most = most.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        Ok(most.is_none_or(|most| open < most))
    }

    /// The process whose thread it is.
    ///
    /// # Errors
    /// `NotFound` if there is no such thread.
    pub fn process(&self) -> io::Result<u32> {
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

    /// Descriptors of its that are epoll sets.
    ///
    /// # Errors
    /// Those of reading `/proc/PID/fd`.
    pub fn epoll_sets(&self) -> io::Result<Vec<i32>> {
        let is_one = |path: &Path| {
            fs::read_link(path).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventpoll]")
        };
        let all = fs::read_dir(format!("/proc/{}/fd", self.number))?;
        let sets = all.flatten().map(|entry| entry.path()).filter(|path| is_one(path));
        Ok(sets.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect())
    }

    /// Whether a descriptor's file is in one of its epoll sets, by the number of that descriptor (kcmp(2)).
    ///
    /// # Errors
    /// `Unsupported` if the kernel was built without kcmp(2), and others of it.
    pub fn is_in_set(&self, fd: i32, set: i32) -> io::Result<bool> {
        /// Files that can be in a set by one number: those before the last were closed while others had them.
        const SAME_NUMBER_MAX: u32 = 64;
        for place in 0..SAME_NUMBER_MAX {
            let slot = EpollSlot { set: set as u32, fd: fd as u32, place };
            let (call, one) = (libc::SYS_kcmp, self.number);
            // SAFETY: the kernel reads one slot, laid out as it has it.
            let found =
                unsafe { libc::syscall(call, one, one, KCMP_EPOLL_TFD, fd, &raw const slot) };
            match check(found as libc::c_int) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
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

/// include/uapi/linux/kcmp.h.
const KCMP_EPOLL_TFD: libc::c_int = 7;

/// `struct kcmp_epoll_slot`.
#[repr(C)]
struct EpollSlot {
    set: u32,
    fd: u32,
    /// Which of those of that number.
    place: u32,
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
        assert!(thread.can_have_descriptors().unwrap());
        assert_eq!(thread.process().unwrap(), std::process::id());
        let set = crate::epoll::Epoll::new().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        set.add(&near, 1).unwrap();
        let number = set.as_fd().as_raw_fd();
        assert!(thread.epoll_sets().unwrap().contains(&number));
        let is_in = |one: &std::os::unix::net::UnixStream| {
            thread.is_in_set(one.as_raw_fd(), number).unwrap()
        };
        assert!(is_in(&near) && !is_in(&far));
        assert!(thread.is_in_set(near.as_raw_fd(), -1).is_err());
        let none = Thread::of_number(0);
        assert!(none.open_memory().is_err() && none.descriptor(0).is_err());
    }
}
