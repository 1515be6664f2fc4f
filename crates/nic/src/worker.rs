//! One worker: one wire queue, one host queue, one flow table; every packet runs to its end here.
//!
//! - In: wire port -> lro -> host port (`Worker::wire_to_host`).
//! - Out: host port -> gso -> wire port (`Worker::host_to_wire`).

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use gso::FragmentIds;
use lro::{Lro, Nanos, RxChecksum};
use sys::frames::FramePool;
use sys::poll::Interest;
use wire::GsoType;

use crate::config::Config;
use crate::counters::{self, Counters, Published};
use crate::deliver::{Scratch, ToHost};
use crate::event_loop::{self, EventLoop};
use crate::handle::Seen;
use crate::port::shared::Requests;
use crate::port::{
    FromHost, Host, HostPacket, Limits, Outgoing, Put, Refused, RxFrame, Transmit, Wire,
};

/// How long what active ACK has acknowledged is offered to a host that does not take it, at the end.
const LAST_OFFERS: Nanos = 500_000_000;

/// Frames ahead of the one at hand whose headers are fetched into the cache, and those that are
/// announced to LRO, which by then must be there.
const PREFETCH_AHEAD: usize = 16;
const ANNOUNCE_AHEAD: usize = 12;

/// What a worker goes by.
#[derive(Clone, Debug)]
pub struct Settings {
    config: Config,
    /// Of the wire, in bytes of IP packet.
    mtu: u32,
}

impl Settings {
    fn limits(&self) -> Limits {
        Limits { mtu: self.mtu as usize, hardware: self.config.gso.hardware }
    }
}

/// What a worker shares with the rest of the process.
pub type Handle = crate::handle::Handle<Settings, Published>;

/// That of a worker which starts with `config`, on a wire of this MTU in bytes.
///
/// # Errors
/// What `eventfd` says.
pub fn handle(config: Config, mtu: u32) -> io::Result<Handle> {
    Handle::new(Settings { config, mtu }, Published::of_worker())
}

impl Handle {
    /// Gives the worker a new configuration, which it takes up before its next packet.
    pub fn reconfigure(&self, config: &Config) {
        self.change(|settings| settings.config = config.clone());
    }

