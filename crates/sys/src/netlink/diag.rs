//! What sock_diag(7) shows of a TCP socket beside its options: keys of TCP MD5, and its control group.

use std::net::{IpAddr, SocketAddr};

use super::{Connection, attributes};
use crate::Result;

/// linux/sock_diag.h, linux/inet_diag.h.
pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
pub(super) const INET_DIAG_INFO: u8 = 2;
const INET_DIAG_MD5SIG: u16 = 18;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// `struct inet_diag_msg`.
pub(super) const INET_DIAG_MSG: usize = 72;

/// A socket, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shown {
    /// It has keys of TCP MD5 (RFC 2385), for whichever peer.
    pub has_md5: bool,
    /// The kernel's number of its control group of version 2, which is that of the group's directory; `None` before
    /// Linux 5.9.
    pub control_group: Option<u64>,
}

/// `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, and `struct inet_diag_sockid`.
fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let interface = scope_of(local) | scope_of(remote);
    let (local, remote) = (canonical(local), canonical(remote));
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // Keys are shown behind `struct tcp_info`, in Linux 6.18 only if that was asked for.
    let extensions = 1 << (INET_DIAG_INFO - 1);
    let mut question = vec![family as u8, libc::IPPROTO_TCP as u8, extensions, 0];
    // All states.
    question.extend(u32::MAX.to_ne_bytes());
    question.extend(local.port().to_be_bytes());
    question.extend(remote.port().to_be_bytes());
    for end in [local, remote] {
        let octets = match end.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        question.extend(&octets);
        question.resize(question.len() + 16 - octets.len(), 0);
    }
    // A socket that is bound to an interface is found by that alone. No cookie (`INET_DIAG_NOCOOKIE`).
    question.extend(interface.to_ne_bytes());
    question.extend([0xff; 8]);
    question
}

/// The scope of a link-local address, to which the kernel binds the socket; 0 for others.
fn scope_of(end: SocketAddr) -> u32 {
    match end {
        SocketAddr::V6(end) => end.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

fn shown(message: &[u8]) -> Option<Shown> {
    let mut shown = Shown::default();
    (message.len() >= INET_DIAG_MSG).then_some(())?;
    for (kind, value) in attributes(message, INET_DIAG_MSG) {
        match kind {
            INET_DIAG_MD5SIG => shown.has_md5 = true,
            INET_DIAG_CGROUP_ID => {
                shown.control_group = value.try_into().ok().map(u64::from_ne_bytes);
            }
            _ => {}
        }
    }
    Some(shown)
}

/// What is shown of the connection with these ends, link-local addresses with their scope, in the namespace of the netlink connection, which is one of
/// [`Protocol::Diag`]. `None` if there is none, or the kernel has no sock_diag for TCP.
///
/// [`Protocol::Diag`]: super::Protocol::Diag
///
/// # Errors
/// The kernel's error. Without `CAP_NET_ADMIN` keys are not shown.
pub fn show(
    connection: &mut Connection,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Option<Shown>> {
    let question = question(local, remote);
    match connection.request("look at a socket", SOCK_DIAG_BY_FAMILY, 0, &question) {
        Ok(answers) => Ok(answers.iter().find_map(|answer| shown(answer))),
        Err(error) if super::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Protocol, append};
    use super::*;
    use crate::error::check;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    proptest! {
        #[test]
        fn any_bytes_are_shown_or_not(bytes: Vec<u8>, id: u64, md5: bool) {
            let _ = shown(&bytes);
            let mut message = vec![0; INET_DIAG_MSG];
            append(&mut message, INET_DIAG_CGROUP_ID, &id.to_ne_bytes());
            if md5 {
                append(&mut message, INET_DIAG_MD5SIG, &bytes);
            }
            let told = Shown { has_md5: md5, control_group: Some(id) };
            prop_assert_eq!(shown(&message), Some(told));
        }
    }

    /// `struct tcp_md5sig` with a key for a peer.
    fn sign(socket: &TcpStream) -> std::io::Result<()> {
        let IpAddr::V4(peer) = socket.peer_addr().unwrap().ip() else { panic!("IPv4") };
        let mut bytes = [0_u8; 216];
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[4..8].copy_from_slice(&peer.octets());
        bytes[130..132].copy_from_slice(&3_u16.to_ne_bytes());
        bytes[136..139].copy_from_slice(b"key");
        // SAFETY: the kernel reads `bytes`.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_MD5SIG,
                bytes.as_ptr().cast(),
                bytes.len() as u32,
            )
        };
        check(set).map(drop)
    }

    #[test]
    fn keys_and_group_of_a_connection_are_shown() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
        let mut connection = Connection::open(Protocol::Diag).unwrap();
        let mut show = |(local, remote)| show(&mut connection, local, remote).unwrap();
        let Some(plain) = show(ends) else {
            return testkit::missing::lacks("sock_diag of TCP");
        };
        assert!(!plain.has_md5 && plain.control_group.is_some_and(|id| id > 0), "{plain:?}");
        let mapped = |end: SocketAddr| match end.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()),
            IpAddr::V6(_) => end,
        };
        assert_eq!(show((mapped(ends.0), mapped(ends.1))), Some(plain));
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(show((free, ends.1)), None);
        if !crate::process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to see keys");
        }
        match sign(&socket) {
            Ok(()) => assert_eq!(show(ends), Some(Shown { has_md5: true, ..plain })),
            Err(error) => testkit::missing::lacks(format!("TCP MD5: {error}")),
        }
    }
}
