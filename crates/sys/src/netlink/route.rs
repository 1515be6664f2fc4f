//! Routes through interfaces, in all routing tables.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::{Emitable, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::address::ip;
use super::{Connection, Edit, attributes, edit, number, request, request_raw};
use crate::Result;

/// linux/rtnetlink.h.
const RTA_DST: u16 = libc::RTA_DST;
const RTA_OIF: u16 = libc::RTA_OIF;
const RTA_GATEWAY: u16 = libc::RTA_GATEWAY;
const RTA_PRIORITY: u16 = libc::RTA_PRIORITY;
const RTA_PREFSRC: u16 = libc::RTA_PREFSRC;
const RTA_MULTIPATH: u16 = libc::RTA_MULTIPATH;
const RTA_CACHEINFO: u16 = libc::RTA_CACHEINFO;
const RTA_TABLE: u16 = libc::RTA_TABLE;
const RTA_VIA: u16 = libc::RTA_VIA;
const RTA_ENCAP_TYPE: u16 = libc::RTA_ENCAP_TYPE;
const RTA_ENCAP: u16 = libc::RTA_ENCAP;
const RTA_EXPIRES: u16 = libc::RTA_EXPIRES;
const RTA_NH_ID: u16 = 30;
/// The only flag of a dumped route, or of its next hops, that a new one may have; the others describe a
/// state.
const RTNH_F_ONLINK: u32 = 4;
const RTM_F_CLONED: u32 = 0x200;
const RTPROT_RA: u8 = 9;
/// `struct rtmsg`: family, lengths of destination and source prefix, tos, table, protocol, scope,
/// type, flags.
const RTMSG: usize = 12;
/// `struct rtnexthop`: length, flags, hops, interface index.
const RTNEXTHOP: usize = 8;

/// A route as the kernel reported it (`RTM_NEWROUTE`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    message: Vec<u8>,
}

impl Route {
    /// Takes a message of the kernel's, or a saved one; `None` if it is not a route of IPv4 or IPv6.
    pub(super) fn new(message: Vec<u8>) -> Option<Self> {
        let family = i32::from(*message.first()?);
        let known = family == libc::AF_INET || family == libc::AF_INET6;
        (known && message.len() >= RTMSG).then_some(Self { message })
    }

    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Destination and the length of its prefix in bits; the default route is `0.0.0.0` or `::`
    /// with length 0.
    pub fn destination(&self) -> (IpAddr, u8) {
        let unspecified = match i32::from(self.message[0]) {
            libc::AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        (self.attribute(RTA_DST).and_then(ip).unwrap_or(unspecified), self.message[1])
    }

    /// The gateway, where the route has exactly one of its own address family.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.attribute(RTA_GATEWAY).and_then(ip)
    }

    /// The gateway, of whichever family (`RTA_VIA`, RFC 8950).
    fn router(&self) -> Option<IpAddr> {
        // `struct rtvia`: the family, and the address.
        let via = || self.attribute(RTA_VIA).and_then(|via| ip(via.get(2..)?));
        self.gateway().or_else(via)
    }

    /// The source address that the route prefers.
    pub fn source(&self) -> Option<IpAddr> {
        self.attribute(RTA_PREFSRC).and_then(ip)
    }

    /// The metric (priority); lower is better.
    pub fn metric(&self) -> u32 {
        self.attribute(RTA_PRIORITY).and_then(number).unwrap_or(0)
    }

    /// The routing table.
    pub fn table(&self) -> u32 {
        self.attribute(RTA_TABLE).and_then(number).unwrap_or(self.message[4].into())
    }

    /// Whether the route's packets are sent through the interface with this index, or may be where there are
    /// several next hops.
    pub fn leaves_through(&self, index: u32) -> bool {
        let single = self.attribute(RTA_OIF).and_then(number) == Some(index);
        let hops = self.attribute(RTA_MULTIPATH).unwrap_or(&[]);
        single || next_hops(hops).any(|hop| number(&hops[hop + 4..hop + 8]) == Some(index))
    }

