//! IP addresses of interfaces.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};

use super::{Edit, attributes, edit, number, request, request_raw, text};
use crate::Result;

/// linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;
const IFA_F_NODAD: u32 = 2;
const IFA_F_DADFAILED: u32 = 8;
const IFA_F_TENTATIVE: u32 = 0x40;
/// `IFAPROT_KERNEL_RA`: the kernel has made it from a router advertisement.
const BY_ROUTER: u8 = 2;
/// `MIN_VALID_LIFETIME` of net/ipv6/addrconf.c, in seconds.
const TWO_HOURS: u32 = 2 * 3600;
/// A lifetime that does not end (RFC 4861, section 4.6.2).
const INFINITY: u32 = u32::MAX;
/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const IFADDRMSG: usize = 8;

/// An address of an interface, as the kernel reported it (`RTM_NEWADDR`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    ip: IpAddr,
    message: Vec<u8>,
}

impl Address {
    /// Takes a message of the kernel's, or a saved one; `None` if it is not an address.
    pub(super) fn new(message: Vec<u8>) -> Option<Self> {
        if message.len() < IFADDRMSG {
            return None;
        }
        let local = find(&message, IFA_LOCAL).or_else(|| find(&message, IFA_ADDRESS));
        let ip = local.and_then(ip)?;
        Some(Self { ip, message })
    }

    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// The address itself (the local one on a point-to-point link).
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Length of the network prefix, in bits.
    pub fn prefix_len(&self) -> u8 {
        self.message[1]
    }

    /// The index of its interface.
    pub fn index(&self) -> u32 {
        number(&self.message[4..8]).unwrap_or(0)
    }

