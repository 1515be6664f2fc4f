//! What is done with descriptors as files: close(2), dup(2), fcntl(2), ioctl(2), sendfile(2), splice(2).

use libc::{c_int, c_uint, c_ulong, c_void, off_t, off64_t, size_t, ssize_t};

use super::stream::{recv_pieces, send_pieces};
use crate::connection::{Connection, epoll};
use crate::os;
use crate::real::real;
use crate::session::{self, Session};
use crate::table;
use handoff::RestoreReason;

/// Bytes that sendfile moves at once.
const PIECE: usize = 256 << 10;

/// The descriptor is about to be closed.
fn forget(fd: c_int) {
    let Some(session) = session::get_there() else {
        if let Some(connection) = table::get(fd) {
            connection.close();
        }
        return;
    };
    match table::get(fd) {
        Some(connection) if session.is_own() => connection.close(),
        Some(_) => {}
        None => epoll::closed(fd, || session.is_own()),
    }
}

/// There will be two descriptors of one connection: that is the kernel's to serve.
fn share(fd: c_int, reason: RestoreReason) {
    if let Some(connection) = table::get(fd) {
        connection.restore(reason);
    }
}

/// # Safety
/// As close(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    forget(fd);
    // SAFETY: it takes an integer.
    unsafe { real!(close(fd): fn(c_int) -> c_int) }
}

/// # Safety
/// As close_range(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags == 0 && session::get_there().is_some_and(Session::is_own) {
        let within = |fd: c_int| (first..=last).contains(&(fd as c_uint));
        table::all().filter(|connection| within(connection.fd())).for_each(|c| c.close());
    }
    // SAFETY: it takes integers.
    unsafe { real!(close_range(first, last, flags): fn(c_uint, c_uint, c_int) -> c_int) }
}

/// # Safety
/// As closefrom(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    if session::get_there().is_some_and(Session::is_own) {
        table::all().filter(|connection| connection.fd() >= first).for_each(|c| c.close());
    }
    // SAFETY: it takes an integer.
    unsafe { real!(closefrom(first): fn(c_int) -> ()) }
}

/// # Safety
/// As dup(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    share(fd, RestoreReason::Unserved);
    // SAFETY: it takes an integer.
    unsafe { real!(dup(fd): fn(c_int) -> c_int) }
}

/// # Safety
/// As dup2(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    share(fd, RestoreReason::Unserved);
    if fd != to {
        forget(to);
    }
    // SAFETY: it takes integers.
    unsafe { real!(dup2(fd, to): fn(c_int, c_int) -> c_int) }
}

/// # Safety
/// As dup3(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    share(fd, RestoreReason::Unserved);
    if fd != to {
        forget(to);
    }
    // SAFETY: it takes integers.
    unsafe { real!(dup3(fd, to, flags): fn(c_int, c_int, c_int) -> c_int) }
}

/// # Safety
/// As fcntl(2) of libc, whose third argument, if there is one, comes in the same register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC {
        share(fd, RestoreReason::Unserved);
    }
    // SAFETY: the program's call.
    unsafe { real!(fcntl(fd, command, argument): fn(c_int, c_int, c_ulong) -> c_int) }
}

/// # Safety
/// As fcntl64 of glibc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC {
        share(fd, RestoreReason::Unserved);
    }
    // SAFETY: the program's call.
    unsafe { real!(fcntl64(fd, command, argument): fn(c_int, c_int, c_ulong) -> c_int) }
}

/// # Safety
/// As ioctl(2) of libc, whose third argument comes in the same register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if let Some(connection) = table::get(fd) {
        /// `SIOCOUTQNSD` (include/uapi/linux/sockios.h).
        const SIOCOUTQNSD: c_ulong = 0x894B;
        let answer = match request {
            libc::FIONREAD => connection.queued().map(|(unread, _)| unread),
            libc::TIOCOUTQ | SIOCOUTQNSD => connection.queued().map(|(_, unsent)| unsent),
            _ => None,
        };
        if let Some(answer) = answer {
            // SAFETY: the program's promise.
            unsafe { argument.cast::<c_int>().write(answer) };
            return 0;
        }
    }
    // SAFETY: the program's call.
    unsafe { real!(ioctl(fd, request, argument): fn(c_int, c_ulong, *mut c_void) -> c_int) }
}

