//! What a program has called with.

use sys::seccomp::{Flagged, Waiting};

/// The calls that are answered, and those that make epoll sets, which is good to know.
pub const CALLS: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_accept,
    libc::SYS_connect,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_epoll_create1,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_create,
];

/// The calls that are answered if they have one of some flags: those that read the queue of errors, which the end of a pair
/// does not have.
pub const FLAGGED: &[Flagged] = &[
    Flagged { call: libc::SYS_recvmsg, argument: 2, bits: libc::MSG_ERRQUEUE as u32 },
    Flagged { call: libc::SYS_recvmmsg, argument: 3, bits: libc::MSG_ERRQUEUE as u32 },
];

/// Where a program wants something that has a length: addresses in its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) at: u64,
    /// Of the length, an int: how much room there is, and then how much there was to be written.
    pub(crate) len_at: u64,
}

/// Whose name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    Own,
    Peers,
}

/// An option's level and name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) level: i32,
    pub(crate) name: i32,
}

/// Of each the descriptor is the first argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Accept {
        peer: Room,
        flags: i32,
    },
    Connect {
        to: u64,
        len: i32,
    },
    Name {
        whose: Whose,
        room: Room,
    },
    Option {
        key: Key,
        room: Room,
    },
    SetOption {
        key: Key,
        value: u64,
        len: i32,
    },
    /// What is in the queue of errors (`MSG_ERRQUEUE`).
    Errors,
}

impl Call {
    /// The descriptor, and what is to be done by it; `None` for a call that is not answered.
    pub(crate) fn of(waiting: &Waiting) -> Option<(i32, Call)> {
        let arguments = waiting.arguments;
        // The kernel takes ints by their low half.
        let int = |at: usize| arguments[at] as i32;
        let room = |at: usize| Room { at: arguments[at], len_at: arguments[at + 1] };
        let key = Key { level: int(1), name: int(2) };
        let call = match waiting.call {
            libc::SYS_accept4 => Call::Accept { peer: room(1), flags: int(3) },
            libc::SYS_accept => Call::Accept { peer: room(1), flags: 0 },
            libc::SYS_connect => Call::Connect { to: arguments[1], len: int(2) },
            libc::SYS_getsockopt => Call::Option { key, room: room(3) },
            libc::SYS_setsockopt => Call::SetOption { key, value: arguments[3], len: int(4) },
            libc::SYS_getsockname => Call::Name { whose: Whose::Own, room: room(1) },
            libc::SYS_getpeername => Call::Name { whose: Whose::Peers, room: room(1) },
            libc::SYS_recvmsg | libc::SYS_recvmmsg => Call::Errors,
            _ => return None,
        };
        Some((int(0), call))
    }
}
