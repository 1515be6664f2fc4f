//! A worker's wire in memory: the senders of its flows, in the worker's own thread. They cost little beside the
//! worker: a header is copied in front of payload that lies in the frame already.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use gso::Refusal;
use nic::port::{
    Delivered, Delivery, FromHost, Host, HostPacket, Outgoing, RxFrame, Transmit, Transmitted, Wire,
};
use sys::frames::{Frame, FramePool, FrameReader};
use wire::arp::Arp;
use wire::{Flags, VirtioNetHdr};

use super::board::{Board, Reading};
use super::flow::{Flow, Group, HEADER, LOCAL, MSS, Number, Numbers, ROUTER};

/// Flows of each worker whose packets come by its neighbour's queue. All that they may have on its way fits in the
/// ring between workers, so that nothing is lost there.
pub(super) const STRAYING: usize = 16;
/// How long until it is looked again whether a flow has room, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000;
/// How long until a SYN is sent again, in nanoseconds.
const SYN_TIMEOUT: u64 = 1_000_000_000;
/// SYNs that are on their way at a time.
const OPENING: usize = 32;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Senders {
    me: usize,
    board: Arc<Board>,
    numbers: Numbers,
    /// Per cent of the packets that are of `straying`.
    strays: u32,
    due: u32,
    own: Group,
    /// The neighbour's, that come by this queue.
    straying: Group,
    /// What is to be opened; `None` once it has begun.
    opening: Option<Opening>,
    marks: usize,
    reading: Reading,
}

/// Opens this worker's flows, those that stray among them: a connection is of the worker whose queue brings its SYN.
#[derive(Debug)]
struct Opening {
    has_router: bool,
    flows: VecDeque<Flow>,
    /// Flows whose SYN was sent at some time.
    asked: VecDeque<(Flow, u64)>,
    is_done: bool,
}

/// What a run is made of, as far as its wires are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) workers: usize,
    /// Flows of each worker that come by its own queue.
    pub(super) flows: usize,
    /// There is an engine, with which connections are opened.
    pub(super) engine: bool,
    /// Per cent of the packets that come by another worker's queue.
    pub(super) strays: u32,
}

impl Plan {
    fn straying(self) -> usize {
        if self.strays > 0 { STRAYING } else { 0 }
    }

    fn numbers(self) -> Numbers {
        Numbers { each: self.flows + self.straying() }
    }

    pub(super) fn board(self) -> Board {
        Board::new(self.workers, self.workers * self.numbers().each)
    }
}

impl Senders {
    pub(super) fn new(plan: Plan, me: usize, board: Arc<Board>) -> Self {
        let numbers = plan.numbers();
        let neighbour = (me + 1) % plan.workers;
        let flow = |owner| move |flow| Flow::new(numbers, Number { owner, flow });
        let opening = plan.engine.then(|| Opening {
            has_router: false,
            flows: (0..numbers.each).map(flow(me)).collect(),
            asked: VecDeque::new(),
            is_done: false,
        });
        if opening.is_none() {
            board.is_ready();
        }
        let own = (0..plan.flows).map(flow(me));
        let straying = (plan.flows..numbers.each).map(flow(neighbour));
        Senders {
            me,
            numbers,
            strays: plan.strays,
            due: 0,
            own: Group::new(own, plan.engine),
            straying: Group::new(straying, plan.engine),
            opening,
            marks: 0,
            reading: Reading { at: 0, cpu: 0, packets: 0, strays: 0, repeated: 0 },
            board,
        }
    }

    /// Reads the counts, if that is asked for.
    fn look(&mut self, now: u64) {
        let marks = self.board.marks();
        if marks != self.marks {
            self.marks = marks;
            let repeated = self.own.repeated + self.straying.repeated;
            let reading =
                Reading { at: now, cpu: sys::clock::thread_cpu(), repeated, ..self.reading };
            self.board.read(self.me, reading);
        }
    }

    /// All have opened what they open: what the SYN-ACKs said is taken from the board, wherever they went.
    fn begin(&mut self, now: u64) {
        for flow in self.own.flows.iter_mut().chain(&mut self.straying.flows) {
            if let Some(answer) = self.board.accepted(flow.place) {
                flow.open(answer, now);
            }
        }
    }

