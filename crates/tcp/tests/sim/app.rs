//! An application: writes, reads and rests as its plan has it, when events tell it to, and checks every byte
//! that it reads.

use std::sync::OnceLock;

use tcp::{Events, Nanos, Reason, ReceiveError, Socket, State};

use super::plan::{Dice, Ending, Side};
use super::shelf::Shelf;

/// What an urgent byte looks like; no other one does.
const URGENT: u8 = 0xff;

/// Bytes of all streams: a stream begins somewhere in the first half.
const BYTES: usize = 4 << 20;

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |i: u32| (i.wrapping_mul(0x9e37_79b1) >> 20) as u8 % URGENT;
    PATTERN.get_or_init(|| (0..BYTES as u32).map(byte).collect())
}

/// What one side sends: bytes that follow from the seed, some of them urgent.
#[derive(Debug)]
pub(crate) struct Stream {
    from: usize,
    pub(crate) total: u64,
    pub(crate) sent: u64,
    /// Places of urgent bytes.
    urgent: Vec<u64>,
}

impl Stream {
    pub(crate) fn new(seed: u64, side: &Side) -> Self {
        let from = Dice::new(seed, 10 + side.total).below(BYTES as u64 / 2) as usize;
        Stream { from, total: side.total, sent: 0, urgent: Vec::new() }
    }

    fn at(&self, place: u64, len: u64) -> &'static [u8] {
        let from = self.from + place as usize;
        &pattern()[from..from + len as usize]
    }

    /// The next urgent place from `place` on.
    fn next_urgent(&self, place: u64) -> u64 {
        let index = self.urgent.partition_point(|urgent| *urgent < place);
        self.urgent.get(index).copied().unwrap_or(u64::MAX)
    }
}

/// What was read of the peer's stream.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Bytes of the peer's stream that are behind us, urgent ones taken out of it among them.
    pub(crate) place: u64,
    /// Urgent bytes that were not in the stream.
    pub(crate) taken_out: u64,
    pub(crate) eof: bool,
}

impl Reading {
    /// Goes on by what was read, which must be what was sent. A byte sent as urgent may be missing:
    /// where it does not stand in the stream, it is read apart.
    fn check(&mut self, mut bytes: &[u8], of: &Stream, inline: bool) {
        while !bytes.is_empty() {
            let urgent = of.next_urgent(self.place);
            if urgent == self.place {
                if bytes[0] == URGENT {
                    bytes = &bytes[1..];
                } else {
                    assert!(!inline, "the urgent byte at {urgent} is missing");
                    self.taken_out += 1;
                }
                self.place += 1;
                continue;
            }
            let len = (bytes.len() as u64).min(urgent - self.place);
            assert!(self.place + len <= of.sent, "more was read than was sent");
            let (now, rest) = bytes.split_at(len as usize);
            if now != of.at(self.place, len) {
                let expected = of.at(self.place, len);
                let wrong = now.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
                panic!("wrong byte at {} of the stream", self.place + wrong as u64);
            }
            self.place += len;
            bytes = rest;
        }
    }

