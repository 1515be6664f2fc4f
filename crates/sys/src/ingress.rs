//! Drops all packets that arrive on an interface after AF_PACKET sockets have received them.
//!
//! An nftables chain at the interface's ingress hook with the policy `drop`: packet sockets are
//! served before that hook, the kernel's own stack after it. The table belongs to the socket that
//! made it (`NFT_TABLE_F_OWNER`, Linux 5.12), so it goes with the process, however that ends.

use std::io;

use netlink_sys::{Socket, SocketAddr};

use crate::{Error, Result};

/// linux/netlink.h, linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h.
const NETLINK_NETFILTER: isize = 12;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFPROTO_NETDEV: u8 = 5;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFT_TABLE_F_OWNER: u32 = 2;
const NFT_MSG_NEWRULE: u16 = 6;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_HOOK_DEV: u16 = 3;
const NLA_F_NESTED: u16 = 0x8000;
const NF_NETDEV_INGRESS: u32 = 0;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFT_PAYLOAD_LL_HEADER: u32 = 0;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFT_CMP_EQ: u32 = 0;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFT_REG_VERDICT: u32 = 0;
const NFT_REG_1: u32 = 1;
const NLMSG_ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE_EXCLUSIVELY: u16 = 0x200 | 0x400;
const CREATE_AT_END: u16 = 0x400 | 0x800;

/// Packets that arrive on the interface are dropped for as long as this lives.
#[derive(Debug)]
pub struct IngressDrop {
    /// The owner of the table.
    _socket: Socket,
    interface: String,
    accepted: &'static [[Match; 3]],
}

impl IngressDrop {
    /// Starts dropping packets that arrive on `interface`.
    ///
    /// # Errors
    /// The kernel's error: without `CAP_NET_ADMIN`, or without nftables at a device's ingress.
    pub fn on(interface: &str) -> Result<Self> {
        Self::install(interface, &[])
    }

    /// The same, except for packets that configure the interface, which go on to the kernel's own stack: DHCP
    /// to a client, and router advertisements, by the rules of `configures` in bpf/redirect.c.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn but_configuration(interface: &str) -> Result<Self> {
        Self::install(interface, &CONFIGURATION)
    }

    /// The same, with the same exceptions, on an interface that has been renamed from [this](Self::interface)
    /// to `now`. Since Linux 6.16 the hook is bound to the name (`nf_tables_netdev_event`): it leaves an
    /// interface that is renamed, and takes one that gets the name. The old value is to be dropped after
    /// that, so that no packet passes in between.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn renamed(&self, now: &str) -> Result<Self> {
        Self::install(now, self.accepted)
    }

    /// The name under which it was started.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    fn install(interface: &str, accepted: &'static [[Match; 3]]) -> Result<Self> {
        install(interface, accepted)
            .map(|socket| Self { _socket: socket, interface: interface.to_owned(), accepted })
            .map_err(|cause| Error::new("drop by nftables what arrives on", cause).on(interface))
    }
}

