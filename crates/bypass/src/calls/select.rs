//! select(2), where connections are among its descriptors, by poll(2).

use libc::{c_int, c_short, fd_set, pollfd, sigset_t, timespec, timeval};

use super::poll::{AT_ONCE, at_once, is_time, nanos, nest, poll_here, stays};
use crate::cancel;
use crate::connection::{self, Stays};
use crate::os;
use crate::real::kernel;
use crate::session;
use crate::table;

/// Descriptors of one word of a set.
const BITS: usize = c_int::BITS as usize * 2;
const EVENTS: [c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
/// What of poll's answer puts a descriptor in each set (fs/select.c).
const FOUND: [c_short; 3] =
    [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];

/// The three sets of a call, which may be longer than libc's type.
#[derive(Clone, Copy)]
struct Sets {
    all: [*mut u64; 3],
    count: c_int,
}

impl Sets {
    /// Whether the program gives this set.
    fn has(&self, set: usize) -> bool {
        !self.all[set].is_null()
    }

    /// The word that has this descriptor, and those beside it, in a set.
    fn word(&self, set: usize, at: usize) -> u64 {
        let of = self.all[set];
        // SAFETY: the program's call promises so many descriptors.
        if !self.has(set) { 0 } else { unsafe { of.add(at).read_unaligned() } }
    }

    /// Does this with the descriptors in any of them, and what is waited for.
    #[inline]
    fn each(&self, mut work: impl FnMut(c_int, [u64; 3])) {
        for at in 0..(self.count as usize).div_ceil(BITS) {
            let of = [0, 1, 2].map(|set| self.word(set, at));
            let mut any = of[0] | of[1] | of[2];
            while any != 0 {
                let bit = any.trailing_zeros() as usize;
                any &= any - 1;
                let fd = (at * BITS + bit) as c_int;
                if fd < self.count {
                    work(fd, of.map(|of| of >> bit & 1));
                }
            }
        }
    }

    fn put(&self, set: usize, words: &[u64]) {
        let of = self.all[set];
        if !of.is_null() {
            // SAFETY: as in `word`: so many were read there.
            words.iter().enumerate().for_each(|(at, word)| unsafe {
                of.add(at).write_unaligned(*word);
            });
        }
    }

    fn clear(&self, set: usize, fd: c_int) {
        let (at, bit) = (fd as usize / BITS, fd as usize % BITS);
        let word = self.word(set, at) & !(1 << bit);
        // SAFETY: as in `word`; what is cleared was there.
        unsafe { self.all[set].add(at).write_unaligned(word) };
    }
}

/// How long what is among the descriptors of these sets stays at the kernel.
///
/// # Safety
/// The program's call promises so many descriptors in each that is not null.
#[inline]
unsafe fn all_stay(count: c_int, sets: [*mut fd_set; 3]) -> Stays {
    let mut all = Stays::FOR_GOOD;
    let (mut at, mut first) = (0, 0);
    while first < count {
        let mut any = 0;
        for set in sets {
            if !set.is_null() {
                // SAFETY: the caller's promise.
                any |= unsafe { set.cast::<u64>().add(at).read_unaligned() };
            }
        }
        while any != 0 {
            let word = table::word(first + any.trailing_zeros() as c_int);
            any &= any - 1;
            if !word.is_null() {
                all = all.min(stays(word));
            }
        }
        at += 1;
        first += BITS as c_int;
    }
    all
}

/// Words of a set as libc's type has it, and of one that most calls do with.
const WORDS: usize = libc::FD_SETSIZE / BITS;
const FEW: usize = 4;

/// The kernel's call without time to wait, where all connections are at the kernel for a while. `None` as [`at_once`] has
/// it, and the sets are as they were.
fn select_resting(sets: &Sets, waits: bool, kernel: impl FnOnce() -> c_int) -> Option<c_int> {
    match (sets.count as usize).div_ceil(BITS) {
        words @ ..=FEW => keeping::<FEW>(sets, words, waits, kernel),
        words @ ..=WORDS => keeping::<WORDS>(sets, words, waits, kernel),
        _ => None,
    }
}

/// The same, of so many words.
#[inline]
fn keeping<const MOST: usize>(
    sets: &Sets,
    words: usize,
    waits: bool,
    kernel: impl FnOnce() -> c_int,
) -> Option<c_int> {
    let mut before = [[0; MOST]; 3];
    for (set, before) in before.iter_mut().enumerate().filter(|(set, _)| sets.has(*set)) {
        before[..words].iter_mut().enumerate().for_each(|(at, word)| *word = sets.word(set, at));
    }
    let found = at_once(waits, kernel);
    if found.is_none() {
        for (set, before) in before.iter().enumerate() {
            sets.put(set, &before[..words]);
        }
    }
    found
}

/// How long a call of the kernel's may wait.
#[derive(Clone, Copy)]
enum Time {
    None,
    /// As the program has it.
    Given,
}

/// select(2); where a connection is not at the kernel, or leaves it, by poll(2).
///
/// # Safety
/// As select(2).
#[inline(never)]
unsafe fn select_here(
    all: Stays,
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<u64>,
    mask: *const sigset_t,
    kernel: impl Fn(Time) -> c_int,
) -> c_int {
    let sets = Sets { all: sets.map(<*mut fd_set>::cast), count: count.max(0) };
    if all == Stays::A_WHILE
        && let Some(found) = select_resting(&sets, timeout != Some(0), || kernel(Time::None))
    {
        return found;
    }
    sets.each(|fd, _| nest(fd));
    if !session::look() && !connection::are_any_moving() {
        return kernel(Time::Given);
    }
    let mut fds = Vec::new();
    sets.each(|fd, wanted| {
        let events = wanted.iter().zip(EVENTS).filter(|(wanted, _)| **wanted != 0);
        let events = events.fold(0, |all, (_, event)| all | event);
        fds.push(pollfd { fd, events, revents: 0 });
    });
    let until = timeout.map(|timeout| os::now().saturating_add(timeout));
    loop {
        let left = until.map(|until| until.saturating_sub(os::now()));
        let found = poll_here(&mut fds, left, mask);
        if found < 0 {
            return found;
        }
        if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return os::fail(libc::EBADF) as c_int;
        }
        let all = found_in_all(&fds);
        if all > 0 || found == 0 {
            put(&sets, &fds);
            return all;
        }
        // What has hung up alone is in no set but that for reading: poll(2) passes over what is below zero.
        fds.iter_mut().filter(|fd| fd.revents != 0).for_each(|fd| fd.fd = !fd.fd);
    }
}

