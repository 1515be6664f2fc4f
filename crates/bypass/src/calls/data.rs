//! read(2), write(2), and the other calls that move bytes.

use libc::{c_int, c_void, iovec, size_t, sockaddr, socklen_t, ssize_t};

use super::stream::{receive_parts, send_parts};
use crate::cancel;
use crate::connection::{self, Connection, Parts};
use crate::os;
use crate::real::{kernel, real};
use crate::vfork;
use handoff::RestoreReason;

/// Most parts of a vector (UIO_MAXIOV, include/uapi/linux/uio.h).
pub(super) const PARTS_MAX: usize = 1024;

/// A function of libc's on a descriptor. What concerns no connection pays for one look at a table. On a connection it is
/// libc's own where the kernel has that for a while, and else what is behind the arguments, in which `kernel` is libc's.
macro_rules! served {
    (
        $(#[$doc:meta])*
        $name:ident($fd:ident, $($argument:ident: $of:ty),*) -> $result:ty,
        |$connection:ident| $rest:expr
    ) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($fd: c_int, $($argument: $of),*) -> $result {
            kernel!($name($fd: c_int, $($argument: $of),*) -> $result);
            // Three functions, each of which goes on to the next with what it was given where it is, so that none keeps
            // what only the next needs.
            #[inline(never)]
            unsafe extern "C-unwind" fn known(
                $fd: c_int,
                $($argument: $of,)*
                connection: &'static Connection,
            ) -> $result {
                // SAFETY: the program's call.
                unsafe {
                    match connection.plain() {
                        Some(call) => call.after(kernel($fd, $($argument),*)),
                        None => rest($fd, $($argument,)* connection),
                    }
                }
            }
            #[inline(never)]
            #[allow(unused_variables)] // some calls do not look at all that they are given
            unsafe extern "C-unwind" fn rest(
                $fd: c_int,
                $($argument: $of,)*
                $connection: &'static Connection,
            ) -> $result {
                // SAFETY: the program's call, whose arguments are what the function takes.
                unsafe {
                    if vfork::hides($fd) {
                        return kernel($fd, $($argument),*);
                    }
                    $rest
                }
            }
            // SAFETY: the program's call.
            unsafe {
                match connection::listed($fd) {
                    None => kernel($fd, $($argument),*),
                    Some(connection) => {
                        cancel::apart(move || known($fd, $($argument,)* connection))
                    }
                }
            }
        }
    };
}

/// The parts of a vector.
///
/// # Safety
/// The program's call promises `count` parts.
pub(super) unsafe fn vector<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(parts, count) }
}

/// Receives into one place, wherever the connection is.
///
/// # Safety
/// The program's call promises `len` bytes that may be written, or `MSG_TRUNC`: then it may be no memory at all (tcp(7)).
unsafe fn receive_one(
    connection: &'static Connection,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let part = [iovec { iov_base: into, iov_len: len }];
    // SAFETY: the caller's promise. With MSG_TRUNC nothing is written.
    receive_parts(connection, fd, unsafe { Parts::new(&part) }, flags)
}

/// Sends from one place, wherever the connection is.
///
/// # Safety
/// The program's call promises `len` bytes that may be read.
unsafe fn send_one(
    connection: &'static Connection,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let part = [iovec { iov_base: from.cast_mut(), iov_len: len }];
    // SAFETY: the caller's promise.
    send_parts(connection, fd, unsafe { Parts::new(&part) }, flags)
}

served! {
    /// # Safety
    /// As read(2) of libc.
    read(fd, into: *mut c_void, len: size_t) -> ssize_t,
    // As sock_read_iter: for nothing that is asked of no protocol.
    |connection| if len == 0 { 0 } else { receive_one(connection, fd, into, len, 0) }
}

served! {
    /// # Safety
    /// As write(2) of libc.
    write(fd, from: *const c_void, len: size_t) -> ssize_t,
    |connection| send_one(connection, fd, from, len, 0)
}

