//! The session of one process, as the OS side has it: its connections, and what is done with each.

mod ending;
mod requests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::tcp::FourTuple;
use ::tcp::repair::Repair;
use handoff::command::OsControl;
use handoff::machine::{OsEvent, OsOutput, ToOs, Where};
use handoff::session::status::{self, Place, Status, Why};
use handoff::session::{MESSAGE_LEN, Message as FromProcess, Request, Welcome};
use handoff::{Cid, Epoch, Refusal, RestoreReason};
use sys::foreign::Foreign;
use sys::packets::PacketSocket;
use sys::poll::{Ready, poll};
use sys::process::PeerCredentials;

use super::common::Common;
use super::crossing::{Crossing, Event, Output};
use super::host::{News, Standing, Verdict};
use super::kernel::{NotFrozen, NotThawed, Offered, Refused, Waiting};
use super::listed::Listed;
use crate::handoff::guard::{Message, ToGuard};
use crate::handoff::process::SharedProcess;
use crate::lane::handoff::link::{HeldPacket, Key, Process, State, ToWorker, shared};
use crate::lane::handoff::wake_waiters;

/// Messages that are looked at before others are.
const MESSAGES: usize = 64;
/// `ECONNRESET` (errno(3)).
const ECONNRESET: u16 = 104;

/// One connection.
#[derive(Debug)]
struct Connection {
    crossing: Crossing,
    /// `None` when it is over.
    offered: Option<(Offered, Standing)>,
    /// Of its record, which is there while the kernel does not have the connection.
    place: u32,
    /// Bytes that the rings of its number took before.
    room: usize,
    /// Why it goes back, once that is known.
    back: Option<RestoreReason>,
    /// It goes back when the kernel has memory for it, which hears of its peer then.
    waiting: Option<(Box<Waiting>, Option<Vec<HeldPacket>>)>,
    /// It waits among those that are wanted back.
    is_wanted: bool,
    /// It is one of those that were asked for.
    goes_back: bool,
    /// The application's offer was answered.
    is_answered: bool,
    /// The application has closed it, and its number is free when it is over.
    is_closed: bool,
    /// The kernel lost it while it was to be taken out.
    is_lost: bool,
    /// It was asked back as another process has it, too, or is to have it: it does not end with this one.
    is_anothers: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Session {
    number: u32,
    socket: Foreign<PacketSocket>,
    process: Arc<SharedProcess>,
    peer: PeerCredentials,
    has_ended: bool,
    connections: HashMap<Cid, Connection>,
    /// Of names that were used before.
    epochs: HashMap<Cid, Epoch>,
    /// [`Shared::unheard`](handoff::session::Shared::unheard) when it was looked at last.
    unheard: u64,
}

/// What a session wants after it was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Its socket may have more.
    GoOn,
    /// Its process is gone.
    End,
    /// Its process does not keep to the protocol, for this reason.
    Broken(String),
}

impl Session {
    /// Of a process that has said Hello.
    pub(super) fn new(
        number: u32,
        socket: Foreign<PacketSocket>,
        peer: PeerCredentials,
        process: SharedProcess,
    ) -> Self {
        let (process, has_ended, unheard) = (Arc::new(process), false, 0);
        let (connections, epochs) = (HashMap::new(), HashMap::new());
        Session { number, socket, process, peer, has_ended, connections, epochs, unheard }
    }

