//! What is done with descriptors as files: close(2), dup(2), fcntl(2), ioctl(2), fdopen(3).

use libc::{c_int, c_uint, c_ulong, c_void};

use crate::connection::{self, Connection, Held, epoll};
use crate::os;
use crate::real::real;
use crate::session::{self, Session};
use crate::table;
use handoff::RestoreReason;

/// Whether this process has its descriptors for itself. A child of vfork(2) has this one's memory: what it closes is open
/// here.
#[inline]
fn is_own() -> bool {
    session::get_there().is_none_or(Session::is_own)
}

/// # Safety
/// As close(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if !table::word(fd).is_null() && is_own() {
        match connection::at(fd) {
            Some(connection) if connection.close_plainly(fd) => {}
            Some(connection) => connection.prepare(fd).finish(),
            None => epoll::closed(fd),
        }
    }
    // SAFETY: it takes an integer.
    unsafe { real!(close(fd): fn(c_int) -> c_int) }
}

/// These descriptors are about to be closed.
fn close_all(which: impl Fn(c_int) -> bool) {
    if !is_own() {
        return;
    }
    for fd in table::all().filter(|fd| which(*fd)) {
        match connection::at(fd) {
            Some(connection) => connection.prepare(fd).finish(),
            None => epoll::closed(fd),
        }
    }
}

/// # Safety
/// As close_range(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 && first <= last {
        close_all(|fd| (first..=last).contains(&(fd as c_uint)));
    }
    // SAFETY: it takes integers.
    unsafe { real!(close_range(first, last, flags): fn(c_uint, c_uint, c_int) -> c_int) }
}

/// # Safety
/// As closefrom(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    close_all(|fd| fd >= first);
    // SAFETY: it takes an integer.
    unsafe { real!(closefrom(first): fn(c_int) -> ()) }
}

/// What a descriptor is that is being duplicated.
enum Original {
    Connection(Held),
    Set(&'static epoll::Set),
}

/// Duplicates a descriptor by `call`: the new one is what that one is.
fn duplicate(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if table::word(fd).is_null() || !is_own() {
        return call();
    }
    let original = match (connection::at(fd), epoll::at(fd)) {
        (Some(connection), _) => connection.hold().map(Original::Connection),
        (None, set) => set.map(Original::Set),
    };
    let new = call();
    if new < 0 {
        return new;
    }
    match original {
        Some(Original::Connection(held)) => held.add(new),
        Some(Original::Set(set)) => set.add(new),
        None => {}
    }
    new
}

/// Duplicates a descriptor onto another by `call`, which closes that.
fn duplicate_onto(fd: c_int, to: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let nothing = table::word(fd).is_null() && table::word(to).is_null();
    if nothing || fd == to || !is_own() {
        return call();
    }
    let closing = connection::at(to).map(|connection| connection.prepare(to));
    duplicate(fd, || {
        let new = call();
        if new >= 0 {
            match closing {
                Some(closing) => closing.finish(),
                None => epoll::closed(to),
            }
        }
        new
    })
}

/// # Safety
/// As dup(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: it takes an integer.
    duplicate(fd, || unsafe { real!(dup(fd): fn(c_int) -> c_int) })
}

/// # Safety
/// As dup2(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: it takes integers.
    duplicate_onto(fd, to, || unsafe { real!(dup2(fd, to): fn(c_int, c_int) -> c_int) })
}

/// # Safety
/// As dup3(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: it takes integers.
    let call = || unsafe { real!(dup3(fd, to, flags): fn(c_int, c_int, c_int) -> c_int) };
    duplicate_onto(fd, to, call)
}

/// What fcntl(2) changes that the layer knows of.
fn control(fd: c_int, command: c_int, call: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(fd, call),
        libc::F_SETFL => {
            let result = call();
            connection::at(fd).into_iter().for_each(Connection::may_block);
            result
        }
        _ => call(),
    }
}

/// # Safety
/// As fcntl(2) of libc, whose third argument, if there is one, comes in the same register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the program's call.
    control(fd, command, || unsafe {
        real!(fcntl(fd, command, argument): fn(c_int, c_int, c_ulong) -> c_int)
    })
}

/// # Safety
/// As fcntl64 of glibc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the program's call.
    control(fd, command, || unsafe {
        real!(fcntl64(fd, command, argument): fn(c_int, c_int, c_ulong) -> c_int)
    })
}

/// # Safety
/// As ioctl(2) of libc, whose third argument comes in the same register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let call = || {
        // SAFETY: the program's call.
        unsafe { real!(ioctl(fd, request, argument): fn(c_int, c_ulong, *mut c_void) -> c_int) }
    };
    let Some(connection) = connection::at(fd) else { return call() };
    /// `SIOCOUTQNSD` (include/uapi/linux/sockios.h).
    const SIOCOUTQNSD: c_ulong = 0x894B;
    let answer = match request {
        libc::FIONREAD => connection.queued().map(|(unread, _)| unread),
        libc::TIOCOUTQ | SIOCOUTQNSD => connection.queued().map(|(_, unsent)| unsent),
        libc::FIONBIO => {
            let result = call();
            connection.may_block();
            return result;
        }
        _ => None,
    };
    match answer {
        Some(answer) => {
            // SAFETY: the program's promise.
            unsafe { argument.cast::<c_int>().write_unaligned(answer) };
            0
        }
        None => call(),
    }
}

/// # Safety
/// As fdopen(3) of libc: its streams read and write past this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const libc::c_char) -> *mut libc::FILE {
    let errno = os::errno();
    if let Some(connection) = connection::at(fd) {
        connection.restore(RestoreReason::Unserved);
        os::set_errno(errno);
    }
    // SAFETY: the program's call.
    unsafe { real!(fdopen(fd, mode): fn(c_int, *const libc::c_char) -> *mut libc::FILE) }
}

/// A child has all descriptors of its parent's as the kernel's.
pub(super) fn forget_sets() {
    for fd in table::all().filter(|fd| epoll::at(*fd).is_some()) {
        epoll::closed(fd);
    }
}
