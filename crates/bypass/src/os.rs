//! The kernel's calls that the layer makes itself: none goes through a function that it stands in front of.

use std::io;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use libc::{c_int, c_void};

use crate::trap::trap;

/// The calling thread's error number.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = error };
}

/// Sets it, and gives what calls return that have failed.
pub(crate) fn fail(error: c_int) -> isize {
    set_errno(error);
    -1
}

fn futex(word: &AtomicU64) -> *mut u32 {
    const { assert!(cfg!(target_endian = "little")) };
    word.as_ptr().cast()
}

/// Waits at the low half of this word while it is `expected`, at most so long. Returns the error number, or 0.
pub(crate) fn futex_wait(word: &AtomicU64, expected: u32, timeout: Option<Duration>) -> c_int {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let at = futex(word);
    // SAFETY: the word is live and aligned, and the timeout, if there is one, readable.
    match unsafe { trap!(libc::SYS_futex, at, libc::FUTEX_WAIT, expected, timeout) } {
        0 => 0,
        _ => errno(),
    }
}

/// One of the words that futex_waitv(2) waits at (include/uapi/linux/futex.h).
#[repr(C)]
struct FutexWaitv {
    val: u64,
    uaddr: u64,
    flags: u32,
    reserved: u32,
}

/// The same until this time of [`now`], by futex_waitv(2) of Linux 5.16: a signal ends it with `EINTR` only if its handler
/// was set without `SA_RESTART`. That of [`futex_wait`] ends with `EINTR` after each handler.
pub(crate) fn futex_wait_restarting(word: &AtomicU64, expected: u32, until: u64) -> c_int {
    const SIZE_U32: u32 = 2;
    let waiter = FutexWaitv {
        val: expected.into(),
        uaddr: futex(word) as u64,
        flags: SIZE_U32,
        reserved: 0,
    };
    let until_time = timespec(until);
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: `waiter` and the time are readable, and the word is live and aligned.
    let result = unsafe {
        let (waiter, until) = (&raw const waiter, &raw const until_time);
        trap!(libc::SYS_futex_waitv, waiter, 1, 0, until, clock)
    };
    match result {
        0.. => 0,
        _ => match errno() {
            // An older kernel, or a filter that does not know it.
            libc::ENOSYS | libc::EPERM => {
                let left = Duration::from_nanos(until.saturating_sub(now()));
                futex_wait(word, expected, Some(left))
            }
            error => error,
        },
    }
}

fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    }
}

/// Wakes all that wait at a word, in any process.
pub(crate) fn futex_wake_all(word: &AtomicU64) {
    // SAFETY: the word is live and aligned.
    unsafe { trap!(libc::SYS_futex, futex(word), libc::FUTEX_WAKE, c_int::MAX) };
}

/// Whether `O_NONBLOCK` is set.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: F_GETFL takes no argument.
    let flags = unsafe { trap!(libc::SYS_fcntl, fd, libc::F_GETFL, 0) };
    flags >= 0 && flags as c_int & libc::O_NONBLOCK != 0
}

/// The nanoseconds of `SO_RCVTIMEO` or `SO_SNDTIMEO`, if there are any.
pub(crate) fn timeout_of(fd: c_int, option: c_int) -> Option<u64> {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: `time` is writable, and `len` its size.
    let got = unsafe {
        let (at, len) = (&raw mut time, &raw mut len);
        trap!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, option, at, len)
    };
    let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (got == 0 && nanos > 0).then_some(nanos)
}

/// This process.
pub(crate) fn process() -> libc::pid_t {
    // SAFETY: it has no arguments.
    unsafe { trap!(libc::SYS_getpid) as libc::pid_t }
}

/// Whether there is no such process any more.
pub(crate) fn has_exited(process: u32) -> bool {
    // SAFETY: kill takes integers, and signal 0 is none.
    unsafe { trap!(libc::SYS_kill, process as libc::pid_t, 0) < 0 && errno() == libc::ESRCH }
}

/// Whether the descriptor is closed by execve(2).
pub(crate) fn closes_at_exec(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes integers only.
    let flags = unsafe { trap!(libc::SYS_fcntl, fd, libc::F_GETFD) };
    flags >= 0 && flags as c_int & libc::FD_CLOEXEC != 0
}

/// Closes a descriptor of the layer's own.
pub(crate) fn close(fd: c_int) {
    // SAFETY: close takes an integer.
    unsafe { trap!(libc::SYS_close, fd) };
}

