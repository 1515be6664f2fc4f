//! Rings that are lent: what one connection receives another one sends, whoever moves it, and whenever that ends.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use handoff::ring::splice::{Ended, Notes, TakenBack, Target, finish};
use handoff::ring::{Lost, Ring, receive, send};
use handoff::{Cid, Epoch};
use proptest::prelude::*;

/// What a ring is made of.
struct Memory {
    app: AtomicU64,
    nic: AtomicU64,
    places: [AtomicU64; 2],
    data: Vec<AtomicU64>,
}

impl Memory {
    /// For a ring that holds so many bytes.
    fn new(capacity: usize) -> Memory {
        let [app, nic, one, two] = [(); 4].map(|()| AtomicU64::new(0));
        let data = (0..2 * capacity / 8).map(|_| AtomicU64::new(0)).collect();
        Memory { app, nic, places: [one, two], data }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.app, &self.nic, &self.places, &self.data).unwrap()
    }
}

const EPOCH: Epoch = Epoch(1);
const OTHER: Cid = Cid(7);
/// As long as a ring, and as what a segment brings at most.
const CAPACITY: usize = 64;

/// Two connections, of which one receives and the other sends.
struct Pair {
    from: Memory,
    to: Memory,
    note: AtomicU64,
    lent_to: AtomicU64,
    /// What the next byte is that comes.
    next: u8,
    /// What has come and was not read, and what is to be sent.
    unread: VecDeque<u8>,
    sent: VecDeque<u8>,
}

impl Pair {
    fn new() -> Pair {
        let [from, to] = [(); 2].map(|()| Memory::new(CAPACITY));
        let (unread, sent) = Default::default();
        Pair {
            from,
            to,
            note: AtomicU64::new(0),
            lent_to: AtomicU64::new(0),
            next: 0,
            unread,
            sent,
        }
    }

    fn open(&self, at: (u32, u32)) -> (receive::Nic<'_>, send::Nic<'_>) {
        let from = receive::Nic::open(self.from.ring(), EPOCH, at.0, b"", 0).unwrap();
        (from, send::Nic::open(self.to.ring(), EPOCH, at.1, b"").unwrap())
    }

    fn notes(&self) -> Notes<'_> {
        Notes { lent_to: &self.lent_to, moving: &self.note }
    }

    fn target(&self) -> Target<'_> {
        Target { cid: OTHER, ring: self.to.ring() }
    }

    /// So many bytes come, as far as there is room.
    fn comes(&mut self, nic: &mut receive::Nic<'_>, count: usize) {
        let bytes: Vec<u8> = (0..count).map(|at| self.next.wrapping_add(at as u8)).collect();
        let put = nic.put(0, &bytes);
        nic.publish(put as u32);
        self.next = self.next.wrapping_add(put as u8);
        self.unread.extend(&bytes[..put]);
    }
}

