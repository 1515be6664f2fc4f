//! What a side may send, and what it must: each segment on the wire is the next of a message, in the order of posts,
//! or of a response.

use rdma::Status;
use rdma::mpa::Rtr;
use rdma::rdmap::atomic::Operation;
use rdma::rdmap::terminate::{Cause, Protection};
use rdma::verbs::{Event, WindowKind, Work};

use super::side::{
    At, Kind, LOCAL_WRITE, Phase, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Response, Side,
    WINDOW_BIND, Why, Wr,
};
use super::tap::{Segment, To};

const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;
const TERMINATE: u8 = 7;
const IMMEDIATE: u8 = 8;
const ATOMIC_REQUEST: u8 = 10;
const ATOMIC_RESPONSE: u8 = 11;

/// What is next of a side's own messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Nothing may be sent.
    Nothing,
    /// Work on regions, at this place of the queue.
    Local(usize),
    /// A segment of the work at this place.
    Message(usize),
    /// The work at this place cannot be done.
    Fails(usize, Status),
}

/// Length of the next segment of a message whose bytes have their place from `begin` on, of which so many are `left`. A message
/// ends with an aligned word, and no segment ends within that.
fn cut(left: u32, room: u32, begin: u64, sent: u32) -> u32 {
    if left <= room {
        return left;
    }
    let first = u128::from(begin) + u128::from(sent);
    let word = (first + u128::from(left) - 1) / 8 * 8;
    let end = first + u128::from(room);
    if end > word { (word - first) as u32 } else { room }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, is: T, expected: T) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{what}: {is:?}, not {expected:?}")) }
}

impl Side {
    /// A segment that this side has written.
    pub(crate) fn wrote(&mut self, qp: usize, segment: &Segment) -> Result<(), String> {
        if let Phase::Failing(cause) = self.qps[qp].phase {
            return self.last_words(qp, segment, cause);
        }
        if segment.opcode == TERMINATE {
            return self.found_failing(qp, segment);
        }
        let is_open = matches!(self.qps[qp].phase, Phase::Open | Phase::Closing);
        if !is_open || self.qps[qp].held || self.qps[qp].closed {
            return Err("it may not send".to_owned());
        }
        if let Some(ready) = self.qps[qp].ready.take() {
            return self.ready(qp, segment, ready);
        }
        match segment.opcode {
            READ_RESPONSE | ATOMIC_RESPONSE => self.response(qp, segment),
            _ => self.own(qp, segment),
        }
    }

    fn number(&mut self, qp: usize, queue: u32) -> u32 {
        let next = &mut self.qps[qp].msn_out[queue as usize];
        *next += 1;
        *next - 1
    }

    /// An untagged message of one segment.
    fn whole(&mut self, qp: usize, segment: &Segment, queue: u32) -> Result<u32, String> {
        let msn = self.number(qp, queue);
        equal("header", segment.to, To::Untagged { queue, msn, offset: 0, word: 0 })?;
        equal("last", segment.last, true)?;
        Ok(msn)
    }

    fn last_words(&mut self, qp: usize, segment: &Segment, cause: Cause) -> Result<(), String> {
        equal("operation", segment.opcode, TERMINATE)?;
        self.whole(qp, segment, 2)?;
        let (layer, kind, code) = cause.codes();
        equal("cause", segment.payload[..2].to_vec(), vec![layer << 4 | kind, code])?;
        self.qps[qp].phase = Phase::Over;
        Ok(())
    }

    /// It ends the stream, for something that it has just found: of its own work, or of a response.
    fn found_failing(&mut self, qp: usize, segment: &Segment) -> Result<(), String> {
        match self.find_failure(qp) {
            Some(cause) => self.last_words(qp, segment, cause),
            None => Err(format!("a Terminate for no reason; next is {:?}", self.next_own(qp))),
        }
    }

