//! The model of one side: regions, queues, memory and what has completed, as verbs describe them. It knows nothing of
//! how the crate keeps them, nor of MPA and DDP but segments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rdma::Status;
use rdma::rdmap::terminate::Cause;
use rdma::verbs::{Completion, Done, Event, Flags, Sge, WindowKind, Work};

use super::order::{self, Shown};
use super::tap::Segment;

pub(crate) const LOCAL_WRITE: u32 = 1;
pub(crate) const REMOTE_WRITE: u32 = 2;
pub(crate) const REMOTE_READ: u32 = 4;
pub(crate) const REMOTE_ATOMIC: u32 = 8;
pub(crate) const WINDOW_BIND: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Region,
    Fast { most: u64 },
    Window(WindowKind),
}

/// A region or window.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) stag: u32,
    pub(crate) kind: Kind,
    pub(crate) valid: bool,
    /// One of two domains.
    pub(crate) pd: usize,
    pub(crate) access: u32,
    pub(crate) iova: u64,
    pub(crate) len: u64,
    pub(crate) memory: u64,
    pub(crate) begin: u64,
    /// The index of a window's region.
    pub(crate) of: Option<u32>,
    /// The connection that a type 2 window is bound by.
    pub(crate) qp: Option<usize>,
}

/// Why an access is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    Stag,
    Other,
    Wrap,
    Bounds,
    Rights,
}

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Wr {
    pub(crate) id: u64,
    pub(crate) work: Work,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) flags: Flags,
    pub(crate) len: u32,
    pub(crate) at: At,
    pub(crate) msn: u32,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    Posted,
    /// So many bytes are sent.
    Sending(u32),
    /// A write is sent, its immediate data are not.
    Immediate,
    /// The response is waited for; so many bytes have come.
    Waiting(u32),
    Done,
}

#[derive(Clone, Debug)]
pub(crate) struct Recv {
    pub(crate) id: u64,
    pub(crate) sges: Vec<Sge>,
}

/// A receive that a message is coming for.
#[derive(Clone, Debug)]
pub(crate) struct Coming {
    pub(crate) recv: Recv,
    pub(crate) got: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Response {
    Read { sink: (u32, u64), source: (u32, u64), len: u32, sent: u32, begun: bool, shown: Shown },
    Atomic { id: u32, original: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Open,
    Closing,
    /// A Terminate for this cause is to be sent.
    Failing(Cause),
    Over,
    /// The queue pair is destroyed.
    Gone,
}

/// A queue pair with its stream.
#[derive(Clone, Debug)]
pub(crate) struct Qp {
    pub(crate) phase: Phase,
    /// One of two domains.
    pub(crate) pd: usize,
    /// A message that meets no receive waits for one, and the segments that wait.
    pub(crate) waits: bool,
    pub(crate) parked: VecDeque<Segment>,
    /// Writes among them whose payload is placed, by the ends of their FPDUs.
    pub(crate) placed: BTreeSet<u64>,
    pub(crate) sq: VecDeque<Wr>,
    pub(crate) rq: VecDeque<Recv>,
    pub(crate) coming: Option<Coming>,
    pub(crate) responses: VecDeque<Response>,
    /// A tagged message that has begun.
    pub(crate) tagged: Option<u8>,
    /// Bytes of the write that was the last message.
    pub(crate) written: Option<u64>,
    pub(crate) msn_out: [u32; 4],
    pub(crate) held: bool,
    pub(crate) ready: Option<rdma::mpa::Rtr>,
    /// The peer's ready message has not come.
    pub(crate) awaits: Option<rdma::mpa::Rtr>,
    /// A read as the ready message is out.
    pub(crate) ready_read: bool,
    pub(crate) ird: usize,
    pub(crate) ord: usize,
    pub(crate) mulpdu: usize,
    pub(crate) srq: bool,
    /// A response has its turn.
    pub(crate) responds_next: bool,
    /// A response is chosen, or an own message, and had no room.
    pub(crate) chosen: bool,
    pub(crate) chosen_own: bool,
    pub(crate) overrun: bool,
    /// The stream is closed in this direction.
    pub(crate) closed: bool,
    /// There is a stream.
    pub(crate) connected: bool,
}

/// A completion queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cq {
    pub(crate) entries: VecDeque<Completion>,
    pub(crate) depth: usize,
    pub(crate) overrun: bool,
    /// `Some(true)`: solicited only.
    pub(crate) armed: Option<bool>,
}

/// The names of the real objects, which completions and events carry.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) qps: Vec<rdma::verbs::Qp>,
    pub(crate) cqs: [rdma::verbs::Cq; 2],
    pub(crate) srq: rdma::verbs::Srq,
}

