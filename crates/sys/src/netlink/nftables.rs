//! Chains of nftables that see packets: whether the firewall has a say.
//!
//! Rules are not read. A base chain that has none and lets all pass is none, nor is one of the type `nat`: it is asked
//! once about a connection, and conntrack knows the answer ([`Entry`]).
//!
//! [`Entry`]: super::conntrack::Entry

use super::{Connection, NLM_F_DUMP, attributes, text};
use crate::{Result, Versions};

/// linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h.
pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_GETCHAIN: u16 = 4;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NFTA_DEVICE_NAME: u16 = 1;
/// The beginning of the names that are meant; in Linux 6.16 a name without a NUL.
const NFTA_DEVICE_PREFIX: u16 = 2;
const NF_ACCEPT: u32 = 1;
/// `struct nfgenmsg`: family, version, resource.
pub(super) const NFGENMSG: usize = 4;
/// linux/netfilter.h.
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
const NFPROTO_IPV6: u8 = 10;
const NF_INET_PRE_ROUTING: u32 = 0;
const NF_INET_LOCAL_IN: u32 = 1;
const NF_INET_LOCAL_OUT: u32 = 3;
const NF_INET_POST_ROUTING: u32 = 4;
const NF_INET_INGRESS: u32 = 5;

/// The interfaces at whose own hook a chain is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Device {
    /// That of this name.
    Name(String),
    /// All whose names begin so.
    Prefix(String),
}

/// A base chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// `NFPROTO_INET` and others.
    family: u8,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    hook: u32,
    /// Of a hook of interfaces.
    devices: Vec<Device>,
    /// What is not accepted at its end is dropped.
    drops: bool,
    /// It is of the type `nat`.
    translates: bool,
    /// Rules that it has.
    rules: u32,
}

impl Chain {
    /// Reads a message of the kernel's (`NFT_MSG_NEWCHAIN`), without its netlink header. `None` if it is no base chain.
    fn new(message: &[u8]) -> Option<Chain> {
        let family = *message.first()?;
        let find = |wanted| attributes(message, NFGENMSG).find(|(kind, _)| *kind == wanted);
        let word = |value: &[u8]| value.try_into().ok().map(u32::from_be_bytes);
        let (_, hook) = find(NFTA_CHAIN_HOOK)?;
        let mut number = None;
        let mut devices = Vec::new();
        for (kind, value) in attributes(hook, 0) {
            match kind {
                NFTA_HOOK_HOOKNUM => number = word(value),
                NFTA_HOOK_DEV => devices.extend(device((NFTA_DEVICE_NAME, value))),
                NFTA_HOOK_DEVS => devices.extend(attributes(value, 0).filter_map(device)),
                _ => {}
            }
        }
        let (_, name) = find(NFTA_CHAIN_NAME)?;
        Some(Chain {
            family,
            table: find(NFTA_CHAIN_TABLE).map(|(_, value)| text(value))?,
            name: text(name),
            hook: number?,
            devices,
            drops: find(NFTA_CHAIN_POLICY)
                .and_then(|(_, value)| word(value))
                .is_some_and(|policy| policy != NF_ACCEPT),
            translates: find(NFTA_CHAIN_TYPE).is_some_and(|(_, kind)| text(kind) == "nat"),
            // No rule can jump to a base chain, so that these are its own.
            rules: find(NFTA_CHAIN_USE).and_then(|(_, value)| word(value))?,
        })
    }

    /// Which packets it decides about, of those that this machine sends or receives by the interface of this name.
    /// Those that are forwarded are none of them, nor is the first one of a connection.
    pub fn sees(&self, interface: &str) -> Versions {
        if self.translates || self.rules == 0 && !self.drops {
            return Versions::NONE;
        }
        let is_at = |device: &Device| match device {
            Device::Name(name) => name == interface,
            Device::Prefix(prefix) => interface.starts_with(prefix.as_str()),
        };
        let is_at = || self.devices.iter().any(is_at);
        let passes = matches!(
            self.hook,
            NF_INET_PRE_ROUTING | NF_INET_LOCAL_IN | NF_INET_LOCAL_OUT | NF_INET_POST_ROUTING
        );
        match self.family {
            NFPROTO_INET if self.hook == NF_INET_INGRESS && is_at() => Versions::BOTH,
            NFPROTO_INET if passes => Versions::BOTH,
            NFPROTO_IPV4 if passes => Versions { v4: true, v6: false },
            NFPROTO_IPV6 if passes => Versions { v4: false, v6: true },
            // Ingress and egress.
            NFPROTO_NETDEV if is_at() => Versions::BOTH,
            _ => Versions::NONE,
        }
    }
}

fn device((kind, name): (u16, &[u8])) -> Option<Device> {
    match kind {
        NFTA_DEVICE_NAME if name.ends_with(&[0]) => Some(Device::Name(text(name))),
        NFTA_DEVICE_NAME | NFTA_DEVICE_PREFIX => Some(Device::Prefix(text(name))),
        _ => None,
    }
}

