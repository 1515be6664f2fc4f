//! What the kernel tells of changes around connections: links, addresses, routes, neighbours, the firewall, tc, IPsec.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::{Socket, SocketAddr};

use super::address::Address;
use super::neighbour::{self, NDMSG};
use super::route::Route;
use super::{Protocol, RECEIVE_BUFFER, attributes, number};
use crate::{Error, Result};

/// linux/rtnetlink.h (`enum rtnetlink_groups`): LINK, NEIGH, TC, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR,
/// IPV6_ROUTE, IPV6_RULE, NEXTHOP.
const ROUTE_GROUPS: [u32; 10] = [1, 3, 4, 5, 7, 8, 9, 11, 19, 32];
/// `NFNLGRP_NFTABLES`.
const NETFILTER_GROUPS: [u32; 1] = [7];
/// `XFRMNLGRP_POLICY`.
const XFRM_GROUPS: [u32; 1] = [4];
/// linux/rtnetlink.h.
const RTM_NEWCHAIN: u16 = 100;
const RTM_DELCHAIN: u16 = 101;
const TCM_IFINDEX_MAGIC_BLOCK: u32 = u32::MAX;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
/// `struct ifinfomsg`: family, type, index, flags, change.
const IFINFOMSG: usize = 16;
const IFLA_MTU: u16 = 4;
/// Room for notifications that were not read yet, in bytes: a router's tables change by thousands at once.
const ROOM: u32 = 1 << 20;
/// Most messages that one call reads. If there are more, the next call does.
const MOST: usize = 4096;

/// A change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Something may have changed that nobody was told of: there was no room (`ENOBUFS`).
    Overrun,
    /// A link.
    Link {
        /// Index of the interface.
        index: u32,
        /// It is there, and administratively up.
        is_up: bool,
        /// It has a carrier (`IFF_LOWER_UP`).
        is_running: bool,
        /// MTU in bytes, if that was said.
        mtu: Option<u32>,
    },
    /// An address was removed from an interface.
    AddressGone(IpAddr),
    /// Routes to this prefix were added, changed or removed.
    Route {
        /// The prefix.
        to: IpAddr,
        /// Its length in bits.
        len: u8,
    },
    /// Rules of routing or next-hop objects: any route may have changed.
    Routing,
    /// A neighbour of an interface.
    Neighbour {
        /// Index of the interface.
        index: u32,
        /// Its address.
        ip: IpAddr,
        /// Its Ethernet address, as far as the kernel knows that.
        mac: Option<[u8; 6]>,
        /// It does not answer.
        has_failed: bool,
    },
    /// Disciplines or filters of tc: the index of the interface, or `None` for a block that several share.
    Traffic(Option<u32>),
    /// Tables, chains, rules or sets of nftables.
    Nftables,
    /// Policies of IPsec.
    Policies,
}

/// Tells of all changes from its beginning on, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Changes {
    sockets: Vec<(Protocol, Socket)>,
}

