//! Socket options and calls of the kernel's TCP.

mod address;
mod answers;
mod obstacle;
pub mod repair;
pub mod zero_copy;

pub use answers::{Answers, answers};
pub use obstacle::{Obstacle, inode_of, namespace_of, obstacle, owner_of};

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::error::check;
use crate::sockopt;
use address::SocketAddress;

/// Sets a socket's congestion control (`TCP_CONGESTION`), such as `cubic`.
///
/// # Errors
/// `NotFound` if the kernel has no such algorithm; `PermissionDenied` if it is not in
/// `net.ipv4.tcp_allowed_congestion_control` and the process lacks `CAP_NET_ADMIN`.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    let length = name.len() as libc::socklen_t;
    // SAFETY: the name is `length` readable bytes; the kernel copies them.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            length,
        )
    })
    .map(drop)
}

/// Lets so many connections wait to be accepted, as far as `net.core.somaxconn` does (listen(2)); the standard library
/// asks for 128.
///
/// # Errors
/// As `listen`.
pub fn set_backlog(listener: &TcpListener, connections: u32) -> io::Result<()> {
    let connections = libc::c_int::try_from(connections).unwrap_or(libc::c_int::MAX);
    // SAFETY: listen takes integers; the descriptor is open.
    check(unsafe { libc::listen(listener.as_raw_fd(), connections) }).map(drop)
}

/// A socket at this address that neither listens nor is connected yet and does not block. Other sockets in TIME_WAIT do
/// not keep it from that (`SO_REUSEADDR`).
///
/// # Errors
/// The errors of `socket` and `bind`.
pub fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket(address)?;
    SocketAddress::from(address).bind(socket.as_fd())?;
    Ok(socket)
}

/// The same, which takes no connections of IPv4 where the address is one of IPv6 (`IPV6_V6ONLY`), so that another socket may
/// have the port there.
///
/// # Errors
/// As [`bind`].
pub fn bind_alone(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket(address)?;
    if address.is_ipv6() {
        sockopt::set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1_i32)?;
    }
    SocketAddress::from(address).bind(socket.as_fd())?;
    Ok(socket)
}

/// Sets the type of service, or traffic class, of what a socket sends; connections that a listener accepts have its own.
///
/// # Errors
/// As `setsockopt`.
pub fn set_type_of_service(socket: impl AsFd, is_ipv6: bool, value: u8) -> io::Result<()> {
    let (socket, value) = (socket.as_fd(), i32::from(value));
    if is_ipv6 {
        sockopt::set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value)?;
    }
    // Connections of IPv4 that a socket of IPv6 has are by this.
    sockopt::set(socket, libc::IPPROTO_IP, libc::IP_TOS, &value)
}

/// Ends a connection at which nothing is sent when its peer has answered nothing for so long: probes are sent for that
/// (`SO_KEEPALIVE`). Seconds are the finest for these, one the least. While something is sent, [`answers`] says how the peer is.
///
/// # Errors
/// As `setsockopt`.
pub fn keep_alive(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    const PROBES: u32 = 3;
    let socket = socket.as_fd();
    let seconds = |of: Duration| libc::c_int::try_from(of.as_secs().clamp(1, 32_767)).unwrap_or(1);
    let probes = PROBES as libc::c_int;
    sockopt::set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &seconds(timeout / 2))?;
    sockopt::set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, &seconds(timeout / 2 / PROBES))?;
    sockopt::set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, &probes)?;
    sockopt::set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1_i32)
}

/// Has a connection end by a reset when it is closed (`SO_LINGER` of no time): what the peer has not got is not sent again.
///
/// # Errors
/// As `setsockopt`.
pub fn reset_when_closed(socket: impl AsFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes integers and touches no memory of ours.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the call has just made this descriptor, which nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32)?;
    Ok(socket)
}

/// Makes a bound socket one that listens. See [`set_backlog`].
///
/// # Errors
/// The errors of `listen`.
pub fn listen(socket: OwnedFd, backlog: u32) -> io::Result<TcpListener> {
    let listener = TcpListener::from(socket);
    set_backlog(&listener, backlog)?;
    Ok(listener)
}

/// Begins to connect a bound socket, which does not block: it is writable when that is over, and
/// [`TcpStream::take_error`] says how.
///
/// # Errors
/// The errors of `connect` that are known at once.
pub fn begin_connect(socket: OwnedFd, to: SocketAddr) -> io::Result<TcpStream> {
    match SocketAddress::from(to).connect(socket.as_fd()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from(socket)),
    }
}

/// The largest segment that a connection sends now (`TCP_MAXSEG`), in bytes.
///
/// # Errors
/// The error of `getsockopt`.
pub fn segment_size(socket: impl AsFd) -> io::Result<u32> {
    let size: libc::c_int = sockopt::get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG)?;
    Ok(size.unsigned_abs())
}

