//! A connection that changes sides, at the NIC: out of the state that the kernel gave into the engine and its rings,
//! and back.

use handoff::command::{NicControl, OsCommand, os};
use handoff::machine::{NicEvent, NicOutput, ToNic};
use handoff::ring::{receive, send};
use handoff::session::Area;
use handoff::session::status::{self, Place, Status};
use handoff::{Epoch, Refusal, RestoreReason};
use lro::Nanos;
use std::sync::Arc;
use sys::frames::FramePool;
use tcp::repair::Repair;
use tcp::{Snapshot, Stack};

use super::connections::{Connection, Running};
use super::exchange::Exchange;
use super::figures::Carried;
use super::informed::figures;
use super::link::{HeldPacket, State, ToAgent};
use super::records::{first_of, window_of};
use super::rings::Rings;
use super::{HandoffLane, HostLane, is_time_wait, pass, told};
use crate::port::Host;
use crate::steer::Phase;

/// So long the agent's answer is waited for awake: it takes a connection out of the kernel meanwhile, or puts it there.
const ANSWER: Nanos = 100_000;

impl HandoffLane {
    /// One event of a connection's, and all that it leads to.
    pub(super) fn handle<H: Host>(
        &mut self,
        number: u32,
        event: NicEvent<HeldPacket, State>,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) {
        let mut outputs = Vec::new();
        if let NicEvent::Told(_, ToNic::Control(NicControl::Restored)) = event {
            let connection = self.app().all.get_mut(number);
            let told = connection.map(|connection| std::mem::take(&mut connection.told));
            told.iter().flatten().for_each(|packet| pass(packet, pool, host));
        }
        let is_held = |app: &Rings| app.all.get(number).is_some_and(|one| one.side.holds());
        let was_held = is_held(self.app());
        let mut next = Some(event);
        let mut is_short = false;
        while let Some(event) = next.take() {
            let counts = &mut self.counts;
            let Rings { all, records, .. } = self.lane.parts().1;
            let Some(connection) = all.get_mut(number) else { return };
            if let NicEvent::Ended = event {
                records.end(&mut connection.keeps);
            }
            let (key, place) = (connection.key, connection.place);
            if let NicEvent::Told(_, ToNic::Handoff(state)) = &event {
                self.lookup.set_kernel_sent(place, state.sent());
            }
            connection.side.handle(event, counts, &mut outputs);
            // Before the agent hears of it, which has the kernel speak then.
            let phase = if connection.side.silences_kernel() { Phase::Nic } else { Phase::Moving };
            if std::mem::replace(&mut connection.phase, phase) != phase {
                self.lookup.set(place, phase);
            }
            for output in outputs.drain(..) {
                match output {
                    NicOutput::Tell(tag, told) => self.tell(ToAgent::Told { key, tag, told }, now),
                    NicOutput::Thaw(state) => {
                        let thawed = self.thaw(number, state, now);
                        is_short |= matches!(thawed, NicEvent::NotThawed(Refusal::Memory));
                        next = Some(thawed);
                    }
                    NicOutput::Freeze => next = self.freeze(number, pool, now),
                    NicOutput::Input(packet) => self.input(&packet, pool, now),
                    NicOutput::Pass(packet) => pass(&packet, pool, host),
                    NicOutput::Apply(control) => {
                        let (stack, app) = self.lane.parts();
                        app.apply(number, control, stack, now);
                    }
                }
            }
        }
        let held = (was_held, is_held(self.app()));
        self.measure_stop(number, held, now);
        let app = self.app();
        let is_free = |one: &Connection| one.side.is_free().then_some((one.key.session, one.place));
        if let Some((session, place)) = app.all.get(number).and_then(is_free) {
            app.forget(number);
            app.sweep(session);
            // Behind all that was held: what comes by other queues goes to the host itself from now on.
            self.leave(place);
        }
        if is_short {
            self.make_room(RestoreReason::Memory, pool, host, now);
        }
    }

    /// How long a connection stood still that changed sides: from the turn on in which its packets were first held until
    /// they were forwarded, which a clock tells and not the turn's time: what that took is part of it.
    fn measure_stop(&mut self, number: u32, (was_held, is_held): (bool, bool), now: Nanos) {
        let Some(connection) = self.lane.parts().1.all.get_mut(number) else { return };
        match (was_held, is_held) {
            (false, true) => connection.held_since = now,
            (true, true) => {}
            (true, false) => {
                self.expected = 0;
                let stopped = sys::clock::now().saturating_sub(connection.held_since);
                let is_at_nic = connection.side.is_running();
                let stops = if is_at_nic { &mut self.to_nic } else { &mut self.to_os };
                stops.add(stopped);
            }
            (false, false) => {}
        }
        if is_held {
            self.expected = now + ANSWER;
        }
    }

