//! rtnetlink: links, addresses, routes and neighbours of the calling thread's network namespace.
//!
//! Requests are built from the typed messages of `netlink-packet-route`. Messages of the kernel are kept as
//! bytes and read attribute by attribute, so that attributes unknown to this crate survive a round trip (see
//! [`saved`]).

pub mod address;
pub mod interface;
pub mod link;
pub mod monitor;
pub mod neighbour;
pub mod netconf;
pub mod qdisc;
pub mod route;
pub mod saved;
pub mod watch;

use std::borrow::Cow;
use std::io;

use netlink_packet_core::{Emitable, NetlinkBuffer, NetlinkHeader, NlasIterator};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Error, Result};

pub(crate) use netlink_packet_core::NLM_F_DUMP;

/// Larger than any single rtnetlink message; dumps come in datagrams of at most 32 KiB.
const RECEIVE_BUFFER: usize = 1 << 16;
/// How often a dump that changed while it was read is read again.
const DUMP_ATTEMPTS: usize = 8;
/// `NLMSGERR_ATTR_MSG`: the kernel's message in an extended acknowledgement.
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLA_HEADER: usize = 4;
const NLMSG_HEADER: usize = 16;

/// The kernel's refusal of a request.
struct Refusal {
    cause: io::Error,
    words: Option<String>,
}

impl From<io::Error> for Refusal {
    fn from(cause: io::Error) -> Self {
        Self { cause, words: None }
    }
}

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
    let answers = Connection::open()
        .map_err(Refusal::from)
        .and_then(|mut connection| connection.request(kind, flags, payload));
    answers.map_err(|refusal| Error::new(what, refusal.cause).because(refusal.words))
}

/// A netlink socket of the namespace that the thread was in when it was opened.
struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Older kernels lack these; then errors have no message.
        socket.set_ext_ack(true).ok();
        socket.set_cap_ack(true).ok();
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request and collects its answers up to the acknowledgement or the end of the dump.
    fn request(
        &mut self,
        kind: u16,
        flags: u16,
        payload: &[u8],
    ) -> std::result::Result<Vec<Vec<u8>>, Refusal> {
        for _ in 0..DUMP_ATTEMPTS {
            self.send(kind, flags, payload)?;
            if let Some(answers) = self.receive()? {
                return Ok(answers);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EINTR).into())
    }

    fn send(&mut self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.length = (NLMSG_HEADER + payload.len()) as u32;
        header.message_type = kind;
        header.flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16 | flags;
        header.sequence_number = self.sequence;
        let mut message = vec![0; NLMSG_HEADER];
        header.emit(&mut message);
        message.extend_from_slice(payload);
        self.socket.send(&message, 0).map(drop)
    }

    /// Receives answers; `None` if the kernel reports that the dump is inconsistent (`NLM_F_DUMP_INTR`).
    fn receive(&mut self) -> std::result::Result<Option<Vec<Vec<u8>>>, Refusal> {
        let mut answers = Vec::new();
        let mut consistent = true;
        let mut datagram = Vec::with_capacity(RECEIVE_BUFFER);
        loop {
            datagram.clear();
            self.socket.recv(&mut datagram, 0)?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let message = NetlinkBuffer::new_checked(rest).map_err(|_| malformed())?;
                let (kind, payload) = (message.message_type(), message.payload());
                let length = (message.length() as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or(&[]);
                if message.sequence_number() != self.sequence {
                    continue;
                }
                consistent &= message.flags() & libc::NLM_F_DUMP_INTR as u16 == 0;
                match kind as libc::c_int {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                        refusal(kind, message.flags(), payload)?;
                        return Ok(consistent.then_some(answers));
                    }
                    libc::NLMSG_NOOP => {}
                    _ => answers.push(payload.to_vec()),
                }
            }
        }
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed netlink message from the kernel")
}

/// The result in an `NLMSG_ERROR` or `NLMSG_DONE`: zero is success, else a negative `errno`.
fn refusal(kind: u16, flags: u16, payload: &[u8]) -> std::result::Result<(), Refusal> {
    let code = payload.get(..4).and_then(number).unwrap_or(0) as i32;
    if code >= 0 {
        return Ok(());
    }
    let explained = flags & netlink_packet_core::NLM_F_ACK_TLVS != 0;
    // An error repeats the header of the request before its attributes (NETLINK_CAP_ACK).
    let skip = if kind as libc::c_int == libc::NLMSG_ERROR { 4 + NLMSG_HEADER } else { 4 };
    let words = attributes(payload, skip)
        .find(|(kind, _)| explained && *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, value)| text(value));
    Err(Refusal { cause: io::Error::from_raw_os_error(-code), words })
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
