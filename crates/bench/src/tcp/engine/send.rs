//! Sending: the application's writing, super-packets out, their acknowledgments in.

use std::time::Duration;

use ::tcp::{FourTuple, Id, Nanos, Segment, Stack};
use degen::Random;
use wire::Tcp;

use super::clock::{Clock, timed, warming};
use super::peers::{AGGREGATE, Header, MSS, Peers, Sent, failed};
use crate::Error;
use crate::side_by_side::Lap;

/// Writes at once, each of a super-packet's length.
const BATCH: usize = 4;
/// Batches that are timed together.
const BATCHES: usize = 16;
/// From a segment to its acknowledgment.
const ROUND_TRIP: Nanos = 100_000;
/// Writes of each connection before any is timed: its window lets a super-packet through after that.
const FIRST: usize = 3;

/// A stack that sends.
pub(super) struct Sender {
    peers: Peers,
    random: Random,
    data: Vec<u8>,
    /// The peers acknowledge a super-packet at once, as those do that have LRO or GRO.
    at_once: bool,
    writers: Vec<Id>,
    sent: Vec<Sent>,
    answers: Vec<(FourTuple, Header)>,
}

impl Sender {
    pub(super) fn new(connections: u32, lro: bool) -> Result<Sender, Error> {
        let mut sender = Sender {
            peers: Peers::connect(connections)?,
            random: Random::new(1),
            data: vec![0x55; AGGREGATE * MSS],
            at_once: lro,
            writers: Vec::new(),
            sent: Vec::new(),
            answers: Vec::new(),
        };
        for number in 0..connections {
            for _ in 0..FIRST {
                sender.run_batch(&[number; BATCH], warming)?;
            }
        }
        Ok(sender)
    }

    /// Some batches, whose order of connections is unpredictable.
    pub(super) fn lap(&mut self) -> Result<Lap, Error> {
        let connections = self.peers.peers.len() as u64;
        let mut all = Lap { time: Duration::ZERO, packets: 0, large: 0 };
        for _ in 0..BATCHES {
            let mut numbers = [0; BATCH];
            numbers.fill_with(|| self.random.next_below(connections) as u32);
            let lap = self.run_batch(&numbers, timed)?;
            all.time += lap.time;
            all.packets += lap.packets;
            all.large += lap.large;
        }
        Ok(all)
    }

    /// Each of these writes, and everything of it is sent and acknowledged.
    fn run_batch(&mut self, numbers: &[u32], clock: Clock<()>) -> Result<Lap, Error> {
        self.writers.clear();
        self.writers.extend(numbers.iter().map(|number| self.peers.ids[*number as usize]));
        let mut lap = Lap { time: Duration::ZERO, packets: 0, large: 0 };
        let mut bytes = 0;
        loop {
            self.sent.clear();
            let (stack, now) = (&mut self.peers.stack, self.peers.now);
            let (writers, data, answers) = (&self.writers, &self.data, &self.answers);
            let mut work = || send(stack, writers, data, answers, now, &mut self.sent);
            lap.time += clock(&mut work).0;
            self.writers.clear();
            if self.sent.is_empty() {
                break;
            }
            self.peers.now += ROUND_TRIP;
            self.answers.clear();
            for sent in &self.sent {
                bytes += sent.payload;
                lap.packets += sent.payload.div_ceil(MSS) as u64;
                lap.large += 1;
                self.peers.acknowledge(sent, self.at_once, &mut self.answers);
            }
        }
        self.answers.clear();
        if bytes != numbers.len() * self.data.len() {
            return Err(failed("the engine did not send just what was written"));
        }
        Ok(lap)
    }
}

/// What is measured: acknowledgments, writes, and what is sent for both.
fn send(
    stack: &mut Stack,
    writers: &[Id],
    data: &[u8],
    answers: &[(FourTuple, Header)],
    now: Nanos,
    sent: &mut Vec<Sent>,
) {
    for (path, header) in answers {
        let Ok(tcp) = Tcp::new(&header[..]) else { continue };
        stack.receive(path, &Segment::new(&tcp, &[]), now);
    }
    for &id in writers {
        if let Some(mut socket) = stack.socket(id, now) {
            // What does not fit is found missing among what was sent.
            let _ = socket.send(data);
        }
    }
    while stack.next_event().is_some() {}
    if stack.next_deadline().is_some_and(|deadline| deadline <= now) {
        stack.on_time(now);
    }
    while let Some(transmit) = stack.poll_transmit(now) {
        sent.push(Sent::new(&transmit));
    }
}
