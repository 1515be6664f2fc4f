//! What an acknowledgment costs, and a model that the scoreboard is compared with.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

extern crate std;

use core::cell::Cell;
use std::sync::Arc;
use std::vec::Vec;

use wire::{Flags, Seq};

use super::Flight;
use crate::config::{MILLISECOND, SECOND};
use crate::options::Block;
use crate::{Config, FourTuple, Id, Nanos, Options, Segment, Stack, StackConfig};

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn step() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Steps for a SACK block, or for a range that changes: each is a search, and a change is some of them.
const EACH: u64 = 40;
const MSS: u32 = 88;

/// A sender with one segment in each record, and the peer that acknowledges as it likes.
struct Sender {
    stack: Stack,
    id: Id,
    path: FourTuple,
    now: Nanos,
    una: Seq,
    /// Segments that were sent, again or for the first time.
    sent: u64,
    acks: u64,
}

impl Sender {
    fn new(records: u32) -> Sender {
        let mut stack = Stack::new(StackConfig { secret: [3; 16], half_open: 8, connections: 8 });
        let config = Config {
            initial_window: 2 * records,
            no_delay: true,
            send_buffer: 16 << 20,
            ..Config::default()
        };
        stack.listen(None, 80, Arc::new(config)).unwrap();
        let path = FourTuple {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "10.0.0.2:5000".parse().unwrap(),
        };
        let mut now = SECOND;
        let syn = Options {
            mss: Some(MSS as u16),
            window_scale: Some(14),
            sack_permitted: true,
            ..Options::default()
        };
        put(&mut stack, &path, 1000, Seq(0), Flags::SYN, syn, now);
        let una = stack.poll_transmit(now).unwrap().seq + 1;
        now += 10 * MILLISECOND;
        put(&mut stack, &path, 1001, una, Flags::ACK, Options::default(), now);
        let id = stack.next_event().unwrap().0;
        let mut sender = Sender { stack, id, path, now, una, sent: 0, acks: 0 };
        for _ in 0..records {
            sender.stack.socket(id, sender.now).unwrap().send(&[7; MSS as usize]).unwrap();
            sender.transmit();
            sender.now += 100;
        }
        assert_eq!(sender.stack.connection(id).unwrap().flight.count(), records as usize);
        sender.now += 10 * MILLISECOND;
        sender
    }

    fn transmit(&mut self) {
        while self.stack.poll_transmit(self.now).is_some() {
            self.sent += 1;
        }
    }

    /// An ACK of `ack` segments, with SACK of the segments of these numbers. Returns its steps.
    fn ack(&mut self, ack: u32, sacked: &[(u32, u32)]) -> u64 {
        let mut options = Options::default();
        for &(start, end) in sacked {
            let (start, end) = (self.una + MSS * start, self.una + MSS * end);
            options.sack.push(Block { start, end });
        }
        self.now += 1_000;
        self.acks += 1;
        let before = STEPS.get();
        let ack = self.una + MSS * ack;
        put(&mut self.stack, &self.path, 1001, ack, Flags::ACK, options, self.now);
        self.transmit();
        STEPS.get() - before
    }

    fn sacked(&self) -> u32 {
        self.stack.connection(self.id).unwrap().flight.sacked()
    }
}

fn put(
    stack: &mut Stack,
    path: &FourTuple,
    seq: u32,
    ack: Seq,
    flags: Flags,
    options: Options,
    now: Nanos,
) {
    let (seq, window) = (Seq(seq), u16::MAX);
    let segment = Segment {
        seq,
        ack,
        flags,
        window,
        urgent: 0,
        options,
        payload: &[],
        gso_size: 0,
        ce: false,
    };
    stack.receive(path, &segment, now);
}

/// Four single segments, far apart: each ACK makes eight ranges of what was four.
fn scattered(records: u32, ack: u32) -> [(u32, u32); 4] {
    [0, 1, 2, 3].map(|block| {
        let segment = 1 + 2 * ((4 * ack + block) * 7919 % (records / 2 - 1));
        (segment, segment + 1)
    })
}

