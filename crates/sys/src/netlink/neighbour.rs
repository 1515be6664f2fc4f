//! Static neighbours: permanent entries, and proxy entries; and, by themselves, those that the kernel has resolved.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};

use super::address::ip;
use super::{Connection, Edit, attributes, edit, number, request_raw};
use crate::Result;

/// linux/neighbour.h.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_IFINDEX: u16 = 8;
const NDA_PROTOCOL: u16 = 12;
const NUD_PERMANENT: u16 = 0x80;
const NUD_FAILED: u16 = 0x20;
const NUD_STALE: u16 = 0x04;
/// Those of which an Ethernet address is known: reachable, stale, delay and probe.
const NUD_RESOLVED: u16 = 0x02 | NUD_STALE | 0x08 | 0x10;
const NTF_USE: u8 = 1;
const NTF_PROXY: u8 = 8;
/// `struct ndmsg`: family, padding, interface index, state, flags, type.
pub(super) const NDMSG: usize = 12;

/// A neighbour as the kernel reported it (`RTM_NEWNEIGH`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Neighbour {
    ip: IpAddr,
    message: Vec<u8>,
}

impl Neighbour {
    /// Takes a message of the kernel's, or a saved one; `None` if it is not a static neighbour.
    pub(super) fn new(message: Vec<u8>) -> Option<Self> {
        let destination = find_destination(&message)?;
        let this = Self { ip: destination, message };
        (this.is_proxy() || this.state() & NUD_PERMANENT != 0).then_some(this)
    }

    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The index of its interface.
    pub fn index(&self) -> u32 {
        index_of(&self.message).unwrap_or(0)
    }

    fn state(&self) -> u16 {
        state_of(&self.message)
    }

    fn is_proxy(&self) -> bool {
        self.message[10] & NTF_PROXY != 0
    }

    /// The same for another interface.
    fn moved(&self, to: u32) -> Vec<u8> {
        moved(&self.message, to)
    }
}

/// A message about any neighbour, for another interface.
fn moved(message: &[u8], to: u32) -> Vec<u8> {
    // Time stamps and counts of probes belong to the kernel.
    let mut message = edit(message, NDMSG, |kind, _| match kind {
        NDA_DST | NDA_LLADDR | NDA_PROTOCOL => Edit::Keep,
        _ => Edit::Drop,
    });
    message[4..8].copy_from_slice(&to.to_ne_bytes());
    message
}

fn state_of(message: &[u8]) -> u16 {
    message.get(8..10).map_or(0, |state| u16::from_ne_bytes([state[0], state[1]]))
}

/// The address in a message about any neighbour.
pub(super) fn find_destination(message: &[u8]) -> Option<IpAddr> {
    (message.len() >= NDMSG).then_some(())?;
    attributes(message, NDMSG).find(|(kind, _)| *kind == NDA_DST).and_then(|(_, value)| ip(value))
}

/// The interface in a message about any neighbour.
pub(super) fn index_of(message: &[u8]) -> Option<u32> {
    message.get(4..8).and_then(number)
}

/// The static neighbours of the interface with this index.
pub fn list(index: u32) -> Result<Vec<Neighbour>> {
    let mut neighbours = Vec::new();
    for flags in [0, NTF_PROXY] {
        neighbours.extend(messages(index, flags)?.into_iter().filter_map(Neighbour::new));
    }
    Ok(neighbours)
}

/// What the kernel says of the neighbours of an interface.
fn messages(index: u32, flags: u8) -> Result<Vec<Vec<u8>>> {
    let mut all = vec![0; NDMSG];
    all[10] = flags;
    super::append(&mut all, NDA_IFINDEX, &index.to_ne_bytes());
    let mut replies = request_raw("list the neighbours", libc::RTM_GETNEIGH, NLM_F_DUMP, &all)?;
    // Old kernels ignore the index.
    replies.retain(|message| index_of(message) == Some(index));
    Ok(replies)
}

/// Neighbours that the kernel has resolved at an interface.
///
/// Another interface that gets its addresses would ask for them anew: until the answer comes packets wait, those behind
/// them may pass them, and a question that is lost is asked again after a second.
#[derive(Debug, Default)]
pub struct Resolved(Vec<Vec<u8>>);

impl Resolved {
    /// Those of the interface with this index; none, if they cannot be told.
    pub fn of(index: u32) -> Self {
        let mut all = messages(index, 0).unwrap_or_default();
        all.retain(|message| {
            state_of(message) & NUD_RESOLVED != 0 && find_ethernet(message).is_some()
        });
        Resolved(all)
    }

