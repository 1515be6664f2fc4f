//! Socket options and calls of the kernel's TCP.

mod address;
mod answers;
mod obstacle;
pub mod repair;
pub mod zero_copy;

pub use answers::{Answers, answers};
pub use obstacle::{Obstacle, inode_of, namespace_of, obstacle, owner_of};

use std::io;
use std::mem::ManuallyDrop;
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

/// Which other sockets may have the address of a bound one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    /// Others that share it as well, and are of the same user.
    pub is_shared: bool,
    /// Those of IPv4 at its port, if it is of IPv6 (`IPV6_V6ONLY`); it takes no connections of IPv4 then.
    pub leaves_ipv4: bool,
}

/// Binds a new socket to this address. It neither listens nor is connected yet, and does not block.
///
/// # Errors
/// As [`bind_sharing`].
pub fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    bind_sharing(address, Sharing::default())
}

/// Binds a new socket, as [`bind`] does. Connections of a listener that is gone do not keep it from that.
///
/// The kernel has two flags by which sockets share an address, and both must have one. `SO_REUSEPORT` is what the caller has
/// asked for. `SO_REUSEADDR` is that of connections and listeners: a bound socket has it only while it is bound, so that
/// another does not get past it.
///
/// # Errors
/// `AddrInUse` if a socket is bound there, or listens; the other errors of `socket` and `bind`.
pub fn bind_sharing(address: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    let (socket, name) = (socket(address)?, SocketAddress::from(address));
    if sharing.leaves_ipv4 && address.is_ipv6() {
        sockopt::set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1_i32)?;
    }
    set_shared(&socket, sharing.is_shared)?;
    match name.bind(socket.as_fd()) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            give_way(&socket, true)?;
            name.bind(socket.as_fd())?;
            give_way(&socket, false)?;
        }
        bound => bound?,
    }
    Ok(socket)
}

/// Lets other sockets that share the address of a bound one have it, or no others from now on.
///
/// # Errors
/// As `setsockopt`.
pub fn set_shared(socket: impl AsFd, is_shared: bool) -> io::Result<()> {
    let value = i32::from(is_shared);
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, &value)
}

/// Lets the next socket that is bound have the address of this one, as if it were a connection, or not any more.
///
/// # Errors
/// As `setsockopt`.
pub fn give_way(socket: impl AsFd, gives: bool) -> io::Result<()> {
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &i32::from(gives))
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
    Ok(socket)
}

/// Makes a bound socket one that listens. See [`set_backlog`]. If that fails, it is bound as before.
///
/// # Errors
/// `AddrInUse` if another socket is bound there; the other errors of `listen`.
pub fn listen(socket: OwnedFd, backlog: u32) -> io::Result<TcpListener> {
    let listener = TcpListener::from(socket);
    let is_shared: libc::c_int =
        sockopt::get(listener.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
    set_shared(&listener, false)?;
    give_way(&listener, true)?;
    if let Err(error) = set_backlog(&listener, backlog) {
        give_way(&listener, false)?;
        set_shared(&listener, is_shared != 0)?;
        return Err(error);
    }
    Ok(listener)
}

/// Begins to connect a bound socket, which does not block: it is writable when that is over, and
/// [`TcpStream::take_error`] says how.
///
/// # Errors
/// The errors of `connect` that are known at once.
pub fn begin_connect(socket: OwnedFd, to: SocketAddr) -> io::Result<TcpStream> {
    give_way(&socket, true)?;
    match SocketAddress::from(to).connect(socket.as_fd()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from(socket)),
    }
}

