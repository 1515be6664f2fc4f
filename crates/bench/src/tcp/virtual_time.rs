//! The engine sends to itself through degen, in virtual time: what comes of it has nothing to do with
//! this machine, and is the same each time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::degen::{Degen, Heap};
use ::tcp::{Config, Events, FourTuple, Nanos, Segment, Stack, StackConfig, Transmit};
use wire::{Flags, Tcp};

use crate::Error;

/// What is between the two.
pub(super) struct Way {
    /// What is done to data.
    pub(super) forward: ::degen::Config,
    /// What is done to acknowledgments.
    pub(super) reverse: ::degen::Config,
    /// Where chance begins.
    pub(super) seed: u64,
}

/// Whom the receiver connects to.
const SENDER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);
const RECEIVER: [u8; 4] = [10, 0, 0, 1];
const FIRST_PORT: u16 = 40_000;
/// Bytes in front of the TCP header, which count where there is a rate: those of Ethernet and IPv4.
const IN_FRONT: usize = 34;
/// Bytes that the sender's application writes at once.
const CHUNK: usize = 64 << 10;

/// Bits of payload a second that so many connections get through together.
pub(super) fn goodput(
    way: &Way,
    connections: u32,
    warm_up: Duration,
    duration: Duration,
) -> Result<f64, Error> {
    let mut run = Run::new(way, connections)?;
    run.until(warm_up.as_nanos() as Nanos)?;
    let (before, began) = (run.received, run.now);
    run.until(began + duration.as_nanos() as Nanos)?;
    Ok((run.received - before) as f64 * 8.0 / ((run.now - began) as f64 / 1e9))
}

struct Run {
    sender: Stack,
    receiver: Stack,
    /// To the receiver, and to the sender.
    ways: [Degen<Vec<u8>>; 2],
    now: Nanos,
    /// Bytes that the receiver's application has got.
    received: u64,
    data: Vec<u8>,
}

impl Run {
    fn new(way: &Way, connections: u32) -> Result<Run, Error> {
        let config = |n| StackConfig { secret: [n; 16], half_open: 1024, connections: 1024 };
        let (mut sender, mut receiver) = (Stack::new(config(1)), Stack::new(config(2)));
        let settings = Arc::new(Config::default());
        sender.listen(None, SENDER.1, Arc::clone(&settings)).map_err(failed)?;
        for n in 0..connections {
            let local = SocketAddr::from((RECEIVER, FIRST_PORT + n as u16));
            let path = FourTuple { local, remote: SENDER.into() };
            receiver.connect(path, Arc::clone(&settings), 0).map_err(failed)?;
        }
        let ways =
            [Degen::new(way.forward.clone(), way.seed), Degen::new(way.reverse.clone(), !way.seed)];
        let data = vec![0x55; CHUNK];
        Ok(Run { sender, receiver, ways, now: 0, received: 0, data })
    }

    fn until(&mut self, end: Nanos) -> Result<(), Error> {
        while self.now < end {
            self.step();
            let deadlines = [
                self.sender.next_deadline(),
                self.receiver.next_deadline(),
                self.ways[0].next_deadline(),
                self.ways[1].next_deadline(),
            ];
            let Some(next) = deadlines.into_iter().flatten().min() else {
                return Err(failed("neither side has anything to do any more"));
            };
            self.now = next.clamp(self.now + 1, end.max(self.now + 1));
        }
        Ok(())
    }

    /// All that is to be done now.
    fn step(&mut self) {
        let now = self.now;
        let [forward, reverse] = &mut self.ways;
        while let Some(departure) = forward.depart(now, &mut Heap) {
            take(&mut self.receiver, &departure.packet, (RECEIVER, SENDER.0), now);
        }
        while let Some(departure) = reverse.depart(now, &mut Heap) {
            take(&mut self.sender, &departure.packet, (SENDER.0, RECEIVER), now);
        }
        for stack in [&mut self.sender, &mut self.receiver] {
            if stack.next_deadline().is_some_and(|deadline| deadline <= now) {
                stack.on_time(now);
            }
        }
        while let Some((id, _)) = self.receiver.next_event() {
            let Some(mut socket) = self.receiver.socket(id, now) else { continue };
            let bytes = socket.readable_len();
            socket.consume(bytes);
            self.received += bytes as u64;
        }
        while let Some((id, events)) = self.sender.next_event() {
            if events.any(Events::ACCEPTED.with(Events::WRITABLE))
                && let Some(mut socket) = self.sender.socket(id, now)
            {
                while socket.send(&self.data).is_ok_and(|taken| taken > 0) {}
            }
        }
        while let Some(transmit) = self.sender.poll_transmit(now) {
            cut(&transmit, |packet| forward.arrive(packet, now, &mut Heap));
        }
        while let Some(transmit) = self.receiver.poll_transmit(now) {
            cut(&transmit, |packet| reverse.arrive(packet, now, &mut Heap));
        }
    }
}

/// The packets that a super-packet becomes (RFC 9293 knows no other): only the last one pushes and ends.
fn cut(transmit: &Transmit<'_>, mut give: impl FnMut(Vec<u8>)) {
    let payload = [transmit.payload[0], transmit.payload[1]].concat();
    let size = if transmit.gso_size == 0 { payload.len() } else { transmit.gso_size.into() };
    let mut at = 0;
    loop {
        let end = payload.len().min(at + size);
        let mut segment = *transmit;
        segment.seq = transmit.seq + at as u32;
        if end < payload.len() {
            segment.flags = transmit.flags.without(Flags::PSH.with(Flags::FIN));
        }
        let mut packet = vec![0; IN_FRONT + segment.header_len()];
        segment.write_header(&mut packet[IN_FRONT..]);
        packet.extend_from_slice(&payload[at..end]);
        give(packet);
        at = end;
        if at >= payload.len() {
            return;
        }
    }
}

fn take(stack: &mut Stack, packet: &[u8], (local, remote): ([u8; 4], [u8; 4]), now: Nanos) {
    let Some(Ok(header)) = packet.get(IN_FRONT..).map(Tcp::new) else { return };
    let payload = &packet[IN_FRONT + header.header_len()..];
    let path = FourTuple {
        local: SocketAddr::from((local, header.destination())),
        remote: SocketAddr::from((remote, header.source())),
    };
    stack.receive(&path, &Segment::new(&header, &[payload]), now);
}

fn failed(why: impl ToString) -> Error {
    Error::Failed { system: "wharf", why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delay of 10 ms each way and a rate: what gets through is the rate, less headers, and the same
    /// again with the same seed.
    #[test]
    fn a_rate_is_used_up() {
        let reverse = ::degen::Config { delay: 10_000_000, ..::degen::Config::default() };
        let forward = ::degen::Config { rate: 10_000_000, queue_bytes: 25_000, ..reverse.clone() };
        let way = Way { forward, reverse, seed: 1 };
        let second = Duration::from_secs(1);
        let outcome = goodput(&way, 2, 4 * second, 4 * second);
        let outcome = outcome.unwrap_or_default();
        assert!(outcome > 8e6 && outcome < 10e6, "{outcome} bit/s of 10 Mbit/s");
        assert_eq!(outcome, goodput(&way, 2, 4 * second, 4 * second).unwrap_or_default());
    }
}
