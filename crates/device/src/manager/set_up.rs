//! Connection set-up: requests and replies of MPA over TCP sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use rdma::mpa::{Config, Initiator, Responder, StartupError};
use rdma::session::cm::Kind;
use rdma::session::message::Connect;
use rdma::verbs::Qp;
use wire::Nanos;

use super::places::are_few_left;
use super::{
    Around, Ask, Carrier, Identifier, Interest, Manager, Phase, Ready, SET_UP_MAX, Token, any,
    canonical, code, config, errno,
};
use crate::outlet;

/// What fits into a reply or request, and some of what follows.
const CHUNK: usize = 2048;
/// How long a listener rests that could accept nothing.
const REST: Nanos = 100_000_000;

impl Manager {
    /// Begins to connect.
    pub(crate) fn connect(
        &mut self,
        around: &mut Around<'_>,
        connect: &Connect<'_>,
    ) -> Result<(), i32> {
        let id = connect.id;
        let config = config(around, connect);
        let initiator = Initiator::new(config);
        let request = initiator.request(connect.private_data).map_err(|_| errno::EINVAL)?;
        let of = self.get(id)?;
        let to = of.remote.ok_or(errno::EINVAL)?;
        let socket = match std::mem::replace(&mut of.phase, Phase::Over) {
            Phase::Bound(socket) => socket,
            Phase::Idle => of.options.bind(any(to))?,
            other => {
                of.phase = other;
                return Err(errno::EISCONN);
            }
        };
        let ask = Ask { initiator, request, qp: Qp::new(connect.qp), reply: Vec::new() };
        let begun = sys::tcp::begin_connect(socket, to).and_then(|stream| {
            around.epoll.add_for(&stream, Token::Id(id).into(), Interest::Write)?;
            Ok(stream)
        });
        match begun {
            Ok(stream) => {
                of.phase = Phase::Connecting(stream, ask);
                self.is_due_at(id, around.now + SET_UP_MAX);
            }
            Err(error) => self.fails(around, id, code(&error), &[]),
        }
        Ok(())
    }

    /// Accepts a connection.
    pub(crate) fn accept(
        &mut self,
        around: &mut Around<'_>,
        connect: &Connect<'_>,
    ) -> Result<Ready, i32> {
        let of = self.get(connect.id)?;
        let Phase::Requested(_, request, _) = &of.phase else { return Err(errno::EINVAL) };
        let (ird, ord) = (connect.ird.min(around.mpa.ird), connect.ord.min(around.mpa.ord));
        let accepted = request.accept(ird, ord, connect.private_data);
        let (reply, negotiated) = accepted.map_err(|_| errno::EINVAL)?;
        let Phase::Requested(socket, ..) = std::mem::replace(&mut of.phase, Phase::Over) else {
            return Err(errno::EINVAL);
        };
        let (id, qp, held) = (connect.id, Qp::new(connect.qp), Vec::new());
        let carrier = Carrier::new(socket);
        Ok(Ready { id, carrier, qp, negotiated, held, reply, private_data: Vec::new() })
    }

    /// Rejects one.
    pub(crate) fn reject(&mut self, id: u32, private_data: &[u8]) -> Result<(), i32> {
        let of = self.get(id)?;
        let Phase::Requested(_, request, _) = &of.phase else { return Err(errno::EINVAL) };
        let reply = request.reject(private_data).map_err(|_| errno::EINVAL)?;
        if let Phase::Requested(mut stream, ..) = std::mem::replace(&mut of.phase, Phase::Over) {
            // Nothing was sent before: there is room. If not, the peer sees that it is closed.
            let _ = stream.write(&reply);
        }
        Ok(())
    }

    /// The stream is the queue pair's.
    pub(crate) fn established(&mut self, around: &mut Around<'_>, ready: &Ready) {
        let Some(of) = self.ids.get_mut(&ready.id) else { return };
        of.phase = Phase::Connected(ready.qp);
        of.due = None;
        let reads = (ready.negotiated.ird, ready.negotiated.ord);
        self.say_with(around, ready.id, Kind::Established, 0, reads, &ready.private_data);
    }

    /// There is no connection.
    pub(crate) fn fails(
        &mut self,
        around: &mut Around<'_>,
        id: u32,
        error: i32,
        private_data: &[u8],
    ) {
        // As the kernel's manager has it (cma_iw_handler).
        let kind = match error {
            errno::ECONNRESET | errno::ECONNREFUSED => Kind::Rejected,
            errno::ETIMEDOUT => Kind::Unreachable,
            _ => Kind::ConnectError,
        };
        if let Some(of) = self.ids.get_mut(&id) {
            let why = io::Error::from_raw_os_error(error);
            tracing::debug!("no connection of {:?} with {:?}: {why}", of.local, of.remote);
            (of.phase, of.due) = (Phase::Over, None);
            self.say_with(around, id, kind, error, (0, 0), private_data);
        }
    }