    /// What ends the stream, of what is next to be sent. Responses and own messages take turns, and work on regions
    /// is done when its own turn comes.
    pub(crate) fn find_failure(&mut self, qp: usize) -> Option<Cause> {
        if self.responds(qp)
            && let Some(cause) = self.fails_response(qp)
        {
            self.fail(qp, cause, None, None);
            return Some(cause);
        }
        self.run_local(qp);
        if let Next::Fails(at, status) = self.next_own(qp) {
            let id = self.qps[qp].sq[at].id;
            self.fail(qp, Cause::Local, Some((id, status)), None);
            return Some(Cause::Local);
        }
        let cause = self.fails_response(qp)?;
        self.fail(qp, cause, None, None);
        Some(cause)
    }

    pub(crate) fn is_failing(&self, qp: usize) -> bool {
        matches!(self.qps[qp].phase, Phase::Failing(_))
    }

    /// There was no room for what is next: a response that is chosen stays so, and work on regions before an own
    /// message is done.
    pub(crate) fn stopped(&mut self, qp: usize) {
        if self.qps[qp].closed || self.is_failing(qp) {
            return;
        }
        if !self.responds(qp) {
            self.run_local(qp);
            let next = self.next_own(qp);
            let of = &mut self.qps[qp];
            of.chosen = !of.responses.is_empty() && next == Next::Nothing;
            of.chosen_own = matches!(next, Next::Message(_));
        } else if !self.qps[qp].chosen {
            (self.qps[qp].chosen, self.qps[qp].responds_next) = (true, false);
        }
    }

    /// A response is next.
    fn responds(&self, qp: usize) -> bool {
        let of = &self.qps[qp];
        let goes_on = matches!(of.responses.front(), Some(Response::Read { begun: true, .. }));
        let begun = |wr: &Wr| matches!(wr.at, At::Sending(_) | At::Immediate);
        let own = of.chosen_own || of.sq.iter().any(begun);
        goes_on || of.chosen || !own && !of.responses.is_empty() && of.responds_next
    }

    fn ready(&mut self, qp: usize, segment: &Segment, ready: Rtr) -> Result<(), String> {
        equal("length", segment.last, true)?;
        match ready {
            Rtr::Write => {
                equal("operation", segment.opcode, WRITE)?;
                equal("payload", segment.payload.len(), 0)
            }
            Rtr::Send => {
                equal("operation", segment.opcode, SEND)?;
                equal("payload", segment.payload.len(), 0)?;
                self.whole(qp, segment, 0).map(drop)
            }
            Rtr::Read => {
                equal("operation", segment.opcode, READ_REQUEST)?;
                self.qps[qp].ready_read = true;
                equal("payload", segment.payload.clone(), vec![0; 28])?;
                self.whole(qp, segment, 1).map(drop)
            }
        }
    }

    /// Why the response that is next cannot be sent.
    fn fails_response(&self, qp: usize) -> Option<Cause> {
        let Some(Response::Read { source, sent, .. }) = self.qps[qp].responses.front() else {
            return None;
        };
        let now = self.next_of_read(qp);
        if now == 0 {
            return None;
        }
        let at = source.1 + u64::from(*sent);
        let why = self.check(qp, source.0, at, u64::from(now), REMOTE_READ).err()?;
        Some(Cause::Protection(match why {
            Why::Stag => Protection::InvalidStag,
            Why::Other => Protection::NotAssociated,
            Why::Wrap => Protection::Wrap,
            Why::Bounds => Protection::Bounds,
            Why::Rights => Protection::Access,
        }))
    }

