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

/// Takes up to `most` received bytes off a TCP socket without copying them anywhere (`MSG_TRUNC`,
/// tcp(7)); returns how many, 0 at the end of the stream.
///
/// # Errors
/// As `recv`; `WouldBlock` for a non-blocking socket that has nothing.
pub fn discard(socket: impl AsFd, most: usize) -> io::Result<usize> {
    // The kernel moves no more than this in one call anyway (MAX_RW_COUNT).
    let most = most.min(1 << 30);
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer; should the descriptor be of
    // another kind, the kernel answers EFAULT for null.
    let taken = unsafe {
        libc::recv(socket.as_fd().as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC)
    };
    usize::try_from(taken).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_is_discarded_is_counted_and_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"away and kept").unwrap();
        drop(near);
        let mut left = 5;
        while left > 0 {
            left -= discard(&far, left).unwrap();
        }
        let mut rest = String::new();
        far.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "and kept");
        assert_eq!(discard(&far, 9).unwrap(), 0);
    }
}
