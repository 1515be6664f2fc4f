//! What is behind the engine's connections here: rings that the application shares, in which their bytes lie.

use std::sync::Arc;

use handoff::command::{NicCommand, NicControl, NicCounts, OsCommand, OsControl, OsCounts, os};
use handoff::ring::{receive, send};
use handoff::session::Area;
use handoff::session::status::{self, Place, Status};
use handoff::{Cid, Epoch};
use iface::Interface;
use lro::Nanos;
use tcp::{Change, Due, FourTuple, Id, Placement, Reason, Socket, Stack, State};
use wire::{Bytes, Mac, Seq};

use super::connections::{Connection, Connections, Running};
use super::exchange::{Exchange, Moved, closing};
use super::informed;
use super::lent::{SpliceCounts, TURN};
use super::link::Key;
use super::records::{Mirror, Records};
use super::sessions::Session;
use super::unsent::{have_tried, may_write_again};
use crate::app::{App, Lender, ServiceCounters};

/// Commands of one session that are looked at in a turn: others', and packets, do not wait for more.
const COMMANDS: usize = 256;
/// Connections that are looked at in a turn because the engine says so.
const EVENTS: usize = 256;
/// `ECONNRESET` and others (errno(3)).
pub(super) const ECONNRESET: u16 = 104;
const EPIPE: u16 = 32;
const ETIMEDOUT: u16 = 110;
const EHOSTUNREACH: u16 = 113;
const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

/// See the module's documentation.
pub(crate) struct Rings {
    pub(super) worker: u32,
    /// By number.
    pub(super) sessions: Vec<Option<Session>>,
    pub(super) all: Connections,
    pub(super) config: Arc<tcp::Config>,
    /// Commands of one session that are at hand; empty between turns.
    heard: Vec<NicCommand>,
    /// Connections to look at.
    due: Vec<u32>,
    /// Those whose unsent bytes are limited, and that were given bytes in this turn.
    limited: Vec<u32>,
    /// Those that are to be reset behind what their application has written.
    pub(super) resets: Vec<(u32, Id)>,
    pub(super) commands: NicCounts,
    pub(super) events: OsCounts,
    /// Commands that were none, or of no connection of the NIC's.
    pub(super) bad: u64,
    /// Connections that were reset as their application wrote into the rings what is not possible.
    pub(super) hostile: u64,
    pub(super) records: Records,
    /// Bytes of one segment that lie in more than two pieces.
    gathered: Vec<u8>,
    pub(super) splices: SpliceCounts,
    /// Bytes that may be moved between connections in this turn, and where they are meanwhile.
    pub(super) splice_left: u32,
    pub(super) between: Vec<u8>,
    /// What is of no use here: an endpoint's.
    none: ServiceCounters,
}

impl Rings {
    pub(super) fn new(worker: u32, config: Arc<tcp::Config>, mirror: Mirror) -> Self {
        Rings {
            worker,
            sessions: Vec::new(),
            all: Connections::default(),
            config,
            heard: Vec::new(),
            due: Vec::new(),
            limited: Vec::new(),
            resets: Vec::new(),
            commands: NicCounts::default(),
            events: OsCounts::default(),
            bad: 0,
            hostile: 0,
            records: Records::new(mirror),
            gathered: Vec::new(),
            splices: SpliceCounts::default(),
            splice_left: TURN,
            between: Vec::new(),
            none: ServiceCounters::default(),
        }
    }

    pub(super) fn session(&mut self, number: u32) -> Option<&mut Session> {
        self.sessions.get_mut(number as usize)?.as_mut()
    }

    /// Forgets a session whose process has ended, when none of its connections is left.
    pub(super) fn sweep(&mut self, number: u32) {
        let is_gone = self.session(number).is_some_and(|session| session.is_gone());
        if is_gone && self.all.of_session(number).is_empty() {
            self.sessions[number as usize] = None;
            while let Some(None) = self.sessions.last() {
                self.sessions.pop();
            }
        }
    }

    /// Forgets a connection that is not the NIC's any more.
    pub(super) fn forget(&mut self, number: u32) {
        self.all.remove(number);
    }

    /// A connection is to be looked at in this turn.
    pub(super) fn mark(&mut self, number: u32) {
        let Some(running) = self.all.get_mut(number).and_then(|c| c.engine.as_mut()) else {
            return;
        };
        if !std::mem::replace(&mut running.is_due, true) {
            self.due.push(number);
        }
    }

