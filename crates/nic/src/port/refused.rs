//! Errors of the host's kernel for packets that it refuses.

use std::io;

/// Why the host's kernel refused a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refused {
    /// The host interface is down.
    HostDown,
    /// The kernel had no memory, or its queue was full.
    HostFull,
    /// The kernel refused this packet.
    HostRefused,
}

impl Refused {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Refused; 3] = [Refused::HostDown, Refused::HostFull, Refused::HostRefused];

    /// The counter's name, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Refused::HostDown => "host_down",
            Refused::HostFull => "host_full",
            Refused::HostRefused => "host_refused",
        }
    }

    /// The reason for a failed delivery. A TAP that is down fails with `EIO`.
    pub fn from_error(error: &io::Error) -> Refused {
        match error.raw_os_error() {
            Some(EIO | ENETDOWN) => Refused::HostDown,
            Some(EAGAIN | ENOMEM | ENOBUFS) => Refused::HostFull,
            _ => Refused::HostRefused,
        }
    }
}

const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENETDOWN: i32 = 100;
const ENOBUFS: i32 = 105;
