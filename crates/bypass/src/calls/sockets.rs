//! accept(2), connect(2), shutdown(2).

use libc::{c_int, sockaddr, socklen_t};

use crate::cancel;
use crate::connection;
use crate::os;
use crate::real::real;
use crate::session;
use crate::trap::trap;
use crate::vfork;

/// A connection as a call has made it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Accepted,
    Connected,
    /// It is being opened: no policy picks it before its first bytes.
    Connecting,
}

/// A descriptor has a new connection, if it is one of TCP's: it is looked at from now on.
#[inline(never)]
fn begin(fd: c_int, begun: Begun) {
    if fd < 0 || !session::look() && !session::is_beginning() {
        return;
    }
    if !vfork::is_own() {
        // It is not the parent's, whose table this is.
        vfork::change(fd, fd);
        return;
    }
    let errno = os::errno();
    if is_tcp(fd) {
        connection::uring::look_now_and_then();
        connection::insert(fd);
        if let Some(connection) = connection::at(fd) {
            if begun != Begun::Accepted {
                connection.is_opened();
            }
            if begun != Begun::Connecting {
                // A policy may pick it at once.
                connection.passed(0, 0);
            }
        }
    }
    os::set_errno(errno);
}

/// What an epoll set is to watch before it is connected, as nginx has them, or is duplicated before: the layer has to know of
/// that before it can be offered. It may change the error number, as calls may that do not fail. One that is connected
/// already has come from elsewhere, and may be another process's, too.
pub(super) fn expected(fd: c_int) -> Option<&'static connection::Connection> {
    if !is_tcp(fd) || !is_unopened(fd) || !vfork::is_own() {
        return None;
    }
    begin(fd, Begun::Connecting);
    connection::at(fd)
}

/// Whether a socket neither listens nor has a peer.
fn is_unopened(fd: c_int) -> bool {
    os::int_option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(0) && !os::has_peer(fd)
}

fn is_tcp(fd: c_int) -> bool {
    let option = |name: c_int| os::int_option(fd, libc::SOL_SOCKET, name);
    // wharf refuses a connection of MPTCP's, and says so.
    matches!(option(libc::SO_PROTOCOL), Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
        && matches!(option(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
}

/// # Safety
/// As accept(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's call.
    let new = unsafe {
        if session::has_supervisor() {
            cancel::within(move || trap!(libc::SYS_accept4, fd, name, len, 0)) as c_int
        } else {
            real!(accept(fd, name, len): fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int)
        }
    };
    cancel::after(move || begin(new, Begun::Accepted));
    new
}

/// # Safety
/// As accept4(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's call.
    let new = unsafe {
        if session::has_supervisor() {
            cancel::within(move || trap!(libc::SYS_accept4, fd, name, len, flags)) as c_int
        } else {
            real!(accept4(fd, name, len, flags):
                fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int)
        }
    };
    cancel::after(move || begin(new, Begun::Accepted));
    new
}

/// # Safety
/// As connect(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the program's call.
    cancel::apart(move || unsafe { connect_here(fd, to, len) })
}

/// # Safety
/// As connect(2).
#[inline(never)]
unsafe fn connect_here(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    if let Some(connection) = connection::at(fd)
        && connection.away_for_control().is_some()
    {
        // SAFETY: the program's promise.
        let family = unsafe { to.as_ref() }.map(|to| c_int::from(to.sa_family));
        if family != Some(libc::AF_UNSPEC) {
            return os::fail(libc::EISCONN) as c_int;
        }
        if !connection.try_restore(handoff::RestoreReason::Unserved) {
            // The socket stands for a connection that is on its way.
            return os::fail(libc::EAGAIN) as c_int;
        }
    }
    // SAFETY: the program's call.
    let result = unsafe {
        if session::has_supervisor() {
            cancel::within(move || trap!(libc::SYS_connect, fd, to, len)) as c_int
        } else {
            real!(connect(fd, to, len): fn(c_int, *const sockaddr, socklen_t) -> c_int)
        }
    };
    let begun = result == 0 || os::errno() == libc::EINPROGRESS || os::errno() == libc::EINTR;
    if begun {
        match connection::at(fd) {
            Some(connection) if result == 0 => connection.passed(0, 0),
            Some(_) => {}
            None => begin(fd, if result == 0 { Begun::Connected } else { Begun::Connecting }),
        }
    }
    result
}

/// # Safety
/// As getpeername(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    if connection::at(fd).is_some_and(|connection| connection.has_ended()) {
        // The socket, which stands for the connection, knows nothing of its end.
        return os::fail(libc::ENOTCONN) as c_int;
    }
    // SAFETY: the program's call.
    unsafe { real!(getpeername(fd, name, len): fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int) }
}

/// # Safety
/// As shutdown(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(connection) = connection::at(fd) {
        loop {
            if let Some(result) = connection.shutdown(how) {
                return result;
            }
            if let Some(_call) = connection.enter_kernel() {
                // SAFETY: it takes integers.
                let result = unsafe { real!(shutdown(fd, how): fn(c_int, c_int) -> c_int) };
                if result == 0 {
                    connection.was_shut(how);
                }
                return result;
            }
        }
    }
    // SAFETY: it takes integers.
    unsafe { real!(shutdown(fd, how): fn(c_int, c_int) -> c_int) }
}