#[test]
fn the_cost_of_an_ack_is_that_of_its_blocks_and_not_of_the_flight() {
    for records in [5_500, 55_000] {
        let mut sender = Sender::new(records);
        let acks = records / 8 - 1;
        let (begin, sent) = (STEPS.get(), sender.sent);
        for ack in 0..acks {
            sender.ack(0, &scattered(records, ack));
        }
        let changes = u64::from(8 * acks) + sender.sent - sent;
        let steps = STEPS.get() - begin;
        assert!(steps <= EACH * changes, "{records}: {steps} steps for {changes} changes");
        // Half of it is holes now. An acknowledgment without news costs its blocks.
        assert!(sender.sacked() > records / 3 * MSS, "{} bytes", sender.sacked());
        for ack in 0..1_000 {
            let steps = sender.ack(0, &scattered(records, ack));
            assert!(steps <= 5 * EACH, "{records}: {steps} steps for four known blocks");
        }
        let steps = sender.ack(0, &[(1, records)]);
        assert!(steps <= EACH * u64::from(records), "{steps} steps for all of {records}");
        for _ in 0..100 {
            let steps = sender.ack(0, &[(1, records)]);
            assert!(steps <= 2 * EACH, "{records}: {steps} steps for one known block");
        }
        let steps = sender.ack(records, &[]);
        assert!(steps <= EACH * u64::from(records), "{steps} steps for the end of {records}");
    }
}

#[test]
fn acks_of_single_segments_among_many_holes_cost_little() {
    let records = 55_000;
    let mut sender = Sender::new(records);
    for ack in 0..records / 8 - 1 {
        sender.ack(0, &scattered(records, ack));
    }
    let (begin, sent) = (STEPS.get(), sender.sent);
    for ack in 1..10_000 {
        sender.ack(ack, &[(records - 2, records - 1)]);
    }
    let changes = 2 * 10_000 + sender.sent - sent;
    let steps = STEPS.get() - begin;
    assert!(steps <= EACH * changes, "{steps} steps for {changes} changes");
}

/// A segment of the model.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Piece {
    at: Nanos,
    sacked: bool,
    lost: bool,
    retransmitted: bool,
}

const SIZE: u32 = 10;

/// The scoreboard as a list of segments, which is walked for everything.
#[derive(Default)]
struct Model {
    pieces: Vec<Piece>,
    /// Segments that were acknowledged.
    una: u32,
}

impl Model {
    fn lose_before(&mut self, (at, end): (Nanos, u32), limit: Nanos, now: Nanos) -> Option<Nanos> {
        let mut last = None;
        for (number, piece) in (self.una..).zip(&mut self.pieces) {
            let before = piece.at < at || piece.at == at && number + 1 < end;
            if piece.sacked || piece.lost || !before {
                continue;
            }
            if piece.at + limit <= now {
                piece.lost = true;
            } else {
                last = last.max(Some(piece.at));
            }
        }
        last
    }
}

fn agree(flight: &Flight, model: &Model, origin: Seq) {
    let mut pieces = Vec::new();
    for record in flight.iter() {
        assert_eq!(record.start, origin + SIZE * (model.una + pieces.len() as u32));
        for _ in 0..record.len() / SIZE {
            let Piece { mut at, mut retransmitted, .. } = model.pieces[pieces.len()];
            if !record.sacked {
                (at, retransmitted) = (record.at, record.retransmitted);
            }
            pieces.push(Piece { at, sacked: record.sacked, lost: record.lost, retransmitted });
        }
    }
    assert_eq!(pieces, model.pieces);
    let len = |test: fn(&&Piece) -> bool| SIZE * pieces.iter().filter(test).count() as u32;
    assert_eq!(flight.sacked(), len(|piece| piece.sacked));
    assert_eq!(flight.lost(), len(|piece| piece.lost));
    assert_eq!(flight.outstanding(), SIZE * pieces.len() as u32);
}

