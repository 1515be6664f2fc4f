//! Next hops of connections at the NIC: their Ethernet addresses, which the kernel goes on to look after.
//!
//! The kernel asks neighbours anew that it sends packets to. As it sends none for a connection at the NIC, it is told
//! that the neighbour is in use.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sys::netlink::neighbour;
use wire::Mac;

use super::kernel::Kernel;

/// How often the kernel is told that a neighbour is in use.
const USED_EVERY: Duration = Duration::from_secs(10);

/// What becomes of a next hop: another Ethernet address, or `None` if it does not answer.
pub(super) type Moved = Option<Mac>;

#[derive(Debug)]
struct Hop {
    mac: Mac,
    users: u32,
    /// When the kernel was told last that it is in use.
    used: Instant,
    /// It did not answer, and was asked again, as for the next packet.
    is_asked_again: bool,
}

/// What the kernel says of a neighbour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) mac: Option<Mac>,
    pub(super) has_failed: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Hops {
    interface: u32,
    all: HashMap<IpAddr, Hop>,
}

impl Hops {
    pub(super) fn new(interface: u32) -> Self {
        Hops { interface, all: HashMap::new() }
    }

    /// One more connection goes by this neighbour. `None` if its Ethernet address is not known.
    pub(super) fn take(&mut self, kernel: &mut Kernel, ip: IpAddr, now: Instant) -> Option<Mac> {
        if let Some(hop) = self.all.get_mut(&ip) {
            hop.users += 1;
            return Some(hop.mac);
        }
        let mac = neighbour::ethernet_address(&mut kernel.route, self.interface, ip).ok()??;
        // It is as fresh as the connection's last packet.
        let hop = Hop { mac, users: 1, used: now, is_asked_again: false };
        self.all.insert(ip, hop);
        Some(mac)
    }

    /// One connection less.
    pub(super) fn leave(&mut self, ip: IpAddr) {
        if let Some(hop) = self.all.get_mut(&ip) {
            hop.users -= 1;
            if hop.users == 0 {
                self.all.remove(&ip);
            }
        }
    }

    /// The kernel says something of a neighbour.
    pub(super) fn hear(&mut self, kernel: &mut Kernel, ip: IpAddr, said: Said) -> Option<Moved> {
        let hop = self.all.get_mut(&ip)?;
        match said {
            Said { mac: Some(mac), .. } => {
                hop.is_asked_again = false;
                let moved = mac != hop.mac;
                hop.mac = mac;
                moved.then_some(Some(mac))
            }
            Said { has_failed: true, .. } if hop.is_asked_again => Some(None),
            Said { has_failed, .. } => {
                // The kernel has forgotten it, or asked the address that it had alone: it asks all for the next packet.
                hop.is_asked_again = has_failed;
                keep_fresh(kernel, self.interface, ip);
                None
            }
        }
    }

    /// The kernel may have said something that was not heard.
    pub(super) fn look_again(&mut self, kernel: &mut Kernel) -> Vec<(IpAddr, Moved)> {
        let ips: Vec<IpAddr> = self.all.keys().copied().collect();
        let look = |ip: IpAddr| {
            let mac = neighbour::ethernet_address(&mut kernel.route, self.interface, ip).ok()?;
            let moved = self.hear(kernel, ip, Said { mac, has_failed: false })?;
            Some((ip, moved))
        };
        ips.into_iter().filter_map(look).collect()
    }

    /// Tells the kernel that they are in use, now and then.
    pub(super) fn keep_fresh(&mut self, kernel: &mut Kernel, now: Instant) {
        for (ip, hop) in &mut self.all {
            if now.saturating_duration_since(hop.used) >= USED_EVERY {
                hop.used = now;
                keep_fresh(kernel, self.interface, *ip);
            }
        }
    }
}

fn keep_fresh(kernel: &mut Kernel, interface: u32, ip: IpAddr) {
    if let Err(error) = neighbour::keep_fresh(&mut kernel.route, interface, ip) {
        tracing::debug!("the neighbour {ip} is not kept fresh: {error}");
    }
}