    /// Tells the worker the wire's MTU in bytes, which it goes by from its next packet on.
    pub fn set_mtu(&self, mtu: u32) {
        self.change(|settings| settings.mtu = mtu);
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Worker<W, H> {
    handle: Arc<Handle>,
    seen: Seen,
    config: Config,
    limits: Limits,
    wire: W,
    host: H,
    pool: FramePool,
    lro: Lro<RxFrame>,
    counters: Counters,
    /// Frames of the current batch; empty between turns.
    received: VecDeque<RxFrame>,
    scratch: Scratch,
    /// The segment to go on with of the host's last packet, which the wire did not take whole.
    waiting: Option<usize>,
    fragment_ids: FragmentIds,
    /// What the wire is to go by has changed.
    limits_changed: bool,
    /// The wire waits for the host.
    host_full: bool,
}

impl<W: Wire, H: Host> Worker<W, H> {
    /// A worker on its two ports, with `pool` as the memory of its frames.
    pub fn new(handle: Arc<Handle>, config: Config, mut wire: W, host: H, pool: FramePool) -> Self {
        let seen = handle.state();
        let limits = Settings { config: config.clone(), mtu: handle.config().mtu }.limits();
        wire.configure(limits);
        // However much LRO holds, the wire must find memory to receive into.
        let held_frames = pool.capacity() / 4;
        Worker {
            seen,
            lro: Lro::new(lro::Config { held_frames, ..config.lro() }),
            counters: Counters::default(),
            received: VecDeque::with_capacity(256),
            scratch: Scratch::default(),
            waiting: None,
            fragment_ids: FragmentIds::new(RandomState::new().hash_one(held_frames)),
            limits_changed: false,
            host_full: false,
            handle,
            config,
            limits,
            wire,
            host,
            pool,
        }
    }

    /// Works until told to stop; what is held is handed on before the end.
    ///
    /// # Errors
    /// A port that has become useless.
    pub fn run(mut self) -> io::Result<()> {
        let result = event_loop::run(&mut self);
        self.let_go();
        self.deliver_last();
        let result = result.and(self.finish_requests());
        self.publish_counters();
        self.wire.close(&mut self.pool);
        result
    }

    /// One batch each way; returns whether there was anything to do.
    ///
    /// # Errors
    /// A port that has become useless.
    pub fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        self.take_up_changes();
        self.batch(now)
    }

    /// The turn itself, by what the worker goes by already.
    fn batch(&mut self, now: Nanos) -> io::Result<bool> {
        self.take_completions();
        self.deliver_again();
        let inward = self.wire_to_host(now)?;
        let outward = self.host_to_wire()?;
        self.wire.flush(&mut self.pool)?;
        let mut host =
            ToHost::new(&mut self.host, &self.pool, &mut self.counters, &mut self.scratch);
        self.lro.expire(now, &mut host);
        Ok(inward || outward)
    }

    /// What active ACK has acknowledged and the host did not take is offered again.
    fn deliver_again(&mut self) {
        let keep = self.lro.config().active_ack != lro::ActiveAck::Off;
        self.scratch.keep_undelivered(keep);
        if self.scratch.is_stuck() {
            ToHost::new(&mut self.host, &self.pool, &mut self.counters, &mut self.scratch)
                .deliver_again();
        }
    }

    /// What the host has not taken by the end is offered for a while longer.
    fn deliver_last(&mut self) {
        let end = sys::clock::now() + LAST_OFFERS;
        while self.scratch.is_stuck() && sys::clock::now() < end {
            if let Some(pause) = self.scratch.retry_after() {
                std::thread::sleep(Duration::from_nanos(pause));
            }
            self.deliver_again();
        }
        self.counters.refused[Refused::HostFull as usize] += self.scratch.give_up();
    }

    /// What the worker has counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The worker's receive offload.
    pub fn lro(&self) -> &Lro<RxFrame> {
        &self.lro
    }

    /// The memory of the worker's frames.
    pub fn pool(&self) -> &FramePool {
        &self.pool
    }

    /// In: a batch from the wire, through LRO, to the host. A full queue in front of the host makes
    /// the wire wait, as does a packet that must not be lost.
    fn wire_to_host(&mut self, now: Nanos) -> io::Result<bool> {
        if self.scratch.is_stuck() {
            return Ok(false);
        }
        let full = !self.host_has_room();
        self.counters.requests_full += u64::from(full && !self.host_full);
        self.host_full = full;
        if full {
            return Ok(false);
        }
        // What becomes of a request is known too late to keep the packet.
        self.lro.suspend_acknowledgments(self.host.requests().is_some());
        self.wire.receive(&mut self.pool, &mut self.received, self.config.poll.batch)?;
        let pool = &self.pool;
        self.received.iter().take(PREFETCH_AHEAD).for_each(|ahead| pool.prefetch(&ahead.frame));
        let mut host = ToHost::new(&mut self.host, pool, &mut self.counters, &mut self.scratch);
        let count = self.received.len();
        while let Some(received) = self.received.pop_front() {
            if let Some(ahead) = self.received.get(PREFETCH_AHEAD - 1) {
                pool.prefetch(&ahead.frame);
            }
            if let Some(ahead) = self.received.get(ANNOUNCE_AHEAD - 1) {
                self.lro.announce(pool.bytes(&ahead.frame));
            }
            host.count_received(&received);
            if received.overflow > 0 || received.vnet.gso_type != GsoType::None {
                // Merged elsewhere already.
                self.lro.interrupt_flow(pool.bytes(&received.frame), &mut host);
                let rest = self.wire.overflow(&received);
                host.super_packet(received, rest);
            } else if self.config.lro.enable {
                let bytes = pool.bytes(&received.frame);
                let checksum = rx_checksum(&received);
                self.lro.receive(received, bytes, checksum, now, &mut host);
            } else {
                host.frame(received);
            }
        }
        if count < self.config.poll.batch.min(self.wire.burst()) {
            self.lro.burst_ends(&mut host);
        }
        if host.is_stuck() {
            self.lro.suspend_acknowledgments(true);
        }
        self.lro.acknowledge(&mut host);
        self.send_acknowledgments();
        Ok(count > 0)
    }

    /// Sends what active ACK has to say. A wire that is full loses it, as a later one says the same.
    fn send_acknowledgments(&mut self) {
        let Worker { wire, pool, counters, scratch, .. } = self;
        scratch.acknowledgments.each(|frame| {
            let mut put = Put::default();
            let result = wire.transmit(pool, Outgoing::frame(frame), &mut put);
            counters.wire_out.add(put.sent);
            counters.wire_full += u64::from(matches!(result, Ok(Transmit::Full { .. })));
        });
    }

    /// Out: a batch of packets from the host, cut by GSO, to the wire. A wire that is full makes
    /// the host wait; nothing is dropped.
    fn host_to_wire(&mut self) -> io::Result<bool> {
        let mut worked = false;
        for _ in 0..self.config.poll.batch {
            // The rest of a packet is cut as its beginning was.
            if self.limits_changed && self.waiting.is_none() {
                self.limits_changed = false;
                self.wire.configure(self.limits);
            }
            let (packet, position) = match self.waiting.take() {
                Some(position) => match self.host.again() {
                    Some(packet) => (packet, position),
                    None => continue,
                },
                None => match self.host.receive()? {
                    FromHost::Packet(packet) => {
                        self.counters.host_out.count(packet.bytes.len());
                        self.lro.observe(packet.bytes);
                        (packet, 0)
                    }
                    FromHost::Unreadable => {
                        self.counters.host_unreadable += 1;
                        worked = true;
                        continue;
                    }
                    FromHost::Empty => break,
                },
            };
            let HostPacket { vnet, bytes } = packet;
            let packet = Outgoing { vnet, bytes, position, fragment_ids: self.fragment_ids };
            let (wire, pool) = (&mut self.wire, &mut self.pool);
            self.waiting = transmit(wire, pool, packet, &mut self.fragment_ids, &mut self.counters);
            // Offering the same segment to a full wire again and again is no work.
            worked |= self.waiting != Some(position);
            if self.waiting.is_some() {
                self.counters.wire_full += 1;
                break;
            }
        }
        Ok(worked)
    }

    /// Whether packets may be taken from the wire: not while too many wait for a host port that several
    /// workers share.
    fn host_has_room(&self) -> bool {
        self.host.requests().is_none_or(Requests::has_room)
    }

    /// Counts what became of the packets that were requested of a shared host port; returns whether
    /// there were any.
    fn take_completions(&mut self) -> bool {
        let Some(requests) = self.host.requests_mut() else { return false };
        let mut any = false;
        while let Some(outcome) = requests.completed(&self.pool) {
            any = true;
            match outcome {
                Ok(bytes) => self.counters.host_in.count(bytes),
                Err(why) => self.counters.refused[why as usize] += 1,
            }
        }
        any
    }

    fn disarm(&self) -> io::Result<()> {
        self.host.requests().map_or(Ok(()), Requests::disarm)
    }

    /// Waits until the host has, or has refused, all that was requested.
    fn finish_requests(&mut self) -> io::Result<()> {
        loop {
            if let Some(requests) = self.host.requests() {
                requests.arm();
            }
            let any = self.take_completions();
            match self.host.requests() {
                Some(requests) if requests.under_way() > 0 && !any => requests.wait()?,
                Some(requests) if requests.under_way() > 0 => {}
                _ => return Ok(()),
            }
        }
    }

    fn let_go(&mut self) {
        let mut host =
            ToHost::new(&mut self.host, &self.pool, &mut self.counters, &mut self.scratch);
        self.lro.flush_all(&mut host);
    }

    fn take_up_changes(&mut self) {
        if !self.handle.look(&mut self.seen) {
            return;
        }
        let settings = self.handle.config().clone();
        self.limits = settings.limits();
        self.config = settings.config;
        self.limits_changed = true;
        let mut host =
            ToHost::new(&mut self.host, &self.pool, &mut self.counters, &mut self.scratch);
        self.lro.reconfigure(self.config.lro(), &mut host);
    }

    fn publish_counters(&mut self) {
        self.wire.publish();
        self.counters.wire_dropped = self.wire.dropped();
        self.counters.wire_lost = self.wire.lost();
        self.counters.wire_taken_back = self.wire.taken_back();
        self.handle.published().publish(counters::all(&self.counters, self.lro.counters()));
    }
}

impl<W: Wire, H: Host> EventLoop for Worker<W, H> {
    fn goes_on(&mut self) -> bool {
        self.take_up_changes();
        !self.seen.is_stopped()
    }

    fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        self.batch(now)
    }

    fn spin(&self) -> Nanos {
        self.config.poll.spin
    }

    /// Sleeps in the kernel until a port or the control thread has something. The burst is over,
    /// so what is in order does not stay held. A timer is needed only while LRO waits for a hole to
    /// be filled, or for a wire that cannot wake the worker when it takes frames again. When it is the
    /// host that makes the wire wait, the burst goes on.
    fn sleep(&mut self, _now: Nanos) -> io::Result<()> {
        let room = self.host_has_room() && !self.scratch.is_stuck();
        if room {
            let mut host =
                ToHost::new(&mut self.host, &self.pool, &mut self.counters, &mut self.scratch);
            self.lro.idle(&mut host);
        }
        self.counters.sleeps += 1;
        self.publish_counters();
        if let Some(requests) = self.host.requests() {
            requests.arm();
        }
        if self.take_completions() {
            return self.disarm();
        }
        let pending = self.waiting.is_some() || self.wire.is_pending();
        let retry = self.wire.retry_after().filter(|_| pending);
        let write = pending && retry.is_none();
        let wire = self.wire.fd().zip(interest(room, write));
        let host = self.host.fd().filter(|_| self.waiting.is_none());
        let host = host.map(|host| (host, Interest::Read));
        let requests = self.host.requests().map(|requests| (requests.fd(), Interest::Read));
        let ports = [wire, host, requests].into_iter().flatten();
        let deadlines = [self.lro.next_deadline(), self.wire.next_deadline()];
        let now = sys::clock::now();
        let due = deadlines.into_iter().flatten().map(|at| at.saturating_sub(now));
        let undelivered = self.scratch.retry_after();
        self.handle.sleep(ports, due.chain(retry).chain(undelivered).min())?;
        self.disarm()
    }

