//! Connection set-up: who says what before full operation (RFC 5044 section 7.1, RFC 6581 section 9).

use alloc::vec::Vec;
use core::fmt;

use super::frame::{
    ENHANCED_LEN, Enhanced, Frame, FrameError, Kind, NOT_NEGOTIATED, PRIVATE_DATA_MAX, Rtr,
    RtrKinds,
};
use super::framing::alone;
use crate::ddp::{QUEUE_TERMINATE, Untagged};
use crate::rdmap::Opcode;
use crate::rdmap::terminate::{Cause, Llp, TERMINATE_MAX, Terminate};

/// What one side wants of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The revision of MPA that is spoken: 1 (RFC 5044) or 2 (RFC 6581).
    pub revision: u8,
    /// Whether this side wants markers in what it receives.
    pub markers: bool,
    /// Whether this side wants CRCs. They are used if either side does.
    pub crc: bool,
    /// Inbound reads and atomics that this side takes at once.
    pub ird: u16,
    /// Outbound reads and atomics that this side has at once.
    pub ord: u16,
    /// Initiator, revision 2: either side may send first (RFC 6581 section 9.1, the flag A).
    pub peer_to_peer: bool,
    /// Initiator: the messages with which it can say that it is ready. Responder: those that it takes.
    pub rtr: RtrKinds,
}

impl Default for Config {
    /// Revision 2 as librdmacm's users want it: CRC, no markers, peer-to-peer by a write or a read.
    fn default() -> Self {
        Self {
            revision: 2,
            markers: false,
            crc: true,
            ird: 16,
            ord: 16,
            peer_to_peer: true,
            rtr: RtrKinds { send: false, write: true, read: true },
        }
    }
}

/// Which side began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It sent the request.
    Initiator,
    /// It sent the reply.
    Responder,
}

/// What both sides have agreed on: what full operation needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// The side that this is.
    pub role: Role,
    /// Markers in what is received.
    pub markers_in: bool,
    /// Markers in what is sent.
    pub markers_out: bool,
    /// CRCs, both ways.
    pub crc: bool,
    /// Inbound reads and atomics at once; one more ends the connection.
    pub ird: u16,
    /// Outbound reads and atomics at once; more wait.
    pub ord: u16,
    /// How the initiator says that it is ready, before anything else.
    pub rtr: Option<Rtr>,
}

/// Why there is no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartupError {
    /// What the peer sent is no frame.
    Frame(FrameError),
    /// The peer speaks a revision that this side does not.
    Revision(u8),
    /// The responder rejects the connection.
    Rejected,
    /// The answer to an enhanced request is not enhanced (RFC 6581 section 9).
    NotEnhanced,
    /// The responder has more outbound reads than this side takes (RFC 6581 section 9.1).
    InsufficientIrd,
    /// The responder chose no message for being ready that this side has offered (RFC 6581 section 9.2).
    NoMatchingRtr,
    /// The private data are too long: 512 bytes, or 508 with revision 2.
    PrivateData,
    /// Bytes of the peer's before it may send any.
    Early,
}

impl StartupError {
    /// What the peer is told by a Terminate message, before the connection is closed (RFC 6581 section 8).
    pub fn cause(self) -> Option<Cause> {
        match self {
            StartupError::InsufficientIrd => Some(Cause::Llp(Llp::InsufficientIrd)),
            StartupError::NoMatchingRtr => Some(Cause::Llp(Llp::NoMatchingRtr)),
            _ => None,
        }
    }
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartupError::Frame(error) => error.fmt(f),
            StartupError::Revision(revision) => {
                write!(f, "the peer speaks MPA revision {revision}; try the other of 1 and 2")
            }
            StartupError::Rejected => f.write_str("the peer rejects the connection"),
            StartupError::NotEnhanced => {
                f.write_str("the peer does not answer to enhanced set-up; try MPA revision 1")
            }
            StartupError::InsufficientIrd => {
                f.write_str("the peer wants more reads at once than IRD allows; raise it")
            }
            StartupError::NoMatchingRtr => {
                f.write_str("the peer takes none of the ready-to-receive messages offered")
            }
            StartupError::PrivateData => f.write_str("private data are too long"),
            StartupError::Early => {
                f.write_str("the peer sent data before connection set-up was over")
            }
        }
    }
}

impl core::error::Error for StartupError {}

impl From<FrameError> for StartupError {
    fn from(error: FrameError) -> Self {
        StartupError::Frame(error)
    }
}

/// The private data must fit beside what enhanced set-up takes.
fn fits(private_data: &[u8], is_enhanced: bool) -> Result<(), StartupError> {
    let extra = if is_enhanced { ENHANCED_LEN } else { 0 };
    if private_data.len() + extra > PRIVATE_DATA_MAX {
        return Err(StartupError::PrivateData);
    }
    Ok(())
}

/// The side that opens the connection. It sends [`request`](Self::request), and gives what comes back to
/// [`receive`](Self::receive).
#[derive(Clone, Copy, Debug)]
pub struct Initiator {
    config: Config,
}