proptest! {
    /// What was moved, and what the application reads and sends by itself, are one stream each, whoever does what.
    #[test]
    fn what_is_lent_goes_on_in_order(
        at: (u32, u32),
        steps in proptest::collection::vec((0_u8..8, 0_usize..70), 1..120),
    ) {
        let mut pair = Pair::new();
        // The rings' memory is the other's of these two.
        let words = Pair::new();
        let (mut from, mut to) = words.open(at);
        let reader = receive::App::new(words.from.ring());
        let writer = send::App::new(words.to.ring());
        let mut between = [0; 10];
        let mut is_lent = false;
        for (step, count) in steps {
            match step {
                0 | 1 => pair.comes(&mut from, count),
                2 => {
                    prop_assert_eq!(reader.lend((OTHER, words.notes()), |_| count % 5 > 0).is_ok(), !is_lent);
                    is_lent |= count % 5 > 0;
                }
                3 | 4 => {
                    let most = count as u32;
                    let moved = from.splice(&words.target(), most, (words.notes(), &mut between));
                    if is_lent {
                        let room = CAPACITY - pair.sent.len();
                        let moves = count.min(pair.unread.len()).min(room);
                        prop_assert_eq!(moved, Ok(moves as u32));
                        pair.sent.extend(pair.unread.drain(..moves));
                    } else {
                        prop_assert_eq!(moved, Err(Ended::TakenBack));
                    }
                }
                5 => {
                    let mut into = vec![0; count];
                    if is_lent {
                        prop_assert_eq!(reader.recv(&mut into), Err(Lost));
                        prop_assert_eq!((reader.len(), reader.is_empty()), (Ok(0), Ok(true)));
                        prop_assert_eq!(from.is_lent(OTHER, words.notes()), true);
                        if count % 2 == 0 {
                            prop_assert_eq!(reader.take_back(), TakenBack::Done);
                        } else {
                            prop_assert!(from.give_back());
                        }
                    }
                    is_lent = false;
                    prop_assert_eq!(reader.take_back(), TakenBack::NotLent);
                    prop_assert!(!from.give_back() && !from.is_lent(OTHER, words.notes()));
                    let read = reader.recv(&mut into).unwrap() as usize;
                    let expected: Vec<u8> = pair.unread.drain(..read).collect();
                    prop_assert_eq!(&into[..read], expected);
                    if !is_lent {
                        let put = writer.send(&into[..read / 2]).unwrap() as usize;
                        pair.sent.extend(&into[..put]);
                    }
                }
                6 => {
                    prop_assert_eq!(from.unread(), Ok(pair.unread.len() as u32));
                    from.look().unwrap();
                    prop_assert_eq!(from.len() as usize, pair.unread.len());
                }
                _ => {
                    to.look().unwrap();
                    let mut bytes = vec![0; count];
                    let there = to.peek(0, &mut bytes);
                    to.release(there as u32);
                    let expected: Vec<u8> = pair.sent.drain(..there).collect();
                    prop_assert_eq!(&bytes[..there], expected);
                }
            }
        }
        from.flip().unwrap();
        to.flip().unwrap();
        let (mut unread, mut sent) = (vec![0; CAPACITY], vec![0; CAPACITY]);
        let there = (from.peek(&mut unread), to.peek(0, &mut sent));
        prop_assert_eq!(&unread[..there.0], pair.unread.make_contiguous());
        prop_assert_eq!(&sent[..there.1], pair.sent.make_contiguous());
        let end = from.splice(&words.target(), 1, (words.notes(), &mut between));
        prop_assert_eq!(end, Err(Ended::TakenBack));
        prop_assert_eq!((reader.take_back(), reader.lend((OTHER, words.notes()), |_| true)), (TakenBack::NotLent, Err(Lost)));
    }

    /// A NIC that dies in the middle leaves each byte in one of the two rings.
    #[test]
    fn what_was_being_moved_is_in_one_of_the_rings(
        at: (u32, u32), there in 1_usize..=64, before in 0_u32..30, died_at in 0_u8..4, again: bool,
    ) {
        let (mut pair, words) = (Pair::new(), Pair::new());
        let (mut from, _to) = words.open(at);
        pair.comes(&mut from, there);
        let all: Vec<u8> = pair.unread.iter().copied().collect();
        let reader = receive::App::new(words.from.ring());
        reader.lend((OTHER, words.notes()), |_| true).unwrap();
        let mut between = [0; 7];
        let mut splice = |most| from.splice(&words.target(), most, (words.notes(), &mut between));
        splice(before).unwrap();
        const MOVING: u64 = 1 << 62;
        let load = || (words.from.app.load(Ordering::Relaxed), words.to.app.load(Ordering::Relaxed));
        let (source, target) = load();
        splice(20).unwrap();
        // As it was when it had come so far.
        let (after, _) = load();
        match died_at {
            0 => {
                words.from.app.store(source | MOVING, Ordering::Relaxed);
                words.to.app.store(target, Ordering::Relaxed);
            }
            1 => {
                words.from.app.store(after | MOVING, Ordering::Relaxed);
                words.to.app.store(target, Ordering::Relaxed);
            }
            2 => words.from.app.store(after | MOVING, Ordering::Relaxed),
            _ => {}
        }
        // The application, if it is quick, finds the ring closed to it.
        let expected = if died_at < 3 && after != source { TakenBack::Busy } else { TakenBack::Done };
        if after != source {
            prop_assert_eq!(reader.take_back(), expected);
        }
        let ends = || finish(words.from.ring(), words.notes(), |cid| (cid == OTHER).then(|| words.to.ring()));
        ends();
        if again {
            ends();
        }
        let (_, tail) = (0, at.0.wrapping_add(there as u32));
        let from = receive::Nic::recover(words.from.ring(), EPOCH, tail).unwrap();
        let to = send::Nic::recover(words.to.ring(), EPOCH, at.1).unwrap();
        let (mut unread, mut sent) = (vec![0; CAPACITY], vec![0; CAPACITY]);
        let there = (from.peek(&mut unread), to.peek(0, &mut sent));
        let found = [&sent[..there.1], &unread[..there.0]].concat();
        prop_assert_eq!(found, all);
        // Nothing is done once the epochs have ended.
        let (source, target) = load();
        ends();
        prop_assert_eq!(load(), (source, target));
    }

    /// Whatever is written into the words, nothing is done outside the rings, and what is moved is bounded.
    #[test]
    fn hostile_words_move_no_more_than_a_ring(
        source: u64, target: u64, tail: u64, places: [u64; 2], note: u64, most: u32,
    ) {
        let words = Pair::new();
        let (from, _to) = words.open((5, 9));
        let mut between = [0; 16];
        let lent = source | 1 << 63;
        for app in [source, lent, (lent & u64::from(u32::MAX)) | 1 << 63 | 1 << 32] {
            words.from.app.store(app, Ordering::Relaxed);
            words.to.app.store(target | 1 << 32, Ordering::Relaxed);
            words.to.nic.store(tail, Ordering::Relaxed);
            words.note.store(note, Ordering::Relaxed);
            let all = words.to.places.iter().zip(places);
            all.for_each(|(to, value)| to.store(value, Ordering::Relaxed));
            finish(words.from.ring(), words.notes(), |_| Some(words.to.ring()));
            let moved = from.splice(&words.target(), most, (words.notes(), &mut between));
            prop_assert!(moved.is_err() || moved.unwrap() as usize <= CAPACITY);
        }
    }
}
