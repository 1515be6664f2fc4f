//! One idealised TCP sender: it has always something to send, sends all that the receiver's window
//! allows, knows no congestion, and repeats only what certainly did not arrive.

use degen::Random;
use wire::{Flags, Seq, Tcp, TcpOption};

use super::displaced::Displaced;
use super::frame::{MSS, Segment, Template};

/// Nanoseconds, as everywhere in wharf.
pub(super) type Nanos = u64;

/// A connection that has something to send and hears nothing for so long sends it again.
const TIMEOUT: Nanos = 100_000_000;
/// Duplicate acknowledgments that mean a loss (RFC 5681 section 3.2).
const REPEATS: u32 = 3;
/// The application's writes: the segment in which one ends has PSH set, as by Linux.
const WRITE: u64 = 64 << 10;
/// Largest window scale (RFC 7323 section 2.3).
const SCALE_MAX: u8 = 14;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Closed,
    SynSent,
    Established,
}

/// A segment to put on the wire: where its payload begins in the stream, and its header's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) offset: u64,
    pub(super) segment: Segment,
}

/// See the module's documentation. Places in the stream are 64-bit offsets from its first byte;
/// the FIN counts as one byte more.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    template: Template,
    state: State,
    /// Sequence number of the SYN.
    first: Seq,
    ack: Seq,
    scale: u8,
    /// The last timestamps: the receiver's, and the one that was sent.
    echo: Seq,
    said: (Seq, Seq),
    /// The low half is the next identification. (As 16 bits, written and read again from segment
    /// to segment, it is what compilers load with its neighbours, which waits for the store.)
    id: u32,
    /// Acknowledged up to here.
    una: u64,
    /// Sent up to here.
    nxt: u64,
    /// The receiver's window.
    edge: u64,
    /// Where the stream ends, and a FIN is sent.
    end: u64,
    /// Duplicate acknowledgments in a row.
    repeats: u32,
    repeated: u64,
    /// Up to here duplicates mean nothing new: it was sent before the last repetition.
    recover: u64,
    /// When something was last heard of, or first sent after a silence.
    progress: Nanos,
    path: Displaced,
}

impl Connection {
    /// A connection from one port to another that carries `end` bytes.
    pub(super) fn new(source: u16, destination: u16, end: u64, path: Displaced) -> Self {
        let first = Seq(Random::new(source.into()).next() as u32);
        Connection {
            template: Template::new(source, destination),
            state: State::Closed,
            first,
            ack: Seq(0),
            scale: 0,
            echo: Seq(0),
            said: (Seq(0), Seq(0)),
            id: first.0,
            una: 0,
            nxt: 0,
            edge: 0,
            end,
            repeats: 0,
            repeated: 0,
            recover: 0,
            progress: 0,
            path,
        }
    }

