//! What a side does with a segment that has come whole.

use rdma::Status;
use rdma::ddp::{Error, TaggedError, UntaggedError};
use rdma::mpa::Rtr;
use rdma::rdmap::terminate::{Cause, Operation, Protection};
use rdma::verbs::{Completion, Done, Event, Work};

use super::order::{Kind, Shown};
use super::side::{
    At, Coming, LOCAL_WRITE, Phase, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Response, Side, Why,
};
use super::tap::{Segment, To};

/// Bytes of headers and payloads that wait at most.
const PARKED_MAX: usize = 131_072;

/// As DDP tells of it.
fn ddp(why: Why) -> Cause {
    match why {
        Why::Stag => TaggedError::InvalidStag.into(),
        Why::Other => TaggedError::NotAssociated.into(),
        Why::Wrap => TaggedError::Wrap.into(),
        Why::Bounds => TaggedError::Bounds.into(),
        Why::Rights => Cause::Protection(Protection::Access),
    }
}

/// As RDMAP tells of it.
fn rdmap(why: Why) -> Cause {
    Cause::Protection(match why {
        Why::Stag => Protection::InvalidStag,
        Why::Other => Protection::NotAssociated,
        Why::Wrap => Protection::Wrap,
        Why::Bounds => Protection::Bounds,
        Why::Rights => Protection::Access,
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |all, byte| all << 8 | u32::from(*byte))
}

fn double(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

/// Fields are added each by itself; a bit of `ends` is the highest of its field (RFC 7306 section 5.1.1).
fn fetch_add(value: u64, add: u64, ends: u64) -> u64 {
    let (mut sum, mut first) = (0, 0);
    for bit in 0..64 {
        if bit == 63 || ends >> bit & 1 == 1 {
            let mask = (((1u128 << (bit - first + 1)) - 1) as u64) << first;
            sum |= (value & mask).wrapping_add(add & mask) & mask;
            first = bit + 1;
        }
    }
    sum
}

impl Side {
    /// A segment of the peer's, which sends what its own model lets it: only what is wrong by this side's state is to be found.
    /// Returns true if it is done with: not a message for which there is no receive, nor one behind such a message, where so
    /// many bytes wait already. Responses and the Terminate message pass those that wait.
    pub(crate) fn got(&mut self, qp: usize, segment: &Segment) -> Result<bool, String> {
        let of = &mut self.qps[qp];
        if !matches!(of.phase, Phase::Open | Phase::Closing) {
            return Ok(true);
        }
        if std::mem::take(&mut of.held) {
            let name = self.names.qps[qp];
            self.tell(Event::Established(name));
        }
        let of = &mut self.qps[qp];
        let is_behind = !of.parked.is_empty();
        if is_behind && matches!(segment.opcode, 2 | 7 | 11) {
            // Neither the write before them nor the immediate data that may follow it see the response.
            let written = of.written;
            self.place_ahead(qp);
            self.take(qp, segment)?;
            self.qps[qp].written = written;
            return Ok(true);
        }
        if !is_behind && !self.waits_for_receive(qp, segment) {
            return self.take(qp, segment).map(|()| true);
        }
        let bytes = |segment: &Segment| {
            let header = if matches!(segment.to, To::Tagged { .. }) { 14 } else { 18 };
            header + segment.payload.len()
        };
        let of = &mut self.qps[qp];
        let all = of.parked.iter().map(bytes).sum::<usize>() + bytes(segment);
        if all > PARKED_MAX {
            return Ok(false);
        }
        of.parked.push_back(segment.clone());
        Ok(true)
    }

    /// There may be receives for those that wait.
    pub(crate) fn look_for_receives(&mut self, qp: usize) -> Result<(), String> {
        while let Some(segment) = self.qps[qp].parked.front().cloned() {
            if self.waits_for_receive(qp, &segment) {
                break;
            }
            self.qps[qp].parked.pop_front();
            self.take(qp, &segment)?;
        }
        Ok(())
    }

    /// Whoever sees a response of the peer's sees the writes that the peer has sent before it. They are not placed before a Send
    /// in front of them that takes their right away, nor before an atomic operation on the same bytes.
    fn place_ahead(&mut self, qp: usize) {
        let parked: Vec<Segment> = self.qps[qp].parked.iter().cloned().collect();
        let (mut invalid, mut words) = (Vec::new(), Vec::new());
        for segment in parked {
            let len = segment.payload.len() as u64;
            match (segment.opcode, segment.to) {
                (4 | 6, To::Untagged { word, .. }) => invalid.push(word),
                (10, _) => {
                    let bytes = &segment.payload;
                    words.push((word(bytes, 8), double(bytes, 12)));
                    if words.len() > self.qps[qp].ird {
                        return;
                    }
                }
                (0, To::Tagged { stag, offset }) if len > 0 => {
                    if self.qps[qp].placed.contains(&segment.end) {
                        continue;
                    }
                    let Ok(place) = self.check(qp, stag, offset, len, REMOTE_WRITE) else { return };
                    let is_apart = |(stag, offset): &(u32, u64)| {
                        let word = self.check(qp, *stag, *offset, 8, REMOTE_ATOMIC);
                        word.is_ok_and(|(memory, at)| {
                            memory != place.0 || at >= place.1 + len || place.1 >= at + 8
                        })
                    };
                    if invalid.contains(&stag) || !words.iter().all(is_apart) {
                        return;
                    }
                    self.store_behind(qp, Kind::Write, place, &segment.payload);
                    self.qps[qp].placed.insert(segment.end);
                }
                _ => {}
            }
        }
    }

    /// A segment whose turn it is.
    fn take(&mut self, qp: usize, segment: &Segment) -> Result<(), String> {
        let written = match segment.opcode {
            0 => None,
            _ => self.qps[qp].written.take(),
        };
        match (segment.opcode, segment.to) {
            (0, To::Tagged { stag, offset }) => self.got_write(qp, segment, stag, offset),
            (2, To::Tagged { .. }) => self.got_read_response(qp, segment)?,
            (3..=6, To::Untagged { word, .. }) => self.got_send(qp, segment, word),
            (8 | 9, _) => self.got_immediate(qp, segment, written.unwrap_or(0)),
            (1, _) => self.got_read(qp, segment),
            (10, _) => self.got_atomic(qp, segment),
            (11, _) => self.got_atomic_response(qp, segment)?,
            (7, _) => self.got_terminate(qp, segment),
            _ => return Err(format!("nobody sends this: {segment:?}")),
        }
        Ok(())
    }

    /// It begins a message, which is not the ready message, there is no receive for it, and that is no error.
    fn waits_for_receive(&mut self, qp: usize, segment: &Segment) -> bool {
        let of = &mut self.qps[qp];
        let begins = matches!(segment.opcode, 3..=6 | 8 | 9) && of.coming.is_none();
        let is_ready = of.awaits == Some(Rtr::Send)
            && segment.opcode == 3
            && segment.last
            && segment.payload.is_empty();
        let posted = if of.srq { self.srq.len() } else { of.rq.len() };
        of.waits && begins && !is_ready && posted == 0
    }

    fn got_write(&mut self, qp: usize, segment: &Segment, stag: u32, offset: u64) {
        let len = segment.payload.len() as u64;
        if len > 0 && !self.qps[qp].placed.remove(&segment.end) {
            match self.check(qp, stag, offset, len, REMOTE_WRITE) {
                Ok(place) => self.store_behind(qp, Kind::Write, place, &segment.payload),
                Err(why) => return self.fail(qp, ddp(why), None, None),
            }
        }
        let of = &mut self.qps[qp];
        let before = if of.tagged.is_some() { of.written.unwrap_or(0) } else { 0 };
        of.written = Some(before + len);
        of.tagged = (!segment.last).then_some(0);
    }

    fn got_read_response(&mut self, qp: usize, segment: &Segment) -> Result<(), String> {
        // An answer to the ready message comes first.
        if std::mem::take(&mut self.qps[qp].ready_read) {
            return Ok(());
        }
        let is_read =
            |at: At, work: Work| matches!(at, At::Waiting(_)) && matches!(work, Work::Read { .. });
        let sq = &self.qps[qp].sq;
        let at = sq.iter().position(|wr| is_read(wr.at, wr.work)).ok_or("a response to nothing")?;
        let wr = self.qps[qp].sq[at].clone();
        let At::Waiting(got) = wr.at else { return Err("it is not waited for".to_owned()) };
        let len = segment.payload.len() as u32;
        if len > 0 {
            let sge = wr.sges[0];
            match self.check_local(qp, &sge, got, len, LOCAL_WRITE) {
                Ok(place) => self.store(place, &segment.payload),
                Err(why) => {
                    self.fail(qp, ddp(why), Some((wr.id, Status::LocalProtection)), None);
                    return Ok(());
                }
            }
        }
        self.qps[qp].sq[at].at = if segment.last { At::Done } else { At::Waiting(got + len) };
        self.retire(qp);
        Ok(())
    }

    fn take_receive(&mut self, qp: usize) -> bool {
        let recv = if self.qps[qp].srq {
            let recv = self.srq.pop_front();
            if recv.is_some() && self.srq.len() < self.srq_limit {
                self.srq_limit = 0;
                let srq = self.names.srq;
                self.tell(Event::SrqLimit(srq));
            }
            recv
        } else {
            self.qps[qp].rq.pop_front()
        };
        let Some(recv) = recv else {
            self.fail(qp, UntaggedError::NoBuffer.into(), None, None);
            return false;
        };
        self.qps[qp].coming = Some(Coming { recv, got: 0 });
        true
    }

    fn got_send(&mut self, qp: usize, segment: &Segment, word: u32) {
        if self.qps[qp].coming.is_none() {
            let ready = self.qps[qp].awaits.take() == Some(Rtr::Send);
            if ready && segment.last && segment.payload.is_empty() && segment.opcode == 3 {
                return;
            }
            if !self.take_receive(qp) {
                return;
            }
        }
        let Some(coming) = self.qps[qp].coming.clone() else { return };
        let len = segment.payload.len() as u32;
        let room: u64 = coming.recv.sges.iter().map(|sge| u64::from(sge.len)).sum();
        if u64::from(coming.got) + u64::from(len) > room {
            let cause = UntaggedError::TooLong.into();
            return self.fail(qp, cause, None, Some(Status::LocalLength));
        }
        // All of a segment is placed, or nothing.
        let mut places = Vec::new();
        let mut from = 0;
        for (sge, skip, len) in Self::parts(&coming.recv.sges, coming.got, len) {
            match self.check_receive(qp, &sge, skip, len) {
                Ok(place) => places.push((place, from, from + len as usize)),
                Err(_) => {
                    // What was found well before is placed.
                    for (place, from, to) in places {
                        self.store_behind(qp, Kind::Send, place, &segment.payload[from..to]);
                    }
                    let cause = Cause::Ddp(Error::Catastrophic);
                    return self.fail(qp, cause, None, Some(Status::LocalProtection));
                }
            }
            from += len as usize;
        }
        for (place, from, to) in places {
            self.store_behind(qp, Kind::Send, place, &segment.payload[from..to]);
        }
        let got = coming.got + len;
        if let Some(coming) = &mut self.qps[qp].coming {
            coming.got = got;
        }
        if !segment.last {
            return;
        }
        let mut invalidated = None;
        if matches!(segment.opcode, 4 | 6) {
            if let Err(why) = self.invalidate(qp, word, true) {
                let cause = match why {
                    Why::Stag => Cause::Operation(Operation::CannotInvalidate),
                    _ => Cause::Protection(Protection::CannotInvalidate),
                };
                return self.fail(qp, cause, None, Some(Status::RemoteInvalidRequest));
            }
            invalidated = Some(word);
        }
        self.qps[qp].coming = None;
        let (wr_id, name) = (coming.recv.id, self.names.qps[qp]);
        let completion = Completion {
            wr_id,
            qp: name,
            done: Done::Receive,
            len: got,
            invalidated,
            ..Completion::default()
        };
        self.complete_receive(qp, completion, segment.opcode >= 5);
    }

    fn got_immediate(&mut self, qp: usize, segment: &Segment, written: u64) {
        if !self.take_receive(qp) {
            return;
        }
        let Some(coming) = self.qps[qp].coming.take() else { return };
        let completion = Completion {
            wr_id: coming.recv.id,
            qp: self.names.qps[qp],
            done: Done::ReceiveImmediate,
            len: written as u32,
            immediate: segment.payload[..4].try_into().ok(),
            ..Completion::default()
        };
        self.complete_receive(qp, completion, segment.opcode == 9);
    }

    fn got_read(&mut self, qp: usize, segment: &Segment) {
        let bytes = &segment.payload;
        let len = word(bytes, 12);
        let (sink, source) =
            ((word(bytes, 0), double(bytes, 4)), (word(bytes, 16), double(bytes, 20)));
        let ready = self.qps[qp].awaits.take() == Some(Rtr::Read) && len == 0;
        if self.qps[qp].responses.len() >= self.qps[qp].ird.max(usize::from(ready)) {
            return self.fail(qp, UntaggedError::NoBuffer.into(), None, None);
        }
        if len > 0 {
            let checked = self.check(qp, source.0, source.1, u64::from(len), REMOTE_READ);
            let sink_ends = sink.1.checked_add(u64::from(len));
            let why = checked.err().or(sink_ends.is_none().then_some(Why::Wrap));
            if let Some(why) = why {
                return self.fail(qp, rdmap(why), None, None);
            }
        }
        let shown = Shown::default();
        let response = Response::Read { sink, source, len, sent: 0, begun: false, shown };
        self.qps[qp].responses.push_back(response);
    }

    fn got_atomic(&mut self, qp: usize, segment: &Segment) {
        let bytes = &segment.payload;
        self.qps[qp].awaits = None;
        if self.qps[qp].responses.len() >= self.qps[qp].ird {
            return self.fail(qp, UntaggedError::NoBuffer.into(), None, None);
        }
        let (id, stag, offset) = (word(bytes, 4), word(bytes, 8), double(bytes, 12));
        if offset % 8 != 0 {
            let cause = Cause::Operation(Operation::CatastrophicStream);
            return self.fail(qp, cause, None, None);
        }
        let place = match self.check(qp, stag, offset, 8, REMOTE_ATOMIC) {
            Ok(place) => place,
            Err(why) => return self.fail(qp, rdmap(why), None, None),
        };
        let [a, b, c, d] = [20, 28, 36, 44].map(|at| double(bytes, at));
        let original = u64::from_ne_bytes(self.load(place, 8).try_into().unwrap());
        let value = match word(bytes, 0) {
            0 => fetch_add(original, a, b),
            _ if (original ^ c) & d == 0 => original & !b | a & b,
            _ => original,
        };
        self.store_behind(qp, Kind::Atomic, place, &value.to_ne_bytes());
        self.qps[qp].responses.push_back(Response::Atomic { id, original });
    }

    fn got_atomic_response(&mut self, qp: usize, segment: &Segment) -> Result<(), String> {
        // Atomics are answered in their order, so the number says no more than the place.
        let is_atomic = |at: At, work: Work| {
            matches!(at, At::Waiting(_)) && matches!(work, Work::Atomic { .. })
        };
        let sq = &self.qps[qp].sq;
        let at =
            sq.iter().position(|wr| is_atomic(wr.at, wr.work)).ok_or("a response to nothing")?;
        let wr = self.qps[qp].sq[at].clone();
        match self.check_local(qp, &wr.sges[0], 0, 8, LOCAL_WRITE) {
            Ok(place) => self.store(place, &double(&segment.payload, 4).to_ne_bytes()),
            Err(_) => {
                let failed = Some((wr.id, Status::LocalProtection));
                self.fail(qp, Cause::Local, failed, None);
                return Ok(());
            }
        }
        self.qps[qp].sq[at].at = At::Done;
        self.retire(qp);
        Ok(())
    }

    /// The peer ends the stream. The work that it names, by queue and number or by its place, fails with it.
    fn got_terminate(&mut self, qp: usize, segment: &Segment) {
        let bytes = &segment.payload;
        let cause = Cause::from_codes(bytes[0] >> 4, bytes[0] & 0xf, bytes[1]);
        let names = |wr: &super::side::Wr| {
            if bytes[2] & 0xc0 != 0xc0 || wr.at == At::Posted {
                return false;
            }
            let header = &bytes[6..];
            if header[0] & 0x80 != 0 {
                let (stag, offset) = (word(header, 2), double(header, 6));
                return match wr.work {
                    Work::Write { stag: of, offset: begin } => {
                        of == stag && offset.wrapping_sub(begin) < u64::from(wr.len.max(1))
                    }
                    _ => false,
                };
            }
            let (queue, msn) = (word(header, 6), word(header, 10));
            match wr.work {
                Work::Send { .. } | Work::WriteImmediate { .. } => queue == 0 && wr.msn == msn,
                Work::Read { .. } | Work::Atomic { .. } => queue == 1 && wr.msn == msn,
                _ => false,
            }
        };
        let status = match cause {
            Cause::Ddp(Error::Tagged(_)) | Cause::Protection(_) => Status::RemoteAccess,
            Cause::Ddp(Error::Untagged(_))
            | Cause::Operation(Operation::CatastrophicStream | Operation::Opcode) => {
                Status::RemoteInvalidRequest
            }
            _ => Status::RemoteOperation,
        };
        let failed = self.qps[qp].sq.iter().find(|wr| names(wr)).map(|wr| (wr.id, status));
        self.qps[qp].phase = Phase::Over;
        let name = self.names.qps[qp];
        self.tell(Event::Terminated(name, cause));
        self.flush(qp, failed, None);
    }
}