    /// Commands of all sessions; returns whether there were any.
    pub(super) fn take_commands(&mut self, stack: &mut Stack, now: Nanos) -> bool {
        let mut any = false;
        for session in 0..self.sessions.len() as u32 {
            any |= self.take_commands_of(session, COMMANDS, stack, now);
        }
        any
    }

    pub(super) fn take_commands_of(
        &mut self,
        id: u32,
        most: usize,
        stack: &mut Stack,
        now: Nanos,
    ) -> bool {
        let mut heard = std::mem::take(&mut self.heard);
        if let Some(Some(session)) = self.sessions.get_mut(id as usize) {
            session.pop(most, &mut heard, &mut self.bad);
        }
        let any = !heard.is_empty();
        heard.drain(..).for_each(|command| self.command(id, command, stack, now));
        self.heard = heard;
        any
    }

    fn command(&mut self, session: u32, command: NicCommand, stack: &mut Stack, now: Nanos) {
        let key = Key { session, cid: command.cid() };
        let number = self.all.by_key(key);
        let takes =
            |number: &u32| self.all.get(*number).is_some_and(|c| c.side.takes(command.epoch()));
        let Some(number) = number.filter(takes) else {
            // A call that lost: its connection has gone back.
            self.bad += 1;
            return;
        };
        self.commands.add(command.kind());
        match command {
            NicCommand::Send(_) | NicCommand::Recvd(_) => self.mark(number),
            NicCommand::Ctrl(ctrl) if ctrl.cmd.is_of_application() => {
                match ctrl.cmd {
                    NicControl::Inform => return self.inform(number, stack, now),
                    NicControl::Splice(to) => return self.begin_splice(number, Cid(to), now),
                    _ => {}
                }
                self.apply(number, ctrl.cmd, stack, now);
                if let NicControl::ShutdownRead | NicControl::ShutdownWrite = ctrl.cmd {
                    // What comes from now on finds the end shut.
                    self.look_at(number, stack, now);
                }
            }
            // The OS's, which come by the link.
            _ => self.bad += 1,
        }
    }

    /// Does a control operation.
    pub(super) fn apply(
        &mut self,
        number: u32,
        control: NicControl,
        stack: &mut Stack,
        now: Nanos,
    ) {
        if let NicControl::ShutdownRead
        | NicControl::ShutdownWrite
        | NicControl::Close
        | NicControl::Abort = control
        {
            self.leave_splices(number);
        }
        let has_unread = control == NicControl::Close && self.has_unread(number, stack);
        let Some(running) = self.all.get_mut(number).and_then(|c| c.engine.as_mut()) else {
            return;
        };
        let Some(mut socket) = stack.socket(running.id, now) else { return };
        match control {
            NicControl::NoDelay(on) => socket.set_no_delay(on),
            NicControl::Cork(on) => socket.set_cork(on),
            NicControl::QuickAck(on) => socket.set_quick_ack(on),
            NicControl::UserTimeout(ms) => {
                socket.set_user_timeout(Nanos::from(ms) * MILLISECOND);
            }
            NicControl::Keepalive(keepalive) => {
                socket.set_keepalive(keepalive.map(|keepalive| tcp::Keepalive {
                    idle: Nanos::from(keepalive.idle) * SECOND,
                    interval: Nanos::from(keepalive.interval) * SECOND,
                    probes: keepalive.probes,
                }));
            }
            // The application has written it beside the rings.
            NicControl::NotSentLowat(_) => {}
            NicControl::ShutdownRead => running.is_deaf = true,
            NicControl::ShutdownWrite => running.is_shut = true,
            // Its process has ended, too.
            NicControl::Close | NicControl::Abort if running.is_closed => {}
            NicControl::Close if !has_unread => {
                (running.is_shut, running.is_closed) = (true, true);
            }
            // Bytes that nobody reads any more are answered with a reset (RFC 2525 section 2.17, tcp_close).
            NicControl::Close | NicControl::Abort => {
                (running.is_closed, running.is_reset) = (true, true);
                self.resets.push((number, running.id));
            }
            NicControl::Inform
            | NicControl::Splice(_)
            | NicControl::Restored
            | NicControl::Abandoned => {}
        }
        drop(socket);
        self.mark(number);
    }