/// Makes an eventfd readable.
pub(crate) fn ring(fd: c_int) {
    let one = 1_u64;
    // SAFETY: eight readable bytes.
    unsafe { trap!(libc::SYS_write, fd, &raw const one, 8) };
}

/// A socket that keeps messages apart, connected to this address: a path, or `@` and an abstract name.
pub(crate) fn connect(address: &[u8]) -> Option<c_int> {
    let mut raw =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let is_abstract = address.first() == Some(&b'@');
    if address.is_empty() || address.len() >= raw.sun_path.len() {
        return None;
    }
    for (to, from) in raw.sun_path.iter_mut().zip(address) {
        *to = *from as libc::c_char;
    }
    let mut len = size_of::<libc::sa_family_t>() + address.len();
    if is_abstract {
        raw.sun_path[0] = 0;
    } else {
        len += 1;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes integers.
    let fd = unsafe { trap!(libc::SYS_socket, libc::AF_UNIX, kind, 0) } as c_int;
    if fd < 0 {
        return None;
    }
    // SAFETY: `raw` is readable, and `len` is at most its size.
    if unsafe { trap!(libc::SYS_connect, fd, &raw const raw, len) } < 0 {
        close(fd);
        return None;
    }
    Some(fd)
}

/// Most descriptors of a message that are taken.
const DESCRIPTORS: usize = 253;

#[repr(C, align(8))]
struct Control([u8; 16 + 4 * DESCRIPTORS + 4]);

/// Sends a message, with a descriptor if there is one.
pub(crate) fn send(fd: c_int, bytes: &[u8], descriptor: Option<c_int>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; _]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    if let Some(descriptor) = descriptor {
        message.msg_control = (&raw mut control).cast();
        // SAFETY: CMSG_SPACE computes from an integer; `control` has room for one descriptor, and is aligned.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let header = &mut *libc::CMSG_FIRSTHDR(&raw const message);
            header.cmsg_level = libc::SOL_SOCKET;
            header.cmsg_type = libc::SCM_RIGHTS;
            header.cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor);
        }
    }
    loop {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: `message` points to live memory of the lengths that it names.
        let sent = unsafe { trap!(libc::SYS_sendmsg, fd, &raw const message, flags) };
        if sent >= 0 {
            return Ok(());
        }
        if errno() != libc::EINTR {
            return Err(io::Error::last_os_error());
        }
    }
}

/// Whether the other end of a socket is closed. A message that waits there stays.
pub(crate) fn has_ended(fd: c_int) -> bool {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one writable byte, and no address.
    let got = unsafe {
        let none = std::ptr::null::<u8>();
        trap!(libc::SYS_recvfrom, fd, &raw mut byte, 1, flags, none, none)
    };
    got == 0 || got < 0 && errno() != libc::EAGAIN && errno() != libc::EINTR
}

/// Whether no process has the other end of a pipe open for writing.
pub(crate) fn has_hung_up(pipe: c_int) -> bool {
    let mut fd = libc::pollfd { fd: pipe, events: 0, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one pollfd that may be written, a time that may be read, and no mask.
    unsafe {
        let none = std::ptr::null::<libc::sigset_t>();
        trap!(libc::SYS_ppoll, &raw mut fd, 1, &raw const now, none, 8);
    }
    fd.revents & libc::POLLHUP != 0
}

/// Receives a message with its descriptors, waiting for it.
pub(crate) fn receive(fd: c_int, into: &mut [u8]) -> io::Result<(usize, Vec<c_int>)> {
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = Control([0; _]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let len = loop {
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: `message` points to live memory of the lengths that it names.
        let len = unsafe { trap!(libc::SYS_recvmsg, fd, &raw mut message, flags) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    };
    let mut all = Vec::new();
    // SAFETY: the kernel has written whole control messages, with as many descriptors as their lengths say.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(header).cast::<c_int>();
            all.extend((0..bytes / 4).map(|at| data.add(at).read_unaligned()));
        }
    }
    Ok((len, all))
}

/// Maps memory that wharf shares, for as long as the process lives.
pub(crate) fn map(fd: c_int, bytes: usize) -> Option<&'static [AtomicU64]> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks an unused range.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // A dump of this process, should it crash, would go through all of it.
    // SAFETY: the range was mapped above, and MADV_DONTDUMP changes no contents.
    let _ = unsafe { libc::madvise(start, bytes, libc::MADV_DONTDUMP) };
    // SAFETY: mapped above, page-aligned, so long, and never unmapped. wharf has sealed its size. All access is by
    // atomic words, whose every value is valid.
    Some(unsafe { std::slice::from_raw_parts(start.cast(), bytes / size_of::<AtomicU64>()) })
}

