//! Rings, doorbell and the flip of the epoch in all orders in which two threads can see each other's stores, by
//! loom: `cargo xtask check --only loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p handoff --test interleavings --target-dir target/loom`.
#![cfg(loom)]

use handoff::ring::atomic::{AtomicU64, Ordering};
use handoff::ring::command::{CommandRing, Consumer, Producer};
use handoff::ring::splice::{Notes, TakenBack, Target};
use handoff::ring::{Doorbell, Lost, Ring, Sleepers, receive, send};
use handoff::session::status::{self, Place, Status};
use handoff::{Cid, Epoch};
use loom::sync::Arc;
use loom::thread;

/// The words of one ring, and those of a doorbell.
struct Memory {
    app: AtomicU64,
    nic: AtomicU64,
    places: [AtomicU64; 2],
    data: Vec<AtomicU64>,
    asleep: AtomicU64,
    /// What stands for the eventfd: how often the bell was rung.
    rung: AtomicU64,
}

impl Memory {
    fn new(words: usize) -> Arc<Memory> {
        let word = || AtomicU64::new(0);
        Arc::new(Memory {
            app: word(),
            nic: word(),
            places: [word(), word()],
            data: (0..words).map(|_| word()).collect(),
            asleep: word(),
            rung: word(),
        })
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.app, &self.nic, &self.places, &self.data).unwrap()
    }

    fn commands(&self) -> CommandRing<'_> {
        CommandRing::new(&self.app, &self.nic, &self.data).unwrap()
    }

    fn ring_if_needed(&self) {
        if Doorbell::new(&self.asleep).must_ring() {
            self.rung.fetch_add(1, Ordering::AcqRel);
        }
    }
}

const EPOCH: Epoch = Epoch(1);

/// Bytes that are more than a ring holds, so that what is freed is written over.
const FIRST: [u8; 7] = *b"connect";
const SECOND: [u8; 5] = *b"ion h";

#[test]
fn what_was_sent_before_the_flip_is_there_and_nothing_else() {
    loom::model(|| {
        let memory = Memory::new(2);
        let mut nic = send::Nic::open(memory.ring(), EPOCH, 3, b"").unwrap();
        let app = thread::spawn({
            let memory = memory.clone();
            move || {
                let app = send::App::new(memory.ring());
                let mut sent: Vec<u8> = Vec::new();
                for bytes in [&FIRST[..], &SECOND[..]] {
                    match app.send(bytes) {
                        Ok(count) => sent.extend(&bytes[..count as usize]),
                        Err(Lost) => break,
                    }
                }
                sent
            }
        });
        let mut got: Vec<u8> = Vec::new();
        let mut take = |nic: &mut send::Nic<'_>| {
            let mut bytes = [0; 8];
            let count = nic.peek(0, &mut bytes);
            got.extend(&bytes[..count]);
            nic.release(count as u32);
        };
        nic.look().unwrap();
        take(&mut nic);
        nic.flip().unwrap();
        take(&mut nic);
        assert_eq!(app.join().unwrap(), got);
    });
}

#[test]
fn what_was_read_and_what_the_flip_leaves_is_all_there_was() {
    loom::model(|| {
        let memory = Memory::new(2);
        let mut nic = receive::Nic::open(memory.ring(), EPOCH, 5, b"han", 0).unwrap();
        let app = thread::spawn({
            let memory = memory.clone();
            move || {
                let app = receive::App::new(memory.ring());
                let mut read: Vec<u8> = Vec::new();
                for _ in 0..2 {
                    let mut into = [0; 6];
                    match app.recv(&mut into) {
                        Ok(count) => read.extend(&into[..count as usize]),
                        Err(Lost) => break,
                    }
                }
                read
            }
        });
        let mut all = b"han".to_vec();
        nic.look().unwrap();
        let count = nic.put(0, &FIRST);
        nic.publish(count as u32);
        all.extend(&FIRST[..count]);
        nic.flip().unwrap();
        let mut unread = [0; 8];
        let count = nic.peek(&mut unread);
        let mut read = app.join().unwrap();
        read.extend(&unread[..count]);
        assert_eq!(read, all);
    });
}

/// Two threads read, and none of the bytes goes to both, or to none.
#[test]
fn what_two_threads_read_is_all_there_was() {
    loom::model(|| {
        let memory = Memory::new(2);
        let mut nic = receive::Nic::open(memory.ring(), EPOCH, 5, b"handoff", 0).unwrap();
        let read = |memory: Arc<Memory>| {
            move || {
                let mut into = [0; 4];
                let count = receive::App::new(memory.ring()).recv(&mut into);
                count.map_or(Vec::new(), |count| into[..count as usize].to_vec())
            }
        };
        let other = thread::spawn(read(memory.clone()));
        let mine = read(memory.clone())();
        // What is free is written over.
        nic.look().unwrap();
        let count = nic.put(0, b"XY");
        nic.publish(count as u32);
        let others = other.join().unwrap();
        nic.look().unwrap();
        let mut left = [0; 8];
        let count_left = nic.peek(&mut left);
        let left = &left[..count_left];
        let all = [b"handoff", &b"XY"[..count]].concat();
        let in_turn = |first: &[u8], second: &[u8]| [first, second, left].concat() == all;
        assert!(in_turn(&mine, &others) || in_turn(&others, &mine), "{mine:?} {others:?} {left:?}");
    });
}