    /// The stream has ended: what is missing at its very end can only be urgent.
    fn finish(&mut self, of: &Stream) {
        self.eof = true;
        while of.next_urgent(self.place) == self.place {
            self.place += 1;
            self.taken_out += 1;
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// There is no connection yet.
    Opening,
    /// It is there.
    Open,
    /// The application has released it.
    Over,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct App {
    side: Side,
    dice: Dice,
    pub(crate) phase: Phase,
    pub(crate) stream: Stream,
    pub(crate) reading: Reading,
    /// The reason that the stack gave for the end.
    pub(crate) end: Option<Reason>,
    /// It was closed or aborted before all was done.
    pub(crate) abrupt: bool,
    pub(crate) was_open: bool,
    was_shut_down: bool,
    /// The stack may be short of memory: less may be taken than there is room for.
    pub(crate) short: bool,
    readable: bool,
    writable: bool,
    corked: bool,
    urgent_read: u64,
    write_at: Nanos,
    read_at: Nanos,
    looked_at: Nanos,
    paused: bool,
    buffer: Vec<u8>,
}

impl App {
    pub(crate) fn new(seed: u64, number: u64, side: &Side) -> Self {
        App {
            dice: Dice::new(seed, 20 + number),
            phase: Phase::Opening,
            stream: Stream::new(seed.wrapping_add(number), side),
            reading: Reading::default(),
            end: None,
            abrupt: false,
            was_open: false,
            was_shut_down: false,
            short: false,
            readable: true,
            writable: true,
            corked: false,
            urgent_read: 0,
            write_at: 0,
            looked_at: 0,
            read_at: side.read_from,
            paused: false,
            buffer: vec![0; side.read_max as usize],
            side: side.clone(),
        }
    }

    /// Takes the stack's events. Without an event it does not look again.
    pub(crate) fn on_events(&mut self, events: Events) {
        let opened = events.any(Events::CONNECTED) || events.any(Events::ACCEPTED);
        if opened {
            self.open();
        }
        self.readable |= events.any(Events::READABLE) || events.any(Events::CLOSED);
        self.writable |= events.any(Events::WRITABLE);
    }

    fn open(&mut self) {
        self.was_open = true;
        if self.phase == Phase::Opening {
            self.phase = Phase::Open;
        }
    }

    /// The connection was thawed: events that it has missed it finds by looking.
    pub(crate) fn moved(&mut self, state: State) {
        if state.is_synchronized() {
            self.open();
        }
        self.readable = true;
        self.writable = true;
    }

    /// When it wants to do something by itself.
    pub(crate) fn next_time(&self) -> Option<Nanos> {
        if self.phase != Phase::Open {
            return None;
        }
        let writes = self.writable && self.stream.sent < self.stream.total;
        let reads = self.readable && !self.reading.eof;
        let times = [writes.then_some(self.write_at), reads.then_some(self.read_at)];
        let ahead = |at: &Nanos| !self.side.polls || *at > self.looked_at;
        times.into_iter().flatten().filter(ahead).min()
    }

    /// Does all that is to be done at `now`.
    pub(crate) fn act(
        &mut self,
        socket: &mut Socket<'_>,
        mut shelf: Option<&mut Shelf>,
        peer: &Stream,
        now: Nanos,
    ) {
        if self.end.is_none()
            && let Some(reason) = socket.end()
        {
            self.end = Some(reason);
        }
        if self.phase == Phase::Opening && self.end.is_some() {
            self.release(socket);
        }
        if self.phase != Phase::Open {
            return;
        }
        self.looked_at = now;
        self.readable |= self.side.polls;
        self.writable |= self.side.polls;
        self.write(socket, shelf.as_deref_mut(), now);
        self.read(socket, shelf, peer, now);
        self.finish(socket);
    }

    /// It has waited for long enough.
    pub(crate) fn give_up(&mut self, socket: &mut Socket<'_>) {
        self.abrupt = true;
        self.phase = Phase::Over;
        socket.abort();
    }

    fn write(&mut self, socket: &mut Socket<'_>, mut shelf: Option<&mut Shelf>, now: Nanos) {
        while self.writable && self.write_at <= now && self.end.is_none() {
            let rest = self.stream.total - self.stream.sent;
            if rest == 0 {
                return;
            }
            // A call that can do nothing draws no number, so that it does not change what follows.
            if socket.send_space() == 0 {
                assert_eq!(socket.send(self.stream.at(self.stream.sent, 1)), Ok(0));
                self.writable = false;
                return;
            }
            if self.side.cork > 0 && self.dice.once_in(self.side.cork) {
                self.corked = !self.corked;
                socket.set_cork(self.corked);
            }
            let urgent = self.side.urgent > 0 && self.dice.once_in(self.side.urgent);
            let len = if urgent { 1 } else { rest.min(self.dice.between(1, self.side.write_max)) };
            let room = socket.send_space();
            let taken = if urgent {
                self.stream.urgent.push(self.stream.sent);
                socket.send_urgent(&[URGENT])
            } else if let Some(shelf) = &mut shelf {
                let taken = len.min(room as u64);
                let lent = socket.lend(taken as u32);
                shelf.write(self.stream.at(self.stream.sent, taken * u64::from(lent.is_ok())));
                // Room is waited for as by one that was not taken whole.
                lent.and_then(|()| if taken < len { socket.send(&[0]) } else { Ok(0) })
                    .map(|_| taken as usize)
            } else {
                socket.send(self.stream.at(self.stream.sent, len))
            };
            let Ok(taken) = taken else {
                assert!(socket.end().is_some(), "{taken:?} of an open connection");
                return;
            };
            let fits = room.min(len as usize);
            assert!(taken == fits || self.short && taken < fits, "as much as fits is taken");
            if taken == 0 && urgent {
                self.stream.urgent.pop();
            }
            self.stream.sent += taken as u64;
            self.writable = taken as u64 == len;
            let (one_in, long) = self.side.write_rest;
            if one_in > 0 && self.dice.once_in(one_in) {
                self.write_at = now + self.dice.between(1, long);
            }
            if self.ends_here() {
                return;
            }
        }
    }

    fn read(
        &mut self,
        socket: &mut Socket<'_>,
        mut shelf: Option<&mut Shelf>,
        peer: &Stream,
        now: Nanos,
    ) {
        if let Some(byte) = socket.receive_urgent() {
            assert_eq!(byte, URGENT);
            self.urgent_read += 1;
            assert!(self.urgent_read <= peer.urgent.len() as u64, "more urgent bytes than sent");
        }
        while self.readable && self.read_at <= now && !self.reading.eof {
            if socket.readable_len() == 0 && !socket.is_at_end() {
                assert_eq!(socket.receive(&mut self.buffer), Err(ReceiveError::Empty));
                self.readable = false;
                return;
            }
            let len = self.dice.between(1, self.side.read_max) as usize;
            match self.read_once(socket, shelf.as_deref_mut(), len) {
                Ok(0) => {
                    self.reading.finish(peer);
                    return;
                }
                Ok(len) => {
                    let inline = self.side.config.urgent_inline;
                    self.reading.check(&self.buffer[..len], peer, inline);
                }
                Err(ReceiveError::Empty) => self.readable = false,
                Err(ReceiveError::Ended(reason)) => {
                    assert_eq!(Some(reason), socket.end());
                    return;
                }
            }
            let (one_in, long) = self.side.read_rest;
            if one_in > 0 && self.dice.once_in(one_in) {
                self.read_at = now + self.dice.between(1, long);
            }
            if let Some((place, long)) = self.side.pause
                && self.reading.place >= place
                && !self.paused
            {
                self.paused = true;
                self.read_at = now + long;
            }
            if self.ends_here() {
                return;
            }
        }
    }

    /// With a copy or without.
    fn read_once(
        &mut self,
        socket: &mut Socket<'_>,
        shelf: Option<&mut Shelf>,
        len: usize,
    ) -> Result<usize, ReceiveError> {
        if let (Some(shelf), there @ 1..) = (shelf, socket.readable_len()) {
            // As many numbers are drawn as where the bytes lie in the stack.
            self.dice.once_in(2);
            let taken = len.min(there);
            shelf.read(&mut self.buffer[..taken]);
            socket.consume(taken);
            return Ok(taken);
        }
        let there: usize = socket.readable().iter().map(|piece| piece.len()).sum();
        if there == 0 || self.dice.once_in(2) {
            return socket.receive(&mut self.buffer[..len]);
        }
        let mut taken = 0;
        for piece in socket.readable() {
            let part = &piece[..piece.len().min(len - taken)];
            self.buffer[taken..taken + part.len()].copy_from_slice(part);
            taken += part.len();
        }
        socket.consume(taken);
        Ok(taken)
    }

    /// Whether it is the moment for an abrupt end.
    fn ends_here(&self) -> bool {
        match self.side.ending {
            Ending::CloseAt(bytes) | Ending::AbortAt(bytes) => {
                self.stream.sent + self.reading.place >= bytes
            }
            _ => false,
        }
    }

    fn finish(&mut self, socket: &mut Socket<'_>) {
        if self.end.is_some_and(|reason| reason != Reason::Closed) {
            return self.release(socket);
        }
        let all_written = self.stream.sent == self.stream.total;
        let done = all_written && self.reading.eof;
        match self.side.ending {
            Ending::Hasty if all_written => {
                self.abrupt = !self.reading.eof;
                self.release(socket);
            }
            Ending::CloseAt(_) | Ending::AbortAt(_) if self.ends_here() => {
                self.abrupt = true;
                if matches!(self.side.ending, Ending::AbortAt(_)) {
                    self.give_up(socket);
                } else {
                    self.release(socket);
                }
            }
            Ending::AfterPeer if !self.reading.eof => {}
            _ if all_written && !self.was_shut_down => {
                self.was_shut_down = true;
                socket.shutdown();
            }
            _ => {}
        }
        if self.phase == Phase::Open && done && self.was_shut_down {
            self.release(socket);
        }
    }

    fn release(&mut self, socket: &mut Socket<'_>) {
        self.phase = Phase::Over;
        socket.close();
    }
}
