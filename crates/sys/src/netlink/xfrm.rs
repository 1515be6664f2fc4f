//! Policies of IPsec (ip-xfrm(8)): whether one applies to a connection.
//!
//! States without a policy change nothing about packets that are sent or received in the clear.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Connection, NLM_F_DUMP, attributes, number};
use crate::Result;

/// linux/xfrm.h.
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRMA_TMPL: u16 = 5;
const XFRMA_IF_ID: u16 = 31;
const XFRM_POLICY_FWD: u8 = 2;
const XFRM_POLICY_BLOCK: u8 = 1;
/// Directions of policies of one socket; 0 is in, and 1 is out.
const OF_SOCKETS: u8 = 3;
/// `struct xfrm_userpolicy_info`: a selector of 56 bytes, limits of 64 and 32, priority and index, direction, action,
/// flags, share.
const POLICY: usize = 168;
const DIRECTION: usize = 160;
const ACTION: usize = 161;

/// `struct xfrm_selector`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Selector {
    family: u16,
    destination: [u8; 16],
    source: [u8; 16],
    /// Port and mask.
    destination_port: [u16; 2],
    source_port: [u16; 2],
    /// Lengths of the prefixes.
    prefixes: [u8; 2],
    protocol: u8,
}

impl Selector {
    fn new(bytes: &[u8]) -> Option<Selector> {
        let port = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        Some(Selector {
            destination: bytes.get(..16)?.try_into().ok()?,
            source: bytes.get(16..32)?.try_into().ok()?,
            destination_port: [port(32)?, port(34)?],
            source_port: [port(36)?, port(38)?],
            family: u16::from_ne_bytes(bytes.get(40..42)?.try_into().ok()?),
            prefixes: [*bytes.get(42)?, *bytes.get(43)?],
            protocol: *bytes.get(44)?,
        })
    }

    /// Whether a TCP segment from one end to the other is among those that are meant.
    fn matches(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let port = |[port, mask]: [u16; 2], of: u16| (port ^ of) & mask == 0;
        let family = if from.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // AF_UNSPEC means both.
        (i32::from(self.family) == family || self.family == 0)
            && [0, libc::IPPROTO_TCP].contains(&self.protocol.into())
            && port(self.source_port, from.port())
            && port(self.destination_port, to.port())
            && begins(from.ip(), &self.source, self.prefixes[1])
            && begins(to.ip(), &self.destination, self.prefixes[0])
    }
}

/// Whether an address has the first `len` bits of another.
fn begins(ip: IpAddr, with: &[u8; 16], len: u8) -> bool {
    let (ip, with, bits): (u128, u128, u32) = match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d, ..] = *with;
            (ip.to_bits().into(), Ipv4Addr::new(a, b, c, d).to_bits().into(), 32)
        }
        IpAddr::V6(ip) => (ip.to_bits(), Ipv6Addr::from(*with).to_bits(), 128),
    };
    let rest = bits.saturating_sub(len.into());
    (ip ^ with).checked_shr(rest).unwrap_or(0) == 0
}

/// A policy that transforms or blocks packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    selector: Selector,
    is_out: bool,
}

impl Policy {
    /// Reads a message of the kernel's (`struct xfrm_userpolicy_info`), without its netlink header. `None` if it lets
    /// packets be, or concerns those that are forwarded, or those of an interface of IPsec's (`if_id`) alone.
    fn new(message: &[u8]) -> Option<Policy> {
        let (direction, action) = (*message.get(DIRECTION)?, *message.get(ACTION)?);
        let find = |wanted| attributes(message, POLICY).find(|(kind, _)| *kind == wanted);
        let has_templates = find(XFRMA_TMPL).is_some_and(|(_, templates)| !templates.is_empty());
        let is_of_interface =
            find(XFRMA_IF_ID).is_some_and(|(_, id)| number(id).is_some_and(|number| number != 0));
        let changes = has_templates || action == XFRM_POLICY_BLOCK;
        if !changes || direction == XFRM_POLICY_FWD || is_of_interface {
            return None;
        }
        let is_out = direction % OF_SOCKETS == 1;
        Some(Policy { selector: Selector::new(message)?, is_out })
    }

    /// Whether it may apply to segments of a TCP connection with these ends, one way or the other. Whether another
    /// policy comes before it is not looked at.
    pub fn concerns(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let (local, remote) = (plain(local), plain(remote));
        let (from, to) = if self.is_out { (local, remote) } else { (remote, local) };
        self.selector.matches(from, to)
    }
}