    /// Whether the kernel makes it by itself for every interface or address: local, broadcast,
    /// anycast and multicast routes, link-local prefixes, clones.
    ///
    /// Connected routes do not count: network managers make those in the kernel's name, for
    /// addresses without a prefix route. Where the kernel does make one, adding it is no error.
    fn is_kernel_made(&self) -> bool {
        let by_kernel = self.message[5] == libc::RTPROT_KERNEL;
        let special =
            self.message[7] != libc::RTN_UNICAST || self.table() == u32::from(libc::RT_TABLE_LOCAL);
        let link_local =
            matches!(self.destination().0, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let flags = number(&self.message[8..12]).unwrap_or(0);
        by_kernel && (special || link_local) || flags & RTM_F_CLONED != 0
    }

    /// Whether it refers to a next-hop object (`ip nexthop`).
    pub(super) fn has_object(&self) -> bool {
        self.attribute(RTA_NH_ID).is_some()
    }

    /// This route moved from one interface to another, without its next-hop object, in a form that is the
    /// same for equal routes.
    pub(super) fn without_object(&self, from: u32, to: u32) -> Option<Sorted> {
        self.moved(from, to, 0, false).map(sorted)
    }

    /// The same with the next metric, if it is a route through a router that has advertised it.
    pub(super) fn behind_advertised(&self) -> Route {
        let advertised = self.message[5] == RTPROT_RA && self.gateway().is_some();
        let message = edit(&self.message, RTMSG, |kind, value| match kind {
            RTA_PRIORITY if advertised => {
                let behind = number(value).unwrap_or(0).saturating_add(1);
                Edit::Replace(behind.to_ne_bytes().to_vec())
            }
            _ => Edit::Keep,
        });
        Route { message }
    }

    fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        attributes(&self.message, RTMSG).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    /// The same route through interface `to` in place of `from`: all attributes stay. A finite lifetime
    /// (IPv6) is reduced by `elapsed` seconds; `None` if it has expired.
    ///
    /// A route with a next-hop object (`ip nexthop`) refers to that or, if `by_object` is false, has the
    /// contents of the object.
    fn moved(&self, from: u32, to: u32, elapsed: u32, by_object: bool) -> Option<Vec<u8>> {
        let by_object = by_object && self.has_object();
        let mut lifetime = None;
        let mut message = edit(&self.message, RTMSG, |kind, value| match kind {
            RTA_OIF | RTA_GATEWAY | RTA_VIA | RTA_MULTIPATH | RTA_ENCAP_TYPE | RTA_ENCAP
                if by_object =>
            {
                Edit::Drop
            }
            RTA_NH_ID if !by_object => Edit::Drop,
            RTA_OIF if number(value) == Some(from) => Edit::Replace(to.to_ne_bytes().to_vec()),
            RTA_MULTIPATH => Edit::Replace(moved_hops(value, from, to)),
            // The rest of a lifetime is reported here, but set by RTA_EXPIRES.
            RTA_CACHEINFO => {
                lifetime = seconds_left(value);
                Edit::Drop
            }
            RTA_EXPIRES => Edit::Drop,
            _ => Edit::Keep,
        });
        let flags = number(&message[8..12])? & RTNH_F_ONLINK;
        message[8..12].copy_from_slice(&flags.to_ne_bytes());
        if let Some(left) = lifetime {
            let left = left.checked_sub(elapsed).filter(|&left| left > 0)?;
            super::append(&mut message, RTA_EXPIRES, &left.to_ne_bytes());
        }
        Some(message)
    }
}

/// A message's header and its attributes in the order of their types.
pub(super) type Sorted = (Vec<u8>, Vec<(u16, Vec<u8>)>);

fn sorted(message: Vec<u8>) -> Sorted {
    let mut all: Vec<_> =
        attributes(&message, RTMSG).map(|(kind, value)| (kind, value.to_vec())).collect();
    all.sort();
    (message[..RTMSG].to_vec(), all)
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (destination, length) = self.destination();
        write!(f, "{destination}/{length}")?;
        self.gateway().map_or(Ok(()), |gateway| write!(f, " via {gateway}"))
    }
}

/// Offset of each `struct rtnexthop` in an `RTA_MULTIPATH`. A malformed one ends them.
fn next_hops(hops: &[u8]) -> impl Iterator<Item = usize> + use<'_> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let header = hops.get(at..at + RTNEXTHOP)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        next = at + length.next_multiple_of(4);
        (length >= RTNEXTHOP).then_some(at)
    })
}

