//! Memory of the program's that is a file's: of a memfd, or of a file of a tmpfs such as /dev/shm, mapped to be shared.
//!
//! The device is given a descriptor of it, and reads and writes it by that, which takes less time than the memory of
//! another process does. What is not found is no error: the device has the program's memory in any case.
//!
//! Files of other file systems are left alone. A write to them may wait for a disk, for a network or for another process,
//! and the device's thread with it; hugetlbfs has no calls that write.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::os;

/// This thread's descriptors: it may have others than the rest of the process.
const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// The file that all of this memory is, open for writing if `writes`, and where in it the memory begins.
pub(crate) fn file(at: u64, len: u64, writes: bool) -> Option<(OwnedFd, u64)> {
    if !is_of_file(at)? {
        return None;
    }
    let maps = BufReader::new(File::open("/proc/self/maps").ok()?);
    let mapping =
        mapping(maps, at).filter(|of| at.checked_add(len).is_some_and(|end| end <= of.end))?;
    if !mapping.is_shared || (writes && !mapping.is_writable) {
        return None;
    }
    let file = mapping.open(writes)?;
    Some((file.into(), mapping.offset.checked_add(at - mapping.begin)?))
}

/// Whether the first page is one of a file, or of memory that is shared: what the kernel tells at once, however many
/// mappings there are ("page is file-page or shared-anon", admin-guide/mm/pagemap.rst of its documentation).
fn is_of_file(at: u64) -> Option<bool> {
    const OF_FILE: u64 = 1 << 61;
    let mut entry = [0; 8];
    let pages = File::open("/proc/self/pagemap").ok()?;
    pages.read_exact_at(&mut entry, at / os::page() as u64 * 8).ok()?;
    Some(u64::from_ne_bytes(entry) & OF_FILE != 0)
}

/// A mapping, as proc(5) tells of it.
#[derive(PartialEq, Eq, Debug)]
struct Mapping {
    begin: u64,
    end: u64,
    is_writable: bool,
    is_shared: bool,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    path: PathBuf,
}

/// The mapping of this address, of all that there are.
fn mapping(mut maps: impl BufRead, at: u64) -> Option<Mapping> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if maps.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let of = parse(line.strip_suffix(b"\n").unwrap_or(&line))?;
        if at < of.end {
            return (of.begin <= at).then_some(of);
        }
    }
}

fn parse(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (begin, end) = word()?.split_once('-')?;
    let (rights, offset) = (word()?.as_bytes(), word()?);
    let (major, minor) = word()?.split_once(':')?;
    let inode = word()?.parse().ok()?;
    let path = words.next().unwrap_or_default().trim_ascii_start();
    Some(Mapping {
        begin: hex(begin)?,
        end: hex(end)?,
        is_writable: rights.get(1) == Some(&b'w'),
        is_shared: rights.get(3) == Some(&b's'),
        offset: hex(offset)?,
        device: (hex(major)?.try_into().ok()?, hex(minor)?.try_into().ok()?),
        inode,
        path: PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())),
    })
}

impl Mapping {
    /// Its file, opened anew: by its path, or by a descriptor that the program has of it.
    fn open(&self, writes: bool) -> Option<File> {
        // No tmpfs is on a device. A segment of shmget(2) has no descriptor, and its inode number, which is its id, may be
        // that of a memfd as well.
        if self.device.0 != 0 || self.path.as_os_str().as_bytes().starts_with(b"/SYSV") {
            return None;
        }
        self.take(&self.path, writes).or_else(|| {
            let all = fs::read_dir(DESCRIPTORS).ok()?.flatten().map(|entry| entry.path());
            let is_it = |path: &PathBuf| fs::read_link(path).is_ok_and(|of| of == self.path);
            all.filter(is_it).find_map(|path| self.take(&path, writes))
        })
    }

    /// What is at this path, if it is the file.
    fn take(&self, path: &Path, writes: bool) -> Option<File> {
        // Opening by O_PATH does nothing to a file, whichever it is.
        let found = File::options().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
        if !self.is(&found) || !os::is_on_tmpfs(&found) {
            return None;
        }
        let path = format!("{DESCRIPTORS}/{}", found.as_raw_fd());
        File::options().read(true).write(writes).custom_flags(libc::O_NONBLOCK).open(path).ok()
    }