/// The policies that transform or block packets, in the namespace of the connection, which is one of
/// [`Protocol::Xfrm`]. Those of single sockets are among them, and whose they are is not known.
///
/// [`Protocol::Xfrm`]: super::Protocol::Xfrm
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`.
pub fn policies(connection: &mut Connection) -> Result<Vec<Policy>> {
    const XFRM_USERPOLICY_ID: usize = 64;
    let what = "list the policies of IPsec";
    match connection.request(what, XFRM_MSG_GETPOLICY, NLM_F_DUMP, &[0; XFRM_USERPOLICY_ID]) {
        Ok(messages) => Ok(messages.iter().filter_map(|message| Policy::new(message)).collect()),
        Err(error) if super::is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Protocol, append};
    use super::*;
    use crate::netns::Namespace;
    use proptest::prelude::*;
    use std::process::Command;

    fn message(selector: [&str; 2], len: u8, direction: u8, has_template: bool) -> Vec<u8> {
        let mut message = vec![0; POLICY];
        for (at, address) in [16, 0].into_iter().zip(selector) {
            let octets = match address.parse().unwrap() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            message[at..at + octets.len()].copy_from_slice(&octets);
        }
        let is_v4 = selector[0].contains('.');
        let family = if is_v4 { libc::AF_INET } else { libc::AF_INET6 } as u16;
        message[40..42].copy_from_slice(&family.to_ne_bytes());
        (message[42], message[43]) = (len, len);
        message[DIRECTION] = direction;
        if has_template {
            append(&mut message, XFRMA_TMPL, &[0; 64]);
        }
        message
    }

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_policy_concerns_what_its_selector_means() {
        let out = Policy::new(&message(["10.0.0.0", "10.1.0.0"], 16, 1, true)).unwrap();
        let (near, far) = (end("10.0.3.4:80"), end("10.1.255.1:9"));
        assert!(out.concerns(near, far) && !out.concerns(far, near));
        assert!(!out.concerns(near, end("10.2.0.1:9")));
        assert!(out.concerns(end("[::ffff:10.0.3.4]:80"), far));
        let inward = Policy::new(&message(["10.1.0.0", "10.0.0.0"], 16, 0, true)).unwrap();
        assert!(inward.concerns(near, far) && !inward.concerns(far, near));
        let v6 = Policy::new(&message(["fd00::", "fd01::"], 16, 1, true)).unwrap();
        assert!(v6.concerns(end("[fd00::1]:1"), end("[fd01::1]:2")) && !v6.concerns(near, far));
        let any = Policy::new(&message(["0.0.0.0", "0.0.0.0"], 0, 1, true)).unwrap();
        assert!(any.concerns(near, far));
    }

    #[test]
    fn what_lets_packets_be_is_no_policy() {
        let of =
            |direction, has_template| message(["0.0.0.0", "0.0.0.0"], 0, direction, has_template);
        assert_eq!(Policy::new(&of(1, false)), None);
        assert_eq!(Policy::new(&of(XFRM_POLICY_FWD, true)), None);
        let mut blocks = of(1, false);
        blocks[ACTION] = XFRM_POLICY_BLOCK;
        assert!(Policy::new(&blocks).is_some());
        let mut elsewhere = of(1, true);
        append(&mut elsewhere, XFRMA_IF_ID, &7_u32.to_ne_bytes());
        assert_eq!(Policy::new(&elsewhere), None);
    }

    #[test]
    fn ports_and_protocol_are_compared() {
        let mut message = message(["0.0.0.0", "0.0.0.0"], 0, 1, true);
        message[32..36].copy_from_slice(&[0, 80, 0xff, 0xff]);
        let to_80 = Policy::new(&message).unwrap();
        let near = end("10.0.0.1:5000");
        assert!(
            to_80.concerns(near, end("10.0.0.2:80")) && !to_80.concerns(near, end("10.0.0.2:81"))
        );
        message[44] = 17;
        assert!(!Policy::new(&message).unwrap().concerns(near, end("10.0.0.2:80")));
    }

    proptest! {
        #[test]
        fn a_prefix_means_those_that_have_its_bits(ip: u128, with: u128, len in 0_u8..=128) {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            let said = begins(Ipv6Addr::from(ip).into(), &with.to_be_bytes(), len);
            prop_assert_eq!(said, ip & mask == with & mask);
            let (ip4, with4, len4) = (ip as u32, with as u32, len.min(32));
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&with4.to_be_bytes());
            let mask = u32::MAX.checked_shl(32 - u32::from(len4)).unwrap_or(0);
            let said = begins(Ipv4Addr::from(ip4).into(), &bytes, len4);
            prop_assert_eq!(said, ip4 & mask == with4 & mask);
        }

        #[test]
        fn any_bytes_are_a_policy_or_none(bytes: Vec<u8>, long in prop::collection::vec(any::<u8>(), POLICY..300)) {
            for bytes in [bytes, long] {
                if let Some(policy) = Policy::new(&bytes) {
                    let _ = policy.concerns(end("10.0.0.1:1"), end("[fd00::1]:2"));
                }
            }
        }
    }

    #[test]
    fn the_kernels_own_policies_are_read() {
        if !crate::process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to add a policy");
        }
        let ip = |words: &str| {
            let done = Command::new("ip").args(words.split(' ')).output();
            done.is_ok_and(|output| output.status.success())
        };
        let namespace = Namespace::new().unwrap();
        let lacking = namespace.run(|| {
            let mut connection = match Connection::open(Protocol::Xfrm) {
                Ok(connection) => connection,
                Err(error) => return Some(error.to_string()),
            };
            let mut list = || policies(&mut connection).unwrap();
            assert_eq!(list(), []);
            let template = "tmpl proto esp mode transport";
            if !ip(&format!("xfrm policy add src 10.0.0.1 dst 10.0.0.2 dir out {template}")) {
                return Some("ip xfrm".to_owned());
            }
            assert!(ip("xfrm policy add src 10.9.0.1 dst 10.9.0.2 dir out"));
            let [policy] = list()[..] else { panic!("one policy transforms") };
            assert!(policy.concerns(end("10.0.0.1:1"), end("10.0.0.2:2")));
            assert!(!policy.concerns(end("10.0.0.1:1"), end("10.0.0.3:2")));
            None
        });
        if let Some(lacking) = lacking.unwrap() {
            testkit::missing::lacks(lacking);
        }
    }
}
