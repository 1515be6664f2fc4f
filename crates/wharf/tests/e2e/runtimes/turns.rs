//! Connections that go to the NIC and to the kernel by turns.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nic::control::Client;
use testkit::lab::PATIENCE;

use crate::handoff_programs::Stage;
use crate::setup::HOST;

/// Time between two moves.
const EVERY: Duration = Duration::from_millis(50);
/// The least number of connections that move to the NIC, and of those that move to the kernel.
const LEAST: u64 = 10;

/// Which connections can move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moves {
    /// All, both ways.
    All,
    /// None: the kernel keeps them.
    None,
}

/// Counts the moves of a stage's connections.
pub(super) struct Turns<'a> {
    stage: &'a Stage,
    moves: Moves,
    begun: Instant,
    /// At the beginning.
    before: [u64; 2],
    moved: Cell<[u64; 2]>,
}

impl Turns<'_> {
    fn count(stage: &Stage) -> [u64; 2] {
        ["handoffs", "restored"].map(|name| stage.counter("handoff", name))
    }

    /// Whether too few connections have moved, and it is not long since the beginning.
    pub(super) fn must_go_on(&self) -> bool {
        let now = Turns::count(self.stage);
        self.moved.set([0, 1].map(|way| now[way] - self.before[way]));
        self.moves == Moves::All && !self.are_enough() && self.begun.elapsed() < PATIENCE
    }

    fn are_enough(&self) -> bool {
        match self.moves {
            Moves::All => self.moved.get().iter().all(|moved| *moved >= LEAST),
            Moves::None => self.moved.get() == [0; 2],
        }
    }
}

/// Ends the moves, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves all connections of the stage's programs while `work` is done, which goes on until it must not.
///
/// # Panics
/// If too few have moved by the end, or any that cannot.
pub(super) fn during(stage: &Stage, moves: Moves, work: impl FnOnce(&Turns<'_>)) {
    let mut client = stage.hosts.server.run(|| Client::connect(Some(HOST))).unwrap();
    let is_over = AtomicBool::new(false);
    let before = Turns::count(stage);
    let begun = Instant::now();
    let turns = Turns { stage, moves, begun, before, moved: Cell::new([0; 2]) };
    thread::scope(|scope| {
        let ends = Ends(&is_over);
        let mover = scope.spawn(|| {
            for to in ["nic", "os"].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                client.hand_off(to, None, None).unwrap();
                thread::sleep(EVERY);
            }
        });
        work(&turns);
        drop(ends);
        mover.join().unwrap();
    });
    assert!(turns.are_enough(), "{:?} moved: {:?}", turns.moved.get(), stage.counters());
}