fn moved_hops(hops: &[u8], from: u32, to: u32) -> Vec<u8> {
    let mut moved = hops.to_vec();
    for at in next_hops(hops) {
        moved[at + 2] &= RTNH_F_ONLINK as u8;
        let index = at + 4..at + 8;
        if number(&hops[index.clone()]) == Some(from) {
            moved[index].copy_from_slice(&to.to_ne_bytes());
        }
    }
    moved
}

/// The lifetime in `struct rta_cacheinfo` (two words, then the lifetime in ticks, 0 for none),
/// rounded up to seconds.
fn seconds_left(cacheinfo: &[u8]) -> Option<u32> {
    /// The kernel's `USER_HZ`, the same on x86-64 and aarch64.
    const TICKS: u32 = 100;
    let ticks = cacheinfo.get(8..12).and_then(number)? as i32;
    u32::try_from(ticks).ok().filter(|&ticks| ticks > 0).map(|ticks| ticks.div_ceil(TICKS))
}

/// The routes that leave through the interface with this index: all tables, default routes and
/// multipath routes with a next hop there included, without those that the kernel makes by itself
/// for every interface (local, broadcast, multicast, link-local).
pub fn list(index: u32) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut all = RouteMessage::default();
        all.header.address_family = family;
        let replies = request("list the routes", libc::RTM_GETROUTE, NLM_F_DUMP, &all)?;
        routes.extend(replies.into_iter().filter_map(Route::new));
    }
    routes.retain(|route| route.leaves_through(index) && !route.is_kernel_made());
    Ok(routes)
}

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop {
    /// Index of the interface by which it leaves.
    pub interface: u32,
    /// The neighbour that it is sent to: a router, or the destination itself.
    pub neighbour: IpAddr,
}

/// The next hop of the segments of a TCP connection of a user's, as the kernel routes them now: by the interface that is
/// the scope of `to`, if it has one. The connection of netlink is one of [`Protocol::Route`].
///
/// [`Protocol::Route`]: super::Protocol::Route
///
/// # Errors
/// `NetworkUnreachable` if there is no route; other errors of netlink, as for a local address that is not there.
pub fn next_hop(
    connection: &mut Connection,
    from: SocketAddr,
    to: SocketAddr,
    user: u32,
) -> Result<NextHop> {
    let mut question = RouteMessage::default();
    let (family, bits) = match to {
        SocketAddr::V4(_) => (AddressFamily::Inet, 32),
        SocketAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    question.header.address_family = family;
    question.header.destination_prefix_length = bits;
    question.header.source_prefix_length = bits;
    question.attributes.extend([
        RouteAttribute::Destination(to.ip().into()),
        RouteAttribute::Source(from.ip().into()),
        // Rules may go by these, and the hash of a route with several next hops.
        RouteAttribute::Uid(user),
        RouteAttribute::IpProto(libc::IPPROTO_TCP as u8),
        RouteAttribute::Sport(from.port()),
        RouteAttribute::Dport(to.port()),
    ]);
    if let SocketAddr::V6(to) = to
        && to.scope_id() != 0
    {
        question.attributes.push(RouteAttribute::Oif(to.scope_id()));
    }
    let mut message = vec![0; question.buffer_len()];
    question.emit(&mut message);
    let what = "find a route";
    let answers = connection.request(what, libc::RTM_GETROUTE, 0, &message)?;
    let route = answers.into_iter().find_map(Route::new);
    let found = route.and_then(|route| {
        let interface = route.attribute(RTA_OIF).and_then(number)?;
        Some(NextHop { interface, neighbour: route.router().unwrap_or(to.ip()) })
    });
    let none = || std::io::Error::from_raw_os_error(libc::ENETUNREACH);
    found.ok_or_else(|| crate::Error::new(what, none()))
}

/// Whether an address is one of this machine's, as the kernel routes packets to it. The connection is one of
/// [`Protocol::Route`].
///
/// [`Protocol::Route`]: super::Protocol::Route
///
/// # Errors
/// Those of netlink; that there is no route is none.
pub fn is_own(connection: &mut Connection, ip: IpAddr) -> Result<bool> {
    let (octets, bits) = match ip {
        IpAddr::V4(ip) => (ip.octets().to_vec(), 32),
        IpAddr::V6(ip) => (ip.octets().to_vec(), 128),
    };
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut question = vec![0; RTMSG];
    (question[0], question[1]) = (family as u8, bits);
    super::append(&mut question, RTA_DST, &octets);
    match connection.request("find a route", libc::RTM_GETROUTE, 0, &question) {
        Ok(answers) => {
            let route = answers.into_iter().find_map(Route::new);
            Ok(route.is_some_and(|route| route.message[7] == libc::RTN_LOCAL))
        }
        Err(error) => match error.errno() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL) => Ok(false),
            _ => Err(error),
        },
    }
}

