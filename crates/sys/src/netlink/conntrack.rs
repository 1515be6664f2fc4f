//! Entries of conntrack: what the kernel has written down of a connection whose packets it sees.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::nftables::NFGENMSG;
use super::{Connection, append, attributes};
use crate::Result;

/// linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_conntrack.h.
const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_NEW: u16 = 0;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_HELP: u16 = 5;
const CTA_TIMEOUT: u16 = 7;
const CTA_ID: u16 = 12;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
const CTA_PROTOINFO_TCP_FLAGS_REPLY: u16 = 5;
const NLA_F_NESTED: u16 = 0x8000;
/// linux/netfilter/nf_conntrack_tcp.h.
const IP_CT_TCP_FLAG_BE_LIBERAL: u8 = 8;
/// linux/netfilter/nf_conntrack_common.h: source or destination are translated, or sequence numbers are.
const IPS_NAT: u32 = 1 << 4 | 1 << 5 | 1 << 6;

/// The ends of a connection, as packets that go one way have them: the source, and the destination.
pub type Ends = (SocketAddr, SocketAddr);

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Addresses, ports or sequence numbers are translated.
    pub is_translated: bool,
    /// A helper follows its payload, of FTP for example.
    pub has_helper: bool,
    /// Both directions pass whatever their sequence numbers are.
    pub is_liberal: bool,
    /// It is forgotten after so many seconds without a packet.
    pub timeout: u32,
    /// The kernel's number of it, with which it is told from a later one.
    id: Option<u32>,
}

impl Entry {
    /// Reads a message of the kernel's (`IPCTNL_MSG_CT_NEW`), without its netlink header. `None` if it is none of TCP.
    fn new(message: &[u8]) -> Option<Entry> {
        let find = |wanted| {
            let mut all = attributes(message, NFGENMSG);
            all.find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
        };
        let number = |wanted| find(wanted).and_then(word);
        let (from, to) = tuple(find(CTA_TUPLE_ORIG)?)?;
        let reply = tuple(find(CTA_TUPLE_REPLY)?)?;
        Some(Entry {
            is_translated: reply != (to, from)
                || number(CTA_STATUS).is_some_and(|status| status & IPS_NAT != 0),
            has_helper: find(CTA_HELP).is_some(),
            is_liberal: find(CTA_PROTOINFO).is_some_and(is_liberal),
            timeout: number(CTA_TIMEOUT).unwrap_or(0),
            id: number(CTA_ID),
        })
    }
}

fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// The ends in a tuple of TCP.
fn tuple(nested: &[u8]) -> Option<Ends> {
    let (mut ips, mut ports, mut protocol) = ([None; 2], [None; 2], None);
    for (kind, value) in attributes(nested, 0) {
        for (kind, value) in attributes(value, 0).map(|(inner, value)| ((kind, inner), value)) {
            let v4 = || Some(IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?)));
            let v6 = || Some(IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?)));
            let port = || Some(u16::from_be_bytes(value.try_into().ok()?));
            match kind {
                (CTA_TUPLE_IP, CTA_IP_V4_SRC) => ips[0] = v4(),
                (CTA_TUPLE_IP, CTA_IP_V4_DST) => ips[1] = v4(),
                (CTA_TUPLE_IP, CTA_IP_V6_SRC) => ips[0] = v6(),
                (CTA_TUPLE_IP, CTA_IP_V6_DST) => ips[1] = v6(),
                (CTA_TUPLE_PROTO, CTA_PROTO_NUM) => protocol = value.first().copied(),
                (CTA_TUPLE_PROTO, CTA_PROTO_SRC_PORT) => ports[0] = port(),
                (CTA_TUPLE_PROTO, CTA_PROTO_DST_PORT) => ports[1] = port(),
                _ => {}
            }
        }
    }
    (i32::from(protocol?) == libc::IPPROTO_TCP).then_some(())?;
    Some((SocketAddr::new(ips[0]?, ports[0]?), SocketAddr::new(ips[1]?, ports[1]?)))
}

fn is_liberal(protoinfo: &[u8]) -> bool {
    let tcp = attributes(protoinfo, 0).find(|(kind, _)| *kind == CTA_PROTOINFO_TCP);
    let is_set = |wanted| {
        let flags = tcp.and_then(|(_, tcp)| attributes(tcp, 0).find(|(kind, _)| *kind == wanted));
        // `struct nf_ct_tcp_flags`: flags, and a mask.
        let flags = flags.and_then(|(_, value)| value.first().copied());
        flags.is_some_and(|flags| flags & IP_CT_TCP_FLAG_BE_LIBERAL != 0)
    };
    is_set(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL) && is_set(CTA_PROTOINFO_TCP_FLAGS_REPLY)
}