    /// Opens the connection; the SYN.
    pub(super) fn open(&mut self, now: Nanos) -> Vec<u8> {
        self.state = State::SynSent;
        self.progress = now;
        self.template.syn(self.first, clock(now))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub(super) fn is_opening(&self) -> bool {
        self.state == State::SynSent
    }

    /// Takes what the receiver sent; returns whether it established the connection.
    pub(super) fn receive(&mut self, tcp: Tcp<&[u8]>, now: Nanos) -> bool {
        let flags = tcp.flags();
        let syn = flags.any(Flags::SYN);
        let mut scale = 0;
        for option in tcp.options().flatten() {
            match option {
                TcpOption::Timestamps(timestamps) => self.echo = timestamps.value,
                TcpOption::Other { kind: 3, data: [shift] } => scale = (*shift).min(SCALE_MAX),
                _ => {}
            }
        }
        match self.state {
            State::SynSent if syn && flags.any(Flags::ACK) => {
                self.state = State::Established;
                self.ack = tcp.seq() + 1;
                self.scale = scale;
                // Not scaled yet (RFC 7323 section 2.2).
                self.edge = tcp.window().into();
                self.progress = now;
                return true;
            }
            State::Established if !syn => self.acknowledged(tcp.ack(), tcp.window(), now),
            _ => {}
        }
        false
    }

    fn acknowledged(&mut self, ack: Seq, window: u16, now: Nanos) {
        let Ok(ahead) = u64::try_from(ack.distance(self.seq(self.una))) else { return };
        let edge = self.una + ahead + (u64::from(window) << self.scale);
        let is_new = ahead > 0 || edge > self.edge;
        self.edge = self.edge.max(edge);
        if is_new {
            self.una += ahead;
            self.nxt = self.nxt.max(self.una);
            self.repeats = 0;
            self.progress = now;
        } else if self.nxt > self.una && !self.path.is_possible() {
            self.repeats += 1;
            if self.repeats == REPEATS && self.una >= self.recover {
                self.go_back();
            }
        }
    }

    /// All from the first byte that is not acknowledged is sent again.
    fn go_back(&mut self) {
        self.repeated += 1;
        self.recover = self.recover.max(self.nxt);
        self.nxt = self.una;
        self.path.clear();
    }

    /// Times that the connection went back to send again what was lost.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Whether nothing has been heard for so long that something must be lost.
    pub(super) fn is_stuck(&self, now: Nanos) -> bool {
        let waits = match self.state {
            State::Closed => false,
            State::SynSent => true,
            State::Established => self.una <= self.end,
        };
        waits && now.saturating_sub(self.progress) > TIMEOUT
    }

    /// Tries again what was lost. `Some` is a frame to send: the SYN once more, or a question for
    /// the window, which has the last byte's number and so must be answered (RFC 9293 section
    /// 3.8.4).
    pub(super) fn try_again(&mut self, now: Nanos) -> Option<Vec<u8>> {
        self.progress = now;
        match self.state {
            State::Closed => None,
            State::SynSent => Some(self.template.syn(self.first, clock(now))),
            State::Established if self.nxt > self.una => {
                self.go_back();
                None
            }
            State::Established => Some(self.bare(self.seq(self.una) + u32::MAX, now)),
        }
    }

    /// A segment without payload and with the number `seq`.
    pub(super) fn bare(&mut self, seq: Seq, now: Nanos) -> Vec<u8> {
        self.freshen(now);
        let segment = Segment { id: self.take_id(), seq, flags: Flags::ACK, len: 0 };
        let mut frame = vec![0; super::frame::HEADER];
        self.template.write(&mut frame, segment, wire::Sum::default());
        frame
    }

    /// The segment that acknowledges the receiver's SYN.
    pub(super) fn acknowledge(&mut self, now: Nanos) -> Vec<u8> {
        self.bare(self.seq(self.nxt), now)
    }

    /// Brings acknowledgment number and timestamps up to date.
    pub(super) fn freshen(&mut self, now: Nanos) {
        let timestamps = (clock(now), self.echo);
        if timestamps != self.said {
            self.said = timestamps;
            self.template.acknowledge(self.ack, timestamps.0, timestamps.1);
        }
    }

    /// The header that `next`'s segments are written with.
    pub(super) fn template(&self) -> &Template {
        &self.template
    }

    /// The next segment to put on the wire, if the window allows one.
    #[inline]
    pub(super) fn next(&mut self, now: Nanos) -> Option<Next> {
        if self.state != State::Established {
            return None;
        }
        let offset = self.path.due().or_else(|| self.fresh(now)).or_else(|| self.path.next())?;
        Some(self.segment(offset))
    }

    /// Whether segments are in flight that others have passed. They are the wire's delay, not the
    /// connection's: they come before another connection's burst does.
    pub(super) fn has_late(&self) -> bool {
        self.path.has_late()
    }

    /// One of those.
    pub(super) fn next_late(&mut self) -> Option<Next> {
        let offset = self.path.next()?;
        Some(self.segment(offset))
    }

    fn segment(&mut self, offset: u64) -> Next {
        self.path.arrives();
        let len = (self.end.saturating_sub(offset)).min(MSS as u64);
        let flags = if offset == self.end {
            Flags::ACK.with(Flags::FIN)
        } else if offset / WRITE != (offset + len) / WRITE {
            Flags::ACK.with(Flags::PSH)
        } else {
            Flags::ACK
        };
        let segment =
            Segment { id: self.take_id(), seq: self.seq(offset), flags, len: len as usize };
        Next { offset, segment }
    }

    /// A segment that was not sent yet, or is sent again, and does not go the long way round.
    fn fresh(&mut self, now: Nanos) -> Option<u64> {
        loop {
            let offset = self.nxt;
            let after = match self.end.checked_sub(offset)? {
                // The FIN comes after all bytes, also those that come late.
                0 => return self.path.next().or_else(|| self.finish()),
                left => offset + left.min(MSS as u64),
            };
            if after > self.edge {
                return None;
            }
            if self.nxt == self.una {
                self.progress = now;
            }
            self.nxt = after;
            if !self.path.takes(offset) {
                return Some(offset);
            }
        }
    }

    fn finish(&mut self) -> Option<u64> {
        self.nxt = self.end + 1;
        Some(self.end)
    }

    fn seq(&self, offset: u64) -> Seq {
        self.first + 1 + offset as u32
    }

    fn take_id(&mut self) -> u16 {
        self.id = self.id.wrapping_add(1);
        self.id as u16
    }
}

/// The senders' timestamp clock: milliseconds, as Linux's.
fn clock(now: Nanos) -> Seq {
    Seq((now / 1_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use degen::Random;
    use std::collections::BTreeMap;

    /// A TCP header with one option.
    fn header(seq: Seq, ack: Seq, flags: Flags, window: u16, option: [u8; 4]) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[4..8].copy_from_slice(&seq.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&ack.0.to_be_bytes());
        bytes[12] = 6 << 4;
        bytes[13] = flags.0;
        bytes[14..16].copy_from_slice(&window.to_be_bytes());
        bytes[20..].copy_from_slice(&option);
        bytes
    }

    /// Whatever a path loses, the receiver ends up with all segments and a FIN behind them, and the
    /// sender never goes beyond its window.
    #[test]
    fn what_is_lost_is_sent_again_until_all_is_acknowledged() {
        const END: u64 = 200_000;
        const WINDOW: u64 = 100 << 8;
        for (loss, reordered) in [(0, 0), (5, 0), (40, 0), (0, 30), (5, 30)] {
            let mut random = Random::new(loss);
            let mut now = 1;
            let mut sender = Connection::new(10_000, 80, END, Displaced::new(reordered, 1));
            sender.open(now);
            let (mine, theirs) = (sender.first, Seq(0xffff_fff0));
            let syn = Flags::SYN.with(Flags::ACK);
            let syn = header(theirs, mine + 1, syn, 100 << 8, [3, 3, 8, 0]);
            assert!(sender.receive(Tcp::new(&syn[..]).unwrap(), now));
            let mut arrived = BTreeMap::new();
            let mut have = 0;
            for _ in 0..100_000 {
                if have > END {
                    break;
                }
                now += 1_000_000;
                if sender.is_stuck(now) {
                    sender.try_again(now);
                }
                let Some(next) = sender.next(now) else { continue };
                assert!(next.offset + next.segment.len as u64 <= have + WINDOW);
                if random.next_below(100) < loss {
                    continue;
                }
                let is_fin = next.segment.flags.any(Flags::FIN);
                assert_eq!(is_fin, next.offset == END);
                arrived.insert(next.offset, next.segment.len as u64 + u64::from(is_fin));
                while let Some((&at, &len)) = arrived.range(..=have).next_back()
                    && at + len > have
                {
                    have = at + len;
                }
                let ack = header(theirs + 1, mine + 1 + have as u32, Flags::ACK, 100, [0; 4]);
                sender.receive(Tcp::new(&ack[..]).unwrap(), now);
            }
            assert_eq!(have, END + 1, "loss {loss}, reordered {reordered}");
            assert_eq!(sender.repeated() > 0, loss > 0);
            assert!(!sender.is_stuck(now + 10 * TIMEOUT));
        }
    }
}