served! {
    /// # Safety
    /// As readv(2) of libc.
    readv(fd, parts: *const iovec, count: c_int) -> ssize_t,
    |connection| match usize::try_from(count) {
        Ok(count @ 1..=PARTS_MAX) => match Parts::new(vector(parts, count)) {
            into if into.len() == 0 => 0,
            into => receive_parts(connection, fd, into, 0),
        },
        _ => kernel(fd, parts, count),
    }
}

served! {
    /// # Safety
    /// As writev(2) of libc.
    writev(fd, parts: *const iovec, count: c_int) -> ssize_t,
    |connection| match usize::try_from(count) {
        Ok(count @ 1..=PARTS_MAX) => match Parts::new(vector(parts, count)) {
            from if from.len() == 0 => 0,
            from => send_parts(connection, fd, from, 0),
        },
        _ => kernel(fd, parts, count),
    }
}

/// Declares preadv2(2) or pwritev2(2), which on a connection are readv(2) or writev(2) with flags that the kernel serves.
macro_rules! served_by_place {
    ($($name:ident: $plain:ident;)*) => {$(
        served! {
            /// # Safety
            /// As the function of libc's of this name.
            $name(
                fd,
                parts: *const iovec,
                count: c_int,
                at: libc::off64_t,
                flags: c_int
            ) -> ssize_t,
            |connection| {
                // Another place than the present one is an error (ESPIPE).
                if at == -1 && flags == 0 {
                    return $plain(fd, parts, count);
                }
                if at == -1 {
                    if !connection.try_restore(RestoreReason::Unserved) {
                        return os::fail(libc::EAGAIN);
                    }
                }
                kernel(fd, parts, count, at, flags)
            }
        }
    )*};
}

served_by_place! {
    preadv2: readv;
    preadv64v2: readv;
    pwritev2: writev;
    pwritev64v2: writev;
}

served! {
    /// # Safety
    /// As recv(2) of libc.
    recv(fd, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t,
    |connection| receive_one(connection, fd, into, len, flags)
}

served! {
    /// # Safety
    /// As send(2) of libc.
    send(fd, from: *const c_void, len: size_t, flags: c_int) -> ssize_t,
    |connection| send_one(connection, fd, from, len, flags)
}

served! {
    /// # Safety
    /// As recvfrom(2) of libc.
    recvfrom(
        fd,
        into: *mut c_void,
        len: size_t,
        flags: c_int,
        from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t,
    |connection| {
        if !from_len.is_null() && !from.is_null() {
            // A connected socket gives no name (tcp_recvmsg).
            *from_len = 0;
        }
        receive_one(connection, fd, into, len, flags)
    }
}

served! {
    /// # Safety
    /// As sendto(2) of libc.
    sendto(
        fd,
        from: *const c_void,
        len: size_t,
        flags: c_int,
        to: *const sockaddr,
        to_len: socklen_t
    ) -> ssize_t,
    // The name of a connected stream's peer is of no use (tcp_sendmsg).
    |connection| send_one(connection, fd, from, len, flags)
}

/// # Safety
/// As `__read_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    if len > room {
        // What glibc's own ends the program with.
        // SAFETY: the program's call.
        return unsafe {
            real!(__read_chk(fd, into, len, room): fn(c_int, *mut c_void, size_t, size_t) -> ssize_t)
        };
    }
    // SAFETY: the program's call.
    unsafe { read(fd, into, len) }
}

/// # Safety
/// As `__recv_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if len > room {
        // SAFETY: the program's call.
        return unsafe {
            real!(__recv_chk(fd, into, len, room, flags):
                fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t)
        };
    }
    // SAFETY: the program's call.
    unsafe { recv(fd, into, len, flags) }
}

/// # Safety
/// As `__recvfrom_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if len > room {
        // SAFETY: the program's call.
        return unsafe {
            real!(__recvfrom_chk(fd, into, len, room, flags, from, from_len):
                fn(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t)
        };
    }
    // SAFETY: the program's call.
    unsafe { recvfrom(fd, into, len, flags, from, from_len) }
}
