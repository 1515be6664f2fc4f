//! Messages between this process and wharf, and whether wharf is there.

use std::io;

use libc::c_int;

use super::{close, errno};
use crate::trap::trap;

/// A socket that keeps messages apart, connected to this address: a path, or `@` and an abstract name. It waits for no room
/// in the queue of the other end, neither here nor later.
pub(crate) fn connect(address: &[u8]) -> Option<c_int> {
    let mut raw =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let is_abstract = address.first() == Some(&b'@');
    if address.is_empty() || address.len() >= raw.sun_path.len() {
        return None;
    }
    for (to, from) in raw.sun_path.iter_mut().zip(address) {
        *to = *from as libc::c_char;
    }
    let mut len = size_of::<libc::sa_family_t>() + address.len();
    if is_abstract {
        raw.sun_path[0] = 0;
    } else {
        len += 1;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes integers.
    let fd = unsafe { trap!(libc::SYS_socket, libc::AF_UNIX, kind, 0) } as c_int;
    if fd < 0 {
        return None;
    }
    // SAFETY: `raw` is readable, and `len` is at most its size.
    if unsafe { trap!(libc::SYS_connect, fd, &raw const raw, len) } < 0 {
        close(fd);
        return None;
    }
    Some(fd)
}

/// What a user namespace calls every user whom it does not know (`overflowuid`, user_namespaces(7)).
const ANYBODY: libc::uid_t = 65_534;

/// Whether a process of root's or of this user's is at the other end: any process may take an abstract name that is free,
/// and would be sent the program's sockets.
pub(crate) fn is_trusted(fd: c_int) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: ANYBODY, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is writable, and `len` its size; geteuid takes nothing.
    let (got, own) = unsafe {
        let (at, len) = (&raw mut peer, &raw mut len);
        let got = trap!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, len);
        (got, trap!(libc::SYS_geteuid) as libc::uid_t)
    };
    got == 0 && (peer.uid == 0 || peer.uid == own && own != ANYBODY)
}

/// Most descriptors of a message that are taken.
const DESCRIPTORS: usize = 253;

#[repr(C, align(8))]
struct Control([u8; 16 + 4 * DESCRIPTORS + 4]);

/// Sends a message, with a descriptor if there is one. `WouldBlock` if there is no room.
pub(crate) fn send(fd: c_int, bytes: &[u8], descriptor: Option<c_int>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; _]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    if let Some(descriptor) = descriptor {
        message.msg_control = (&raw mut control).cast();
        // SAFETY: CMSG_SPACE computes from an integer; `control` has room for one descriptor, and is aligned.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let header = &mut *libc::CMSG_FIRSTHDR(&raw const message);
            header.cmsg_level = libc::SOL_SOCKET;
            header.cmsg_type = libc::SCM_RIGHTS;
            header.cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor);
        }
    }
    loop {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: `message` points to live memory of the lengths that it names.
        let sent = unsafe { trap!(libc::SYS_sendmsg, fd, &raw const message, flags) };
        if sent >= 0 {
            return Ok(());
        }
        if errno() != libc::EINTR {
            return Err(io::Error::last_os_error());
        }
    }
}

/// Whether the other end of a socket is closed. A message that waits there stays.
pub(crate) fn has_ended(fd: c_int) -> bool {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one writable byte, and no address.
    let got = unsafe {
        let none = std::ptr::null::<u8>();
        trap!(libc::SYS_recvfrom, fd, &raw mut byte, 1, flags, none, none)
    };
    got == 0 || got < 0 && errno() != libc::EAGAIN && errno() != libc::EINTR
}

/// Waits until there is something to receive, so many nanoseconds at most, or until a signal comes.
pub(crate) fn wait_readable(fd: c_int, most: u64) {
    let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let most = libc::timespec { tv_sec: 0, tv_nsec: most.min(999_999_999) as libc::c_long };
    // SAFETY: one pollfd that may be written, a time that may be read, and no mask.
    unsafe {
        let none = std::ptr::null::<libc::sigset_t>();
        trap!(libc::SYS_ppoll, &raw mut fd, 1, &raw const most, none, 8);
    }
}

/// Whether no process has the other end of a pipe open for writing.
pub(crate) fn has_hung_up(pipe: c_int) -> bool {
    let mut fd = libc::pollfd { fd: pipe, events: 0, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one pollfd that may be written, a time that may be read, and no mask.
    unsafe {
        let none = std::ptr::null::<libc::sigset_t>();
        trap!(libc::SYS_ppoll, &raw mut fd, 1, &raw const now, none, 8);
    }
    fd.revents & libc::POLLHUP != 0
}

/// A message that was received: its length, and its descriptors.
pub(crate) struct Received {
    pub(crate) len: usize,
    descriptors: [c_int; DESCRIPTORS],
    count: usize,
}

impl Received {
    pub(crate) fn descriptors(&self) -> &[c_int] {
        &self.descriptors[..self.count]
    }
}

/// Receives a message with its descriptors. `WouldBlock` if there is none.
pub(crate) fn receive(fd: c_int, into: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = Control([0; _]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let len = loop {
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: `message` points to live memory of the lengths that it names.
        let len = unsafe { trap!(libc::SYS_recvmsg, fd, &raw mut message, flags) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    };
    let mut received = Received { len, descriptors: [-1; DESCRIPTORS], count: 0 };
    // SAFETY: the kernel has written whole control messages, with as many descriptors as their lengths say.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(header).cast::<c_int>();
            received.count = (bytes / 4).min(DESCRIPTORS);
            for (at, descriptor) in received.descriptors[..received.count].iter_mut().enumerate() {
                *descriptor = data.add(at).read_unaligned();
            }
        }
    }
    Ok(received)
}
