//! Calls on sockets.
//!
//! The functions here and in the other modules are those of the C library, but for their first
//! argument. The unsafe ones ask of their pointers what the C library's ask.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t, ssize_t};
use packetdrill::sockets::{Call, Errno, Fd, Host, Outcome, Stop};

use crate::interface::User;
use crate::memory::{answer, bytes, gather, pieces, put, put_address, scatter, socket_address};
use crate::world::{self, World};

/// Does something that does not block.
pub(crate) fn at_once<T>(
    fd: c_int,
    act: impl FnOnce(&mut Host, Fd) -> Result<T, Stop>,
) -> Result<T, Errno> {
    let world = world::get().ok_or(Errno(libc::ENOSYS))?;
    let mut inside = world.lock();
    let fd = inside.fd(fd)?;
    let done = act(&mut inside.host, fd);
    world.go_on(&mut inside);
    done.map_err(|stop| match stop {
        Stop::Errno(errno) => errno,
        Stop::Block => Errno(libc::EAGAIN),
    })
}

/// Does something that may block.
fn in_time(fd: c_int, call: impl FnOnce(Fd) -> Call) -> Result<Outcome, Errno> {
    let world = world::get().ok_or(Errno(libc::ENOSYS))?;
    let fd = world.lock().fd(fd)?;
    world.call(call(fd))
}

pub(crate) extern "C" fn socket(_: User, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let make = |world: &World| {
        let mut inside = world.lock();
        // The script may have changed them since the last socket.
        inside.host.set_settings(world::settings());
        match inside.host.socket(domain, kind, protocol) {
            Ok(fd) => inside.publish(fd).map(i64::from),
            Err(Stop::Errno(errno)) => Err(errno),
            Err(Stop::Block) => Err(Errno(libc::EAGAIN)),
        }
    };
    answer(world::get().ok_or(Errno(libc::ENOSYS)).and_then(make)) as c_int
}

pub(crate) unsafe extern "C" fn bind(
    _: User,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill passes an address and its length, as bind() asks.
    let address = unsafe { socket_address(address, len) };
    let address = address.and_then(|address| address.ok_or(Errno(libc::EAFNOSUPPORT)));
    answer(address.and_then(|to| at_once(fd, |host, fd| host.bind(fd, to))).map(|()| 0)) as c_int
}

