//! Unix sockets that keep messages apart and carry descriptors (`SOCK_SEQPACKET`, unix(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::SocketAddr;

use crate::error::check;
use crate::foreign::Foreign;
use crate::process::PeerCredentials;
use crate::unix::sockaddr;

/// Most descriptors of one message (`SCM_MAX_FD`, include/net/scm.h).
const DESCRIPTORS_MAX: usize = 253;
/// Most connections that wait to be accepted.
const BACKLOG: libc::c_int = 128;

/// Room for the control message with the descriptors, aligned as `cmsghdr` is.
#[repr(C, align(8))]
struct Control([u8; 16 + 4 * DESCRIPTORS_MAX + 4]);

/// A listener for such sockets, which never blocks.
#[derive(Debug)]
pub struct PacketListener(OwnedFd);

/// One end of a connection, which never blocks.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// What was received.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message; 0 if the other end has closed.
    pub len: usize,
    /// Descriptors that came with it, closed on exec.
    pub descriptors: Vec<OwnedFd>,
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes integers.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl PacketListener {
    /// Listens at a path, to which only its owner may connect until the file's mode is changed, or under an abstract
    /// name, to which all may.
    ///
    /// # Errors
    /// `AddrInUse` if it exists, `InvalidInput` for one that is too long, and other errors of the kernel.
    pub fn bind(address: &SocketAddr) -> io::Result<Self> {
        let (raw, length) = sockaddr(address)?;
        let socket = socket()?;
        // bind gives the file the socket's own mode, so it never has another.
        // SAFETY: fchmod takes integers; the descriptor is open.
        check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
        // SAFETY: `raw` is readable, and `length` is at most its size.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length) })?;
        // SAFETY: listen takes integers; the descriptor is open.
        check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
        Ok(PacketListener(socket))
    }

    /// The next connection.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, and other errors of accept4(2).
    pub fn accept(&self) -> io::Result<PacketSocket> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let (name, len) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no name is asked for.
        let fd = check(unsafe { libc::accept4(self.0.as_raw_fd(), name, len, flags) })?;
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
        Ok(PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl PacketSocket {
    /// Two that are connected to each other.
    ///
    /// # Errors
    /// What socketpair(2) says.
    pub fn pair() -> io::Result<(Self, Self)> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let mut both = [-1; 2];
        // SAFETY: the kernel writes two descriptors, for which `both` has room.
        check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, both.as_mut_ptr()) })?;
        // SAFETY: the call succeeded, so these are new descriptors that nothing else owns.
        let [one, other] = both.map(|fd| PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) }));
        Ok((one, other))
    }

    /// Connects.
    ///
    /// # Errors
    /// `WouldBlock` if the listener's queue is full, and other errors of connect(2).
    pub fn connect(address: &SocketAddr) -> io::Result<Self> {
        let (raw, length) = sockaddr(address)?;
        let socket = socket()?;
        // SAFETY: `raw` is readable, and `length` is at most its size.
        check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) })?;
        Ok(PacketSocket(socket))
    }

    /// Lets about so many bytes wait to be received, with what the kernel adds to each message (`SO_SNDBUF`, which it doubles).
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn set_send_buffer(&self, bytes: i32) -> io::Result<()> {
        crate::sockopt::set(self.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes)
    }

    /// Who connected, or listened.
    ///
    /// # Errors
    /// What getsockopt(2) says.
    pub fn peer(&self) -> io::Result<PeerCredentials> {
        crate::process::peer_credentials(self)
    }

    /// Sends a message with these descriptors.
    ///
    /// # Errors
    /// `InvalidInput` for too many descriptors, `WouldBlock` if there is no room, and other errors of sendmsg(2).
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = Control([0; _]);
        let data = size_of_val(descriptors) as u32;
        // SAFETY: all-zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        if !descriptors.is_empty() {
            message.msg_control = (&raw mut control).cast();
            // SAFETY: CMSG_SPACE and CMSG_LEN compute from an integer.
            let (space, len) = unsafe { (libc::CMSG_SPACE(data), libc::CMSG_LEN(data)) };
            message.msg_controllen = space as usize;
            // SAFETY: `control` has room for the header and for 253 descriptors, and is aligned for the header.
            unsafe {
                let header = &mut *libc::CMSG_FIRSTHDR(&raw const message);
                header.cmsg_level = libc::SOL_SOCKET;
                header.cmsg_type = libc::SCM_RIGHTS;
                header.cmsg_len = len as usize;
                let to = libc::CMSG_DATA(header).cast::<RawFd>();
                for (at, descriptor) in descriptors.iter().enumerate() {
                    to.add(at).write_unaligned(descriptor.as_raw_fd());
                }
            }
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: `message` points to live memory of the lengths that it names, which the kernel reads.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives a message.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; `InvalidData` for one that is longer than `into`, or has more descriptors than
    /// there was room for: those that came are closed. Other errors of recvmsg(2).
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        match self.receive_some(into)? {
            (received, true) => Ok(received),
            (_, false) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The same, but a message is received though descriptors of it have no room, as this process may not have more
    /// (`RLIMIT_NOFILE`): without them.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_or_leave(&self, into: &mut [u8]) -> io::Result<Received> {
        self.receive_some(into).map(|(received, _)| received)
    }

    /// Receives a message of another process, whose descriptors are closed for this owner (see [`Foreign`]).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_foreign(
        &self,
        into: &mut [u8],
        owner: u32,
    ) -> io::Result<(usize, Vec<Foreign<OwnedFd>>)> {
        let (len, descriptors, flags) = self.receive_raw(into)?;
        let foreign = |descriptor| Foreign::new(descriptor, owner);
        let descriptors: Vec<_> = descriptors.into_iter().map(foreign).collect();
        match flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) {
            0 => Ok((len, descriptors)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A message, and whether all of its descriptors have come.
    fn receive_some(&self, into: &mut [u8]) -> io::Result<(Received, bool)> {
        let (len, descriptors, flags) = self.receive_raw(into)?;
        if flags & libc::MSG_TRUNC != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((Received { len, descriptors }, flags & libc::MSG_CTRUNC == 0))
    }

    /// The length of a message, its descriptors, and what recvmsg(2) says of both (`msg_flags`).
    fn receive_raw(&self, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>, libc::c_int)> {
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let mut control = Control([0; _]);
        // SAFETY: all-zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: `message` points to live memory of the lengths that it names, which the kernel may write.
        let len = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        Ok((len, descriptors(&message), message.msg_flags))
    }

    /// Whether `is_it` says so of one of the messages that wait to be received, which all stay. It looks at `most` of them
    /// at most, from the first on, each in `buffer`.
    ///
    /// # Errors
    /// Those of setsockopt(2) for `SO_PEEK_OFF`.
    pub fn any(
        &self,
        buffer: &mut [u8],
        most: usize,
        mut is_it: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<bool> {
        let peek_from =
            |at: i32| crate::sockopt::set(self.as_fd(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, &at);
        // The kernel moves the place behind each message that is looked at, and back for what is received meanwhile.
        peek_from(0)?;
        let mut next = || self.peek(buffer).map(|len| is_it(&buffer[..len]));
        let found = (0..most).map_while(|_| next()).any(|is_it| is_it);
        peek_from(-1)?;
        Ok(found)
    }

    /// The length of the message that is looked at, as far as there is room for it.
    fn peek(&self, into: &mut [u8]) -> Option<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        let at = into.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most `into.len()` bytes there.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), at, into.len(), flags) };
        usize::try_from(len).ok().filter(|len| *len > 0)
    }
}