#[test]
fn the_scoreboard_is_that_of_a_list_of_segments() {
    let mut state = 14_u64;
    let mut draw = move |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) % u64::from(below.max(1))) as u32
    };
    for round in 0..300 {
        // Sequence numbers wrap on the way.
        let origin = Seq(u32::MAX - draw(2_000));
        let (mut flight, mut model) = (Flight::default(), Model::default());
        let mut now = 1_000;
        for _ in 0..200 {
            now += 1 + Nanos::from(draw(5));
            let (una, count) = (model.una, model.pieces.len() as u32);
            let seq = |number: u32| origin + SIZE * number;
            let first = una + draw(count);
            let last = first + 1 + draw((una + count).saturating_sub(first).min(12));
            let last = last.min(una + count);
            match draw(8) {
                0 | 1 => {
                    let more = 1 + draw(6);
                    flight.push(seq(una + count), seq(una + count + more), now, SIZE, false);
                    let piece = Piece { at: now, sacked: false, lost: false, retransmitted: false };
                    model.pieces.resize((count + more) as usize, piece);
                }
                2 | 3 if count > 0 => {
                    // A few bytes more than whole segments, on either side.
                    let inner = Block { start: seq(first), end: seq(last) };
                    let start =
                        if first > una { Seq(inner.start.0.wrapping_sub(3)) } else { inner.start };
                    let end = if last < una + count { inner.end + 3 } else { inner.end };
                    let mut new = 0;
                    flight.sack(Block { start, end }, |record| new += record.len());
                    for piece in &mut model.pieces[(first - una) as usize..(last - una) as usize] {
                        new -= if piece.sacked { 0 } else { SIZE };
                        (piece.sacked, piece.lost) = (true, false);
                    }
                    assert_eq!(new, 0);
                }
                4 if count > 0 => {
                    let mut new = 0;
                    flight.acknowledge(seq(first), |record| new += record.len());
                    let gone = model.pieces.drain(..(first - una) as usize);
                    new -= SIZE * gone.filter(|piece| !piece.sacked).count() as u32;
                    assert_eq!(new, 0);
                    model.una = first;
                }
                5 if count > 0 => {
                    let piece = model.pieces[(first - una) as usize];
                    let limit = Nanos::from(draw(60));
                    let rack = (piece.at, first + 1);
                    let last = model.lose_before(rack, limit, now);
                    // A live segment that would be the one RACK has: it is not before itself.
                    if piece.sacked {
                        let given = flight.lose_before((piece.at, seq(first + 1)), limit, now);
                        assert_eq!(given.1, last, "round {round}");
                    } else {
                        let mut unchanged = Model::default();
                        core::mem::swap(&mut unchanged, &mut model);
                        for piece in &mut unchanged.pieces {
                            // Undo what the model did: such a judgment does not occur.
                            piece.lost = false;
                        }
                        model = unchanged;
                        flight.clear_lost();
                    }
                }
                6 => {
                    let next = model.pieces.iter().position(|piece| piece.lost);
                    let lost = flight.next_lost();
                    assert_eq!(lost.map(|lost| lost.start), next.map(|at| seq(una + at as u32)));
                    if let (Some(lost), Some(at)) = (lost, next) {
                        let number = 1 + draw(lost.len() / SIZE);
                        let number = number.min(lost.len() / SIZE);
                        flight.retransmitted(lost.start, SIZE * number, SIZE, now);
                        for piece in &mut model.pieces[at..at + number as usize] {
                            (piece.at, piece.lost, piece.retransmitted) = (now, false, true);
                        }
                    }
                }
                7 if draw(6) == 0 => {
                    flight.clear_lost();
                    model.pieces.iter_mut().for_each(|piece| piece.lost = false);
                }
                _ => {}
            }
            agree(&flight, &model, origin);
        }
    }
}

/// RFC 2018 section 3: a block is of segments as they were sent, wherever the acknowledgment stands.
#[test]
fn sack_counts_behind_an_acknowledgment_inside_a_segment() {
    let mut flight = Flight::default();
    flight.push(Seq(0), Seq(10_000), 1, 1_000, false);
    flight.acknowledge(Seq(500), |_| {});
    flight.sack(Block { start: Seq(2_000), end: Seq(3_000) }, |_| {});
    flight.sack(Block { start: Seq(4_000), end: Seq(5_000) }, |_| {});
    assert_eq!(flight.sacked(), 2_000);
    // The same for what was retransmitted.
    flight.mark_lost(|_| true);
    flight.retransmitted(Seq(500), 500, 1_000, 2);
    flight.retransmitted(Seq(5_000), 5_000, 1_000, 2);
    flight.acknowledge(Seq(5_300), |_| {});
    flight.sack(Block { start: Seq(7_000), end: Seq(8_000) }, |_| {});
    assert_eq!(flight.sacked(), 1_000);
}

/// To undo a loss and to find it again costs what changes, however many ranges lie before it.
#[test]
fn repeated_undo_costs_what_it_undoes() {
    let mut most = Vec::new();
    for ranges in [100, 1_000, 10_000] {
        let mut flight = Flight::default();
        let seq = |number: u32| Seq(SIZE * number);
        let all = 2 * ranges;
        for number in 0..all + 8 {
            flight.push(seq(number), seq(number + 1), 1_000, SIZE, false);
        }
        // Every second one has come; the others are lost and retransmitted.
        for number in (1..all).step_by(2) {
            flight.sack(Block { start: seq(number), end: seq(number + 1) }, |_| {});
        }
        flight.lose_before((1_000, seq(all)), 0, 1_000);
        while let Some(lost) = flight.next_lost() {
            flight.retransmitted(lost.start, SIZE, SIZE, 2_000);
        }
        // One of these has come, and so what was sent once, and before, is lost.
        let mut steps = 0;
        for _ in 0..10 {
            let before = STEPS.get();
            let (lost, _) = flight.lose_before((2_000, seq(all - 1)), 500, 2_100);
            assert_eq!(lost, 8 * SIZE);
            flight.clear_lost();
            assert_eq!(flight.lost(), 0);
            steps = steps.max(STEPS.get() - before);
        }
        most.push(steps);
    }
    assert!(most.iter().all(|&steps| steps <= EACH), "{most:?}");
}
