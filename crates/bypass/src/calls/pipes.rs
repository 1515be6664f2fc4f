//! Pipes at the other end of splice(2).

use std::cell::Cell;

use libc::{c_int, c_uint, iovec};

use crate::os;
use crate::own::Own;
use crate::real::real;
use crate::trap::trap;

/// Descriptors of the thread's own: a pipe, and where bytes go that nobody wants.
#[derive(Clone, Copy)]
struct Ends {
    from: Own,
    to: Own,
    nowhere: Own,
}

struct Kept(Cell<Option<Ends>>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Ends::close);
    }
}

thread_local! {
    static OWN: Kept = const { Kept(Cell::new(None)) };
}

/// In the child after fork, where they are closed as all of the layer's own: the pipe was the parent's.
pub(super) fn forget() {
    let _ = OWN.try_with(|own| own.0.take());
}

impl Ends {
    fn make() -> Result<Ends, c_int> {
        let mut ends = [-1; 2];
        // SAFETY: two descriptors may be written.
        if unsafe { trap!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(os::errno());
        }
        let [from, to] = ends.map(Own::new);
        let (here, flags) = (libc::AT_FDCWD, libc::O_WRONLY | libc::O_CLOEXEC);
        // SAFETY: the path ends with a zero.
        let nowhere = unsafe { trap!(libc::SYS_openat, here, c"/dev/null".as_ptr(), flags) };
        let error = os::errno();
        let all = Ends { from, to, nowhere: Own::new(nowhere as c_int) };
        if all.each().iter().all(|own| own.fd() >= 0) {
            return Ok(all);
        }
        all.close();
        Err(if nowhere < 0 { error } else { libc::EMFILE })
    }

    fn each(self) -> [Own; 3] {
        [self.from, self.to, self.nowhere]
    }

    fn close(self) {
        self.each().into_iter().for_each(Own::close);
    }

    /// Takes bytes out of a pipe, and throws them away. How many there were.
    fn throw_away(&self, pipe: c_int, count: usize) -> usize {
        let mut left = count;
        while left > 0 {
            let flags = libc::SPLICE_F_NONBLOCK;
            match splice(pipe, self.nowhere.fd(), left, flags) {
                Ok(0) | Err(_) => break,
                Ok(gone) => left -= gone,
            }
        }
        count - left
    }
}

/// splice(2) of the kernel, without places.
fn splice(from: c_int, to: c_int, count: usize, flags: c_uint) -> Result<usize, c_int> {
    let none = std::ptr::null::<i64>();
    // SAFETY: no place is given.
    let moved = unsafe { trap!(libc::SYS_splice, from, none, to, none, count, flags) };
    usize::try_from(moved).map_err(|_| os::errno())
}

/// Whether a descriptor is an end of a pipe.
pub(super) fn is_pipe(fd: c_int) -> bool {
    let errno = os::errno();
    // SAFETY: it takes integers.
    let size = unsafe { trap!(libc::SYS_fcntl, fd, libc::F_GETPIPE_SZ) };
    os::set_errno(errno);
    size > 0
}

/// A number that both ends of a pipe have.
pub(super) fn id(pipe: c_int) -> Option<u64> {
    let errno = os::errno();
    // SAFETY: what a stat is made of may be zero.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable.
    let done = unsafe { trap!(libc::SYS_fstat, pipe, &raw mut stat) };
    os::set_errno(errno);
    (done == 0).then_some(stat.st_ino)
}

/// Whether nothing is in a pipe.
pub(super) fn is_empty(pipe: c_int) -> bool {
    let (errno, mut there) = (os::errno(), 0_i32);
    const FIONREAD: c_int = libc::FIONREAD as c_int;
    // SAFETY: an integer may be written.
    let done = unsafe { trap!(libc::SYS_ioctl, pipe, FIONREAD, &raw mut there) };
    os::set_errno(errno);
    done == 0 && there == 0
}

/// Waits until a pipe is ready for this, unless the flags of splice(2) say that the call does not wait: then it is the
/// kernel's that says so. The error that ends the wait.
pub(super) fn wait(pipe: c_int, events: libc::c_short, flags: c_uint) -> Result<(), c_int> {
    if flags & libc::SPLICE_F_NONBLOCK != 0 {
        return Ok(());
    }
    let mut at = libc::pollfd { fd: pipe, events, revents: 0 };
    // By libc's function the thread may be cancelled.
    // SAFETY: `at` is writable.
    let found = unsafe {
        real!(poll(&raw mut at, 1, -1): fn(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int)
    };
    if found < 0 { Err(os::errno()) } else { Ok(()) }
}

/// Whether something could be written to a pipe at once.
pub(super) fn has_room(pipe: c_int) -> Result<bool, c_int> {
    let mut at = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
    let (now, none) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, std::ptr::null::<u8>());
    // SAFETY: `at` is writable, and the time readable.
    let found = unsafe { trap!(libc::SYS_ppoll, &raw mut at, 1, &raw const now, none, 8) };
    match at.revents {
        _ if found < 0 => Err(os::errno()),
        // Nobody reads it (wait_for_space).
        events if events & libc::POLLERR != 0 => Err(libc::EPIPE),
        events => Ok(events & libc::POLLOUT != 0),
    }
}

