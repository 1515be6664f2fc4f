//! Questions to the kernel by netlink, and its answers.

use std::borrow::Cow;
use std::io;

use netlink_packet_core::{Emitable, NetlinkBuffer, NetlinkHeader};
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_XFRM};
use netlink_sys::{Socket, SocketAddr};

use super::{RECEIVE_BUFFER, attributes, number, text};
use crate::{Error, Result};

/// How often a dump that changed while it was read is read again.
const DUMP_ATTEMPTS: usize = 8;
/// `NLMSGERR_ATTR_MSG`: the kernel's message in an extended acknowledgement.
const NLMSGERR_ATTR_MSG: u16 = 1;
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

/// What a netlink socket is for (`NETLINK_ROUTE` and others, linux/netlink.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Links, addresses, routes, neighbours, tc: rtnetlink(7).
    Route,
    /// Sockets: sock_diag(7).
    Diag,
    /// IPsec: ip-xfrm(8).
    Xfrm,
    /// nftables and conntrack.
    Netfilter,
}

impl Protocol {
    pub(super) fn number(self) -> isize {
        match self {
            Protocol::Route => NETLINK_ROUTE,
            Protocol::Diag => NETLINK_SOCK_DIAG,
            Protocol::Xfrm => NETLINK_XFRM,
            Protocol::Netfilter => NETLINK_NETFILTER,
        }
    }
}

/// A netlink socket of the network namespace that the thread was in when it was opened, for one request after the
/// other.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    /// Opens one.
    ///
    /// # Errors
    /// What socket(2) says: `EPROTONOSUPPORT` if the kernel does not know the protocol.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let socket = Socket::new(protocol.number())?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Older kernels lack these; then errors have no message.
        socket.set_ext_ack(true).ok();
        socket.set_cap_ack(true).ok();
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request and collects its answers, without their netlink headers, up to the acknowledgement or the end
    /// of the dump. `what` reads after the word "cannot".
    pub(super) fn request(
        &mut self,
        what: impl Into<Cow<'static, str>>,
        kind: u16,
        flags: u16,
        payload: &[u8],
    ) -> Result<Vec<Vec<u8>>> {
        let answers = self.answers(kind, flags, payload);
        answers.map_err(|refusal| Error::new(what, refusal.cause).because(refusal.words))
    }

    fn answers(
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
