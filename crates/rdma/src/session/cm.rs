//! What the connection manager tells an application.

use core::net::SocketAddr;

use super::message::{Reply, address_of, halves, pair, words_of};

/// What has happened, by the numbers of `rdma_cm_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The peer's address has a way to it.
    AddrResolved = 0,
    /// It has none.
    AddrError = 1,
    /// As `AddrResolved`: the kernel routes.
    RouteResolved = 2,
    /// The kernel has no route any more.
    RouteError = 3,
    /// A peer wants to connect.
    ConnectRequest = 4,
    /// Connection set-up has failed.
    ConnectError = 6,
    /// The peer does not answer.
    Unreachable = 7,
    /// The peer, or its application, refuses.
    Rejected = 8,
    /// There is a connection.
    Established = 9,
    /// It is over.
    Disconnected = 10,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::AddrResolved,
        Kind::AddrError,
        Kind::RouteResolved,
        Kind::RouteError,
        Kind::ConnectRequest,
        Kind::ConnectError,
        Kind::Unreachable,
        Kind::Rejected,
        Kind::Established,
        Kind::Disconnected,
    ];
}

/// An event (`rdma_cm_event`), but its private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmEvent {
    /// What has happened.
    pub kind: Kind,
    /// The errno(3) of an error, or the reason of a rejection.
    pub status: u32,
    /// The identifier that it is about; of a [`Kind::ConnectRequest`] a new one.
    pub id: u32,
    /// The one that listens, of a [`Kind::ConnectRequest`].
    pub listener: u32,
    /// Inbound reads at once that are offered (`responder_resources`).
    pub ird: u16,
    /// Outbound reads at once that are asked for (`initiator_depth`).
    pub ord: u16,
    /// The identifier's own address.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub remote: Option<SocketAddr>,
}

impl CmEvent {
    /// As a reply, with private data.
    pub fn encode(&self, private_data: &[u8]) -> Reply {
        let ([a, b, c], [d, e, f]) = (words_of(self.local), words_of(self.remote));
        let first = pair(self.kind as u32, self.status);
        let (ids, reads) = (pair(self.id, self.listener), pair(self.ird.into(), self.ord.into()));
        let words = [first, ids, reads, a, b, c, d, e, f];
        Reply { bytes: private_data.to_vec(), ..Reply::done(words) }
    }

    /// From a reply.
    pub fn decode(reply: &Reply) -> Option<Self> {
        let [first, ids, reads, a, b, c, d, e, f, _] = reply.words;
        let ((number, status), (id, listener)) = (halves(first), halves(ids));
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == number)?;
        let (ird, ord) = halves(reads);
        let (ird, ord) = (ird as u16, ord as u16);
        let (local, remote) = (address_of([a, b, c]), address_of([d, e, f]));
        Some(CmEvent { kind, status, id, listener, ird, ord, local, remote })
    }
}
