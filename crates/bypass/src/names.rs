//! The names of sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use handoff::session::Ends;
use libc::c_int;

use crate::trap::trap;

/// The ends of a socket's connection, if it has one: addresses of IPv4 in mapped form are those of IPv4.
pub(crate) fn ends(fd: c_int) -> Option<Ends> {
    Some((name(fd, libc::SYS_getsockname)?, name(fd, libc::SYS_getpeername)?))
}

fn name(fd: c_int, call: libc::c_long) -> Option<SocketAddr> {
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: `address` is writable, and `len` its size.
    let got = unsafe { trap!(call, fd, &raw mut address, &raw mut len) };
    let port = u16::from_be(address.sin6_port);
    let ip = match c_int::from(address.sin6_family) {
        // In `sockaddr_in` the address lies where the other kind has its flow information.
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(address.sin6_flowinfo.to_ne_bytes())),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical(),
        _ => return None,
    };
    (got == 0).then(|| SocketAddr::new(ip, port))
}
