//! What forbids taking a connection out of the kernel, as far as its socket shows it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::error::check;
use crate::sockopt;
use crate::tcp::repair::state;

/// `SO_BINDTOIFINDEX` and `SO_NETNS_COOKIE` (include/uapi/asm-generic/socket.h).
const SO_BINDTOIFINDEX: libc::c_int = 62;
const SO_NETNS_COOKIE: libc::c_int = 71;
/// `TCP_AO_INFO` (include/uapi/linux/tcp.h), and the size of `struct tcp_ao_info_opt`.
const TCP_AO_INFO: libc::c_int = 40;
const TCP_AO_INFO_LEN: usize = 48;
/// Longest name of an upper layer protocol (`TCP_ULP_NAME_MAX`, include/net/tcp.h).
const ULP_NAME_MAX: usize = 16;

/// `SO_TIMESTAMP`, `SO_TIMESTAMPNS` and `SO_TIMESTAMPING` with times of the machine's size, and with those of 64 bits
/// (include/uapi/asm-generic/socket.h).
const STAMPS: [libc::c_int; 6] =
    [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, libc::SO_TIMESTAMPING, 63, 64, 65];
/// `TCP_INQ` (include/uapi/linux/tcp.h).
const TCP_INQ: libc::c_int = 36;

/// `SO_BUF_LOCK` of Linux 5.15, and its bit for what `SO_RCVBUF` has set (include/uapi/linux/socket.h).
const SO_BUF_LOCK: libc::c_int = 72;
const RCVBUF_LOCK: libc::c_int = 2;

/// Options of a socket by which its packets get extension headers (ipv6(7)).
const EXTENSION_HEADERS: [libc::c_int; 4] =
    [libc::IPV6_HOPOPTS, libc::IPV6_RTHDR, libc::IPV6_RTHDRDSTOPTS, libc::IPV6_DSTOPTS];

/// A reason to leave a connection in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// It is no TCP socket.
    NotTcp,
    /// It is an MPTCP socket.
    Mptcp,
    /// It is in another network namespace than this process's sockets.
    Namespace,
    /// The kernel encrypts it (kTLS: `TCP_ULP` is `tls`).
    Ktls,
    /// Another upper layer protocol is attached (`TCP_ULP`).
    Ulp,
    /// Segments are authenticated by TCP-AO (RFC 5925).
    Authenticated,
    /// A filter is attached (`SO_ATTACH_FILTER`, `SO_ATTACH_BPF`).
    Filter,
    /// Its packets carry a mark (`SO_MARK`).
    Mark,
    /// It is bound to an interface (`SO_BINDTODEVICE`).
    BoundToDevice,
    /// Its packets carry IP options (`IP_OPTIONS`) or extension headers of IPv6 (`IPV6_HOPOPTS`, `IPV6_RTHDR`,
    /// `IPV6_RTHDRDSTOPTS`, `IPV6_DSTOPTS`).
    IpOptions,
    /// Peeking moves on by itself (`SO_PEEK_OFF`).
    PeekOffset,
    /// Calls that receive tell more (`SO_TIMESTAMP` and its kin, `TCP_INQ`), or wait for more (`SO_RCVLOWAT`); or packets leave,
    /// or are taken, otherwise (`SO_PRIORITY`, `IP_TOS`, `IPV6_TCLASS`, `IP_MINTTL`, `IPV6_MINHOPCOUNT`,
    /// `SO_MAX_PACING_RATE`, a receive buffer of a fixed size).
    Options,
    /// The application has shut it down for reading: no end of the peer's says so.
    Shut,
}