/// The base chains of all families in the namespace of the connection, which is one of [`Protocol::Netfilter`]. A kernel
/// without nftables has none.
///
/// [`Protocol::Netfilter`]: super::Protocol::Netfilter
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`.
pub fn chains(connection: &mut Connection) -> Result<Vec<Chain>> {
    let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN;
    match connection.request("list the chains of nftables", kind, NLM_F_DUMP, &[0; NFGENMSG]) {
        Ok(messages) => Ok(messages.iter().filter_map(|message| Chain::new(message)).collect()),
        Err(error) if super::is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Protocol, append};
    use super::*;
    use crate::ingress::IngressDrop;
    use crate::netlink::link::{VethEnd, create_veth};
    use crate::netns::Namespace;
    use proptest::prelude::*;

    fn message(family: u8, hook: u32, device: Option<(u16, &str)>, end: (u32, u32)) -> Vec<u8> {
        let mut nested = Vec::new();
        append(&mut nested, NFTA_HOOK_HOOKNUM, &hook.to_be_bytes());
        if let Some((kind, name)) = device {
            let mut list = Vec::new();
            append(&mut list, kind, name.as_bytes());
            append(&mut nested, NFTA_HOOK_DEVS | 0x8000, &list);
        }
        let mut message = vec![family, 0, 0, 0];
        append(&mut message, NFTA_CHAIN_TABLE, b"filter\0");
        append(&mut message, NFTA_CHAIN_NAME, b"input\0");
        append(&mut message, NFTA_CHAIN_HOOK | 0x8000, &nested);
        append(&mut message, NFTA_CHAIN_POLICY, &end.0.to_be_bytes());
        append(&mut message, NFTA_CHAIN_USE, &end.1.to_be_bytes());
        message
    }

    const EMPTY: (u32, u32) = (NF_ACCEPT, 0);
    const RULES: (u32, u32) = (NF_ACCEPT, 3);
    const DROPS: (u32, u32) = (0, 0);

    #[test]
    fn what_a_chain_sees_follows_from_family_and_hook() {
        let sees = |family, hook, device, end| {
            Chain::new(&message(family, hook, device, end)).unwrap().sees("nic0")
        };
        let (v4, v6) = (Versions { v4: true, v6: false }, Versions { v4: false, v6: true });
        for hook in [0, 1, 3, 4] {
            assert_eq!(sees(NFPROTO_INET, hook, None, RULES), Versions::BOTH);
            assert_eq!(sees(NFPROTO_IPV4, hook, None, RULES), v4);
            assert_eq!(sees(NFPROTO_IPV6, hook, None, DROPS), v6);
            assert_eq!(sees(NFPROTO_INET, hook, None, EMPTY), Versions::NONE);
        }
        const FORWARD: u32 = 2;
        const ARP: u8 = 3;
        assert_eq!(sees(NFPROTO_INET, FORWARD, None, RULES), Versions::NONE);
        assert_eq!(sees(ARP, 0, None, RULES), Versions::NONE);
        let mut nat = message(NFPROTO_IPV4, 3, None, RULES);
        append(&mut nat, NFTA_CHAIN_TYPE, b"nat\0");
        assert_eq!(Chain::new(&nat).unwrap().sees("nic0"), Versions::NONE);
        let of = |kind, name| Some((kind, name));
        for (family, hook) in [(NFPROTO_NETDEV, 0), (NFPROTO_NETDEV, 1), (NFPROTO_INET, 5)] {
            let sees = |device| sees(family, hook, device, RULES);
            assert_eq!(sees(of(NFTA_DEVICE_NAME, "nic0\0")), Versions::BOTH);
            assert_eq!(sees(of(NFTA_DEVICE_PREFIX, "nic\0")), Versions::BOTH);
            assert_eq!(sees(of(NFTA_DEVICE_NAME, "ni")), Versions::BOTH);
            assert_eq!(sees(of(NFTA_DEVICE_NAME, "nic\0")), Versions::NONE);
            assert_eq!(sees(of(NFTA_DEVICE_PREFIX, "wire\0")), Versions::NONE);
            assert_eq!(sees(None), Versions::NONE);
        }
    }

    #[test]
    fn a_chain_that_no_hook_has_is_none() {
        let mut message = vec![NFPROTO_INET, 0, 0, 0];
        append(&mut message, NFTA_CHAIN_TABLE, b"filter\0");
        append(&mut message, NFTA_CHAIN_NAME, b"mine\0");
        append(&mut message, NFTA_CHAIN_USE, &7_u32.to_be_bytes());
        assert_eq!(Chain::new(&message), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_chain_or_none(bytes: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let _ = Chain::new(&bytes);
            let mut changed = message(NFPROTO_NETDEV, 0, Some((NFTA_DEVICE_NAME, "nic0\0")), RULES);
            let at = at.index(changed.len());
            changed[at] = byte;
            if let Some(chain) = Chain::new(&changed) {
                let _ = chain.sees("nic0");
            }
            let _ = Chain::new(&changed[..at]);
        }
    }

    #[test]
    fn the_kernels_own_chains_are_read() {
        if !crate::process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to make a veth");
        }
        let namespace = Namespace::new().unwrap();
        let seen = namespace.run(|| {
            create_veth(&VethEnd::new("near0"), &VethEnd::new("far0")).unwrap();
            let mut connection = Connection::open(Protocol::Netfilter).unwrap();
            assert_eq!(chains(&mut connection).unwrap(), []);
            let drop = IngressDrop::on("near0").map_err(|error| error.to_string())?;
            let [chain] = &chains(&mut connection).unwrap()[..] else { panic!("one chain") };
            let seen = ["near0", "far0"].map(|name| chain.sees(name));
            std::mem::drop(drop);
            Ok::<_, String>((seen, chain.clone()))
        });
        match seen.unwrap() {
            Ok((seen, chain)) => {
                assert_eq!(seen, [Versions::BOTH, Versions::NONE]);
                assert_eq!((&chain.table[..], &chain.name[..]), ("wharf-near0", "ingress"));
            }
            Err(error) => testkit::missing::lacks(error),
        }
    }
}
