//! Sending bytes from where they lie (`MSG_ZEROCOPY`; the kernel's Documentation/networking/msg_zerocopy.rst).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::error::check;
use crate::sockopt;

/// Lets a socket send so (`SO_ZEROCOPY`).
///
/// # Errors
/// Those of `setsockopt`.
pub fn allow(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, &on)
}

/// Sends what stays as it is for as long as the program runs: the kernel reads it when it leaves, and again if it has to.
/// How many bytes it takes.
///
/// # Errors
/// Those of `send`: ENOBUFS where too much is not said to be [`done`].
pub fn send(socket: impl AsFd, bytes: &'static [u8]) -> io::Result<usize> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `bytes` is readable for its length, and stays so; the kernel writes nothing there.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Takes what the kernel says about sends that are done, until it says no more. Each is said of a range of them.
///
/// # Errors
/// Those of `recv`.
pub fn done(socket: impl AsFd) -> io::Result<()> {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let fd = socket.as_fd().as_raw_fd();
    loop {
        // SAFETY: there is no room for anything to be written to.
        match check(unsafe { libc::recv(fd, std::ptr::null_mut(), 0, flags) } as libc::c_int) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn bytes_that_are_not_copied_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        super::allow(&sender).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let mut bytes = [0; 10];
        for _ in 0..1_000 {
            assert_eq!(super::send(&sender, b"0123456789").unwrap(), bytes.len());
            receiver.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"0123456789");
            super::done(&sender).unwrap();
        }
    }
}
