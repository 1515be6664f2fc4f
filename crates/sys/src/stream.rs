//! Stream sockets for who makes their calls for another: names and options as the kernel has them, byte for byte.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::error::check;

/// Most bytes of a name (`struct sockaddr_storage`).
pub const NAME_MAX: usize = size_of::<libc::sockaddr_storage>();

/// The name of a socket, or of its peer, of whatever family.
#[derive(Clone, Copy)]
pub struct Name {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Name {
    fn empty() -> Self {
        // SAFETY: integers only, for which zeros are valid.
        Name { storage: unsafe { mem::zeroed() }, len: NAME_MAX as libc::socklen_t }
    }

    /// From its bytes; `None` if there are too many.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut name = Name::empty();
        if bytes.len() > NAME_MAX {
            return None;
        }
        name.len = bytes.len() as libc::socklen_t;
        // SAFETY: as many bytes as the storage has, or fewer, and any are valid there.
        unsafe {
            let to = (&raw mut name.storage).cast::<u8>();
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Some(name)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        let len = (self.len as usize).min(NAME_MAX);
        // SAFETY: so many bytes are in the storage, all of them initialised.
        unsafe { std::slice::from_raw_parts((&raw const self.storage).cast(), len) }
    }

    /// `AF_INET` and others; `None` for one that is too short to have any.
    pub fn family(&self) -> Option<i32> {
        let bytes = self.bytes().first_chunk::<2>()?;
        Some(u16::from_ne_bytes(*bytes).into())
    }

    /// The name of a socket.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut name = Name::empty();
        let (at, len) = (&raw mut name.storage, &raw mut name.len);
        // SAFETY: the storage is writable for its length.
        check(unsafe { libc::getsockname(socket.as_fd().as_raw_fd(), at.cast(), len) })?;
        Ok(name)
    }

    /// The name of a socket's peer.
    ///
    /// # Errors
    /// Those of getpeername(2).
    pub fn of_peer(socket: impl AsFd) -> io::Result<Self> {
        let mut name = Name::empty();
        let (at, len) = (&raw mut name.storage, &raw mut name.len);
        // SAFETY: the storage is writable for its length.
        check(unsafe { libc::getpeername(socket.as_fd().as_raw_fd(), at.cast(), len) })?;
        Ok(name)
    }
}

/// The next connection of a listener, which does not block, and its peer.
///
/// # Errors
/// Those of accept4(2). It blocks if the listener does.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, Name)> {
    let mut name = Name::empty();
    let (at, len) = (&raw mut name.storage, &raw mut name.len);
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the storage is writable for its length.
    let fd = unsafe { libc::accept4(listener.as_fd().as_raw_fd(), at.cast(), len, flags) };
    let fd = check(fd)?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
    Ok((unsafe { OwnedFd::from_raw_fd(fd) }, name))
}

/// connect(2).
///
/// # Errors
/// Those of connect(2).
pub fn connect(socket: impl AsFd, to: &Name) -> io::Result<()> {
    let at = (&raw const to.storage).cast();
    // SAFETY: the storage is readable for its length.
    check(unsafe { libc::connect(socket.as_fd().as_raw_fd(), at, to.len) }).map(drop)
}

/// getsockopt(2): what is written to `value`, how long that is.
///
/// # Errors
/// Those of getsockopt(2).
pub fn option(socket: impl AsFd, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    let (fd, at) = (socket.as_fd().as_raw_fd(), value.as_mut_ptr());
    // SAFETY: `value` is writable for its length.
    check(unsafe { libc::getsockopt(fd, level, name, at.cast(), &raw mut len) })?;
    Ok((len as usize).min(value.len()))
}

/// setsockopt(2).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), value.len() as libc::socklen_t);
    // SAFETY: `value` is readable for its length.
    check(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) }).map(drop)
}

/// Whether calls on a file do not block (`O_NONBLOCK`), which all of its descriptors have together.
///
/// # Errors
/// None that are known.
pub fn is_nonblocking(file: impl AsFd) -> io::Result<bool> {
    let flags = flags(&file)?;
    Ok(flags & libc::O_NONBLOCK != 0)
}

/// Sets whether calls on a file do not block.
///
/// # Errors
/// None that are known.
pub fn set_nonblocking(file: impl AsFd, is: bool) -> io::Result<()> {
    let flags = flags(&file)? & !libc::O_NONBLOCK | if is { libc::O_NONBLOCK } else { 0 };
    // SAFETY: F_SETFL takes an integer.
    check(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

fn flags(file: &impl AsFd) -> io::Result<i32> {
    // SAFETY: F_GETFL takes no argument.
    check(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GETFL) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_by_names_as_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Name::of(&listener).unwrap();
        assert_eq!((at.family(), at.bytes().len()), (Some(libc::AF_INET), 16));
        let again = Name::of_bytes(at.bytes()).unwrap();
        let near = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (far, peer) = accept(&listener).unwrap();
        assert_eq!(Name::of(&near).unwrap().bytes(), peer.bytes());
        assert_eq!(Name::of_peer(&near).unwrap().bytes(), again.bytes());
        assert!(is_nonblocking(&far).unwrap() && !is_nonblocking(&near).unwrap());
        set_nonblocking(&near, true).unwrap();
        assert!(is_nonblocking(&near).unwrap());
        set_nonblocking(&near, false).unwrap();
        assert!(!is_nonblocking(&near).unwrap());
        assert_eq!(connect(&near, &at).unwrap_err().raw_os_error(), Some(libc::EISCONN));
        assert!(Name::of_bytes(&[0; NAME_MAX + 1]).is_none());
        assert_eq!(Name::of_bytes(&[]).unwrap().family(), None);
    }

    #[test]
    fn options_are_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut value = [0xff; 8];
        let (level, name) = (libc::SOL_SOCKET, libc::SO_KEEPALIVE);
        set_option(&listener, level, name, &1_i32.to_ne_bytes()).unwrap();
        assert_eq!(option(&listener, level, name, &mut value).unwrap(), 4);
        assert_eq!(value, [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(option(&listener, level, name, &mut value[..1]).unwrap(), 1);
        let error = set_option(&listener, level, name, &[]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
