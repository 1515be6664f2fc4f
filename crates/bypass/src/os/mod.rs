//! The kernel's calls that the layer makes itself: none goes through a function that it stands in front of.

mod folder;
mod futex;
mod memory;
mod message;
mod option;
mod route;
mod signals;

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void};

pub(crate) use self::folder::{each_name, may_have_set, number_in};
pub(crate) use self::futex::{futex_wait, futex_wait_restarting, futex_wake_all};
pub(crate) use self::memory::{keep, keep_each, map, map_shared, unmap};
pub(crate) use self::message::{
    connect, has_ended, has_hung_up, is_trusted, receive, send, wait_readable,
};
pub(crate) use self::option::{
    end, has_error, has_peer, has_unread, int_option, is_nonblocking, is_readable, linger,
    linger_until_sent, pass_over, ports, shutdown, take_error, timeout_of,
};
pub(crate) use self::route::leaves_by;
pub(crate) use self::signals::{Quiet, interrupts, pending_signals, signal_descriptor};

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

/// Closes a descriptor of the layer's own.
pub(crate) fn close(fd: c_int) {
    // SAFETY: close takes an integer.
    unsafe { trap!(libc::SYS_close, fd) };
}

/// Another descriptor of the same, which execve(2) closes, with this number or a higher one; negative if there is none.
pub(crate) fn duplicate_from(fd: c_int, lowest: c_int) -> c_int {
    // SAFETY: F_DUPFD_CLOEXEC takes integers only.
    unsafe { trap!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, lowest) as c_int }
}

/// Numbers of descriptors are below (`RLIMIT_NOFILE`).
pub(crate) fn descriptors_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// Makes an eventfd readable.
pub(crate) fn ring(fd: c_int) {
    let one = 1_u64;
    // SAFETY: eight readable bytes.
    unsafe { trap!(libc::SYS_write, fd, &raw const one, 8) };
}

/// An eventfd that is always readable; negative if there can be none.
pub(crate) fn ready_descriptor() -> c_int {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: it takes integers only.
    unsafe { trap!(libc::SYS_eventfd2, 1, flags) as c_int }
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

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A time in units of the CPU's, which takes an instruction to look at: see [`since`]. It is not 0.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every CPU of the kind has it.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    let ticks = now();
    ticks
}

/// When the library was loaded: in ticks, and as [`now`] has it.
static LOADED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The library is loaded.
pub(crate) fn begin_ticks() {
    let [ticks_then, then] = &LOADED;
    ticks_then.store(ticks(), Ordering::Relaxed);
    then.store(now(), Ordering::Relaxed);
}

/// About how many nanoseconds have passed since these ticks; none for 0.
pub(crate) fn since(begin: u64) -> u64 {
    if begin == 0 {
        return 0;
    }
    let [ticks_then, then] = [0, 1].map(|at: usize| LOADED[at].load(Ordering::Relaxed));
    let (ticks_now, now) = (ticks(), now());
    let all = u128::from(ticks_now.saturating_sub(ticks_then).max(1));
    let part = u128::from(ticks_now.saturating_sub(begin));
    (part * u128::from(now.saturating_sub(then)) / all) as u64
}

/// Lets other threads run.
pub(crate) fn yield_now() {
    // SAFETY: it takes no arguments.
    unsafe { libc::sched_yield() };
}

/// Sleeps for so many nanoseconds, less than a second, or until a signal comes.
pub(crate) fn pause(nanos: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos.into() };
    // SAFETY: `time` is readable, and nothing is written.
    unsafe { trap!(libc::SYS_nanosleep, &raw const time, std::ptr::null::<u8>()) };
}

/// This process.
#[inline]
pub(crate) fn process() -> libc::pid_t {
    // SAFETY: it has no arguments. The layer does not stand in front of it.
    unsafe { libc::getpid() }
}

/// Whether there is no such process any more.
pub(crate) fn has_exited(process: u32) -> bool {
    // SAFETY: kill takes integers, and signal 0 is none.
    unsafe { trap!(libc::SYS_kill, process as libc::pid_t, 0) < 0 && errno() == libc::ESRCH }
}

/// Whether the descriptor is open, and execve(2) does not close it.
pub(crate) fn outlives_exec(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes integers only.
    let flags = unsafe { trap!(libc::SYS_fcntl, fd, libc::F_GETFD) };
    flags >= 0 && flags as c_int & libc::FD_CLOEXEC == 0
}

/// Whether this process has a descriptor of io_uring(7).
pub(crate) fn has_io_uring() -> bool {
    let mut has = false;
    each_name(b"/proc/self/fd\0", |fd| has |= is_named(fd, b"anon_inode:[io_uring]"));
    has
}

/// Whether `/proc/self/fd` has this name for a descriptor, whose number is given as text.
fn is_named(fd: &[u8], wanted: &[u8]) -> bool {
    const FOLDER: &[u8] = b"/proc/self/fd/";
    let errno = errno();
    let (mut path, mut name) = ([0_u8; 40], [0_u8; 40]);
    let Some(number) = path.get_mut(FOLDER.len()..FOLDER.len() + fd.len()) else { return false };
    number.copy_from_slice(fd);
    path[..FOLDER.len()].copy_from_slice(FOLDER);
    // A zero is behind it.
    if path.last() != Some(&0) {
        return false;
    }
    let here = libc::AT_FDCWD;
    // SAFETY: the path ends with a zero, and so many bytes may be written.
    let len =
        unsafe { trap!(libc::SYS_readlinkat, here, path.as_ptr(), name.as_mut_ptr(), name.len()) };
    set_errno(errno);
    usize::try_from(len).is_ok_and(|len| &name[..len] == wanted)
}
