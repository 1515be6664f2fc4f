//! Large receive offload as a pure core: frames and time in, aggregates out.
//!
//! [`Lro`] holds TCP segments of a flow, puts them in order and hands them on as one packet of up to
//! 64 KB: a rewritten header and the payload slices of the held frames, which are never copied. It
//! does no IO, reads no clock and starts no thread; the caller owns the frames (any type `F`) and a
//! [`Sink`] that takes what comes out.
//!
//! The stages bear the names of "Implementation of TCP Large Receive Offload on Multi-core NPU
//! Platform": a packet `filter` of questions (section IV.B), a ConnectionTable of
//! ConnectionDescriptors in fixed memory (IV.A), reordering (IV.C), reconstruction (IV.D), time-outs
//! (IV.E) and active ACK (V.C).
//!
//! # Profiles
//! [`Profile::Endpoint`] is for a host that terminates TCP: acknowledgment, window and timestamp
//! echo move forward within an aggregate, and segments are reordered; acknowledgments only of what
//! [`Lro::observe`] has seen the host send. [`Profile::Lossless`] merges only what Linux GRO may
//! merge, in the order in which it comes, so that cutting an aggregate at its `gso_size` gives the
//! original packets back.
//!
//! # Example
//! ```
//! use lro::{Aggregate, Config, Discard, Lro, Pass, RxChecksum, Sink};
//!
//! struct Print;
//! impl Sink<Vec<u8>> for Print {
//!     fn pass(&mut self, frame: Vec<u8>, why: Pass) {
//!         println!("{} bytes as they came: {}", frame.len(), why.name());
//!     }
//!     fn aggregate(&mut self, aggregate: Aggregate<'_, Vec<u8>>) {
//!         println!("{} segments in one", aggregate.segments());
//!     }
//!     fn discard(&mut self, _: Vec<u8>, why: Discard) {
//!         println!("discarded: {}", why.name());
//!     }
//! }
//!
//! let mut lro = Lro::new(Config::default());
//! let frame = vec![0u8; 60]; // as received
//! lro.receive(frame.clone(), &frame, RxChecksum::Unverified, 0, &mut Print);
//! lro.flush_all(&mut Print);
//! ```
//!
//! # Alone, in a VPN or a proxy
//! [`Lro::of_ip`] takes IP packets without Ethernet, as a TUN does. When to call what is written above
//! [`Lro`]; `examples/tun.rs` is a whole tunnel, with `gso` for the other direction:
//! `cargo run -p lro --example tun`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

mod acknowledge;
mod aggregate;
mod anew;
mod arena;
mod config;
mod counters;
mod descriptor;
mod elsewhere;
mod filter;
mod flush;
mod hole;
mod invariants;
mod layout;
mod link;
mod list;
mod merge;
mod mismatch;
mod observe;
mod out_of_order;
mod predict;
mod reorder;
mod send;
mod syn;
mod table;
mod timeout;

pub use aggregate::Aggregate;
pub use arena::Slice;
pub use config::{ActiveAck, Config, Profile};
pub use counters::{Counters, Flush};
pub use filter::{Discard, Pass};
pub use link::{Ethernet, Link, NoLink};
pub use mismatch::Mismatch;
pub use wire::{FlowKey, Nanos, RxChecksum};

use acknowledge::HostSide;
use arena::Arena;
use filter::{Segment, Verdict};
use out_of_order::OutOfOrder;
use predict::Expected;
use table::ConnectionTable;
use wire::{Flags, Seq};

/// Flows that one batch of frames can make acknowledge something.
const BATCH_MAX: usize = 256;