    /// Segments of the flows.
    fn segments(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
        now: u64,
    ) {
        self.own.begin();
        self.straying.begin();
        for _ in 0..max {
            let Some(mut frame) = pool.alloc() else { return };
            self.due += self.strays;
            let is_due = self.due >= 100;
            self.due -= if is_due { 100 } else { 0 };
            let stray = if is_due { self.straying.next(&self.board, now) } else { None };
            let is_stray = stray.is_some();
            let header = match stray {
                // What comes by its own queue comes instead of what may not come now.
                None if self.strays < 100 => self.own.next(&self.board, now),
                stray => stray,
            };
            let Some(header) = header else {
                pool.free(frame);
                return;
            };
            pool.set_range(&mut frame, 0, HEADER + MSS);
            pool.bytes_mut(&mut frame)[..HEADER].copy_from_slice(header);
            into.push_back(received(frame));
            self.reading.packets += 1;
            self.reading.strays += u64::from(is_stray);
        }
    }
}

impl Opening {
    /// ARP, SYNs, and what answers SYN-ACKs.
    fn receive(&mut self, board: &Board, now: u64, mut put: impl FnMut(&[u8]) -> bool) {
        if !self.has_router {
            // The engine listens from its first turn on, which is after this.
            self.has_router = put(&Arp::request(ROUTER, LOCAL.0, None));
            return;
        }
        while let Some((mut flow, at)) = self.asked.pop_front() {
            if let Some(answer) = board.accepted(flow.place) {
                flow.open(answer, now);
                put(&flow.bare(Flags::ACK, now));
            } else if now - at > SYN_TIMEOUT {
                self.flows.push_back(flow);
            } else {
                self.asked.push_front((flow, at));
                break;
            }
        }
        while self.asked.len() < OPENING
            && let Some(mut flow) = self.flows.pop_front()
        {
            if !put(&flow.bare(Flags::SYN, now)) {
                self.flows.push_front(flow);
                break;
            }
            self.asked.push_back((flow, now));
        }
        if !self.is_done && self.flows.is_empty() && self.asked.is_empty() {
            self.is_done = true;
            board.is_ready();
        }
    }
}

/// A frame whose checksum a card has verified.
fn received(frame: Frame) -> RxFrame {
    let vnet = VirtioNetHdr { data_valid: true, ..VirtioNetHdr::default() };
    RxFrame { frame, vnet, overflow: 0, slot: 0, maybe_partial: false }
}

impl Wire for Senders {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        let now = sys::clock::now();
        self.look(now);
        if self.board.has_begun() {
            if self.opening.take().is_some() {
                self.begin(now);
            }
            self.segments(pool, into, max, now);
        } else if let Some(opening) = &mut self.opening {
            opening.receive(&self.board, now, |bytes| {
                let Some(mut frame) = pool.alloc() else { return false };
                pool.set_range(&mut frame, 0, bytes.len());
                pool.bytes_mut(&mut frame).copy_from_slice(bytes);
                into.push_back(received(frame));
                true
            });
        }
        Ok(())
    }

    fn transmit(
        &mut self,
        _pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        transmitted.sent.count(packet.bytes.len());
        self.numbers.take(packet.bytes, &self.board);
        Ok(Transmit::Done)
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        self.numbers.take(pool.bytes(&frame), &self.board);
        pool.free(frame);
        Ok(())
    }

    fn flush(&mut self, _pool: &mut FramePool) -> io::Result<()> {
        Ok(())
    }

    /// None: the worker sleeps for [`retry_after`](Wire::retry_after).
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_pending(&mut self) -> bool {
        true
    }

    fn retry_after(&self) -> Option<u64> {
        Some(LOOK_EVERY)
    }

    fn close(self, _pool: &mut FramePool) {}
}

/// A host that takes everything and sends nothing.
#[derive(Debug)]
pub(super) struct Discarding;

impl Host for Discarding {
    fn deliver(&mut self, _memory: &FrameReader, _packet: Delivery<'_>) -> io::Result<Delivered> {
        Ok(Delivered::Now)
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        Ok(FromHost::Empty)
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        None
    }

    fn last(&self) -> &[u8] {
        &[]
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
