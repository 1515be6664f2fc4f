//! Options, flags and questions about sockets.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use libc::socklen_t;
use packetdrill::script::symbols;
use packetdrill::sockets::Errno;

use crate::calls::at_once;
use crate::interface::User;
use crate::memory::{answer, bytes, put};

pub(crate) extern "C" fn fcntl(_: User, fd: c_int, command: c_int, argument: c_long) -> c_int {
    let result = match command {
        libc::F_GETFL => at_once(fd, |host, fd| Ok(host.is_nonblocking(fd))).map(|nonblocking| {
            i64::from(libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 })
        }),
        libc::F_SETFL => {
            let on = argument as c_int & libc::O_NONBLOCK != 0;
            at_once(fd, |host, fd| host.set_nonblocking(fd, on)).map(|()| 0)
        }
        _ => Err(Errno(libc::EINVAL)),
    };
    answer(result) as c_int
}

pub(crate) unsafe extern "C" fn ioctl(
    _: User,
    fd: c_int,
    request: c_ulong,
    value: *mut c_int,
) -> c_int {
    let is = |name: &str| symbols::value(name) == Some(request as i64);
    let result = at_once(fd, |host, fd| {
        if is("SIOCINQ") {
            host.readable_len(fd)
        } else if is("SIOCOUTQ") {
            host.unacknowledged(fd)
        } else if is("SIOCOUTQNSD") {
            host.unsent(fd)
        } else {
            Err(Errno(libc::ENOTTY).into())
        }
    });
    let result = result.map(|count| {
        if !value.is_null() {
            // SAFETY: these requests are given the address of an int.
            unsafe { *value = count as c_int };
        }
        0
    });
    answer(result) as c_int
}

pub(crate) unsafe extern "C" fn setsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill passes `len` bytes, as setsockopt() asks.
    let value = unsafe { bytes(value, len as usize) };
    answer(at_once(fd, |host, fd| host.set_option(fd, level, name, value)).map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn getsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let result = at_once(fd, |host, fd| host.option(fd, level, name)).map(|option| {
        // SAFETY: packetdrill passes the number of bytes that it has room for, as getsockopt() asks.
        unsafe { *len = put(value, *len as usize, &option) as socklen_t };
        0
    });
    answer(result) as c_int
}
