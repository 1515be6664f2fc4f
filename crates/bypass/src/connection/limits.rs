//! What the program has set that says how much it may write, and whether it waits: as the socket has it, so that no call at
//! the NIC asks the kernel.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::c_int;

use super::Connection;
use crate::os;

/// In `nonblocking`, whose other bits count the changes.
const KNOWN: u32 = 3;
const UNKNOWN: u32 = 0;
const NO: u32 = 1;
const YES: u32 = 2;
const CHANGE: u32 = 4;

/// `SO_BUF_LOCK` of Linux 5.15, and its bit for what `SO_SNDBUF` has set (include/uapi/linux/socket.h).
const SO_BUF_LOCK: c_int = 72;
const SNDBUF_LOCK: c_int = 1;

pub(super) struct Limits {
    /// `O_NONBLOCK`, which all descriptors have together.
    nonblocking: AtomicU32,
    /// `SO_SNDBUF`, if the program has set it; 0 if not.
    send_buffer: AtomicU32,
    /// `TCP_NOTSENT_LOWAT`, or what the system has for it; 0 for no limit.
    unsent: AtomicU32,
}

/// Bytes that a call writes at most before those that wait to be sent are counted anew: what the kernel has in one packet
/// (tcp_sendmsg_locked).
const PACKET: u32 = 64 << 10;

impl Limits {
    pub(super) const fn new() -> Self {
        Limits {
            nonblocking: AtomicU32::new(UNKNOWN),
            send_buffer: AtomicU32::new(0),
            unsent: AtomicU32::new(0),
        }
    }

    /// Of a new connection.
    pub(super) fn begin(&self) {
        self.forget_nonblocking();
        self.send_buffer.store(0, Ordering::Relaxed);
        self.unsent.store(0, Ordering::Relaxed);
    }

    /// As the socket of this descriptor has them.
    pub(super) fn read(&self, fd: c_int) {
        self.forget_nonblocking();
        let of_socket = |option| os::int_option(fd, libc::SOL_SOCKET, option);
        let is_set = of_socket(SO_BUF_LOCK).is_some_and(|bits| bits & SNDBUF_LOCK != 0);
        let buffer = if is_set { of_socket(libc::SO_SNDBUF).unwrap_or(0) } else { 0 };
        self.send_buffer.store(buffer.max(0) as u32, Ordering::Relaxed);
        let unsent = match os::int_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) {
            None | Some(0) => default_unsent(),
            Some(unsent) => unsent as u32,
        };
        self.unsent.store(if unsent == u32::MAX { 0 } else { unsent }, Ordering::Relaxed);
    }

    /// How many bytes may wait to be sent first; 0 for any number.
    pub(super) fn unsent(&self) -> u32 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// How much of this room a call may have, where so many bytes wait to be sent.
    pub(super) fn room(&self, room: u32, unsent: impl FnOnce() -> u32) -> u32 {
        match self.unsent() {
            0 => room,
            // What is written goes on in a packet that was not sent yet, without a look at the limit.
            most if unsent() < most.max(PACKET) => room.min(PACKET),
            _ => 0,
        }
    }

    fn forget_nonblocking(&self) {
        let unknown = |word: u32| Some((word & !KNOWN).wrapping_add(CHANGE));
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        // It never gives up.
        let _ = self.nonblocking.fetch_update(set, fetch, unknown);
    }

    /// Bytes that may wait to be acknowledged, of a ring of so many.
    pub(super) fn capacity(&self, ring: u32) -> u32 {
        match self.send_buffer.load(Ordering::Relaxed) {
            0 => ring,
            buffer => buffer.min(ring),
        }
    }
}

/// The system's `TCP_NOTSENT_LOWAT` (tcp(7)), as it was when the process first asked.
fn default_unsent() -> u32 {
    const UNKNOWN: u64 = u64::MAX;
    static DEFAULT: AtomicU64 = AtomicU64::new(UNKNOWN);
    if DEFAULT.load(Ordering::Relaxed) == UNKNOWN {
        let errno = os::errno();
        let number = os::number_in(b"/proc/sys/net/ipv4/tcp_notsent_lowat\0");
        DEFAULT.store(number.unwrap_or(u32::MAX).into(), Ordering::Relaxed);
        os::set_errno(errno);
    }
    DEFAULT.load(Ordering::Relaxed) as u32
}

impl Connection {
    /// Whether calls do not wait, as one of its descriptors says.
    pub(super) fn is_nonblocking(&self, fd: c_int) -> bool {
        if !self.is_away() {
            // Another process may change it.
            return os::is_nonblocking(fd);
        }
        let word = self.limits.nonblocking.load(Ordering::Acquire);
        match word & KNOWN {
            UNKNOWN => {
                let is = os::is_nonblocking(fd);
                let known = word | if is { YES } else { NO };
                // Unless it has changed meanwhile.
                let place = &self.limits.nonblocking;
                let _ = place.compare_exchange(word, known, Ordering::AcqRel, Ordering::Relaxed);
                is
            }
            known => known == YES,
        }
    }

    /// `O_NONBLOCK` may have changed.
    pub(crate) fn may_block(&self) {
        self.limits.forget_nonblocking();
    }
}
