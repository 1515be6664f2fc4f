//! A file of memory (memfd_create(2), tmpfs(5)) that another process maps, by a descriptor that it has sent.
//!
//! Whatever the other process does to the file, no call here ends this process: the file is read and written by calls, not
//! mapped, so that one which has become shorter gives no signal (SIGBUS).
//!
//! What the other process can do is make a write wait. It takes the lock of the inode, which every writer of the file has
//! while the kernel copies its bytes (generic_file_write_iter, mm/filemap.c): one whose bytes are in memory that does not
//! come, as of a file system that it answers itself (FUSE), has it for as long as it likes. The thread that writes here
//! sleeps until then, and no signal wakes it: SIGKILL ends this process only when the lock is free. So does a look for
//! holes. Reads, locks and the length take no such lock, and wait for nobody.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use crate::error::check;
use crate::vectored;

/// What tells files from each other: device, inode, and whether this is open for writing.
pub type Id = (u64, u64, bool);

/// See the module's documentation.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    id: Id,
}

impl MemoryFile {
    /// The file of this descriptor, opened anew: an open file description that the other process has may append
    /// whatever is written, by a flag that it can set at any time (`O_APPEND`). It may be written if that descriptor may.
    ///
    /// # Errors
    /// `InvalidInput` for anything but a file of a tmpfs that the descriptor may read; what open says, for example of a
    /// file that is not this user's.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let raw = fd.as_raw_fd();
        // Only files of memory have seals (memfd_file_seals_ptr, mm/memfd.c). That is asked first: a call that the file
        // system answers may wait for ever, where that is another process (FUSE).
        // SAFETY: fcntl with F_GET_SEALS takes no pointers; the descriptor is open.
        let seals = check(unsafe { libc::fcntl(raw, libc::F_GET_SEALS) })?;
        // SAFETY: fcntl with F_GETFL takes no pointers; the descriptor is open.
        let flags = check(unsafe { libc::fcntl(raw, libc::F_GETFL) })?;
        // SAFETY: all-zero is a valid statfs, and the kernel writes one.
        let mut of: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `of` is writable; the descriptor is open.
        check(unsafe { libc::fstatfs(raw, &raw mut of) })?;
        // hugetlbfs has seals as well, but no calls that write.
        if of.f_type != libc::TMPFS_MAGIC || flags & libc::O_ACCMODE == libc::O_WRONLY {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // No more than the other process may: it may have the descriptor of somebody who may more.
        let is_sealed = seals & (libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE) != 0;
        let writes = flags & libc::O_ACCMODE == libc::O_RDWR && !is_sealed;
        let mut options = File::options();
        // It waits for nobody who has a lease of the file (fcntl(2)).
        options.read(true).write(writes).custom_flags(libc::O_NONBLOCK);
        let file = options.open(format!("/proc/thread-self/fd/{raw}"))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(MemoryFile { file, id: (metadata.dev(), metadata.ino(), writes) })
    }

    /// Which it is.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Whether it may be written.
    pub fn writes(&self) -> bool {
        self.id.2
    }

