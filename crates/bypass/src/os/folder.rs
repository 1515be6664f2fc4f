//! What is in a folder, and in a file of one number.

use libc::c_int;

use super::close;
use crate::trap::trap;

/// Calls `work` with the name of each file in a folder, whose path ends with a zero. A folder that cannot be read has none.
pub(crate) fn each_name(folder: &[u8], mut work: impl FnMut(&[u8])) {
    debug_assert_eq!(folder.last(), Some(&0));
    let (here, flags) = (libc::AT_FDCWD, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
    // SAFETY: the path ends with a zero.
    let fd = unsafe { trap!(libc::SYS_openat, here, folder.as_ptr(), flags) } as c_int;
    if fd < 0 {
        return;
    }
    let mut entries = [0_u8; 2048];
    loop {
        // SAFETY: so many bytes may be written.
        let got = unsafe { trap!(libc::SYS_getdents64, fd, entries.as_mut_ptr(), entries.len()) };
        let Some(mut rest) = usize::try_from(got).ok().and_then(|got| entries.get(..got)) else {
            break;
        };
        if rest.is_empty() {
            break;
        }
        // Of each: number, offset, length of the whole, kind, and the name up to a zero (getdents64(2)).
        while let Some(len) = rest.get(16..18) {
            let len = usize::from(u16::from_ne_bytes([len[0], len[1]]));
            let Some(name) = rest.get(19..len) else { break };
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            work(name);
            rest = &rest[len..];
        }
    }
    close(fd);
}

/// The number that a file has, whose path ends with a zero.
pub(crate) fn number_in(file: &[u8]) -> Option<u32> {
    debug_assert_eq!(file.last(), Some(&0));
    let (here, flags) = (libc::AT_FDCWD, libc::O_RDONLY | libc::O_CLOEXEC);
    // SAFETY: the path ends with a zero.
    let fd = unsafe { trap!(libc::SYS_openat, here, file.as_ptr(), flags) } as c_int;
    if fd < 0 {
        return None;
    }
    let mut text = [0_u8; 32];
    // SAFETY: so many bytes may be written.
    let got = unsafe { trap!(libc::SYS_read, fd, text.as_mut_ptr(), text.len()) };
    close(fd);
    let text = text.get(..usize::try_from(got).ok()?)?;
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}
