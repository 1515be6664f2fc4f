//! A connection goes from the kernel to the engine and back while both sides talk: no byte is lost, none
//! comes twice, and the peer, a kernel of its own, notices nothing.
//!
//! Without the privilege to make network namespaces and TUNs, each test says so and returns.

#[allow(dead_code)] // the simulation has more use for it
#[path = "../../../tcp/tests/sim/frame.rs"]
mod frame;
mod lab;
mod small_windows;

use std::net::Shutdown;
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
        1 + random.below(0, most) as usize
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
        if up_to(8) > 1 {
            out.check(&lab::read(&lab.peer, 1_000_000).unwrap());
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

/// Moves packets until `done`.
fn wait(lab: &mut Lab, mut done: impl FnMut(&mut Lab) -> bool) {
    let since = Instant::now();
    while !done(lab) {
        if !lab.pump(100) {
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(since.elapsed() < PATIENCE, "it does not come to be");
    }
}

#[test]
fn both_sides_talk_while_it_is_handed_over_and_back() {
    for (seed, v6, accepted) in [(1, false, false), (2, true, true)] {
        let Some(mut lab) = Lab::new(v6, accepted) else { return };
        let (mut out, mut back) = (Stream::new(800_000, seed), Stream::new(800_000, 10 + seed));
        talk(&mut lab, &mut out, &mut back, seed, 6);
        assert!(lab.moves > 3, "{} handovers", lab.moves);
    }
}

/// The peer has closed when the connection comes back: the kernel hears of that again.
#[test]
fn a_peer_that_has_closed_has_closed_after_the_handover() {
    for moves in [1, 2, 3] {
        let Some(mut lab) = Lab::new(false, true) else { return };
        lab.hand_over();
        assert_eq!(lab::write(&lab.peer, b"last words"), 10);
        lab.peer.shutdown(Shutdown::Write).unwrap();
        wait(&mut lab, |lab| lab.peer_has_closed());
        for _ in 0..moves {
            lab.hand_over();
        }
        let mut heard = Vec::new();
        wait(&mut lab, |lab| match lab.read(100) {
            Some(some) => {
                heard.extend(some);
                false
            }
            None => true,
        });
        assert_eq!(heard, b"last words");
        assert_eq!(lab.write(b"and answered"), 12);
        lab.shut_down();
        let mut heard = Vec::new();
        wait(&mut lab, |lab| match lab::read(&lab.peer, 100) {
            Some(some) => {
                heard.extend(some);
                false
            }
            None => true,
        });
        assert_eq!(heard, b"and answered");
        assert!(lab.is_peer_content());
    }
}

/// We have closed our half, and the FIN is acknowledged or is not: the other half goes on.
#[test]
fn our_closed_half_stays_closed_over_the_handover() {
    for (in_engine, acknowledged) in [(false, false), (false, true), (true, false), (true, true)] {
        let Some(mut lab) = Lab::new(true, false) else { return };
        if in_engine {
            lab.hand_over();
        }
        assert_eq!(lab.write(b"last words"), 10);
        lab.shut_down();
        if acknowledged {
            wait(&mut lab, |lab| lab.is_acknowledged());
        }
        lab.hand_over();
        let mut heard = Vec::new();
        wait(&mut lab, |lab| match lab::read(&lab.peer, 100) {
            Some(some) => {
                heard.extend(some);
                false
            }
            None => true,
        });
        assert_eq!(heard, b"last words");
        assert_eq!(lab::write(&lab.peer, b"and answered"), 12);
        let mut heard = Vec::new();
        wait(&mut lab, |lab| {
            heard.extend(lab.read(100).unwrap());
            heard.len() >= 12
        });
        lab.hand_over();
        lab.peer.shutdown(Shutdown::Write).unwrap();
        wait(&mut lab, |lab| match lab.read(100) {
            Some(some) => {
                heard.extend(some);
                false
            }
            None => true,
        });
        assert_eq!(heard, b"and answered");
        assert!(lab.is_peer_content());
    }
}

/// What cannot come along is named; the peer's bytes come again.
#[test]
fn what_the_kernel_cannot_be_told_is_named() {
    let Some(mut lab) = Lab::new(false, false) else { return };
    lab.hand_over();
    // Else Nagle's algorithm holds the second back until a time-out.
    lab.peer.set_nodelay(true).unwrap();
    let mut written = Vec::new();
    // Where the peer's kernel sends the first again before the second is written, there is no hole.
    while !lab.has_out_of_order() {
        lab.lose_one();
        for byte in [1, 2] {
            assert_eq!(lab::write(&lab.peer, &[byte; 1000]), 1000);
            written.extend([byte; 1000]);
        }
        wait(&mut lab, |lab| lab.has_out_of_order() || lab.readable() == written.len());
    }
    lab.hand_over();
    assert!(lab.lost.out_of_order > 0, "{:?}", lab.lost);
    assert!(lab.lost.round_trip && !lab.lost.urgent, "{:?}", lab.lost);
    let mut heard = Vec::new();
    wait(&mut lab, |lab| {
        heard.extend(lab.read(5000).unwrap());
        heard.len() >= written.len()
    });
    assert_eq!(heard, written);
}

/// What is sent beyond a window is dropped by the peer, and sent again.
#[test]
fn a_kernel_that_has_it_back_sees_a_window_close() {
    for v6 in [false, true] {
        let Some(mut lab) = Lab::new(v6, false) else { return };
        assert_eq!(lab.window_closes(1 << 10, &bytes(100_000, 1)), 0);
    }
}
