//! Large receive offload as a pure core: frames and time in, aggregates out.
//!
//! [`Lro`] holds in-order TCP segments of one flow and hands them on as one packet of up to 64 KB:
//! a rewritten header and the payload slices of the held frames, which are never copied. It does
//! no IO, reads no clock and starts no thread; the caller owns the frames (any type `F`) and a
//! [`Sink`] that takes what comes out.
//!
//! The stages bear the names of "Implementation of TCP Large Receive Offload on Multi-core NPU
//! Platform": a packet `filter` of questions (section IV.B), a ConnectionTable of
//! ConnectionDescriptors in fixed memory (IV.A), reconstruction (IV.D) and time-outs (IV.E).
//! Packets out of order are, for now, passed on in the order in which they came.
//!
//! # Profiles
//! [`Profile::Endpoint`] is for a host that terminates TCP: acknowledgment, window and timestamp
//! echo move forward within an aggregate. [`Profile::Lossless`] merges only what Linux GRO may
//! merge, so that cutting an aggregate at its `gso_size` gives the original packets back.
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
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

mod aggregate;
mod config;
mod counters;
mod descriptor;
mod filter;
mod held;
mod key;
mod list;
mod merge;
mod table;

pub use aggregate::Aggregate;
pub use config::{Config, Nanos, Profile, RxChecksum};
pub use counters::{Counters, Flush};
pub use filter::{Discard, Pass};
pub use held::Slice;
pub use merge::Mismatch;

use descriptor::Descriptor;
use filter::{Segment, Verdict};
use held::Held;
use table::ConnectionTable;

/// Flows that can wait for the end of a burst; one more is let go at once.
const PUSHED_MAX: usize = 1024;

/// Takes what leaves the LRO, in order.
pub trait Sink<F> {
    /// A frame that goes on as it came.
    fn pass(&mut self, frame: F, why: Pass);
    /// Several frames as one packet.
    fn aggregate(&mut self, aggregate: Aggregate<'_, F>);
    /// A frame that must not go on.
    fn discard(&mut self, frame: F, why: Discard);
}

/// The receive offload of one worker: its flows, what it holds of them, and why.
#[derive(Debug)]
pub struct Lro<F> {
    config: Config,
    table: ConnectionTable,
    held: Held<F>,
    /// Flows that a PSH has completed, until the burst ends; some may have gone since.
    pushed: Vec<u32>,
    counters: Counters,
}

impl<F> Lro<F> {
    /// Allocates all memory that will ever be used: `config.flows` descriptors and
    /// `config.held_frames` places for held frames.
    pub fn new(config: Config) -> Self {
        Lro {
            table: ConnectionTable::new(config.flows, config.hash_seed),
            held: Held::new(config.held_frames),
            pushed: Vec::with_capacity(PUSHED_MAX),
            counters: Counters::default(),
            config,
        }
    }

    /// Takes one frame from the wire. `bytes` are the frame's own, from its Ethernet header on;
    /// `now` never goes back.
    ///
    /// Asks the filter, then the flow: append to what is held, or let that go first and hold
    /// this segment as the next one's beginning.
    #[inline]
    pub fn receive(
        &mut self,
        frame: F,
        bytes: &[u8],
        checksum: RxChecksum,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        self.counters.received += 1;
        match filter::ask(&self.config, bytes, checksum) {
            Verdict::Discard(why) => {
                self.counters.discarded[why as usize] += 1;
                sink.discard(frame, why);
            }
            Verdict::Pass(why) => self.pass(frame, why, sink),
            Verdict::PassAfterFlow(why, key) => {
                if let Some(index) = self.table.find(&key) {
                    self.flush(index, Flush::Order, sink);
                    if why.closes() {
                        self.table.close(index);
                    }
                }
                self.pass(frame, why, sink);
            }
            Verdict::Buffer(segment) => self.buffer(frame, bytes, &segment, now, sink),
        }
    }

    /// Lets go of every flow whose deadline is at or before `now`.
    pub fn expire(&mut self, now: Nanos, sink: &mut impl Sink<F>) {
        while let Some((index, deadline)) = self.table.oldest_held() {
            if deadline > now {
                break;
            }
            self.flush(index, Flush::Deadline, sink);
        }
    }

    /// Nothing more waits on the wire for now: lets go of what a PSH has completed.
    ///
    /// A sender sets PSH on the last segment of each burst. While more segments wait behind it,
    /// some of the same flow perhaps, letting go costs merging and gains no time, as the host is
    /// busy; so an aggregate that a PSH completed stays open until the caller has caught up with
    /// the wire, or its deadline. With nothing waiting this is at once.
    pub fn burst_ends(&mut self, sink: &mut impl Sink<F>) {
        for at in 0..self.pushed.len() {
            let index = self.pushed[at];
            if self.table[index].pushed {
                self.flush(index, Flush::Psh, sink);
            }
        }
        self.pushed.clear();
    }

