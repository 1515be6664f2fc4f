//! Unix stream sockets (unix(7)) with what the standard library's lack: a listener that is closed to others
//! from its first moment, and a connection without an unbounded wait.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use crate::error::check;

/// Most connections that wait to be accepted.
const BACKLOG: libc::c_int = 128;

fn socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket takes integers.
    let fd =
        unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) };
    // SAFETY: the call succeeded, so the descriptor is new and nothing else owns it.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn sockaddr(address: &SocketAddr) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // An abstract name begins with a NUL and ends by its length.
    let (lead, name, end) = match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => (0, path.as_os_str().as_bytes(), 1),
        (None, Some(name)) => (1, name, 0),
        (None, None) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let mut raw =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let used = lead + name.len() + end;
    if used > raw.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in raw.sun_path[lead..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok((raw, (offset_of!(libc::sockaddr_un, sun_path) + used) as libc::socklen_t))
}

/// A listener at `path`, to which only its owner may connect until the file's mode is changed.
///
/// # Errors
/// `AddrInUse` if the file exists, `InvalidInput` for a path that is too long, and other errors of the
/// kernel.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let (address, length) = sockaddr(&SocketAddr::from_pathname(path)?)?;
    let socket = socket(0)?;
    // bind gives the file the socket's own mode, so it never has another.
    // SAFETY: fchmod takes integers; the descriptor is open.
    check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
    // SAFETY: `address` is readable, and `length` is at most its size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: listen takes integers; the descriptor is open.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(UnixListener::from(socket))
}

/// Connects without waiting for room in the listener's queue.
///
/// # Errors
/// `WouldBlock` if the queue is full, `ConnectionRefused` if nothing listens there, and other errors of the
/// kernel.
pub fn connect(address: &SocketAddr) -> io::Result<UnixStream> {
    let (address, length) = sockaddr(address)?;
    let socket = socket(libc::SOCK_NONBLOCK)?;
    // SAFETY: `address` is readable, and `length` is at most its size.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects, and waits for room in the listener's queue for at most `patience`. Those that wait stand in
/// line, so that clients that try again and again do not keep others out.
///
/// # Errors
/// `WouldBlock` if there was no room, and the errors of [`connect`].
pub fn connect_within(address: &SocketAddr, patience: Duration) -> io::Result<UnixStream> {
    let (address, length) = sockaddr(address)?;
    let stream = UnixStream::from(socket(0)?);
    // SO_SNDTIMEO bounds connect as well (unix_stream_connect).
    stream.set_write_timeout(Some(patience))?;
    // SAFETY: `address` is readable, and `length` is at most its size.
    check(unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), length) })?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    fn passes(listener: &UnixListener, address: &SocketAddr) {
        let mut near = connect(address).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.write_all(b"x").unwrap();
        let mut byte = [0];
        far.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn a_listener_at_a_path_is_for_its_owner() {
        let path = std::env::temp_dir().join(format!("wharf-unix-{}", std::process::id()));
        let address = SocketAddr::from_pathname(&path).unwrap();
        let listener = listen(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        passes(&listener, &address);
        drop(listener);
        assert_eq!(connect(&address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(connect(&address).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(listen(Path::new(&"x".repeat(108))).is_err());
    }

    #[test]
    fn an_abstract_name_may_have_any_byte() {
        let name = format!("wharf-unix-{}", std::process::id());
        let name = [name.as_bytes(), &[0, 0xff]].concat();
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        passes(&listener, &address);
    }

    #[test]
    fn a_full_queue_is_an_error_or_waited_for() {
        let path = std::env::temp_dir().join(format!("wharf-unix-full-{}", std::process::id()));
        let address = SocketAddr::from_pathname(&path).unwrap();
        let listener = listen(&path).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect(&address) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 1000);
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let short = Duration::from_millis(1);
        assert_eq!(connect_within(&address, short).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| connect_within(&address, Duration::from_secs(60)));
            drop(listener.accept().unwrap());
            assert!(late.join().unwrap().is_ok());
        });
        std::fs::remove_file(&path).unwrap();
    }
}
