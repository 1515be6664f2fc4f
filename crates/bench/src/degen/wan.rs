//! Two hosts and a WAN between them: degen, as a bridge.

use std::net::Ipv4Addr;

use nic::config::WireMode;
use nic::degen::Settings;
use nic::degen::bridge::{Bridge, Carriage};
use sys::interface;
use sys::netlink::address;
use sys::netns::Namespace;

use crate::sink::io;
use crate::{Error, link};

/// Interfaces of the hosts, and of the bridge.
pub(super) const ENDS: [&str; 2] = ["left0", "right0"];
const BETWEEN: [&str; 2] = ["left1", "right1"];
/// Addresses of the hosts.
pub(super) const ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// Frames in flight: 100 ms of 100,000 a second in both directions, and as many again.
const FRAMES: u32 = 65_536;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Wan {
    /// What is left of the bridge, and what is right.
    pub(super) hosts: [Namespace; 2],
    bridge: Bridge,
}

impl Wan {
    pub(super) fn new(settings: &Settings, mode: WireMode, awake: bool) -> Result<Wan, Error> {
        let hosts = [Namespace::new()?, Namespace::new()?];
        let middle = Namespace::new()?;
        for (side, host) in hosts.iter().enumerate() {
            let near = ENDS[side];
            link::veth((host, near), (&middle, BETWEEN[side]))?;
            host.run(move || -> sys::Result<()> {
                link::quiet(near);
                address::add(interface::index(near)?, ADDRESSES[side].into(), 24, true)?;
                interface::set_up(near)
            })??;
        }
        let carriage = Carriage { frames: FRAMES, mode, real_time: true, awake };
        let bridge = link::degen(&middle, BETWEEN, settings, carriage)?;
        Ok(Wan { hosts, bridge })
    }

    /// Of all frames that left degen, those that it sent more than 50 us after they were due, in per
    /// cent, by its own count.
    pub(super) fn late(&self) -> f64 {
        let snapshot = self.bridge.handle().snapshot();
        let late: u64 = snapshot.late.iter().map(|late| late.packets).sum();
        let all: u64 = snapshot.counters.iter().map(|counters| counters.departed).sum();
        100.0 * late as f64 / all.max(1) as f64
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        self.bridge.stop().map_err(io("end degen"))
    }
}