    /// Writes the figures of a connection for its application.
    fn inform(&self, number: u32, stack: &Stack, now: Nanos) {
        let Some(connection) = self.all.get(number) else { return };
        let session = self.sessions.get(connection.key.session as usize).and_then(Option::as_ref);
        if let Some(session) = session
            && let Some(area) = session.area(connection.key.cid)
            && let Some(running) = &connection.engine
            && let Some(engine) = stack.connection(running.id)
            && let Some(info) = informed::info(connection, stack, now)
        {
            running.publish_sent(&area, &engine.standing());
            area.info().write(&info);
            session.wake_waiters(connection.key.cid);
        }
    }

    /// Moves bytes between the rings of a connection and the engine, and between its rings and another one's if they are lent,
    /// and tells the application.
    pub(super) fn look_at(&mut self, number: u32, stack: &mut Stack, now: Nanos) {
        let sent = self.exchange(number, stack, now);
        self.splice(number, stack, now);
        let running = self.all.get(number).and_then(|one| one.engine.as_ref());
        if let Some(from) = running.and_then(|running| running.spliced_from)
            && from != number
            && sent > 0
        {
            // It waits for room here, perhaps.
            self.mark(from);
        }
    }

    /// Moves bytes between the rings of a connection and the engine, and tells the application. Returns how many have room in
    /// the send ring now.
    pub(super) fn exchange(&mut self, number: u32, stack: &mut Stack, now: Nanos) -> u32 {
        let Rings { all, sessions, hostile, records, limited, resets, .. } = self;
        let Some(connection) = all.get_mut(number) else { return 0 };
        let Connection { key, side, engine: Some(running), keeps, active, .. } = connection else {
            return 0;
        };
        running.is_due = false;
        let Some(Some(session)) = sessions.get_mut(key.session as usize) else { return 0 };
        let Some(mut socket) = stack.socket(running.id, now) else { return 0 };
        let Some(area) = session.area(key.cid) else { return 0 };
        if running.is_released {
            return 0;
        }
        let (key, epoch) = (*key, side.epoch());
        if is_unwanted(running, &socket) {
            // As tcp_rcv_state_process: nobody is told of what came.
            socket.consume(socket.readable_len());
            socket.abort();
        }
        let mut exchange = Exchange { running, keeps, socket: &mut socket, records };
        let result = exchange.run(&area);
        if running.unsent.is_some() {
            limited.push(number);
        }
        let moved = match result {
            Ok(moved) => moved,
            Err(_) => {
                *hostile += 1;
                running.is_closed = true;
                socket.abort();
                Moved::default()
            }
        };
        if running.is_deaf && running.deaf_from.is_none() && waits_for_end(&socket) {
            running.deaf_from = Some(socket.standing().rcv_nxt);
        }
        running.carried.add(moved.sent, moved.received);
        if moved.received > 0 || moved.sent > 0 {
            *active = now;
        }
        running.peer_closed |= has_closed(&socket);
        let status = status_of(&socket, running);
        let is_over = socket.end().is_some() || socket.state() == State::TimeWait;
        let is_closed = running.is_closed && running.is_shut && moved.is_sent && !running.is_reset;
        if is_closed && !is_over && (socket.readable_len() > 0 || socket.has_holes()) {
            // They have come since it was closed.
            running.is_reset = true;
            resets.push((number, running.id));
        } else if is_over || is_closed {
            // What was not read is in the ring.
            running.is_released = true;
            socket.close();
        }
        drop(socket);
        let is_released = running.is_released;
        let changed = status != running.status;
        if changed {
            // After the bytes: who sees the end and then an empty ring has seen all.
            status::change(area.status(), status);
            running.status = status;
        }
        if is_released {
            all.release(number);
            self.leave_splices(number);
        }
        let (has_lent, sends_others) = self.is_lent(number);
        let seen = Moved {
            received: if has_lent { 0 } else { moved.received },
            sent: if sends_others { 0 } else { moved.sent.max(moved.is_limited_anew.into()) },
            ..moved
        };
        if changed || seen.received > 0 || seen.sent > 0 {
            self.tell(number, (key, epoch), &seen, changed.then_some(status));
        }
        moved.sent
    }

    fn tell(
        &mut self,
        number: u32,
        (key, epoch): (Key, Epoch),
        moved: &Moved,
        status: Option<Status>,
    ) {
        let Rings { all, sessions, events, .. } = self;
        if let Some(Connection { engine: Some(running), .. }) = all.get_mut(number)
            && let Some(Some(session)) = sessions.get_mut(key.session as usize)
        {
            tell(session, events, running, (key.cid, epoch), moved, status);
            session.wake_waiters(key.cid);
        }
    }