    fn publish(&mut self, _now: Nanos) {
        self.publish_counters();
    }
}

/// Gives one packet to the wire; the segment to go on with later, if the wire is full.
fn transmit<W: Wire>(
    wire: &mut W,
    pool: &mut FramePool,
    packet: Outgoing<'_>,
    fragment_ids: &mut FragmentIds,
    counters: &mut Counters,
) -> Option<usize> {
    let len = packet.bytes.len();
    let mut put = Put::default();
    let result = wire.transmit(pool, packet, &mut put);
    counters.wire_out.add(put.sent);
    let done = matches!(result, Ok(Transmit::Done));
    counters.gso.count(&put, done.then_some(len));
    if let Ok(Transmit::Full { position }) = result {
        return Some(position);
    }
    fragment_ids.advance(put.fragment_ids);
    if let Err(why) = result {
        counters.gso_refused.0[why.index()] += 1;
    }
    None
}

/// What to wait for on the wire.
fn interest(read: bool, write: bool) -> Option<Interest> {
    match (read, write) {
        (true, true) => Some(Interest::ReadWrite),
        (true, false) => Some(Interest::Read),
        (false, true) => Some(Interest::Write),
        (false, false) => None,
    }
}

/// What the port knows of a checksum, for LRO.
fn rx_checksum(received: &RxFrame) -> RxChecksum {
    if received.vnet.needs_csum || received.vnet.data_valid {
        RxChecksum::Verified
    } else if received.maybe_partial {
        RxChecksum::MaybePartial
    } else {
        RxChecksum::Unverified
    }
}
