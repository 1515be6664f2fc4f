//! Connections whose packets have no way to go: the kernel keeps one that it has, and takes none.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use crate::netlink::route::{self, NewRoute};
use crate::sockopt;
use crate::tcp::address;

/// Index of the loopback (`LOOPBACK_IFINDEX`, include/net/flow.h).
const LOOPBACK: u32 = 1;

/// Binds a socket, also to an address that is not there. One that is bound stays so.
///
/// # Errors
/// The kernel's error.
pub(super) fn bind(socket: BorrowedFd<'_>, local: SocketAddr) -> io::Result<()> {
    let [to] = address::for_socket(socket, [local])?;
    let bound = match to.bind(socket) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {
            transparently(socket, || to.bind(socket))
        }
        other => other,
    };
    match bound {
        // It is bound since before it was taken.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

/// Connects a socket in repair mode, which sends nothing. The kernel wants a route all the same, and for IPv4 the local
/// address: where it has none, there is a route to this one host for as long as the call takes (to the loopback, so that
/// no packet of others goes astray), and the address need not be there. `IP_FREEBIND` does not do.
///
/// # Errors
/// The kernel's error.
pub(super) fn connect(socket: BorrowedFd<'_>, remote: SocketAddr) -> io::Result<()> {
    let [to] = address::for_socket(socket, [remote])?;
    match to.connect(socket) {
        Err(error) if is_unrouted(&error) => {}
        other => return other,
    }
    transparently(socket, || match to.connect(socket) {
        Err(error) if is_unrouted(&error) => {
            // Several threads may have connections with one host, and who has added the route takes it away.
            static ONE: Mutex<()> = Mutex::new(());
            let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
            let _route = Detour::to(remote.ip().to_canonical())?;
            to.connect(socket)
        }
        other => other,
    })
}

/// Does something while the socket's address need not be one of this machine's (`IP_TRANSPARENT`).
fn transparently(socket: BorrowedFd<'_>, what: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let set = |on: libc::c_int| sockopt::set(socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT, &on);
    let before = sockopt::get(socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT)?;
    set(1)?;
    let done = what();
    set(before)?;
    done
}

/// What the kernel says of a destination without a route, of an unreachable, prohibited or black one, or of a local
/// address that is not there.
fn is_unrouted(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL))
}

/// A route to one host, until this is dropped.
struct Detour(NewRoute);

impl Detour {
    fn to(ip: IpAddr) -> io::Result<Detour> {
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        // Before all others: the kernel takes 0 for none with IPv6.
        let route = NewRoute { metric: Some(ip.is_ipv6().into()), ..NewRoute::new(ip, bits, None) };
        match route::add(LOOPBACK, &route) {
            // Somebody else's, which may do.
            Err(error) if error.errno() == Some(libc::EEXIST) => {}
            other => other?,
        }
        Ok(Detour(route))
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        // That it is gone already is no error.
        let _ = route::withdraw(LOOPBACK, &self.0);
    }
}