/// Bytes in the thread's own pipe, which is empty again when this goes.
struct Aside {
    ends: Ends,
    /// That are there still.
    left: usize,
}

impl Aside {
    fn begin() -> Result<Aside, c_int> {
        let kept = OWN.try_with(|own| own.0.take()).ok().flatten();
        Ok(Aside { ends: kept.map_or_else(Ends::make, Ok)?, left: 0 })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if self.ends.throw_away(self.ends.from.fd(), self.left) < self.left {
            // It would be found by the next one.
            self.ends.close();
            return;
        }
        let kept = OWN.try_with(|own| own.0.replace(Some(self.ends)));
        match kept {
            Ok(other) => other.into_iter().for_each(Ends::close),
            Err(_) => self.ends.close(),
        }
    }
}

/// Bytes of a pipe that are peeked at: they are there still. They are read once.
pub(super) struct Peeked {
    aside: Aside,
    pipe: c_int,
}

/// Peeks at a pipe; `None` if nothing is there and nobody writes to it. It waits as splice(2) does with these flags.
pub(super) fn peek(pipe: c_int, count: usize, flags: c_uint) -> Result<Option<Peeked>, c_int> {
    // Before anything else: the thread has its descriptors back when this goes.
    let mut aside = Aside::begin()?;
    let waits = flags & libc::SPLICE_F_NONBLOCK;
    loop {
        // By libc's function the thread may be cancelled.
        // SAFETY: it takes integers.
        let there = unsafe {
            real!(tee(pipe, aside.ends.to.fd(), count, waits):
                fn(c_int, c_int, usize, c_uint) -> isize)
        };
        match usize::try_from(there) {
            Ok(0) => return Ok(None),
            Ok(there) => {
                aside.left = there;
                return Ok(Some(Peeked { aside, pipe }));
            }
            // The pipe's own O_NONBLOCK, which splice(2) to a socket does not look at.
            Err(_) if os::errno() == libc::EAGAIN && waits == 0 => {
                wait(pipe, libc::POLLIN, flags)?;
            }
            Err(_) => return Err(os::errno()),
        }
    }
}

impl Peeked {
    pub(super) fn len(&self) -> usize {
        self.aside.left
    }

    /// Reads into these places.
    pub(super) fn read(&mut self, places: &[iovec; 2]) -> Result<usize, c_int> {
        let Aside { ends, left } = &mut self.aside;
        // SAFETY: the places may be written, as the caller has them from a ring.
        let got = unsafe { trap!(libc::SYS_readv, ends.from.fd(), places.as_ptr(), 2) };
        let got = usize::try_from(got).map_err(|_| os::errno())?;
        *left -= got.min(*left);
        Ok(got)
    }

    /// So many of the bytes are taken out of the pipe.
    pub(super) fn take(&self, count: usize) {
        self.aside.ends.throw_away(self.pipe, count);
    }
}

/// Bytes on their way into a pipe, by one of the thread's own.
pub(super) struct Into {
    aside: Aside,
    pipe: c_int,
}

impl Into {
    pub(super) fn begin(pipe: c_int) -> Result<Into, c_int> {
        Ok(Into { aside: Aside::begin()?, pipe })
    }

    /// Copies what lies in these places, as far as there is room: how much.
    pub(super) fn copy(&mut self, places: &[iovec; 2]) -> Result<usize, c_int> {
        let Aside { ends, left } = &mut self.aside;
        // What was copied before was not to go on.
        *left -= ends.throw_away(ends.from.fd(), *left);
        let put = write(ends.to.fd(), places)?;
        *left += put;
        Ok(put)
    }

    /// Moves what was copied into the pipe, as far as that has room: how much.
    pub(super) fn give(&mut self) -> Result<usize, c_int> {
        let Aside { ends, left } = &mut self.aside;
        let moved = splice(ends.from.fd(), self.pipe, *left, libc::SPLICE_F_NONBLOCK)?;
        *left -= moved;
        Ok(moved)
    }
}

/// Writes what lies in these places to a pipe, as far as it has room: how much.
fn write(pipe: c_int, places: &[iovec; 2]) -> Result<usize, c_int> {
    /// `RWF_NOWAIT` (include/uapi/linux/fs.h), and that there is no place to write at.
    const NOWAIT: c_int = 8;
    const NONE: libc::c_long = -1;
    // SAFETY: the places may be read, as the caller has them from a ring.
    let put = unsafe { trap!(libc::SYS_pwritev2, pipe, places.as_ptr(), 2, NONE, NONE, NOWAIT) };
    if put >= 0 || os::errno() != libc::EOPNOTSUPP {
        return usize::try_from(put).map_err(|_| os::errno());
    }
    // Before Linux 6.4: so much as there is room for if there is any (PIPE_BUF).
    let [first, _] = places;
    let len = first.iov_len.min(4096);
    // SAFETY: the same.
    let put = unsafe { trap!(libc::SYS_write, pipe, first.iov_base, len) };
    usize::try_from(put).map_err(|_| os::errno())
}