/// One side.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) names: Names,
    pub(crate) regions: Vec<Region>,
    pub(crate) memory: BTreeMap<u64, Vec<u8>>,
    /// For sends and for receives.
    pub(crate) cqs: [Cq; 2],
    pub(crate) srq: VecDeque<Recv>,
    pub(crate) srq_limit: usize,
    pub(crate) qps: Vec<Qp>,
    pub(crate) events: Vec<Event>,
}

impl Qp {
    /// One that is not connected.
    pub(crate) fn fresh(pd: usize, srq: bool) -> Self {
        Self {
            phase: Phase::Over,
            pd,
            waits: false,
            parked: Default::default(),
            placed: Default::default(),
            sq: Default::default(),
            rq: Default::default(),
            coming: None,
            responses: Default::default(),
            tagged: None,
            written: None,
            msn_out: [1; 4],
            held: false,
            ready: None,
            awaits: None,
            ready_read: false,
            ird: 0,
            ord: 0,
            mulpdu: 0,
            srq,
            responds_next: true,
            chosen: false,
            chosen_own: false,
            overrun: false,
            closed: false,
            connected: false,
        }
    }

    /// What is left of it when it is destroyed.
    pub(crate) fn gone(&self) -> Self {
        Self { phase: Phase::Gone, ..Self::fresh(self.pd, self.srq) }
    }
}

impl Side {
    /// Type 2 windows of a queue pair go with it.
    pub(crate) fn forget(&mut self, qp: usize) {
        for region in &mut self.regions {
            if region.qp == Some(qp) {
                (region.valid, region.of, region.qp) = (false, None, None);
            }
        }
    }

    pub(crate) fn find(&self, stag: u32) -> Option<usize> {
        self.regions.iter().position(|region| region.stag >> 8 == stag >> 8)
    }

    /// Whether this connection may use the memory so, and where it lies.
    pub(crate) fn check(
        &self,
        qp: usize,
        stag: u32,
        offset: u64,
        len: u64,
        rights: u32,
    ) -> Result<(u64, u64), Why> {
        self.check_in(self.qps[qp].pd, qp, stag, offset, len, rights)
    }

    fn check_in(
        &self,
        pd: usize,
        qp: usize,
        stag: u32,
        offset: u64,
        len: u64,
        rights: u32,
    ) -> Result<(u64, u64), Why> {
        let region = self.find(stag).map(|at| &self.regions[at]).ok_or(Why::Stag)?;
        if !region.valid || region.stag != stag {
            return Err(Why::Stag);
        }
        if region.pd != pd || region.qp.is_some_and(|of| of != qp) {
            return Err(Why::Other);
        }
        let (first, end) = (u128::from(offset), u128::from(offset) + u128::from(len));
        if end > u128::from(u64::MAX) {
            return Err(Why::Wrap);
        }
        let begin = u128::from(region.iova);
        if first < begin || end > begin + u128::from(region.len) {
            return Err(Why::Bounds);
        }
        if region.access & rights != rights {
            return Err(Why::Rights);
        }
        Ok((region.memory, region.begin + (offset - region.iova)))
    }

    pub(crate) fn check_local(
        &self,
        qp: usize,
        sge: &Sge,
        skip: u32,
        len: u32,
        rights: u32,
    ) -> Result<(u64, u64), Why> {
        self.check_local_in(self.qps[qp].pd, qp, sge, skip, len, rights)
    }

    /// A receive's memory: that of a shared queue is of the queue's domain, the first.
    pub(crate) fn check_receive(
        &self,
        qp: usize,
        sge: &Sge,
        skip: u32,
        len: u32,
    ) -> Result<(u64, u64), Why> {
        let pd = if self.qps[qp].srq { 0 } else { self.qps[qp].pd };
        self.check_local_in(pd, qp, sge, skip, len, LOCAL_WRITE)
    }

