//! The host's lane: from the wire through LRO to the host port, and from there through GSO to the wire.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use gso::FragmentIds;
use lro::{Lro, Nanos};
use sys::frames::FramePool;
use sys::poll::Interest;
use tcp::FourTuple;
use wire::VirtioNetHdr;

use super::deliver::{self, Scratch, ToHost};
use super::{ANNOUNCE_AHEAD, PREFETCH_AHEAD, checksum_of, is_merged};
use crate::counters::HostCounters;
use crate::port::shared::Requests;
use crate::port::slice;
use crate::port::{
    CuttingHost, Delivery, FromHost, Host, HostPacket, Outgoing, Refused, RxFrame, Transmit,
    Transmitted, Wire,
};
use crate::steer;
use crate::wire_queue::{Packet, WireQueue};

/// How long what active ACK has acknowledged is offered to a host that does not take it, at the end.
const LAST_OFFERS: Nanos = 500_000_000;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct HostLane<H> {
    host: CuttingHost<H>,
    lro: Lro<RxFrame>,
    scratch: Scratch,
    /// The segment to go on with of the host's last packet, which the wire did not take whole.
    waiting: Option<usize>,
    fragment_ids: FragmentIds,
    counters: HostCounters,
    /// The wire waits for the host.
    is_full: bool,
    /// The last [`HostLane::transmit`] left nothing.
    has_read_all: bool,
}

impl<H: Host> HostLane<H> {
    /// In front of this port.
    pub(crate) fn new(host: H, lro: lro::Config) -> Self {
        let counters = HostCounters::refusing(host.refuses());
        HostLane {
            host: CuttingHost::new(host),
            fragment_ids: FragmentIds::new(RandomState::new().hash_one(lro.held_frames)),
            lro: Lro::new(lro),
            scratch: Scratch::default(),
            waiting: None,
            counters,
            is_full: false,
            has_read_all: true,
        }
    }

    /// Whether all that the host had sent when [`HostLane::transmit`] was called last has gone its way.
    pub(crate) fn has_read_all(&self) -> bool {
        self.has_read_all
    }

    /// Packets that were taken from the host so far.
    pub(crate) fn taken(&self) -> u64 {
        self.counters.taken.frames
    }

    pub(crate) fn counters(&self) -> &HostCounters {
        &self.counters
    }

    pub(crate) fn lro(&self) -> &Lro<RxFrame> {
        &self.lro
    }

