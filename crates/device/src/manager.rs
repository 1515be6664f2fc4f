//! The connection manager: identifiers (`rdma_cm_id`) and connection set-up over TCP.
//!
//! ```text
//!   Idle ── bind, resolve ──> Bound ── listen ──> Listening ── a connection, its request ──> Asked, Requested
//!                               └── connect ──> Connecting ── Asking ── the reply ──┐          │ accept
//!                                                                                   v          v
//!                                                                     Connected: the stream is the queue pair's
//! ```

mod events;
mod options;
mod places;
mod set_up;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rdma::mpa::startup::Request;
use rdma::mpa::{Config, Initiator, Negotiated};
use rdma::session::cm::Kind;
use rdma::session::message::Connect;
use rdma::verbs::Qp;
use sys::epoll::Epoll;
use sys::poll::Interest;
use wire::Nanos;

use crate::carrier::Carrier;
use crate::outlet::Outlets;
use crate::token::Token;
use options::Options;
use places::{Place, Places};

/// How long connection set-up may take, as with Linux siw (`MPAREQ_TIMEOUT` and `MPAREP_TIMEOUT`).
const SET_UP_MAX: Nanos = 10_000_000_000;
/// Most identifiers of a process. Connections that nobody has answered yet are counted apart (`places`).
const IDS_MAX: usize = 16_384;

/// Errors as errno(3) of Linux.
pub(crate) mod errno {
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOMEM: i32 = 12;
    pub(crate) const ENOSYS: i32 = 38;
    pub(crate) const EPROTO: i32 = 71;
    pub(crate) const ECONNRESET: i32 = 104;
    pub(crate) const ETIMEDOUT: i32 = 110;
    pub(crate) const ECONNREFUSED: i32 = 111;
    pub(crate) const EISCONN: i32 = 106;
    pub(crate) const ENOTCONN: i32 = 107;
}

/// What an identifier is at.
#[derive(Debug)]
enum Phase {
    Idle,
    Bound(OwnedFd),
    Listening(TcpListener, Places),
    /// TCP is not connected yet.
    Connecting(TcpStream, Ask),
    /// The request is sent.
    Asking(TcpStream, Ask),
    /// A peer has connected, and not said yet what it wants.
    Asked(TcpStream, Vec<u8>, Place),
    /// It has.
    Requested(
        TcpStream,
        Box<Request>,
        #[expect(dead_code, reason = "it is kept until there is an answer")] Place,
    ),
    Connected(Qp),
    /// It was connected.
    Disconnected,
    Over,
}

/// What is asked of a peer.
#[derive(Debug)]
struct Ask {
    initiator: Initiator,
    request: Vec<u8>,
    qp: Qp,
    reply: Vec<u8>,
}

#[derive(Debug)]
struct Identifier {
    /// Where its events are read.
    events: u32,
    phase: Phase,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    options: Options,
    /// The one that listens, of a connection that came.
    listener: u32,
    /// When set-up is given up, or what listens has rested.
    due: Option<Nanos>,
}

/// What the manager works with.
pub(crate) struct Around<'a> {
    pub(crate) epoll: &'a Epoll,
    pub(crate) outlets: &'a mut Outlets,
    pub(crate) now: Nanos,
    /// What is asked of peers, and most reads at once of a queue pair.
    pub(crate) mpa: Config,
    /// How long a peer may answer nothing.
    pub(crate) peer_timeout: Duration,
}

/// A stream that is to be a queue pair's.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) id: u32,
    pub(crate) carrier: Carrier,
    pub(crate) qp: Qp,
    pub(crate) negotiated: Negotiated,
    /// Bytes of it that have come already.
    pub(crate) held: Vec<u8>,
    /// The reply, which is to be sent first.
    pub(crate) reply: Vec<u8>,
    private_data: Vec<u8>,
}

/// All identifiers of a process.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    ids: BTreeMap<u32, Identifier>,
    /// When identifiers are due, or were to be: there may be thousands, of which hardly any is.
    due: BTreeSet<(Nanos, u32)>,
    last: u32,
    places: Places,
    /// Listeners that rest as there was no place left.
    full: Vec<u32>,
}

