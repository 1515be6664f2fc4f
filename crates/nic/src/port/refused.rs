//! What the host's kernel says to a packet that it does not take.

use std::io;

/// Why the host's kernel did not take a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refused {
    /// The host interface is down.
    HostDown,
    /// The kernel had no memory or no room.
    HostFull,
    /// The kernel refused the packet itself.
    HostRefused,
}

impl Refused {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Refused; 3] = [Refused::HostDown, Refused::HostFull, Refused::HostRefused];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Refused::HostDown => "host_down",
            Refused::HostFull => "host_full",
            Refused::HostRefused => "host_refused",
        }
    }

    /// What a failed delivery means. A TAP that is down answers `EIO`.
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
