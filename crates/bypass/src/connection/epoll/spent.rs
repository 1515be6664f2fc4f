//! Whether the kernel has told what is registered as one shot.

use libc::c_int;

use super::{EDGE, EXCLUSIVE, ONESHOT};
use crate::trap::trap;

/// Of what was told as one shot only private bits are left (proc_pid_fdinfo(5)). False where that is not shown, so that
/// it is told once more.
pub(super) fn is_spent(set: c_int, fd: c_int) -> bool {
    const PRIVATE: u32 = EXCLUSIVE | ONESHOT | EDGE | libc::EPOLLWAKEUP as u32;
    let mut lines = Lines::open(set);
    while let Some(line) = lines.next() {
        let mut words =
            line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        if words.next() == Some(b"tfd:") && words.next().and_then(number::<10>) == Some(fd as u32) {
            let events = words.nth(1).and_then(number::<16>);
            return events.is_some_and(|events| events & !PRIVATE == 0);
        }
    }
    false
}

fn number<const BASE: u32>(word: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(word).ok()?, BASE).ok()
}

/// The lines of what the kernel shows of a descriptor, read without allocating memory.
struct Lines {
    file: c_int,
    bytes: [u8; 1024],
    /// What was read and not given yet.
    from: usize,
    to: usize,
}

impl Lines {
    fn open(fd: c_int) -> Self {
        let mut path = [0_u8; 40];
        let mut rest = &mut path[..];
        // It fits, with a zero behind it.
        let _ = std::io::Write::write_fmt(&mut rest, format_args!("/proc/self/fdinfo/{fd}"));
        let (here, flags) = (libc::AT_FDCWD, libc::O_RDONLY | libc::O_CLOEXEC);
        // SAFETY: the path ends with a zero.
        let file = unsafe { trap!(libc::SYS_openat, here, path.as_ptr(), flags) } as c_int;
        Lines { file, bytes: [0; 1024], from: 0, to: 0 }
    }

    /// The next line, which is shorter than there is room for.
    fn next(&mut self) -> Option<&[u8]> {
        loop {
            let there = &self.bytes[self.from..self.to];
            if let Some(len) = there.iter().position(|byte| *byte == b'\n') {
                let from = self.from;
                self.from += len + 1;
                return Some(&self.bytes[from..from + len]);
            }
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            let room = &mut self.bytes[self.to..];
            // SAFETY: so many bytes may be written.
            let got = unsafe { trap!(libc::SYS_read, self.file, room.as_mut_ptr(), room.len()) };
            match usize::try_from(got) {
                Ok(got) if got > 0 => self.to += got,
                _ => return None,
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.file >= 0 {
            crate::os::close(self.file);
        }
    }
}
