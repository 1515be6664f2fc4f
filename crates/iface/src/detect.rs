//! Duplicate address detection: an address is not used before probes for it went unanswered (RFC 4862 section
//! 5.4, RFC 5227 section 2.1). Both IP versions are treated alike: a number of probes a second apart, and a
//! second more.
//!
//! The random delay before the first probe, for which both RFCs ask, is left out: it is meant for hosts that
//! all start at once, and the start of this one is its user's decision.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use wire::arp::{Arp, Operation};
use wire::{Mac, ndp};

use crate::outbox::Outbox;
use crate::{Address, Addresses, Nanos};

/// Time between two probes, and after the last one (RFC 4861 section 10, RETRANS_TIMER; RFC 5227 section 1.1
/// has 1 to 2 seconds).
const INTERVAL: Nanos = 1_000_000_000;

/// An address of this host that another host uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Duplicate {
    /// The address.
    pub ip: IpAddr,
    /// The Ethernet address of the host that has it, or wants to have it at the same time.
    pub mac: Mac,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.mac;
        let ip = self.ip;
        write!(f, "{ip} is the address of {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} already")
    }
}

/// An address that is not used yet (tentative, RFC 4862 section 2).
#[derive(Clone, Copy, Debug)]
struct Tentative {
    address: Address,
    /// Probes still to be sent.
    left: u8,
    /// When the next probe is due, or the wait after the last one ends; `None` before [`Detection::start`].
    next: Option<Nanos>,
}

/// The state of duplicate address detection.
#[derive(Debug, Default)]
pub(crate) struct Detection {
    tentative: Vec<Tentative>,
    /// Addresses that were found to be duplicates; they are never used.
    duplicates: Vec<IpAddr>,
    /// Duplicates that [`found`](Detection::found) has not returned yet.
    found: VecDeque<Duplicate>,
}

impl Detection {
    /// With so many probes for each address; with 0 all addresses are used at once.
    pub(crate) fn new(addresses: &Addresses, probes: u8) -> Self {
        let tentative =
            |address: &Address| Tentative { address: *address, left: probes, next: None };
        let own = addresses.own().iter().filter(|_| probes > 0);
        Detection { tentative: own.map(tentative).collect(), ..Detection::default() }
    }

    /// Makes the first probes due.
    pub(crate) fn start(&mut self, now: Nanos) {
        for tentative in &mut self.tentative {
            tentative.next.get_or_insert(now);
        }
    }

    /// Whether an own address must not be used, now or ever.
    #[inline]
    pub(crate) fn bars(&self, ip: IpAddr) -> bool {
        !(self.tentative.is_empty() && self.duplicates.is_empty()) && self.has(ip)
    }

    #[cold]
    fn has(&self, ip: IpAddr) -> bool {
        self.is_tentative(ip) || self.duplicates.contains(&ip)
    }

    fn is_tentative(&self, ip: IpAddr) -> bool {
        self.tentative.iter().any(|tentative| tentative.address.ip == ip)
    }

    /// Whether each address is either used or found to be a duplicate.
    pub(crate) fn is_over(&self) -> bool {
        self.tentative.is_empty()
    }

    /// When a probe is due, or a wait ends.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.tentative.iter().filter_map(|tentative| tentative.next).min()
    }

    /// Sends the probes that are due. Calls `announce` for each address that may be used from now on.
    pub(crate) fn on_time(
        &mut self,
        now: Nanos,
        mac: Mac,
        outbox: &mut Outbox,
        announce: impl Fn(&mut Outbox, &Address),
    ) {
        if self.next_deadline().is_none_or(|due| now < due) {
            return;
        }
        self.tentative.retain_mut(|tentative| {
            if tentative.next.is_none_or(|due| now < due) {
                return true;
            }
            if tentative.left == 0 {
                announce(outbox, &tentative.address);
                return false;
            }
            let sent = match tentative.address.ip {
                IpAddr::V4(ip) => outbox.frame(&Arp::probe(mac, ip)),
                IpAddr::V6(ip) => outbox.frame(&ndp::probe(mac, ip)),
            };
            // A probe for which there was no room is sent later, not left out.
            tentative.left -= u8::from(sent);
            tentative.next = Some(now + INTERVAL);
            true
        });
    }

    /// Processes an ARP message: its sender may use a tentative address, or probe for it as well (RFC 5227
    /// section 2.1.1).
    pub(crate) fn on_arp(&mut self, arp: &Arp, own: Mac) {
        if self.tentative.is_empty() {
            return;
        }
        let is_probe = arp.operation == Operation::Request && arp.sender.is_unspecified();
        let ip = if is_probe { arp.target } else { arp.sender };
        self.claimed(ip.into(), arp.sender_mac, own);
    }

    /// Another host has a tentative address, or probes for it. A frame of this host itself was looped back by
    /// the link (RFC 4862 section 5.4.3).
    pub(crate) fn claimed(&mut self, ip: IpAddr, mac: Mac, own: Mac) {
        if mac == own || !self.is_tentative(ip) {
            return;
        }
        self.tentative.retain(|tentative| tentative.address.ip != ip);
        self.duplicates.push(ip);
        self.found.push_back(Duplicate { ip, mac });
    }

    /// The next duplicate that was found.
    pub(crate) fn found(&mut self) -> Option<Duplicate> {
        self.found.pop_front()
    }
}