    /// The socket of an identifier has something. Returns a stream that is to be a queue pair's.
    pub(crate) fn turn(&mut self, around: &mut Around<'_>, id: u32) -> Option<Ready> {
        match &mut self.ids.get_mut(&id)?.phase {
            Phase::Listening(..) => self.take_connections(around, id),
            Phase::Connecting(stream, _) => {
                let error = match stream.take_error() {
                    Ok(None) => self.ask(around, id).err(),
                    Ok(Some(error)) | Err(error) => Some(error),
                };
                if let Some(error) = error {
                    self.fails(around, id, code(&error), &[]);
                }
            }
            Phase::Asking(..) => match self.hear_reply(id) {
                Ok(ready) => return ready,
                Err((error, private_data)) => self.fails(around, id, error, &private_data),
            },
            Phase::Asked(..) => {
                let heard = self.hear_request(around, id);
                drop(heard.map_err(|_| self.ids.remove(&id)));
            }
            // The peer has gone, or says what it may not: accept(2) or reject find out.
            Phase::Requested(stream, ..) => drop(around.epoll.remove(&*stream)),
            _ => {}
        }
        None
    }

    fn take_connections(&mut self, around: &mut Around<'_>, id: u32) {
        let Some(of) = self.ids.get(&id) else { return };
        let (Phase::Listening(listener, places), events) = (&of.phase, of.events) else { return };
        let (mut came, mut rests) = (Vec::new(), are_few_left(listener));
        while came.len() < 64 && !rests {
            if places.are_taken() || self.places.are_taken() {
                rests = true;
                // It may be there: a listener that rests is looked at once in a while, too.
                if !self.full.contains(&id) {
                    self.full.push(id);
                }
                break;
            }
            match listener.accept() {
                Ok(accepted) => came.push((accepted, self.places.take(places))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Of the connection, which its peer has given up, or of this process: it has no descriptor left.
                Err(error) => rests = error.kind() != ErrorKind::ConnectionAborted,
            }
        }
        if rests {
            self.rest(around, id);
        }
        for ((stream, remote), place) in came {
            let local = stream.local_addr().ok().map(canonical);
            if stream.set_nonblocking(true).and_then(|()| prepare(&stream, around)).is_err() {
                continue;
            }
            let identifier = Identifier {
                events,
                phase: Phase::Over,
                local,
                remote: Some(canonical(remote)),
                options: Default::default(),
                listener: id,
                due: None,
            };
            let Ok(new) = self.insert(identifier) else { continue };
            self.is_due_at(new, around.now + SET_UP_MAX);
            let added = around.epoll.add(&stream, Token::Id(new).into());
            if let (Ok(()), Some(of)) = (added, self.ids.get_mut(&new)) {
                of.phase = Phase::Asked(stream, Vec::new(), place);
            } else {
                self.ids.remove(&new);
            }
        }
    }

    /// A listener that can accept nothing now is looked at again later. What waits for it would wake the device at once.
    fn rest(&mut self, around: &mut Around<'_>, id: u32) {
        let Some(of) = self.ids.get_mut(&id) else { return };
        if let Phase::Listening(listener, _) = &of.phase
            && around.epoll.remove(listener).is_ok()
        {
            self.is_due_at(id, around.now + REST);
        }
    }

    pub(super) fn rested(&mut self, around: &mut Around<'_>, id: u32) {
        let Some(of) = self.ids.get_mut(&id) else { return };
        if let Phase::Listening(listener, _) = &of.phase {
            let added = around.epoll.add(listener, Token::Id(id).into());
            of.due = None;
            if added.is_err() {
                self.is_due_at(id, around.now + REST);
            }
        }
    }

    /// TCP is connected: the request goes out.
    fn ask(&mut self, around: &mut Around<'_>, id: u32) -> io::Result<()> {
        let Some(of) = self.ids.get_mut(&id) else { return Ok(()) };
        let Phase::Connecting(mut stream, ask) = std::mem::replace(&mut of.phase, Phase::Over)
        else {
            return Ok(());
        };
        prepare(&stream, around)?;
        // A request is shorter than any socket's room.
        stream.write_all(&ask.request)?;
        around.epoll.change(&stream, Token::Id(id).into(), Interest::Read)?;
        of.local = stream.local_addr().ok();
        of.phase = Phase::Asking(stream, ask);
        Ok(())
    }

    fn hear_reply(&mut self, id: u32) -> Result<Option<Ready>, (i32, Vec<u8>)> {
        let Some(of) = self.ids.get_mut(&id) else { return Ok(None) };
        let Phase::Asking(stream, ask) = &mut of.phase else { return Ok(None) };
        let is_over = read(stream, &mut ask.reply).map_err(|error| (code(&error), Vec::new()))?;
        match ask.initiator.receive(&ask.reply) {
            Ok(Some(accepted)) => {
                let Phase::Asking(socket, ask) = std::mem::replace(&mut of.phase, Phase::Over)
                else {
                    return Ok(None);
                };
                let held = ask.reply[accepted.consumed..].to_vec();
                let (qp, negotiated, reply) = (ask.qp, accepted.negotiated, Vec::new());
                let (carrier, private_data) = (Carrier::new(socket), accepted.private_data);
                Ok(Some(Ready { id, carrier, qp, negotiated, held, reply, private_data }))
            }
            Ok(None) if is_over => Err((errno::ECONNRESET, Vec::new())),
            Ok(None) => Ok(None),
            Err(StartupError::Rejected) => {
                Err((errno::ECONNREFUSED, ask.initiator.reject_data(&ask.reply).to_vec()))
            }
            Err(error) => {
                tracing::warn!("no connection to {:?}: {error}", of.remote);
                let _ = stream.write(&ask.initiator.last_words(&ask.reply, error));
                Err((errno::EPROTO, Vec::new()))
            }
        }
    }

    /// # Errors
    /// The connection is none.
    fn hear_request(&mut self, around: &mut Around<'_>, id: u32) -> io::Result<()> {
        let Some(of) = self.ids.get_mut(&id) else { return Ok(()) };
        let listener = of.listener;
        let Phase::Asked(stream, bytes, _) = &mut of.phase else { return Ok(()) };
        let is_over = read(stream, bytes)?;
        // Requests of both revisions are answered.
        let revision = Config::default().revision;
        let responder = Responder::new(Config { revision, ..around.mpa });
        let request = match responder.receive(bytes) {
            Ok(Some(request)) => request,
            Ok(None) if is_over => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::debug!("a connection of {:?} is closed: {error}", of.remote);
                if matches!(error, StartupError::Revision(_)) {
                    stream.write_all(&responder.refusal())?;
                }
                return Err(ErrorKind::InvalidData.into());
            }
        };
        let (resources, private_data) = (request.resources(), request.private_data.clone());
        let Phase::Asked(stream, _, place) = std::mem::replace(&mut of.phase, Phase::Over) else {
            return Ok(());
        };
        (of.phase, of.due) = (Phase::Requested(stream, Box::new(request), place), None);
        // Whoever listens may have moved to other events meanwhile.
        let events = self.ids.get(&listener).map(|listener| listener.events);
        if let (Some(of), Some(events)) = (self.ids.get_mut(&id), events) {
            of.events = events;
            if !around.outlets.has(events, outlet::Kind::Connections) {
                // Nobody would ever hear of it.
                return Err(ErrorKind::NotFound.into());
            }
        }
        self.say_with(around, id, Kind::ConnectRequest, 0, resources, &private_data);
        Ok(())
    }

    /// Set-up that has taken too long is given up.
    pub(crate) fn expire(&mut self, around: &mut Around<'_>) {
        let now = around.now;
        let mut late = Vec::new();
        while let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            // It may be over, or due later.
            if self.ids.get(&id).is_some_and(|of| of.due == Some(at)) {
                late.push(id);
            }
        }
        for id in late {
            match self.ids.get(&id).map(|of| &of.phase) {
                Some(Phase::Asked(..)) => drop(self.ids.remove(&id)),
                Some(Phase::Listening(..)) => self.rested(around, id),
                _ => self.fails(around, id, errno::ETIMEDOUT, &[]),
            }
        }
    }
}

/// How a connection is, whoever has begun it.
fn prepare(stream: &TcpStream, around: &Around<'_>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sys::tcp::keep_alive(stream, around.peer_timeout)
}

/// Reads what there is; whether the peer has closed.
fn read(stream: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = [0; CHUNK];
    match stream.read(&mut chunk) {
        Ok(len) => {
            into.extend_from_slice(&chunk[..len]);
            Ok(len == 0)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