fn nest(out: &mut Vec<u8>, kind: u16, inner: &[u8]) {
    append(out, kind | NLA_F_NESTED, inner);
}

/// The beginning of a message about the entry of which one direction has these ends.
fn message((from, to): Ends) -> Vec<u8> {
    let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    let (from, to) = (plain(from), plain(to));
    let mut ip = Vec::new();
    let (family, kinds) = match from {
        SocketAddr::V4(_) => (libc::AF_INET, [CTA_IP_V4_SRC, CTA_IP_V4_DST]),
        SocketAddr::V6(_) => (libc::AF_INET6, [CTA_IP_V6_SRC, CTA_IP_V6_DST]),
    };
    for (kind, end) in kinds.into_iter().zip([from, to]) {
        match end.ip() {
            IpAddr::V4(address) => append(&mut ip, kind, &address.octets()),
            IpAddr::V6(address) => append(&mut ip, kind, &address.octets()),
        }
    }
    let mut protocol = Vec::new();
    append(&mut protocol, CTA_PROTO_NUM, &[libc::IPPROTO_TCP as u8]);
    append(&mut protocol, CTA_PROTO_SRC_PORT, &from.port().to_be_bytes());
    append(&mut protocol, CTA_PROTO_DST_PORT, &to.port().to_be_bytes());
    let mut tuple = Vec::new();
    nest(&mut tuple, CTA_TUPLE_IP, &ip);
    nest(&mut tuple, CTA_TUPLE_PROTO, &protocol);
    let mut message = vec![family as u8, 0, 0, 0];
    nest(&mut message, CTA_TUPLE_ORIG, &tuple);
    message
}