/// Takes what leaves the LRO, in order.
pub trait Sink<F> {
    /// A frame that goes on as it came.
    fn pass(&mut self, frame: F, why: Pass);
    /// Several frames as one packet.
    fn aggregate(&mut self, aggregate: Aggregate<'_, F>);
    /// A frame that must not go on.
    fn discard(&mut self, frame: F, why: Discard);
    /// An acknowledgment to be sent to the wire, complete with its checksums; only with active ACK.
    fn acknowledge(&mut self, _frame: &[u8]) {}
}

/// The receive offload of one worker: its flows, what it holds of them, and why.
///
/// # The caller's loop
/// One `Lro` belongs to one worker, and all packets of a flow come to it, in the order in which they came
/// from the wire. The worker repeats, with one `now` for each turn from a clock that never goes back:
///
/// 1. [`receive`](Self::receive) for each packet of a batch. A packet that is passed, discarded or part of
///    an aggregate has left by the sink before the call returns; any other is held. A packet that goes to the
///    host by another way is told of first: [`interrupt_flow`](Self::interrupt_flow) for one,
///    [`interrupt`](Self::interrupt) for many.
/// 2. [`burst_ends`](Self::burst_ends) if the batch was shorter than asked for, so that nothing more waits on
///    the wire. Then nothing that a PSH has completed is held.
/// 3. [`acknowledge`](Self::acknowledge), with active ACK only, after the batch and what it flushed.
/// 4. [`observe`](Self::observe) for each packet of the host's, before it goes to the wire. Without it the
///    endpoint profile joins only segments whose acknowledgments are equal.
/// 5. [`expire`](Self::expire) with `now`, once a turn, after the packets: what has just come may fill the
///    hole whose time is up. Then [`next_deadline`](Self::next_deadline) is later than `now`, or `None`.
/// 6. If there was nothing to do, and before it sleeps: [`idle`](Self::idle), then sleep until a packet comes
///    or [`next_deadline`](Self::next_deadline) has. After `idle` all that is held lies behind holes. A
///    caller that polls without sleep need not call it: `expire` bounds how long anything is held.
///
/// At the end [`flush_all`](Self::flush_all): nothing is held then. Packets that are held when the `Lro` is
/// dropped are dropped with it.
///
/// # Frames
/// `F` is whatever names a packet: it is stored while the packet is held and given back once, to one call of
/// the sink. Its bytes are only read, during `receive`, and are next to be read by the sink; until then they
/// must not change. So `F` is best a token, and the bytes lie in memory that both the loop and the sink
/// borrow: no packet is cloned, and none needs an `Rc`. A token returns to its pool from the sink:
///
/// ```
/// use std::cell::RefCell;
///
/// use lro::{Aggregate, Config, Discard, Lro, Pass, RxChecksum, Sink};
/// # use testkit::packet::{PacketBuilder, pattern};
///
/// /// Memory of all packets, of which a number names one, and what is free of it.
/// struct Pool {
///     packets: Vec<Vec<u8>>,
///     free: RefCell<Vec<usize>>,
/// }
///
/// /// The host's side: what would be written to a TUN.
/// struct Host<'a> {
///     pool: &'a Pool,
///     written: &'a mut Vec<Vec<u8>>,
/// }
///
/// impl Sink<usize> for Host<'_> {
///     fn pass(&mut self, token: usize, _: Pass) {
///         self.written.push(self.pool.packets[token].clone()); // `write` copies, too
///         self.pool.free.borrow_mut().push(token);
///     }
///     fn aggregate(&mut self, mut aggregate: Aggregate<'_, usize>) {
///         let mut packet = aggregate.header().to_vec(); // behind `aggregate.vnet().encode()`
///         while let Some(slice) = aggregate.next_slice() {
///             let bytes = &self.pool.packets[slice.frame];
///             packet.extend(&bytes[slice.start..slice.start + slice.len]);
///             self.pool.free.borrow_mut().push(slice.frame);
///         }
///         self.written.push(packet);
///     }
///     fn discard(&mut self, token: usize, _: Discard) {
///         self.pool.free.borrow_mut().push(token);
///     }
/// }
///
/// # let segment = |n: u32| PacketBuilder::tcp4().seq(n * 1000).id(n as u16)
/// #     .payload(&pattern(n as usize * 1000, 1000)).build().split_off(14);
/// # // The third is missing.
/// # let mut wire = [segment(0), segment(1), segment(3)].into_iter();
/// # let mut now = 1_000_000;
/// let mut pool = Pool { packets: vec![Vec::new(); 64], free: RefCell::new((0..64).collect()) };
/// let mut lro = Lro::of_ip(Config { min_hole_timeout: 500_000, ..Config::default() });
/// let mut written = Vec::new();
/// const BATCH: usize = 32;
/// loop {
///     let mut count = 0;
///     while count < BATCH && let Some(packet) = wire.next() {
///         let token = pool.free.get_mut().pop().expect("more than the LRO holds");
///         pool.packets[token] = packet; // a `recv` into that memory
///         let mut host = Host { pool: &pool, written: &mut written };
///         lro.receive(token, &pool.packets[token], RxChecksum::Unverified, now, &mut host);
///         count += 1;
///     }
///     let mut host = Host { pool: &pool, written: &mut written };
///     if count < BATCH {
///         lro.burst_ends(&mut host);
///     }
///     lro.expire(now, &mut host);
///     assert!(lro.next_deadline().is_none_or(|due| due > now));
///     if count == 0 {
///         lro.idle(&mut host);
///         // Here a worker sleeps, until a packet comes or this time has.
///         let Some(due) = lro.next_deadline() else { break };
///         now = due;
///     }
/// }
/// lro.flush_all(&mut Host { pool: &pool, written: &mut written });
///
/// // Two segments as one at once, and the fourth when the third had been waited for.
/// assert_eq!(written.iter().map(Vec::len).collect::<Vec<_>>(), [2040, 1040]);
/// assert_eq!(pool.free.borrow().len(), 64);
/// ```
#[derive(Debug)]
pub struct Lro<F, L = Ethernet> {
    link: PhantomData<L>,
    config: Config,
    table: ConnectionTable,
    held: Arena<F>,
    out_of_order: OutOfOrder,
    /// Where flows are is remembered for as long as all their packets come by.
    epoch: u32,
    /// The host's side of each flow, for active ACK, and flows with something to acknowledge.
    hosts: Box<[HostSide]>,
    unacknowledged: Vec<u32>,
    suspended: bool,
    counters: Counters,
}

impl<F> Lro<F> {
    /// Allocates all memory that will ever be used: `config.flows` descriptors and
    /// `config.held_frames` places for held frames.
    pub fn new(config: Config) -> Self {
        Lro::with_link(config)
    }
}

impl<F> Lro<F, NoLink> {
    /// As [`new`](Lro::new), for packets that begin with their IP header, as a TUN gives and takes them.
    /// What comes out begins with it too, active ACK's own packets included.
    pub fn of_ip(config: Config) -> Self {
        Lro::with_link(config)
    }
}

impl<F, L: Link> Lro<F, L> {
    fn with_link(config: Config) -> Self {
        let held = Arena::new(config.held_frames);
        let table = ConnectionTable::new(config.flows, config.flow_hash, config.max_timeout);
        Lro {
            link: PhantomData,
            out_of_order: OutOfOrder::new(held.capacity()),
            held,
            epoch: 0,
            hosts: vec![HostSide::default(); table.flows()].into_boxed_slice(),
            unacknowledged: Vec::with_capacity(BATCH_MAX),
            suspended: false,
            table,
            counters: Counters::default(),
            config,
        }
    }

