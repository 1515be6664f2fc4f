//! Memory that another process maps as well.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use crate::error::check;
use crate::mapping::Mapping;

/// Anonymous memory with a descriptor (memfd_create(2)), whose size cannot be changed by anyone who has that. It takes
/// room where it was touched.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Mapping,
    fd: OwnedFd,
}

impl SharedMemory {
    /// So many bytes, all zero, under a name that /proc shows.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes or a number that is no whole number of words; what memfd_create, ftruncate, fcntl
    /// and mmap say.
    pub fn new(name: &std::ffi::CStr, bytes: usize) -> io::Result<Self> {
        let len = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        if bytes == 0 || !bytes.is_multiple_of(size_of::<AtomicU64>()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: `name` ends with a NUL; the kernel copies it.
        let fd = check(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: ftruncate takes integers; the descriptor is open.
        check(unsafe { libc::ftruncate(fd.as_raw_fd(), len) })?;
        // Else who has the descriptor could shrink it, and a load here would end this process (SIGBUS).
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: fcntl with F_ADD_SEALS takes integers; the descriptor is open.
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
        let mapping = Mapping::shared_when_touched(fd.as_fd(), bytes)?;
        Ok(SharedMemory { mapping, fd })
    }

    /// What another process has made by [`new`](Self::new), mapped here as well.
    ///
    /// # Errors
    /// `InvalidInput` if its size can change, or is that of no words; what fcntl, fstat and mmap say.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: fcntl with F_GET_SEALS takes no pointers; the descriptor is open.
        let seals = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
        let fd = std::fs::File::from(fd);
        let bytes = usize::try_from(fd.metadata()?.len()).unwrap_or(0);
        let is_sealed = seals & libc::F_SEAL_SHRINK != 0;
        if !is_sealed || bytes == 0 || !bytes.is_multiple_of(size_of::<AtomicU64>()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = Mapping::shared_when_touched(fd.as_fd(), bytes)?;
        Ok(SharedMemory { mapping, fd: fd.into() })
    }

    /// The memory, in which others may write at any time.
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.mapping.len() / size_of::<AtomicU64>();
        // SAFETY: the mapping is page-aligned, `words` words long, readable and writable, and lives as long as `self`.
        // It cannot become shorter: its file is sealed. All access to it in this process is by these atomic words,
        // whose every value is valid, so that stores of another process at any time are races of atomics.
        unsafe { std::slice::from_raw_parts(self.mapping.start().as_ptr().cast(), words) }
    }

    /// Gives the room that these bytes take back to the operating system; they are zero then.
    ///
    /// # Errors
    /// What fallocate says.
    pub fn give_back(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let number = |n: usize| libc::off_t::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
        let (offset, bytes) = (number(offset)?, number(bytes)?);
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: fallocate takes integers; the descriptor is open. What it zeroes is atomic words.
        check(unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset, bytes) }).map(drop)
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Resident pages of shared memory.
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(2).unwrap().parse().unwrap()
    }

    #[test]
    fn what_is_not_touched_takes_no_room_and_what_is_given_back_is_zero() {
        let memory = SharedMemory::new(c"wharf-test", 1 << 30).unwrap();
        let before = resident();
        let words = memory.words();
        assert_eq!(words.len(), 1 << 27);
        words[1 << 26].store(7, Ordering::Relaxed);
        assert!(resident() - before < 1024, "4 MB at most of 1 GB");
        memory.give_back(1 << 29, 4096).unwrap();
        assert_eq!(words[1 << 26].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn another_process_maps_the_same() {
        let memory = SharedMemory::new(c"wharf-test", 8192).unwrap();
        let other = SharedMemory::open(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        memory.words()[1000].store(5, Ordering::Relaxed);
        assert_eq!(other.words()[1000].load(Ordering::Relaxed), 5);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(SharedMemory::open(file.into()).is_err(), "no memory that is sealed");
    }

    #[test]
    fn its_size_is_sealed() {
        let memory = SharedMemory::new(c"wharf-test", 8192).unwrap();
        for bytes in [0, 4096, 1 << 20] {
            // SAFETY: ftruncate takes integers; the descriptor is open.
            assert!(unsafe { libc::ftruncate(memory.as_fd().as_raw_fd(), bytes) } < 0);
        }
        for bytes in [0, 7] {
            assert!(SharedMemory::new(c"wharf-test", bytes).is_err());
        }
    }

    #[test]
    fn another_mapping_sees_the_same_words() {
        let memory = SharedMemory::new(c"wharf-test", 4096).unwrap();
        let other = Mapping::shared(memory.as_fd(), 0, 4096).unwrap();
        memory.words()[3].store(9, Ordering::Relaxed);
        // SAFETY: four words into a live mapping of 4096 bytes; nothing writes there meanwhile.
        assert_eq!(unsafe { other.start().as_ptr().cast::<u64>().add(3).read_volatile() }, 9);
    }
}