#[test]
fn commands_are_whole_and_in_order() {
    loom::model(|| {
        let memory = Memory::new(2);
        let mut consumer = Consumer::new(memory.commands());
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                let mut producer = Producer::new(memory.commands());
                (1..=3_u8).map_while(|number| producer.push([number; 16]).ok()).count()
            }
        });
        let mut popped: Vec<_> = (0..3).filter_map(|_| consumer.pop().unwrap()).collect();
        let pushed = producer.join().unwrap();
        popped.extend((0..1).filter_map(|_| consumer.pop().unwrap()));
        let expected: Vec<_> = (1..=pushed as u8).map(|number| [number; 16]).collect();
        assert_eq!(popped, expected);
    });
}

/// Who has gone to sleep is rung for if there is a command.
#[test]
fn no_sleeper_misses_a_command() {
    loom::model(|| {
        let memory = Memory::new(4);
        let producer = thread::spawn({
            let memory = memory.clone();
            move || {
                let mut producer = Producer::new(memory.commands());
                for number in 1..=2 {
                    producer.push([number; 16]).unwrap();
                    memory.ring_if_needed();
                }
            }
        });
        let mut consumer = Consumer::new(memory.commands());
        let (asleep, popped) = sleep_when_idle(&memory, &mut consumer);
        producer.join().unwrap();
        let rung = memory.rung.load(Ordering::Acquire);
        assert!(!asleep || popped == 2 || rung > 0, "{popped} of 2, and asleep");
    });
}

/// Looks twice at most; whether it has gone to sleep then, and how many commands it has seen.
fn sleep_when_idle(memory: &Memory, consumer: &mut Consumer<'_>) -> (bool, usize) {
    let bell = Doorbell::new(&memory.asleep);
    let mut popped = 0;
    for _ in 0..2 {
        while consumer.pop().unwrap().is_some() {
            popped += 1;
        }
        bell.sleep();
        if consumer.pop().unwrap().is_none() {
            return (true, popped);
        }
        popped += 1;
        bell.wake();
    }
    (false, popped)
}

/// The application writes and rings, the NIC goes to sleep, or wakes and restores: the bytes are those of calls
/// that took effect, and a NIC that sleeps is rung for.
#[test]
fn ring_doorbell_and_flip_together() {
    loom::model(|| {
        let memory = Memory::new(2);
        let mut nic = send::Nic::open(memory.ring(), EPOCH, 0, b"").unwrap();
        let app = thread::spawn({
            let memory = memory.clone();
            move || {
                let sent = send::App::new(memory.ring()).send(&SECOND);
                memory.ring_if_needed();
                sent
            }
        });
        let bell = Doorbell::new(&memory.asleep);
        bell.sleep();
        let seen = nic.look().unwrap();
        let asleep = seen == 0;
        if !asleep {
            bell.wake();
            nic.flip().unwrap();
        }
        let sent = app.join().unwrap();
        if asleep {
            assert_eq!((sent, memory.rung.load(Ordering::Acquire)), (Ok(5), 1));
            nic.flip().unwrap();
        }
        let mut bytes = [0; 8];
        let count = nic.peek(0, &mut bytes);
        assert_eq!((sent, &bytes[..count]), (Ok(5), &SECOND[..]));
    });
}

#[test]
fn a_thread_that_sleeps_has_seen_what_it_is_not_woken_for() {
    loom::model(|| {
        let memory = Memory::new(2);
        let mut nic = receive::Nic::open(memory.ring(), EPOCH, 0, b"", 0).unwrap();
        let app = thread::spawn({
            let memory = memory.clone();
            move || {
                let sleepers = Sleepers::new(&memory.asleep);
                sleepers.enter();
                let sleeps = receive::App::new(memory.ring()).is_empty().unwrap();
                if !sleeps {
                    sleepers.leave();
                }
                sleeps
            }
        });
        nic.put(0, b"x");
        nic.publish(1);
        let woken = Sleepers::new(&memory.asleep).must_wake();
        let sleeps = app.join().unwrap();
        assert!(woken || !sleeps, "it sleeps, and nothing wakes it");
    });
}