    /// A frame that is about to be [received](Self::receive), about a dozen frames from now: starts
    /// loading what its flow will need into the cache. Worth while with thousands of flows, and
    /// costs nothing with few; never necessary.
    #[inline]
    pub fn announce(&mut self, bytes: &[u8]) {
        if !self.table.has_many_flows() {
            return;
        }
        let parsed = || L::packet(bytes).ok()?.key();
        let plain = L::glance(bytes).plain().map(|plain| plain.key());
        if let Some(key) = plain.or_else(parsed)
            && let Some(flow) = self.table.announce(&key)
        {
            self.held.prefetch(&flow.run);
        }
    }

    /// Takes one frame from the wire. `bytes` are the frame's own, from its Ethernet header on
    /// ([`of_ip`](Lro::of_ip): its IP header);
    /// `now` never goes back.
    ///
    /// Asks the filter, then the flow: hold it with what is held, or let that go first.
    #[inline(always)]
    pub fn receive(
        &mut self,
        frame: F,
        bytes: &[u8],
        checksum: RxChecksum,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        self.counters.received += 1;
        if let Some((index, segment)) = self.predict(bytes, checksum) {
            return self.join(index, frame, bytes, &segment, now, sink);
        }
        self.receive_any(frame, bytes, checksum, now, sink);
    }

    /// Whether the frame is one more segment of a flow that holds some. Packets come in trains, so the flow
    /// of the last one is asked before another is looked for.
    #[inline(always)]
    fn predict(&mut self, bytes: &[u8], checksum: RxChecksum) -> Option<(u32, Expected)> {
        if self.held.is_full() {
            return None;
        }
        if let Some((index, flow)) = self.table.last_found()
            && let Some(segment) = predict::expected::<L>(flow, bytes, checksum)
        {
            flow.recently_used = true;
            return Some((index, segment));
        }
        let index = self.table.likely(&L::glance(bytes).plain()?.key())?;
        let segment = predict::expected::<L>(&self.table[index], bytes, checksum)?;
        self.table.found(index);
        Some((index, segment))
    }

