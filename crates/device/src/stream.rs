//! The stream of a queue pair, or what is left of one.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Duration;

use rdma::verbs::{Qp, Transmitted};
use sys::poll::Interest;
use sys::tcp::Answers;
use wire::Nanos;

use crate::carrier::Carrier;
use crate::silence::Silence;
use crate::stats::Calls;
use crate::token::REGISTER_AGAIN;

/// How long a stream that is to be closed may need for it.
pub(crate) const CLOSING_MAX: Nanos = 5_000_000_000;
/// And one whose work goes on meanwhile: its peer decides how fast.
const FINISHING_MAX: Nanos = 60_000_000_000;

/// How long a message waits for a receive before it ends the stream: as long as a program that is alive may need.
const RECEIVE_WAIT_MAX: Nanos = 5_000_000_000;

/// How often the size of segments is looked up while something is sent: a path may take others by now. The NIC has to be
/// asked for that.
const SEGMENT_LOOK_EVERY: Nanos = 1_000_000_000;
const SEGMENT_LOOK_EVERY_AT_NIC: Nanos = 10_000_000_000;

/// A message that has come and waits for a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    until: Nanos,
}

impl Waiting {
    /// Whether it has waited long enough.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        now >= self.until
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) carrier: Carrier,
    /// Whom it carries; `None` once that is gone.
    pub(crate) qp: Option<Qp>,
    /// An FPDU that is not all there; more while messages wait for receives, and no more of them are taken.
    pub(crate) held: Vec<u8>,
    pub(crate) for_receive: Option<Waiting>,
    /// No more messages are taken before that has come: nothing is read, and TCP's window closes.
    is_stuck: bool,
    /// Which message it is that waits.
    waits_since: u64,
    /// What the carrier had no room for, and how much of that has gone meanwhile.
    waiting: Vec<u8>,
    gone: usize,
    /// The NIC has no room: nothing more is laid out before the carrier says that it has. Whoever takes room as it comes takes
    /// little at a time.
    is_full: bool,
    /// It is to be closed when what is to go before has gone, or at this time.
    closes: Option<Nanos>,
    /// Nothing more is to be sent.
    ends: bool,
    /// When it is over, whatever the peer does.
    pub(crate) due: Option<Nanos>,
    /// As it is registered, if it is.
    pub(crate) interest: Option<Interest>,
    /// When it is to be registered again, as that has failed.
    registers: Option<Nanos>,
    /// How its peer answers.
    silence: Silence,
    /// It is one of those that go on in the next turn.
    is_unfinished: bool,
    /// The peer has closed, or what it sends is not read any more.
    is_deaf: bool,
    /// When the size of segments is looked up again.
    looks_up: Nanos,
}

impl Stream {
    /// One that has just begun, and whose peer may be silent for so long.
    pub(crate) fn new(
        carrier: Carrier,
        qp: Qp,
        interest: Interest,
        peer_timeout: Duration,
    ) -> Self {
        let (held, silence) = (Vec::new(), Silence::new(peer_timeout));
        let (waiting, gone, closes, ends, due) = (Vec::new(), 0, None, false, None);
        let (is_full, is_unfinished, is_deaf, looks_up) = (false, false, false, 0);
        let (registers, is_stuck, waits_since) = (None, false, 0);
        let (qp, for_receive, interest) = (Some(qp), None, Some(interest));
        Stream {
            carrier,
            qp,
            held,
            for_receive,
            is_stuck,
            waits_since,
            waiting,
            gone,
            is_full,
            closes,
            ends,
            due,
            interest,
            registers,
            silence,
            is_unfinished,
            is_deaf,
            looks_up,
        }
    }

    /// Its turn is over before it has nothing more: it is one of these from now on, if it is not yet.
    pub(crate) fn goes_on_in(&mut self, unfinished: &mut VecDeque<u64>, number: u64) {
        if !std::mem::replace(&mut self.is_unfinished, true) {
            unfinished.push_back(number);
        }
    }

    /// It is none of them any more.
    pub(crate) fn has_gone_on(&mut self) {
        self.is_unfinished = false;
    }