/// A route to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewRoute {
    /// Destination; `0.0.0.0` or `::` with prefix length 0 is the default route.
    pub destination: IpAddr,
    /// Length of the destination's prefix, in bits.
    pub prefix_len: u8,
    /// The router; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The preferred source address, one of this machine.
    pub source: Option<IpAddr>,
    /// The metric; `None` for the kernel's (0 for IPv4, 1024 for IPv6).
    pub metric: Option<u32>,
    /// The routing table; `None` for the main one.
    pub table: Option<u32>,
}

impl NewRoute {
    /// A route in the main table with no preferred source and the kernel's metric.
    pub fn new(destination: IpAddr, prefix_len: u8, gateway: Option<IpAddr>) -> Self {
        Self { destination, prefix_len, gateway, source: None, metric: None, table: None }
    }

    fn message(&self, index: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        let on_link = self.gateway.is_none() && self.destination.is_ipv4();
        message.header = RouteHeader {
            address_family: match self.destination {
                IpAddr::V4(_) => AddressFamily::Inet,
                IpAddr::V6(_) => AddressFamily::Inet6,
            },
            destination_prefix_length: self.prefix_len,
            protocol: RouteProtocol::Static,
            scope: if on_link { RouteScope::Link } else { RouteScope::Universe },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let table = self.table.unwrap_or(libc::RT_TABLE_MAIN.into());
        message.attributes.extend([RouteAttribute::Oif(index), RouteAttribute::Table(table)]);
        let destination = (self.prefix_len > 0).then_some(self.destination);
        message.attributes.extend(destination.map(|ip| RouteAttribute::Destination(ip.into())));
        message.attributes.extend(self.gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
        message.attributes.extend(self.source.map(|ip| RouteAttribute::PrefSource(ip.into())));
        message.attributes.extend(self.metric.map(RouteAttribute::Priority));
        message
    }
}

/// Adds a route through the interface with this index, which must be up. `EEXIST` if there is one
/// to the same destination with the same metric.
pub fn add(index: u32, route: &NewRoute) -> Result<()> {
    let what = format!("add the route {}/{} through", route.destination, route.prefix_len);
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    request(what, libc::RTM_NEWROUTE, flags, &route.message(index))
        .map_err(|error| error.on(super::name_of(index)))?;
    Ok(())
}

/// Deletes a route that [`add`] has added. `ESRCH` if it is gone already.
pub fn withdraw(index: u32, route: &NewRoute) -> Result<()> {
    let what = format!("delete the route {}/{} through", route.destination, route.prefix_len);
    request(what, libc::RTM_DELROUTE, 0, &route.message(index))
        .map_err(|error| error.on(super::name_of(index)))?;
    Ok(())
}

/// Deletes a route that [`list`] has returned. `ESRCH` if it is gone already.
pub fn delete(route: &Route) -> Result<()> {
    let index = route.attribute(RTA_OIF).and_then(number).unwrap_or(0);
    // The route does not move, but flags that only describe a state are cleared.
    let message = route.moved(index, index, 0, true).unwrap_or_else(|| route.message.clone());
    request_raw(format!("delete the route {route}"), libc::RTM_DELROUTE, 0, &message)?;
    Ok(())
}

/// Deletes a saved route. It is no error if it is gone already.
pub(super) fn remove(route: &Route) -> Result<()> {
    match delete(route) {
        Err(error) if error.errno() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

/// Adds a saved route through interface `to` in place of `from`. It is no error if it exists already or has
/// expired.
pub(super) fn restore(route: &Route, from: u32, to: u32, elapsed: u32) -> Result<()> {
    // A next-hop object belongs to its interface, and may have been deleted there, too.
    if route.leaves_through(to)
        && route.has_object()
        && let Some(message) = route.moved(from, to, elapsed, true)
        && add_message(route, &message).is_ok()
    {
        return Ok(());
    }
    route.moved(from, to, elapsed, false).map_or(Ok(()), |message| add_message(route, &message))
}

/// As [`restore`], for a route whose gateway is not reached by another route any more: such a route stays
/// when the address under which it was added is removed, but is accepted again only with a flag that its
/// gateway is on the link (`RTNH_F_ONLINK`).
pub(super) fn restore_onlink(route: &Route, from: u32, to: u32, elapsed: u32) -> Result<()> {
    let Some(mut message) = route.moved(from, to, elapsed, false) else { return Ok(()) };
    let flags = number(&message[8..12]).unwrap_or(0) | RTNH_F_ONLINK;
    message[8..12].copy_from_slice(&flags.to_ne_bytes());
    add_message(route, &message)
}

fn add_message(route: &Route, message: &[u8]) -> Result<()> {
    // Not NLM_F_EXCL, which would refuse a default route that differs from another only in its interface. An
    // identical route is EEXIST all the same.
    let flags = NLM_F_CREATE | NLM_F_APPEND;
    match request_raw(format!("add the route {route}"), libc::RTM_NEWROUTE, flags, message) {
        Err(error) if error.errno() != Some(libc::EEXIST) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::append;
    use super::*;

    fn header(protocol: u8, kind: u8, flags: u32) -> Vec<u8> {
        let mut message = vec![libc::AF_INET as u8, 8, 0, 0, 254, protocol, 0, kind];
        message.extend_from_slice(&flags.to_ne_bytes());
        append(&mut message, RTA_DST, &[10, 0, 0, 0]);
        message
    }

    fn hop(flags: u8, index: u32) -> Vec<u8> {
        let mut hop = vec![16, 0, flags, 3];
        hop.extend_from_slice(&index.to_ne_bytes());
        append(&mut hop, RTA_GATEWAY, &[10, 0, 0, 1]);
        hop
    }

    #[test]
    fn a_move_changes_the_interface_and_clears_states() {
        let route = |flags, index: u32| {
            let mut message = header(4, 1, flags);
            append(&mut message, 4000, b"from the future");
            append(&mut message, RTA_OIF, &index.to_ne_bytes());
            Route::new(message).unwrap()
        };
        // RTNH_F_LINKDOWN (16) is a state, RTNH_F_ONLINK is not.
        let moved = route(16 | RTNH_F_ONLINK, 3).moved(3, 9, 1000, true).unwrap();
        assert_eq!(moved, route(RTNH_F_ONLINK, 9).message);
    }

    #[test]
    fn only_the_next_hops_through_the_interface_move() {
        let mut message = header(4, 1, 0);
        append(&mut message, RTA_MULTIPATH, &[hop(16, 3), hop(4, 5)].concat());
        let route = Route::new(message).unwrap();
        assert!(route.leaves_through(3) && route.leaves_through(5) && !route.leaves_through(9));
        let moved = Route::new(route.moved(3, 9, 0, true).unwrap()).unwrap();
        assert_eq!(moved.attribute(RTA_MULTIPATH), Some(&[hop(0, 9), hop(4, 5)].concat()[..]));
    }

    #[test]
    fn a_malformed_next_hop_ends_the_list() {
        assert_eq!(next_hops(&[0; 64]).count(), 0);
        assert_eq!(next_hops(&hop(0, 1)[..7]).count(), 0);
        assert_eq!(next_hops(&[&hop(0, 1)[..], &[9]].concat()).count(), 1);
    }

    #[test]
    fn a_lifetime_runs_on_and_runs_out() {
        let mut message = header(9, 1, 0);
        let words = [0u32, 0, 30_000, 0, 0, 0, 0, 0];
        let cacheinfo: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        append(&mut message, RTA_CACHEINFO, &cacheinfo);
        let route = Route::new(message).unwrap();
        let moved = Route::new(route.moved(3, 9, 100, true).unwrap()).unwrap();
        assert_eq!(moved.attribute(RTA_EXPIRES).and_then(number), Some(200));
        assert_eq!(route.moved(3, 9, 300, true), None);
    }

    #[test]
    fn routes_that_the_kernel_makes_are_recognised() {
        let made = |protocol, kind| Route::new(header(protocol, kind, 0)).unwrap().is_kernel_made();
        assert!(made(libc::RTPROT_KERNEL, libc::RTN_BROADCAST));
        assert!(!made(libc::RTPROT_KERNEL, libc::RTN_UNICAST));
        assert!(!made(libc::RTPROT_STATIC, libc::RTN_LOCAL));
    }
}