/// Bytes of a frame that are compared: the header, the offset in it, and the bytes.
type Match = (u32, u32, &'static [u8]);

/// The frames that configure an interface. The EtherType is compared as it was on the wire, so a frame in a
/// VLAN does not match; nor does a fragment, which has no transport header for nftables, nor a packet with
/// extension headers.
const CONFIGURATION: [[Match; 3]; 3] = [
    [
        (NFT_PAYLOAD_LL_HEADER, 12, &[0x08, 0x00]),
        (NFT_PAYLOAD_NETWORK_HEADER, 9, &[17]),
        (NFT_PAYLOAD_TRANSPORT_HEADER, 2, &68_u16.to_be_bytes()),
    ],
    [
        (NFT_PAYLOAD_LL_HEADER, 12, &[0x86, 0xdd]),
        (NFT_PAYLOAD_NETWORK_HEADER, 6, &[17]),
        (NFT_PAYLOAD_TRANSPORT_HEADER, 2, &546_u16.to_be_bytes()),
    ],
    [
        (NFT_PAYLOAD_LL_HEADER, 12, &[0x86, 0xdd]),
        (NFT_PAYLOAD_NETWORK_HEADER, 6, &[58]),
        (NFT_PAYLOAD_TRANSPORT_HEADER, 0, &[134]),
    ],
];

fn install(interface: &str, accepted: &[[Match; 3]]) -> io::Result<Socket> {
    let socket = Socket::new(NETLINK_NETFILTER)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let batch = batch(interface, accepted);
    socket.send(&batch, 0)?;
    // The kernel answers all messages of the batch, in any case.
    for _ in 0..2 + accepted.len() {
        let mut answer = Vec::with_capacity(4096);
        socket.recv(&mut answer, 0)?;
        acknowledged(&answer)?;
    }
    Ok(socket)
}

/// One transaction: a table of our own, and in it a chain whose policy is to drop, with its exceptions.
fn batch(interface: &str, accepted: &[[Match; 3]]) -> Vec<u8> {
    let name = format!("wharf-{interface}");
    let mut table = Vec::new();
    put_text(&mut table, NFTA_TABLE_NAME, &name);
    put(&mut table, NFTA_TABLE_FLAGS, &NFT_TABLE_F_OWNER.to_be_bytes());

    let mut hook = Vec::new();
    put(&mut hook, NFTA_HOOK_HOOKNUM, &NF_NETDEV_INGRESS.to_be_bytes());
    put(&mut hook, NFTA_HOOK_PRIORITY, &i32::MIN.to_be_bytes());
    put_text(&mut hook, NFTA_HOOK_DEV, interface);

    let mut chain = Vec::new();
    put_text(&mut chain, NFTA_CHAIN_TABLE, &name);
    put_text(&mut chain, NFTA_CHAIN_NAME, "ingress");
    put(&mut chain, NFTA_CHAIN_HOOK | NLA_F_NESTED, &hook);
    put(&mut chain, NFTA_CHAIN_POLICY, &NF_DROP.to_be_bytes());
    put_text(&mut chain, NFTA_CHAIN_TYPE, "filter");

    let subsystem = NFNL_SUBSYS_NFTABLES << 8;
    let new = REQUEST | ACK | CREATE_EXCLUSIVELY;
    let mut batch = Vec::new();
    put_message(&mut batch, NFNL_MSG_BATCH_BEGIN, REQUEST, 0, NFNL_SUBSYS_NFTABLES, &[]);
    put_message(&mut batch, subsystem | NFT_MSG_NEWTABLE, new, NFPROTO_NETDEV, 0, &table);
    put_message(&mut batch, subsystem | NFT_MSG_NEWCHAIN, new, NFPROTO_NETDEV, 0, &chain);
    for matches in accepted {
        let mut rule = Vec::new();
        put_text(&mut rule, NFTA_RULE_TABLE, &name);
        put_text(&mut rule, NFTA_RULE_CHAIN, "ingress");
        put(&mut rule, NFTA_RULE_EXPRESSIONS | NLA_F_NESTED, &accept(matches));
        let kind = subsystem | NFT_MSG_NEWRULE;
        let flags = REQUEST | ACK | CREATE_AT_END;
        put_message(&mut batch, kind, flags, NFPROTO_NETDEV, 0, &rule);
    }
    put_message(&mut batch, NFNL_MSG_BATCH_END, REQUEST, 0, NFNL_SUBSYS_NFTABLES, &[]);
    batch
}

/// The expressions of a rule that accepts packets for which all these match.
fn accept(matches: &[Match]) -> Vec<u8> {
    let mut expressions = Vec::new();
    for (base, offset, value) in matches {
        let mut payload = Vec::new();
        put(&mut payload, NFTA_PAYLOAD_DREG, &NFT_REG_1.to_be_bytes());
        put(&mut payload, NFTA_PAYLOAD_BASE, &base.to_be_bytes());
        put(&mut payload, NFTA_PAYLOAD_OFFSET, &offset.to_be_bytes());
        put(&mut payload, NFTA_PAYLOAD_LEN, &(value.len() as u32).to_be_bytes());
        put_expression(&mut expressions, "payload", &payload);

        let mut data = Vec::new();
        put(&mut data, NFTA_DATA_VALUE, value);
        let mut compare = Vec::new();
        put(&mut compare, NFTA_CMP_SREG, &NFT_REG_1.to_be_bytes());
        put(&mut compare, NFTA_CMP_OP, &NFT_CMP_EQ.to_be_bytes());
        put(&mut compare, NFTA_CMP_DATA | NLA_F_NESTED, &data);
        put_expression(&mut expressions, "cmp", &compare);
    }
    let mut code = Vec::new();
    put(&mut code, NFTA_VERDICT_CODE, &NF_ACCEPT.to_be_bytes());
    let mut verdict = Vec::new();
    put(&mut verdict, NFTA_DATA_VERDICT | NLA_F_NESTED, &code);
    let mut immediate = Vec::new();
    put(&mut immediate, NFTA_IMMEDIATE_DREG, &NFT_REG_VERDICT.to_be_bytes());
    put(&mut immediate, NFTA_IMMEDIATE_DATA | NLA_F_NESTED, &verdict);
    put_expression(&mut expressions, "immediate", &immediate);
    expressions
}

fn put_expression(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    let mut expression = Vec::new();
    put_text(&mut expression, NFTA_EXPR_NAME, name);
    put(&mut expression, NFTA_EXPR_DATA | NLA_F_NESTED, data);
    put(out, NFTA_LIST_ELEM | NLA_F_NESTED, &expression);
}

/// `struct nlmsghdr`, `struct nfgenmsg`, attributes.
fn put_message(out: &mut Vec<u8>, kind: u16, flags: u16, family: u8, resource: u16, body: &[u8]) {
    const HEADERS: usize = 16 + 4;
    out.extend(((HEADERS + body.len()) as u32).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]);
    out.extend([family, 0]);
    out.extend(resource.to_be_bytes());
    out.extend(body);
}

/// `struct nlattr`, the value, and padding to four bytes.
fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(((4 + value.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn put_text(out: &mut Vec<u8>, kind: u16, value: &str) {
    put(out, kind, &[value.as_bytes(), &[0]].concat());
}

/// Checks that every message of a datagram is an `NLMSG_ERROR` with error 0.
fn acknowledged(datagram: &[u8]) -> io::Result<()> {
    let number = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(datagram.get(at..at + 4)?.try_into().ok()?))
    };
    let kind = datagram.get(4..6).map(|k| u16::from_ne_bytes([k[0], k[1]]));
    match (kind, number(16)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => {
            Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