fn any(like: SocketAddr) -> SocketAddr {
    let ip = match like {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}

/// The address as one of IPv4, if it is one in mapped form. Others keep their scope.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The address, its scope included, with another port.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(errno::EINVAL)
}

impl Manager {
    fn insert(&mut self, identifier: Identifier) -> Result<u32, i32> {
        if self.ids.len().saturating_sub(self.places.taken()) >= IDS_MAX {
            return Err(errno::ENOMEM);
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.ids.contains_key(&self.last) {
                self.ids.insert(self.last, identifier);
                return Ok(self.last);
            }
        }
    }

    fn get(&mut self, id: u32) -> Result<&mut Identifier, i32> {
        // One that came is the application's once it was told of it.
        let known = self.ids.get_mut(&id).filter(|of| !matches!(of.phase, Phase::Asked(..)));
        known.ok_or(errno::EINVAL)
    }

    pub(crate) fn create(&mut self, events: u32) -> Result<u32, i32> {
        let (phase, local, remote, listener, due) = (Phase::Idle, None, None, 0, None);
        let options = Options::default();
        self.insert(Identifier { events, phase, local, remote, options, listener, due })
    }

    /// Its own address.
    pub(crate) fn bind(&mut self, id: u32, address: SocketAddr) -> Result<SocketAddr, i32> {
        let of = self.get(id)?;
        if !matches!(of.phase, Phase::Idle) {
            return Err(errno::EINVAL);
        }
        let socket = of.options.bind(address)?;
        let listener = TcpListener::from(socket);
        let local = listener.local_addr().map_err(|error| code(&error))?;
        of.phase = Phase::Bound(listener.into());
        of.local = Some(local);
        Ok(local)
    }

    /// Its own address.
    pub(crate) fn listen(
        &mut self,
        around: &mut Around<'_>,
        id: u32,
        backlog: u32,
    ) -> Result<SocketAddr, i32> {
        if matches!(self.get(id)?.phase, Phase::Idle) {
            self.bind(id, any(SocketAddr::from(([0; 4], 0))))?;
        }
        let of = self.get(id)?;
        let local = of.local.ok_or(errno::EINVAL)?;
        let socket = match std::mem::replace(&mut of.phase, Phase::Over) {
            Phase::Bound(socket) => socket,
            // It goes on as it is.
            other => {
                of.phase = other;
                return Err(errno::EINVAL);
            }
        };
        // As with the kernel's manager, no number is its default.
        let backlog = if backlog == 0 { 1024 } else { backlog };
        // By a descriptor of its own, so that it stays bound if it cannot be: another may listen there.
        let begun = socket.try_clone().and_then(|own| {
            let listener = sys::tcp::listen(own, backlog)?;
            around.epoll.add(&listener, Token::Id(id).into())?;
            Ok(listener)
        });
        match begun {
            Ok(listener) => {
                of.phase = Phase::Listening(listener, Places::of_listener(backlog));
                Ok(local)
            }
            Err(error) => {
                of.phase = Phase::Bound(socket);
                Err(code(&error))
            }
        }
    }

