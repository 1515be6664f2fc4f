//! Through which interface the packets of a connection leave, as the kernel's routes say (rtnetlink(7)).

use std::net::{IpAddr, SocketAddr};

use libc::c_int;

use super::close;
use crate::trap::trap;

/// Lengths and numbers of linux/netlink.h and linux/rtnetlink.h.
const HEADER: usize = 16;
const ROUTE: usize = 12;
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;

/// A question that fits: header, route, and five attributes.
struct Question {
    bytes: [u8; 128],
    len: usize,
}

impl Question {
    fn new(from: SocketAddr, to: SocketAddr) -> Self {
        let mut all = Question { bytes: [0; 128], len: HEADER + ROUTE };
        let (family, bits) = match to {
            SocketAddr::V4(_) => (libc::AF_INET, 32),
            SocketAddr::V6(_) => (libc::AF_INET6, 128),
        };
        all.bytes[HEADER..][..3].copy_from_slice(&[family as u8, bits, bits]);
        all.add_ip(libc::RTA_DST, to.ip());
        all.add_ip(libc::RTA_SRC, from.ip());
        // Rules may go by these, and the hash of a route with several next hops. The user is this process's.
        all.add(RTA_IP_PROTO, &[libc::IPPROTO_TCP as u8]);
        all.add(RTA_SPORT, &from.port().to_be_bytes());
        all.add(RTA_DPORT, &to.port().to_be_bytes());
        let len = (all.len as u32).to_ne_bytes();
        all.bytes[..4].copy_from_slice(&len);
        all.bytes[4..6].copy_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
        all.bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        all
    }

    fn add_ip(&mut self, kind: u16, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => self.add(kind, &ip.octets()),
            IpAddr::V6(ip) => self.add(kind, &ip.octets()),
        }
    }

    fn add(&mut self, kind: u16, value: &[u8]) {
        let to = &mut self.bytes[self.len..];
        to[..2].copy_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        to[2..4].copy_from_slice(&kind.to_ne_bytes());
        to[4..][..value.len()].copy_from_slice(value);
        self.len += 4 + value.len().next_multiple_of(4);
    }
}

/// Index of the interface in the kernel's answer.
fn interface(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let mut rest = answer.get(HEADER + ROUTE..).filter(|_| kind == libc::RTM_NEWROUTE)?;
    loop {
        let [a, b, c, d] = *rest.first_chunk()?;
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let value = rest.get(4..len)?;
        if kind == libc::RTA_OIF {
            return value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// Index of the interface by which a connection with these ends leaves: 0 if it has no route. `None` if that cannot be
/// asked, as where a program has forbidden itself such sockets.
pub(crate) fn leaves_by((from, to): (SocketAddr, SocketAddr)) -> Option<u32> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes integers.
    let fd = unsafe { trap!(libc::SYS_socket, libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return None;
    }
    let fd = fd as c_int;
    let question = Question::new(from, to);
    let mut answer = [0_u8; 1024];
    let (none, now) = (std::ptr::null::<u8>(), libc::MSG_DONTWAIT);
    // SAFETY: so many bytes may be read there, and written; there are no addresses. The kernel answers before the first of
    // the two calls returns.
    let got = unsafe {
        let sent = trap!(libc::SYS_sendto, fd, question.bytes.as_ptr(), question.len, 0, none, 0);
        let room = (answer.as_mut_ptr(), answer.len());
        if sent < 0 { sent } else { trap!(libc::SYS_recvfrom, fd, room.0, room.1, now, none, none) }
    };
    close(fd);
    let answer = answer.get(..usize::try_from(got).ok()?)?;
    Some(interface(answer).unwrap_or(0))
}
