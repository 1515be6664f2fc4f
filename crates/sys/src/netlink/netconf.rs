//! Which interfaces forward packets of other hosts (`RTM_GETNETCONF`).

use super::{NLM_F_DUMP, attributes, number, request_raw};
use crate::Result;

/// linux/netconf.h; `struct netconfmsg` is the address family alone.
const NETCONFMSG: usize = 1;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_IFINDEX_ALL: i32 = -1;
const NETCONFA_IFINDEX_DEFAULT: i32 = -2;
const RTM_GETNETCONF: u16 = 82;

/// A `forwarding` switch that is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// Whether it is that of IPv6; else of IPv4.
    pub ipv6: bool,
    /// The index of its interface; `None` for that of all (`net.ipv4.ip_forward`).
    pub index: Option<u32>,
}

/// The `forwarding` switches of the calling thread's network namespace that are on. `default`, the value for
/// new interfaces, is not among them.
pub fn forwarding() -> Result<Vec<Forwarding>> {
    let mut on = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let message = [family as u8, 0, 0, 0];
        let what = "ask which interfaces forward";
        match request_raw(what, RTM_GETNETCONF, NLM_F_DUMP, &message) {
            Ok(replies) => on.extend(replies.iter().filter_map(|reply| parse(reply))),
            // A kernel without IPv6.
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(on)
}

/// The switch in a message; `None` also if it is off.
fn parse(message: &[u8]) -> Option<Forwarding> {
    let signed = |wanted: u16| {
        let mut all = attributes(message, NETCONFMSG);
        all.find(|(kind, _)| *kind == wanted).and_then(|(_, value)| Some(number(value)? as i32))
    };
    let ipv6 = i32::from(*message.first()?) == libc::AF_INET6;
    match (signed(NETCONFA_FORWARDING)?, signed(NETCONFA_IFINDEX)?) {
        (0, _) | (_, NETCONFA_IFINDEX_DEFAULT) => None,
        (_, NETCONFA_IFINDEX_ALL) => Some(Forwarding { ipv6, index: None }),
        (_, index) => Some(Forwarding { ipv6, index: Some(u32::try_from(index).ok()?) }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::append;
    use super::*;

    fn message(family: i32, index: i32, forwarding: i32) -> Vec<u8> {
        let mut message = vec![family as u8, 0, 0, 0];
        append(&mut message, NETCONFA_IFINDEX, &index.to_ne_bytes());
        append(&mut message, NETCONFA_FORWARDING, &forwarding.to_ne_bytes());
        message
    }

    #[test]
    fn a_switch_that_is_on_is_read_and_default_is_none() {
        let v6 = libc::AF_INET6;
        assert_eq!(parse(&message(v6, 3, 1)), Some(Forwarding { ipv6: true, index: Some(3) }));
        // Values over 1 are on, too (RFC 4861's hosts and routers: 2 is a router that listens).
        assert_eq!(parse(&message(v6, -1, 2)), Some(Forwarding { ipv6: true, index: None }));
        assert_eq!(parse(&message(libc::AF_INET, 3, 0)), None);
        assert_eq!(parse(&message(libc::AF_INET, -2, 1)), None);
    }

    #[test]
    fn a_truncated_message_is_no_switch() {
        let whole = message(libc::AF_INET, 3, 1);
        assert!(parse(&whole).is_some());
        assert!((0..whole.len()).all(|len| parse(&whole[..len]).is_none()));
    }
}
