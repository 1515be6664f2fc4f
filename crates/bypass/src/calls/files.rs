//! What is done with descriptors as files: close(2), dup(2), fcntl(2), ioctl(2), fdopen(3).

use libc::{c_int, c_uint, c_ulong, c_void};

use super::sockets;
use crate::connection::{self, Connection, epoll};
use crate::os;
use crate::own;
use crate::real::{kernel, real};
use crate::table::{self, Word};
use crate::vfork;
use handoff::RestoreReason;

/// # Safety
/// As close(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    kernel!(close(fd: c_int) -> c_int);
    #[inline(never)]
    extern "C-unwind" fn known(fd: c_int, word: Word) -> c_int {
        if vfork::is_own() {
            let is_done = connection::of(word).is_some_and(|one| one.close_plainly(fd));
            if !is_done && own::is(word) {
                return has_none();
            }
            if !is_done {
                close_rest(fd, word);
            }
        } else if own::is(word) {
            return has_none();
        } else {
            // SAFETY: it takes an integer.
            return of_child(unsafe { kernel(fd) }, fd);
        }
        // SAFETY: it takes an integer.
        unsafe { kernel(fd) }
    }
    let word = table::word(fd);
    // SAFETY: it takes an integer.
    if word.is_null() { unsafe { kernel(fd) } } else { known(fd, word) }
}

/// A child with its parent's memory has changed this number, if the call has not failed.
#[cold]
fn of_child(result: c_int, fd: c_int) -> c_int {
    if result >= 0 {
        vfork::change(fd, fd);
    }
    result
}

/// The program has no such descriptor: it is the layer's.
#[cold]
fn has_none() -> c_int {
    os::fail(libc::EBADF) as c_int
}

/// A descriptor is about to be closed with which more is to be done.
#[cold]
#[inline(never)]
fn close_rest(fd: c_int, word: Word) {
    match connection::of(word) {
        Some(connection) => connection.prepare(fd).finish(),
        None => epoll::closed(fd),
    }
}

/// These descriptors are about to be closed.
fn close_all(which: impl Fn(c_int) -> bool) {
    if !vfork::is_own() {
        return;
    }
    table::all().filter(|fd| which(*fd)).for_each(|fd| close_rest(fd, table::word(fd)));
}

/// # Safety
/// As close_range(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 && first <= last {
        close_all(|fd| (first..=last).contains(&(fd as c_uint)));
        let result = own::around(first, last, |first, last| kernel_close_range(first, last, flags));
        if result >= 0 {
            closed_by_child(first, last);
        }
        return result;
    }
    kernel_close_range(first, last, flags)
}

/// These numbers are closed, both included: if by a child with its parent's memory, in that alone.
fn closed_by_child(first: c_uint, last: c_uint) {
    if !vfork::is_own() {
        let number = |fd: c_uint| c_int::try_from(fd).unwrap_or(c_int::MAX);
        vfork::change(number(first), number(last));
    }
}

fn kernel_close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: it takes integers.
    unsafe { real!(close_range(first, last, flags): fn(c_uint, c_uint, c_int) -> c_int) }
}

/// # Safety
/// As closefrom(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    close_all(|fd| fd >= first);
    own::around(first.max(0) as c_uint, c_uint::MAX, |first, last| {
        if last == c_uint::MAX {
            // SAFETY: it takes an integer.
            unsafe { real!(closefrom(first as c_int): fn(c_int) -> ()) };
        } else if kernel_close_range(first, last, 0) < 0 {
            (first..=last).for_each(|fd| os::close(fd as c_int));
        }
        0
    });
    closed_by_child(first.max(0) as c_uint, c_uint::MAX);
}

/// Duplicates a descriptor by `call`: the new one is what that one is.
#[inline]
fn duplicate(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let word = table::word(fd);
    // A socket may be connected by either of the two.
    let word =
        if word.is_null() && sockets::expected(fd).is_some() { table::word(fd) } else { word };
    if word.is_null() { call() } else { duplicate_known(fd, word, call) }
}

#[inline(always)]
fn duplicate_known(fd: c_int, word: Word, call: impl FnOnce() -> c_int) -> c_int {
    if !vfork::is_own() {
        // A child hands it on, by a number that is not known here.
        let is_its = !vfork::hides(fd);
        connection::of(word).filter(|_| is_its).into_iter().for_each(Connection::give);
        let new = call();
        return of_child(new, new);
    }
    let Some(connection) = connection::of(word) else {
        return epoll::making(|| {
            let new = call();
            if let Some(set) = epoll::of(word).filter(|_| new >= 0) {
                set.add(new);
            }
            new
        });
    };
    if !connection.hold() {
        return call();
    }
    let new = call();
    if new >= 0 {
        connection.add(new);
        if STANDARD.contains(&new) {
            // libc's streams read and write past this library.
            unserved(new);
        }
    } else {
        connection.release();
    }
    new
}

/// Those of standard input, output and error.
const STANDARD: std::ops::RangeInclusive<c_int> = 0..=2;

/// The connection of a descriptor is the kernel's from now on.
#[cold]
fn unserved(fd: c_int) {
    let errno = os::errno();
    if let Some(connection) = connection::at(fd) {
        connection.restore(RestoreReason::Unserved);
    }
    os::set_errno(errno);
}