    /// Lets go of everything held.
    pub fn flush_all(&mut self, sink: &mut impl Sink<F>) {
        while let Some((index, _)) = self.table.oldest_held() {
            self.flush(index, Flush::Idle, sink);
        }
    }

    /// When [`expire`](Self::expire) has work next; `None` while nothing is held.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.table.oldest_held().map(|(_, deadline)| deadline)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes what may change at run time: everything but the sizes fixed in
    /// [`new`](Self::new) (`flows`, `held_frames`, `hash_seed`), which stay as they are. What is
    /// held goes first: it was let in by the old rules, to wait for the old time-out.
    pub fn reconfigure(&mut self, config: Config, sink: &mut impl Sink<F>) {
        self.flush_all(sink);
        let Config { flows, held_frames, hash_seed, .. } = self.config;
        self.config = Config { flows, held_frames, hash_seed, ..config };
    }

    fn pass(&mut self, frame: F, why: Pass, sink: &mut impl Sink<F>) {
        self.counters.passed[why.index()] += 1;
        sink.pass(frame, why);
    }

    /// A data segment: append it to its flow's aggregate or begin a new one.
    #[inline]
    fn buffer(
        &mut self,
        frame: F,
        bytes: &[u8],
        segment: &Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let index = match self.table.find(&segment.key) {
            Some(index) => index,
            None => self.open(segment, sink),
        };
        if self.held.is_full() {
            self.make_room(sink);
        }
        if self.table[index].is_holding() {
            match merge::ask(&self.config, &self.table[index], segment, bytes) {
                Ok(()) => return self.append(index, frame, segment, sink),
                Err(why) => {
                    self.counters.mismatched[why as usize] += 1;
                    self.flush(index, Flush::Mismatch, sink);
                }
            }
        }
        self.begin(index, frame, bytes, segment, now, sink);
    }

    /// A descriptor for a new flow; when none is free, the one that was used longest ago.
    fn open(&mut self, segment: &Segment, sink: &mut impl Sink<F>) -> u32 {
        if let Some(oldest) = self.table.pick_for_recycling() {
            self.counters.recycled += 1;
            self.flush(oldest, Flush::Memory, sink);
            self.table.close(oldest);
        }
        self.table.open(segment.key)
    }

    /// Held memory is bounded: the flow that has waited longest goes first.
    #[cold]
    fn make_room(&mut self, sink: &mut impl Sink<F>) {
        if let Some((index, _)) = self.table.oldest_held() {
            self.flush(index, Flush::Memory, sink);
        }
    }

    fn begin(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        segment: &Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let chain = &mut self.table[index].chain;
        self.held.push(chain, frame, segment.payload_at, segment.len);
        self.table[index].begin(segment, bytes);
        self.table.hold(index, now.saturating_add(self.config.max_timeout));
        self.complete(index, segment, sink);
    }

    #[inline]
    fn append(&mut self, index: u32, frame: F, segment: &Segment, sink: &mut impl Sink<F>) {
        let flow: &mut Descriptor = &mut self.table[index];
        self.held.push(&mut flow.chain, frame, segment.payload_at, segment.len);
        flow.append(segment);
        self.complete(index, segment, sink);
    }

    /// Lets go of an aggregate that `segment` completes, or notes that a PSH did.
    #[inline]
    fn complete(&mut self, index: u32, segment: &Segment, sink: &mut impl Sink<F>) {
        let flow: &mut Descriptor = &mut self.table[index];
        if let Some(why) = merge::completes(&self.config, flow, segment) {
            self.flush(index, why, sink);
        } else if merge::pushes(&self.config, segment) && !flow.pushed {
            if self.pushed.len() == PUSHED_MAX {
                return self.flush(index, Flush::Psh, sink);
            }
            flow.pushed = true;
            self.pushed.push(index);
        }
    }

    /// Hands on what a flow holds: one frame as it came, or several as an aggregate.
    fn flush(&mut self, index: u32, why: Flush, sink: &mut impl Sink<F>) {
        let flow = &mut self.table[index];
        if !flow.is_holding() {
            return;
        }
        self.counters.flushed[why as usize] += 1;
        let mut chain = flow.take_chain();
        if chain.len() == 1 {
            if let Some(slice) = self.held.pop(&mut chain) {
                self.counters.passed[Pass::Alone.index()] += 1;
                sink.pass(slice.frame, Pass::Alone);
            }
        } else {
            self.counters.aggregates += 1;
            self.counters.merged += u64::from(chain.len());
            self.counters.aggregate_bytes += u64::from(flow.payload_len());
            let fixed_id = flow.fixed_id();
            let (header, vnet) = flow.reconstruct();
            sink.aggregate(Aggregate::new(vnet, header, fixed_id, chain, &mut self.held));
        }
        let finished = flow.is_finished();
        self.table.release(index);
        if finished {
            self.table.close(index);
        }
    }
}
