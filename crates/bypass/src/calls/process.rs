//! Processes: fork(2), execve(2), and descriptors that are sent to others.

use handoff::RestoreReason;
use libc::{c_char, c_int, msghdr};

use crate::connection::{self, epoll};
use crate::os;
use crate::real::real;
use crate::session;
use crate::sharers::{self, Number};
use crate::{table, timeout, vfork};

/// Another program is about to take the place of this one. A child that has its parent's memory, as after vfork(2), leaves
/// that what it does not hand on.
pub(super) fn before_exec() {
    if vfork::is_own() {
        connection::give_all_back(RestoreReason::Exec);
        epoll::before_exec();
    } else {
        inherits(|fd| !vfork::hides(fd) && os::outlives_exec(fd));
    }
}

/// Another program is about to have the connections of the descriptors for which this is so. To look at one takes 0.2 us,
/// where to start a program takes some hundred.
pub(super) fn inherits(gets: impl Fn(c_int) -> bool) {
    let errno = os::errno();
    let mut are_asked = false;
    for fd in table::all() {
        if let Some(connection) = connection::at(fd).filter(|connection| !connection.is_settled())
            && gets(fd)
        {
            are_asked |= connection.ask_for_good(RestoreReason::Exec);
        }
    }
    if are_asked {
        connection::Connection::wait_for_asked(timeout::OFFER);
    }
    os::set_errno(errno);
}

pub(super) extern "C" fn before_fork() {
    if vfork::is_own() {
        epoll::before_fork(connection::share_all);
    }
}

pub(super) extern "C" fn in_child() {
    session::forget();
    super::poll::forget_waiter();
    super::pipes::forget();
    connection::asked::renew();
    connection::renew();
    epoll::in_child();
}

/// Another program takes the place of this one, by `exec`, which returns if that cannot be. What of the connections that
/// program does not get, this process has no more.
fn replace(exec: impl FnOnce() -> c_int) -> c_int {
    before_exec();
    let stays = |connection: &'static connection::Connection| {
        let is_its =
            |fd: &c_int| connection::at(*fd).is_some_and(|its| std::ptr::eq(its, connection));
        table::all().filter(is_its).any(os::outlives_exec)
    };
    let closed = |connection: &'static connection::Connection| {
        let shared = connection.shared().filter(|_| !stays(connection))?;
        sharers::leave(shared).then_some(shared)
    };
    let mut left: Vec<Number> = connection::all().filter_map(closed).collect();
    if vfork::is_own() {
        left.extend(epoll::closed_by_exec().filter(|number| sharers::leave(*number)));
    }
    // A child with its parent's memory has that no more from here on.
    let changed = if vfork::is_own() { None } else { vfork::leave() };
    let result = exec();
    vfork::stay(changed);
    left.into_iter().for_each(sharers::stay);
    result
}

/// Has the connections back before each fork: two processes would share their rings. When the library is loaded, before
/// the program begins.
extern "C" fn loaded() {
    // SAFETY: the functions are there as long as the process.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// Connections whose descriptors go to another process with this message are the kernel's from now on.
///
/// # Safety
/// The program's call promises a message for sendmsg(2).
pub(super) unsafe fn passes(message: *const msghdr) {
    if !session::are_any() || message.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                for at in 0..bytes / size_of::<c_int>() {
                    let fd = data.add(at).read_unaligned();
                    if let Some(connection) = connection::at(fd) {
                        connection.restore_within(RestoreReason::Passed, timeout::OFFER);
                    }
                    // Another process waits there from now on.
                    epoll::at(fd).into_iter().for_each(epoll::nest);
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// # Safety
/// As execve(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's call.
    replace(|| unsafe {
        real!(execve(path, arguments, environment):
            fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int)
    })
}

/// # Safety
/// As execv(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execv(
    path: *const c_char,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the program's call.
    replace(|| unsafe {
        real!(execv(path, arguments): fn(*const c_char, *const *const c_char) -> c_int)
    })
}

/// # Safety
/// As execvp(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvp(
    file: *const c_char,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the program's call.
    replace(|| unsafe {
        real!(execvp(file, arguments): fn(*const c_char, *const *const c_char) -> c_int)
    })
}

/// # Safety
/// As execvpe(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's call.
    replace(|| unsafe {
        real!(execvpe(file, arguments, environment):
            fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int)
    })
}

/// # Safety
/// As fexecve(3) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fexecve(
    file: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's call.
    replace(|| unsafe {
        real!(fexecve(file, arguments, environment):
            fn(c_int, *const *const c_char, *const *const c_char) -> c_int)
    })
}

/// # Safety
/// As execveat(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's call.
    replace(|| unsafe {
        real!(execveat(folder, path, arguments, environment, flags):
            fn(c_int, *const c_char, *const *const c_char, *const *const c_char, c_int) -> c_int)
    })
}