    /// Takes the messages that have come.
    pub(super) fn read(&mut self, common: &mut Common) -> Next {
        for _ in 0..MESSAGES {
            let mut bytes = [0; MESSAGE_LEN];
            match self.socket.receive_foreign(&mut bytes, self.peer.uid) {
                Ok((0, _)) => return Next::End,
                Ok((len, descriptors)) => {
                    if let Err(why) = self.message(&bytes[..len], descriptors, common) {
                        return Next::Broken(why);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.take_unheard(common);
                    return Next::GoOn;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Next::End,
            }
        }
        // Without more to read there is no other turn.
        if poll(&[self.socket.as_fd()], Some(0)).is_ok_and(Ready::is_empty) {
            self.take_unheard(common);
        }
        Next::GoOn
    }

    fn message(
        &mut self,
        bytes: &[u8],
        descriptors: Vec<Foreign<OwnedFd>>,
        common: &mut Common,
    ) -> Result<(), String> {
        let message = FromProcess::decode(bytes).map_err(|error| error.to_string())?;
        if !(descriptors.is_empty() || matches!(message, FromProcess::Offer(..))) {
            return Err("descriptors with a message that has none".to_owned());
        }
        match message {
            FromProcess::Offer(cid, count, has_io_uring) => {
                let [socket]: [Foreign<OwnedFd>; 1] =
                    descriptors.try_into().map_err(|_| "an offer without its socket".to_owned())?;
                self.offer((cid, count), (socket, has_io_uring), common)
            }
            FromProcess::Restore(cid, reason) => {
                self.request(cid, Request::Restore(reason), common);
                Ok(())
            }
            FromProcess::RestoreAll(reason) => {
                self.request_all(reason, common);
                Ok(())
            }
            FromProcess::Close(cid) => {
                self.request(cid, Request::Close, common);
                Ok(())
            }
            FromProcess::Hello | FromProcess::Welcome(_) => {
                Err("a message that is wharf's, or a second Hello".to_owned())
            }
        }
    }

    /// Tells a guard of the session, and of its connections.
    pub(super) fn tell_guard(&self, guard: &mut ToGuard) {
        let message =
            Message::Session { number: self.number, layout: self.process.offsets().layout() };
        guard.tell(message, &self.process.kept());
        for (cid, connection) in &self.connections {
            if let Some((offered, _)) = &connection.offered {
                self.tell_of(*cid, connection.place, offered, guard);
            }
        }
    }

    /// Tells it of a connection that may be taken out of the kernel, or was.
    fn tell_of(&self, cid: Cid, place: u32, offered: &Offered, guard: &mut ToGuard) {
        let (session, reuse_address) = (self.number, offered.reuses_address());
        let message = Message::Take { place, session, cid, reuse_address };
        guard.tell(message, &[offered.as_fd()]);
    }

    /// Answers the Hello of the process, and tells all others of it.
    ///
    /// # Errors
    /// What sendmsg says.
    pub(super) fn welcome(&self, common: &mut Common) -> io::Result<()> {
        let (layout, interface) = (self.process.offsets().layout(), common.host.interface);
        let welcome = FromProcess::Welcome(Welcome { layout, interface }).encode();
        self.socket.send(&welcome, &self.process.descriptors())?;
        let process: Arc<dyn Process> = self.process.clone();
        let session = self.number;
        common.ways.tell_all(|| ToWorker::Begin { session, process: Arc::clone(&process) });
        self.tell_guard(&mut common.guard);
        Ok(())
    }

    /// An offer that was made when its status had this count of changes.
    fn offer(
        &mut self,
        (cid, count): (Cid, u16),
        (socket, has_io_uring): (Foreign<OwnedFd>, bool),
        common: &mut Common,
    ) -> Result<(), String> {
        if cid.0 >= self.process.offsets().layout().connections {
            return Err(format!("a connection of number {}", cid.0));
        }
        if self.connections.contains_key(&cid) {
            return Err(format!("number {} is taken", cid.0));
        }
        let process = Arc::clone(&self.process);
        let area = shared(&*process).and_then(|shared| shared.area(cid));
        let word = area.ok_or_else(|| format!("a connection of number {}", cid.0))?.status();
        let looked = if status::count(word.load(Ordering::Acquire)) != count {
            Err((Refusal::Withdrawn, socket))
        } else if common.is_stopping {
            Err((Refusal::Stopping, socket))
        } else if has_io_uring {
            Err((Refusal::IoUring, socket))
        } else {
            self.look(cid, socket, common)
        };
        let (offered, place) = match looked {
            Ok(found) => found,
            Err((why, socket)) => {
                common.counts.refused.add(why);
                common.at_kernel.refused(&socket, self.peer, why);
                let refused = Status { why: Some(Why::Refused(why)), ..Status::at(Place::Os) };
                status::refuse(word, count, refused);
                // Behind the status: whoever sees the answer sees what it is.
                answer(&self.process, &mut false);
                self.wake(cid);
                return Ok(());
            }
        };
        // If the application withdraws it, it stays with the kernel when it is about to move.
        status::take_up(word, count);
        self.wake(cid);
        let epoch = self.epochs.get(&cid).copied().unwrap_or_default();
        let key = Key { session: self.number, cid };
        let room = common.rooms.take(key);
        let (path, next_hop) = (offered.0.path(), offered.1.next_hop);
        let connection = Connection {
            crossing: Crossing::new((key, epoch), path, next_hop, place),
            offered: Some(offered),
            place,
            room,
            back: None,
            waiting: None,
            is_wanted: false,
            goes_back: false,
            is_answered: false,
            is_closed: false,
            is_lost: false,
            is_anothers: false,
        };
        self.connections.insert(cid, connection);
        self.handle(cid, Event::Os(OsEvent::Pick), common);
        Ok(())
    }

    /// Looks at a connection that is offered, and takes a place for it if it may be handed off. The guard knows of it then,
    /// before the application waits for wharf: if wharf dies, one of the two says what is next.
    fn look(
        &self,
        cid: Cid,
        socket: Foreign<OwnedFd>,
        common: &mut Common,
    ) -> Result<((Offered, Standing), u32), Refused> {
        let PeerCredentials { pid, uid, .. } = self.peer;
        if !common.quotas.has_room(uid) {
            return Err((Refusal::Quota, socket));
        }
        if let Some(why) = common.ways.lacks() {
            return Err((why, socket));
        }
        let (mut offered, standing) = Offered::look(socket, &mut common.host, pid)?;
        let place = common.take_place();
        if common.beginnings.is_short(common.ways.leaving()) {
            common.ways.make_room();
        }
        let Some(place) = place else {
            common.host.release(&offered.path(), standing, false);
            return Err((Refusal::Connections, offered.into_socket()));
        };
        self.tell_of(cid, place, &offered, &mut common.guard);
        if common.guard.is_behind() {
            // What it does not know of would be lost with wharf.
            common.guard.tell(Message::Gone { place }, &[]);
            common.beginnings.give_place(place);
            common.host.release(&offered.path(), standing, false);
            return Err((Refusal::Queue, offered.into_socket()));
        }
        offered.add_carried(common.at_kernel.carried(&offered));
        common.at_kernel.forget_offered(&offered);
        common.quotas.take(uid);
        Ok(((offered, standing), place))
    }

    /// Something has changed around connections: those that it concerns go back, a few at a time.
    pub(super) fn follow(&mut self, news: &News, common: &mut Common) {
        for (cid, connection) in &mut self.connections {
            let Some((offered, standing)) = &mut connection.offered else { continue };
            let key = Key { session: self.number, cid: *cid };
            let verdict = common.host.verdict(&offered.path(), standing, self.peer.pid, news);
            match verdict {
                Some(Verdict::Back(reason)) if !connection.is_wanted && !connection.goes_back => {
                    connection.is_wanted = true;
                    common.wanted.push_back((key, reason));
                }
                Some(Verdict::NextHop(next_hop)) => {
                    connection.crossing.set_next_hop(next_hop, &common.ways);
                }
                _ => {}
            }
        }
    }

    /// What the worker says of a connection.
    pub(super) fn told(&mut self, cid: Cid, tag: u16, told: ToOs<State>, common: &mut Common) {
        if let Some(connection) = self.connections.get_mut(&cid) {
            if let ToOs::Control(OsControl::HandedOff) = told {
                answer(&self.process, &mut connection.is_answered);
            }
            match &told {
                ToOs::Restore(reason, _) => connection.back = Some(*reason),
                ToOs::Control(OsControl::HandedOff) => {
                    if let Some((offered, standing)) = &mut connection.offered {
                        common.host.handed_off(&offered.path(), standing);
                    }
                }
                ToOs::Control(_) => {}
            }
        }
        self.handle(cid, Event::Os(OsEvent::Told(tag, told)), common);
    }

    /// Has one of those back.
    pub(super) fn go_back(&mut self, cid: Cid, reason: RestoreReason, common: &mut Common) {
        let Some(connection) = self.connections.get_mut(&cid) else { return };
        connection.is_wanted = false;
        if connection.offered.is_some() && !std::mem::replace(&mut connection.goes_back, true) {
            common.going_back += 1;
        }
        self.handle(cid, Event::Os(OsEvent::WantBack(reason)), common);
    }

    /// Wants this connection back, if it is here.
    pub(super) fn want_back_one(&mut self, path: &FourTuple, common: &mut Common) -> bool {
        let is_it = |c: &Connection| c.offered.as_ref().is_some_and(|(o, _)| o.path() == *path);
        let found = self.connections.iter().find(|(_, connection)| is_it(connection));
        let Some(cid) = found.map(|(cid, _)| *cid) else { return false };
        self.handle(cid, Event::Os(OsEvent::WantBack(RestoreReason::Command)), common);
        true
    }

    /// Asks the process to offer this connection, or all that it has.
    pub(super) fn ask(&self, path: Option<FourTuple>) {
        if let Some(shared) = shared(&*self.process) {
            shared.ask(path.map(|path| (path.local, path.remote)));
            self.process.wake();
        }
    }

    /// Tells the process by which policy it is to offer connections.
    pub(super) fn say_policy(&self, policy: &str) {
        if let Some(shared) = shared(&*self.process) {
            shared.said().set_policy(policy);
        }
    }

    /// Whether it is that of this process, or any is meant.
    pub(super) fn is_of(&self, pid: Option<i32>) -> bool {
        pid.is_none_or(|pid| self.peer.pid == pid)
    }

    /// Whose connections they are.
    pub(super) fn owner(&self) -> PeerCredentials {
        self.peer
    }

    /// Its connections, for those who ask.
    pub(super) fn list(&self) -> impl Iterator<Item = Listed> + '_ {
        let PeerCredentials { pid, uid, .. } = self.peer;
        self.connections.iter().filter_map(move |(cid, connection)| {
            let offered = &connection.offered.as_ref()?.0;
            let (path, carried) = (offered.path(), offered.carried());
            let (place, cid) = (connection.crossing.place(), Some(cid.0));
            Some(Listed { path, pid, uid, cid, place, why: None, figures: None, carried })
        })
    }

    /// How many connections it has at the NIC, or on their way.
    pub(super) fn len(&self) -> usize {
        self.connections.values().filter(|connection| connection.offered.is_some()).count()
    }

    /// One event of a connection's, and all that it leads to.
    pub(super) fn handle(&mut self, cid: Cid, event: Event, common: &mut Common) {
        let mut events = VecDeque::from([event]);
        let mut outputs = Vec::new();
        while let Some(event) = events.pop_front() {
            let Some(connection) = self.connections.get_mut(&cid) else { return };
            let Common { ways, counts, .. } = common;
            connection.crossing.handle(event, ways, counts, &mut outputs);
            for output in outputs.drain(..) {
                events.extend(self.output(cid, output, common).map(Event::Os));
            }
        }
        let over = |connection: &Connection| {
            matches!(connection.crossing.place(), Where::Os | Where::Closed | Where::Lost)
        };
        if let Some(connection) = self.connections.get_mut(&cid)
            && over(connection)
            && connection.offered.is_some()
        {
            common.beginnings.erase(connection.place);
            common.ways.leave(connection.place, connection.crossing.worker(), sys::clock::now());
            common.going_back -= usize::from(std::mem::take(&mut connection.goes_back));
            let place = connection.place;
            common.quotas.give(self.peer.uid);
            self.forget(cid, common);
            // Not before the application has been told: if wharf dies in between, the guard does that.
            common.guard.tell(Message::Gone { place }, &[]);
        }
    }

    fn output(
        &mut self,
        cid: Cid,
        output: Output,
        common: &mut Common,
    ) -> Option<OsEvent<HeldPacket, State>> {
        let connection = self.connections.get_mut(&cid)?;
        match output {
            OsOutput::Freeze => Some({
                // Until it is out of the kernel, that may say something, with a later timestamp than it tells here.
                let before = sys::clock::now();
                let worker = connection.crossing.worker().unwrap_or_default() as u32;
                let (place, name) = (connection.place, (cid, connection.crossing.epoch()));
                let area = shared(&*self.process).and_then(|shared| shared.area(cid))?;
                if !status::begin_move(area.status()) {
                    return Some(OsEvent::NotFrozen(Refusal::Withdrawn));
                }
                let keep = |state: &Repair| {
                    common.beginnings.write(place, name, (worker, &area), state, before)
                };
                match connection.offered.as_mut()?.0.freeze(keep) {
                    Ok(state) => OsEvent::Frozen(State::of(state, before)),
                    Err(NotFrozen::Refused(why)) => OsEvent::NotFrozen(why),
                    Err(NotFrozen::Lost) => {
                        connection.is_lost = true;
                        OsEvent::NotFrozen(Refusal::State)
                    }
                }
            }),
            OsOutput::Thaw(state) => {
                let carried = state.carried();
                let state = state.at(sys::clock::now());
                let first = common.to_kernel.as_ref().map(|to| to.segments(&state));
                let (offered, _) = connection.offered.as_mut()?;
                offered.add_carried(carried);
                let result = offered.thaw(state);
                self.after_thaw(cid, result, first, common)
            }
            // While the NIC has it, it is the worker that tells; else that is done when it is forgotten.
            OsOutput::Resume(_) | OsOutput::Destroy | OsOutput::Notify(_) => None,
            // The kernel gets packets by the worker, and has its options already.
            OsOutput::Apply(_) | OsOutput::Input(_) => None,
            // The crossing has told.
            OsOutput::Tell(..) => None,
        }
    }

    /// What is next when it was tried to put a connection back, and what the kernel is to hear of its peer first.
    fn after_thaw(
        &mut self,
        cid: Cid,
        result: Result<(), NotThawed>,
        first: Option<Vec<HeldPacket>>,
        common: &mut Common,
    ) -> Option<OsEvent<HeldPacket, State>> {
        let connection = self.connections.get_mut(&cid)?;
        match result {
            Ok(()) => {
                // Before the application hears of it, which may ask at once whether the peer has closed.
                if let (Some(to_kernel), Some(first)) = (&common.to_kernel, first) {
                    to_kernel.tell(&first);
                }
                // Before the worker hears of it, which keeps from the peer what the kernel says until then.
                common.beginnings.erase(connection.place);
                Some(OsEvent::Thawed)
            }
            Err(NotThawed::NoMemory(waiting)) => {
                connection.waiting = Some((waiting, first));
                common.no_memory.add(Key { session: self.number, cid });
                None
            }
            Err(NotThawed::Kernel(error)) => {
                let remote = connection.offered.as_ref()?.0.remote();
                tracing::error!("the kernel does not take the connection to {remote}: {error}");
                Some(OsEvent::NotThawed)
            }
        }
    }

    /// Tries again to put a connection back that the kernel had no memory for.
    pub(super) fn thaw_again(&mut self, cid: Cid, common: &mut Common) {
        let Some(connection) = self.connections.get_mut(&cid) else { return };
        let (Some((offered, _)), Some((waiting, first))) =
            (&mut connection.offered, connection.waiting.take())
        else {
            return;
        };
        let result = offered.thaw_waiting(waiting);
        if let Some(event) = self.after_thaw(cid, result, first, common) {
            self.handle(cid, Event::Os(event), common);
        }
    }

    /// It is not the NIC's any more.
    fn forget(&mut self, cid: Cid, common: &mut Common) {
        let Some(connection) = self.connections.get_mut(&cid) else { return };
        let Some((offered, standing)) = connection.offered.take() else { return };
        answer(&self.process, &mut connection.is_answered);
        let is_over = connection.crossing.place() != Where::Os;
        common.host.release(&offered.path(), standing, is_over);
        let place = if connection.is_lost { Where::Lost } else { connection.crossing.place() };
        match place {
            // What is unread is still in the ring, and the worker has told of the end.
            Where::Closed => offered.discard(),
            Where::Lost => {
                offered.discard();
                self.tell(cid, Status { error: ECONNRESET, ..Status::at(Place::Ended) });
            }
            // The application's descriptor goes on alone; if there is none any more, the kernel ends it.
            _ => {
                let refused = connection.crossing.refused().map(Why::Refused);
                let why = refused.or(connection.back.map(Why::Restored));
                if let Some(why) = why {
                    let carried = offered.carried();
                    common.at_kernel.remember(&offered, offered.path(), self.peer, (why, carried));
                }
                let is_closed = connection.is_closed;
                self.remove(cid, common);
                if let Some(area) = shared(&*self.process).and_then(|shared| shared.area(cid)) {
                    let place = if is_closed { Place::Free } else { Place::Os };
                    status::leave_to_kernel(area.status(), Status { why, ..Status::at(place) });
                }
                self.wake(cid);
                common.unrepaired += u64::from(offered.release());
                return;
            }
        }
        self.free(cid, common);
    }

    /// Changes the status of a connection, and wakes those that wait for that.
    fn tell(&self, cid: Cid, status: Status) {
        let area = shared(&*self.process).and_then(|shared| shared.area(cid));
        let Some(area) = area else { return };
        status::change(area.status(), status);
        self.wake(cid);
    }

    /// Wakes those that wait for a change of the status of a connection.
    fn wake(&self, cid: Cid) {
        let area = shared(&*self.process).and_then(|shared| shared.area(cid));
        let Some(area) = area else { return };
        wake_waiters(&*self.process, area.waiters(), area.wake());
        // One that waits for several may wait for this, too.
        self.process.wake();
    }

    /// Whether its process is gone.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An offer of the application's has its answer.
fn answer(process: &SharedProcess, is_answered: &mut bool) {
    if let (false, Some(shared)) = (std::mem::replace(is_answered, true), shared(process)) {
        shared.answered().fetch_add(1, Ordering::Relaxed);
    }
}
