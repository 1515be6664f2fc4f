//! Two hosts and a bridge between them.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use nic::config::WireMode;
use nic::degen::Settings;
use nic::degen::bridge::{Bridge, Carriage};
use sys::interface;
use sys::netlink::address;
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::Namespace;

use crate::Error;
use crate::sink::io;

/// Interfaces of the hosts, and of the bridge.
pub(super) const ENDS: [&str; 2] = ["left0", "right0"];
const BETWEEN: [&str; 2] = ["left1", "right1"];
/// Addresses of the hosts.
pub(super) const ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// The thread that degen runs in.
pub(super) const THREAD: &str = "wharf-degen";
/// Frames in flight: 100 ms of 100,000 a second in both directions, and as many again.
const FRAMES: u32 = 65_536;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Lab {
    /// What is left of the bridge, and what is right.
    pub(super) hosts: [Namespace; 2],
    bridge: Bridge,
}

impl Lab {
    pub(super) fn new(settings: &Settings, mode: WireMode) -> Result<Lab, Error> {
        let hosts = [Namespace::new()?, Namespace::new()?];
        let middle = Namespace::new()?;
        for (side, host) in hosts.iter().enumerate() {
            let namespace =
                middle.as_fd().try_clone_to_owned().map_err(io("keep a network namespace"))?;
            host.run(move || -> sys::Result<()> {
                let (near, far) = (ENDS[side], BETWEEN[side]);
                let far = VethEnd { namespace: Some(namespace.as_fd()), ..VethEnd::new(far) };
                create_veth(&VethEnd::new(near), &far)?;
                // Nothing but what is measured: no router is looked for.
                let _ = sys::sysctl::set_ipv6_conf(near, "disable_ipv6", "1");
                address::add(interface::index(near)?, ADDRESSES[side].into(), 24, true)?;
                interface::set_up(near)
            })??;
        }
        let carriage = Carriage { frames: FRAMES, mode, real_time: true };
        let bridge = middle.run(|| Bridge::start(BETWEEN, settings, carriage))??;
        // degen has a CPU of its own, and those who send and receive have another.
        if let Some(thread) = sys::process::thread(THREAD) {
            let cpus = sys::affinity::cpus().unwrap_or_default();
            let _ = cpus.last().map(|cpu| sys::affinity::pin_thread(thread, *cpu));
        }
        Ok(Lab { hosts, bridge })
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