    /// The connections that the engine has something of.
    fn take_events(&mut self, stack: &mut Stack) -> bool {
        let mut any = false;
        for _ in 0..EVENTS {
            let Some((id, _)) = stack.next_event() else { break };
            any = true;
            if let Some(number) = self.all.by_engine(id) {
                self.mark(number);
            }
        }
        any
    }

    /// Connections that the engine has no more, by its changes.
    pub(super) fn next_ended(&mut self, stack: &mut Stack) -> Option<u32> {
        loop {
            match stack.next_change()? {
                Change::Begun(_) => {}
                Change::Ended(path) => {
                    let number = self.all.by_path(&path);
                    let gone = |number: &u32| {
                        let running = self.all.get(*number).and_then(|c| c.engine.as_ref());
                        running.is_some_and(|running| stack.connection(running.id).is_none())
                    };
                    if let Some(number) = number.filter(gone) {
                        return Some(number);
                    }
                }
            }
        }
    }

    /// After a turn, in which was sent what there was time and room for.
    pub(super) fn end_turn(&mut self) {
        have_tried(&mut self.all, &self.sessions, self.limited.drain(..));
        self.sessions.iter_mut().flatten().for_each(Session::end_turn);
    }
}

/// Whether the peer has sent something after the application has shut both ends down.
fn is_unwanted(running: &Running, socket: &Socket<'_>) -> bool {
    let is_more = |from| socket.standing().rcv_nxt.after(from);
    waits_for_end(socket) && running.deaf_from.is_some_and(is_more)
}

/// Whether the application has closed its end, and the peer has not.
fn waits_for_end(socket: &Socket<'_>) -> bool {
    matches!(socket.state(), State::FinWait1 | State::FinWait2)
}

/// Whether the peer has closed its end, in order.
fn has_closed(socket: &Socket<'_>) -> bool {
    let state = socket.ended_in().unwrap_or(socket.state());
    let has_fin = matches!(state, State::CloseWait | State::Closing | State::LastAck);
    socket.end() == Some(Reason::Closed) || has_fin || state == State::TimeWait
}

/// What the application is to know.
fn status_of(socket: &Socket<'_>, running: &Running) -> Status {
    let error = match socket.end() {
        None | Some(Reason::Closed | Reason::Frozen) => 0,
        // As tcp_reset.
        Some(Reason::Reset) if socket.ended_in() == Some(State::CloseWait) => EPIPE,
        Some(Reason::Refused | Reason::Reset | Reason::Aborted) => ECONNRESET,
        Some(Reason::TimedOut) => ETIMEDOUT,
        Some(Reason::Unreachable) => EHOSTUNREACH,
    };
    let is_over = socket.end().is_some() || socket.state() == State::TimeWait;
    Status {
        place: if is_over { Place::Ended } else { Place::Nic },
        peer_closed: running.peer_closed,
        error,
        why: None,
    }
}

/// Tells the application: by one event of data at a time, as it looks at the ring itself.
pub(super) fn tell(
    session: &mut Session,
    counts: &mut OsCounts,
    running: &mut Running,
    (cid, epoch): (Cid, Epoch),
    moved: &Moved,
    status: Option<Status>,
) {
    let mut push = |session: &mut Session, event: OsCommand| {
        counts.add(event.kind());
        session.push(event)
    };
    if let Some(status) = status.filter(|status| status.peer_closed || status.place == Place::Ended)
    {
        let cmd = match status.error {
            ECONNRESET | EPIPE => OsControl::Reset,
            ETIMEDOUT => OsControl::TimedOut,
            0 => OsControl::PeerClosed,
            other => OsControl::Unreachable(other.into()),
        };
        let _ = push(session, os::Ctrl { cmd, ..os::Ctrl::new(cid, epoch) }.into());
    }
    let is_known = running.event.is_some_and(|number| !session.has_seen(number));
    if is_known {
        return;
    }
    let event = match (moved.received, moved.sent) {
        (0, 0) => return,
        (0, len) => OsCommand::from(os::Ack { len, ..os::Ack::new(cid, epoch) }),
        (len, _) => os::Recv { addr: moved.at, len, ..os::Recv::new(cid, epoch) }.into(),
    };
    running.event = push(session, event);
}

