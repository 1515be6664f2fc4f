//! recvmsg(2), sendmsg(2), and several of them at once.

use libc::{c_int, mmsghdr, msghdr, ssize_t, timespec};

use super::data::{PARTS_MAX, vector};
use super::stream::{keep_late, kernel_receive_message, receive, send_parts};
use crate::cancel;
use crate::connection::{self, Connection, Parts};
use crate::os;
use crate::real::real;
use handoff::RestoreReason;

/// # Safety
/// As recvmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if let Some(connection) = connection::at(fd) {
        // SAFETY: the program's promise.
        return cancel::apart(move || unsafe { receive_message(connection, fd, message, flags) });
    }
    // SAFETY: the program's call.
    unsafe { real!(recvmsg(fd, message, flags): fn(c_int, *mut msghdr, c_int) -> ssize_t) }
}

/// # Safety
/// As recvmsg(2).
#[inline(never)]
unsafe fn receive_message(
    connection: &'static Connection,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the program's promise.
    let header = unsafe { &mut *message };
    if header.msg_iovlen > PARTS_MAX {
        return os::fail(libc::EMSGSIZE);
    }
    // SAFETY: the program's promise. With `MSG_TRUNC` nothing is written to what may be no memory at all (tcp(7)).
    let into = unsafe { Parts::new(vector(header.msg_iov, header.msg_iovlen)) };
    // What the kernel says beside the bytes, if it has them.
    let mut said = None;
    let result = receive(connection, fd, into, flags, |into, flags| {
        let mut message = *header;
        let result = kernel_receive_message(fd, &mut message, into, flags);
        if result >= 0 {
            // Of the bytes that came last, also where more of them (`MSG_WAITALL`) did not.
            said = Some(message);
        }
        result
    });
    if result < 0 {
        return result;
    }
    match said {
        Some(message) => {
            header.msg_namelen = message.msg_namelen;
            header.msg_controllen = message.msg_controllen;
            header.msg_flags = message.msg_flags;
        }
        None => {
            if !header.msg_name.is_null() {
                header.msg_namelen = 0;
            }
            header.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
            match inq(connection, fd) {
                None => header.msg_controllen = 0,
                // SAFETY: the program's promise.
                Some(inq) => unsafe { put_inq(header, inq) },
            }
        }
    }
    result
}

/// `TCP_INQ`, and `TCP_CM_INQ` (include/uapi/linux/tcp.h).
const TCP_INQ: c_int = 36;

/// What `TCP_INQ` says of a connection that has ended at the NIC: one that has not is the kernel's with that option.
fn inq(connection: &'static Connection, fd: c_int) -> Option<c_int> {
    let is_set =
        || os::int_option(fd, libc::IPPROTO_TCP, TCP_INQ).is_some_and(|is_set| is_set != 0);
    if !connection.has_ended() || !is_set() {
        return None;
    }
    // The end of the stream is to be read, too (tcp_inq).
    connection.queued().map(|(unread, _)| unread.max(1))
}

/// Puts it where the control messages are to be (put_cmsg).
///
/// # Safety
/// So much may be written there as the header says.
unsafe fn put_inq(header: &mut msghdr, inq: c_int) {
    // SAFETY: zeros are a valid header.
    let mut whole = Inq { head: unsafe { std::mem::zeroed() }, value: inq };
    // SAFETY: it computes a length.
    let len = unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as usize;
    let has_head = header.msg_controllen >= size_of::<libc::cmsghdr>();
    let room = if header.msg_control.is_null() || !has_head { 0 } else { header.msg_controllen };
    if room < len {
        header.msg_flags |= libc::MSG_CTRUNC;
    }
    let written = room.min(len);
    whole.head.cmsg_len = written;
    whole.head.cmsg_level = libc::IPPROTO_TCP;
    whole.head.cmsg_type = TCP_INQ;
    // SAFETY: the caller's promise; `len` is less than the size of the message.
    unsafe {
        let from = (&raw const whole).cast::<u8>();
        from.copy_to_nonoverlapping(header.msg_control.cast(), written);
    }
    header.msg_controllen = room.min(size_of::<Inq>());
}

/// A control message, as long as CMSG_SPACE says.
#[repr(C)]
struct Inq {
    head: libc::cmsghdr,
    value: c_int,
}

/// # Safety
/// As sendmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    if let Some(connection) = connection::at(fd) {
        // SAFETY: the program's promise.
        return cancel::apart(move || unsafe { send_message(connection, fd, message, flags) });
    }
    // SAFETY: the program's promise.
    unsafe { super::process::passes(message) };
    // SAFETY: the program's call.
    unsafe { real!(sendmsg(fd, message, flags): fn(c_int, *const msghdr, c_int) -> ssize_t) }
}