/// What a responder has answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// What both have agreed on.
    pub negotiated: Negotiated,
    /// The responder's private data.
    pub private_data: Vec<u8>,
    /// The length of the reply: what is behind it in the stream is an FPDU.
    pub consumed: usize,
}

impl Initiator {
    /// An initiator that wants this.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// The request, which is all that the initiator sends until the reply has come (RFC 5044 section 7.1).
    ///
    /// # Errors
    /// [`StartupError::PrivateData`].
    pub fn request(&self, private_data: &[u8]) -> Result<Vec<u8>, StartupError> {
        let Config { revision, markers, crc, ird, ord, peer_to_peer, rtr } = self.config;
        let enhanced = (revision >= 2).then(|| {
            let rtr = if peer_to_peer { rtr } else { RtrKinds::default() };
            Enhanced { ird, ord, peer_to_peer, rtr }
        });
        fits(private_data, enhanced.is_some())?;
        let kind = Kind::Request;
        Ok(Frame { kind, markers, crc, reject: false, revision, enhanced, private_data }.encode())
    }

    /// What the stream has so far: `None` until the reply is whole.
    ///
    /// # Errors
    /// See [`StartupError`]; the connection is to be closed then, after [`StartupError::cause`] has been told.
    /// A reject comes with the responder's private data: [`reject_data`](Self::reject_data).
    pub fn receive(&self, bytes: &[u8]) -> Result<Option<Accepted>, StartupError> {
        let Some((reply, consumed)) = Frame::parse(Kind::Reply, bytes)? else { return Ok(None) };
        if reply.reject {
            // A responder of revision 1 rejects revision 2 like this (RFC 6581 section 10).
            if self.config.revision >= 2 && reply.revision < 2 {
                return Err(StartupError::Revision(reply.revision));
            }
            return Err(StartupError::Rejected);
        }
        if reply.revision != self.config.revision {
            return Err(StartupError::Revision(reply.revision));
        }
        let (ird, ord, rtr) = match (self.config.revision >= 2, reply.enhanced) {
            (true, Some(enhanced)) => self.agree(enhanced)?,
            (true, None) => return Err(StartupError::NotEnhanced),
            (false, _) => (self.config.ird, self.config.ord, None),
        };
        let negotiated = Negotiated {
            role: Role::Initiator,
            markers_in: self.config.markers,
            // RFC 5044 section 7.1.1: a sender MUST insert markers if the receiver's M says so.
            markers_out: reply.markers,
            // RFC 5044 section 7.1.1: CRCs MUST be used if either side asks for them.
            crc: self.config.crc || reply.crc,
            ird,
            ord,
            rtr,
        };
        let private_data = reply.private_data.to_vec();
        Ok(Some(Accepted { negotiated, private_data, consumed }))
    }

    /// The private data of a reject that [`receive`](Self::receive) has told of.
    pub fn reject_data<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match Frame::parse(Kind::Reply, bytes) {
            Ok(Some((reply, _))) => reply.private_data,
            _ => &[],
        }
    }

    /// What is sent before the connection is closed because of an error in a reply: a Terminate message if the
    /// error has one (RFC 6581 section 8), else nothing.
    pub fn last_words(&self, reply: &[u8], error: StartupError) -> Vec<u8> {
        let Ok(Some((reply, _))) = Frame::parse(Kind::Reply, reply) else { return Vec::new() };
        let Some(cause) = error.cause() else { return Vec::new() };
        let header = Untagged {
            last: true,
            ulp: Opcode::Terminate.control(),
            ulp_word: 0,
            queue: QUEUE_TERMINATE,
            msn: 1,
            offset: 0,
        };
        let mut ulpdu = header.encode().to_vec();
        ulpdu.extend_from_slice(Terminate::new(cause, None).encode(&mut [0; TERMINATE_MAX]));
        alone(&ulpdu, reply.markers, self.config.crc || reply.crc)
    }

    /// IRD, ORD and the ready message (RFC 6581 sections 9.1 and 9.2).
    fn agree(&self, reply: Enhanced) -> Result<(u16, u16, Option<Rtr>), StartupError> {
        let Config { ird, ord, peer_to_peer, rtr, .. } = self.config;
        // The responder's ORD must not be over this side's IRD.
        if reply.ord != NOT_NEGOTIATED && reply.ord > ird {
            return Err(StartupError::InsufficientIrd);
        }
        // This side's ORD must not be over the responder's IRD.
        let ord = if reply.ird == NOT_NEGOTIATED { ord } else { ord.min(reply.ird) };
        if !peer_to_peer {
            return Ok((ird, ord, None));
        }
        // RFC 6581 section 9.2: none in common, and the initiator MUST say so.
        let chosen = reply.rtr.and(rtr).preferred().ok_or(StartupError::NoMatchingRtr)?;
        Ok((ird, ord, Some(chosen)))
    }
}

