//! The kernel's calls that the library makes.
//!
//! A thread may be cancelled in its calls of libc that wait (pthreads(7)), which unwinds its stack. Verbs are no such calls but
//! those that wait for events, so that the others go to the kernel by syscall(2), or with cancelling put off.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

use libc::{c_int, c_void};

/// The calling thread's error number.
pub(crate) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Sets it.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = error };
}

/// A null pointer, with the error number set, as verbs return it that make an object.
pub(crate) fn none<T>(error: c_int) -> *mut T {
    set_errno(error);
    std::ptr::null_mut()
}

/// -1, with the error number set, as the calls of the connection manager return it.
pub(crate) fn fails(error: c_int) -> c_int {
    set_errno(error);
    -1
}

/// What was done as 0, and what failed as -1 with the error number set.
pub(crate) fn result(done: Result<(), c_int>) -> c_int {
    done.map_or_else(fails, |()| 0)
}

/// A socket that keeps messages apart, connected to this address: a path, or `@` and an abstract name.
pub(crate) fn connect(address: &[u8]) -> Result<c_int, c_int> {
    let mut raw =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    if address.is_empty() || address.len() >= raw.sun_path.len() {
        return Err(libc::EINVAL);
    }
    for (to, from) in raw.sun_path.iter_mut().zip(address) {
        *to = *from as libc::c_char;
    }
    let mut len = size_of::<libc::sa_family_t>() + address.len();
    if address[0] == b'@' {
        raw.sun_path[0] = 0;
    } else {
        len += 1;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes integers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: `raw` is readable, and `len` is at most its size.
    let done = unsafe { libc::connect(fd, (&raw const raw).cast(), len as libc::socklen_t) };
    if done < 0 {
        let error = errno();
        close(fd);
        return Err(error);
    }
    Ok(fd)
}

/// The user at the other end of a Unix socket.
pub(crate) fn peer_uid(fd: c_int) -> Result<u32, c_int> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` is writable, and `len` its size.
    let got = unsafe {
        let (at, len) = ((&raw mut credentials).cast(), &raw mut len);
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, len)
    };
    if got < 0 { Err(errno()) } else { Ok(credentials.uid) }
}

/// The user that this process is.
pub(crate) fn uid() -> u32 {
    // SAFETY: it takes no arguments.
    unsafe { libc::geteuid() }
}

/// Closes a descriptor of the library's own.
pub(crate) fn close(fd: c_int) {
    // SAFETY: close takes an integer.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Makes an eventfd readable.
pub(crate) fn ring(fd: c_int) {
    let one = 1_u64;
    // SAFETY: eight readable bytes.
    unsafe { libc::syscall(libc::SYS_write, fd, &raw const one, size_of_val(&one)) };
}

/// Reads of the descriptor wait.
pub(crate) fn set_blocking(fd: c_int) {
    // SAFETY: fcntl takes integers here.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK);
    }
}

/// This process's memory, to be given to the device.
pub(crate) fn own_memory() -> Result<c_int, c_int> {
    // SAFETY: the path ends with a NUL.
    let fd = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a message, with a descriptor if there is one.
pub(crate) fn send(fd: c_int, bytes: &[u8], descriptor: Option<c_int>) -> Result<(), c_int> {
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
        // SAFETY: `message` points to live memory of the lengths that it names.
        let sent =
            unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(());
        }
        if errno() != libc::EINTR {
            return Err(errno());
        }
    }
}

/// Receives a message with its descriptors, two at most, waiting for it. Signals do not end the wait.
pub(crate) fn receive(fd: c_int, into: &mut [u8]) -> Result<(usize, Vec<c_int>), c_int> {
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = Control([0; _]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let len = loop {
        // SAFETY: `message` points to live memory of the lengths that it names.
        let len = unsafe {
            libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, libc::MSG_CMSG_CLOEXEC)
        };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(errno()),
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

mod calls {
    use libc::{c_int, c_void, fd_set, nfds_t, pollfd, size_t, ssize_t, timeval};

    unsafe extern "C-unwind" {
        /// A thread that waits in it may be cancelled, which unwinds its stack (pthreads(7)).
        pub(super) fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
        /// As above.
        pub(super) fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        /// As above.
        pub(super) fn select(
            count: c_int,
            reads: *mut fd_set,
            writes: *mut fd_set,
            exceptions: *mut fd_set,
            timeout: *mut timeval,
        ) -> c_int;
    }

    unsafe extern "C" {
        /// Whether this thread may be cancelled, and what was before.
        pub(super) fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }

    /// `PTHREAD_CANCEL_DISABLE`.
    pub(super) const DISABLE: c_int = 1;
}

/// Reads an event, as read(2) does for the program: with its waiting, interrupted by its signals, and cancelled with its
/// thread. Whoever calls this has nothing to drop meanwhile, and lets unwinding through.
pub(crate) fn read(fd: c_int, into: &mut [u8]) -> Result<usize, c_int> {
    // SAFETY: `into` is writable.
    let len = unsafe { calls::read(fd, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(len).map_err(|_| errno())
}

/// Waits until the other end of a socket is closed, as [`read`] waits.
pub(crate) fn wait_for_end(fd: c_int) -> Result<(), c_int> {
    let mut at = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: `at` is one pollfd, readable and writable.
    let ready = unsafe { calls::poll(&raw mut at, 1, -1) };
    if ready < 0 { Err(errno()) } else { Ok(()) }
}

/// Waits for the program, as [`read`] waits: descriptors of its own, or none.
pub(crate) unsafe fn wait_for(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program's call promises so many pollfds.
    unsafe { calls::poll(fds, count, timeout) }
}

/// The same by sets of descriptors: those to be read, to be written, and of exceptions.
pub(crate) unsafe fn wait_for_sets(
    count: c_int,
    [reads, writes, exceptions]: [*mut libc::fd_set; 3],
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the program's call promises sets of so many descriptors, or null pointers, and the caller a timeout or none.
    unsafe { calls::select(count, reads, writes, exceptions, timeout) }
}

/// Does something during which the thread is not cancelled.
pub(crate) fn uncancelled<T>(call: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: `before` is writable. It fails for no state that there is.
    unsafe { calls::pthread_setcancelstate(calls::DISABLE, &raw mut before) };
    let done = call();
    // SAFETY: as above.
    unsafe { calls::pthread_setcancelstate(before, &raw mut before) };
    done
}

/// Sleeps for a millisecond.
pub(crate) fn rest() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let none = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: `time` is readable, and nothing is written.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, none) };
}

/// Says something on standard error, if that can be.
pub(crate) fn say(text: &str) {
    let line = format!("wharf: {text}\n");
    // SAFETY: as many readable bytes.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Whether the other end of a socket is closed.
pub(crate) fn has_ended(fd: c_int) -> bool {
    let mut at = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: `at` is one pollfd, readable and writable, and `time` is readable.
    let ready = unsafe {
        let (time, mask) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, std::ptr::null::<c_void>());
        libc::syscall(libc::SYS_ppoll, &raw mut at, 1, &raw const time, mask, 0)
    };
    ready > 0 && at.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// Maps memory that the device shares, for as long as the process lives. Children do not have it.
pub(crate) fn map(fd: c_int, bytes: usize) -> Result<&'static [AtomicU64], c_int> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks an unused range.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        return Err(errno());
    }
    // SAFETY: the range was mapped above, and these change no contents.
    unsafe {
        libc::madvise(start, bytes, libc::MADV_DONTDUMP);
        libc::madvise(start, bytes, libc::MADV_DONTFORK);
    }
    // SAFETY: mapped above, page-aligned, so long, and never unmapped. The device has sealed its size. All access is by
    // atomic words, whose every value is valid.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), bytes / size_of::<AtomicU64>()) })
}

/// Bytes of a page.
pub(crate) fn page() -> usize {
    // SAFETY: it takes no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Whether a file is one of memory.
pub(crate) fn is_on_tmpfs(file: &File) -> bool {
    // SAFETY: all-zero is a valid statfs, and the kernel writes one.
    let mut of: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `of` is writable; the descriptor is open.
    let done = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut of) };
    done == 0 && of.f_type == libc::TMPFS_MAGIC
}

/// Makes pages of the program's be there, as registered memory is: to be written, or only read.
///
/// # Errors
/// `EFAULT` where there is no memory, or none that may be written.
pub(crate) fn populate(at: *mut c_void, len: usize, writes: bool) -> Result<(), c_int> {
    let begin = at.addr() & !(page() - 1);
    let bytes = at.addr().checked_add(len).ok_or(libc::EINVAL)? - begin;
    let bring_in = |advice| {
        // SAFETY: these bring pages in and change no contents.
        let done = unsafe { libc::madvise(at.with_addr(begin), bytes, advice) };
        if done < 0 { errno() } else { 0 }
    };
    let advice = if writes { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    match bring_in(advice) {
        0 => Ok(()),
        // It may be read: it is the right to write that is missing. The device would write it all the same, as
        // /proc/self/mem does.
        libc::EINVAL if writes && bring_in(libc::MADV_POPULATE_READ) == 0 => Err(libc::EFAULT),
        // An older kernel, or memory of a device.
        libc::EINVAL => Ok(()),
        libc::ENOMEM | libc::EFAULT => Err(libc::EFAULT),
        error => Err(error),
    }
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