    fn check_local_in(
        &self,
        pd: usize,
        qp: usize,
        sge: &Sge,
        skip: u32,
        len: u32,
        rights: u32,
    ) -> Result<(u64, u64), Why> {
        let is_window = |at: usize| matches!(self.regions[at].kind, Kind::Window(_));
        if self.find(sge.lkey).is_some_and(is_window) {
            return Err(Why::Stag);
        }
        let addr = sge.addr.checked_add(u64::from(skip)).ok_or(Why::Wrap)?;
        self.check_in(pd, qp, sge.lkey, addr, u64::from(len), rights)
    }

    /// Stores bytes by work of the peer's, behind reads that are not answered yet.
    pub(crate) fn store_behind(
        &mut self,
        qp: usize,
        by: order::Kind,
        to: (u64, u64),
        bytes: &[u8],
    ) {
        let before = self.load(to, bytes.len());
        for response in &mut self.qps[qp].responses {
            let Response::Read { shown, .. } = response else { continue };
            for (at, byte) in before.iter().enumerate() {
                shown.precedes(by, (to.0, to.1 + at as u64), *byte);
            }
        }
        self.store(to, bytes);
    }

    pub(crate) fn store(&mut self, (memory, at): (u64, u64), bytes: &[u8]) {
        if let Some(buffer) = self.memory.get_mut(&memory) {
            buffer[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        }
    }

    pub(crate) fn load(&self, (memory, at): (u64, u64), len: usize) -> Vec<u8> {
        let buffer = self.memory.get(&memory).map_or(&[][..], Vec::as_slice);
        buffer[at as usize..at as usize + len].to_vec()
    }

    /// The elements, part by part: `from` bytes are skipped, `len` are used.
    pub(crate) fn parts(sges: &[Sge], from: u32, len: u32) -> Vec<(Sge, u32, u32)> {
        let (mut skip, mut left, mut parts) = (from, len, Vec::new());
        for sge in sges {
            let begin = skip.min(sge.len);
            skip -= begin;
            let now = (sge.len - begin).min(left);
            if now > 0 {
                parts.push((*sge, begin, now));
            }
            left -= now;
        }
        parts
    }

    fn add(&mut self, which: usize, completion: Completion, solicited: bool, qp: usize) {
        let cq = &mut self.cqs[which];
        if cq.overrun {
            self.qps[qp].overrun = true;
            return;
        }
        if cq.entries.len() == cq.depth {
            cq.overrun = true;
            self.qps[qp].overrun = true;
            self.events.push(Event::CqError(self.names.cqs[which]));
            return;
        }
        let counts = match cq.armed {
            None => false,
            Some(false) => true,
            Some(true) => solicited || completion.status != Status::Success,
        };
        if counts {
            cq.armed = None;
            self.events.push(Event::Completion(self.names.cqs[which]));
        }
        cq.entries.push_back(completion);
    }

    pub(crate) fn complete_send(&mut self, qp: usize, completion: Completion) {
        self.add(0, completion, false, qp);
    }

    pub(crate) fn complete_receive(&mut self, qp: usize, completion: Completion, solicited: bool) {
        self.add(1, completion, solicited, qp);
    }

    pub(crate) fn ended(&self, qp: usize, wr: &Wr, status: Status) -> Completion {
        use rdma::rdmap::atomic::Operation::FetchAdd;
        let done = match wr.work {
            Work::Send { .. } => Done::Send,
            Work::Write { .. } | Work::WriteImmediate { .. } => Done::Write,
            Work::Read { .. } => Done::Read,
            Work::Atomic { operation: FetchAdd { .. }, .. } => Done::FetchAdd,
            Work::Atomic { .. } => Done::CompareSwap,
            Work::Bind(_) => Done::Bind,
            Work::FastRegister(_) => Done::FastRegister,
            Work::LocalInvalidate { .. } => Done::LocalInvalidate,
        };
        let len = if status == Status::Success { wr.len } else { 0 };
        let (wr_id, qp) = (wr.id, self.names.qps[qp]);
        Completion { wr_id, qp, status, done, len, ..Completion::default() }
    }

    /// In the order of posts: all at the head of the queue that is done.
    pub(crate) fn retire(&mut self, qp: usize) {
        while self.qps[qp].sq.front().is_some_and(|wr| wr.at == At::Done) {
            let Some(wr) = self.qps[qp].sq.pop_front() else { return };
            if wr.flags.signaled {
                let completion = self.ended(qp, &wr, Status::Success);
                self.complete_send(qp, completion);
            }
        }
    }

    /// All that is posted ends: what has failed, then the other sends, then receives.
    pub(crate) fn flush(
        &mut self,
        qp: usize,
        failed: Option<(u64, Status)>,
        receive: Option<Status>,
    ) {
        let sends: Vec<Wr> = self.qps[qp].sq.drain(..).collect();
        if let Some((id, status)) = failed
            && let Some(wr) = sends.iter().find(|wr| wr.id == id)
        {
            let completion = self.ended(qp, wr, status);
            self.complete_send(qp, completion);
        }
        let mut receives: Vec<u64> = Vec::new();
        receives.extend(self.qps[qp].coming.take().map(|coming| coming.recv.id));
        receives.extend(self.qps[qp].rq.drain(..).map(|recv| recv.id));
        let name = self.names.qps[qp];
        let of = |wr_id, status| {
            let (qp, done) = (name, Done::Receive);
            Completion { wr_id, qp, status, done, ..Completion::default() }
        };
        let mut receives = receives.into_iter();
        if let Some(status) = receive
            && let Some(id) = receives.next()
        {
            self.complete_receive(qp, of(id, status), false);
        }
        for wr in sends.iter().filter(|wr| failed.is_none_or(|(id, _)| id != wr.id)) {
            if wr.at == At::Done {
                if wr.flags.signaled {
                    let completion = self.ended(qp, wr, Status::Success);
                    self.complete_send(qp, completion);
                }
            } else {
                let completion = self.ended(qp, wr, Status::Flushed);
                self.complete_send(qp, completion);
            }
        }
        for id in receives {
            self.complete_receive(qp, of(id, Status::Flushed), false);
        }
        if self.qps[qp].srq {
            self.events.push(Event::LastWqe(name));
        }
        let of = &mut self.qps[qp];
        of.responses.clear();
        of.ready = None;
        of.ready_read = false;
        of.parked.clear();
        (of.chosen, of.chosen_own) = (false, false);
    }

    /// The stream ends by an error of this side's finding.
    pub(crate) fn fail(
        &mut self,
        qp: usize,
        cause: Cause,
        failed: Option<(u64, Status)>,
        receive: Option<Status>,
    ) {
        use rdma::ddp::{Error, TaggedError};
        let closed = self.qps[qp].closed;
        self.qps[qp].phase = if closed { Phase::Over } else { Phase::Failing(cause) };
        let name = self.names.qps[qp];
        let is_access = match cause {
            Cause::Protection(_) => true,
            Cause::Ddp(Error::Tagged(error)) => error != TaggedError::Version,
            _ => false,
        };
        self.events.push(match is_access {
            true => Event::QpAccessError(name, cause),
            false => Event::QpFatal(name, cause),
        });
        self.flush(qp, failed, receive);
    }

    /// At the end of a call: a completion that was lost ends the queue pair.
    pub(crate) fn check_overrun(&mut self, qp: usize) {
        let overrun = std::mem::take(&mut self.qps[qp].overrun);
        if overrun && matches!(self.qps[qp].phase, Phase::Open | Phase::Closing) {
            self.fail(qp, Cause::Local, None, None);
            self.qps[qp].overrun = false;
        }
    }

    /// Reads and atomics of the application's that wait.
    pub(crate) fn requests(&self, qp: usize) -> usize {
        self.qps[qp].sq.iter().filter(|wr| matches!(wr.at, At::Waiting(_))).count()
    }

    /// The stream is over.
    pub(crate) fn stream_ended(&mut self, qp: usize) {
        if !std::mem::take(&mut self.qps[qp].connected) {
            return;
        }
        if matches!(self.qps[qp].phase, Phase::Open | Phase::Closing) {
            self.flush(qp, None, None);
        }
        self.qps[qp].phase = Phase::Over;
        self.events.push(Event::Disconnected(self.names.qps[qp]));
    }
}