/// sendfile(2) to a connection that is looked at, by reading the file. `None` if that is none, or the file none that can
/// be read at a place.
fn send_file(to: c_int, from: c_int, offset: Option<&mut i64>, count: usize) -> Option<isize> {
    let connection = table::get(to)?;
    if connection.is_settled() {
        return None;
    }
    let mut piece = vec![0; PIECE.min(count)];
    let mut at = match &offset {
        Some(offset) => **offset,
        // SAFETY: it takes integers.
        None => unsafe { libc::lseek64(from, 0, libc::SEEK_CUR) },
    };
    if at < 0 {
        return None;
    }
    let begin = at;
    let mut sent = 0;
    while sent < count {
        let want = piece.len().min(count - sent);
        // SAFETY: `piece` is writable for that length.
        let got = unsafe { libc::pread64(from, piece.as_mut_ptr().cast(), want, at) };
        if got < 0 && sent == 0 {
            return Some(got);
        }
        if got <= 0 {
            break;
        }
        let put = send_pieces(connection, &[&piece[..got as usize]], 0);
        if put < 0 && sent == 0 {
            return Some(put);
        }
        if put <= 0 {
            break;
        }
        sent += put as usize;
        at += put as i64;
        if put < got {
            break;
        }
    }
    match offset {
        Some(offset) => *offset = at,
        // SAFETY: it takes integers.
        None if at != begin => drop(unsafe { libc::lseek64(from, at, libc::SEEK_SET) }),
        None => {}
    }
    Some(sent as isize)
}

/// # Safety
/// As sendfile(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    at: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the program's promise.
    match send_file(to, from, unsafe { at.as_mut() }, count) {
        Some(result) => result,
        // SAFETY: the program's call.
        None => unsafe {
            real!(sendfile(to, from, at, count): fn(c_int, c_int, *mut off_t, size_t) -> ssize_t)
        },
    }
}

/// # Safety
/// As sendfile64 of glibc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    at: *mut off64_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the program's promise.
    match send_file(to, from, unsafe { at.as_mut() }, count) {
        Some(result) => result,
        // SAFETY: the program's call.
        None => unsafe {
            real!(sendfile64(to, from, at, count): fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t)
        },
    }
}

/// splice(2) of what is left of a connection that has ended at the NIC.
fn splice_rest(connection: &'static Connection, to: c_int, count: usize) -> isize {
    let mut piece = vec![0; PIECE.min(count)];
    let flags = libc::MSG_DONTWAIT;
    let there = recv_pieces(connection, &mut [&mut piece], flags | libc::MSG_PEEK);
    if there <= 0 {
        return there;
    }
    // SAFETY: so many bytes are readable.
    let put = unsafe { libc::write(to, piece.as_ptr().cast(), there as usize) };
    match usize::try_from(put) {
        Ok(put) => recv_pieces(connection, &mut [&mut piece[..put]], flags),
        Err(_) => put,
    }
}

/// # Safety
/// As splice(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    share(from, RestoreReason::Unserved);
    share(to, RestoreReason::Unserved);
    match (table::get(from), table::get(to)) {
        (Some(connection), _) if connection.has_ended() => {
            return splice_rest(connection, to, count);
        }
        // What is to be sent stays where it is.
        (_, Some(connection)) if connection.has_ended() => return send_pieces(connection, &[], 0),
        _ => {}
    }
    // SAFETY: the program's call.
    unsafe {
        real!(splice(from, from_at, to, to_at, count, flags):
            fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t)
    }
}

/// # Safety
/// As fdopen(3) of libc: its streams read and write past this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const libc::c_char) -> *mut libc::FILE {
    share(fd, RestoreReason::Unserved);
    let errno = os::errno();
    // SAFETY: the program's call.
    let file =
        unsafe { real!(fdopen(fd, mode): fn(c_int, *const libc::c_char) -> *mut libc::FILE) };
    if !file.is_null() {
        os::set_errno(errno);
    }
    file
}