/// # Safety
/// As sendmsg(2).
#[inline(never)]
unsafe fn send_message(
    connection: &'static Connection,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the program's promise.
    let header = unsafe { &*message };
    if header.msg_iovlen > PARTS_MAX {
        return os::fail(libc::EMSGSIZE);
    }
    if header.msg_controllen > 0 {
        // Time stamps and the like.
        connection.restore(RestoreReason::Unserved);
        // SAFETY: the program's promise.
        unsafe { super::process::passes(message) };
        // SAFETY: the program's call.
        return unsafe {
            real!(sendmsg(fd, message, flags): fn(c_int, *const msghdr, c_int) -> ssize_t)
        };
    }
    // SAFETY: the program's promise.
    let from = unsafe { Parts::new(vector(header.msg_iov, header.msg_iovlen)) };
    send_parts(connection, fd, from, flags)
}

/// # Safety
/// As recvmmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: libc::c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if let Some(connection) = connection::at(fd) {
        // SAFETY: the program's promise.
        return cancel::apart(move || unsafe {
            receive_messages(connection, fd, messages, (count, flags), timeout.as_ref())
        });
    }
    // SAFETY: the program's call.
    unsafe {
        real!(recvmmsg(fd, messages, count, flags, timeout):
            fn(c_int, *mut mmsghdr, libc::c_uint, c_int, *mut timespec) -> c_int)
    }
}

/// As do_recvmmsg: the time-out is looked at behind each message.
///
/// # Safety
/// As recvmmsg(2).
#[inline(never)]
unsafe fn receive_messages(
    connection: &'static Connection,
    fd: c_int,
    messages: *mut mmsghdr,
    (count, mut flags): (libc::c_uint, c_int),
    timeout: Option<&timespec>,
) -> c_int {
    let nanos = |time: &timespec| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let until = timeout.map(|time| os::now() + nanos(time));
    // Before anything that is there (do_recvmmsg).
    if count > 0
        && flags & libc::MSG_ERRQUEUE == 0
        && let Some(error) = connection.pending_error(fd)
    {
        return os::fail(error) as c_int;
    }
    for at in 0..count.min(PARTS_MAX as libc::c_uint) {
        // SAFETY: the program's promise.
        let message = unsafe { &mut *messages.add(at as usize) };
        let of_one = flags & !libc::MSG_WAITFORONE;
        // SAFETY: the program's promise.
        let result = unsafe { receive_message(connection, fd, &raw mut message.msg_hdr, of_one) };
        if result < 0 {
            if at > 0 {
                keep_late(connection);
            }
            return if at > 0 { at as c_int } else { -1 };
        }
        message.msg_len = result as libc::c_uint;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        if until.is_some_and(|until| os::now() >= until) {
            return at as c_int + 1;
        }
    }
    count.min(PARTS_MAX as libc::c_uint) as c_int
}

/// # Safety
/// As sendmmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: libc::c_uint,
    flags: c_int,
) -> c_int {
    if let Some(connection) = connection::at(fd) {
        // SAFETY: the program's promise.
        return cancel::apart(move || unsafe {
            send_messages(connection, fd, messages, (count, flags))
        });
    }
    let there = if messages.is_null() { 0 } else { PARTS_MAX.min(count as usize) };
    for at in 0..there {
        // SAFETY: the program's promise.
        unsafe { super::process::passes(&raw const (*messages.add(at)).msg_hdr) };
    }
    // SAFETY: the program's call.
    unsafe {
        real!(sendmmsg(fd, messages, count, flags):
            fn(c_int, *mut mmsghdr, libc::c_uint, c_int) -> c_int)
    }
}

/// # Safety
/// As sendmmsg(2).
#[inline(never)]
unsafe fn send_messages(
    connection: &'static Connection,
    fd: c_int,
    messages: *mut mmsghdr,
    (count, flags): (libc::c_uint, c_int),
) -> c_int {
    let count = PARTS_MAX.min(count as usize);
    for at in 0..count {
        // SAFETY: the program's promise.
        let message = unsafe { &mut *messages.add(at) };
        // SAFETY: the program's promise.
        let result = unsafe { send_message(connection, fd, &raw const message.msg_hdr, flags) };
        if result < 0 {
            return if at > 0 { at as c_int } else { -1 };
        }
        message.msg_len = result as libc::c_uint;
        let msghdr { msg_iov, msg_iovlen, .. } = message.msg_hdr;
        // SAFETY: the program's promise.
        let whole = unsafe { Parts::new(vector(msg_iov, msg_iovlen)) }.len();
        if (result as usize) < whole {
            // The next one does not follow what is half sent (__sys_sendmmsg).
            return at as c_int + 1;
        }
    }
    count as c_int
}
