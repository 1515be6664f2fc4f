//! What moves: posts, and the streams of queue pairs.

use std::sync::atomic::AtomicU64;

use rdma::session::{Hostile, Process};
use rdma::verbs::{Close, Qp, State};
use sys::poll::Interest;
use wire::Nanos;

use super::{Carried, End, Serving, TURN_MAX};
use crate::carrier::Came;
use crate::manager::Ready;
use crate::memory::Remote;
use crate::stream::{CLOSING_MAX, Stream, Waiting};
use crate::token::Token;

impl From<Hostile> for End {
    fn from(_: Hostile) -> End {
        End::Hostile
    }
}

impl Serving {
    /// Takes what was posted, and sends it; whether there was anything. Queue pairs that are left when the part of the turn is
    /// over are the first of the next.
    pub(super) fn take_posts(&mut self, now: Nanos) -> Result<bool, End> {
        if self.posted.is_empty() {
            let Serving { process, shared, posted, .. } = self;
            process.take_posts(shared.words(), |qp| posted.push_back(qp));
        }
        let mut were_any = false;
        while let Some(qp) = self.posted.pop_front() {
            were_any = true;
            self.process.pull(self.shared.words(), now, qp)?;
            self.carry_on(now, qp)?;
            self.receives_posted(now, qp)?;
            if self.has_taken_long(now) {
                break;
            }
        }
        Ok(were_any)
    }

