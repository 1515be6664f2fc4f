//! What the kernel's UDP can be asked to do, socket by socket.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};

use crate::sockopt;

/// Has each datagram that is sent cut into ones of `payload` bytes, the last may be shorter
/// (`UDP_SEGMENT`, udp(7)). It may be cut below the socket, by the interface.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.18.
pub fn set_segment(socket: &UdpSocket, payload: u16) -> io::Result<()> {
    let payload = libc::c_int::from(payload);
    sockopt::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, &payload)
}

/// Lets one `recv` take several datagrams of one size that arrived together (`UDP_GRO`, udp(7)).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0.
pub fn set_gro(socket: &UdpSocket) -> io::Result<()> {
    sockopt::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1_i32)
}

/// Memory for what waits to be received, in bytes, beyond `net.core.rmem_max` (`SO_RCVBUFFORCE`).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`.
pub fn set_receive_buffer(socket: &UdpSocket, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
}

/// Receives a datagram and keeps the first bytes of it only; returns how long it was (`MSG_TRUNC`).
/// Its checksum has been verified.
///
/// # Errors
/// As [`UdpSocket::recv`].
pub fn receive_head(socket: &UdpSocket, head: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `head.len()` bytes to `head`, whatever it returns.
    let length = unsafe {
        let fd = socket.as_raw_fd();
        libc::recv(fd, head.as_mut_ptr().cast(), head.len(), libc::MSG_TRUNC)
    };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_datagram_comes_with_its_whole_length() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        set_segment(&far, 5).unwrap();
        far.send(b"0123456789ab").unwrap();
        let mut head = [0; 3];
        for (start, length) in [(b"012", 5), (b"567", 5), (b"ab7", 2)] {
            assert_eq!(receive_head(&near, &mut head).unwrap(), length);
            assert_eq!(&head, start);
        }
    }
}