/// The side that waits. It gives what comes to [`receive`](Self::receive), and sends nothing before that has
/// returned a request and the application has decided (RFC 5044 section 7.1).
#[derive(Clone, Copy, Debug)]
pub struct Responder {
    config: Config,
}

/// A connection that waits for the application's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    config: Config,
    revision: u8,
    markers: bool,
    crc: bool,
    enhanced: Option<Enhanced>,
    /// The initiator's private data.
    pub private_data: Vec<u8>,
}

impl Responder {
    /// A responder that wants this.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// What the stream has so far: `None` until the request is whole.
    ///
    /// # Errors
    /// See [`StartupError`]; the connection is to be closed then, after [`refusal`](Self::refusal) was sent if
    /// the error is [`StartupError::Revision`].
    pub fn receive(&self, bytes: &[u8]) -> Result<Option<Request>, StartupError> {
        let Some((request, consumed)) = Frame::parse(Kind::Request, bytes)? else {
            return Ok(None);
        };
        if request.revision == 0 || request.revision > self.config.revision {
            return Err(StartupError::Revision(request.revision));
        }
        // RFC 5044 section 7.1.2: the initiator MUST NOT send more before it has the reply.
        if consumed != bytes.len() {
            return Err(StartupError::Early);
        }
        Ok(Some(Request {
            config: self.config,
            revision: request.revision,
            markers: request.markers,
            crc: request.crc,
            enhanced: request.enhanced,
            private_data: request.private_data.to_vec(),
        }))
    }

    /// The reply to a request of a revision that this side does not speak: a reject of the one that it does.
    pub fn refusal(&self) -> Vec<u8> {
        let Config { revision, markers, crc, .. } = self.config;
        let frame = Frame {
            kind: Kind::Reply,
            markers,
            crc,
            reject: true,
            revision,
            enhanced: None,
            private_data: &[],
        };
        frame.encode()
    }
}

impl Request {
    /// The IRD and ORD that an acceptance would give this side, so that an application can ask for less.
    pub fn resources(&self) -> (u16, u16) {
        let Some(theirs) = self.enhanced else { return (self.config.ird, self.config.ord) };
        let least =
            |own: u16, other: u16| if other == NOT_NEGOTIATED { own } else { own.min(other) };
        // Their ORD asks for this side's IRD, their IRD bounds this side's ORD (RFC 6581 section 9.1).
        (least(self.config.ird, theirs.ord), least(self.config.ord, theirs.ird))
    }

    /// The reply that accepts, and what both have agreed on. `ird` and `ord` are the application's; what
    /// [`resources`](Self::resources) says bounds them.
    ///
    /// # Errors
    /// [`StartupError::PrivateData`].
    pub fn accept(
        &self,
        ird: u16,
        ord: u16,
        private_data: &[u8],
    ) -> Result<(Vec<u8>, Negotiated), StartupError> {
        let (ird_most, ord_most) = self.resources();
        let (ird, ord) = (ird.min(ird_most), ord.min(ord_most));
        let enhanced = self.enhanced.map(|theirs| self.answer(theirs, ird, ord));
        let rtr = enhanced.filter(|own| own.peer_to_peer).and_then(|own| own.rtr.preferred());
        let crc = self.config.crc || self.crc;
        let reply = self.reply(false, crc, enhanced, private_data)?;
        let negotiated = Negotiated {
            role: Role::Responder,
            markers_in: self.config.markers,
            markers_out: self.markers,
            crc,
            ird,
            ord,
            rtr,
        };
        Ok((reply, negotiated))
    }

    /// The reply that rejects. The connection is closed behind it.
    ///
    /// # Errors
    /// [`StartupError::PrivateData`].
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, StartupError> {
        let (ird, ord) = self.resources();
        let enhanced = self.enhanced.map(|theirs| self.answer(theirs, ird, ord));
        self.reply(true, self.config.crc || self.crc, enhanced, private_data)
    }

    /// One ready message of those that the initiator offers. If it offers none that this side takes, this side
    /// proposes a write, as Linux siw does: the initiator decides (RFC 6581 section 9.2).
    fn answer(&self, theirs: Enhanced, ird: u16, ord: u16) -> Enhanced {
        if !theirs.peer_to_peer {
            return Enhanced { ird, ord, ..Enhanced::default() };
        }
        let chosen = theirs.rtr.and(self.config.rtr).preferred().unwrap_or(Rtr::Write);
        Enhanced { ird, ord, peer_to_peer: true, rtr: chosen.into() }
    }

    fn reply(
        &self,
        reject: bool,
        crc: bool,
        enhanced: Option<Enhanced>,
        private_data: &[u8],
    ) -> Result<Vec<u8>, StartupError> {
        fits(private_data, enhanced.is_some())?;
        let frame = Frame {
            kind: Kind::Reply,
            markers: self.config.markers,
            crc,
            reject,
            // RFC 6581 section 9: the reply has the request's revision.
            revision: self.revision,
            enhanced,
            private_data,
        };
        Ok(frame.encode())
    }
}