/// Whether poll's answer has a descriptor in this set, of those that the program has in it.
fn is_found(fd: &pollfd, set: usize) -> bool {
    fd.events & EVENTS[set] != 0 && fd.revents & FOUND[set] != 0
}

/// How many descriptors are found, counted in each set.
fn found_in_all(fds: &[pollfd]) -> c_int {
    (0..3).map(|set| fds.iter().filter(|fd| is_found(fd, set)).count() as c_int).sum()
}

/// Leaves those in the sets that are found.
fn put(sets: &Sets, fds: &[pollfd]) {
    for (set, event) in EVENTS.into_iter().enumerate() {
        for fd in fds.iter().filter(|fd| fd.events & event != 0 && !is_found(fd, set)) {
            // Those that are passed over are below zero.
            sets.clear(set, if fd.fd < 0 { !fd.fd } else { fd.fd });
        }
    }
}

/// # Safety
/// As select(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    kernel!(select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int);
    // SAFETY: the program's call.
    unsafe {
        match all_stay(count, [read, write, except]) {
            Stays::FOR_GOOD => kernel(count, read, write, except, timeout),
            all => cancel::apart(move || {
                select_known(all, count, [read, write, except], timeout, |time| {
                    let mut none = timeval { tv_sec: 0, tv_usec: 0 };
                    let timeout = match time {
                        Time::None => &raw mut none,
                        Time::Given => timeout,
                    };
                    kernel(count, read, write, except, timeout)
                })
            }),
        }
    }
}

/// # Safety
/// As select(2).
#[inline(never)]
unsafe fn select_known(
    all: Stays,
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: *mut timeval,
    kernel: impl Fn(Time) -> c_int,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let given = timeout.as_ref();
        if given.is_some_and(|time| time.tv_sec < 0 || time.tv_usec < 0) {
            // What that is, is the kernel's to say (kern_select).
            return kernel(Time::Given);
        }
        let nanos = given.map(|time| {
            let micros = (time.tv_sec as u64).saturating_mul(1_000_000);
            micros.saturating_add(time.tv_usec as u64).saturating_mul(1000)
        });
        let until = nanos.filter(|nanos| *nanos > 0).map(|nanos| os::now().saturating_add(nanos));
        let found = select_here(all, count, sets, nanos, std::ptr::null(), kernel);
        if let (Some(until), Some(time)) = (until, timeout.as_mut()) {
            // What is left of it (poll_select_finish).
            let micros = until.saturating_sub(os::now()) / 1000;
            time.tv_sec = (micros / 1_000_000) as libc::time_t;
            time.tv_usec = (micros % 1_000_000) as libc::suseconds_t;
        }
        found
    }
}

/// # Safety
/// As pselect(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    kernel!(pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int);
    // SAFETY: the program's call.
    unsafe {
        let call = |time: Time| {
            let timeout = match time {
                Time::None => &raw const AT_ONCE,
                Time::Given => timeout,
            };
            kernel(count, read, write, except, timeout, mask)
        };
        let given = timeout.as_ref();
        let time = given.map(nanos);
        match all_stay(count, [read, write, except]) {
            _ if given.is_some_and(|given| !is_time(given.tv_sec, given.tv_nsec)) => {
                call(Time::Given)
            }
            Stays::FOR_GOOD => call(Time::Given),
            all => cancel::apart(move || {
                select_here(all, count, [read, write, except], time, mask, call)
            }),
        }
    }
}
