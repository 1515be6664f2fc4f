//! The TCP connections that the kernel runs, as sock_diag(7) lists them.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::diag::{INET_DIAG_INFO, INET_DIAG_MSG, SOCK_DIAG_BY_FAMILY};
use super::{Connection, attributes, number};
use crate::Result;

/// The numbers of the states of which there is no connection yet, or nothing but a name any more: CLOSED, TIME-WAIT,
/// LISTEN and those of half a handshake (include/net/tcp_states.h).
const NO_CONNECTIONS: u32 = 1 << 7 | 1 << 6 | 1 << 10 | 1 << 12 | 1 << 3 | 1 << 2;
/// `struct inet_diag_sockid` begins behind four bytes.
const PORTS: usize = 4;
const SOURCE: usize = 8;
const DESTINATION: usize = 24;
const COOKIE: usize = 44;
const UID: usize = 64;
const INODE: usize = 68;

/// A connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// The kernel's number of its state: see [`state`](crate::tcp::state).
    pub state: u8,
    /// The user that the socket is of.
    pub uid: u32,
    /// What tells it from all other sockets, as [`cookie_of`](crate::tcp::cookie_of) has it.
    pub cookie: u64,
    /// Its inode, by which [`socket_inodes`](crate::process::socket_inodes) names it; 0 if no process has it.
    pub inode: u32,
    /// Bytes that the peer has acknowledged.
    pub sent: u64,
    /// Bytes that have come in order.
    pub received: u64,
    /// Round-trip time in microseconds; 0 if it was not measured.
    pub rtt: u32,
    /// Congestion window in bytes.
    pub cwnd: u64,
}

/// `struct inet_diag_req_v2` for all connections of a family.
fn question(family: libc::c_int) -> Vec<u8> {
    let mut question = vec![family as u8, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0];
    question.extend((!NO_CONNECTIONS).to_ne_bytes());
    // Any addresses.
    question.resize(56, 0);
    question
}

fn socket(message: &[u8]) -> Option<Socket> {
    let header: &[u8; INET_DIAG_MSG] = message.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let ip = |at: usize| match libc::c_int::from(header[0]) {
        libc::AF_INET => {
            header[at..].first_chunk::<4>().map(|octets| IpAddr::from(Ipv4Addr::from(*octets)))
        }
        libc::AF_INET6 => {
            let octets = header[at..].first_chunk::<16>()?;
            Some(IpAddr::from(Ipv6Addr::from(*octets)).to_canonical())
        }
        _ => None,
    };
    let word = |at: usize| header[at..].first_chunk::<4>().copied().map(u32::from_ne_bytes);
    let info = attributes(message, INET_DIAG_MSG)
        .find(|(kind, _)| *kind == u16::from(INET_DIAG_INFO))
        .map_or(&[][..], |(_, value)| value);
    // Of a kernel that has less there.
    let of_info = |at: usize| info.get(at..at + 4).and_then(number).unwrap_or(0);
    let bytes = |at: usize| {
        info.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_ne_bytes)
    };
    let segments = of_info(offset_of!(libc::tcp_info, tcpi_snd_cwnd));
    let segment = of_info(offset_of!(libc::tcp_info, tcpi_snd_mss));
    Some(Socket {
        local: SocketAddr::new(ip(SOURCE)?, port(PORTS)),
        remote: SocketAddr::new(ip(DESTINATION)?, port(PORTS + 2)),
        state: header[1],
        uid: word(UID)?,
        cookie: u64::from(word(COOKIE)?) | u64::from(word(COOKIE + 4)?) << 32,
        inode: word(INODE)?,
        sent: bytes(offset_of!(libc::tcp_info, tcpi_bytes_acked)),
        received: bytes(offset_of!(libc::tcp_info, tcpi_bytes_received)),
        rtt: of_info(offset_of!(libc::tcp_info, tcpi_rtt)),
        cwnd: u64::from(segments) * u64::from(segment),
    })
}

/// The connections of the network namespace of this netlink connection, which is one of [`Protocol::Diag`].
///
/// [`Protocol::Diag`]: super::Protocol::Diag
///
/// # Errors
/// The kernel's error. A kernel without sock_diag for TCP has none.
pub fn list(connection: &mut Connection) -> Result<Vec<Socket>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let (kind, flags) = (SOCK_DIAG_BY_FAMILY, super::NLM_F_DUMP);
        match connection.request("list the sockets", kind, flags, &question(family)) {
            Ok(answers) => all.extend(answers.iter().filter_map(|answer| socket(answer))),
            Err(error) if super::is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    proptest! {
        #[test]
        fn any_bytes_are_a_socket_or_not(mut bytes: Vec<u8>, family: u8) {
            let _ = socket(&bytes);
            bytes.resize(bytes.len().max(INET_DIAG_MSG), family);
            let _ = socket(&bytes);
        }
    }

    #[test]
    fn a_connection_is_listed_while_it_is_open() {
        let mut netlink = Connection::open(Protocol::Diag).unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                testkit::missing::lacks(address);
                continue;
            };
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let far = listener.accept().unwrap().0;
            let cookie = crate::tcp::cookie_of(&near).unwrap();
            let mut find = || {
                let all = list(&mut netlink).unwrap();
                assert!(all.iter().all(|one| one.remote.port() != 0), "no listeners: {all:?}");
                all.into_iter().find(|one| one.cookie == cookie)
            };
            let Some(found) = find() else {
                return testkit::missing::lacks("sock_diag of TCP");
            };
            let ends = (near.local_addr().unwrap(), near.peer_addr().unwrap());
            assert_eq!((found.local, found.remote), ends);
            assert_eq!((found.state, found.uid), (1, crate::process::uid()));
            assert!(found.rtt > 0 && found.cwnd > 536, "{found:?}");
            let mine = crate::process::socket_inodes(std::process::id()).unwrap();
            assert!(mine.contains(&found.inode), "{mine:?}");
            drop((near, far));
            assert_eq!(find().map(|one| one.state).filter(|state| *state == 1), None);
        }
    }
}