/// Connects, with this congestion control from the start. Setting it later does not undo effects of the first
/// one: a connection that had BBR stays paced.
///
/// # Errors
/// As [`set_congestion_control`], and the errors of `connect`.
pub fn connect(to: SocketAddr, congestion_control: &str) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: socket takes integers and touches no memory of ours.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the call has just made this descriptor, which nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_congestion_control(&socket, congestion_control)?;
    SocketAddress::from(to).connect(socket.as_fd())?;
    Ok(TcpStream::from(socket))
}

/// The smoothed round-trip time of a connection (`TCP_INFO`, `tcpi_rtt`).
///
/// # Errors
/// The error of `getsockopt`, as for a socket that is not TCP's.
pub fn smoothed_rtt(socket: impl AsFd) -> io::Result<Duration> {
    let info: libc::tcp_info = sockopt::get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(Duration::from_micros(info.tcpi_rtt.into()))
}

/// Whether a socket may be bound where another was of late (`SO_REUSEADDR`). Of one in repair mode it is not known
/// whether it may be later: then it is what it `was`.
pub fn reuses_address(socket: impl AsFd, was: bool) -> bool {
    /// `SK_NO_REUSE` and `SK_CAN_REUSE` (include/net/sock.h); repair mode has another.
    const NO: libc::c_int = 0;
    const CAN: libc::c_int = 1;
    match sockopt::get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR) {
        Ok(NO) => false,
        Ok(CAN) => true,
        _ => was,
    }
}

/// Closes a socket that others may have had, too. If it is the last descriptor and the socket lingers (`SO_LINGER`), that
/// takes as long as they have set, which a thread of its own waits for.
pub fn close_apart(socket: OwnedFd) {
    let linger = sockopt::get::<libc::linger>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER);
    if linger.is_ok_and(|linger| linger.l_onoff != 0 && linger.l_linger > 0) {
        // Without a thread it is closed here.
        let _ = std::thread::Builder::new().name("lingers".to_owned()).spawn(move || drop(socket));
    }
}

/// Whether parts of segments are held back (`TCP_CORK`).
///
/// # Errors
/// The error of `getsockopt`, as for a socket that is not TCP's.
pub fn is_corked(socket: impl AsFd) -> io::Result<bool> {
    let cork: libc::c_int = sockopt::get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CORK)?;
    Ok(cork != 0)
}

/// The kernel's number of a connection's state (`TCP_INFO`, `tcpi_state`; [`repair::state`] has some).
///
/// # Errors
/// The error of `getsockopt`, as for a socket that is not TCP's.
pub fn state(socket: impl AsFd) -> io::Result<u8> {
    let info: libc::tcp_info = sockopt::get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(info.tcpi_state)
}

/// What tells a socket from all others (`SO_COOKIE`), as long as the machine runs.
///
/// # Errors
/// The error of `getsockopt`, as for what is no socket.
pub fn cookie_of(socket: impl AsFd) -> io::Result<u64> {
    sockopt::get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// Shuts a socket down for reading, as its application has (shutdown(2)).
///
/// # Errors
/// The error of `shutdown`.
pub fn shut_for_reading(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: shutdown takes integers and touches no memory of ours.
    check(unsafe { libc::shutdown(socket.as_fd().as_raw_fd(), libc::SHUT_RD) }).map(drop)
}

/// Discards up to `most` received bytes of a TCP socket without copying them (`MSG_TRUNC`, tcp(7)); returns
/// how many, 0 at the end of the stream.
///
/// # Errors
/// As `recv`; `WouldBlock` for a non-blocking socket that has nothing.
pub fn discard(socket: impl AsFd, most: usize) -> io::Result<usize> {
    // The kernel moves no more than this in one call anyway (MAX_RW_COUNT).
    let most = most.min(1 << 30);
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer; should the descriptor be of
    // another kind, the kernel answers EFAULT for null.
    let taken = unsafe {
        libc::recv(socket.as_fd().as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC)
    };
    usize::try_from(taken).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_opened_to_either_family() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                testkit::missing::lacks(format!("a listener at {address}"));
                continue;
            };
            let near = connect(listener.local_addr().unwrap(), "reno").unwrap();
            let (_far, peer) = listener.accept().unwrap();
            assert_eq!(near.local_addr().unwrap(), peer);
            let unknown = connect(listener.local_addr().unwrap(), "none-such").unwrap_err();
            assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn discarded_bytes_are_counted_and_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"away and kept").unwrap();
        drop(near);
        let mut left = 5;
        while left > 0 {
            left -= discard(&far, left).unwrap();
        }
        let mut rest = String::new();
        far.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "and kept");
        assert_eq!(discard(&far, 9).unwrap(), 0);
    }
}