    /// Tells another interface of them, which looks whether they are still there once it has used them (`NUD_STALE`, RFC
    /// 4861 section 7.3.2). What it knows stays, and what it refuses it asks for itself. It is to be told before it has the
    /// addresses, or packets wait already.
    pub fn tell(&self, to: u32) {
        for message in &self.0 {
            let mut message = moved(message, to);
            message[8..10].copy_from_slice(&NUD_STALE.to_ne_bytes());
            message[10] = 0;
            let _ = request_raw("tell of a neighbour", libc::RTM_NEWNEIGH, NLM_F_CREATE, &message);
        }
    }
}

/// The Ethernet address in a message about any neighbour.
pub(super) fn find_ethernet(message: &[u8]) -> Option<[u8; 6]> {
    (message.len() >= NDMSG).then_some(())?;
    let (_, address) = attributes(message, NDMSG).find(|(kind, _)| *kind == NDA_LLADDR)?;
    address.try_into().ok()
}

/// Whether a message about any neighbour says that it does not answer.
pub(super) fn has_failed(message: &[u8]) -> bool {
    state_of(message) & NUD_FAILED != 0
}

/// A message about the neighbour with this address.
fn about(index: u32, ip: IpAddr, flags: u8) -> Vec<u8> {
    let (family, octets) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let mut message = vec![0; NDMSG];
    message[0] = family as u8;
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message[10] = flags;
    super::append(&mut message, NDA_DST, &octets);
    message
}

/// The Ethernet address of a neighbour, as far as the kernel knows it. The connection is one of [`Protocol::Route`].
///
/// [`Protocol::Route`]: super::Protocol::Route
///
/// # Errors
/// What netlink says; that it is not known is none.
pub fn ethernet_address(
    connection: &mut Connection,
    index: u32,
    ip: IpAddr,
) -> Result<Option<[u8; 6]>> {
    let what = "find a neighbour";
    match connection.request(what, libc::RTM_GETNEIGH, 0, &about(index, ip, 0)) {
        Ok(answers) => Ok(answers.iter().find_map(|message| find_ethernet(message))),
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has the kernel take a neighbour for one that is in use: it asks for its Ethernet address, or whether it still has
/// that, when it would for a packet (`ip neighbour add ... use`). The connection is one of [`Protocol::Route`].
///
/// [`Protocol::Route`]: super::Protocol::Route
///
/// # Errors
/// What netlink says.
pub fn keep_fresh(connection: &mut Connection, index: u32, ip: IpAddr) -> Result<()> {
    let (what, message) = ("use a neighbour", about(index, ip, NTF_USE));
    connection.request(what, libc::RTM_NEWNEIGH, NLM_F_CREATE, &message).map(drop)
}

/// Adds a saved neighbour to an interface, in place of one with the same address.
pub(super) fn restore(neighbour: &Neighbour, to: u32) -> Result<()> {
    let what = format!("add the neighbour {} to", neighbour.ip());
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    request_raw(what, libc::RTM_NEWNEIGH, flags, &neighbour.moved(to))
        .map_err(|error| error.on(super::name_of(to)))?;
    Ok(())
}

/// Deletes a saved neighbour from its own interface. It is no error if it is gone already.
pub(super) fn remove(neighbour: &Neighbour) -> Result<()> {
    let index = neighbour.index();
    let what = format!("delete the neighbour {} of", neighbour.ip());
    match request_raw(what, libc::RTM_DELNEIGH, 0, &neighbour.moved(index)) {
        Err(error) if error.errno() != Some(libc::ENOENT) => Err(error.on(super::name_of(index))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(state: u16, flags: u8) -> Vec<u8> {
        let mut message = vec![2, 0, 0, 0, 3, 0, 0, 0, 0, 0, flags, 0];
        message[8..10].copy_from_slice(&state.to_ne_bytes());
        super::super::append(&mut message, NDA_DST, &[10, 0, 0, 1]);
        super::super::append(&mut message, NDA_LLADDR, &[2, 0, 0, 0, 0, 1]);
        message
    }

    #[test]
    fn only_static_neighbours_count() {
        const NUD_REACHABLE: u16 = 2;
        assert!(Neighbour::new(message(NUD_PERMANENT, 0)).is_some());
        assert!(Neighbour::new(message(0, NTF_PROXY)).is_some());
        assert_eq!(Neighbour::new(message(NUD_REACHABLE, 0)), None);
        assert_eq!(Neighbour::new(vec![2, 0, 0]), None);
    }

    #[test]
    fn a_move_changes_the_interface_and_drops_the_kernels_counts() {
        let mut counted = message(NUD_PERMANENT, 0);
        super::super::append(&mut counted, 3, &[0; 16]);
        let mut expected = message(NUD_PERMANENT, 0);
        expected[4] = 9;
        assert_eq!(Neighbour::new(counted).unwrap().moved(9), expected);
    }
}