    /// The address that the kernel reaches the peer from. An event says the same.
    pub(crate) fn resolve(
        &mut self,
        around: &mut Around<'_>,
        id: u32,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<Option<SocketAddr>, i32> {
        let of = self.get(id)?;
        if !matches!(of.phase, Phase::Idle | Phase::Bound(_)) {
            return Err(errno::EINVAL);
        }
        let resolved = source(from.or(of.local.filter(|of| !of.ip().is_unspecified())), to);
        if let (Ok(local), Phase::Idle) = (&resolved, &of.phase) {
            let socket = of.options.bind(*local)?;
            let listener = TcpListener::from(socket);
            of.local = listener.local_addr().ok();
            of.phase = Phase::Bound(listener.into());
        } else if let (Ok(local), Some(bound)) = (&resolved, of.local) {
            of.local = Some(with_port(*local, bound.port()));
        }
        // Without an address there is no route either.
        of.remote = resolved.is_ok().then_some(to);
        let local = of.local;
        match resolved {
            Ok(_) => self.say(around, id, Kind::AddrResolved, 0),
            Err(error) => self.say(around, id, Kind::AddrError, code(&error)),
        }
        Ok(local)
    }

    pub(crate) fn resolve_route(&mut self, around: &mut Around<'_>, id: u32) -> Result<(), i32> {
        if self.get(id)?.remote.is_none() {
            return Err(errno::EINVAL);
        }
        self.say(around, id, Kind::RouteResolved, 0);
        Ok(())
    }

    /// The queue pair of an identifier that is connected; `None` of one that was, or that nobody has answered yet.
    pub(crate) fn qp(&mut self, id: u32) -> Result<Option<Qp>, i32> {
        match self.get(id)?.phase {
            Phase::Connected(qp) => Ok(Some(qp)),
            // As with the kernel's manager (iw_cm_disconnect), whoever comes second has nothing left to do.
            Phase::Disconnected | Phase::Requested(..) => Ok(None),
            Phase::Connecting(..) | Phase::Asking(..) => Err(errno::ENOTCONN),
            _ => Err(errno::EINVAL),
        }
    }

    /// The stream of a queue pair is over.
    pub(crate) fn disconnected(&mut self, around: &mut Around<'_>, id: u32) {
        let is_connected = |of: &&mut Identifier| matches!(of.phase, Phase::Connected(_));
        if let Some(of) = self.ids.get_mut(&id).filter(is_connected) {
            of.phase = Phase::Disconnected;
            self.say(around, id, Kind::Disconnected, 0);
        }
    }

    /// When [`expire`](Self::expire) is to be called. Entries of identifiers that are not due any more are removed here: nothing
    /// else removes them while no identifier expires.
    pub(crate) fn deadline(&mut self) -> Option<Nanos> {
        while let Some((at, id)) = self.due.first().copied() {
            if self.ids.get(&id).is_some_and(|of| of.due == Some(at)) {
                return Some(at);
            }
            self.due.pop_first();
        }
        None
    }

    /// An identifier is due at this time, unless something happens before.
    fn is_due_at(&mut self, id: u32, at: Nanos) {
        if let Some(of) = self.ids.get_mut(&id) {
            of.due = Some(at);
            self.due.insert((at, id));
        }
    }
}

impl Phase {
    fn is_listening(&self) -> bool {
        matches!(self, Phase::Listening(..))
    }
}

/// The own address that the kernel reaches this one from: a UDP socket that sends nothing asks it. A link-local address has its
/// scope.
fn source(from: Option<SocketAddr>, to: SocketAddr) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind(with_port(from.unwrap_or(any(to)), 0))?;
    // Port 0 is no destination.
    let port = if to.port() == 0 { 9 } else { to.port() };
    socket.connect(with_port(to, port))?;
    Ok(with_port(socket.local_addr()?, from.map_or(0, |from| from.port())))
}

fn config(around: &Around<'_>, connect: &Connect<'_>) -> Config {
    let (ird, ord) = (connect.ird.min(around.mpa.ird), connect.ord.min(around.mpa.ord));
    Config { ird, ord, ..around.mpa }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that are set up in time leave nothing behind.
    #[test]
    fn what_is_not_due_any_more_is_not_kept() {
        let mut manager = Manager::default();
        for now in 0..100 {
            let id = manager.create(0).unwrap();
            manager.is_due_at(id, now + SET_UP_MAX);
            assert_eq!(manager.deadline(), Some(now + SET_UP_MAX));
            // As when the reply has come, or the identifier is destroyed.
            if now % 2 == 0 {
                manager.get(id).unwrap().due = None;
            } else {
                manager.ids.remove(&id);
            }
            assert_eq!((manager.deadline(), manager.due.len()), (None, 0));
        }
        // One that is due later than it was.
        let id = manager.create(0).unwrap();
        manager.is_due_at(id, 7);
        manager.is_due_at(id, 8);
        assert_eq!((manager.deadline(), manager.due.len()), (Some(8), 1));
    }
}