    /// Whether it has so many bytes at this offset, and this process may write there: who writes behind the bound that
    /// setrlimit(2) sets for files is ended by a signal (`RLIMIT_FSIZE`).
    pub fn has(&self, at: u64, len: u64) -> bool {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is one rlimit that the kernel may write.
        let known = check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) });
        let end = at.checked_add(len).filter(|end| known.is_ok() && *end <= limit.rlim_cur);
        end.is_some_and(|end| self.len().is_ok_and(|len| end <= len))
    }

    /// Up to where all bytes from this one on, which it has, are in memory, so that writing them brings no page: that would be
    /// this process's (cgroups(7)), though the other has asked for it. The kernel looks at each page up to there.
    pub fn is_there_to(&self, at: u64) -> u64 {
        let Ok(begin) = libc::off_t::try_from(at) else { return at };
        // SAFETY: lseek takes integers and touches no memory of ours.
        let hole = unsafe { libc::lseek(self.file.as_raw_fd(), begin, libc::SEEK_HOLE) };
        // The end of the file counts as one.
        u64::try_from(hole).unwrap_or(at)
    }

    /// How long it is now. The position of the descriptor, which nothing uses, is the cheapest way to know.
    fn len(&self) -> io::Result<u64> {
        (&self.file).seek(SeekFrom::End(0))
    }

    /// Reads what is at this offset into places of the buffer, (begin, length) each, one behind the other. Returns how
    /// many bytes, which are fewer only where the file has ended.
    ///
    /// # Errors
    /// What preadv says, for no byte read. `InvalidInput` for places outside the buffer, or too many of them.
    pub fn read(&self, at: u64, buffer: &mut [u8], places: &[(usize, usize)]) -> io::Result<usize> {
        vectored::read(&self.file, at, buffer, places)
    }

    /// Stores these one behind the other from this offset on. Returns how many bytes, which are fewer where the file has
    /// ended. It does not grow, unless it was made shorter while this ran.
    ///
    /// # Errors
    /// What pwritev says, for no byte written. `InvalidInput` for too many of them.
    pub fn write(&self, at: u64, bytes: &[&[u8]]) -> io::Result<usize> {
        let most = self.len()?.saturating_sub(at);
        vectored::write(&self.file, at, bytes, most)
    }

    /// Locks the eight bytes at this offset against others that ask by this call, in any process; `None` if one has them. It
    /// is a lock of the open file description, far behind the file's end: locks that programs have of the file are others.
    ///
    /// # Errors
    /// What fcntl(2) says: `EBADF` for a file that may not be written.
    pub fn lock(&self, at: u64) -> io::Result<Option<Locked<'_>>> {
        match self.set_lock(at, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Locked { file: self, at })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set_lock(&self, at: u64, kind: libc::c_int) -> io::Result<()> {
        const BEHIND: u64 = 1 << 62;
        // SAFETY: all-zero is a valid flock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = (BEHIND | (at % BEHIND)) as libc::off_t;
        lock.l_len = 8;
        // SAFETY: `lock` is one flock that the kernel reads; the descriptor is open.
        let done =
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        check(done).map(drop)
    }
}