/// Duplicates a descriptor onto another by `call`, which closes that.
#[inline]
fn duplicate_onto(fd: c_int, to: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if fd == to {
        return call();
    }
    let word = table::word(to);
    if word.is_null() {
        return duplicate(fd, call);
    }
    if !vfork::is_own() {
        return of_child(duplicate(fd, call), to);
    }
    if own::is(word) {
        epoll::making(|| own::make_way(to));
        let new = duplicate(fd, call);
        if new < 0 {
            os::close(to);
        }
        return new;
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
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    kernel!(dup(fd: c_int) -> c_int);
    #[inline(never)]
    extern "C-unwind" fn known(fd: c_int, word: Word) -> c_int {
        // SAFETY: it takes an integer.
        duplicate_known(fd, word, || unsafe { kernel(fd) })
    }
    #[inline(never)]
    extern "C-unwind" fn unknown(fd: c_int) -> c_int {
        match sockets::expected(fd) {
            // SAFETY: it takes an integer.
            None => unsafe { kernel(fd) },
            Some(_) => known(fd, table::word(fd)),
        }
    }
    let word = table::word(fd);
    if word.is_null() { unknown(fd) } else { known(fd, word) }
}

/// # Safety
/// As dup2(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: it takes integers.
    duplicate_onto(fd, to, || unsafe { real!(dup2(fd, to): fn(c_int, c_int) -> c_int) })
}

/// # Safety
/// As dup3(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: it takes integers.
    let call = || unsafe { real!(dup3(fd, to, flags): fn(c_int, c_int, c_int) -> c_int) };
    duplicate_onto(fd, to, call)
}

/// What fcntl(2) changes that the layer knows of.
fn control(fd: c_int, command: c_int, argument: c_ulong, call: impl FnOnce() -> c_int) -> c_int {
    if command != libc::F_SETFL {
        return duplicate(fd, call);
    }
    if argument as c_int & libc::O_ASYNC != 0 {
        signals(fd);
    }
    let result = call();
    connection::at(fd).into_iter().for_each(Connection::may_block);
    result
}

/// The kernel is to send a signal when there is something (`O_ASYNC`): the connection is its own from now on, also one that
/// is to be opened.
#[cold]
fn signals(fd: c_int) {
    connection::at(fd)
        .or_else(|| sockets::expected(fd))
        .into_iter()
        .for_each(|connection| connection.restore(RestoreReason::Unserved));
}

/// Whether fcntl(2) changes something that the layer knows of.
#[inline]
fn controls(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFL)
}

/// # Safety
/// As fcntl(2) of libc, whose third argument, if there is one, comes in the same register.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    kernel!(fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int);
    // SAFETY: the program's call.
    unsafe {
        if controls(command) {
            control(fd, command, argument, || kernel(fd, command, argument))
        } else {
            kernel(fd, command, argument)
        }
    }
}

/// # Safety
/// As fcntl64 of glibc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    kernel!(fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int);
    // SAFETY: the program's call.
    unsafe {
        if controls(command) {
            control(fd, command, argument, || kernel(fd, command, argument))
        } else {
            kernel(fd, command, argument)
        }
    }
}

/// # Safety
/// As ioctl(2) of libc, whose third argument comes in the same register.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    kernel!(ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int);
    /// `SIOCOUTQNSD` (include/uapi/linux/sockios.h).
    const SIOCOUTQNSD: c_ulong = 0x894B;
    #[inline(never)]
    unsafe extern "C-unwind" fn rest(
        fd: c_int,
        request: c_ulong,
        argument: *mut c_void,
        connection: &'static Connection,
    ) -> c_int {
        let answer = match request {
            _ if vfork::hides(fd) => None,
            libc::FIONREAD => connection.queued().map(|(unread, _)| unread),
            libc::TIOCOUTQ => connection.queued().map(|(_, unacknowledged)| unacknowledged),
            SIOCOUTQNSD => connection.unsent(),
            libc::FIONBIO => {
                // SAFETY: the program's call.
                let result = unsafe { kernel(fd, request, argument) };
                connection.may_block();
                return result;
            }
            _ => None,
        };
        // SAFETY: the program's call.
        unsafe {
            match answer {
                Some(answer) => {
                    argument.cast::<c_int>().write_unaligned(answer);
                    0
                }
                None => kernel(fd, request, argument),
            }
        }
    }
    // SAFETY: the program's call.
    unsafe {
        match connection::listed(fd).filter(|one| !one.is_plain()) {
            _ if request == libc::FIOASYNC => {
                signals(fd);
                kernel(fd, request, argument)
            }
            None => kernel(fd, request, argument),
            Some(connection) => rest(fd, request, argument, connection),
        }
    }
}

/// # Safety
/// As fdopen(3) of libc: its streams read and write past this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const libc::c_char) -> *mut libc::FILE {
    unserved(fd);
    // SAFETY: the program's call.
    unsafe { real!(fdopen(fd, mode): fn(c_int, *const libc::c_char) -> *mut libc::FILE) }
}

/// # Safety
/// As fclose(3) of libc, which closes the descriptor by a call of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(stream: *mut libc::FILE) -> c_int {
    let errno = os::errno();
    // SAFETY: the program's call.
    let fd = unsafe { libc::fileno(stream) };
    let word = table::word(fd);
    if !word.is_null() {
        match vfork::is_own() {
            true => close_rest(fd, word),
            false => vfork::change(fd, fd),
        }
    }
    os::set_errno(errno);
    // SAFETY: the program's call.
    unsafe { real!(fclose(stream): fn(*mut libc::FILE) -> c_int) }
}
