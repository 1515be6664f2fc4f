//! The engine's lane: from the wire through LRO and the IP host to TCP, and to what is behind its connections.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Sender;

use iface::Duplicate;
use lro::{Aggregate, Discard, Lro, Nanos, Pass, RxChecksum, Sink};
use sys::frames::{Frame, FramePool};
use tcp::{FourTuple, Stack};
use wire::VirtioNetHdr;

use super::counters::{EngineCounters, ShortWay};
use super::give_back::GiveBack;
use super::node::{Node, Progress};
use super::trace::{Trace, Tracer};
use super::{ANNOUNCE_AHEAD, Arrived, PREFETCH_AHEAD, checksum_of, is_merged, payload};
use crate::app::App;
use crate::peers::Peers;
use crate::port::{RxFrame, Wire};
use crate::steer;
use crate::wire_queue::{Packet, TxQueue, WireQueue};

/// With more connections than this, a batch is announced to the engine: they do not fit the cache.
const ANNOUNCE_FROM: usize = 512;
/// Super-packets that are sent before it is looked again what has arrived.
const SEND_BATCH: usize = 64;

/// See the module's documentation.
pub(crate) struct EngineLane<A> {
    /// `None` if it is turned off.
    lro: Option<Lro<RxFrame>>,
    node: Node,
    app: A,
    /// The addresses are in use, and the app has begun.
    has_begun: bool,
    /// There was no room for what there is to send.
    is_full: bool,
    give_back: GiveBack,
    /// Bytes after which it is looked again what has arrived.
    send_bytes: usize,
    pays: Pays,
    scratch: Scratch,
    /// Told once: that the addresses are in use, or which one is another host's.
    ready: Sender<Result<(), Duplicate>>,
    /// Of one connection, if that is asked for.
    tracer: Option<Tracer>,
}

/// Whether LRO joins anything. Where many connections have a segment each in a batch it does not, and costs more
/// than the engine does; then it is left out for a while.
#[derive(Debug, Default)]
struct Pays {
    /// Frames of batches since it was last looked, and segments that they became.
    frames: u32,
    segments: u32,
    /// Frames for which it is left out.
    left_out: u32,
}

impl Pays {
    /// Smaller batches say nothing: the next segment of a flow may be the first of the next batch, and time is
    /// not short.
    const BATCH: u32 = 8;
    /// It is looked each so many frames, and left out for so many.
    const LOOK: u32 = 256;
    const LEAVE_OUT: u32 = 4096;

    /// Whether it is left out for the next frames.
    fn leaves_out(&mut self, frames: u32) -> bool {
        let leaves_out = self.left_out > 0;
        self.left_out = self.left_out.saturating_sub(frames);
        leaves_out
    }

    /// A batch of frames became so many segments. Returns whether it is to be left out from now on.
    fn no_longer(&mut self, frames: u32, segments: u32) -> bool {
        if frames < Self::BATCH {
            return false;
        }
        self.frames += frames;
        self.segments += segments;
        if self.frames < Self::LOOK {
            return false;
        }
        let joined = self.frames.saturating_sub(self.segments);
        let pays = joined > self.frames / 16;
        *self = Pays { left_out: if pays { 0 } else { Self::LEAVE_OUT }, ..Pays::default() };
        !pays
    }
}

/// What is kept for its memory.
#[derive(Default)]
struct Scratch {
    /// Frames of the aggregate at hand.
    frames: Vec<Frame>,
    /// Its payload; empty between calls.
    slices: Vec<&'static [u8]>,
    /// Packets that LRO found to be damaged.
    damaged: u64,
}

impl<A: App> EngineLane<A> {
    /// An IP host with an app behind its connections. It tells when its addresses are in use.
    pub(crate) fn new(
        lro: Option<lro::Config>,
        node: Node,
        app: A,
        ready: Sender<Result<(), Duplicate>>,
    ) -> Self {
        EngineLane {
            lro: lro.map(Lro::new),
            node,
            app,
            has_begun: false,
            is_full: false,
            give_back: GiveBack::default(),
            send_bytes: usize::MAX,
            pays: Pays::default(),
            scratch: Scratch::default(),
            ready,
            tracer: None,
        }
    }