    fn response(&mut self, qp: usize, segment: &Segment) -> Result<(), String> {
        // Messages are not mixed: one of its own must not be half sent.
        let begun = |wr: &&Wr| matches!(wr.at, At::Sending(_) | At::Immediate);
        if let Some(wr) = self.qps[qp].sq.iter().find(begun) {
            return Err(format!("a response within the message of {}", wr.id));
        }
        let front = self.qps[qp].responses.front();
        let goes_on = matches!(front, Some(Response::Read { begun: true, .. }));
        if !std::mem::take(&mut self.qps[qp].chosen) && !goes_on {
            // By its turn, or because there is nothing else.
            if !std::mem::take(&mut self.qps[qp].responds_next) {
                self.run_local(qp);
                equal("next of its own", self.next_own(qp), Next::Nothing)?;
            }
        }
        let response = self.qps[qp].responses.front().cloned().ok_or("a response to nothing")?;
        match response {
            Response::Atomic { id, original } => {
                equal("operation", segment.opcode, ATOMIC_RESPONSE)?;
                self.whole(qp, segment, 3)?;
                let expected = [&id.to_be_bytes()[..], &original.to_be_bytes()[..]].concat();
                equal("payload", segment.payload.clone(), expected)?;
                self.qps[qp].responses.pop_front();
            }
            Response::Read { sink, source, len, sent, shown, .. } => {
                equal("operation", segment.opcode, READ_RESPONSE)?;
                let now = self.next_of_read(qp);
                let offset = sink.1.wrapping_add(u64::from(sent));
                equal("header", segment.to, To::Tagged { stag: sink.0, offset })?;
                equal("last", segment.last, sent + now == len)?;
                if now > 0 {
                    let at = source.1 + u64::from(sent);
                    let place = self.check(qp, source.0, at, u64::from(now), REMOTE_READ);
                    let place =
                        place.map_err(|why| format!("it sends what it may not: {why:?}"))?;
                    let there = self.load(place, now as usize);
                    equal("length", segment.payload.len(), now as usize)?;
                    for (at, (byte, now)) in segment.payload.iter().zip(there).enumerate() {
                        if !shown.allows((place.0, place.1 + at as u64), *byte, now) {
                            return Err(format!(
                                "a read shows {byte} at {at}, memory has {now}: {shown:?}"
                            ));
                        }
                    }
                }
                if segment.last {
                    self.qps[qp].responses.pop_front();
                } else if let Some(Response::Read { sent, begun, .. }) =
                    self.qps[qp].responses.front_mut()
                {
                    *sent += now;
                    *begun = true;
                }
            }
        }
        Ok(())
    }

    /// Whether what is next of its own may begin, and what it is.
    pub(crate) fn next_own(&self, qp: usize) -> Next {
        let of = &self.qps[qp];
        let unsent = |at: At| matches!(at, At::Posted | At::Sending(_) | At::Immediate);
        let Some(at) = of.sq.iter().position(|wr| unsent(wr.at)) else { return Next::Nothing };
        let wr = &of.sq[at];
        let requests = self.requests(qp);
        if wr.at == At::Posted {
            // All before it is done, or its reads are.
            if wr.flags.local_fence && at > 0 || wr.flags.fence && requests > 0 {
                return Next::Nothing;
            }
            match wr.work {
                Work::Read { .. } | Work::Atomic { .. } if of.ord == 0 => {
                    return Next::Fails(at, Status::LocalOperation);
                }
                Work::Read { .. } | Work::Atomic { .. } if requests >= of.ord => {
                    return Next::Nothing;
                }
                _ => {}
            }
        }
        match wr.work {
            Work::Bind(_) | Work::FastRegister(_) | Work::LocalInvalidate { .. } => {
                match self.clone().local(qp, &wr.work) {
                    Ok(()) => Next::Local(at),
                    Err(_) => Next::Fails(at, Status::MemoryWindowBind),
                }
            }
            Work::Read { .. } | Work::Atomic { .. } => {
                let sink = wr.sges.first().filter(|sge| sge.len > 0);
                let bad = sink
                    .is_some_and(|sge| self.check_local(qp, sge, 0, sge.len, LOCAL_WRITE).is_err());
                if bad { Next::Fails(at, Status::LocalProtection) } else { Next::Message(at) }
            }
            _ if wr.at == At::Immediate => Next::Message(at),
            _ => {
                let (sent, now) = self.chunk(qp, wr);
                let parts = Self::parts(&wr.sges, sent, now);
                let bad = wr.inline.is_none()
                    && parts
                        .iter()
                        .any(|(sge, skip, len)| self.check_local(qp, sge, *skip, *len, 0).is_err());
                if bad { Next::Fails(at, Status::LocalProtection) } else { Next::Message(at) }
            }
        }
    }