impl Changes {
    /// Tells from now on. A kernel that has no nftables, or no IPsec, says nothing of these.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_ADMIN`.
    pub fn open() -> Result<Changes> {
        let mut sockets = vec![(Protocol::Route, open(Protocol::Route, &ROUTE_GROUPS)?)];
        for (protocol, groups) in
            [(Protocol::Netfilter, NETFILTER_GROUPS), (Protocol::Xfrm, XFRM_GROUPS)]
        {
            match open(protocol, &groups) {
                Ok(socket) => sockets.push((protocol, socket)),
                Err(error) if super::is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Changes { sockets })
    }

    /// What becomes readable when there is something to [`read`](Self::read).
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(_, socket)| socket.as_fd())
    }

    /// Reads what there is, without waiting.
    ///
    /// # Errors
    /// That a socket has become useless.
    pub fn read(&self, mut tell: impl FnMut(Change)) -> io::Result<()> {
        let mut datagram = Vec::with_capacity(RECEIVE_BUFFER);
        for (protocol, socket) in &self.sockets {
            for _ in 0..MOST {
                datagram.clear();
                match socket.recv(&mut datagram, libc::MSG_DONTWAIT) {
                    Ok(_) => parse(*protocol, &datagram, &mut tell),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                        tell(Change::Overrun);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

fn open(protocol: Protocol, groups: &[u32]) -> Result<Socket> {
    let open = || -> io::Result<Socket> {
        let mut socket = Socket::new(protocol.number())?;
        socket.bind(&SocketAddr::new(0, 0))?;
        // Without the privilege to have more than net.core.rmem_max there is less.
        let force = libc::SO_RCVBUFFORCE;
        let _ = crate::sockopt::set(socket.as_fd(), libc::SOL_SOCKET, force, &ROOM);
        for group in groups {
            match socket.add_membership(*group) {
                // Linux before 5.3 has no next-hop objects.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && *group == 32 => {}
                other => other?,
            }
        }
        Ok(socket)
    };
    open().map_err(|cause| Error::new("hear of changes by netlink", cause))
}

/// All changes in a datagram. What is malformed may be anything.
fn parse(protocol: Protocol, datagram: &[u8], tell: &mut impl FnMut(Change)) {
    let mut rest = datagram;
    while !rest.is_empty() {
        let Ok(message) = NetlinkBuffer::new_checked(rest) else { return tell(Change::Overrun) };
        if let Some(change) = change(protocol, message.message_type(), message.payload()) {
            tell(change);
        }
        rest = rest.get((message.length() as usize).next_multiple_of(4).max(1)..).unwrap_or(&[]);
    }
}

fn change(protocol: Protocol, kind: u16, payload: &[u8]) -> Option<Change> {
    match protocol {
        Protocol::Netfilter => return Some(Change::Nftables),
        Protocol::Xfrm => return Some(Change::Policies),
        Protocol::Route | Protocol::Diag => {}
    }
    match kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            let index = number(payload.get(4..8)?)?;
            let flags = number(payload.get(8..12)?)?;
            let mut all = attributes(payload, IFINFOMSG);
            let has = |flag: libc::c_int| kind == libc::RTM_NEWLINK && flags & flag as u32 != 0;
            Some(Change::Link {
                index,
                is_up: has(libc::IFF_UP),
                is_running: has(libc::IFF_LOWER_UP),
                mtu: all.find(|(kind, _)| *kind == IFLA_MTU).and_then(|(_, mtu)| number(mtu)),
            })
        }
        libc::RTM_DELADDR => {
            Address::new(payload.to_vec()).map(|address| Change::AddressGone(address.ip()))
        }
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            let (to, len) = Route::new(payload.to_vec())?.destination();
            Some(Change::Route { to, len })
        }
        libc::RTM_NEWRULE | libc::RTM_DELRULE | RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
            Some(Change::Routing)
        }
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
            (payload.len() >= NDMSG).then_some(())?;
            Some(Change::Neighbour {
                index: neighbour::index_of(payload)?,
                ip: neighbour::find_destination(payload)?,
                mac: neighbour::find_ethernet(payload),
                has_failed: neighbour::has_failed(payload),
            })
        }
        libc::RTM_NEWQDISC
        | libc::RTM_DELQDISC
        | libc::RTM_NEWTFILTER
        | libc::RTM_DELTFILTER
        | RTM_NEWCHAIN
        | RTM_DELCHAIN => {
            let index = number(payload.get(4..8)?)?;
            Some(Change::Traffic((index != TCM_IFINDEX_MAGIC_BLOCK).then_some(index)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::append;
    use super::*;
    use crate::ingress::IngressDrop;
    use crate::netlink::link::{VethEnd, create_veth};
    use crate::netlink::{address, route};
    use crate::netns::Namespace;
    use crate::{interface, process};
    use proptest::prelude::*;

    fn datagram(messages: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut all = Vec::new();
        for (kind, payload) in messages {
            all.extend((16 + payload.len() as u32).to_ne_bytes());
            all.extend(kind.to_ne_bytes());
            all.extend([0; 10]);
            all.extend(payload);
            all.resize(all.len().next_multiple_of(4), 0);
        }
        all
    }

    fn read(protocol: Protocol, datagram: &[u8]) -> Vec<Change> {
        let mut all = Vec::new();
        parse(protocol, datagram, &mut |change| all.push(change));
        all
    }

    #[test]
    fn each_message_is_read() {
        let mut link = vec![0; IFINFOMSG];
        link[4] = 3;
        link[8] = libc::IFF_UP as u8;
        append(&mut link, IFLA_MTU, &1400_u32.to_ne_bytes());
        let mut gone = vec![0; 8];
        append(&mut gone, 2, &[10, 0, 0, 1]);
        let mut to = vec![libc::AF_INET as u8, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        append(&mut to, libc::RTA_DST, &[10, 1, 2, 0]);
        let mut neighbour = vec![libc::AF_INET as u8, 0, 0, 0, 3, 0, 0, 0, 0x20, 0, 0, 0];
        append(&mut neighbour, 1, &[10, 0, 0, 9]);
        let mut traffic = vec![0; 20];
        traffic[4] = 3;
        let ip = |text: &str| text.parse().unwrap();
        let all = datagram(&[
            (libc::RTM_NEWLINK, link.clone()),
            (libc::RTM_DELLINK, link[..IFINFOMSG].to_vec()),
            (libc::RTM_DELADDR, gone),
            (libc::RTM_NEWROUTE, to),
            (libc::RTM_NEWRULE, vec![0; 12]),
            (libc::RTM_NEWNEIGH, neighbour),
            (libc::RTM_NEWTFILTER, traffic),
        ]);
        let changes = [
            Change::Link { index: 3, is_up: true, is_running: false, mtu: Some(1400) },
            Change::Link { index: 3, is_up: false, is_running: false, mtu: None },
            Change::AddressGone(ip("10.0.0.1")),
            Change::Route { to: ip("10.1.2.0"), len: 24 },
            Change::Routing,
            Change::Neighbour { index: 3, ip: ip("10.0.0.9"), mac: None, has_failed: true },
            Change::Traffic(Some(3)),
        ];
        assert_eq!(read(Protocol::Route, &all), changes);
        let any = datagram(&[(0xa06, vec![0; 4])]);
        assert_eq!(read(Protocol::Netfilter, &any), [Change::Nftables]);
        assert_eq!(read(Protocol::Xfrm, &any), [Change::Policies]);
        assert_eq!(read(Protocol::Route, &all[..7]), [Change::Overrun]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_changes_or_none(bytes: Vec<u8>, kind in 0_u16..128, payload: Vec<u8>) {
            for protocol in [Protocol::Route, Protocol::Netfilter, Protocol::Xfrm, Protocol::Diag] {
                let _ = read(protocol, &bytes);
                let _ = read(protocol, &datagram(&[(kind, payload.clone()), (kind, vec![])]));
            }
        }
    }

    #[test]
    fn the_kernel_tells_of_each_change() {
        if !process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to make a veth");
        }
        let namespace = Namespace::new().unwrap();
        let lacking = namespace.run(|| {
            create_veth(&VethEnd::new("near0"), &VethEnd::new("far0")).unwrap();
            let near = interface::index("near0").unwrap();
            ["near0", "far0"].into_iter().for_each(|name| interface::set_up(name).unwrap());
            let ip: IpAddr = "10.0.0.1".parse().unwrap();
            let changes = Changes::open().unwrap();
            let heard = || {
                let mut heard = Vec::new();
                changes.read(|change| heard.push(change)).unwrap();
                heard
            };
            heard();
            let to: IpAddr = "10.9.0.0".parse().unwrap();
            address::add(near, ip, 24, true).unwrap();
            route::add(near, &route::NewRoute::new(to, 16, None)).unwrap();
            assert!(heard().contains(&Change::Route { to, len: 16 }));
            address::delete(near, ip, 24).unwrap();
            assert!(heard().contains(&Change::AddressGone(ip)));
            interface::set_mtu("near0", 1400).unwrap();
            let (is_up, is_running, mtu) = (true, true, Some(1400));
            assert!(heard().contains(&Change::Link { index: near, is_up, is_running, mtu }));
            crate::netlink::qdisc::set_fifo("near0", 5).unwrap();
            assert!(heard().contains(&Change::Traffic(Some(near))));
            // One that reads nothing has no room at last.
            let room = 64 << 10;
            let force = libc::SO_RCVBUFFORCE;
            let (_, socket) = &changes.sockets[0];
            crate::sockopt::set(socket.as_fd(), libc::SOL_SOCKET, force, &room).unwrap();
            for mtu in (1300..1400).cycle().take(400) {
                interface::set_mtu("near0", mtu).unwrap();
            }
            assert!(heard().contains(&Change::Overrun));
            match IngressDrop::on("near0") {
                Ok(_) => assert!(heard().contains(&Change::Nftables)),
                Err(error) => return Some(error.to_string()),
            }
            None
        });
        if let Some(lacking) = lacking.unwrap() {
            testkit::missing::lacks(lacking);
        }
    }
}
