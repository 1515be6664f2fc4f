//! A path whose delay varies from packet to packet, so that most segments are overtaken, and that loses nothing or
//! little: what was retransmitted for nothing stays learnt (RFC 8985 section 6.2).

use std::sync::Arc;

use degen::{Degen, Heap, Probability, Random};
use tcp::config::{MILLISECOND, SECOND};
use tcp::{Config, Counters, Events, FourTuple, Id, Nanos, Segment, Snapshot, Stack, StackConfig};

use super::frame::{self, Arrival};

/// A path, and what was measured on it.
struct Path {
    name: &'static str,
    /// Delay each way, and by how much it varies to the receiver and back.
    delay: Nanos,
    jitter: [Nanos; 2],
    /// Parts of a million packets that are lost on the way to the receiver.
    loss: u64,
    /// How long the sender sends: as long as Linux did where that takes little time.
    duration: Nanos,
    /// Segments that Linux 6.18 (CUBIC, no segmentation offload) sent again for nothing in 15 seconds through `wharf degen`
    /// with these settings: TcpRetransSegs, less what degen lost.
    linux: u64,
    /// Bytes a second that arrived when only D-SACK widened the reordering window, for each seed.
    before: [u64; 2],
}

const MS: Nanos = MILLISECOND;

const PATHS: [Path; 5] = [
    Path {
        name: "one way, 30 ms of 30",
        delay: 30 * MS,
        jitter: [30 * MS, 0],
        loss: 0,
        duration: RATE_TIME,
        linux: 31,
        before: [21_017_136, 18_761_216],
    },
    Path {
        name: "one way, 30 ms of 40",
        delay: 40 * MS,
        jitter: [30 * MS, 0],
        loss: 0,
        duration: RATE_TIME,
        linux: 22,
        before: [15_366_646, 14_538_568],
    },
    Path {
        name: "30 ms of 40",
        delay: 40 * MS,
        jitter: [30 * MS; 2],
        loss: 0,
        duration: RATE_TIME,
        linux: 340,
        before: [3_450_698, 43_445_006],
    },
    Path {
        name: "30 ms of 50",
        delay: 50 * MS,
        jitter: [30 * MS; 2],
        loss: 0,
        duration: RATE_TIME,
        linux: 22,
        before: [33_858_946, 33_595_464],
    },
    Path {
        name: "30 ms of 50, loss",
        delay: 50 * MS,
        jitter: [30 * MS; 2],
        loss: 1_000,
        duration: LINUX_TIME,
        linux: 120,
        before: [1_431_908, 941_461],
    },
];

/// How long Linux has sent.
const LINUX_TIME: Nanos = 15 * SECOND;
/// The time at the beginning over which rates are.
const RATE_TIME: Nanos = 6 * SECOND;

/// What became of a transfer.
#[derive(Debug)]
struct Outcome {
    received: u64,
    /// The part of `received` that arrived in [`RATE_TIME`].
    early: u64,
    lost: u64,
    counters: Counters,
}

impl Outcome {
    /// Segments that were sent again though they were not lost.
    fn needless(&self) -> u64 {
        self.counters.retransmissions.saturating_sub(self.lost)
    }
}

/// A sender that always has data, and a receiver that takes it. `moves` has the sender's connection leave its stack for
/// another each second.
fn transfer(path: &Path, seed: u64, moves: bool) -> Outcome {
    let stack =
        |secret| Stack::new(StackConfig { secret: [secret; 16], half_open: 8, connections: 8 });
    let ends = FourTuple {
        local: "10.0.0.1:80".parse().unwrap(),
        remote: "10.0.0.2:5000".parse().unwrap(),
    };
    let config = Arc::new(Config::default());
    let way = |number: usize| {
        let loss = if number == 0 { path.loss * 1_000 } else { 0 };
        let way = degen::Config {
            delay: path.delay,
            jitter: path.jitter[number],
            loss: Probability::from_parts(loss).unwrap(),
            ..degen::Config::default()
        };
        Degen::new(way, Random::stream(seed, 40 + number as u64).next())
    };
    let mut ways = [way(0), way(1)];
    let mut stacks = [stack(1), stack(2)];
    stacks[0].listen(None, 80, Arc::clone(&config)).unwrap();
    let back = FourTuple { local: ends.remote, remote: ends.local };
    stacks[1].connect(back, Arc::clone(&config), 0).unwrap();
    let (mut now, mut received, mut early) = (0, 0, 0);
    let (mut sender, mut next_move) = (None::<Id>, SECOND);
    let data = vec![0x55; 64 << 10];
    while now < path.duration {
        if moves
            && now >= next_move
            && let Some(id) = sender
        {
            let snapshot = stacks[0].freeze(id, now).unwrap().encode();
            let snapshot = Snapshot::decode(&snapshot).unwrap();
            sender = Some(stacks[0].thaw(&snapshot, Arc::clone(&config), now).unwrap());
            next_move += SECOND;
        }
        for to in [1, 0] {
            while let Some(departure) = ways[1 - to].depart(now, &mut Heap) {
                let arrival = Arrival::parse(departure.packet).unwrap();
                let payload = [arrival.payload()];
                let segment = Segment::new(
                    &arrival.tcp(),
                    if payload[0].is_empty() { &[] } else { &payload },
                );
                stacks[to].receive(&arrival.path, &segment, now);
            }
            stacks[to].on_time(now);
        }
        while let Some((id, _)) = stacks[1].next_event() {
            if let Some(mut socket) = stacks[1].socket(id, now) {
                let bytes = socket.readable_len();
                socket.consume(bytes);
                received += bytes as u64;
                early = if now < RATE_TIME { received } else { early };
            }
        }
        while let Some((id, events)) = stacks[0].next_event() {
            sender = Some(id);
            if events.any(Events::ACCEPTED.with(Events::WRITABLE))
                && let Some(mut socket) = stacks[0].socket(id, now)
            {
                while socket.send(&data).is_ok_and(|taken| taken > 0) {}
            }
        }
        for from in 0..2 {
            while let Some(transmit) = stacks[from].poll_transmit(now) {
                frame::write(&transmit, |frame| ways[from].arrive(frame, now, &mut Heap));
            }
        }
        let deadlines = stacks.iter().filter_map(Stack::next_deadline);
        let next = deadlines.chain(ways.iter().filter_map(Degen::next_deadline)).min();
        now = next.expect("a deadline").max(now + 1);
    }
    Outcome { received, early, lost: ways[0].counters().lost, counters: *stacks[0].counters() }
}

/// At most twice as many segments go again for nothing as from Linux in the same time, and no less gets through than before.
#[test]
fn what_a_needless_retransmission_teaches_stays_learnt() {
    let mut faults = Vec::new();
    for path in &PATHS {
        for ((seed, moves), before) in [(1, false), (2, true)].into_iter().zip(path.before) {
            let outcome = transfer(path, seed, moves);
            let (needless, rate) = (outcome.needless(), outcome.early / (RATE_TIME / SECOND));
            let words = format!(
                "{}, seed {seed}: {needless} of {} segments again for nothing, {} of {} recoveries undone, {rate} B/s",
                path.name,
                outcome.received / 1448,
                outcome.counters.undone,
                outcome.counters.recoveries,
            );
            println!("{words}");
            let of_linux = path.linux * path.duration / LINUX_TIME;
            if needless > 2 * of_linux || rate < before {
                faults.push(words);
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