    /// Receives may have been posted that a message waits for: of the queue pair, or of others that share its queue.
    fn receives_posted(&mut self, now: Nanos, qp: Qp) -> Result<(), End> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if let Some(of) = self.carried.get(&qp.0).copied()
            && self.waiting.contains(&of.stream)
        {
            self.look_for_receive(now, of.stream)?;
        }
        // A shared queue is shared with itself.
        if !self.process.share_receives(qp, qp) {
            return Ok(());
        }
        // Each has its turn. Where one finds no receive, there is none for the others.
        for _ in 0..self.waiting.len() {
            let (behind, before) =
                (self.waiting.range(self.looked + 1..), self.waiting.range(..=self.looked));
            let next = behind.chain(before).find(|number| self.shares_queue(**number, qp)).copied();
            let Some(number) = next else { break };
            self.looked = number;
            self.look_for_receive(now, number)?;
            if self.waiting.contains(&number) {
                break;
            }
        }
        Ok(())
    }

    fn shares_queue(&self, number: u64, qp: Qp) -> bool {
        let other = self.streams.get(&number).and_then(|stream| stream.qp);
        other.is_some_and(|other| self.process.share_receives(other, qp))
    }

    /// The stream of a queue pair begins.
    pub(super) fn start(&mut self, now: Nanos, ready: Ready) -> Result<(), End> {
        let emss = ready.carrier.segment_size();
        let words = self.shared.words();
        if self.process.start(words, ready.qp, &ready.negotiated, emss).is_err() {
            let (manager, mut around) = self.manager(now);
            manager.fails(&mut around, ready.id, crate::manager::errno::EINVAL, &[]);
            return Ok(());
        }
        self.process.let_wait(ready.qp, true);
        let (manager, mut around) = self.manager(now);
        manager.established(&mut around, &ready);
        let Ready { id, carrier, qp, held, reply, .. } = ready;
        self.last_stream += 1;
        let number = self.last_stream;
        let token = u64::from(Token::Stream(number));
        let timeout = self.terms.peer_timeout;
        let mut stream = Stream::new(carrier, qp, Interest::Read, timeout);
        stream.sends(now);
        // What set-up waited for it for may be over.
        let registered = self
            .epoll
            .change(&stream.carrier, token, Interest::Read)
            .or_else(|_| self.epoll.add(&stream.carrier, token));
        let is_open = registered.and_then(|()| stream.send(&reply, &mut self.calls)).is_ok();
        stream.carrier.hand_off();
        self.streams.insert(number, stream);
        self.carried.insert(qp.0, Carried { stream: number, id });
        if !is_open {
            return self.stream_is_over(now, number);
        }
        if !held.is_empty() {
            self.place(now, number, qp, &held)?;
        }
        // What was posted before there was a stream.
        self.process.pull(self.shared.words(), now, qp)?;
        self.transmit(now, number)
    }

    /// A queue pair may have something to send.
    pub(super) fn carry_on(&mut self, now: Nanos, qp: Qp) -> Result<(), End> {
        match self.carried.get(&qp.0).copied() {
            Some(of) => self.transmit(now, of.stream),
            None => Ok(()),
        }
    }

    /// Another turn of those streams that had more than one holds.
    pub(super) fn go_on(&mut self, now: Nanos) -> Result<(), End> {
        // Those that are added meanwhile are of the next turn.
        for _ in 0..self.unfinished.len() {
            let Some(number) = self.unfinished.pop_front() else { break };
            if let Some(stream) = self.streams.get_mut(&number) {
                stream.has_gone_on();
                self.stream_turn(now, number)?;
            }
            if self.has_taken_long(now) {
                break;
            }
        }
        Ok(())
    }

    /// A stream that is ready has its turn when those have had theirs that are unfinished.
    pub(super) fn puts_off(&mut self, number: u64) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.goes_on_in(&mut self.unfinished, number);
        }
    }

    /// A stream that has said that it is ready.
    pub(super) fn stream_turn(&mut self, now: Nanos, number: u64) -> Result<(), End> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        if stream.flush(now, &mut self.calls).is_err() || stream.is_done() {
            return self.stream_is_over(now, number);
        }
        self.advance(now, number)
    }

    /// What has come on a stream, and what is to be sent then.
    pub(super) fn advance(&mut self, now: Nanos, number: u64) -> Result<(), End> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.receive(now, number, &mut buffer);
        self.buffer = buffer;
        received?;
        self.transmit(now, number)
    }

    fn receive(&mut self, now: Nanos, number: u64, buffer: &mut [u8]) -> Result<(), End> {
        let mut all = 0;
        loop {
            match self.receive_some(now, number, buffer)? {
                Came::Nothing => return Ok(()),
                Came::End => return self.has_ended(now, number),
                // Neither side hears of the other any more: no message of it is waited for.
                Came::Failed => return self.stream_is_over(now, number),
                Came::Bytes(len) => {
                    all += len;
                    if len < buffer.len() {
                        return Ok(());
                    }
                    if all >= TURN_MAX * buffer.len() {
                        if let Some(stream) = self.streams.get_mut(&number) {
                            stream.goes_on_in(&mut self.unfinished, number);
                        }
                        return Ok(());
                    }
                }
            }
        }
    }

    /// What has come, where it lies if the NIC has it, and else in the buffer.
    fn receive_some(&mut self, now: Nanos, number: u64, buffer: &mut [u8]) -> Result<Came, End> {
        let Serving { streams, calls, process, memory, shared, .. } = self;
        let Some(stream) = streams.get_mut(&number) else { return Ok(Came::Nothing) };
        let closes = stream.is_closing();
        if !stream.reads() {
            return Ok(Came::Nothing);
        }
        let Stream { carrier, held, qp, .. } = stream;
        let (qp, words, mut copied, mut taken) = (*qp, shared.words(), 0, Ok(()));
        let awaited = qp.filter(|_| closes).map(|qp| process.awaited(qp));
        let mut take = |pieces: [&[u8]; 2]| {
            let Some(qp) = qp else { return };
            let placed = pieces_placed(process, memory, (words, now), qp, held, pieces);
            taken = placed.map(|kept| copied += kept);
        };
        let came = match carrier.place(buffer.len(), calls, &mut take) {
            Some(came) => came,
            None => {
                let came = carrier.read(buffer, calls);
                if let Came::Bytes(len) = came {
                    take([&buffer[..len], &[]]);
                }
                came
            }
        };
        taken?;
        calls.held_bytes += copied;
        // What else a peer sends is not what a stream that is to be closed waits for.
        if closes && qp.map(|qp| process.awaited(qp)) != awaited {
            stream.moved(now);
        }
        if let Some(qp) = qp {
            self.look_whether_it_waits(now, number, qp);
        }
        Ok(came)
    }

    /// Bytes of a queue pair's that have come already.
    fn place(&mut self, now: Nanos, number: u64, qp: Qp, came: &[u8]) -> Result<(), End> {
        let Serving { streams, calls, process, memory, shared, .. } = self;
        let Some(stream) = streams.get_mut(&number) else { return Ok(()) };
        let (at, held) = ((shared.words(), now), &mut stream.held);
        calls.held_bytes += pieces_placed(process, memory, at, qp, held, [came, &[]])?;
        self.look_whether_it_waits(now, number, qp);
        Ok(())
    }

    /// A message may wait for a receive, or none does any more.
    fn look_whether_it_waits(&mut self, now: Nanos, number: u64, qp: Qp) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let waits = self.process.is_waiting(qp);
        if stream.for_receive.is_some() || waits {
            let (which, is_stuck) = (self.process.waits_since(qp), self.process.is_full(qp));
            stream.waits(now, waits, which, is_stuck);
            self.may_be_sooner = true;
            if waits {
                self.waiting.insert(number);
            } else {
                self.waiting.remove(&number);
            }
            self.ask_for_receives(qp, waits);
        }
    }

    /// Has the application say when it posts receives that are waited for.
    fn ask_for_receives(&mut self, qp: Qp, waits: bool) {
        // Another queue pair may wait for receives of the same queue.
        let other = self.waiting.iter().filter(|number| !waits && self.shares_queue(**number, qp));
        let other = other.filter_map(|number| self.streams.get(number)?.qp).next();
        let of = other.unwrap_or(qp);
        let are_there =
            self.process.want_receives(self.shared.words(), of, waits || other.is_some());
        if are_there && (waits || other.is_some()) {
            self.posted.push_back(of);
        }
    }

    /// A stream no longer waits for a receive, and has found none. It may be the one that a shared queue names, and receives
    /// that are posted there would wake no queue pair: the others ask anew.
    pub(super) fn waits_no_more(&mut self, number: u64) {
        if !self.waiting.remove(&number) {
            return;
        }
        let others = self.waiting.iter().filter_map(|number| self.streams.get(number)?.qp);
        for qp in others.collect::<Vec<_>>() {
            self.ask_for_receives(qp, true);
        }
    }

    /// Looks for a receive for the message that waits for one.
    pub(super) fn look_for_receive(&mut self, now: Nanos, number: u64) -> Result<(), End> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        if stream.for_receive.is_none() {
            return Ok(());
        }
        let Some(qp) = stream.qp else {
            // Its queue pair is gone.
            stream.waits(now, false, 0, false);
            self.waits_no_more(number);
            return self.advance(now, number);
        };
        self.place(now, number, qp, &[])?;
        let Some(stream) = self.streams.get(&number) else { return Ok(()) };
        // Who has closed waits for the peer to do so, which is behind the message.
        let is_over = |of: Waiting| of.is_over(now) || stream.is_ending();
        if stream.for_receive.is_some_and(is_over) {
            self.process.let_wait(qp, false);
            self.place(now, number, qp, &[])?;
        }
        if self.streams.get(&number).is_some_and(Stream::is_heard) {
            return self.let_go(now, number);
        }
        self.advance(now, number)
    }

    /// Sends what a queue pair has to send, as far as there is room.
    pub(super) fn transmit(&mut self, now: Nanos, number: u64) -> Result<(), End> {
        if self.is_aborted(now, number)? {
            return self.let_go(now, number);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let sent = self.lay_out(now, number, &mut buffer);
        self.buffer = buffer;
        if !sent? {
            return self.stream_is_over(now, number);
        }
        if let Some(stream) = self.streams.get_mut(&number) {
            if stream.qp.is_some_and(|qp| self.process.state(qp) != Some(State::Rts)) {
                stream.close(now);
            }
            let (wants, token) = (stream.wants(), Token::Stream(number).into());
            let registered = match (stream.interest, wants) {
                (was, wants) if was == wants => Ok(()),
                (Some(_), Some(wants)) => self.epoll.change(&stream.carrier, token, wants),
                (None, Some(wants)) => self.epoll.add_for(&stream.carrier, token, wants),
                // If it was not there, it is as it is wanted.
                (_, None) => self.epoll.remove(&stream.carrier).or(Ok(())),
            };
            stream.is_registered(now, registered.is_ok());
            let is_sooner = |at: Nanos| self.due.is_none_or(|due| at < due);
            self.may_be_sooner |= stream.deadline().is_some_and(is_sooner);
        }
        Ok(())
    }

    /// Whether its queue pair ends it at once: that waits for no room.
    fn is_aborted(&mut self, now: Nanos, number: u64) -> Result<bool, End> {
        let Serving { streams, process, memory, shared, .. } = self;
        let Some(stream) = streams.get_mut(&number) else { return Ok(false) };
        let Some(qp) = stream.qp else { return Ok(false) };
        if process.state(qp) != Some(State::Err) || !process.wants_transmit(qp) {
            return Ok(false);
        }
        let sent = process.transmit(shared.words(), now, qp, &mut [], memory)?;
        if sent.close == Some(Close::Orderly) {
            stream.end(now);
        }
        Ok(sent.close == Some(Close::Abort))
    }

    /// The peer sends nothing more, which ends the queue pair.
    fn has_ended(&mut self, now: Nanos, number: u64) -> Result<(), End> {
        match self.streams.get_mut(&number) {
            Some(stream) => stream.hears_nothing(),
            None => return Ok(()),
        }
        // What it has sent before is delivered, if it only waits for a receive.
        if self.streams.get(&number).is_some_and(Stream::is_heard) {
            return self.let_go(now, number);
        }
        Ok(())
    }

    /// The stream is no queue pair's any more. What that has sent, and was told that it is sent, goes out by itself.
    fn let_go(&mut self, now: Nanos, number: u64) -> Result<(), End> {
        let has_all_gone = self.streams.get(&number).is_none_or(Stream::has_room);
        if has_all_gone {
            return self.stream_is_over(now, number);
        }
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        stream.end(now);
        let qp = stream.qp.take();
        self.waits_no_more(number);
        match qp {
            Some(qp) => self.is_over(now, qp),
            None => Ok(()),
        }
    }

    /// Whether the stream goes on.
    fn lay_out(&mut self, now: Nanos, number: u64, buffer: &mut [u8]) -> Result<bool, End> {
        let Serving { streams, calls, process, memory, shared, unfinished, .. } = self;
        let Some(stream) = streams.get_mut(&number) else { return Ok(true) };
        let Some(qp) = stream.qp else { return Ok(true) };
        if process.wants_transmit(qp)
            && let Some(emss) = stream.new_segment_size(now)
        {
            process.set_emss(qp, emss);
        }
        let (words, mut all) = (shared.words(), 0);
        while stream.has_room() && process.wants_transmit(qp) {
            let fpdu = process.fpdu_len(qp).min(buffer.len());
            let mut transmit = |room: &mut [u8]| process.transmit(words, now, qp, room, memory);
            let mut laid = None;
            let of_nic = stream.lay(buffer.len(), calls, |room| {
                let sent = transmit(room);
                laid = Some(sent);
                sent.unwrap_or_default()
            });
            let sent = match (laid.transpose()?, of_nic) {
                (Some(sent), _) if sent.len > 0 || !sent.more => sent,
                (_, Some(Err(_))) => return Ok(false),
                (None, Some(Ok(()))) => return Ok(true),
                // FPDUs are not cut: one for which there is no room in one piece goes by way of the buffer.
                (_, of_nic) => {
                    let most = if of_nic.is_some() { fpdu } else { buffer.len() };
                    let sent = transmit(&mut buffer[..most])?;
                    if stream.send(&buffer[..sent.len], calls).is_err() {
                        return Ok(false);
                    }
                    sent
                }
            };
            all += sent.len;
            if sent.len > 0 {
                stream.moved(now);
                stream.sends(now);
            }
            match sent.close {
                Some(Close::Orderly) => {
                    stream.end(now);
                    return Ok(true);
                }
                Some(Close::Abort) => return Ok(false),
                None if sent.len == 0 => return Ok(true),
                None if all >= TURN_MAX * buffer.len() => {
                    stream.goes_on_in(unfinished, number);
                    return Ok(true);
                }
                None => {}
            }
        }
        Ok(true)
    }

    /// The stream is over, whoever has ended it.
    pub(super) fn stream_is_over(&mut self, now: Nanos, number: u64) -> Result<(), End> {
        let Some(stream) = self.streams.remove(&number) else { return Ok(()) };
        self.waits_no_more(number);
        stream.qp.map_or(Ok(()), |qp| self.is_over(now, qp))
    }

    /// A queue pair has no stream any more.
    fn is_over(&mut self, now: Nanos, qp: Qp) -> Result<(), End> {
        self.process.stream_ended(self.shared.words(), now, qp)?;
        self.hear(now);
        self.carried.remove(&qp.0);
        Ok(())
    }

    /// The process is gone. What its queue pairs have sent still goes out, for as long as a stream may need to close.
    pub(super) fn linger(mut self) {
        let now = sys::clock::now();
        self.leave(now);
        let due = now + CLOSING_MAX;
        while !self.streams.is_empty() && sys::clock::now() < due {
            if self.epoll.wait(100).is_err() {
                return;
            }
            let calls = &mut self.calls;
            self.streams.retain(|_, stream| stream.flush(now, calls).is_ok() && !stream.has_room());
        }
        for stream in self.streams.values() {
            stream.carrier.abandon();
        }
    }

    /// Nothing is left but what has no room yet, and nothing but that there is some is waited for.
    pub(super) fn leave(&mut self, now: Nanos) {
        self.outlets = Default::default();
        self.memory.release_all();
        // Its ports are free for the next.
        self.manager = Default::default();
        let _ = self.epoll.remove(&self.socket);
        let _ = self.epoll.remove(&self.doorbell);
        // Else it would be ready for ever.
        self.pidfd = None;
        for stream in self.streams.values_mut() {
            stream.qp = None;
            stream.end(now);
        }
        self.streams.retain(|_, stream| !stream.has_room());
        for (number, stream) in &mut self.streams {
            let token = Token::Stream(*number).into();
            let _ = match stream.interest.replace(Interest::Write) {
                Some(_) => self.epoll.change(&stream.carrier, token, Interest::Write),
                None => self.epoll.add_for(&stream.carrier, token, Interest::Write),
            };
        }
    }
}

/// Has a queue pair take what is held and these pieces behind it. What it does not take is held; how many bytes that copies.
fn pieces_placed(
    process: &mut Process,
    memory: &mut Remote,
    (words, now): (&[AtomicU64], Nanos),
    qp: Qp,
    held: &mut Vec<u8>,
    pieces: [&[u8]; 2],
) -> Result<u64, Hostile> {
    let all = [&held[..], pieces[0], pieces[1]];
    let first = usize::from(held.is_empty());
    let taken = process.receive(words, now, qp, &all[first..], memory)?;
    let of_held = taken.min(held.len());
    let mut taken = taken - of_held;
    held.drain(..of_held);
    let before = held.len();
    for piece in pieces {
        let gone = taken.min(piece.len());
        taken -= gone;
        held.extend_from_slice(&piece[gone..]);
    }
    Ok((held.len() - before) as u64)
}
