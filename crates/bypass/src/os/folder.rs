//! What is in a folder, and in a file of one number.

use std::io::Write;

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

/// Returns true unless it is known that no descriptor of this process is an epoll set.
pub(crate) fn may_have_set(process: u32) -> bool {
    let (mut has_names, mut may_have) = (false, false);
    each_name(path(format_args!("/proc/{process}/fd")).as_slice(), |name| {
        has_names = true;
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok());
        if let Some(number) = number {
            may_have |= may_be_set(&path(format_args!("/proc/{process}/fd/{number}")));
        }
    });
    // A folder that may be read has at least itself.
    may_have || !has_names
}

/// Returns false if a link of this path leads to something else than an epoll set, or there is none.
fn may_be_set(path: &[u8]) -> bool {
    const SET: &[u8] = b"anon_inode:[eventpoll]";
    let mut to = [0_u8; SET.len() + 1];
    let (here, at, room) = (libc::AT_FDCWD, to.as_mut_ptr(), to.len());
    // SAFETY: the path ends with a zero, and so many bytes may be written.
    let got = unsafe { trap!(libc::SYS_readlinkat, here, path.as_ptr(), at, room) };
    match usize::try_from(got) {
        Ok(len) => to[..len] == *SET,
        Err(_) => super::errno() != libc::ENOENT,
    }
}

/// A path that ends with a zero. It has room for two numbers.
fn path(words: std::fmt::Arguments<'_>) -> [u8; 48] {
    let mut path = [0; 48];
    // What has no room is no path of any file.
    let _ = path[..47].as_mut().write_fmt(words);
    path
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
