//! Socket options and calls of the kernel's UDP.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};

use crate::sockopt;

/// From now on, a write of more bytes than this is sent as datagrams of this size, the last with the rest
/// (`UDP_SEGMENT`, udp(7)): one packet through the stack, segmented by the device if it can. 0 turns it off.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.18, or if the socket is not UDP's.
pub fn set_segment_size(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    sockopt::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, &libc::c_int::from(bytes))
}

/// Sets the receive buffer, in bytes of kernel memory, also beyond `net.core.rmem_max` (`SO_RCVBUFFORCE`).
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn force_receive_buffer(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    // The kernel takes an int and doubles it.
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
}

/// From now on the socket receives and sends only by the interface of this index (`SO_BINDTOIFINDEX`). The
/// kernel's GRO looks up the socket as well, and so merges datagrams for a socket with [`set_gro`] on this
/// interface alone.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_RAW` if it is bound to another already.
pub fn bind_to_interface(socket: impl AsFd, index: u32) -> io::Result<()> {
    let index = libc::c_int::try_from(index).unwrap_or(libc::c_int::MAX);
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &index)
}

/// Lets one `recv` take several datagrams of one size that arrived together (`UDP_GRO`, udp(7)).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.0.
pub fn set_gro(socket: &UdpSocket) -> io::Result<()> {
    sockopt::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1_i32)
}

/// Receives to the start of `buffer` what one `recv` of a socket with [`set_gro`] returns. Returns the number
/// of bytes and, if there are several datagrams, the length of each but the last.
///
/// # Errors
/// As [`UdpSocket::recv`].
pub fn receive_joined(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Option<usize>)> {
    /// Room for a control message of an int, and more.
    const CONTROL: usize = 8;
    let mut control = [0_u64; CONTROL];
    let mut iovec = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zeros are a message header without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut iovec, 1);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: all that the header points to is alive and may be written, as far as the lengths beside
    // the pointers say.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let mut size = None;
    // SAFETY: recvmsg filled the header: `control` is alive, aligned for a cmsghdr, and has
    // msg_controllen bytes of control messages.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: the macros give a pointer to a whole header within the buffer, or null.
    while let Some(header) = unsafe { next.as_ref() } {
        // SAFETY: no pointer is dereferenced; this computes a length.
        let enough = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>() as u32) } as usize;
        let is_size = (header.cmsg_level, header.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO);
        if is_size && header.cmsg_len >= enough {
            // SAFETY: the message has as many bytes of data as an int, as just checked.
            let value = unsafe { libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned() };
            size = usize::try_from(value).ok();
        }
        // SAFETY: as for the first; `header` is the one that it gave.
        next = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok((length, size))
}

/// Receives a datagram and keeps only its first bytes; returns its whole length (`MSG_TRUNC`). Its checksum
/// has been verified.
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

    /// Over loopback a write is not segmented.
    #[test]
    fn datagrams_that_are_joined_come_with_their_size() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_gro(&to).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        set_segment_size(&from, 4).unwrap();
        let mut buffer = [0; 16];
        for (write, size) in [(&b"datagrams."[..], Some(4)), (b"one", None)] {
            from.send(write).unwrap();
            assert_eq!(receive_joined(&to, &mut buffer).unwrap(), (write.len(), size));
            assert_eq!(&buffer[..write.len()], write);
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
