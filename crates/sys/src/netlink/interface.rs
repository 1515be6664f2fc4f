//! Network interfaces: their properties, and the settings that every kind of them has.

use std::io;

use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkMessage,
};

use super::{NLM_F_DUMP, attributes, number, request, text};
use crate::error::{Error, Result, check};

/// linux/if_link.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
/// `IF_OPER_UP` of RFC 2863, as linux/if.h numbers it.
const IF_OPER_UP: u8 = 6;
/// `struct ifinfomsg`: family, type, index, flags, change.
const IFINFOMSG: usize = 16;

/// An interface as the kernel reported it (`RTM_GETLINK`), at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, unique in its network namespace.
    pub name: String,
    /// Its index, unique in its network namespace; never 0.
    pub index: u32,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The largest MTU of the driver; 0 if it reports none.
    pub max_mtu: u32,
    /// MAC address, if the link layer has one of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Whether it is Ethernet (`ARPHRD_ETHER`), which wharf needs.
    pub ethernet: bool,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Operational (`IFF_RUNNING`): up, with a carrier.
    pub running: bool,
    /// RFC 2863 operational state "up"; virtual interfaces may stay "unknown".
    pub operational: bool,
    /// The driver's link kind ("veth", "tun", "bridge"); `None` for hardware and the loopback.
    pub kind: Option<String>,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// For a veth the index of its peer, for a VLAN its parent's (`IFLA_LINK`).
    pub link: Option<u32>,
    /// The index of the bridge or bond that it is a port of (`IFLA_MASTER`).
    pub master: Option<u32>,
    /// The namespace `link` is in, as this namespace numbers it; `None` if it is this one.
    pub link_netnsid: Option<i32>,
    /// Whether an XDP program is attached.
    pub xdp: bool,
}

impl Interface {
    /// The interface of this name.
    pub fn by_name(name: &str) -> Result<Self> {
        let mut request = LinkMessage::default();
        request.attributes.push(LinkAttribute::IfName(checked(name)?.to_owned()));
        get(request).map_err(|error| error.on(name))
    }

    /// The interface with this index.
    pub fn by_index(index: u32) -> Result<Self> {
        get(to_index(index)).map_err(|error| error.on(format!("#{index}")))
    }

    /// Reads an `RTM_NEWLINK` message.
    fn parse(message: &[u8]) -> Option<Self> {
        let header = message.get(..IFINFOMSG)?;
        let flags = number(&header[8..12])?;
        let set = |flag: libc::c_int| flags & flag as u32 != 0;
        let mut this = Self {
            name: String::new(),
            index: number(&header[4..8])?,
            mtu: 0,
            max_mtu: 0,
            mac: None,
            ethernet: header[2..4] == libc::ARPHRD_ETHER.to_ne_bytes(),
            up: set(libc::IFF_UP),
            running: set(libc::IFF_RUNNING),
            operational: false,
            kind: None,
            rx_queues: 1,
            tx_queues: 1,
            link: None,
            link_netnsid: None,
            master: None,
            xdp: false,
        };
        for (kind, value) in attributes(message, IFINFOMSG) {
            match kind {
                IFLA_IFNAME => this.name = text(value),
                IFLA_MTU => this.mtu = number(value)?,
                IFLA_MAX_MTU => this.max_mtu = number(value)?,
                IFLA_ADDRESS => this.mac = value.try_into().ok(),
                IFLA_OPERSTATE => this.operational = value == [IF_OPER_UP],
                IFLA_NUM_RX_QUEUES => this.rx_queues = number(value)?,
                IFLA_NUM_TX_QUEUES => this.tx_queues = number(value)?,
                IFLA_LINK => this.link = number(value),
                IFLA_MASTER => this.master = number(value),
                IFLA_LINK_NETNSID => this.link_netnsid = number(value).map(|id| id as i32),
                IFLA_LINKINFO => this.kind = nested(value, IFLA_INFO_KIND).map(text),
                IFLA_XDP => this.xdp = nested(value, IFLA_XDP_ATTACHED).is_some_and(|v| v != [0]),
                _ => {}
            }
        }
        Some(this)
    }
}

