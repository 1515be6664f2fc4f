//! getsockopt(2) and setsockopt(2).

use handoff::RestoreReason;
use handoff::command::{Keepalive, NicControl};
use libc::{c_int, c_void, socklen_t};

use crate::connection::{self, Connection};
use crate::os;
use crate::real::{kernel, real};
use crate::vfork;

/// # Safety
/// As getsockopt(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    kernel!(getsockopt(
        fd: c_int,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> c_int);
    #[inline(never)]
    unsafe extern "C-unwind" fn rest(
        fd: c_int,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
        connection: &'static Connection,
    ) -> c_int {
        // The kernel says what is wrong with a place that is nowhere.
        let is_there = !value.is_null() && !len.is_null();
        // SAFETY: the program's promise: `len` bytes may be written.
        unsafe {
            match (level, option) {
                _ if vfork::hides(fd) => kernel(fd, level, option, value, len),
                (libc::SOL_SOCKET, libc::SO_ERROR) if is_there => {
                    let error = connection.take_error().or_else(|| connection.take_late());
                    let Some(error) = error else { return kernel(fd, level, option, value, len) };
                    if (*len as usize) < size_of::<c_int>() {
                        return os::fail(libc::EINVAL) as c_int;
                    }
                    value.cast::<c_int>().write_unaligned(error);
                    *len = size_of::<c_int>() as socklen_t;
                    0
                }
                (libc::SOL_SOCKET, libc::SO_REUSEADDR) if is_there => {
                    let room = *len;
                    reuse_address(connection, || {
                        *len = room;
                        let result = kernel(fd, level, option, value, len);
                        let is_whole = result == 0 && *len as usize == size_of::<c_int>();
                        (result, is_whole.then(|| value.cast::<c_int>().read_unaligned()))
                    })
                }
                (libc::IPPROTO_TCP, libc::TCP_INFO) if is_there => {
                    let room = c_int::from_ne_bytes((*len).to_ne_bytes());
                    let Ok(room) = usize::try_from(room) else {
                        return os::fail(libc::EINVAL) as c_int;
                    };
                    let Some(info) = connection.info() else {
                        return kernel(fd, level, option, value, len);
                    };
                    let count = room.min(info.len());
                    os::bytes_mut(value, count).copy_from_slice(&info[..count]);
                    *len = count as socklen_t;
                    0
                }
                // It maps the kernel's pages, of which a connection at the NIC has none.
                (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE) => {
                    connection.restore(handoff::RestoreReason::Unserved);
                    kernel(fd, level, option, value, len)
                }
                // Others are the socket's, which stands for the connection while the NIC has it.
                _ => kernel(fd, level, option, value, len),
            }
        }
    }
    // SAFETY: the program's call.
    unsafe {
        match connection::listed(fd).filter(|connection| !connection.is_plain()) {
            None => kernel(fd, level, option, value, len),
            Some(connection) => rest(fd, level, option, value, len, connection),
        }
    }
}

/// # Safety
/// As setsockopt(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let away = connection::at(fd).filter(|connection| connection.away().is_some());
    if let Some(connection) = away
        && needs_kernel(level, option)
    {
        connection.restore(RestoreReason::Refused);
    }
    // The socket keeps them, and has them when the connection comes back.
    let kernel = || {
        // SAFETY: the program's call.
        unsafe {
            real!(setsockopt(fd, level, option, value, len):
                fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int)
        }
    };
    let result = match connection::at(fd) {
        // A move sets it to what it was.
        Some(connection) if (level, option) == (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
            connection.socket_at_rest(kernel)
        }
        _ => kernel(),
    };
    if let (Some(connection), 0) = (away, result) {
        let is_limit = matches!(
            (level, option),
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE | libc::SO_RCVLOWAT)
                | (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
        );
        if is_limit {
            connection.has_limits(fd);
        }
        tell(connection, fd, level, option);
    }
    result
}

/// `SK_FORCE_REUSE` (include/net/sock.h): `SO_REUSEADDR` of a socket in repair mode, which wharf has it in for some system
/// calls while its connection moves, and when that has ended.
const FORCE_REUSE: c_int = 2;
/// How often a call looks at one that stays so.
const REPAIRED_LOOKS: u32 = 10_000;

/// `SO_REUSEADDR` as the program has set it. `look` gives what the call does, and the value that it has told.
fn reuse_address(
    connection: &'static Connection,
    mut look: impl FnMut() -> (c_int, Option<c_int>),
) -> c_int {
    let mut left = REPAIRED_LOOKS;
    loop {
        let (result, value) = connection.socket_at_rest(&mut look);
        if value != Some(FORCE_REUSE) || left == 0 {
            return result;
        }
        left -= 1;
        os::yield_now();
    }
}

/// Options of `include/uapi/asm-generic/socket.h` that libc does not have.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;

/// Whether the NIC does not do it, so that the kernel must have the connection: all that is not known to act there, or to say
/// nothing.
fn needs_kernel(level: c_int, option: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => !matches!(
            option,
            // These act at the NIC.
            libc::SO_KEEPALIVE
                | libc::SO_LINGER
                | libc::SO_SNDBUF
                | libc::SO_SNDBUFFORCE
                | libc::SO_RCVTIMEO
                | libc::SO_SNDTIMEO
                | SO_RCVTIMEO_NEW
                | SO_SNDTIMEO_NEW
                // These say nothing about a connection that there is, or about one of TCP's.
                | libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
                | libc::SO_BROADCAST
                | libc::SO_NO_CHECK
                // These say how the kernel's driver is polled, which no byte of a connection at the NIC waits for.
                | libc::SO_BUSY_POLL
                | SO_PREFER_BUSY_POLL
                | SO_BUSY_POLL_BUDGET
                | libc::SO_INCOMING_CPU
        ),
        libc::IPPROTO_TCP => !matches!(
            option,
            libc::TCP_NODELAY
                | libc::TCP_CORK
                | libc::TCP_QUICKACK
                | libc::TCP_USER_TIMEOUT
                | libc::TCP_NOTSENT_LOWAT
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                // These say nothing about a connection that there is.
                | libc::TCP_DEFER_ACCEPT
                | libc::TCP_SYNCNT
                | libc::TCP_FASTOPEN
        ),
        // Type of service, hop limit: the packets would not have them.
        libc::IPPROTO_IP | libc::IPPROTO_IPV6 => true,
        _ => true,
    }
}

/// Tells the NIC of an option that the socket has now.
fn tell(connection: &'static Connection, fd: c_int, level: c_int, option: c_int) {
    let of = |name| os::int_option(fd, libc::IPPROTO_TCP, name).unwrap_or(0);
    let is_kept_alive = || {
        let on = os::int_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE);
        on.is_some_and(|on| on != 0)
    };
    let control = match (level, option) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => NicControl::NoDelay(of(option) != 0),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => NicControl::Cork(of(option) != 0),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => NicControl::QuickAck(of(option) != 0),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => NicControl::UserTimeout(of(option) as u32),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => NicControl::NotSentLowat(of(option) as u32),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT)
        | (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
            NicControl::Keepalive(is_kept_alive().then(|| Keepalive {
                idle: of(libc::TCP_KEEPIDLE) as u16,
                interval: of(libc::TCP_KEEPINTVL) as u16,
                probes: of(libc::TCP_KEEPCNT) as u8,
            }))
        }
        _ => return,
    };
    connection.tell(control);
}