    /// The engine, and what is behind its connections.
    pub(super) fn parts(&mut self) -> (&mut Stack, &mut A) {
        (&mut self.node.stack, &mut self.app)
    }

    /// What is behind its connections.
    #[inline]
    pub(super) fn app(&self) -> &A {
        &self.app
    }

    /// The engine.
    #[inline]
    pub(super) fn stack(&self) -> &Stack {
        &self.node.stack
    }

    /// The host that it is.
    pub(super) fn interface(&mut self) -> &mut iface::Interface {
        &mut self.node.interface
    }

    /// Gives the engine all that LRO holds.
    pub(super) fn flush(&mut self, pool: &FramePool, now: Nanos) {
        self.with_lro(pool, now, |lro, node| lro.flush_all(node));
    }

    /// The same, which sends no more than so many bytes in a turn, but for the rest of a super-packet.
    pub(super) fn with_send_bytes(mut self, bytes: usize) -> Self {
        self.send_bytes = bytes;
        self
    }

    /// The same with a trace of one of its connections.
    pub(crate) fn with_trace(mut self, trace: Option<&Trace>) -> Self {
        self.tracer = trace.map(|trace| trace.of_worker(&mut self.node.stack));
        self
    }

    /// Begins to use the addresses.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.node.interface.start(now);
    }

    /// Goes by another configuration from now on; `None` leaves LRO out.
    pub(crate) fn reconfigure(
        &mut self,
        config: Option<lro::Config>,
        pool: &FramePool,
        now: Nanos,
    ) {
        match (&mut self.lro, config) {
            (Some(_), Some(config)) => {
                self.with_lro(pool, now, |lro, node| lro.reconfigure(config, node));
            }
            (_, config) => {
                self.with_lro(pool, now, |lro, node| lro.flush_all(node));
                self.lro = config.map(Lro::new);
            }
        }
    }

    /// Gives `work` LRO, if there is one, and what leaves it a way to the node.
    fn with_lro(
        &mut self,
        pool: &FramePool,
        now: Nanos,
        work: impl FnOnce(&mut Lro<RxFrame>, &mut ToNode<'_, A>),
    ) {
        let EngineLane { lro, node, app, scratch, .. } = self;
        if let Some(lro) = lro {
            work(lro, &mut ToNode { pool, scratch, node, app, now });
        }
    }

    /// A batch from the wire. `ends` says that no more waits there.
    pub(crate) fn receive<W: Wire>(
        &mut self,
        batch: &mut VecDeque<RxFrame>,
        queue: &WireQueue<W>,
        now: Nanos,
        ends: bool,
    ) {
        let pool = &queue.pool;
        let EngineLane { lro, node, app, scratch, pays, .. } = self;
        if node.stack.len() > ANNOUNCE_FROM {
            announce(&node.stack, batch, pool);
        }
        let (frames, before) = (batch.len() as u32, node.counters.segments_in.frames);
        let mut node = ToNode { pool, scratch, node, app, now };
        // What it held was handed on when that was found.
        let lro = if pays.leaves_out(frames) { &mut None } else { lro };
        batch.iter().take(PREFETCH_AHEAD).for_each(|ahead| pool.prefetch(&ahead.frame));
        while let Some(received) = batch.pop_front() {
            if let Some(ahead) = batch.get(PREFETCH_AHEAD - 1) {
                pool.prefetch(&ahead.frame);
            }
            let merged = is_merged(&received);
            match &mut *lro {
                Some(lro) if !merged => {
                    if let Some(ahead) = batch.get(ANNOUNCE_AHEAD - 1) {
                        lro.announce(pool.bytes(&ahead.frame));
                    }
                    let checksum = checksum_of(&received.vnet, received.maybe_partial);
                    let bytes = pool.bytes(&received.frame);
                    lro.receive(received, bytes, checksum, now, &mut node);
                }
                lro => {
                    // Merged elsewhere already.
                    if let Some(lro) = lro {
                        lro.interrupt_flow(pool.bytes(&received.frame), &mut node);
                    }
                    let rest = queue.overflow(&received);
                    node.frame(received, rest);
                }
            }
        }
        if let Some(lro) = lro {
            if ends {
                lro.burst_ends(&mut node);
            }
            lro.expire(now, &mut node);
            let given = node.node.counters.segments_in.frames - before;
            if pays.no_longer(frames, given as u32) {
                lro.flush_all(&mut node);
            }
        }
    }

    /// Gives the engine what LRO has held for long enough.
    pub(crate) fn expire(&mut self, pool: &FramePool, now: Nanos) {
        self.with_lro(pool, now, |lro, node| lro.expire(now, node));
    }

    /// A packet in one piece that lies in none of the worker's frames.
    pub(crate) fn take(
        &mut self,
        pool: &FramePool,
        (vnet, maybe_partial): (&VirtioNetHdr, bool),
        bytes: &[u8],
        now: Nanos,
    ) {
        // Nothing overtakes what LRO holds.
        self.with_lro(pool, now, |lro, node| lro.interrupt_flow(bytes, node));
        let checksum = checksum_of(vnet, maybe_partial);
        let arrived = Arrived { bytes, rest: &[], checksum, gso_size: vnet.gso_size };
        self.node.receive(arrived, &mut self.app, now);
    }

    /// A packet that the engine of another worker takes, and that tells where neighbours are.
    pub(crate) fn overhear(&mut self, bytes: &[u8], now: Nanos) {
        self.node.interface.overhear(&iface::Packet::frame(bytes), now);
    }

    /// Runs what is due, asks the app, and sends what there is to send. Returns whether there was anything to
    /// do.
    ///
    /// # Errors
    /// An address is another host's, or the app cannot begin.
    pub(crate) fn turn(
        &mut self,
        out: &mut impl TxQueue,
        peers: &mut Option<Peers>,
        now: Nanos,
    ) -> io::Result<bool> {
        self.node.on_time(now);
        if !self.has_begun {
            self.settle(peers, now)?;
        }
        let EngineLane { node, app, lro, send_bytes, .. } = self;
        let served = app.serve(&mut node.stack, now);
        let out = &mut Observed { lro: lro.as_mut(), out };
        let progress = node.transmit(out, now, (SEND_BATCH, *send_bytes), app);
        self.is_full = progress == Progress::Full;
        app.on_time(&mut node.stack, now);
        if let Some(tracer) = &mut self.tracer {
            tracer.hand_on(&mut node.stack);
        }
        if let Some(peers) = peers {
            peers.follow(std::iter::from_fn(|| node.stack.next_change()));
        }
        Ok(served || progress == Progress::Some)
    }

    /// Begins once the addresses may be used.
    fn settle(&mut self, peers: &mut Option<Peers>, now: Nanos) -> io::Result<()> {
        let Node { interface, stack, .. } = &mut self.node;
        if let Some(duplicate) = interface.poll_duplicate() {
            // There is one to be told, or the worker is about to be stopped.
            let _ = self.ready.send(Err(duplicate));
            return Err(io::Error::other(duplicate.to_string()));
        }
        if interface.is_settled() {
            let _ = self.ready.send(Ok(()));
            self.has_begun = true;
            let mut may_open =
                |path: &FourTuple| peers.as_mut().is_none_or(|peers| peers.claim(path));
            self.app.begin(stack, interface, &mut may_open, now)?;
        }
        Ok(())
    }

    /// Nothing more comes for now: what was kept to be joined with more is taken. Returns whether there was
    /// any.
    pub(crate) fn idle(&mut self, pool: &FramePool, now: Nanos) -> bool {
        let before = self.node.counters.segments_in.frames;
        self.with_lro(pool, now, |lro, node| lro.idle(node));
        self.node.counters.segments_in.frames > before
    }

    /// The earliest of what is due.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let lro = self.lro.as_ref().and_then(Lro::next_deadline);
        let others = [self.app.next_deadline(), self.node.next_deadline(), self.give_back.due()];
        others.into_iter().chain([lro]).flatten().min()
    }

    /// Whether there was no room for what there is to send.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the app has nothing more to do.
    pub(crate) fn is_done(&self) -> bool {
        self.has_begun && self.app.is_done()
    }

    /// Turns that it takes to send a segment of each connection's.
    pub(crate) fn turns_to_reset(&self) -> usize {
        self.node.stack.len().div_ceil(SEND_BATCH)
    }

    /// Resets the connections that are left.
    pub(crate) fn abort(&mut self, now: Nanos) {
        self.app.abort(&mut self.node.stack, now);
    }

    /// The memory of connections that are gone goes back to the operating system.
    pub(crate) fn give_back(&mut self, now: Nanos) {
        if self.give_back.is_time(self.node.stack.memory().held(), now) {
            sys::allocator::give_back();
        }
    }

    /// Frees what LRO holds.
    pub(crate) fn close(&mut self, pool: &FramePool, now: Nanos) {
        self.with_lro(pool, now, |lro, node| lro.flush_all(node));
    }

    /// What it has counted, with what its worker has.
    pub(crate) fn counters(&self, short_way: ShortWay) -> EngineCounters {
        let Node { interface, stack, counters, .. } = &self.node;
        EngineCounters {
            service: self.app.counters().clone(),
            segments: counters.clone(),
            network: interface.counters(),
            engine: *stack.counters(),
            memory: stack.memory(),
            damaged: self.scratch.damaged,
            short_way,
        }
    }
}