/// What stands in the way, if anything does. `namespace` is that of sockets that need not be looked at:
/// [`namespace_of`].
///
/// # Errors
/// What getsockopt(2) says of a descriptor that is no socket.
pub fn obstacle(socket: impl AsFd, namespace: u64) -> io::Result<Option<Obstacle>> {
    let socket = socket.as_fd();
    let option = |level, option| sockopt::get::<libc::c_int>(socket, level, option);
    let of_socket = |name| option(libc::SOL_SOCKET, name);
    let domain = of_socket(libc::SO_DOMAIN)?;
    let inet = domain == libc::AF_INET || domain == libc::AF_INET6;
    if !inet || of_socket(libc::SO_TYPE)? != libc::SOCK_STREAM {
        return Ok(Some(Obstacle::NotTcp));
    }
    match of_socket(libc::SO_PROTOCOL)? {
        libc::IPPROTO_TCP => {}
        libc::IPPROTO_MPTCP => return Ok(Some(Obstacle::Mptcp)),
        _ => return Ok(Some(Obstacle::NotTcp)),
    }
    let ulp = upper_layer(socket)?;
    let found = [
        (namespace_of(socket)? != namespace, Obstacle::Namespace),
        (ulp == Some(Obstacle::Ktls), Obstacle::Ktls),
        (ulp.is_some(), Obstacle::Ulp),
        (is_authenticated(socket), Obstacle::Authenticated),
        (len_of(socket, libc::SOL_SOCKET, libc::SO_GET_FILTER)? > 0, Obstacle::Filter),
        (of_socket(libc::SO_MARK)? != 0, Obstacle::Mark),
        (is_bound_to_device(socket)?, Obstacle::BoundToDevice),
        (has_ip_options(socket, domain)?, Obstacle::IpOptions),
        (peek_offset(socket)?.is_some(), Obstacle::PeekOffset),
        (has_options(socket)? || has_wire_options(socket, domain)?, Obstacle::Options),
        (is_shut(socket)?, Obstacle::Shut),
    ];
    Ok(found.into_iter().find_map(|(is_there, obstacle)| is_there.then_some(obstacle)))
}

/// Whether a socket is bound to an interface, but by the kernel: it binds those with link-local addresses to the
/// interface that is the scope of these (`tcp_v6_connect`, `tcp_v6_syn_recv_sock`).
fn is_bound_to_device(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let index: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX)?;
    let scope = super::address::scope_of_peer(socket)?;
    Ok(index != 0 && scope != Some(index as u32))
}

/// Whether a socket has keys of TCP-AO. Without any, or before Linux 6.7, asking for them is an error.
fn is_authenticated(socket: BorrowedFd<'_>) -> bool {
    let mut info = [0_u8; TCP_AO_INFO_LEN];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel reads and writes at most `len` bytes, for which there is room.
    let result = unsafe {
        let info = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_AO_INFO, info, &raw mut len)
    };
    result == 0
}

/// Whether packets of this socket have options of IPv4 or extension headers of IPv6. A socket of IPv6 may have either:
/// its peer's address may be one of IPv4 in mapped form.
fn has_ip_options(socket: BorrowedFd<'_>, domain: libc::c_int) -> io::Result<bool> {
    let v6: &[libc::c_int] = if domain == libc::AF_INET6 { &EXTENSION_HEADERS } else { &[] };
    let has = |level, option| len_of(socket, level, option).map(|len| len > 0);
    let of_v6 = v6.iter().map(|&option| has(libc::IPPROTO_IPV6, option));
    std::iter::once(has(libc::IPPROTO_IP, libc::IP_OPTIONS))
        .chain(of_v6)
        .find(|has| !matches!(has, Ok(false)))
        .unwrap_or(Ok(false))
}

/// Whether options of the socket change what a call that receives does.
fn has_options(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let is_set = |level, option| match sockopt::get::<libc::c_int>(socket, level, option) {
        Ok(value) => Ok(value != 0),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(error) => Err(error),
    };
    for option in STAMPS {
        if is_set(libc::SOL_SOCKET, option)? {
            return Ok(true);
        }
    }
    let least: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT)?;
    Ok(least > 1 || is_set(libc::IPPROTO_TCP, TCP_INQ)?)
}

/// Whether options of the socket change how its packets leave or are taken.
fn has_wire_options(socket: BorrowedFd<'_>, domain: libc::c_int) -> io::Result<bool> {
    /// The two bits of a type of service that are ECN's, which the kernel sets (RFC 3168).
    const ECN: libc::c_int = 3;
    let of = |level, option| match sockopt::get::<libc::c_int>(socket, level, option) {
        Ok(value) => Ok(value),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(0),
        Err(error) => Err(error),
    };
    let pacing = sockopt::get::<u64>(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)?;
    let is_paced = pacing != u64::MAX && pacing != u64::from(u32::MAX);
    let of_v4 = of(libc::IPPROTO_IP, libc::IP_TOS)? & !ECN | of(libc::IPPROTO_IP, libc::IP_MINTTL)?;
    let of_v6 = match domain {
        libc::AF_INET6 => {
            of(libc::IPPROTO_IPV6, libc::IPV6_TCLASS)? & !ECN
                | of(libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT)?
        }
        _ => 0,
    };
    let of_socket =
        of(libc::SOL_SOCKET, libc::SO_PRIORITY)? | of(libc::SOL_SOCKET, SO_BUF_LOCK)? & RCVBUF_LOCK;
    Ok(is_paced || of_v4 | of_v6 | of_socket != 0)
}

