//! libc's functions, as this library has them.

mod data;
mod files;
mod options;
mod process;
mod raw;
mod sockets;
mod wait;

use libc::c_int;

use crate::connection::Patience;
use crate::os;
use crate::trap::trap;

/// How a call on this socket waits, by its flags and its time-out option.
fn patience(fd: c_int, flags: c_int, option: c_int) -> Patience {
    if flags & libc::MSG_DONTWAIT != 0 || is_nonblocking(fd) {
        return Patience::None;
    }
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: `time` is writable, and `len` its size.
    let got = unsafe {
        let (at, len) = (&raw mut time, &raw mut len);
        trap!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, option, at, len)
    };
    let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Patience::Until((got == 0 && nanos > 0).then(|| os::now() + nanos))
}

fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: F_GETFL takes no argument.
    let flags = unsafe { trap!(libc::SYS_fcntl, fd, libc::F_GETFL, 0) };
    flags >= 0 && flags as c_int & libc::O_NONBLOCK != 0
}