pub(crate) extern "C" fn listen(_: User, fd: c_int, _backlog: c_int) -> c_int {
    answer(at_once(fd, |host, fd| host.listen(fd)).map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn accept(
    _: User,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let accepted = in_time(fd, |fd| Call::Accept { fd }).and_then(|outcome| match outcome {
        Outcome::Accepted(new, peer) => {
            // SAFETY: packetdrill passes room for an address and its length, or null, as accept() asks.
            unsafe { put_address(address, len, peer) };
            let world = world::get().ok_or(Errno(libc::ENOSYS))?;
            world.lock().publish(new).map(i64::from)
        }
        _ => Err(Errno(libc::EINVAL)),
    });
    answer(accepted) as c_int
}

pub(crate) unsafe extern "C" fn connect(
    _: User,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill passes an address and its length, as connect() asks.
    let result = match unsafe { socket_address(address, len) } {
        Ok(Some(to)) => {
            in_time(fd, |fd| Call::Connect { fd, to, begun: false }).map(|outcome| outcome.value())
        }
        Ok(None) => at_once(fd, |host, fd| host.disconnect(fd)).map(|()| 0),
        Err(errno) => Err(errno),
    };
    answer(result) as c_int
}

fn receive(fd: c_int, len: usize, flags: c_int) -> Result<Vec<u8>, Errno> {
    match in_time(fd, |fd| Call::Receive { fd, len, flags })? {
        Outcome::Received(bytes) => Ok(bytes),
        _ => Err(Errno(libc::EINVAL)),
    }
}

pub(crate) unsafe extern "C" fn read(
    user: User,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
) -> ssize_t {
    // SAFETY: what read() asks of the buffer is what recv() asks.
    unsafe { recv(user, fd, buffer, len, 0) }
}

pub(crate) unsafe extern "C" fn recv(
    _: User,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    if buffer.is_null() && len > 0 {
        return answer(Err(Errno(libc::EFAULT))) as ssize_t;
    }
    let received = receive(fd, len, flags).map(|bytes| {
        // SAFETY: packetdrill passes room for `len` bytes, or null, as recv() asks.
        unsafe { put(buffer, len, &bytes) };
        bytes.len() as i64
    });
    answer(received) as ssize_t
}

pub(crate) unsafe extern "C" fn recvfrom(
    user: User,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
    _address: *mut sockaddr,
    _address_len: *mut socklen_t,
) -> ssize_t {
    // A connected socket says nothing of where bytes came from.
    // SAFETY: what recvfrom() asks of the buffer is what recv() asks.
    unsafe { recv(user, fd, buffer, len, flags) }
}

/// recv() into pieces.
///
/// # Safety
/// Each piece has room for what it says.
unsafe fn receive_pieces(fd: c_int, pieces: &[iovec], flags: c_int) -> Result<i64, Errno> {
    let len = pieces.iter().map(|piece| piece.iov_len).sum();
    receive(fd, len, flags).map(|bytes| {
        // SAFETY: as the caller promises.
        unsafe { scatter(pieces, &bytes) };
        bytes.len() as i64
    })
}

pub(crate) unsafe extern "C" fn readv(
    _: User,
    fd: c_int,
    vector: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: packetdrill passes `count` pieces, as readv() asks.
    let pieces = unsafe { pieces(vector, count.max(0) as usize) };
    // SAFETY: they have room for what they say, as readv() asks.
    answer(unsafe { receive_pieces(fd, pieces, 0) }) as ssize_t
}

pub(crate) unsafe extern "C" fn recvmsg(
    _: User,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill passes a message that it has filled in, as recvmsg() asks.
    let (pieces, message) =
        unsafe { (pieces((*message).msg_iov, (*message).msg_iovlen), &mut *message) };
    message.msg_flags = 0;
    message.msg_controllen = 0;
    message.msg_namelen = 0;
    // SAFETY: the pieces have room for what they say, as recvmsg() asks.
    answer(unsafe { receive_pieces(fd, pieces, flags) }) as ssize_t
}

fn send_bytes(fd: c_int, bytes: Vec<u8>, flags: c_int) -> Result<i64, Errno> {
    if flags & libc::MSG_FASTOPEN != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    in_time(fd, |fd| Call::Send { fd, bytes, done: 0, flags }).map(|outcome| outcome.value())
}

pub(crate) unsafe extern "C" fn write(
    user: User,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
) -> ssize_t {
    // SAFETY: what write() asks of the buffer is what send() asks.
    unsafe { send(user, fd, buffer, len, 0) }
}

pub(crate) unsafe extern "C" fn send(
    _: User,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    if buffer.is_null() && len > 0 {
        return answer(Err(Errno(libc::EFAULT))) as ssize_t;
    }
    // SAFETY: packetdrill passes `len` bytes, as send() asks.
    let bytes = unsafe { bytes(buffer, len) }.to_vec();
    answer(send_bytes(fd, bytes, flags)) as ssize_t
}

pub(crate) unsafe extern "C" fn sendto(
    user: User,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
    flags: c_int,
    _address: *const sockaddr,
    _address_len: socklen_t,
) -> ssize_t {
    // A connected socket sends to its peer whatever the address is.
    // SAFETY: what sendto() asks of the buffer is what send() asks.
    unsafe { send(user, fd, buffer, len, flags) }
}

pub(crate) unsafe extern "C" fn writev(
    _: User,
    fd: c_int,
    vector: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: packetdrill passes `count` pieces of initialized memory, as writev() asks.
    let bytes = unsafe { gather(pieces(vector, count.max(0) as usize)) };
    answer(send_bytes(fd, bytes, 0)) as ssize_t
}

pub(crate) unsafe extern "C" fn sendmsg(
    _: User,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill passes a message that it has filled in, as sendmsg() asks.
    let bytes = unsafe { gather(pieces((*message).msg_iov, (*message).msg_iovlen)) };
    answer(send_bytes(fd, bytes, flags)) as ssize_t
}

pub(crate) extern "C" fn close(_: User, fd: c_int) -> c_int {
    let result = at_once(fd, |host, fd| host.close(fd)).map(|()| {
        if let Some(world) = world::get() {
            world.lock().withdraw(fd);
        }
        // SAFETY: the descriptor is one that `publish` has opened for this socket; packetdrill does not
        // use it after this.
        unsafe { libc::close(fd) };
        0
    });
    answer(result) as c_int
}

pub(crate) extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    answer(at_once(fd, |host, fd| host.shutdown(fd, how)).map(|()| 0)) as c_int
}

pub(crate) extern "C" fn pipe(_: User, _fds: *mut c_int) -> c_int {
    answer(Err(Errno(libc::ENOSYS))) as c_int
}

pub(crate) extern "C" fn splice(
    _: User,
    _from: c_int,
    _from_offset: *mut i64,
    _to: c_int,
    _to_offset: *mut i64,
    _len: usize,
    _flags: c_uint,
) -> ssize_t {
    answer(Err(Errno(libc::ENOSYS))) as ssize_t
}
