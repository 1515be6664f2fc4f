//! The memory of another process, by a descriptor that the process itself has opened (`/proc/self/mem`, proc(5)).
//!
//! The descriptor stands for the address space, not for a process id: after execve(2) or the end of the process it reads
//! and writes nothing, whoever has the id then. And it needs no rights over the other process, in whichever user or PID
//! namespace that is: it has given its memory away. Pages are reached as by ptrace(2), so also those that the process
//! itself may only read.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::error::check;
use crate::vectored;

pub use crate::vectored::PARTS_MAX;

/// See the module's documentation.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// This process's own, as one that is to be given away.
    ///
    /// # Errors
    /// `NotFound` without /proc, `PermissionDenied` if the process is not dumpable (prctl(2), `PR_SET_DUMPABLE`).
    pub fn own() -> io::Result<OwnedFd> {
        File::options().read(true).write(true).open("/proc/self/mem").map(OwnedFd::from)
    }

    /// That of the process that has opened this. Whatever it sends, nothing here waits for it to be answered.
    ///
    /// # Errors
    /// `InvalidInput` if it is anything else than such a file; what fstatfs says.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let raw = fd.as_raw_fd();
        // A call that the file system answers may wait for ever, where that is another process (FUSE). The name of a link
        // and a position are the kernel's own. Files of such a file system may have the name, but none of them a position
        // behind the largest offset (`FMODE_UNSIGNED_OFFSET`), as addresses are (mem_lseek, fs/proc/base.c).
        let path = std::fs::read_link(format!("/proc/self/fd/{raw}"))?;
        let is_named = path.file_name().is_some_and(|name| name == "mem");
        if !is_named || !has_unsigned_positions(raw) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: all-zero is a valid statfs, and the kernel writes one.
        let mut of: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `of` is writable; the descriptor is open.
        check(unsafe { libc::fstatfs(raw, &raw mut of) })?;
        // Nothing else in proc has this name.
        if of.f_type != libc::PROC_SUPER_MAGIC {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(ProcessMemory(File::from(fd)))
    }

    /// Reads what lies at this address into places of the buffer, (begin, length) each, one behind the other. Returns
    /// how many bytes, which are fewer only where the memory is not there.
    ///
    /// # Errors
    /// What preadv says, for no byte read. `InvalidInput` for places outside the buffer, or more than [`PARTS_MAX`].
    pub fn read(
        &self,
        address: u64,
        buffer: &mut [u8],
        places: &[(usize, usize)],
    ) -> io::Result<usize> {
        vectored::read(&self.0, address, buffer, places)
    }

    /// Stores these one behind the other from this address on. Returns how many bytes, which are fewer only where the
    /// memory is not there or not writable.
    ///
    /// # Errors
    /// What pwritev says, for no byte written. `InvalidInput` for more than [`PARTS_MAX`].
    pub fn write(&self, address: u64, bytes: &[&[u8]]) -> io::Result<usize> {
        vectored::write(&self.0, address, bytes, u64::MAX)
    }
}

/// Whether there are positions that are negative as numbers. The position of the descriptor, which nothing uses, is 0
/// afterwards.
fn has_unsigned_positions(fd: RawFd) -> bool {
    const BEHIND: libc::off_t = libc::off_t::MIN;
    // SAFETY: lseek takes integers and touches no memory of ours.
    let position = unsafe { libc::lseek(fd, BEHIND, libc::SEEK_SET) };
    // SAFETY: the same.
    unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
    position == BEHIND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_and_written_where_they_lie() {
        let memory = ProcessMemory::new(ProcessMemory::own().unwrap()).unwrap();
        let mut bytes = *b"0123456789";
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        assert_eq!(memory.write(address + 2, &[b"ab", b"", b"c"]).unwrap(), 3);
        // The compiler cannot know of what the kernel has stored.
        assert_eq!(std::hint::black_box(&mut bytes), b"01abc56789");
        let mut buffer = [b'-'; 8];
        assert_eq!(memory.read(address + 1, &mut buffer, &[(5, 2), (0, 3)]).unwrap(), 5);
        assert_eq!(&buffer, b"bc5--1a-");
        assert!(memory.read(address, &mut buffer, &[(7, 2)]).is_err());
        assert!(memory.write(8, &[b"x"]).is_err(), "there is nothing");
        assert!(memory.write(u64::MAX, &[b"x"]).is_err());
    }

    #[test]
    fn no_other_file_is_taken() {
        for path in ["/proc/self/maps", "/proc/self/exe", "/dev/null"] {
            let file = File::open(path).unwrap();
            assert!(ProcessMemory::new(file.into()).is_err(), "{path}");
        }
    }

    /// A file system that does not answer is not asked: what it could be is known before.
    #[test]
    fn other_files_of_that_name_have_no_such_positions() {
        let folder = std::env::temp_dir().join(format!("wharf-mem-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let file = File::create(folder.join("mem")).unwrap();
        let (raw, has_them) = (file.as_raw_fd(), has_unsigned_positions(file.as_raw_fd()));
        let named = std::fs::read_link(format!("/proc/self/fd/{raw}")).unwrap();
        let is_refused = ProcessMemory::new(file.into()).is_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(named.ends_with("mem") && !has_them && is_refused);
        assert!(has_unsigned_positions(ProcessMemory::own().unwrap().as_raw_fd()));
    }

    #[test]
    fn a_process_that_is_gone_has_no_memory() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let path = format!("/proc/{}/mem", child.id());
        let fd = File::options().read(true).write(true).open(path).unwrap();
        let memory = ProcessMemory::new(fd.into()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // As a process of the same number would have it.
        let address = (&raw const child).expose_provenance() as u64;
        assert_eq!(memory.read(address, &mut [0; 8], &[(0, 8)]).unwrap_or(0), 0);
        assert_eq!(memory.write(address, &[b"x"]).unwrap_or(0), 0);
    }
}
