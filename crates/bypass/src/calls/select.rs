//! select(2), where connections are among its descriptors, by poll(2).

use libc::{c_int, c_short, fd_set, pollfd, sigset_t, timespec, timeval};

use super::poll::{nanos, poll_here};
use crate::connection::{self, epoll};
use crate::os;
use crate::real::real;
use crate::session;

/// Descriptors of one word of a set.
const BITS: usize = c_int::BITS as usize * 2;
const EVENTS: [c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
/// What of poll's answer puts a descriptor in each set (fs/select.c).
const FOUND: [c_short; 3] =
    [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];

/// The three sets of a call, which may be longer than libc's type.
struct Sets {
    all: [*mut u64; 3],
    count: c_int,
}

impl Sets {
    /// The word that has this descriptor, and those beside it, in a set.
    fn word(&self, set: usize, at: usize) -> u64 {
        let of = self.all[set];
        // SAFETY: the program's call promises so many descriptors.
        if of.is_null() { 0 } else { unsafe { of.add(at).read_unaligned() } }
    }

    /// The descriptors in any of them, and what is waited for.
    fn members(&self) -> impl Iterator<Item = (c_int, c_short)> + '_ {
        let words = (self.count as usize).div_ceil(BITS);
        (0..words).flat_map(move |at| {
            let of = [0, 1, 2].map(|set| self.word(set, at));
            let any = of[0] | of[1] | of[2];
            let end = (self.count as usize - at * BITS).min(BITS);
            let bits = (0..end).filter(move |bit| any >> bit & 1 != 0);
            bits.map(move |bit| {
                let wanted = (0..3).filter(|set| of[*set] >> bit & 1 != 0);
                let events = wanted.fold(0, |all, set| all | EVENTS[set]);
                ((at * BITS + bit) as c_int, events)
            })
        })
    }

    fn clear(&self, set: usize, fd: c_int) {
        let (at, bit) = (fd as usize / BITS, fd as usize % BITS);
        let word = self.word(set, at) & !(1 << bit);
        // SAFETY: as in `word`; what is cleared was there.
        unsafe { self.all[set].add(at).write_unaligned(word) };
    }

    /// Whether none but the kernel's are among them. A set of epoll(7) is the kernel's to serve, with all that is in it.
    fn are_kernels(&self) -> bool {
        let mut are = true;
        for (fd, _) in self.members() {
            match connection::at(fd) {
                Some(connection) => are &= connection.is_settled(),
                None => epoll::at(fd).into_iter().for_each(epoll::nest),
            }
        }
        are
    }
}

/// The same by poll(2), if some are connections that are not the kernel's for good.
///
/// # Safety
/// As select(2).
unsafe fn select_here(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: impl FnOnce() -> Option<u64>,
    mask: *const sigset_t,
) -> Option<c_int> {
    let sets = Sets { all: sets.map(<*mut fd_set>::cast), count: count.max(0) };
    if sets.are_kernels() {
        return None;
    }
    let session = session::get_there()?;
    let mut fds: Vec<pollfd> =
        sets.members().map(|(fd, events)| pollfd { fd, events, revents: 0 }).collect();
    let found = poll_here(session, &mut fds, timeout(), mask);
    if found < 0 {
        return Some(found);
    }
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Some(os::fail(libc::EBADF) as c_int);
    }
    let mut all = 0;
    for (set, (events, answers)) in EVENTS.into_iter().zip(FOUND).enumerate() {
        for fd in fds.iter().filter(|fd| fd.events & events != 0) {
            if fd.revents & answers != 0 {
                all += 1;
            } else {
                sets.clear(set, fd.fd);
            }
        }
    }
    Some(all)
}

/// # Safety
/// As select(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let mut until = None;
    // SAFETY: the program's call.
    unsafe {
        let given = || {
            let time = timeout.as_ref()?;
            let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
            until = Some(os::now() + nanos);
            Some(nanos)
        };
        let found = select_here(count, [read, write, except], given, std::ptr::null());
        let Some(found) = found else {
            return real!(select(count, read, write, except, timeout):
                fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
        };
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
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let given = || timeout.as_ref().map(nanos);
        match select_here(count, [read, write, except], given, mask) {
            Some(result) => result,
            None => real!(pselect(count, read, write, except, timeout, mask):
                fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec,
                    *const sigset_t) -> c_int),
        }
    }
}
