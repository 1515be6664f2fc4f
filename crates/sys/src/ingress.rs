//! Drops everything that arrives on an interface after AF_PACKET sockets have seen it.
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
const NLMSG_ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE_EXCLUSIVELY: u16 = 0x200 | 0x400;

/// Everything that arrives on the interface is dropped for as long as this lives.
#[derive(Debug)]
pub struct IngressDrop {
    /// The owner of the table.
    _socket: Socket,
}

impl IngressDrop {
    /// Starts dropping what arrives on `interface`.
    ///
    /// # Errors
    /// What the kernel says: without `CAP_NET_ADMIN`, or without nftables at a device's ingress.
    pub fn on(interface: &str) -> Result<Self> {
        install(interface)
            .map(|socket| Self { _socket: socket })
            .map_err(|cause| Error::new("drop by nftables what arrives on", cause).on(interface))
    }
}

fn install(interface: &str) -> io::Result<Socket> {
    let socket = Socket::new(NETLINK_NETFILTER)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let batch = batch(interface);
    socket.send(&batch, 0)?;
    // Both messages of the batch are answered, in any case.
    for _ in 0..2 {
        let mut answer = Vec::with_capacity(4096);
        socket.recv(&mut answer, 0)?;
        acknowledged(&answer)?;
    }
    Ok(socket)
}

/// One transaction: a table of our own, and in it a chain whose policy is the whole rule.
fn batch(interface: &str) -> Vec<u8> {
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
    put_message(&mut batch, NFNL_MSG_BATCH_END, REQUEST, 0, NFNL_SUBSYS_NFTABLES, &[]);
    batch
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

/// Every message of a datagram is an `NLMSG_ERROR` that says 0.
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