    fn is(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|of| {
            let device = (libc::major(of.st_dev()), libc::minor(of.st_dev()));
            of.is_file() && (device, of.st_ino()) == (self.device, self.inode)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    const LEN: usize = 1 << 16;

    fn memfd() -> File {
        // SAFETY: the name ends with a NUL.
        let fd = unsafe { libc::memfd_create(c"wharf test".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(4 * LEN as u64).unwrap();
        file
    }

    /// Memory that stays for as long as the tests run, from the second [`LEN`] of a file on, or no file's.
    fn map(file: Option<&File>, flags: i32, protection: i32) -> u64 {
        let flags =
            flags | libc::MAP_POPULATE | if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: without MAP_FIXED the kernel picks an unused range.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                protection,
                flags,
                fd,
                (LEN * usize::from(fd >= 0)) as i64,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        at.expose_provenance() as u64
    }

    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

    /// What is written to the file that was found is in the memory.
    fn is_same(found: Option<(OwnedFd, u64)>, at: u64) -> bool {
        let Some((file, offset)) = found else { return false };
        File::from(file).write_all_at(b"found", offset).unwrap();
        let bytes: *const [u8; 5] = std::ptr::with_exposed_provenance(at as usize);
        // SAFETY: five bytes of memory that is mapped.
        unsafe { bytes.read_volatile() == *b"found" }
    }

    #[test]
    fn a_memfd_is_found_while_a_descriptor_is_open() {
        let (file, others) = (memfd(), [memfd(), memfd()]);
        let at = map(Some(&file), libc::MAP_SHARED, BOTH);
        assert!(is_same(super::file(at, LEN as u64, true), at));
        assert!(is_same(super::file(at + 100, 8, true), at + 100));
        assert!(super::file(at, LEN as u64 + 1, true).is_none(), "it ends there");
        drop(file);
        // Others have the same name.
        assert!(super::file(at, LEN as u64, true).is_none());
        drop(others);
    }

    #[test]
    fn a_file_of_a_tmpfs_is_found_by_its_path() {
        let path = format!("/dev/shm/wharf test {}", std::process::id());
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.unwrap();
        file.set_len(2 * LEN as u64).unwrap();
        let at = map(Some(&file), libc::MAP_SHARED, BOTH);
        drop(file);
        assert!(is_same(super::file(at, LEN as u64, true), at));
        // Another of the same name is not it.
        fs::remove_file(&path).unwrap();
        fs::write(&path, vec![0; 2 * LEN]).unwrap();
        assert!(super::file(at, LEN as u64, true).is_none());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn memory_that_is_not_shared_is_not_found() {
        let file = memfd();
        for at in [
            map(None, libc::MAP_PRIVATE, BOTH),
            map(None, libc::MAP_SHARED, BOTH),
            map(Some(&file), libc::MAP_PRIVATE, BOTH),
            map(Some(&file), libc::MAP_PRIVATE, libc::PROT_READ),
        ] {
            assert!(super::file(at, LEN as u64, false).is_none());
        }
        assert_eq!(
            is_of_file(map(None, libc::MAP_PRIVATE, BOTH)),
            Some(false),
            "nothing is looked for"
        );
    }

    #[test]
    fn nobody_gains_the_right_to_write() {
        let file = memfd();
        let at = map(Some(&file), libc::MAP_SHARED, libc::PROT_READ);
        assert!(super::file(at, LEN as u64, true).is_none());
        let (found, _) = super::file(at, LEN as u64, false).unwrap();
        assert!(File::from(found).write_all_at(b"x", 0).is_err());
    }

    #[test]
    fn mappings_are_as_proc_tells_them() {
        let maps = b"\
55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]
7f00a0000000-7f00a0100000 rw-s 00010000 00:01 1060                       /memfd:of a program (deleted)
7f00a0100000-7f00a0200000 r--s ffff00000000 fe:00 18446744073709551615   /dev/shm/\xff x
7f00b0000000-7f00b0001000 r-xp 00000000 00:00 0 
";
        let of = |at| mapping(&maps[..], at);
        let memfd = of(0x7f00_a000_0000).unwrap();
        assert_eq!(of(0x7f00_a00f_ffff).unwrap(), memfd);
        assert_eq!(memfd.path, Path::new("/memfd:of a program (deleted)"));
        assert_eq!((memfd.offset, memfd.device, memfd.inode), (0x10000, (0, 1), 1060));
        assert!(memfd.is_shared && memfd.is_writable);
        let file = of(0x7f00_a010_0000).unwrap();
        assert_eq!(file.path.as_os_str().as_bytes(), b"/dev/shm/\xff x");
        assert_eq!((file.offset, file.device, file.inode), (0xffff_0000_0000, (0xfe, 0), u64::MAX));
        assert!(file.is_shared && !file.is_writable);
        assert_eq!(of(0x7f00_b000_0000).unwrap().path, Path::new(""));
        for at in [0, 0x55d0_c0a2_1000, 0x7f00_b000_1000, u64::MAX] {
            assert_eq!(of(at), None);
        }
    }
}