    /// Whether it is an IPv6 link-local address (RFC 4291, section 2.5.6).
    pub fn is_ipv6_link_local(&self) -> bool {
        matches!(self.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
    }

    /// Whether duplicate address detection is off for it (`IFA_F_NODAD`).
    pub fn nodad(&self) -> bool {
        self.flags() & IFA_F_NODAD != 0
    }

    /// Whether it may still be a duplicate, so that duplicate address detection is needed where it is added.
    fn is_unproven(&self) -> bool {
        self.flags() & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0
    }

    /// Whether the kernel treats both as one address, lifetimes aside.
    pub(super) fn is_same(&self, other: &Address) -> bool {
        self.ip == other.ip && (self.ip.is_ipv6() || self.prefix_len() == other.prefix_len())
    }

    /// Preferred and valid lifetime, in seconds.
    pub fn lifetimes(&self) -> (u32, u32) {
        let info = find(&self.message, IFA_CACHEINFO);
        let word = |at: usize| info.and_then(|info| number(info.get(at..at + 4)?));
        (word(0).unwrap_or(INFINITY), word(4).unwrap_or(INFINITY))
    }

    fn flags(&self) -> u32 {
        find(&self.message, IFA_FLAGS).and_then(number).unwrap_or(self.message[2].into())
    }

    /// The same address for another interface: all attributes stay, except for the label, which contains the
    /// interface's name, and finite lifetimes, which are reduced by `elapsed` seconds. `None` if it has
    /// expired.
    pub(super) fn moved(&self, to: &Destination<'_>, elapsed: u32, flags: u32) -> Option<Vec<u8>> {
        let mut expired = false;
        let mut message = edit(&self.message, IFADDRMSG, |kind, value| match kind {
            IFA_LABEL => relabel(&text(value), to),
            IFA_FLAGS => Edit::Replace((self.flags() | flags).to_ne_bytes().to_vec()),
            IFA_CACHEINFO => match age(value, elapsed) {
                Some(aged) => Edit::Replace(aged),
                None => {
                    expired = true;
                    Edit::Drop
                }
            },
            _ => Edit::Keep,
        });
        message[4..8].copy_from_slice(&to.index.to_ne_bytes());
        (!expired).then_some(message)
    }
}

fn find(message: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(message, IFADDRMSG).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// The interface to which an address moves, and the name of the one from which it comes.
pub(super) struct Destination<'a> {
    pub(super) index: u32,
    pub(super) name: &'a str,
    pub(super) from: &'a str,
}

/// "eth0" and "eth0:1" become "nic0" and "nic0:1"; other labels stay. One that no longer fits is dropped.
fn relabel(label: &str, to: &Destination<'_>) -> Edit {
    match label.strip_prefix(to.from) {
        Some(alias) if alias.is_empty() || alias.starts_with(':') => {
            let label = format!("{}{alias}\0", to.name);
            if label.len() > libc::IFNAMSIZ { Edit::Drop } else { Edit::Replace(label.into()) }
        }
        _ => Edit::Keep,
    }
}

/// `struct ifa_cacheinfo` (preferred and valid lifetime in seconds, two time stamps) `elapsed` seconds later.
fn age(cacheinfo: &[u8], elapsed: u32) -> Option<Vec<u8>> {
    let later = |at: usize| {
        let lifetime = number(cacheinfo.get(at..at + 4)?)?;
        Some(if lifetime == INFINITY { INFINITY } else { lifetime.saturating_sub(elapsed) })
    };
    let (preferred, valid) = (later(0)?, later(4)?);
    let mut aged = cacheinfo.to_vec();
    aged[..4].copy_from_slice(&preferred.to_ne_bytes());
    aged[4..8].copy_from_slice(&valid.to_ne_bytes());
    (valid > 0).then_some(aged)
}

/// An IP address from its bytes in network order.
pub(super) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// The IPv4 and IPv6 addresses of the interface with this index, in the kernel's order (a primary
/// address before its secondaries).
pub fn list(index: u32) -> Result<Vec<Address>> {
    let all = AddressMessage::default();
    let replies = request("list the addresses", libc::RTM_GETADDR, NLM_F_DUMP, &all)?;
    let addresses = replies.into_iter().filter_map(Address::new);
    Ok(addresses.filter(|address| address.index() == index).collect())
}

/// Adds an address. With `nodad`, an IPv6 address can be used at once, without the second or two
/// of duplicate address detection (RFC 4862, section 5.4). `EEXIST` if the interface has it.
pub fn add(index: u32, ip: IpAddr, prefix_len: u8, nodad: bool) -> Result<()> {
    let mut message = typed(index, ip, prefix_len);
    if nodad && ip.is_ipv6() {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    let what = format!("add the address {ip}/{prefix_len} to");
    request(what, libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &message)
        .map_err(|error| error.on(super::name_of(index)))?;
    Ok(())
}

/// Deletes an address. `EADDRNOTAVAIL` if the interface does not have it.
pub fn delete(index: u32, ip: IpAddr, prefix_len: u8) -> Result<()> {
    let what = format!("delete the address {ip}/{prefix_len} of");
    request(what, libc::RTM_DELADDR, 0, &typed(index, ip, prefix_len))
        .map_err(|error| error.on(super::name_of(index)))?;
    Ok(())
}

fn typed(index: u32, ip: IpAddr, prefix_len: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = prefix_len;
    message.header.index = index;
    message.attributes.extend([AddressAttribute::Local(ip), AddressAttribute::Address(ip)]);
    message
}

/// Adds a saved address to an interface. One that exists already stays as it is.
pub(super) fn restore(address: &Address, to: &Destination<'_>, elapsed: u32) -> Result<()> {
    // Detection was done when the address was first added. To repeat it would keep the address, and routes
    // with it as their source, out of use for a second or more.
    let proven = if address.is_unproven() { 0 } else { IFA_F_NODAD };
    let Some(message) = address.moved(to, elapsed, proven) else { return Ok(()) };
    let what = || format!("add the address {}/{} to", address.ip(), address.prefix_len());
    let added = request_raw(what(), libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &message);
    match added {
        Err(error) if error.errno() == Some(libc::EEXIST) => return Ok(()),
        added => added.map_err(|error| error.on(to.name))?,
    };
    if address.ip().is_ipv6() && !address.nodad() && !address.is_unproven() {
        // The flag is no longer needed; without it the address is as it was before.
        if let Some(message) = address.moved(to, elapsed, 0) {
            request_raw(what(), libc::RTM_NEWADDR, NLM_F_REPLACE, &message)
                .map_err(|error| error.on(to.name))?;
        }
    }
    Ok(())
}

/// Sets the lifetimes of an interface's address to those of a newer report of it.
pub(super) fn refresh(
    address: &Address,
    to: &Destination<'_>,
    elapsed: u32,
    present: &Address,
) -> Result<()> {
    let Some(mut message) = address.moved(to, elapsed, 0) else { return Ok(()) };
    // RFC 4862, section 5.5.3 (e): an advertisement, which has no signature, does not shorten what
    // is left of a lifetime to under two hours.
    let by_router = find(&address.message, IFA_PROTO) == Some(&[BY_ROUTER]);
    let least = if by_router { present.lifetimes().1.min(TWO_HOURS) } else { 0 };
    message = edit(&message, IFADDRMSG, |kind, value| match kind {
        IFA_CACHEINFO => prolong(value, least).map_or(Edit::Keep, Edit::Replace),
        _ => Edit::Keep,
    });
    let what = format!("renew the address {}/{} of", address.ip(), address.prefix_len());
    request_raw(what, libc::RTM_NEWADDR, NLM_F_REPLACE, &message)
        .map_err(|error| error.on(to.name))?;
    Ok(())
}

/// `struct ifa_cacheinfo` with a valid lifetime of at least `least` seconds.
fn prolong(cacheinfo: &[u8], least: u32) -> Option<Vec<u8>> {
    let valid = number(cacheinfo.get(4..8)?)?.max(least);
    let mut prolonged = cacheinfo.to_vec();
    prolonged[4..8].copy_from_slice(&valid.to_ne_bytes());
    Some(prolonged)
}

/// Deletes a saved address from its own interface. It is no error if it is gone already.
pub(super) fn remove(address: &Address) -> Result<()> {
    let what = format!("delete the address {}/{} of", address.ip(), address.prefix_len());
    match request_raw(what, libc::RTM_DELADDR, 0, &address.message) {
        Err(error) if error.errno() != Some(libc::EADDRNOTAVAIL) => {
            Err(error.on(super::name_of(address.index())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eth0_to_nic0() -> Destination<'static> {
        Destination { index: 9, name: "nic0", from: "eth0" }
    }

    fn cacheinfo(preferred: u32, valid: u32) -> Vec<u8> {
        [preferred, valid, 7, 7].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn address(label: &str, preferred: u32, valid: u32) -> Address {
        let mut message = vec![2, 24, 0x80, 0, 3, 0, 0, 0];
        super::super::append(&mut message, IFA_LOCAL, &[10, 0, 0, 1]);
        super::super::append(&mut message, IFA_LABEL, format!("{label}\0").as_bytes());
        super::super::append(&mut message, IFA_CACHEINFO, &cacheinfo(preferred, valid));
        super::super::append(&mut message, 4000, b"from the future");
        Address::new(message).unwrap()
    }

    #[test]
    fn a_move_changes_index_and_label_only() {
        let moved = address("eth0:1", INFINITY, INFINITY).moved(&eth0_to_nic0(), 1000, 0).unwrap();
        let mut expected = address("nic0:1", INFINITY, INFINITY);
        expected.message[4] = 9;
        assert_eq!(moved, expected.message);
    }

    #[test]
    fn labels_that_do_not_name_the_interface_stay_and_long_ones_go() {
        assert!(matches!(relabel("eth0x", &eth0_to_nic0()), Edit::Keep));
        assert!(matches!(relabel("uplink", &eth0_to_nic0()), Edit::Keep));
        assert!(matches!(relabel("eth0:seventeen-b", &eth0_to_nic0()), Edit::Drop));
    }

    #[test]
    fn lifetimes_run_on_and_run_out() {
        let moved = address("eth0", 100, 300).moved(&eth0_to_nic0(), 200, 0).unwrap();
        let moved = Address::new(moved).unwrap();
        assert_eq!(find(&moved.message, IFA_CACHEINFO), Some(&cacheinfo(0, 100)[..]));
        assert_eq!(address("eth0", 100, 300).moved(&eth0_to_nic0(), 300, 0), None);
    }

    #[test]
    fn a_lifetime_is_prolonged_not_shortened() {
        assert_eq!(prolong(&cacheinfo(5, 10), TWO_HOURS), Some(cacheinfo(5, TWO_HOURS)));
        assert_eq!(prolong(&cacheinfo(5, INFINITY), 9), Some(cacheinfo(5, INFINITY)));
        assert_eq!(prolong(&[0; 7], 9), None);
    }

    #[test]
    fn a_message_without_an_address_is_refused() {
        assert_eq!(Address::new(vec![2, 24, 0, 0, 3, 0, 0, 0]), None);
        assert_eq!(Address::new(vec![2, 24]), None);
    }
}