    /// Gives `work` LRO, and what leaves it a way to the host.
    fn with_lro<T>(
        &mut self,
        pool: &FramePool,
        work: impl FnOnce(&mut Lro<RxFrame>, &mut ToHost<'_, H>) -> T,
    ) -> T {
        let HostLane { host, lro, scratch, counters, .. } = self;
        work(lro, &mut ToHost::new(host, pool, counters, scratch))
    }

    /// Goes by another configuration from now on.
    pub(crate) fn reconfigure(&mut self, config: lro::Config, pool: &FramePool) {
        self.with_lro(pool, |lro, host| lro.reconfigure(config, host));
    }

    /// A turn begins: takes what has become of requests, and offers again what active ACK has acknowledged and
    /// the host did not take.
    pub(crate) fn begin(&mut self, pool: &FramePool) {
        self.take_completions(pool);
        let keep = self.lro.config().active_ack != lro::ActiveAck::Off;
        self.scratch.keep_undelivered(keep);
        self.deliver_again(pool);
    }

    fn deliver_again(&mut self, pool: &FramePool) {
        if self.scratch.is_stuck() {
            self.with_lro(pool, |_, host| host.deliver_again());
        }
    }

    /// Whether packets may be taken from the wire: a full queue in front of the host makes it wait, as does a
    /// packet that must not be lost.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.scratch.is_stuck() {
            return false;
        }
        let full = !self.queue_has_room();
        self.counters.requests_full += u64::from(full && !self.is_full);
        self.is_full = full;
        !full
    }

    /// Of a host port that several workers share.
    fn queue_has_room(&self) -> bool {
        self.host.requests().is_none_or(Requests::has_room)
    }

    /// In: a batch from the wire, through LRO, to the host. `ends` says that no more waits on the wire.
    pub(crate) fn receive<W: Wire>(
        &mut self,
        batch: &mut VecDeque<RxFrame>,
        queue: &mut WireQueue<W>,
        config: &crate::config::Lro,
        now: Nanos,
        ends: bool,
    ) {
        // What becomes of a request is known too late to keep the packet.
        self.lro.suspend_acknowledgments(self.host.requests().is_some());
        let pool = &queue.pool;
        batch.iter().take(PREFETCH_AHEAD).for_each(|ahead| pool.prefetch(&ahead.frame));
        let HostLane { host, lro, scratch, counters, .. } = self;
        let mut host = ToHost::new(host, pool, counters, scratch);
        while let Some(received) = batch.pop_front() {
            if let Some(ahead) = batch.get(PREFETCH_AHEAD - 1) {
                pool.prefetch(&ahead.frame);
            }
            if let Some(ahead) = batch.get(ANNOUNCE_AHEAD - 1) {
                lro.announce(pool.bytes(&ahead.frame));
            }
            if is_merged(&received) {
                // Merged elsewhere already.
                lro.interrupt_flow(pool.bytes(&received.frame), &mut host);
                let rest = queue.overflow(&received);
                host.super_packet(received, rest);
            } else if config.enable && host.may_merge(&received) {
                let bytes = pool.bytes(&received.frame);
                let checksum = checksum_of(&received.vnet, received.maybe_partial);
                lro.receive(received, bytes, checksum, now, &mut host);
            } else {
                if config.enable {
                    lro.interrupt_flow(pool.bytes(&received.frame), &mut host);
                }
                host.frame(received);
            }
        }
        if ends {
            lro.burst_ends(&mut host);
        }
        if host.is_stuck() {
            lro.suspend_acknowledgments(true);
        }
        lro.acknowledge(&mut host);
        self.send_acknowledgments(queue);
    }

    /// Sends what active ACK has to say. A wire that is full loses it, as a later one says the same.
    fn send_acknowledgments<W: Wire>(&mut self, queue: &mut WireQueue<W>) {
        self.scratch.acknowledgments.each(|frame| {
            // Refused is what cannot be cut, which these need not be.
            let _ = queue.transmit(Outgoing::frame(frame), &mut Transmitted::default());
        });
    }

    /// Out: a batch of packets from the host, cut by GSO, to the wire; but for those that `elsewhere` takes. A
    /// wire that is full makes the host wait; nothing is dropped. Returns whether there was anything to do.
    ///
    /// # Errors
    /// A port that has become useless.
    pub(crate) fn transmit<W: Wire>(
        &mut self,
        queue: &mut WireQueue<W>,
        (max, max_bytes): (usize, usize),
        mut elsewhere: impl FnMut(&HostPacket<'_>, &FramePool) -> bool,
    ) -> io::Result<bool> {
        let mut worked = false;
        self.has_read_all = false;
        let end = self.counters.taken.bytes + max_bytes as u64;
        for _ in 0..max {
            if self.counters.taken.bytes >= end {
                break;
            }
            let (packet, position) = match self.waiting.take() {
                Some(position) => match self.host.again() {
                    Some(packet) => (packet, position),
                    // The port has lost it. Nothing of it is left to wait for.
                    None => {
                        queue.set_midway(false);
                        self.counters.unreadable += 1;
                        continue;
                    }
                },
                None => match self.host.receive()? {
                    FromHost::Packet(packet) => {
                        self.counters.taken.count(packet.bytes.len());
                        if elsewhere(&packet, &queue.pool) {
                            worked = true;
                            continue;
                        }
                        self.lro.observe(packet.bytes);
                        queue.begin_packet();
                        (packet, 0)
                    }
                    FromHost::Unreadable => {
                        self.counters.unreadable += 1;
                        worked = true;
                        continue;
                    }
                    FromHost::Empty => {
                        self.has_read_all = true;
                        break;
                    }
                },
            };
            let HostPacket { vnet, bytes } = packet;
            let packet = Outgoing { vnet, bytes, position, fragment_ids: self.fragment_ids };
            self.waiting = transmit(queue, packet, &mut self.fragment_ids, &mut self.counters);
            queue.set_midway(self.waiting.is_some());
            // Offering the same segment to a full wire again and again is no work.
            worked |= self.waiting != Some(position);
            if self.waiting.is_some() {
                break;
            }
        }
        Ok(worked)
    }

    /// Delivers a packet of the engine's beside it; returns whether the host has it, or will have.
    pub(crate) fn deliver(&mut self, pool: &FramePool, packet: &Packet<'_>) -> bool {
        let Packet { vnet, header, payload: [first, second] } = *packet;
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let rest = [slice(first, &mut one), slice(second, &mut two)];
        let packet = Delivery { vnet, header, frames: &mut Vec::new(), rest };
        let bytes = packet.bytes();
        match self.host.deliver(pool.reader(), packet) {
            Ok(delivered) => self.counters.count(delivered, bytes),
            Err(error) => {
                self.counters.refused[Refused::from_error(&error) as usize] += 1;
                return false;
            }
        }
        true
    }

    /// A packet of the host's that lies in none of the worker's frames.
    pub(crate) fn take(
        &mut self,
        pool: &FramePool,
        (vnet, maybe_partial): (VirtioNetHdr, bool),
        bytes: &[u8],
    ) {
        self.interrupt_flow(pool, bytes);
        let vnet = if maybe_partial { deliver::partial(bytes) } else { vnet };
        // That the kernel does not take it is counted there.
        let _ = self.deliver(pool, &Packet::frame(vnet, bytes));
    }

    /// A packet of this flow goes another way: it does not overtake what LRO holds.
    pub(crate) fn interrupt_flow(&mut self, pool: &FramePool, bytes: &[u8]) {
        self.with_lro(pool, |lro, host| lro.interrupt_flow(bytes, host));
    }

    /// When a segment of this connection came last that LRO could merge, if it knows of one.
    pub(crate) fn last_arrival(&self, path: &FourTuple) -> Option<Nanos> {
        self.lro.last_arrival(&steer::key_of_path(path))
    }

    /// Packets that were requested of a shared host port so far.
    pub(crate) fn requested(&self) -> u64 {
        self.counters.requests
    }

    /// Whether the host has, or has refused, the first so many packets that were requested, and all others.
    pub(crate) fn has_delivered(&self, requested: u64) -> bool {
        let in_flight = self.host.requests().map_or(0, Requests::in_flight) as u64;
        self.counters.requests - in_flight >= requested && !self.scratch.is_stuck()
    }

    /// Whether a port of its own does not take what it was given.
    pub(crate) fn is_stuck(&self) -> bool {
        self.scratch.is_stuck()
    }

    /// Flushes all that LRO holds.
    pub(crate) fn flush(&mut self, pool: &FramePool) {
        self.with_lro(pool, |lro, host| lro.flush_all(host));
    }

    /// Flushes what LRO has held for long enough.
    pub(crate) fn expire(&mut self, pool: &FramePool, now: Nanos) {
        self.with_lro(pool, |lro, host| lro.expire(now, host));
    }

    /// The burst is over, so what is in order does not stay held; unless it is the host that makes the wire
    /// wait. Returns whether the wire may be read.
    pub(crate) fn idle(&mut self, pool: &FramePool) -> bool {
        let room = self.queue_has_room() && !self.scratch.is_stuck();
        if room {
            self.with_lro(pool, |lro, host| lro.idle(host));
        }
        room
    }

    /// When LRO has waited long enough for a hole to be filled.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.lro.next_deadline()
    }

    /// When to offer again what the host did not take, in nanoseconds.
    pub(crate) fn retry_after(&self) -> Option<Nanos> {
        self.scratch.retry_after()
    }

    /// Makes the completion of requests wake the worker; returns whether some were there, so that it stays
    /// awake.
    pub(crate) fn arm(&mut self, pool: &FramePool) -> bool {
        if let Some(requests) = self.host.requests() {
            requests.arm();
        }
        self.take_completions(pool)
    }

    /// The worker is awake.
    ///
    /// # Errors
    /// What `read` says of an eventfd.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        self.host.requests().map_or(Ok(()), Requests::disarm)
    }

    /// What to sleep on, and for what.
    pub(crate) fn wait(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Interest)> {
        let host = self.host.fd().filter(|_| self.waiting.is_none());
        let requests = self.host.requests().map(Requests::fd);
        host.into_iter().chain(requests).map(|port| (port, Interest::Read))
    }

    /// Whether a packet waits for room on the wire.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Counts what became of the packets that were requested of a shared host port; returns whether
    /// there were any.
    fn take_completions(&mut self, pool: &FramePool) -> bool {
        let Some(requests) = self.host.requests_mut() else { return false };
        let mut any = false;
        while let Some(outcome) = requests.completed(pool) {
            any = true;
            match outcome {
                Ok(served) => self.counters.count_served(&served),
                Err(why) => self.counters.refused[why as usize] += 1,
            }
        }
        any
    }

    /// Delivers all that is held, and offers what the host does not take for a while longer.
    ///
    /// # Errors
    /// What `ppoll` says.
    pub(crate) fn finish(&mut self, pool: &FramePool) -> io::Result<()> {
        self.with_lro(pool, |lro, host| lro.flush_all(host));
        let end = sys::clock::now() + LAST_OFFERS;
        while self.scratch.is_stuck() && sys::clock::now() < end {
            if let Some(pause) = self.scratch.retry_after() {
                std::thread::sleep(Duration::from_nanos(pause));
            }
            self.deliver_again(pool);
        }
        self.counters.refused[Refused::HostFull as usize] += self.scratch.give_up();
        self.finish_requests(pool)
    }

    /// The worker ends: what the wire did not take of the host's last packet is lost.
    pub(crate) fn give_up<W: Wire>(&mut self, queue: &mut WireQueue<W>) {
        let Some(position) = self.waiting.take() else { return };
        if let Some(HostPacket { vnet, bytes }) = self.host.again() {
            queue.give_up_rest(bytes, &vnet, position);
        }
    }

    /// Waits until the host has, or has refused, all that was requested.
    fn finish_requests(&mut self, pool: &FramePool) -> io::Result<()> {
        loop {
            let any = self.arm(pool);
            match self.host.requests() {
                Some(requests) if requests.in_flight() > 0 && !any => requests.wait()?,
                Some(requests) if requests.in_flight() > 0 => {}
                _ => return Ok(()),
            }
        }
    }
}

/// Gives one packet to the wire; the segment to go on with later, if the wire is full.
fn transmit<W: Wire>(
    queue: &mut WireQueue<W>,
    packet: Outgoing<'_>,
    fragment_ids: &mut FragmentIds,
    counters: &mut HostCounters,
) -> Option<usize> {
    let len = packet.bytes.len();
    let mut transmitted = Transmitted::default();
    let result = queue.transmit(packet, &mut transmitted);
    let done = matches!(result, Ok(Transmit::Done));
    counters.gso.count(&transmitted, done.then_some(len));
    if let Ok(Transmit::Full { position }) = result {
        return Some(position);
    }
    fragment_ids.advance(transmitted.fragment_ids);
    if let Err(why) = result {
        counters.gso_refused.0[why.index()] += 1;
    }
    None
}