/// Fetches what the segments of a batch will need into the cache.
fn announce(stack: &Stack, batch: &VecDeque<RxFrame>, pool: &FramePool) {
    batch.iter().for_each(|received| pool.prefetch(&received.frame));
    let path = |received: &RxFrame| steer::path_of(pool.bytes(&received.frame));
    stack.announce(batch.iter().filter_map(path));
}

/// The engine's packets on their way out, at which LRO looks.
struct Observed<'a, T> {
    lro: Option<&'a mut Lro<RxFrame>>,
    out: &'a mut T,
}

impl<T: TxQueue> TxQueue for Observed<'_, T> {
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    fn send(&mut self, packet: &Packet<'_>) {
        if let Some(lro) = &mut self.lro {
            lro.observe(packet.header);
        }
        self.out.send(packet);
    }
}

/// The node as LRO's [`Sink`].
struct ToNode<'a, A> {
    pool: &'a FramePool,
    scratch: &'a mut Scratch,
    node: &'a mut Node,
    app: &'a mut A,
    now: Nanos,
}

impl<A: App> ToNode<'_, A> {
    /// A frame as it came, with what did not fit into it.
    fn frame(&mut self, received: RxFrame, rest: &[u8]) {
        let rest = if rest.is_empty() { &[][..] } else { &[rest][..] };
        let arrived = Arrived {
            bytes: self.pool.bytes(&received.frame),
            rest,
            checksum: checksum_of(&received.vnet, received.maybe_partial),
            gso_size: received.vnet.gso_size,
        };
        self.node.receive(arrived, self.app, self.now);
        self.pool.free(received.frame);
    }
}

