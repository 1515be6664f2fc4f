//! The names of sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use handoff::session::Ends;
use libc::c_int;

use crate::trap::trap;

/// The ends of a socket's connection, if it has one: addresses of IPv4 in mapped form are those of IPv4.
pub(crate) fn ends(fd: c_int) -> Option<Ends> {
    Some((name(fd, libc::SYS_getsockname)?, name(fd, libc::SYS_getpeername)?))
}

/// The interface that is the scope of the peer's address, which packets to a link-local address leave by.
pub(crate) fn scope_of_peer(fd: c_int) -> Option<u32> {
    let address = raw(fd, libc::SYS_getpeername)?;
    let is_v6 = c_int::from(address.sin6_family) == libc::AF_INET6;
    (is_v6 && address.sin6_scope_id != 0).then_some(address.sin6_scope_id)
}

fn raw(fd: c_int, call: libc::c_long) -> Option<libc::sockaddr_in6> {
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: `address` is writable, and `len` its size.
    let got = unsafe { trap!(call, fd, &raw mut address, &raw mut len) };
    (got == 0).then_some(address)
}

fn name(fd: c_int, call: libc::c_long) -> Option<SocketAddr> {
    let address = raw(fd, call)?;
    let port = u16::from_be(address.sin6_port);
    let ip = match c_int::from(address.sin6_family) {
        // In `sockaddr_in` the address lies where the other kind has its flow information.
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(address.sin6_flowinfo.to_ne_bytes())),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}
