//! Socket addresses in the kernel's form.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::check;
use crate::sockopt;

/// `sockaddr_in` or `sockaddr_in6`.
pub(super) enum SocketAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        let port = address.port().to_be();
        match address {
            SocketAddr::V4(address) => SocketAddress::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: port,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => SocketAddress::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: port,
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}

impl SocketAddress {
    fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            Self::V4(address) => raw(address),
            Self::V6(address) => raw(address),
        }
    }

    /// `connect`.
    pub(super) fn connect(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (address, length) = self.as_raw();
        // SAFETY: `address` points to `length` readable bytes of `self`; the kernel copies them.
        check(unsafe { libc::connect(socket.as_raw_fd(), address, length) }).map(drop)
    }

    /// `bind`.
    pub(super) fn bind(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (address, length) = self.as_raw();
        // SAFETY: `address` points to `length` readable bytes of `self`; the kernel copies them.
        check(unsafe { libc::bind(socket.as_raw_fd(), address, length) }).map(drop)
    }
}

fn raw<T>(address: &T) -> (*const libc::sockaddr, libc::socklen_t) {
    (std::ptr::from_ref(address).cast(), size_of::<T>() as libc::socklen_t)
}

/// The interface that is the scope of a link-local peer's address; `None` for other peers, and without one.
pub(super) fn scope_of_peer(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    let to = std::ptr::from_mut(&mut address).cast();
    // SAFETY: `address` is writable, and `length` its size; the kernel writes no more.
    let got = unsafe { libc::getpeername(socket.as_raw_fd(), to, &raw mut length) };
    match check(got) {
        Ok(_) => {
            let is_v6 = libc::c_int::from(address.sin6_family) == libc::AF_INET6;
            Ok((is_v6 && address.sin6_scope_id != 0).then_some(address.sin6_scope_id))
        }
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends a socket's connection, with `connect` to no address (`AF_UNSPEC`, connect(2)).
pub(super) fn disconnect(socket: BorrowedFd<'_>) -> io::Result<()> {
    let nowhere =
        libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    let (address, length) = raw(&nowhere);
    // SAFETY: `address` points to `length` readable bytes of `nowhere`; the kernel copies them.
    check(unsafe { libc::connect(socket.as_raw_fd(), address, length) }).map(drop)
}

/// These addresses in the form that this socket takes: an IPv6 socket has IPv4 addresses in mapped form
/// (ipv6(7)).
pub(super) fn for_socket<const N: usize>(
    socket: BorrowedFd<'_>,
    addresses: [SocketAddr; N],
) -> io::Result<[SocketAddress; N]> {
    let domain: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    Ok(addresses.map(|address| match address {
        SocketAddr::V4(v4) if domain == libc::AF_INET6 => {
            let mapped: Ipv6Addr = v4.ip().to_ipv6_mapped();
            SocketAddr::V6(SocketAddrV6::new(mapped, v4.port(), 0, 0)).into()
        }
        _ => address.into(),
    }))
}
