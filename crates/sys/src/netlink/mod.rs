//! rtnetlink: links, addresses, routes and neighbours of the calling thread's network namespace.
//!
//! Requests are built from the typed messages of `netlink-packet-route`. Messages of the kernel are kept as
//! bytes and read attribute by attribute, so that attributes unknown to this crate survive a round trip (see
//! [`saved`]).

pub mod address;
pub mod changes;
mod connection;
pub mod conntrack;
pub mod diag;
pub mod interface;
pub mod link;
pub mod monitor;
pub mod neighbour;
pub mod netconf;
pub mod nftables;
pub mod qdisc;
pub mod route;
pub mod saved;
pub mod sockets;
pub mod traffic;
pub mod watch;
pub mod xfrm;

use std::borrow::Cow;

use netlink_packet_core::{Emitable, NlasIterator};

pub use self::connection::{Connection, Protocol};

use crate::{Error, Result};

pub(crate) use netlink_packet_core::NLM_F_DUMP;

/// Larger than any single rtnetlink message; dumps come in datagrams of at most 32 KiB.
const RECEIVE_BUFFER: usize = 1 << 16;
const NLA_HEADER: usize = 4;

/// Sends one typed message and returns the messages that answer it, without their netlink headers.
/// `what` reads after the word "cannot".
pub(crate) fn request(
    what: impl Into<Cow<'static, str>>,
    kind: u16,
    flags: u16,
    message: &impl Emitable,
) -> Result<Vec<Vec<u8>>> {
    let mut payload = vec![0; message.buffer_len()];
    message.emit(&mut payload);
    request_raw(what, kind, flags, &payload)
}

/// Like [`request`], with a message that is bytes already.
fn request_raw(
    what: impl Into<Cow<'static, str>>,
    kind: u16,
    flags: u16,
    payload: &[u8],
) -> Result<Vec<Vec<u8>>> {
    let what = what.into();
    match Connection::open(Protocol::Route) {
        Ok(mut connection) => connection.request(what, kind, flags, payload),
        Err(cause) => Err(Error::new(what, cause)),
    }
}

/// The attributes of a message behind a header of `skip` bytes, types without their flag bits. A
/// malformed attribute ends them.
pub(crate) fn attributes(message: &[u8], skip: usize) -> impl Iterator<Item = (u16, &[u8])> {
    raw_attributes(message, skip).map(|attribute| {
        let kind = u16::from_ne_bytes([attribute[2], attribute[3]]);
        (kind & netlink_packet_core::NLA_TYPE_MASK, &attribute[NLA_HEADER..])
    })
}

/// The attributes as bytes, header included, padding excluded.
fn raw_attributes(message: &[u8], skip: usize) -> impl Iterator<Item = &[u8]> {
    let body = message.get(skip.next_multiple_of(4)..).unwrap_or(&[]);
    NlasIterator::new(body).map_while(|attribute| {
        let attribute = attribute.ok()?;
        attribute.into_inner().get(..usize::from(attribute.length()))
    })
}

/// What [`edit`] does with an attribute.
enum Edit {
    Keep,
    Drop,
    Replace(Vec<u8>),
}

/// A copy of a message, each attribute behind the header of `skip` bytes kept byte for byte,
/// dropped, or given a new value.
fn edit(message: &[u8], skip: usize, mut how: impl FnMut(u16, &[u8]) -> Edit) -> Vec<u8> {
    let mut copy = message[..skip.min(message.len())].to_vec();
    for attribute in raw_attributes(message, skip) {
        let kind = u16::from_ne_bytes([attribute[2], attribute[3]]);
        let value = &attribute[NLA_HEADER..];
        match how(kind & netlink_packet_core::NLA_TYPE_MASK, value) {
            Edit::Keep => append(&mut copy, kind, value),
            Edit::Replace(value) => append(&mut copy, kind, &value),
            Edit::Drop => {}
        }
    }
    copy
}

/// Appends an attribute and the padding behind it. Attribute values are under 64 KiB by format.
fn append(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&((NLA_HEADER + value.len()) as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Whether the kernel knows nothing of what it was asked for: the module is not there.
fn is_absent(error: &Error) -> bool {
    matches!(
        error.errno(),
        Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EINVAL | libc::ENOENT)
    )
}

/// The name of the interface with this index for an error's text, or the index if it has none.
fn name_of(index: u32) -> String {
    match interface::Interface::by_index(index) {
        Ok(interface) => interface.name,
        Err(_) => format!("#{index}"),
    }
}

/// A 32-bit attribute, in the kernel's byte order.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// A string attribute, with or without the NUL at its end.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}