impl<A: App> Sink<RxFrame> for ToNode<'_, A> {
    fn pass(&mut self, received: RxFrame, _why: Pass) {
        self.frame(received, &[]);
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, RxFrame>) {
        let frames = &mut self.scratch.frames;
        frames.extend(std::iter::from_fn(|| aggregate.next_slice()).map(payload));
        let mut slices = reuse(std::mem::take(&mut self.scratch.slices));
        slices.extend(frames.iter().map(|frame| self.pool.bytes(frame)));
        let arrived = Arrived {
            bytes: aggregate.header(),
            rest: &slices,
            checksum: RxChecksum::Verified,
            gso_size: aggregate.vnet().gso_size,
        };
        self.node.receive(arrived, self.app, self.now);
        self.scratch.slices = reuse(slices);
        for frame in self.scratch.frames.drain(..) {
            self.pool.free(frame);
        }
    }

    fn discard(&mut self, received: RxFrame, _why: Discard) {
        self.scratch.damaged += 1;
        self.pool.free(received.frame);
    }
}

/// An empty vector with the memory of `used`, for slices of any lifetime: collecting in place keeps the
/// allocation.
fn reuse<'b>(mut used: Vec<&[u8]>) -> Vec<&'b [u8]> {
    used.clear();
    used.into_iter().map(|_| -> &[u8] { &[] }).collect()
}