/// The entry of a connection, in the namespace of the netlink connection, which is one of [`Protocol::Netfilter`]: that
/// of which one direction or the other has these ends, in the zone that has no number. `None` if there is none, or the
/// kernel has no conntrack.
///
/// [`Protocol::Netfilter`]: super::Protocol::Netfilter
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`.
pub fn entry(connection: &mut Connection, ends: Ends) -> Result<Option<Entry>> {
    match ask(connection, IPCTNL_MSG_CT_GET, "look for an entry of conntrack", &message(ends)) {
        Ok(answers) => Ok(answers.iter().find_map(|answer| Entry::new(answer))),
        Err(error) if super::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has an entry take whatever sequence numbers come from now on (`IP_CT_TCP_FLAG_BE_LIBERAL`, both directions), and stay
/// for so many seconds without a packet. Returns whether it is still there.
///
/// # Errors
/// As [`entry`].
pub fn keep(connection: &mut Connection, ends: Ends, seconds: u32) -> Result<bool> {
    let mut tcp = Vec::new();
    for kind in [CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, CTA_PROTOINFO_TCP_FLAGS_REPLY] {
        append(&mut tcp, kind, &[IP_CT_TCP_FLAG_BE_LIBERAL; 2]);
    }
    let mut info = Vec::new();
    nest(&mut info, CTA_PROTOINFO_TCP, &tcp);
    let mut message = message(ends);
    nest(&mut message, CTA_PROTOINFO, &info);
    append(&mut message, CTA_TIMEOUT, &seconds.to_be_bytes());
    is_there(ask(connection, IPCTNL_MSG_CT_NEW, "change an entry of conntrack", &message))
}

/// Has the kernel forget an entry: the connection is over. Returns whether it was still there.
///
/// # Errors
/// As [`entry`].
pub fn forget(connection: &mut Connection, ends: Ends, entry: &Entry) -> Result<bool> {
    let mut message = message(ends);
    if let Some(id) = entry.id {
        append(&mut message, CTA_ID, &id.to_be_bytes());
    }
    is_there(ask(connection, IPCTNL_MSG_CT_DELETE, "remove an entry of conntrack", &message))
}

fn ask(
    connection: &mut Connection,
    kind: u16,
    what: &'static str,
    message: &[u8],
) -> Result<Vec<Vec<u8>>> {
    connection.request(what, NFNL_SUBSYS_CTNETLINK << 8 | kind, 0, message)
}

fn is_there(answer: Result<Vec<Vec<u8>>>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::*;
    use crate::netns::Namespace;
    use proptest::prelude::*;

    /// linux/netfilter/nfnetlink_conntrack.h: what only a message that makes an entry has.
    const CTA_PROTOINFO_TCP_STATE: u16 = 1;
    const TCP_CONNTRACK_ESTABLISHED: u8 = 3;
    const STATUS_CONFIRMED: u32 = 1 << 1 | 1 << 2 | 1 << 3;
    const NLM_F_CREATE: u16 = 0x400;

    /// A message about both directions.
    fn both(ends: Ends, reply: Ends) -> Vec<u8> {
        let mut whole = message(ends);
        let other = message(reply);
        let (_, tuple) = attributes(&other, NFGENMSG).next().unwrap();
        nest(&mut whole, CTA_TUPLE_REPLY, tuple);
        whole
    }

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    prop_compose! {
        fn ends()(v4: bool, ips: [u128; 2], ports: [u16; 2]) -> Ends {
            let ip = |ip: u128| match v4 {
                true => IpAddr::V4(Ipv4Addr::from(ip as u32)),
                false => IpAddr::V6(Ipv6Addr::from(ip | 1 << 127)),
            };
            (SocketAddr::new(ip(ips[0]), ports[0]), SocketAddr::new(ip(ips[1]), ports[1]))
        }
    }

    proptest! {
        #[test]
        fn a_tuple_is_read_as_it_was_written(ends in ends(), other in ends()) {
            let written = both(ends, (ends.1, ends.0));
            let (_, nested) = attributes(&written, NFGENMSG).next().unwrap();
            prop_assert_eq!(tuple(nested), Some(ends));
            let entry = Entry::new(&written).unwrap();
            prop_assert!(!entry.is_translated && !entry.is_liberal && !entry.has_helper);
            let translated = Entry::new(&both(ends, other)).unwrap().is_translated;
            prop_assert_eq!(translated, other != (ends.1, ends.0));
        }

        #[test]
        fn any_bytes_are_an_entry_or_none(bytes: Vec<u8>, ends in ends(), at: prop::sample::Index, byte: u8) {
            let _ = Entry::new(&bytes);
            let mut whole = both(ends, (ends.1, ends.0));
            let at = at.index(whole.len());
            whole[at] = byte;
            let _ = Entry::new(&whole);
            let _ = Entry::new(&whole[..at]);
        }
    }

    #[test]
    fn entries_are_found_kept_and_forgotten() {
        if !crate::process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to make an entry");
        }
        let namespace = Namespace::new().unwrap();
        let lacking = namespace.run(|| {
            let mut connection = Connection::open(Protocol::Netfilter).unwrap();
            for ends in [
                (end("10.0.0.1:1000"), end("10.0.0.2:80")),
                (end("[fd00::1]:1000"), end("[fd00::2]:80")),
            ] {
                let back = (ends.1, ends.0);
                assert_eq!(entry(&mut connection, ends).unwrap(), None);
                assert!(!keep(&mut connection, ends, 100).unwrap());
                let mut tcp = Vec::new();
                append(&mut tcp, CTA_PROTOINFO_TCP_STATE, &[TCP_CONNTRACK_ESTABLISHED]);
                let mut info = Vec::new();
                nest(&mut info, CTA_PROTOINFO_TCP, &tcp);
                let mut new = both(ends, back);
                nest(&mut new, CTA_PROTOINFO, &info);
                append(&mut new, CTA_STATUS, &STATUS_CONFIRMED.to_be_bytes());
                append(&mut new, CTA_TIMEOUT, &77_u32.to_be_bytes());
                let kind = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW;
                if let Err(error) = connection.request("make an entry", kind, NLM_F_CREATE, &new) {
                    return Some(error.to_string());
                }
                let found = entry(&mut connection, back).unwrap().unwrap();
                assert!(!found.is_translated && !found.has_helper && !found.is_liberal);
                assert!(found.timeout <= 77, "{found:?}");
                assert!(keep(&mut connection, back, 100_000).unwrap());
                let kept = entry(&mut connection, ends).unwrap().unwrap();
                assert!(kept.is_liberal && kept.timeout > 77, "{kept:?}");
                assert!(forget(&mut connection, back, &kept).unwrap());
                assert!(!forget(&mut connection, back, &kept).unwrap());
            }
            None
        });
        if let Some(lacking) = lacking.unwrap() {
            testkit::missing::lacks(lacking);
        }
    }
}
