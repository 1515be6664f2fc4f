//! What the kernel's TCP can be asked to do, socket by socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::error::check;

/// Sets a socket's congestion control (`TCP_CONGESTION`), such as `cubic`.
///
/// # Errors
/// `NotFound` if the kernel has none of that name; `PermissionDenied` if it is not in
/// `net.ipv4.tcp_allowed_congestion_control` and the process lacks `CAP_NET_ADMIN`.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    let length = name.len() as libc::socklen_t;
    // SAFETY: the name is `length` readable bytes; the kernel copies them.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            length,
        )
    })
    .map(drop)
}