/// Bytes that are locked until this is dropped.
#[derive(Debug)]
pub struct Locked<'a> {
    file: &'a MemoryFile,
    at: u64,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = self.file.set_lock(self.at, libc::F_UNLCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileExt;

    /// A memfd of so many bytes.
    fn memfd(bytes: u64) -> File {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a NUL.
        let fd = check(unsafe { libc::memfd_create(c"wharf-test".as_ptr(), flags) }).unwrap();
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes).unwrap();
        file
    }

    fn given(file: &File) -> io::Result<MemoryFile> {
        MemoryFile::new(file.try_clone().unwrap().into())
    }

    fn fcntl(file: &File, command: libc::c_int, value: libc::c_int) {
        // SAFETY: these commands take integers; the descriptor is open.
        check(unsafe { libc::fcntl(file.as_raw_fd(), command, value) }).unwrap();
    }

    #[test]
    fn bytes_are_read_and_written_where_they_lie() {
        let file = memfd(10);
        file.write_all_at(b"0123456789", 0).unwrap();
        let memory = given(&file).unwrap();
        assert_eq!(memory.write(2, &[b"ab", b"", b"c"]).unwrap(), 3);
        let mut buffer = [b'-'; 8];
        assert_eq!(memory.read(1, &mut buffer, &[(5, 2), (0, 3)]).unwrap(), 5);
        assert_eq!(&buffer, b"bc5--1a-");
        assert!(memory.read(0, &mut buffer, &[(7, 2)]).is_err());
        assert!(memory.write(u64::MAX, &[b"x"]).is_err());
        assert_eq!(memory.read(8, &mut buffer, &[(0, 8)]).unwrap(), 2, "it ends there");
    }

    #[test]
    fn what_the_other_process_does_to_its_description_makes_no_difference() {
        let mut file = memfd(8);
        let memory = given(&file).unwrap();
        fcntl(&file, libc::F_SETFL, libc::O_APPEND);
        assert_eq!(memory.write(0, &[b"x"]).unwrap(), 1);
        file.write_all(b"behind").unwrap();
        assert_eq!(memory.write(1, &[b"y"]).unwrap(), 1);
        let mut all = [0; 20];
        assert_eq!(memory.read(0, &mut all, &[(0, 20)]).unwrap(), 14);
        assert_eq!(&all[..14], b"xy\0\0\0\0\0\0behind");
    }

    #[test]
    fn a_file_that_has_become_shorter_does_not_grow() {
        let file = memfd(8192);
        let memory = given(&file).unwrap();
        assert!(memory.has(0, 8192) && memory.has(8191, 1));
        assert!(!memory.has(0, 8193) && !memory.has(u64::MAX, 1) && !memory.has(8192, u64::MAX));
        file.set_len(10).unwrap();
        assert_eq!(memory.write(8, &[b"ab", b"cd"]).unwrap(), 2, "what there is room for");
        assert_eq!(memory.write(4096, &[b"x"]).unwrap(), 0);
        assert_eq!(file.metadata().unwrap().len(), 10);
        assert!(!memory.has(0, 11));
    }

    #[test]
    fn what_was_never_written_is_not_there() {
        // Whole pages, of whatever size.
        const PART: u64 = 1 << 16;
        let file = memfd(4 * PART);
        let memory = given(&file).unwrap();
        assert_eq!(memory.is_there_to(0), 0);
        file.write_all_at(&[1; 2 * PART as usize], PART).unwrap();
        assert_eq!([PART, 2 * PART].map(|at| memory.is_there_to(at)), [3 * PART; 2]);
        assert_eq!(memory.is_there_to(PART - 1), PART - 1);
        file.write_all_at(&[1; PART as usize], 0).unwrap();
        file.write_all_at(&[1; PART as usize], 3 * PART).unwrap();
        assert_eq!(memory.is_there_to(0), 4 * PART);
        assert_eq!(memory.is_there_to(u64::MAX), u64::MAX);
    }

    #[test]
    fn bytes_are_locked_by_one() {
        let file = memfd(4096);
        let (one, other) = (given(&file).unwrap(), given(&file).unwrap());
        let locked = one.lock(64).unwrap();
        assert!(locked.is_some() && other.lock(64).unwrap().is_none());
        assert!(other.lock(72).unwrap().is_some());
        drop(locked);
        assert!(other.lock(64).unwrap().is_some());
    }

    #[test]
    fn no_other_file_is_taken() {
        let (reader, writer) = io::pipe().unwrap();
        let mut others: Vec<OwnedFd> = vec![reader.into(), writer.into()];
        for path in ["/proc/self/mem", "/dev/null", "/proc/self/exe", "/dev/shm"] {
            others.push(File::open(path).unwrap().into());
        }
        others.push(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into());
        for other in others {
            assert!(MemoryFile::new(other).is_err());
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB;
        // SAFETY: the name ends with a NUL.
        let huge = unsafe { libc::memfd_create(c"wharf-test".as_ptr(), flags) };
        if huge >= 0 {
            // SAFETY: the call succeeded, so this is a new descriptor that nothing else owns.
            assert!(MemoryFile::new(unsafe { OwnedFd::from_raw_fd(huge) }).is_err());
        }
    }

    #[test]
    fn nobody_gains_the_right_to_write() {
        let file = memfd(4096);
        let of = |options: &mut std::fs::OpenOptions| {
            options.open(format!("/proc/thread-self/fd/{}", file.as_raw_fd())).unwrap()
        };
        let read_only = given(&of(File::options().read(true))).unwrap();
        assert!(!read_only.writes() && read_only.write(0, &[b"x"]).is_err());
        assert!(given(&of(File::options().write(true))).is_err(), "it may not be read");
        let both = given(&file).unwrap();
        assert!(both.writes() && both.id() != read_only.id());
        assert_eq!(both.id(), given(&file).unwrap().id());
        assert_ne!(both.id(), given(&memfd(4096)).unwrap().id());
        fcntl(&file, libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE);
        assert!(!given(&file).unwrap().writes());
        assert!(both.write(0, &[b"x"]).is_err(), "that is the kernel's rule");
    }
}
