//! Implementations of one thing, side by side.

pub(crate) mod callgrind;
mod runner;

pub(crate) use runner::{Lap, Runner, Sample, laps, median};

/// An implementation of the offloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// This project.
    Wharf,
    /// A Rust crate for TUN devices.
    TunRs,
    /// WireGuard in Go.
    WireguardGo,
    /// The network stack of Google's sandbox, in Go.
    Gvisor,
    /// The Data Plane Development Kit, in C.
    Dpdk,
}

impl System {
    /// All of them, as the figures list them.
    pub const ALL: [System; 5] =
        [System::Wharf, System::TunRs, System::WireguardGo, System::Gvisor, System::Dpdk];

    /// The name in the figures' `system`.
    pub const fn name(self) -> &'static str {
        match self {
            System::Wharf => "wharf",
            System::TunRs => "tun-rs",
            System::WireguardGo => "wireguard-go",
            System::Gvisor => "gvisor",
            System::Dpdk => "dpdk",
        }
    }
}