fn nested(value: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(value, 0).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn get(mut about: LinkMessage) -> Result<Interface> {
    // Without this the counters of every protocol would make up most of the answer.
    about.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let reply = request("find the interface", libc::RTM_GETLINK, 0, &about)?;
    reply.first().and_then(|message| Interface::parse(message)).ok_or_else(|| {
        Error::new("parse the kernel's answer about", io::ErrorKind::InvalidData.into())
    })
}

/// All interfaces of the calling thread's network namespace.
pub fn list() -> Result<Vec<Interface>> {
    let all = LinkMessage::default();
    let replies = request("list the interfaces", libc::RTM_GETLINK, NLM_F_DUMP, &all)?;
    Ok(replies.iter().filter_map(|message| Interface::parse(message)).collect())
}

/// The index of the interface of this name. [`Error::is_missing`] if there is none.
pub fn index(name: &str) -> Result<u32> {
    Interface::by_name(name).map(|interface| interface.index)
}

/// The present name of the interface with this index. [`Error::is_missing`] if there is none.
pub fn name(index: u32) -> Result<String> {
    Interface::by_index(index).map(|interface| interface.name)
}

/// Sets an interface administratively up.
pub fn set_up(name: &str) -> Result<()> {
    change("set up", name, |message| {
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
    })
}

/// Sets an interface administratively down. The kernel removes its routes and its IPv6 addresses.
pub fn set_down(name: &str) -> Result<()> {
    change("set down", name, |message| message.header.change_mask = LinkFlags::Up)
}

/// Sets the largest IP packet that the interface carries, in bytes.
pub fn set_mtu(name: &str, mtu: u32) -> Result<()> {
    change("set the MTU of", name, |message| message.attributes.push(LinkAttribute::Mtu(mtu)))
}

/// Sets a bound in bytes, Ethernet header included, below which super-packets for the interface stay
/// (`gso_max_size` in ip link). The kernel segments larger ones itself.
pub fn set_gso_max_size(name: &str, size: u32) -> Result<()> {
    change("set gso_max_size of", name, |message| {
        message.attributes.push(LinkAttribute::GsoMaxSize(size));
    })
}

/// Sets a bound in bytes of IP packet below which aggregates of the interface's GRO stay, for both IP
/// versions (`gro_max_size` in ip link). For IPv4 it has an effect up to 65,536 only.
pub fn set_gro_max_size(name: &str, size: u32) -> Result<()> {
    change("set gro_max_size of", name, |message| {
        message.attributes.push(LinkAttribute::GroMaxSize(size));
    })
}

/// Sets the MAC address.
pub fn set_mac(name: &str, mac: [u8; 6]) -> Result<()> {
    let address = LinkAttribute::Address(mac.to_vec());
    change("set the MAC address of", name, |message| message.attributes.push(address))
}

fn change(what: &'static str, name: &str, how: impl FnOnce(&mut LinkMessage)) -> Result<()> {
    let mut message = to_index(index(name)?);
    how(&mut message);
    request(what, libc::RTM_NEWLINK, 0, &message).map_err(|error| error.on(name))?;
    Ok(())
}

/// A link message for the interface with this index.
pub(crate) fn to_index(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header = LinkHeader { index, ..LinkHeader::default() };
    message
}

/// Why `name` cannot be an interface's name, as in the kernel's `dev_valid_name`; `None` if it can.
pub fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it is empty"),
        "." | ".." => Some("it means a directory"),
        _ if name.len() >= libc::IFNAMSIZ => Some("it is longer than 15 bytes"),
        _ if name.contains(['/', ':', '\0'])
            || name.contains(|c: char| c.is_ascii_whitespace()) =>
        {
            Some("it contains a space, '/', ':' or NUL")
        }
        _ => None,
    }
}

/// The name itself, if it can be one.
pub(crate) fn checked(name: &str) -> Result<&str> {
    match name_fault(name) {
        None => Ok(name),
        Some(fault) => {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, fault);
            Err(Error::new("have an interface called", cause).on(format!("{name:?}")))
        }
    }
}

/// The kernel's request struct for the interface of this name.
pub(crate) fn ifreq(name: &str) -> Result<libc::ifreq> {
    let name = checked(name)?;
    // SAFETY: ifreq is made of integers and pointers that may be null: zeroes are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name is shorter than the field, so a NUL stays behind it.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// A socket to address interface ioctls of the current namespace to.
pub(crate) fn control_socket() -> io::Result<std::os::fd::OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes integers and touches no memory of ours.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_an_interface() {
        let lo = Interface::by_name("lo").unwrap();
        assert_eq!(Interface::by_index(lo.index).unwrap(), lo);
        assert!(list().unwrap().contains(&lo));
        assert!(!lo.ethernet && lo.kind.is_none() && lo.mac == Some([0; 6]));
    }

    #[test]
    fn an_unknown_interface_is_missing_and_named() {
        let error = index("no-such-if").unwrap_err();
        assert!(error.is_missing());
        assert_eq!(
            error.to_string(),
            "cannot find the interface no-such-if: No such device (os error 19)"
        );
    }

    #[test]
    fn names_are_checked_as_the_kernel_does() {
        assert_eq!(name_fault("eth0.100"), None);
        assert_eq!(name_fault("fifteen-bytes-x"), None);
        for name in ["", ".", "..", "sixteen-bytes-xx", "a b", "a/b", "a:b", "a\0"] {
            assert!(name_fault(name).is_some(), "{name:?}");
            assert_eq!(index(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_truncated_answer_is_not_understood() {
        assert_eq!(Interface::parse(&[0; IFINFOMSG - 1]), None);
        assert_eq!(Interface::parse(&[0; IFINFOMSG]).map(|this| this.index), Some(0));
    }
}
