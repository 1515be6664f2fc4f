//! What the agent says to a worker, and when that is done.

use std::collections::VecDeque;
use std::sync::Arc;

use handoff::machine::{NicEvent, ToNic};
use handoff::{Cid, Epoch, Refusal};
use lro::Nanos;
use sys::frames::FramePool;
use tcp::FourTuple;
use wire::Mac;

use super::link::{HeldPacket, Key, Process, State, ToAgent, ToWorker};
use super::sessions::Session;
use super::{HandoffLane, HostLane, is_time_wait, looked_up};
use crate::peers::Peers;
use crate::port::{Host, Wire};
use crate::wire_queue::WireQueue;

/// Messages of the agent's that are looked at in a turn.
pub(super) const MESSAGES: usize = 256;
/// They wait until the host's queue is empty, or this many packets have been read from it, which holds no more (a TAP's
/// 500, `TUN_READQ_SIZE`), but no longer than this, as the wire may take nothing.
const HOST_QUEUE: u64 = 1024;
const WAIT: Nanos = 100_000_000;

/// What the agent has said and is not done yet.
#[derive(Default)]
pub(super) struct Heard {
    messages: VecDeque<ToWorker>,
    /// When that was, and how many packets of the host's had been read by then.
    at: Nanos,
    taken: u64,
    /// All that LRO held has gone to the host, since the last offer: so many packets by then, where several workers share
    /// its port.
    flushed: Option<u64>,
}

/// What is told to the agent behind all that was sent.
#[derive(Default)]
pub(super) struct Parting {
    messages: Vec<ToAgent>,
    /// Since when the first of them waits.
    since: Nanos,
}

impl Heard {
    /// How many more may come before they wait.
    pub(super) fn room(&self) -> usize {
        MESSAGES - self.messages.len().min(MESSAGES)
    }
}

impl HandoffLane {
    /// Listens to the agent, before what the host sends is read. What it says is done in the [turn](Self::turn): all that
    /// the kernel has sent of a connection before it gave it away is to leave before what the NIC sends of it, as
    /// neither sequence numbers nor timestamps go back then (RFC 7323 section 5).
    pub(crate) fn listen<H: Host>(&mut self, host: Option<&HostLane<H>>, now: Nanos) {
        let heard = &mut self.heard;
        if heard.messages.is_empty() {
            heard.messages.extend(self.inbox.try_iter().take(MESSAGES));
            heard.at = now;
            heard.taken = host.map_or(0, HostLane::taken);
            heard.flushed = None;
        }
    }

    /// Whether all that came for the host is with it. What LRO holds of that goes there first.
    fn has_delivered<H: Host>(
        &mut self,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
    ) -> bool {
        let Some(host) = host else { return true };
        let flushed = self.heard.flushed.get_or_insert_with(|| {
            host.flush(pool);
            host.requested()
        });
        host.has_delivered(*flushed)
    }

    /// Does what the agent has said, once what the host had sent by then has gone. Returns whether there was anything.
    pub(super) fn hear<H: Host>(
        &mut self,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) -> bool {
        if self.heard.messages.is_empty() {
            return false;
        }
        if let Some(host) = host.as_ref().filter(|host| !host.has_read_all())
            && host.taken() - self.heard.taken < HOST_QUEUE
            && now < self.heard.at + WAIT
        {
            return true;
        }
        while let Some(message) = self.heard.messages.pop_front() {
            // What came before is the kernel's, and would be lost if that acknowledged it when it does not have the
            // connection any more. Who writes to a shared port comes to it; a port that takes nothing may be down.
            let waits = matches!(message, ToWorker::Offer { .. } | ToWorker::Fence(_))
                && !self.has_delivered(pool, host)
                && (now < self.heard.at + WAIT
                    || host.as_ref().is_some_and(|host| !host.is_stuck()));
            if waits || message.is_after(now) {
                self.heard.messages.push_front(message);
                break;
            }
            match message {
                ToWorker::Begin { session, process } => self.begin(session, process),
                ToWorker::Offer { key, epoch, path, next_hop, place } => {
                    self.offer((key, place), epoch, (path, next_hop), pool, host, now);
                    // Its packets went to the host until now: the fence behind it waits for these.
                    self.heard.flushed = None;
                }
                ToWorker::Seek { key, path } => {
                    let last = host.as_ref().and_then(|host| host.last_arrival(&path));
                    let worker = self.app().worker;
                    self.agent.tell(ToAgent::Seen { worker, key, last });
                }
                ToWorker::Fence(fence) => {
                    let worker = self.app().worker;
                    self.tell(ToAgent::Fenced { worker, fence }, now);
                }
                ToWorker::Told { key, tag, told } => self.told(key, tag, told, pool, host, now),
                ToWorker::MakeRoom { reason } => self.make_room(reason, pool, host, now),
                ToWorker::NextHop { key, next_hop } => {
                    let all = &mut self.app().all;
                    // One that has ended meanwhile sends no more.
                    let connection = all.by_key(key).and_then(|number| all.get_mut(number));
                    connection.into_iter().for_each(|one| one.next_hop = next_hop);
                }
                ToWorker::End { session, resets, stay } => {
                    self.end(session, (&resets, &stay), now);
                }
                ToWorker::Figures { from, to } => {
                    looked_up::answer(self.lane.app(), self.lane.stack(), from, &to);
                }
            }
        }
        true
    }

