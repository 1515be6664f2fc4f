//! A connection goes from the kernel to the engine and back while both sides talk: no byte is lost, none
//! comes twice, and the peer, a kernel of its own, notices nothing.
//!
//! Without the privilege to make network namespaces and TUNs, each test says so and returns.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

#[allow(dead_code)] // the simulation has more use for it
#[path = "../sim/frame.rs"]
mod frame;
mod glue;
mod lab;

use std::time::{Duration, Instant};

use degen::Random;
use lab::Lab;

/// How long nothing may happen. Restored kernel connections wait for seconds if they wait for a time-out.
const PATIENCE: Duration = Duration::from_secs(60);

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

/// A stream that is written, and how far it is written and read.
struct Stream {
    bytes: Vec<u8>,
    written: usize,
    read: usize,
}

impl Stream {
    fn new(len: usize, seed: u64) -> Self {
        Stream { bytes: bytes(len, seed), written: 0, read: 0 }
    }

    fn next(&self, most: usize) -> &[u8] {
        let rest = &self.bytes[self.written..];
        &rest[..rest.len().min(most)]
    }

    fn check(&mut self, got: &[u8]) {
        let end = self.read + got.len();
        assert!(end <= self.written, "{end} bytes came of {}", self.written);
        assert!(self.bytes[self.read..end] == *got, "other bytes at {}", self.read);
        self.read = end;
    }

    fn is_done(&self) -> bool {
        self.read == self.bytes.len()
    }
}

/// Talks both ways with handovers at random instants until both streams are through.
fn talk(lab: &mut Lab, out: &mut Stream, back: &mut Stream, seed: u64, every: u64) {
    let mut random = Random::new(seed);
    let mut up_to = |most: u64| {
        random.next();
        random.below(1, most + 1) as usize
    };
    let mut last = Instant::now();
    while !(out.is_done() && back.is_done()) {
        let before = (out.written, out.read, back.written, back.read);
        let taken = lab.write(out.next(up_to(60_000)));
        out.written += taken;
        let taken = lab::write(&lab.peer, back.next(up_to(60_000)));
        back.written += taken;
        let moved = lab.pump(up_to(12));
        if up_to(4) > 1 {
            back.check(&lab.read(up_to(100_000)).unwrap());
        }
        if up_to(4) > 1 {
            out.check(&lab::read(&lab.peer, up_to(100_000)).unwrap());
        }
        if moved && up_to(every) == 1 {
            lab.hand_over();
            assert!(lab.is_peer_content());
        }
        if (out.written, out.read, back.written, back.read) != before || moved {
            last = Instant::now();
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(last.elapsed() < PATIENCE, "it stands still at {:?} of {:?}", before, lab.ends());
    }
}

#[test]
fn both_sides_talk_while_it_is_handed_over_and_back() {
    for (seed, v6, accepted) in
        [(1, false, false), (2, false, true), (3, true, false), (4, true, true)]
    {
        let Some(mut lab) = Lab::new(v6, accepted) else { return };
        let (mut out, mut back) = (Stream::new(1_500_000, seed), Stream::new(1_500_000, 10 + seed));
        talk(&mut lab, &mut out, &mut back, seed, 12);
        assert!(lab.moves > 20, "{} handovers", lab.moves);
    }
}