    /// A message waits for a receive, or none does any more: `which` is another one if it has not waited before.
    pub(crate) fn waits(&mut self, now: Nanos, waits: bool, which: u64, is_stuck: bool) {
        let since = self.for_receive.filter(|_| self.waits_since == which);
        let new = Waiting { until: now.saturating_add(RECEIVE_WAIT_MAX) };
        self.for_receive = waits.then(|| since.unwrap_or(new));
        (self.waits_since, self.is_stuck) = (which, waits && is_stuck);
    }

    /// Returns true if what comes is read.
    pub(crate) fn reads(&self) -> bool {
        !self.is_stuck && !self.is_deaf
    }

    /// Nothing more is read: the peer has closed.
    pub(crate) fn hears_nothing(&mut self) {
        self.is_deaf = true;
    }

    /// Returns true if the peer has closed, and no message of it waits any more.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_deaf && self.for_receive.is_none()
    }

    /// Returns true if the peer has closed, and all is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.is_deaf && self.qp.is_none() && self.waiting.is_empty()
    }

    /// Returns the largest segment that is sent now, if it was not looked up lately.
    pub(crate) fn new_segment_size(&mut self, now: Nanos) -> Option<usize> {
        if now < self.looks_up {
            return None;
        }
        let is_at_nic = self.carrier.is_handed_off();
        let every = if is_at_nic { SEGMENT_LOOK_EVERY_AT_NIC } else { SEGMENT_LOOK_EVERY };
        self.looks_up = now.saturating_add(every);
        Some(self.carrier.segment_size())
    }

    /// When it is to be looked at though nothing has come.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let look = self.for_receive.map(|waiting| waiting.until);
        let all = [self.due, look, self.registers, self.silence.deadline()];
        all.into_iter().flatten().min()
    }

    /// Something goes to the peer.
    pub(crate) fn sends(&mut self, now: Nanos) {
        self.silence.sends(now);
    }

    /// Whether the peer has answered nothing for too long; looked at when that is due. The connection then ends when this does,
    /// and nothing of it is sent any more.
    pub(crate) fn is_silent(&mut self, now: Nanos) -> bool {
        if self.silence.deadline().is_none_or(|look| look > now) {
            return false;
        }
        let answers = self.carrier.answers().ok().map(|answers| match answers {
            // What TCP has had no room for is sent as well.
            Answers::All if !self.waiting.is_empty() => Answers::Last,
            answers => answers,
        });
        let is_silent = self.silence.hears(now, answers);
        if is_silent {
            self.carrier.reset();
        }
        is_silent
    }

    /// Whether what is sent next goes to the carrier.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() && !self.is_full
    }

    /// Has `lay` write at most so many bytes where the NIC sends them from, all in one piece, which may be too short for it. It is
    /// not called if there is no room at all. What is not sent, as the connection leaves meanwhile, is kept. `None` if
    /// that was the kernel's.
    ///
    /// # Errors
    /// What send(2) says: the stream is over.
    pub(crate) fn lay(
        &mut self,
        most: usize,
        calls: &mut Calls,
        mut lay: impl FnMut(&mut [u8]) -> Transmitted,
    ) -> Option<io::Result<()>> {
        let Stream { carrier, waiting, is_full, .. } = self;
        let lay = |[piece, behind]: [&mut [u8]; 2]| {
            let is_all = behind.is_empty() && piece.len() < most;
            let sent = lay(piece);
            *is_full = sent.len > 0 && sent.more && is_all;
            sent.len
        };
        let keep =
            |pieces: [&[u8]; 2]| pieces.iter().for_each(|piece| waiting.extend_from_slice(piece));
        let laid = carrier.lay(most, calls, lay, keep);
        calls.held_bytes += self.waiting.len() as u64;
        match laid {
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
                self.is_full = true;
                Some(Ok(()))
            }
            laid => laid,
        }
    }

    /// Sends, and keeps what the carrier has no room for.
    ///
    /// # Errors
    /// What send(2) says: the stream is over.
    pub(crate) fn send(&mut self, bytes: &[u8], calls: &mut Calls) -> io::Result<()> {
        let mut sent = 0;
        if self.has_room() {
            sent = self.carrier.write(bytes, calls)?;
        }
        calls.held_bytes += (bytes.len() - sent) as u64;
        self.waiting.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends what waits: there may be room now.
    ///
    /// # Errors
    /// What send(2) says: the stream is over.
    pub(crate) fn flush(&mut self, now: Nanos, calls: &mut Calls) -> io::Result<()> {
        self.is_full = false;
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let sent = self.carrier.write(&waiting[self.gone..], calls);
        let len = *sent.as_ref().unwrap_or(&0);
        self.gone += len;
        if len > 0 {
            self.moved(now);
        }
        if self.gone < waiting.len() {
            self.waiting = waiting;
        } else {
            self.gone = 0;
            self.waiting = waiting;
            self.waiting.clear();
            if self.ends {
                self.carrier.end()?;
            }
        }
        sent.map(drop)
    }

    /// It is to be closed when what is to go before has gone, as long as that goes on, and not for ever: a peer that answers
    /// nothing is not waited for.
    pub(crate) fn close(&mut self, now: Nanos) {
        if self.closes.is_none() && !self.ends {
            self.closes = Some(now.saturating_add(FINISHING_MAX));
            self.moved(now);
        }
    }

    /// Whether it is to be closed, and waits for what is to go before.
    pub(crate) fn is_closing(&self) -> bool {
        self.closes.is_some() && !self.ends
    }

    /// Bytes have gone, or responses have come that were waited for.
    pub(crate) fn moved(&mut self, now: Nanos) {
        if let Some(last) = self.closes
            && !self.ends
        {
            self.due = Some(now.saturating_add(CLOSING_MAX).min(last));
        }
    }

    /// Closes it behind what was sent.
    pub(crate) fn end(&mut self, now: Nanos) {
        if self.ends {
            return;
        }
        self.ends = true;
        // The end of the peer's stream, which is waited for now, is behind a message that waits for a receive.
        self.for_receive = self.for_receive.map(|_| Waiting { until: now });
        self.due = Some(now + CLOSING_MAX);
        if self.waiting.is_empty() {
            // Else it is over, which reading says.
            let _ = self.carrier.end();
        }
    }

    /// Whether nothing more is sent by this side.
    pub(crate) fn is_ending(&self) -> bool {
        self.ends
    }

    /// It is registered like this from now on, or that has failed: the kernel has no memory for it, or the user no room for
    /// more (`fs.epoll.max_user_watches`, epoll(7)). Then it is as it was, and nothing tells when to try again.
    pub(crate) fn is_registered(&mut self, now: Nanos, as_wanted: bool) {
        if as_wanted {
            self.interest = self.wants();
        }
        self.registers = (!as_wanted).then(|| now.saturating_add(REGISTER_AGAIN));
    }

    /// Whether it is to be registered again by now.
    pub(crate) fn is_to_register(&self, now: Nanos) -> bool {
        self.registers.is_some_and(|at| at <= now)
    }

    /// What it waits for.
    pub(crate) fn wants(&self) -> Option<Interest> {
        match (self.reads(), !self.has_room()) {
            (true, false) => Some(Interest::Read),
            (true, true) => Some(Interest::ReadWrite),
            (false, true) => Some(Interest::Write),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_stream_closes_as_long_as_something_moves_but_not_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream =
            Stream::new(Carrier::new(socket), Qp::new(1), Interest::Read, crate::PEER_TIMEOUT);
        stream.moved(1);
        assert!(!stream.is_closing() && stream.due.is_none());
        let begun = 10;
        stream.close(begun);
        assert_eq!(stream.due, Some(begun + CLOSING_MAX));
        // It is told of again and again.
        stream.close(begun + 1);
        assert_eq!(stream.due, Some(begun + CLOSING_MAX));
        let mut now = begun;
        while let Some(due) = stream.due.filter(|due| *due > now) {
            assert!(due <= begun + FINISHING_MAX);
            now = due;
            stream.moved(now);
        }
        assert_eq!(now, begun + FINISHING_MAX);
        stream.end(now);
        assert!(!stream.is_closing());
        assert_eq!(stream.due, Some(now + CLOSING_MAX));
    }
}