    /// A connection is not the NIC's any more, and this worker has passed on all that it held.
    pub(super) fn leave(&mut self, place: u32) {
        self.leaving.push(self.lookup.leave(place));
    }

    /// The turn is over: if no stray waits, those that have left are gone.
    pub(crate) fn follow_leaving(&mut self, peers: &mut Option<Peers>) {
        if !self.leaving.is_empty() && peers.as_mut().is_none_or(Peers::has_none) {
            let lookup = &self.lookup;
            self.leaving.drain(..).for_each(|left| lookup.set_gone(left));
        }
    }

    /// Tells the agent, now or behind all that was sent.
    pub(super) fn tell(&mut self, message: ToAgent, now: Nanos) {
        if !self.has_peers || !message.is_behind_sent() {
            return self.agent.tell(message);
        }
        if self.parting.messages.is_empty() {
            self.parting.since = now;
        }
        self.parting.messages.push(message);
    }

    /// The turn is over: tells what waited for all that was sent to leave, unless the wire does not take it. Returns
    /// whether something waits still.
    pub(crate) fn part<W: Wire>(&mut self, queue: &mut WireQueue<W>, now: Nanos) -> bool {
        let Parting { messages, since } = &mut self.parting;
        if messages.is_empty() {
            return false;
        }
        if !queue.has_left() && now < *since + WAIT {
            return true;
        }
        messages.drain(..).for_each(|message| self.agent.tell(message));
        false
    }

    /// A connection that is over is remembered no longer.
    pub(super) fn drop_over<H: Host>(
        &mut self,
        number: u32,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) {
        let (stack, app) = self.lane.parts();
        let id = app.all.get(number).and_then(|c| c.engine.as_ref()).map(|running| running.id);
        // What the engine still knows of it is of no use.
        let _ = id.and_then(|id| stack.freeze(id, now));
        self.handle(number, NicEvent::Ended, pool, host, now);
    }

    fn begin(&mut self, number: u32, process: Arc<dyn Process>) {
        let app = self.lane.parts().1;
        let at = number as usize;
        if app.sessions.len() <= at {
            app.sessions.resize_with(at + 1, || None);
        }
        if let Some(bell) = process.doorbell(app.worker)
            && let Err(error) = self.doorbells.add_edge(bell, number.into(), true, false)
        {
            tracing::warn!("a process's doorbell cannot be waited for, so its calls wait: {error}");
        }
        app.sessions[at] = Some(Session::new(process, app.worker));
    }

    fn offer<H: Host>(
        &mut self,
        (key, place): (Key, u32),
        epoch: Epoch,
        (path, next_hop): (FourTuple, Mac),
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) {
        let most = self.connections;
        let (stack, app) = self.lane.parts();
        if app.all.len() >= most
            && let Some(number) = app.all.oldest_over(|id| is_time_wait(stack, id))
        {
            self.drop_over(number, pool, host, now);
        }
        let room = match self.app().all.len() < most {
            true => self.load.admit(),
            false => Err(Refusal::Connections),
        };
        let Some(number) = self.app().all.insert(key, path, next_hop, place) else {
            let refused = handoff::command::OsControl::Refused(Refusal::Invalid);
            let told = handoff::machine::ToOs::Control(refused);
            self.agent.tell(ToAgent::Told { key, tag: epoch.tag(), told });
            self.leave(place);
            return;
        };
        self.handle(number, NicEvent::Offer(epoch, room), pool, host, now);
    }

    fn told<H: Host>(
        &mut self,
        key: Key,
        tag: u16,
        told: ToNic<HeldPacket, State>,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) {
        match self.app().all.by_key(key) {
            Some(number) => self.handle(number, NicEvent::Told(tag, told), pool, host, now),
            // It has ended: a forwarded packet is the kernel's, if anyone's.
            None => self.counts.stale += 1,
        }
    }

    fn end(&mut self, session: u32, which: (&[Cid], &[Cid]), now: Nanos) {
        let (stack, app) = self.lane.parts();
        app.orphan(session, which, stack, now);
        let worker = app.worker;
        if let Some(session) = app.session(session)
            && let Some(bell) = session.process().doorbell(worker)
        {
            // It goes with the process; that it is gone already is no error.
            let _ = self.doorbells.remove(bell);
        }
        if let Some(session) = app.session(session) {
            session.end();
        }
        app.sweep(session);
    }
}
