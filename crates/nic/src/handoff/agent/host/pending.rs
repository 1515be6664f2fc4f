//! Changes that connections were not looked at for yet.

use std::collections::HashMap;
use std::net::IpAddr;

use handoff::RestoreReason;
use sys::Versions;
use sys::netlink::changes::Change;

use super::hops::{Moved, Said};

/// Prefixes that are remembered. If there are more, any route may have changed.
const PREFIXES: usize = 64;

/// What has changed, by whom it concerns.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct News {
    /// All connections go back.
    pub(super) all: Option<RestoreReason>,
    /// Anything may have changed.
    pub(super) is_everything: bool,
    /// It is time to look at what changes in silence.
    pub(super) is_time: bool,
    /// Packets that the firewall or tc sees.
    pub(super) sees: Versions,
    /// Policies of IPsec have changed.
    pub(super) policies: bool,
    /// Addresses that were removed.
    gone: Vec<IpAddr>,
    /// Prefixes whose routes have changed.
    prefixes: Vec<(IpAddr, u8)>,
    /// Any route may have changed.
    routes: bool,
    /// Neighbours that have moved.
    pub(super) hops: Vec<(IpAddr, Moved)>,
}

impl News {
    /// Whether an address may have been removed.
    pub(super) fn has_lost(&self, ip: IpAddr) -> bool {
        self.is_everything || self.gone.contains(&ip)
    }

    /// Whether the route to an address may be another one.
    pub(super) fn may_reroute(&self, to: IpAddr) -> bool {
        self.is_everything
            || self.routes
            || self.prefixes.iter().any(|&(prefix, len)| is_in(to, prefix, len))
    }

    /// What has become of a neighbour last.
    pub(super) fn moved(&self, ip: IpAddr) -> Option<Moved> {
        self.hops.iter().rev().find(|(moved, _)| *moved == ip).map(|(_, moved)| *moved)
    }
}

/// Whether an address has the first `len` bits of a prefix.
fn is_in(ip: IpAddr, prefix: IpAddr, len: u8) -> bool {
    let len = u32::from(len);
    match (ip, prefix) {
        (IpAddr::V4(ip), IpAddr::V4(prefix)) => {
            let rest = 32_u32.saturating_sub(len);
            (ip.to_bits() ^ prefix.to_bits()).checked_shr(rest).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(prefix)) => {
            let rest = 128_u32.saturating_sub(len);
            (ip.to_bits() ^ prefix.to_bits()).checked_shr(rest).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// A link, as far as routes depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link {
    is_up: bool,
    is_running: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pending {
    /// Index of the host's interface.
    interface: u32,
    news: Option<News>,
    links: HashMap<u32, Link>,
    /// MTU of the host's interface in bytes.
    mtu: u32,
}

impl Pending {
    pub(super) fn new(interface: u32, mtu: u32) -> Self {
        Pending { interface, news: None, links: HashMap::new(), mtu }
    }

    /// Nothing was heard.
    pub(super) fn is_empty(&self) -> bool {
        self.news.is_none()
    }

    /// There is nobody whom it concerns.
    pub(super) fn clear(&mut self) {
        self.news = None;
    }

    /// All that was heard. If it is time to look at what changes in silence, there is always something.
    pub(super) fn take(&mut self, is_time: bool) -> Option<News> {
        match (self.news.take(), is_time) {
            (None, false) => None,
            (news, is_time) => Some(News { is_time, ..news.unwrap_or_default() }),
        }
    }

    /// A change was heard of. `hop` says what it means to a next hop.
    pub(super) fn hear(
        &mut self,
        change: &Change,
        hop: impl FnOnce(IpAddr, Said) -> Option<Moved>,
    ) {
        match *change {
            Change::Overrun => {
                self.links.clear();
                let news = self.note();
                (news.is_everything, news.policies) = (true, true);
            }
            Change::Link { index, is_up, is_running, mtu } => {
                self.link(index, Link { is_up, is_running }, mtu);
            }
            Change::AddressGone(ip) => {
                let news = self.note();
                news.gone.push(ip);
                // Routes of IPv4 that prefer it go untold.
                news.routes = true;
            }
            Change::Route { to, len } => {
                let news = self.note();
                match news.prefixes.len() < PREFIXES {
                    true => news.prefixes.push((to, len)),
                    false => news.routes = true,
                }
            }
            Change::Routing => self.note().routes = true,
            Change::Neighbour { index, ip, mac, has_failed } => {
                if index == self.interface
                    && let Some(moved) = hop(ip, Said { mac, has_failed })
                {
                    self.note().hops.push((ip, moved));
                }
            }
            // What they see is looked at before connections are.
            Change::Traffic(_) | Change::Nftables => drop(self.note()),
            Change::Policies => self.note().policies = true,
        }
    }

    fn link(&mut self, index: u32, link: Link, mtu: Option<u32>) {
        // A router's tunnels come and go, and tell of much else.
        let has_changed = self.links.insert(index, link) != Some(link);
        if !link.is_up && index != self.interface {
            self.links.remove(&index);
        }
        if index == self.interface {
            if !link.is_up {
                self.note().all = Some(RestoreReason::LinkDown);
            } else if mtu.is_some_and(|mtu| std::mem::replace(&mut self.mtu, mtu) != mtu) {
                self.note().all = Some(RestoreReason::Mtu);
            }
        }
        if has_changed {
            // Routes of IPv4 by a link that goes down go untold.
            self.note().routes = true;
        }
    }

    fn note(&mut self) -> &mut News {
        self.news.get_or_insert_default()
    }
}