#[test]
fn what_is_lent_is_moved_or_read_and_what_comes_behind_it_is_behind_it() {
    loom::model(|| {
        let (from, to) = (Memory::new(2), Memory::new(2));
        let nic = receive::Nic::open(from.ring(), EPOCH, 5, b"han", 0).unwrap();
        let mut sends = send::Nic::open(to.ring(), EPOCH, 9, b"").unwrap();
        let (lent_to, moving) = (AtomicU64::new(0), AtomicU64::new(0));
        let notes = Notes { lent_to: &lent_to, moving: &moving };
        let reader = receive::App::new(from.ring());
        assert_eq!(reader.lend((Cid(1), notes), |index| index == 5), Ok(true));
        let app = thread::spawn({
            let (from, to) = (from.clone(), to.clone());
            move || {
                let reader = receive::App::new(from.ring());
                while reader.take_back() == TakenBack::Busy {
                    thread::yield_now();
                }
                let mut into = [0; 4];
                let read = reader.recv(&mut into).unwrap() as usize;
                // What it read, it sends itself, and something else.
                let writer = send::App::new(to.ring());
                let bytes = [&into[..read], b"d"].concat();
                assert_eq!(writer.send(&bytes), Ok(bytes.len() as u32));
            }
        });
        let mut between = [0; 2];
        let target = Target { cid: Cid(1), ring: to.ring() };
        while nic.splice(&target, 2, (notes, &mut between)).is_ok_and(|moved| moved > 0) {}
        app.join().unwrap();
        sends.look().unwrap();
        let mut bytes = [0; 8];
        let there = sends.peek(0, &mut bytes);
        assert_eq!(&bytes[..there], b"hand");
    });
}

#[test]
fn what_was_read_before_a_ring_was_lent_is_not_moved() {
    loom::model(|| {
        let (from, to) = (Memory::new(2), Memory::new(2));
        let nic = receive::Nic::open(from.ring(), EPOCH, 5, b"han", 0).unwrap();
        let mut sends = send::Nic::open(to.ring(), EPOCH, 9, b"").unwrap();
        let other = thread::spawn({
            let from = from.clone();
            move || {
                let mut into = [0; 2];
                let read = receive::App::new(from.ring()).recv(&mut into);
                into[..read.unwrap_or(0) as usize].to_vec()
            }
        });
        let (lent_to, moving) = (AtomicU64::new(0), AtomicU64::new(0));
        let notes = Notes { lent_to: &lent_to, moving: &moving };
        let lent = receive::App::new(from.ring()).lend((Cid(1), notes), |_| true);
        let mut between = [0; 2];
        let target = Target { cid: Cid(1), ring: to.ring() };
        let moved = nic.splice(&target, 8, (notes, &mut between));
        assert_eq!(moved.is_ok(), lent == Ok(true));
        let read = other.join().unwrap();
        sends.look().unwrap();
        let mut bytes = [0; 8];
        let there = sends.peek(0, &mut bytes);
        let expected = if lent == Ok(true) { &b"han"[read.len()..] } else { b"" };
        assert_eq!(&bytes[..there], expected);
        assert!(lent == Ok(true) || read == b"ha");
    });
}

/// wharf takes up an offer and begins to move it while the application withdraws it: one of the two happens, and never both. The
/// number is free in the end if it was withdrawn.
#[test]
fn an_offer_is_withdrawn_or_moved() {
    loom::model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let offered = status::count(word.load(Ordering::Acquire));
        let app = thread::spawn({
            let word = word.clone();
            move || {
                // What it has seen may be old by the time that it withdraws.
                for _ in 0..2 {
                    let seen = word.load(Ordering::Acquire);
                    let is_as_offered = status::count(seen) == offered;
                    let is_offered = Status::decode(seen).place == Place::Offered;
                    if (is_as_offered || is_offered) && status::withdraw(&word, seen) {
                        return true;
                    }
                }
                false
            }
        });
        status::take_up(&word, offered);
        let moves = status::begin_move(&word);
        if !moves {
            status::leave_to_kernel(&word, Status::at(Place::Os));
        }
        let is_withdrawn = app.join().unwrap();
        assert_ne!(moves, is_withdrawn);
        let place = Status::decode(word.load(Ordering::Acquire)).place;
        assert_eq!(place, if moves { Place::Moving } else { Place::Free });
    });
}

/// The same where wharf refuses the offer, or has found at once that it was withdrawn.
#[test]
fn an_offer_is_withdrawn_or_refused() {
    loom::model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let offered = status::count(word.load(Ordering::Acquire));
        let app = thread::spawn({
            let word = word.clone();
            move || {
                let seen = word.load(Ordering::Acquire);
                status::count(seen) == offered && status::withdraw(&word, seen)
            }
        });
        status::refuse(&word, offered, Status::at(Place::Os));
        let is_withdrawn = app.join().unwrap();
        let place = Status::decode(word.load(Ordering::Acquire)).place;
        assert_eq!(place, if is_withdrawn { Place::Free } else { Place::Os });
    });
}
