//! Creating, moving and deleting links.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};

use super::interface::{checked, index, to_index};
use super::request;
use crate::Result;

/// One end of a veth pair to be made.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// The network namespace to make it in; `None` for that of the calling thread.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Its MAC address; `None` for a random one by the kernel.
    pub mac: Option<[u8; 6]>,
    /// Its MTU in bytes; `None` for 1500.
    pub mtu: Option<u32>,
    /// Receive and transmit queues, one at least.
    pub queues: u32,
}

impl<'a> VethEnd<'a> {
    /// An end with one queue, in the calling thread's namespace.
    pub fn new(name: &'a str) -> Self {
        Self { name, namespace: None, mac: None, mtu: None, queues: 1 }
    }

    fn message(&self) -> Result<LinkMessage> {
        let mut message = LinkMessage::default();
        message.attributes.extend([
            LinkAttribute::IfName(checked(self.name)?.to_owned()),
            LinkAttribute::NumRxQueues(self.queues),
            LinkAttribute::NumTxQueues(self.queues),
        ]);
        message.attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
        message.attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        message
            .attributes
            .extend(self.namespace.map(|namespace| LinkAttribute::NetNsFd(namespace.as_raw_fd())));
        Ok(message)
    }
}

/// Makes a veth pair, both ends down. Either both ends are made or none. `EEXIST` if a name is taken.
pub fn create_veth(near: &VethEnd<'_>, far: &VethEnd<'_>) -> Result<()> {
    let mut message = near.message()?;
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far.message()?))),
    ]));
    let what = format!("make the veth pair {} and {}", near.name, far.name);
    request(what, libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &message)?;
    Ok(())
}

/// Deletes a virtual interface (both ends of a veth pair). [`crate::Error::is_missing`] if there is
/// none of this name.
pub fn delete(name: &str) -> Result<()> {
    let message = to_index(index(name)?);
    request("delete", libc::RTM_DELLINK, 0, &message).map_err(|error| error.on(name))?;
    Ok(())
}

/// Moves an interface to another network namespace. There it is down, without addresses.
pub fn set_namespace(name: &str, namespace: BorrowedFd<'_>) -> Result<()> {
    let mut message = to_index(index(name)?);
    message.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    let what = "move to another network namespace";
    request(what, libc::RTM_NEWLINK, 0, &message).map_err(|error| error.on(name))?;
    Ok(())
}