    /// Another connection needs the room of one: one that is over, or else one that can be spared, which goes back.
    pub(super) fn make_room<H: Host>(
        &mut self,
        reason: RestoreReason,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) {
        let (stack, app) = self.lane.parts();
        if let Some(number) = app.all.oldest_over(|id| is_time_wait(stack, id)) {
            self.drop_over(number, pool, host, now);
        } else if let Some(number) = app.all.idle_longest(now) {
            self.handle(number, NicEvent::GiveBack(reason), pool, host, now);
        }
    }

    /// The engine goes on from the kernel's state.
    fn thaw(&mut self, number: u32, state: State, now: Nanos) -> NicEvent<HeldPacket, State> {
        let (repair, at) = state.parts();
        self.lane.interface().adopt(repair.local.ip().to_canonical());
        let (stack, app) = self.lane.parts();
        match begin(app, stack, number, (&repair, at), now) {
            Ok(()) => {
                // What the kernel had is in the ring before the application hears that the NIC has the connection.
                app.look_at(number, stack, now);
                NicEvent::Thawed
            }
            Err(why) => NicEvent::NotThawed(why),
        }
    }

    /// The engine runs it no longer. Calls that have taken effect are in the state; the others lose. `None` if it has ended,
    /// and what it says last is still to be sent: its reset, or that it has the peer's FIN. That it has ended is heard of
    /// behind it.
    fn freeze(
        &mut self,
        number: u32,
        pool: &FramePool,
        now: Nanos,
    ) -> Option<NicEvent<HeldPacket, State>> {
        // What LRO holds of it has arrived, and what the application has said before was said to the NIC.
        self.lane.flush(pool, now);
        let (stack, app) = self.lane.parts();
        app.take_commands(stack, now);
        // If it has ended, its application is to know, and gets what has come before.
        app.look_at(number, stack, now);
        if is_resetting(app, stack, number) {
            return None;
        }
        if let Some(running) = app.all.get(number).and_then(|one| one.engine.as_ref())
            && is_time_wait(stack, running.id)
        {
            self.over.push(number);
            return None;
        }
        if has_ended(app, stack, number) {
            return Some(NicEvent::Ended);
        }
        app.leave_splices(number);
        let figures = app.all.get(number).and_then(|one| figures(one, stack));
        let carried =
            figures.map_or([0; 2], |of| [of.sent, of.received].map(Option::unwrap_or_default));
        let Some(state) = end(app, stack, number, now) else { return Some(NicEvent::Ended) };
        if self.tells_kernel {
            let next_hop = app.all.get(number).map(|connection| connection.next_hop);
            let macs = (self.mac, next_hop.unwrap_or_default());
            let told = told::segments(&state, self.lane.interface(), macs);
            if let Some(connection) = self.app().all.get_mut(number) {
                connection.told = told;
            }
        }
        Some(NicEvent::Frozen(State::after(state, now, carried)))
    }
}

