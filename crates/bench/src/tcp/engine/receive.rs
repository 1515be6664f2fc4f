//! Receiving: data segments in, the application's reading, acknowledgments out.

use std::time::Duration;

use ::tcp::{FourTuple, Nanos, Segment, Stack};
use degen::Random;
use wire::Tcp;

use super::clock::{Clock, timed, warming};
use super::peers::{AGGREGATE, Header, MSS, Peers, Sent, failed, path};
use crate::Error;
use crate::side_by_side::Lap;

/// Segments in a batch of a NIC.
const BATCH: usize = 32;
/// Aggregates in a batch of a NIC.
const BATCH_OF_AGGREGATES: usize = 4;
/// Batches that are timed together.
const BATCHES: usize = 64;
/// Time from one segment to the next: 40 Gb/s.
const BETWEEN: Nanos = 300;
/// Bytes from one frame's payload to the next one's, as frames lie in a port's memory.
const STRIDE: usize = 2048;
/// Segments of each connection before any is timed: it acknowledges every one at first.
const FIRST: u32 = 20;

/// A stack that receives.
pub(super) struct Receiver {
    peers: Peers,
    random: Random,
    frames: Vec<u8>,
    /// Segments in an aggregate, or 1.
    aggregate: usize,
    batch: Vec<(FourTuple, Header)>,
    sent: Vec<Sent>,
}

impl Receiver {
    pub(super) fn new(connections: u32, lro: bool) -> Result<Receiver, Error> {
        let frames = BATCH_OF_AGGREGATES * AGGREGATE;
        let mut receiver = Receiver {
            peers: Peers::connect(connections)?,
            random: Random::new(1),
            frames: vec![0x55; frames * STRIDE],
            aggregate: if lro { AGGREGATE } else { 1 },
            batch: Vec::new(),
            sent: Vec::new(),
        };
        for _ in 0..FIRST.div_ceil(receiver.aggregate as u32) {
            for number in 0..connections {
                receiver.fill(&[number]);
                receiver.run_batch(warming)?;
            }
        }
        Ok(receiver)
    }

    /// Some batches, whose order of connections is unpredictable.
    pub(super) fn lap(&mut self) -> Result<Lap, Error> {
        let connections = self.peers.peers.len() as u64;
        let size = if self.aggregate == 1 { BATCH } else { BATCH_OF_AGGREGATES };
        let mut lap = Lap { time: Duration::ZERO, packets: 0, large: 0 };
        for _ in 0..BATCHES {
            let mut numbers = [0; BATCH];
            numbers.fill_with(|| self.random.next_below(connections) as u32);
            self.fill(&numbers[..size]);
            lap.time += self.run_batch(timed)?;
            lap.packets += (size * self.aggregate) as u64;
            lap.large += self.sent.len() as u64;
        }
        Ok(lap)
    }

    /// The next segment of each of these connections.
    fn fill(&mut self, numbers: &[u32]) {
        self.batch.clear();
        let payload = self.aggregate * MSS;
        for &number in numbers {
            self.batch.push((path(number), self.peers.segment(number, payload)));
        }
        let segments = (numbers.len() * self.aggregate) as u64;
        self.peers.now += segments * BETWEEN;
    }

    fn run_batch(&mut self, clock: Clock<usize>) -> Result<Duration, Error> {
        let pieces: Vec<&[u8]> = self.frames.chunks(STRIDE).map(|frame| &frame[..MSS]).collect();
        self.sent.clear();
        let stack = &mut self.peers.stack;
        let (batch, sent) = (&self.batch, &mut self.sent);
        let mut work = || receive(stack, batch, &pieces, self.aggregate, self.peers.now, sent);
        let (time, taken) = clock(&mut work);
        if taken != self.batch.len() * self.aggregate * MSS {
            return Err(failed("the engine did not take all that came in order"));
        }
        Ok(time)
    }
}

/// What is measured. Gives the bytes that the application got.
fn receive(
    stack: &mut Stack,
    batch: &[(FourTuple, Header)],
    pieces: &[&[u8]],
    aggregate: usize,
    now: Nanos,
    sent: &mut Vec<Sent>,
) -> usize {
    stack.announce(batch.iter().map(|(path, _)| *path));
    for ((path, header), payload) in batch.iter().zip(pieces.chunks(aggregate)) {
        let Ok(tcp) = Tcp::new(&header[..]) else { continue };
        let mut segment = Segment::new(&tcp, payload);
        if aggregate > 1 {
            segment.gso_size = MSS as u16;
        }
        stack.receive(path, &segment, now);
    }
    let mut taken = 0;
    while let Some((id, _)) = stack.next_event() {
        let Some(mut socket) = stack.socket(id, now) else { continue };
        let bytes = socket.readable_len();
        socket.consume(bytes);
        taken += bytes;
    }
    if stack.next_deadline().is_some_and(|deadline| deadline <= now) {
        stack.on_time(now);
    }
    while let Some(transmit) = stack.poll_transmit(now) {
        sent.push(Sent::new(&transmit));
    }
    taken
}