/// The descriptors that have come with a message, each taken once.
fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the kernel has written whole control messages of the length that `msg_controllen` says.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so within the control messages.
        let this = unsafe { &*header };
        if (this.cmsg_level, this.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: CMSG_LEN computes from an integer.
            let bytes = this.cmsg_len.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
            for at in 0..bytes / size_of::<RawFd>() {
                // SAFETY: as many descriptors lie there, new ones that nothing else owns.
                all.push(unsafe {
                    let data = libc::CMSG_DATA(header).cast::<RawFd>();
                    OwnedFd::from_raw_fd(data.add(at).read_unaligned())
                });
            }
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    all
}

/// One that another process has made.
impl From<OwnedFd> for PacketSocket {
    fn from(socket: OwnedFd) -> Self {
        PacketSocket(socket)
    }
}

impl From<PacketSocket> for OwnedFd {
    fn from(socket: PacketSocket) -> Self {
        socket.0
    }
}

impl AsFd for PacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;

    use crate::poll::EventFd;

    fn pair(name: &str) -> (PacketSocket, PacketSocket) {
        let name = format!("wharf-packets-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = PacketListener::bind(&address).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let near = PacketSocket::connect(&address).unwrap();
        (near, listener.accept().unwrap())
    }

    #[test]
    fn messages_stay_apart_and_bring_what_was_sent_with_them() {
        let (near, far) = pair("apart");
        let event = EventFd::new().unwrap();
        near.send(b"one", &[event.as_fd(), event.as_fd()]).unwrap();
        near.send(b"three", &[]).unwrap();
        let mut into = [0; 8];
        let received = far.receive(&mut into).unwrap();
        assert_eq!((&into[..received.len], received.descriptors.len()), (&b"one"[..], 2));
        event.signal().unwrap();
        for descriptor in &received.descriptors {
            let ready = crate::poll::poll(&[descriptor.as_fd()], Some(0)).unwrap();
            assert!(ready.contains(0), "the same eventfd");
        }
        let received = far.receive(&mut into).unwrap();
        assert_eq!((&into[..received.len], received.descriptors.len()), (&b"three"[..], 0));
        assert_eq!(far.receive(&mut into).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(far.peer().unwrap().pid, std::process::id() as i32);
        drop(near);
        // A process that another test starts holds all descriptors until it executes its program.
        assert!(crate::poll::poll(&[far.as_fd()], None).unwrap().contains(0));
        assert_eq!(far.receive(&mut into).unwrap().len, 0);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_keeps_no_descriptor() {
        let (near, far) = pair("fit");
        // Whether the pipe's other end sees that all copies of this one are closed.
        let (reader, writer) = std::io::pipe().unwrap();
        near.send(b"too long", &[writer.as_fd()]).unwrap();
        assert_eq!(far.receive(&mut [0; 3]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(writer);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "");
        let event = EventFd::new().unwrap();
        let many = vec![event.as_fd(); DESCRIPTORS_MAX + 1];
        assert_eq!(near.send(b"x", &many).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        near.send(b"x", &many[1..]).unwrap();
        assert_eq!(far.receive(&mut [0; 3]).unwrap().descriptors.len(), DESCRIPTORS_MAX);
    }

    #[test]
    fn messages_that_are_looked_at_stay() {
        let (near, far) = pair("looked-at");
        for message in [b"one", b"two", b"six"] {
            near.send(message, &[]).unwrap();
        }
        let mut into = [0; 8];
        let mut seen = Vec::new();
        let mut six = |most| {
            far.any(&mut into, most, |message| {
                seen.push(message.to_vec());
                message == b"six"
            })
        };
        assert!(!six(2).unwrap());
        assert!(six(9).unwrap());
        assert_eq!(seen.concat(), b"onetwoonetwosix");
        for message in [b"one", b"two", b"six"] {
            let received = far.receive(&mut into).unwrap();
            assert_eq!(&into[..received.len], message);
        }
        assert!(!far.any(&mut into, 9, |_| true).unwrap());
    }
}