fn begin(
    app: &mut Rings,
    stack: &mut Stack,
    number: u32,
    (repair, at): (&Repair, Nanos),
    now: Nanos,
) -> Result<(), Refusal> {
    let mut snapshot = Snapshot::from_repair(repair).map_err(|_| Refusal::Invalid)?;
    // To the millisecond: the record that the agent has begun has the same offset.
    snapshot.run_clock(at, now);
    let Rings { sessions, all, config, records, .. } = app;
    let connection = all.get_mut(number).ok_or(Refusal::Invalid)?;
    let cid = connection.key.cid;
    let session = sessions.get(connection.key.session as usize).and_then(Option::as_ref);
    let session = session.ok_or(Refusal::Invalid)?;
    // A process that has ended meanwhile leaves a connection that ends when its data is sent.
    let is_gone = session.is_gone();
    let area = session.area(cid).ok_or(Refusal::Invalid)?;
    let epoch = connection.side.epoch();
    let (send, receive) = opened(&area, epoch, repair)?;
    if !records.begin(&mut connection.keeps) {
        return Err(Refusal::Invalid);
    }
    let room = receive.size();
    let thawed = stack.thaw_lent(&snapshot, Arc::clone(config), room, now);
    let id = thawed.map_err(|error| match error {
        tcp::ThawError::Connect(tcp::ConnectError::Memory) => Refusal::Memory,
        tcp::ThawError::Connect(_) => Refusal::Connections,
        tcp::ThawError::Snapshot(_) => Refusal::Invalid,
    })?;
    if let Some(mut socket) = stack.socket(id, now) {
        socket.tell_acknowledged(true);
    }
    let running = Running {
        id,
        lent: send.head().wrapping_add(repair.send_queue.len() as u32),
        send: send.keep(),
        receive: receive.keep(),
        status: Status::at(Place::Moving),
        unsent: None,
        tried: 0,
        carried: Carried::since(repair),
        peer_closed: false,
        is_deaf: false,
        deaf_from: None,
        event: None,
        is_due: false,
        is_shut: is_gone,
        is_closed: is_gone,
        is_reset: false,
        is_released: false,
        splice: None,
        spliced_from: None,
    };
    all.begin(number, running, now);
    Ok(())
}

/// The rings that the OS side has opened. What the application has done there since is found when it is looked.
fn opened<'a>(
    area: &Area<'a>,
    epoch: Epoch,
    repair: &Repair,
) -> Result<(send::Nic<'a>, receive::Nic<'a>), Refusal> {
    let (Ok(send), Ok(receive)) = (area.send(), area.receive()) else {
        return Err(Refusal::Invalid);
    };
    let (sent, unread) = first_of(repair);
    let send = send::Nic::opened(send, epoch, sent.0, repair.send_queue.len() as u32);
    let (len, window) = (repair.recv_queue.len() as u32, window_of(repair));
    Ok((send, receive::Nic::opened(receive, epoch, unread.0, len, window)))
}

/// Whether there is nothing to go on with: no kernel can be given such a connection.
fn has_ended(app: &Rings, stack: &Stack, number: u32) -> bool {
    let id = app.all.get(number).and_then(|c| c.engine.as_ref()).map(|running| running.id);
    let connection = id.and_then(|id| stack.connection(id));
    connection.is_none_or(|connection| {
        connection.end().is_some() || connection.state() == tcp::State::TimeWait
    })
}

/// Whether its application has done with it, and the engine is about to tell the peer.
fn is_resetting(app: &Rings, stack: &Stack, number: u32) -> bool {
    let Some(running) = app.all.get(number).and_then(|c| c.engine.as_ref()) else { return false };
    let has_end = |connection: &tcp::Connection| connection.end().is_some();
    running.is_released && stack.connection(running.id).is_some_and(has_end)
}

/// Takes it out of the engine and its rings. `None` if its application wrote into the rings what is not possible.
fn end(app: &mut Rings, stack: &mut Stack, number: u32, now: Nanos) -> Option<Repair> {
    let Rings { sessions, all, hostile, events, records, .. } = app;
    let connection = all.get_mut(number)?;
    let cid = connection.key.cid;
    let session = sessions.get_mut(connection.key.session as usize)?.as_mut()?;
    let area = session.area(cid)?;
    let mut running = connection.engine.take()?;
    let mut socket = stack.socket(running.id, now)?;
    let keeps = &mut connection.keeps;
    let ended = Exchange { running: &mut running, keeps, socket: &mut socket, records }.end(&area);
    if ended.is_err() {
        socket.abort();
        socket.close();
        drop(socket);
        *hostile += 1;
        let error = super::rings::ECONNRESET;
        status::change(area.status(), Status { error, ..Status::at(Place::Ended) });
        session.wake_waiters(cid);
        return None;
    }
    let queued = socket.standing().queued;
    drop(socket);
    let mut lend =
        |queue, offset, len| Exchange::bytes((&area, &running), queued, (queue, offset, len));
    let snapshot = stack.freeze_lent(running.id, &mut lend, now)?;
    let (mut repair, _) = snapshot.to_repair().ok()?;
    repair.is_deaf = running.is_deaf;
    status::change(area.status(), Status::at(Place::Moving));
    session.wake_waiters(cid);
    // A thread that waits for many connections looks at this one.
    let restore = OsCommand::from(os::Restore::new(cid, connection.side.epoch()));
    events.add(restore.kind());
    session.push(restore);
    Some(repair)
}