/// The largest segment that a connection sends now (`TCP_INFO`, `tcpi_snd_mss`), in bytes; that of the NIC, if it has the
/// connection, which `TCP_MAXSEG` is not.
///
/// # Errors
/// The error of `getsockopt`, as for a socket that is not TCP's.
pub fn segment_size(socket: impl AsFd) -> io::Result<u32> {
    let info: libc::tcp_info = sockopt::get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(info.tcpi_snd_mss)
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

/// Returns true if close(2) of the socket resets its connection: it lingers for no time (`SO_LINGER`).
pub fn resets_at_close(socket: impl AsFd) -> bool {
    let linger = sockopt::get::<libc::linger>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER);
    linger.is_ok_and(|linger| linger.l_onoff != 0 && linger.l_linger == 0)
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

/// The ends of a connection, local and remote.
///
/// # Errors
/// As `getsockname` and `getpeername`: `NotConnected` for a socket that has no connection.
pub fn ends(socket: impl AsFd) -> io::Result<(SocketAddr, SocketAddr)> {
    // SAFETY: the descriptor is open for as long as this has it, which is not dropped and so does not close it.
    let stream = unsafe { TcpStream::from_raw_fd(socket.as_fd().as_raw_fd()) };
    let stream = ManuallyDrop::new(stream);
    Ok((stream.local_addr()?, stream.peer_addr()?))
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
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

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

    const SHARED: Sharing = Sharing { is_shared: true, leaves_ipv4: false };

    fn own(socket: &OwnedFd) -> SocketAddr {
        TcpListener::from(socket.try_clone().unwrap()).local_addr().unwrap()
    }

    fn is_in_use<T>(bound: io::Result<T>) -> bool {
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    }

    #[test]
    fn an_address_is_one_sockets_unless_both_share_it() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = own(&first);
        assert!(is_in_use(bind(at)) && is_in_use(bind_sharing(at, SHARED)));
        assert!(is_in_use(bind((Ipv4Addr::UNSPECIFIED, at.port()).into())));
        bind((Ipv4Addr::new(127, 0, 0, 2), at.port()).into()).unwrap();
        set_shared(&first, true).unwrap();
        assert!(is_in_use(bind(at)));
        let second = bind_sharing(at, SHARED).unwrap();
        // As with identifiers of the kernel's manager (cma_bind_listen), one that listens is alone.
        assert!(is_in_use(listen(first.try_clone().unwrap(), 8)));
        drop(bind_sharing(at, SHARED).unwrap());
        drop(first);
        let listener = listen(second, 8).unwrap();
        assert!(is_in_use(bind(at)) && is_in_use(bind_sharing(at, SHARED)));
        drop(listener);
        bind(at).unwrap();
    }

    #[test]
    fn a_listener_begins_again_beside_its_connections() {
        for is_shared in [false, true] {
            let sharing = Sharing { is_shared, leaves_ipv4: false };
            let first = bind_sharing("127.0.0.1:0".parse().unwrap(), sharing).unwrap();
            let at = own(&first);
            let listener = listen(first, 8).unwrap();
            let connect = || {
                let stream = TcpStream::connect(at).unwrap();
                (listener.accept().unwrap().0, stream)
            };
            let (mut closed, mut peer) = connect();
            let lasts = connect();
            // This end closes first, and waits (TIME_WAIT).
            closed.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
            drop(peer);
            assert_eq!(closed.read(&mut [0]).unwrap(), 0);
            drop(closed);
            drop(listener);
            for _ in 0..2 {
                let again = bind_sharing(at, sharing).unwrap();
                assert!(is_in_use(bind(at)), "it is bound again");
                listen(again, 8).unwrap();
            }
            drop(lasts);
        }
    }

    #[test]
    fn an_address_of_ipv6_has_the_port_of_ipv4_as_well_unless_it_leaves_that() {
        let any = |ip: std::net::IpAddr, port| SocketAddr::new(ip, port);
        let Ok(six) = bind(any(Ipv6Addr::UNSPECIFIED.into(), 0)) else {
            return testkit::missing::lacks("IPv6");
        };
        let port = own(&six).port();
        assert!(is_in_use(bind(any(Ipv4Addr::UNSPECIFIED.into(), port))));
        drop(six);
        let four = bind(any(Ipv4Addr::UNSPECIFIED.into(), port)).unwrap();
        assert!(is_in_use(bind(any(Ipv6Addr::UNSPECIFIED.into(), port))));
        let leaves = Sharing { leaves_ipv4: true, is_shared: false };
        let six = bind_sharing(any(Ipv6Addr::UNSPECIFIED.into(), port), leaves).unwrap();
        listen(four, 8).unwrap();
        listen(six, 8).unwrap();
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
