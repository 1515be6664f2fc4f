//! Messages of the process.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rdma::Handle;
use rdma::session::device::Device;
use rdma::session::message::{RegisterRequest, words_of};
use rdma::session::{Reply, Request};
use rdma::verbs::{Qp, State};
use wire::Nanos;

use super::{End, Serving};
use crate::manager::errno::{EINVAL, ENOMEM};
use crate::outlet::{Kind, completion, decode_async};

/// Where regions end at the latest: the descriptor of the memory knows no address behind it.
const ADDRESS_MAX: u64 = 1 << 62;

/// An answer, and a descriptor that goes with it.
struct Answer {
    reply: Reply,
    descriptor: Option<OwnedFd>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Answer { reply, descriptor: None }
    }
}

/// What was done has no words, or could not be.
fn plain(done: Result<(), i32>) -> Result<Answer, End> {
    Ok(done.map_or_else(Reply::error, |()| Reply::default()).into())
}

impl Serving {
    /// Tells what the process begins with.
    pub(crate) fn welcome(&self, seen: u64) -> std::io::Result<()> {
        let bytes = self.shared.words().len() as u64 * 8;
        let reply = Reply::done([bytes, seen]);
        let descriptors: [BorrowedFd<'_>; 2] = [self.shared.as_fd(), self.doorbell.as_fd()];
        let message = reply.encode().map_err(|_| ErrorKind::InvalidInput)?;
        self.socket.send(&message, &descriptors)
    }

    /// Answers all requests that are there.
    pub(super) fn answer(&mut self, now: Nanos) -> Result<(), End> {
        loop {
            let received = match self.socket.receive_or_leave(&mut self.message) {
                Ok(received) if received.len == 0 => return Err(End::Gone),
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(End::Gone),
            };
            let message = std::mem::take(&mut self.message);
            let brought = received.descriptors.into_iter().next();
            let answer = match Request::decode(&message[..received.len]) {
                Ok(Request::Register(of)) => self.register(now, &of, brought),
                Ok(request) => self.request(now, &request),
                Err(error) => {
                    tracing::warn!("process {}: {error}", self.served.pid);
                    Err(End::Gone)
                }
            };
            self.message = message;
            let Answer { reply, descriptor } = answer?;
            self.hear(now);
            let bytes = reply.encode().map_err(|_| End::Gone)?;
            let descriptors: Vec<BorrowedFd<'_>> = descriptor.iter().map(OwnedFd::as_fd).collect();
            // A process waits for each answer: if there is no room it is not one that does.
            self.socket.send(&bytes, &descriptors).map_err(|_| End::Gone)?;
        }
    }

    fn request(&mut self, now: Nanos, request: &Request<'_>) -> Result<Answer, End> {
        let outlets = &mut self.outlets;
        let has_context =
            |outlets: &crate::outlet::Outlets, of: u32| outlets.has(of, Kind::Context);
        match *request {
            // Once is enough.
            Request::Hello { .. } => plain(Err(EINVAL)),
            Request::Query => {
                let device =
                    Device { limits: *self.process.limits(), guid: crate::identity::guid() };
                Ok(Reply::done(device.encode()).into())
            }
            Request::OpenContext => self.open(Kind::Context),
            Request::CreateChannel => self.open(Kind::Completions),
            Request::CreateEvents => self.open(Kind::Connections),
            Request::CloseContext(context) if has_context(outlets, context) => {
                let answer = self.verb(now, request);
                self.hear(now);
                self.outlets.remove(context, Kind::Context);
                answer
            }
            Request::DestroyChannel(number) => {
                plain(outlets.remove(number, Kind::Completions).then_some(()).ok_or(EINVAL))
            }
            Request::DestroyEvents(number) => {
                plain(outlets.remove(number, Kind::Connections).then_some(()).ok_or(EINVAL))
            }
            Request::AllocPd(context) if has_context(outlets, context) => self.verb(now, request),
            Request::CreateCq { context, channel, .. }
                if has_context(outlets, context)
                    && channel.is_none_or(|channel| outlets.has(channel, Kind::Completions)) =>
            {
                self.verb(now, request)
            }
            Request::CreateSrq { context, .. } if has_context(outlets, context) => {
                self.verb(now, request)
            }
            Request::CreateQp(of) if has_context(outlets, of.context) => self.verb(now, request),
            // They name a context that there is not.
            Request::CloseContext(_)
            | Request::AllocPd(_)
            | Request::CreateCq { .. }
            | Request::CreateSrq { .. }
            | Request::CreateQp(_) => plain(Err(EINVAL)),
            Request::ModifyQp { qp, .. } => {
                let answer = self.verb(now, request)?;
                self.hear(now);
                self.carry_on(now, Qp::new(qp))?;
                Ok(answer)
            }
            Request::Deregister(_)
            | Request::DeallocPd(_)
            | Request::AllocWindow { .. }
            | Request::DeallocWindow(_)
            | Request::Moderate { .. }
            | Request::ArmSrq { .. }
            | Request::QuerySrq(_)
            | Request::QueryQp(_) => self.verb(now, request),
            Request::DestroyCq(_) | Request::DestroySrq(_) | Request::DestroyQp(_) => {
                self.end(now, request)
            }
            _ => self.connect(now, request),
        }
    }

    fn verb(&mut self, now: Nanos, request: &Request<'_>) -> Result<Answer, End> {
        Ok(self.process.request(self.shared.words(), now, request, Handle(0)).into())
    }

    /// A region, with the descriptor that its request has brought.
    fn register(
        &mut self,
        now: Nanos,
        of: &RegisterRequest,
        file: Option<OwnedFd>,
    ) -> Result<Answer, End> {
        if of.addr.checked_add(of.len).is_none_or(|end| end > ADDRESS_MAX) {
            return plain(Err(EINVAL));
        }
        let handle = self.memory.handle(of, file);
        let request = Request::Register(*of);
        let reply = self.process.request(self.shared.words(), now, &request, handle);
        if reply.errno != 0 {
            self.memory.release(handle);
        }
        Ok(reply.into())
    }

    /// Ends an object with events: those that the application has not read are told no more.
    fn end(&mut self, now: Nanos, request: &Request<'_>) -> Result<Answer, End> {
        let heard = self.process.heard(request);
        let answer = self.verb(now, request)?;
        let Some(heard) = heard.filter(|_| answer.reply.errno == 0) else { return Ok(answer) };
        // What it has told last.
        self.hear(now);
        self.outlets.take_back(heard.context, |event| {
            decode_async(event).is_some_and(|(event, object)| heard.has(event, object))
        });
        if let (Some(channel), Request::DestroyCq(cq)) = (heard.channel, request) {
            self.outlets.take_back(channel, |event| event == completion(*cq));
        }
        Ok(answer)
    }

    fn open(&mut self, kind: Kind) -> Result<Answer, End> {
        Ok(match self.outlets.add(kind) {
            Ok((number, theirs)) => {
                Answer { reply: Reply::done([number.into()]), descriptor: Some(theirs) }
            }
            Err(error) => Reply::error(error.raw_os_error().unwrap_or(ENOMEM)).into(),
        })
    }

    /// Calls of the connection manager's.
    fn connect(&mut self, now: Nanos, request: &Request<'_>) -> Result<Answer, End> {
        let has_events = |this: &Self, events: u32| this.outlets.has(events, Kind::Connections);
        let local = |done: Result<Option<_>, i32>| {
            Ok(done.map_or_else(Reply::error, |local| Reply::done(words_of(local))).into())
        };
        if let Request::CreateId(events) | Request::Migrate { events, .. } = *request
            && !has_events(self, events)
        {
            return plain(Err(EINVAL));
        }
        if let Request::Connect(of) | Request::Accept(of) = request
            && !self.may_connect(Qp::new(of.qp))
        {
            return plain(Err(EINVAL));
        }
        let (manager, mut around) = self.manager(now);
        match *request {
            Request::CreateId(events) => {
                let done = manager.create(events).map(|id| Reply::done([id.into()]));
                Ok(done.unwrap_or_else(Reply::error).into())
            }
            Request::DestroyId(id) => {
                let qp = manager.qp(id).ok().flatten();
                let destroyed = manager.destroy(&mut around, id);
                // As with the kernel's manager (iw_destroy_cm_id), its connection ends with it.
                if let (Ok(()), Some(qp)) = (destroyed, qp) {
                    self.abandon(now, qp)?;
                }
                plain(destroyed)
            }
            Request::Migrate { id, events } => plain(manager.migrate(&mut around, id, events)),
            Request::SetOption { id, option, value } => {
                plain(manager.set_option(id, option, value))
            }
            Request::Bind { id, address } => local(manager.bind(id, address).map(Some)),
            Request::Listen { id, backlog } => {
                local(manager.listen(&mut around, id, backlog).map(Some))
            }
            Request::ResolveAddr { id, from, to, .. } => {
                local(manager.resolve(&mut around, id, from, to))
            }
            Request::ResolveRoute(id) => plain(manager.resolve_route(&mut around, id)),
            Request::Connect(of) => plain(manager.connect(&mut around, &of)),
            Request::Reject { id, private_data } => plain(manager.reject(id, private_data)),
            Request::Accept(of) => match manager.accept(&mut around, &of) {
                Ok(ready) => {
                    self.start(now, ready)?;
                    plain(Ok(()))
                }
                Err(error) => plain(Err(error)),
            },
            Request::Disconnect(id) => match manager.qp(id) {
                Ok(Some(qp)) => self.disconnect(now, qp),
                Ok(None) => plain(Ok(())),
                Err(error) => plain(Err(error)),
            },
            _ => plain(Err(EINVAL)),
        }
    }

    /// Whether a queue pair can have a stream.
    fn may_connect(&self, qp: Qp) -> bool {
        matches!(self.process.state(qp), Some(State::Init | State::Rtr))
    }

    /// Nobody is told of a connection any more: it ends, if nothing has ended it yet.
    fn abandon(&mut self, now: Nanos, qp: Qp) -> Result<(), End> {
        if self.process.state(qp) == Some(State::Rts) {
            self.request(now, &Request::ModifyQp { qp: qp.0, state: State::Err as u8 })?;
        }
        Ok(())
    }

    fn disconnect(&mut self, now: Nanos, qp: Qp) -> Result<Answer, End> {
        // What is closing or over already is not closed again.
        if self.process.state(qp) == Some(State::Rts) {
            let _ = self.process.disconnect(self.shared.words(), qp);
            self.carry_on(now, qp)?;
        }
        plain(Ok(()))
    }
}