    /// Bytes of a message that are sent, and those of its next segment.
    fn chunk(&self, qp: usize, wr: &Wr) -> (u32, u32) {
        let sent = if let At::Sending(sent) = wr.at { sent } else { 0 };
        let (header, begin) = match wr.work {
            Work::Write { offset, .. } | Work::WriteImmediate { offset, .. } => (14, offset),
            _ => (18, 0),
        };
        let room = self.qps[qp].mulpdu as u32 - header;
        (sent, cut(wr.len - sent, room, begin, sent))
    }

    /// Bytes of the next segment of the read response that is next.
    fn next_of_read(&self, qp: usize) -> u32 {
        match self.qps[qp].responses.front() {
            Some(Response::Read { sink, len, sent, .. }) => {
                cut(len - sent, self.qps[qp].mulpdu as u32 - 14, sink.1, *sent)
            }
            _ => 0,
        }
    }

    /// Work on regions whose turn it is.
    pub(crate) fn run_local(&mut self, qp: usize) {
        while let Next::Local(at) = self.next_own(qp) {
            let work = self.qps[qp].sq[at].work;
            if self.local(qp, &work).is_ok() {
                self.qps[qp].sq[at].at = At::Done;
            }
            self.retire(qp);
        }
    }

    fn own(&mut self, qp: usize, segment: &Segment) -> Result<(), String> {
        if let Some(Response::Read { begun: true, .. }) = self.qps[qp].responses.front() {
            return Err("an own message within a response".to_owned());
        }
        self.run_local(qp);
        let at = match self.next_own(qp) {
            Next::Message(at) => at,
            next => return Err(format!("nothing of its own is to be sent: {next:?}")),
        };
        let wr = self.qps[qp].sq[at].clone();
        (self.qps[qp].responds_next, self.qps[qp].chosen_own) = (true, false);
        match wr.work {
            Work::WriteImmediate { immediate, .. } if wr.at == At::Immediate => {
                let opcode = IMMEDIATE + u8::from(wr.flags.solicited);
                equal("operation", segment.opcode, opcode)?;
                let msn = self.whole(qp, segment, 0)?;
                let expected = [&immediate[..], &[0; 4]].concat();
                equal("payload", segment.payload.clone(), expected)?;
                let wr = &mut self.qps[qp].sq[at];
                (wr.at, wr.msn) = (At::Done, msn);
            }
            Work::Read { stag, offset } => {
                equal("operation", segment.opcode, READ_REQUEST)?;
                let msn = self.whole(qp, segment, 1)?;
                let sge = wr.sges.first().copied().unwrap_or_default();
                let expected = [
                    &sge.lkey.to_be_bytes()[..],
                    &sge.addr.to_be_bytes()[..],
                    &wr.len.to_be_bytes()[..],
                    &stag.to_be_bytes()[..],
                    &offset.to_be_bytes()[..],
                ];
                equal("payload", segment.payload.clone(), expected.concat())?;
                let wr = &mut self.qps[qp].sq[at];
                (wr.at, wr.msn) = (At::Waiting(0), msn);
            }
            Work::Atomic { stag, offset, operation } => {
                equal("operation", segment.opcode, ATOMIC_REQUEST)?;
                let msn = self.whole(qp, segment, 1)?;
                let (code, data) = match operation {
                    Operation::FetchAdd { add, mask } => (0u32, [add, mask, 0, 0]),
                    Operation::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                        (2, [swap, swap_mask, compare, compare_mask])
                    }
                };
                let mut expected = code.to_be_bytes().to_vec();
                expected.extend_from_slice(&segment.payload[4..8]);
                expected.extend(stag.to_be_bytes());
                expected.extend(offset.to_be_bytes());
                expected.extend(data.into_iter().flat_map(u64::to_be_bytes));
                equal("payload", segment.payload.clone(), expected)?;
                let wr = &mut self.qps[qp].sq[at];
                (wr.at, wr.msn) = (At::Waiting(0), msn);
            }
            _ => self.own_payload(qp, segment, at, &wr)?,
        }
        self.retire(qp);
        Ok(())
    }

    /// A segment of a Send or write.
    fn own_payload(
        &mut self,
        qp: usize,
        segment: &Segment,
        at: usize,
        wr: &Wr,
    ) -> Result<(), String> {
        let (sent, now) = self.chunk(qp, wr);
        let last = sent + now == wr.len;
        equal("last", segment.last, last)?;
        let expected = match &wr.inline {
            Some(bytes) => bytes[sent as usize..(sent + now) as usize].to_vec(),
            None => {
                let mut bytes = Vec::new();
                for (sge, skip, len) in Self::parts(&wr.sges, sent, now) {
                    let place = self.check_local(qp, &sge, skip, len, 0);
                    let place =
                        place.map_err(|why| format!("it sends what it may not: {why:?}"))?;
                    bytes.extend(self.load(place, len as usize));
                }
                bytes
            }
        };
        equal("payload", segment.payload.clone(), expected)?;
        match wr.work {
            Work::Write { stag, offset } | Work::WriteImmediate { stag, offset, .. } => {
                equal("operation", segment.opcode, WRITE)?;
                let offset = offset.wrapping_add(u64::from(sent));
                equal("header", segment.to, To::Tagged { stag, offset })?;
            }
            Work::Send { invalidate } => {
                let opcode =
                    SEND + u8::from(invalidate.is_some()) + 2 * u8::from(wr.flags.solicited);
                equal("operation", segment.opcode, opcode)?;
                let msn = self.qps[qp].msn_out[0];
                let word = invalidate.unwrap_or(0);
                equal("header", segment.to, To::Untagged { queue: 0, msn, offset: sent, word })?;
                self.qps[qp].sq[at].msn = msn;
                self.qps[qp].msn_out[0] += u32::from(last);
            }
            _ => return Err("it is no message".to_owned()),
        }
        let has_immediate = matches!(wr.work, Work::WriteImmediate { .. });
        self.qps[qp].sq[at].at = match (last, has_immediate) {
            (false, _) => At::Sending(sent + now),
            (true, true) => At::Immediate,
            (true, false) => At::Done,
        };
        Ok(())
    }

    /// A bind, a fast registration or an invalidation.
    pub(crate) fn local(&mut self, qp: usize, work: &Work) -> Result<(), ()> {
        match *work {
            Work::LocalInvalidate { stag } => self.invalidate(qp, stag, false).map_err(|_| ()),
            Work::FastRegister(of) => {
                let region = self.find(of.stag).ok_or(())?;
                let region = &mut self.regions[region];
                let Kind::Fast { most } = region.kind else { return Err(()) };
                let writes = of.access.grants(rdma::verbs::Access::REMOTE_WRITE)
                    || of.access.grants(rdma::verbs::Access::REMOTE_ATOMIC);
                let is_well = region.pd == self.qps[qp].pd
                    && !region.valid
                    && (1..=most).contains(&of.len)
                    && of.iova.checked_add(of.len).is_some()
                    && (!writes || of.access.grants(rdma::verbs::Access::LOCAL_WRITE));
                if !is_well {
                    return Err(());
                }
                (region.valid, region.stag) = (true, of.stag);
                (region.iova, region.len) = (of.iova, of.len);
                (region.memory, region.begin) = (of.memory.0, 0);
                region.access = bits(of.access);
                Ok(())
            }
            Work::Bind(of) => {
                let window = self.find(of.window).ok_or(())?;
                let Kind::Window(kind) = self.regions[window].kind else { return Err(()) };
                if self.regions[window].pd != self.qps[qp].pd {
                    return Err(());
                }
                if kind == WindowKind::Two && (self.regions[window].valid || of.len == 0) {
                    return Err(());
                }
                let mut bound = self.regions[window].clone();
                (bound.stag, bound.valid, bound.of, bound.qp) = (of.window, false, None, None);
                if of.len > 0 {
                    let sge = rdma::verbs::Sge { addr: of.offset, len: 0, lkey: of.region };
                    let is_window = self.check_local(qp, &sge, 0, 0, 0).is_err();
                    let place = self.check(qp, of.region, of.offset, of.len, 0).map_err(|_| ())?;
                    let region = &self.regions[self.find(of.region).ok_or(())?];
                    let access = bits(of.access);
                    let writes = access & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
                    let remote = REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC;
                    if is_window
                        || region.access & WINDOW_BIND == 0
                        || access & !remote != 0
                        || writes && region.access & LOCAL_WRITE == 0
                    {
                        return Err(());
                    }
                    (bound.valid, bound.of, bound.access) = (true, Some(of.region >> 8), access);
                    (bound.iova, bound.len) = (of.offset, of.len);
                    (bound.memory, bound.begin) = place;
                    bound.qp = (kind == WindowKind::Two).then_some(qp);
                }
                self.regions[window] = bound;
                Ok(())
            }
            _ => Err(()),
        }
    }

    /// Windows that are bound to a region.
    pub(crate) fn windows(&self, stag: u32) -> usize {
        self.regions.iter().filter(|region| region.of == Some(stag >> 8)).count()
    }

    pub(crate) fn invalidate(&mut self, qp: usize, stag: u32, remote: bool) -> Result<(), Why> {
        let at = self.find(stag).ok_or(Why::Stag)?;
        let windows = self.windows(stag);
        let region = &mut self.regions[at];
        if !region.valid || region.stag != stag {
            return Err(Why::Stag);
        }
        if region.pd != self.qps[qp].pd || region.qp.is_some_and(|of| of != qp) {
            return Err(Why::Other);
        }
        match region.kind {
            Kind::Region | Kind::Window(WindowKind::One) => return Err(Why::Stag),
            Kind::Fast { .. } if windows > 0 => return Err(Why::Rights),
            Kind::Fast { .. } => {
                let reached = region.access & (REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC) != 0;
                if remote && !reached {
                    return Err(Why::Rights);
                }
            }
            Kind::Window(WindowKind::Two) => (region.of, region.qp) = (None, None),
        }
        region.valid = false;
        Ok(())
    }

    /// When it says that it has no more: nothing is left that might be sent.
    pub(crate) fn is_quiet(&mut self, qp: usize) -> Result<(), String> {
        if self.qps[qp].closed {
            return Ok(());
        }
        if !matches!(self.qps[qp].phase, Phase::Open | Phase::Closing) || self.qps[qp].held {
            return match self.qps[qp].phase {
                Phase::Failing(cause) => Err(format!("it has not said why it ends: {cause}")),
                _ => Ok(()),
            };
        }
        self.run_local(qp);
        self.qps[qp].responds_next = true;
        if self.qps[qp].ready.is_some() || !self.qps[qp].responses.is_empty() {
            return Err("it has not sent all".to_owned());
        }
        match self.next_own(qp) {
            Next::Nothing => Ok(()),
            next => Err(format!("it has not sent all: {next:?}")),
        }
    }

    /// A stream that the application closes is to be closed now.
    pub(crate) fn is_drained(&self, qp: usize) -> bool {
        let of = &self.qps[qp];
        of.sq.is_empty() && of.responses.is_empty() && of.ready.is_none() && !of.ready_read
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// The numbers of rights.
pub(crate) fn bits(access: rdma::verbs::Access) -> u32 {
    use rdma::verbs::Access;
    [
        (Access::LOCAL_WRITE, LOCAL_WRITE),
        (Access::REMOTE_WRITE, REMOTE_WRITE),
        (Access::REMOTE_READ, REMOTE_READ),
        (Access::REMOTE_ATOMIC, REMOTE_ATOMIC),
        (Access::WINDOW_BIND, WINDOW_BIND),
    ]
    .into_iter()
    .filter(|(right, _)| access.grants(*right))
    .map(|(_, bit)| bit)
    .sum()
}