    /// A segment as the flow's others are.
    #[inline(always)]
    fn join(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        segment: &Expected,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let flow = &mut self.table[index];
        let later = flow.arrives(now);
        let is_next =
            segment.seq == flow.next_seq && flow.has_run() && flow.out_of_order.is_empty();
        // A run that is not full has room for one more like its largest.
        if is_next && segment.len <= u32::from(flow.gso_size) {
            self.held.push_back(&mut flow.run, frame, segment.start, segment.len);
            flow.append(segment.len, &segment.carried);
            if segment.carried.flags.any(Flags::PSH) || merge::is_full(&self.config, flow) {
                self.complete(index, segment.carried.flags, sink);
            }
            return self.after(index, later, sink);
        }
        self.place(index, frame, bytes, segment, now, sink);
        self.after(index, later, sink);
    }

    /// What every data segment brings about.
    #[inline(always)]
    fn after(&mut self, index: u32, later: bool, sink: &mut impl Sink<F>) {
        if later {
            self.rearm(index);
        }
        if self.acknowledges() {
            self.acknowledge_later(index, sink);
        }
        self.debug_check_flow(index);
    }

    /// A frame that is not what was expected.
    fn receive_any(
        &mut self,
        frame: F,
        bytes: &[u8],
        checksum: RxChecksum,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        match filter::ask::<L>(&self.config, bytes, checksum) {
            Verdict::Discard(why) => {
                self.counters.discarded[why as usize] += 1;
                sink.discard(frame, why);
            }
            Verdict::Pass(why) => {
                // It may be of any flow of datagrams, and those are never put out of order.
                if why == Pass::Fragment && self.config.udp {
                    self.burst_ends(sink);
                }
                self.pass(frame, why, sink);
            }
            Verdict::PassAfterFlow(why, key, end, ack) => {
                self.let_pass(why, &key, end, ack, sink);
                if why == Pass::Syn {
                    self.wire_syn(&key, bytes);
                }
                self.pass(frame, why, sink);
            }
            Verdict::PassUnread(why, key) => {
                if let Some(index) = self.table.find(&key) {
                    self.pick_up_anew(index, sink);
                }
                self.pass(frame, why, sink);
            }
            Verdict::Buffer(segment) => self.buffer(frame, bytes, segment, now, sink),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// When the last segment of a flow came that could be merged, if the flow is known.
    pub fn last_arrival(&self, key: &FlowKey) -> Option<Nanos> {
        let flow = self.table.peek(key)?;
        Some(self.table[flow].last_arrival).filter(|at| *at != 0)
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes what may change at run time: everything but the sizes fixed in
    /// [`new`](Self::new) (`flows`, `held_frames`, `flow_hash`), which stay as they are. What is
    /// held goes first: it was let in by the old rules, to wait for the old time-out.
    pub fn reconfigure(&mut self, config: Config, sink: &mut impl Sink<F>) {
        self.interrupt(sink);
        let Config { flows, held_frames, flow_hash, .. } = self.config;
        if (config.active_ack, config.profile) != (self.config.active_ack, self.config.profile) {
            self.forget_hosts();
        }
        self.config = Config { flows, held_frames, flow_hash, ..config };
        self.table.set_max_timeout(self.config.max_timeout);
    }

    fn pass(&mut self, frame: F, why: Pass, sink: &mut impl Sink<F>) {
        self.counters.passed[why.index()] += 1;
        sink.pass(frame, why);
    }

    /// Makes way for a packet of a flow that is not held, and which takes it up to `end`.
    fn let_pass(
        &mut self,
        why: Pass,
        key: &FlowKey,
        end: Seq,
        ack: Option<Seq>,
        sink: &mut impl Sink<F>,
    ) {
        let Some(index) = self.table.find(key) else {
            if why == Pass::Syn {
                self.begins_or_opens(key, end, sink);
            }
            return;
        };
        if let Some(ack) = ack {
            self.table[index].send.acknowledged(ack);
        }
        match why {
            // Data that waits for a hole may be overtaken by an acknowledgment: it tells the host
            // nothing of the data, and the host keeps the newest of what it tells (RFC 9293
            // section 3.10.7.4: SND.WL1, SND.WL2).
            Pass::PureAck => self.flush_run(index, Flush::Order, sink),
            Pass::Rst | Pass::Fin => {
                self.flush(index, Flush::Order, sink);
                self.table.close(index);
            }
            Pass::Syn => {
                self.flush(index, Flush::Order, sink);
                self.begins_or_opens(key, end, sink);
            }
            _ => {
                self.flush(index, Flush::Order, sink);
                self.table[index].goes_on_at(end);
            }
        }
    }

    /// A SYN has come by: the data of its connection begins at `seq`.
    fn begins_or_opens(&mut self, key: &FlowKey, seq: Seq, sink: &mut impl Sink<F>) {
        // A FIN in what was held has closed the flow, if there was one.
        let index = match self.table.find(key) {
            Some(index) => index,
            None => self.open(*key, false, sink),
        };
        self.begins_at(index, seq);
    }

    /// The same SYN, and its options.
    #[cold]
    fn wire_syn(&mut self, key: &FlowKey, bytes: &[u8]) {
        if let Some(index) = self.table.peek(key) {
            self.note_wire_syn_options(index, bytes);
        }
        if self.acknowledges() {
            self.note_wire_syn(key, bytes);
        }
    }

    /// A data segment: append it to its flow's run, or see where it belongs.
    #[inline]
    fn buffer(
        &mut self,
        frame: F,
        bytes: &[u8],
        segment: Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        if self.held.is_full() {
            self.make_room(sink);
        }
        let index = self.find_or_open(&segment, sink);
        let flow = &mut self.table[index];
        let later = flow.arrives(now);
        if segment.key.udp {
            self.datagram(index, frame, bytes, &segment, now, sink);
            self.rearm(index);
            return self.debug_check_flow(index);
        }
        let continues =
            segment.seq == flow.next_seq && flow.has_run() && flow.out_of_order.is_empty();
        let asked = continues.then(|| merge::ask(&self.config, flow, &segment, bytes));
        match asked {
            Some(Ok(())) => self.add(index, frame, bytes, &segment, now, sink),
            _ if self.config.profile == Profile::Endpoint => {
                self.reorder_packet(index, frame, bytes, segment, false, now, sink);
            }
            _ => {
                if flow.has_run() {
                    let why = asked.and_then(Result::err).unwrap_or(Mismatch::Sequence);
                    self.counters.mismatched[why as usize] += 1;
                    self.flush_run(index, Flush::Mismatch, sink);
                }
                self.add(index, frame, bytes, &segment, now, sink);
            }
        }
        self.after(index, later, sink);
    }

    /// A datagram: never reordered, so either it continues the run or the run goes first. It goes on
    /// at the end of the burst, as no datagram says that more will come.
    fn datagram(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        segment: &Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let flow = &self.table[index];
        if flow.has_run() {
            match merge::ask_datagram(flow, segment, bytes) {
                Ok(()) if merge::fits(&self.config, flow, segment.len) => {
                    let flow = &mut self.table[index];
                    self.held.push_back(&mut flow.run, frame, segment.start, segment.len);
                    flow.append(segment.len, &segment.carried);
                    return self.complete(index, segment.carried.flags, sink);
                }
                Ok(()) => self.flush_run(index, Flush::Size, sink),
                Err(why) => {
                    self.counters.mismatched[why as usize] += 1;
                    self.flush_run(index, Flush::Mismatch, sink);
                }
            }
        }
        self.begin(index, frame, bytes, segment, now, sink);
    }

    #[inline]
    fn find_or_open(&mut self, segment: &Segment, sink: &mut impl Sink<F>) -> u32 {
        match self.table.find(&segment.key) {
            Some(index) => index,
            None => self.open(segment.key, true, sink),
        }
    }

    /// A descriptor for a new flow; when none is free, the one that was used longest ago.
    fn open(&mut self, key: FlowKey, recently_used: bool, sink: &mut impl Sink<F>) -> u32 {
        if let Some(oldest) = self.table.pick_for_recycling() {
            self.counters.recycled += 1;
            self.flush(oldest, Flush::Memory, sink);
            self.table.close(oldest);
        }
        let index = self.table.open(key, recently_used);
        if self.acknowledges() {
            self.hosts[index as usize] = HostSide::default();
        }
        index
    }
}
