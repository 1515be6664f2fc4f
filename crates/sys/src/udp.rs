//! What the kernel's UDP can be asked to do, socket by socket.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};

use crate::sockopt;

/// From now on, a write of more bytes than this leaves the socket as datagrams of so many, the last
/// of what is left (`UDP_SEGMENT`, udp(7)): one packet through the stack, cut by the device where it
/// can. 0 turns it off.
///
/// # Errors
/// `ENOPROTOOPT` where the kernel is older than 4.18, or the socket is none of UDP.
pub fn set_segment_size(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    sockopt::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, &libc::c_int::from(bytes))
}

/// Room for what has arrived and is not read yet, in bytes of kernel memory, whatever
/// `net.core.rmem_max` says (`SO_RCVBUFFORCE`).
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn force_receive_buffer(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    // The kernel takes an int and doubles it.
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
}

/// Lets one `recv` take several datagrams of one size that arrived together (`UDP_GRO`, udp(7)).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0.
pub fn set_gro(socket: &UdpSocket) -> io::Result<()> {
    sockopt::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1_i32)
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
    use std::net::TcpListener;

    #[test]
    fn a_write_becomes_datagrams_of_the_size() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        set_segment_size(&from, 4).unwrap();
        from.send(b"datagrams.").unwrap();
        set_segment_size(&from, 0).unwrap();
        from.send(b"datagrams.").unwrap();
        let mut buffer = [0; 16];
        for expected in [&b"data"[..], b"gram", b"s.", b"datagrams."] {
            let length = to.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected);
        }
    }

    #[test]
    fn only_udp_has_segments() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = set_segment_size(&socket, 4).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
    }

    #[test]
    fn the_head_of_a_datagram_comes_with_its_whole_length() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        set_segment_size(&far, 5).unwrap();
        far.send(b"0123456789ab").unwrap();
        let mut head = [0; 3];
        for (start, length) in [(b"012", 5), (b"567", 5), (b"ab7", 2)] {
            assert_eq!(receive_head(&near, &mut head).unwrap(), length);
            assert_eq!(&head, start);
        }
    }
}