/// Maps zeroed memory that this process and its children share.
pub(crate) fn map_shared(bytes: usize) -> Option<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks an unused range.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start)
}

/// Unmaps it.
///
/// # Safety
/// It was mapped for so many bytes, and nobody has a reference into it.
pub(crate) unsafe fn unmap(at: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(at, bytes) };
}

/// Bytes of the program's that a call is to read. Empty for a null pointer.
///
/// # Safety
/// The program's call promises `len` readable bytes.
pub(crate) unsafe fn bytes<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    if at.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; no more than a slice may have is used.
    unsafe { std::slice::from_raw_parts(at.cast(), len.min(isize::MAX as usize)) }
}

/// Bytes of the program's that a call is to write. Empty for a null pointer.
///
/// # Safety
/// The program's call promises `len` writable bytes.
pub(crate) unsafe fn bytes_mut<'a>(at: *mut c_void, len: usize) -> &'a mut [u8] {
    if at.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise; no more than a slice may have is used.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), len.min(isize::MAX as usize)) }
}

/// Waits until a socket has something to be read, as a call that blocks: the error that ends the wait, if it is one.
pub(crate) fn wait_readable(fd: c_int) -> Option<c_int> {
    // A call for no bytes waits for some as any other (tcp_recvmsg), and leaves them.
    let none = std::ptr::null::<u8>();
    // SAFETY: no memory is written.
    let got = unsafe { trap!(libc::SYS_recvfrom, fd, none, 0, 0, none, none) };
    (got < 0).then(errno)
}

/// The error that is pending on a socket, which is told by this (`SO_ERROR`).
pub(crate) fn take_error(fd: c_int) -> c_int {
    int_option(fd, libc::SO_ERROR)
}

/// Whether an error is pending on a socket, which stays so.
pub(crate) fn has_error(fd: c_int) -> bool {
    let mut at = libc::pollfd { fd, events: 0, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let none = std::ptr::null::<u8>();
    // SAFETY: `at` is writable, and the time readable.
    unsafe { trap!(libc::SYS_ppoll, &raw mut at, 1, &raw const now, none, 0) };
    at.revents & libc::POLLERR != 0
}

/// An option of SOL_SOCKET's; 0 for what there is not.
fn int_option(fd: c_int, option: c_int) -> c_int {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `value` is writable, and `len` its size.
    unsafe {
        let (at, len) = (&raw mut value, &raw mut len);
        trap!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, option, at, len);
    }
    value
}

/// Whether a socket is readable only when it has more than one byte (`SO_RCVLOWAT`).
pub(crate) fn has_low_water(fd: c_int) -> bool {
    int_option(fd, libc::SO_RCVLOWAT) > 1
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Lets other threads run.
pub(crate) fn yield_now() {
    // SAFETY: it takes no arguments.
    unsafe { libc::sched_yield() };
}

/// The program has shut down ends of a socket: the kernel is to know. That it does is no error.
pub(crate) fn shutdown(fd: c_int, how: Option<c_int>) {
    if let Some(how) = how {
        // SAFETY: shutdown takes integers.
        unsafe { trap!(libc::SYS_shutdown, fd, how) };
    }
}

/// Whether close(2) is to be a reset (SO_LINGER of no time).
pub(crate) fn lingers_not(fd: c_int) -> bool {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: `linger` is writable, and `len` its size.
    let got = unsafe {
        trap!(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            &raw mut linger,
            &raw mut len,
        )
    };
    got == 0 && linger.l_onoff != 0 && linger.l_linger == 0
}

/// The ports of a socket, as the kernel has them; 0 for what it does not say.
pub(crate) fn ports(fd: c_int) -> (u16, u16) {
    let port = |call: libc::c_long| {
        // SAFETY: all-zero is a valid address.
        let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        // SAFETY: `address` is writable, and `len` its size.
        let got = unsafe { trap!(call, fd, &raw mut address, &raw mut len) };
        // The port lies at the same place in both kinds.
        if got == 0 { u16::from_be(address.sin6_port) } else { 0 }
    };
    (port(libc::SYS_getsockname), port(libc::SYS_getpeername))
}