/// Whether reads end though the peer has not closed its end: nothing else shows shutdown(2) with `SHUT_RD`.
fn is_shut(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut at = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one writable pollfd.
    check(unsafe { libc::poll(&raw mut at, 1, 0) })?;
    let open = [state::ESTABLISHED, state::FIN_WAIT1, state::FIN_WAIT2];
    Ok(at.revents & libc::POLLRDHUP != 0 && open.contains(&super::state(socket)?))
}

/// Where the next peek begins, if the application has switched that on (`SO_PEEK_OFF`).
///
/// # Errors
/// What getsockopt(2) says.
pub(super) fn peek_offset(socket: BorrowedFd<'_>) -> io::Result<Option<libc::c_int>> {
    match sockopt::get::<libc::c_int>(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF) {
        Ok(offset) => Ok((offset >= 0).then_some(offset)),
        // Before Linux 6.9 TCP did not have it.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The network namespace of a socket, by the kernel's number for it.
///
/// # Errors
/// What getsockopt(2) says.
pub fn namespace_of(socket: impl AsFd) -> io::Result<u64> {
    sockopt::get(socket.as_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

/// The user that owns a socket is for `fstat`: what its inode says.
///
/// # Errors
/// What fstat(2) says.
pub fn owner_of(socket: impl AsFd) -> io::Result<u32> {
    status_of(socket.as_fd()).map(|status| status.st_uid)
}

/// The number of a socket's inode, by which `/proc/PID/fd` calls it.
///
/// # Errors
/// What fstat(2) says.
pub fn inode_of(socket: impl AsFd) -> io::Result<u64> {
    status_of(socket.as_fd()).map(|status| status.st_ino)
}

fn status_of(socket: BorrowedFd<'_>) -> io::Result<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat writes a `stat` to live memory of that size.
    check(unsafe { libc::fstat(socket.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: integers only, zeroed before.
    Ok(unsafe { stat.assume_init() })
}

/// What is between TCP and the application.
fn upper_layer(socket: BorrowedFd<'_>) -> io::Result<Option<Obstacle>> {
    let mut name = [0; ULP_NAME_MAX];
    let len = value_of(socket, libc::IPPROTO_TCP, libc::TCP_ULP, &mut name)?;
    let of_name = |name: &[u8]| match name.starts_with(b"tls\0") {
        true => Obstacle::Ktls,
        false => Obstacle::Ulp,
    };
    Ok((len > 0).then(|| of_name(&name)))
}

/// The length of what an option has.
fn len_of(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int) -> io::Result<u32> {
    let mut value = [0_u8; 64];
    // SO_GET_FILTER counts instructions, and with no room says how many there are.
    let room = if option == libc::SO_GET_FILTER { 0 } else { value.len() };
    value_of(socket, level, option, &mut value[..room])
}

/// Reads what an option has, as far as there is room. Returns the length that the kernel says.
fn value_of(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut [u8],
) -> io::Result<u32> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, for which there is room.
    let result = unsafe {
        let value = value.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut len)
    };
    match check(result) {
        Ok(_) => Ok(len),
        // A filter that is not of the old kind has no instructions to show, and the kernel says so.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(1),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn each_obstacle_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let namespace = namespace_of(&listener).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let found = |socket: &TcpStream| obstacle(socket, namespace).unwrap();
        assert_eq!(found(&socket), None);
        assert_eq!(obstacle(&socket, namespace + 1).unwrap(), Some(Obstacle::Namespace));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(obstacle(&udp, namespace).unwrap(), Some(Obstacle::NotTcp));
        assert!(obstacle(std::fs::File::open("/dev/null").unwrap(), namespace).is_err());
        // One no-operation option, and the end of the list.
        let options = [1_u8, 0, 0, 0];
        sockopt::set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_OPTIONS, &options).unwrap();
        assert_eq!(found(&socket), Some(Obstacle::IpOptions));
        // `ret 65535`: a filter that takes all.
        let code = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 65_535 }];
        let filter = libc::sock_fprog { len: 1, filter: code.as_ptr().cast_mut() };
        // SAFETY: `filter` and the code that it points to are readable.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as u32,
            )
        };
        check(set).unwrap();
        assert_eq!(found(&socket), Some(Obstacle::Filter));
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (level, option, value, before) in [
            (libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1, 0),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 8, 0),
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 2, 1),
            (libc::IPPROTO_TCP, TCP_INQ, 1, 0),
            (libc::SOL_SOCKET, libc::SO_PRIORITY, 3, 0),
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, 1_000_000, -1),
            (libc::SOL_SOCKET, SO_BUF_LOCK, RCVBUF_LOCK, 0),
            (libc::IPPROTO_IP, libc::IP_TOS, 16, 0),
            (libc::IPPROTO_IP, libc::IP_MINTTL, 1, 0),
        ] {
            sockopt::set(other.as_fd(), level, option, &value).unwrap();
            assert_eq!(found(&other), Some(Obstacle::Options), "{option}");
            sockopt::set(other.as_fd(), level, option, &before).unwrap();
            assert_eq!(found(&other), None, "{option}");
        }
        other.shutdown(std::net::Shutdown::Read).unwrap();
        assert_eq!(found(&other), Some(Obstacle::Shut));
        assert_eq!(owner_of(&socket).unwrap(), crate::process::uid());
    }

    #[test]
    fn what_the_kernel_encrypts_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let namespace = namespace_of(&listener).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        match sockopt::set(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, b"tls") {
            Ok(()) => assert_eq!(obstacle(&socket, namespace).unwrap(), Some(Obstacle::Ktls)),
            Err(error) => testkit::missing::kernel_lacks(format!("kTLS: {error}")),
        }
    }

    #[test]
    fn options_and_extension_headers_are_seen_on_sockets_of_ipv6() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            testkit::missing::lacks("a listener at [::]");
            return;
        };
        let namespace = namespace_of(&listener).unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = |to: &str| {
            let near = TcpStream::connect((to, port)).unwrap();
            (listener.accept().unwrap().0, near)
        };
        let (mapped, _near) = accepted("127.0.0.1");
        assert_eq!(obstacle(&mapped, namespace).unwrap(), None);
        let options = [1_u8, 0, 0, 0];
        sockopt::set(mapped.as_fd(), libc::IPPROTO_IP, libc::IP_OPTIONS, &options).unwrap();
        assert_eq!(obstacle(&mapped, namespace).unwrap(), Some(Obstacle::IpOptions));
        let (socket, _near) = accepted("::1");
        assert_eq!(obstacle(&socket, namespace).unwrap(), None);
        for option in [libc::IPV6_TCLASS, libc::IPV6_MINHOPCOUNT] {
            sockopt::set(socket.as_fd(), libc::IPPROTO_IPV6, option, &16).unwrap();
            assert_eq!(obstacle(&socket, namespace).unwrap(), Some(Obstacle::Options), "{option}");
            sockopt::set(socket.as_fd(), libc::IPPROTO_IPV6, option, &0).unwrap();
            assert_eq!(obstacle(&socket, namespace).unwrap(), None, "{option}");
        }
        // A header of eight bytes, filled up by PadN (RFC 8200, section 4.2).
        let header = [0_u8, 0, 1, 4, 0, 0, 0, 0];
        let set = sockopt::set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS, &header);
        set.unwrap();
        assert_eq!(obstacle(&socket, namespace).unwrap(), Some(Obstacle::IpOptions));
    }

    #[test]
    fn a_moving_offset_of_peeks_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let namespace = namespace_of(&listener).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let zero: libc::c_int = 0;
        match sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, &zero) {
            Ok(()) => assert_eq!(obstacle(&socket, namespace).unwrap(), Some(Obstacle::PeekOffset)),
            Err(error) => testkit::missing::lacks(error),
        }
    }
}