/// What the connection of the engine's has of its process's memory, while the engine runs it.
#[inline]
fn area_of<'a>(
    all: &'a Connections,
    sessions: &'a [Option<Session>],
    id: Id,
) -> Option<(Area<'a>, &'a Running)> {
    let connection = all.get(all.by_engine(id)?)?;
    let session = sessions.get(connection.key.session as usize)?.as_ref()?;
    Some((session.area(connection.key.cid)?, connection.engine.as_ref()?))
}

impl Lender for Rings {
    fn next_hop(&self, stack: &Stack, due: &Due, path: &FourTuple) -> Option<Mac> {
        let number = stack.id_of(due).and_then(|id| self.all.by_engine(id));
        let number = number.or_else(|| self.all.by_path(path))?;
        self.all.get(number).map(|connection| connection.next_hop)
    }

    fn sends(&mut self, stack: &Stack, due: &Due) {
        let Rings { all, records, sessions, events, .. } = self;
        let Some((id, standing)) = stack.standing_of(due) else { return };
        let Some(number) = all.by_engine(id) else { return };
        let Some(connection) = all.get_mut(number) else { return };
        let Connection { key, side, engine: Some(running), keeps, .. } = connection else { return };
        records.commit(keeps, &standing, closing(running));
        if let Some(before) = running.unsent
            && let Some(Some(session)) = sessions.get_mut(key.session as usize)
            && let Some(area) = session.area(key.cid)
            && let Some(left) = running.sends(&area, &standing)
            && may_write_again(&area, before, left)
        {
            let sent = Moved { sent: before - left, ..Moved::default() };
            tell(session, events, running, (key.cid, side.epoch()), &sent, None);
            session.wake_waiters(key.cid);
        }
    }

    fn lent(&mut self, stack: &Stack, due: &Due, seq: Seq, len: u32) -> [Bytes<'_>; 2] {
        let Rings { all, sessions, gathered, .. } = self;
        let found = stack.id_of(due).and_then(|id| area_of(all, sessions, id));
        let Some((area, running)) = found else { return [Bytes::default(); 2] };
        let Ok(ring) = area.send() else { return [Bytes::default(); 2] };
        let ring = send::Nic::resume(ring, running.send);
        let offset = seq.0.wrapping_sub(ring.head());
        let bytes = ring.bytes(offset, len);
        if bytes[0].len() + bytes[1].len() == len as usize {
            return bytes;
        }
        // The ring has grown in the middle of them, where it had come round.
        gathered.resize(len as usize, 0);
        let there = ring.peek(offset, gathered);
        debug_assert_eq!(there, len as usize, "what is due is there");
        [Bytes::from(&gathered[..there]), Bytes::default()]
    }

    fn store(&mut self, placement: Placement, payload: &[&[u8]]) {
        let Placement { id, seq, skip, len } = placement;
        let Some((area, running)) = area_of(&self.all, &self.sessions, id) else { return };
        let Ok(ring) = area.receive() else { return };
        let mut ring = receive::Nic::resume(ring, running.receive);
        let mut offset = seq.0.wrapping_sub(ring.tail());
        let (mut skip, mut left) = (skip as usize, len as usize);
        for piece in payload {
            let rest = piece.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(piece.len());
            let part = &rest[..rest.len().min(left)];
            let stored = ring.put(offset, part);
            debug_assert_eq!(stored, part.len(), "there is room for {placement:?}: {ring:?}");
            offset += part.len() as u32;
            left -= part.len();
        }
    }
}

impl App for Rings {
    fn begin(
        &mut self,
        _stack: &mut Stack,
        _interface: &Interface,
        _may_open: &mut dyn FnMut(&FourTuple) -> bool,
        _now: Nanos,
    ) -> std::io::Result<()> {
        Ok(())
    }

    fn serve(&mut self, stack: &mut Stack, now: Nanos) -> bool {
        self.splice_left = TURN;
        let commands = self.take_commands(stack, now);
        let events = self.take_events(stack);
        let mut due = std::mem::take(&mut self.due);
        let any = !due.is_empty();
        for number in due.drain(..) {
            self.look_at(number, stack, now);
        }
        // What was marked meanwhile is for the next turn.
        std::mem::swap(&mut self.due, &mut due);
        self.due.append(&mut due);
        commands || events || any
    }

    fn on_time(&mut self, stack: &mut Stack, now: Nanos) {
        self.reset(stack, now);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    fn is_done(&self) -> bool {
        false
    }

    fn abort(&mut self, _stack: &mut Stack, _now: Nanos) {}

    fn counters(&self) -> &ServiceCounters {
        &self.none
    }
}
