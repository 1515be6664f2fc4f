//! Rings as one thread sees them: the bytes are those of a queue, whatever the indices, and nothing that the
//! application writes makes the NIC do more than say that it is hostile.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use handoff::Epoch;
use handoff::ring::command::{CommandRing, Consumer, Full, Producer, PushError};
use handoff::ring::{BadSize, Doorbell, Hostile, Lost, Piece, Ring, receive, send};
use proptest::prelude::*;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

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
        Memory { app, nic, places: [one, two], data: words(2 * capacity / 8) }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.app, &self.nic, &self.places, &self.data).unwrap()
    }
}

/// `count` bytes that are all others than those before.
fn bytes(next: &mut u8, count: usize) -> Vec<u8> {
    (0..count)
        .map(|_| {
            *next = next.wrapping_add(1);
            *next
        })
        .collect()
}

/// Writes bytes where a ring shows that there is room, and says how many.
fn write_at(pieces: [Piece<'_>; 2], from: &[u8]) -> u32 {
    let places = pieces
        .iter()
        .flat_map(|piece| (piece.at..piece.at + piece.len).map(|at| (piece.words, at)));
    let mut count = 0;
    for ((words, at), byte) in places.zip(from) {
        let mut whole = words[at / 8].load(Ordering::Relaxed).to_le_bytes();
        whole[at % 8] = *byte;
        words[at / 8].store(u64::from_le_bytes(whole), Ordering::Relaxed);
        count += 1;
    }
    count
}

/// Bytes where a ring shows them.
fn read_at(pieces: [Piece<'_>; 2]) -> Vec<u8> {
    let places = pieces
        .iter()
        .flat_map(|piece| (piece.at..piece.at + piece.len).map(|at| (piece.words, at)));
    places.map(|(words, at)| words[at / 8].load(Ordering::Relaxed).to_le_bytes()[at % 8]).collect()
}

proptest! {
    #[test]
    fn a_send_ring_is_a_queue(
        start in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
        queue in 0_usize..64,
        steps in proptest::collection::vec((0_u8..6, 0_usize..80), 1..80),
        flips: bool,
    ) {
        let memory = Memory::new(64);
        let ring = memory.ring();
        let mut next = 0;
        let queue = bytes(&mut next, queue);
        let mut there = VecDeque::from(queue.clone());
        let mut nic = send::Nic::open(ring, Epoch(1), start, &queue).unwrap();
        let app = send::App::new(ring);
        let mut seen = queue.len();
        for (step, count) in steps {
            match step {
                0 | 1 => {
                    let new = bytes(&mut next, count);
                    let took = app.send(&new).unwrap() as usize;
                    prop_assert_eq!(took, count.min(64 - there.len()));
                    there.extend(&new[..took]);
                }
                2 => {
                    let new = bytes(&mut next, count);
                    let most = count as u32 / 2;
                    let took = app.begin().unwrap().send_pieces(new.chunks(7), most).unwrap() as usize;
                    prop_assert_eq!(took, (count / 2).min(64 - there.len()));
                    there.extend(&new[..took]);
                }
                3 => {
                    // Less is written than there is room for.
                    let new = bytes(&mut next, count / 2);
                    let room = (64 - there.len()).min(count);
                    let took = app.begin().unwrap().fill(count as u32, |pieces| {
                        assert_eq!(pieces[0].len + pieces[1].len, room);
                        write_at(pieces, &new)
                    });
                    let took = took.unwrap() as usize;
                    prop_assert_eq!(took, room.min(new.len()));
                    there.extend(&new[..took]);
                }
                4 => {
                    let more = nic.look().unwrap() as usize;
                    prop_assert_eq!(seen + more, there.len());
                    seen += more;
                    let mut all = [0; 80];
                    let offset = count.min(seen);
                    let got = nic.peek(offset as u32, &mut all);
                    prop_assert!(there.iter().skip(offset).take(seen - offset).eq(&all[..got]));
                }
                _ => {
                    let freed = count.min(seen);
                    nic.release(count as u32);
                    there.drain(..freed);
                    seen -= freed;
                }
            }
        }
        prop_assert_eq!(app.room(), Ok(64 - there.len() as u32));
        // The NIC may die before it flips the epoch, or after.
        if flips {
            nic.flip().unwrap();
        }
        let nic = send::Nic::recover(ring, Epoch(1), nic.head()).unwrap();
        prop_assert_eq!(nic.len() as usize, there.len());
        prop_assert_eq!(app.send(b"x"), Err(Lost));
        prop_assert!(send::Nic::recover(ring, Epoch(3), nic.head()).is_err());
    }

    #[test]
    fn a_receive_ring_is_a_queue(
        start in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
        queue in 0_usize..64,
        steps in proptest::collection::vec((0_u8..6, 0_usize..80), 1..80),
        flips: bool,
    ) {
        let memory = Memory::new(64);
        let ring = memory.ring();
        let mut next = 0;
        let queue = bytes(&mut next, queue);
        let mut there = VecDeque::from(queue.clone());
        let mut nic = receive::Nic::open(ring, Epoch(1), start, &queue, 0).unwrap();
        let app = receive::App::new(ring);
        for (step, count) in steps {
            match step {
                0 => {
                    nic.look().unwrap();
                    let new = bytes(&mut next, count);
                    // The second half first, as if the first was late.
                    let half = count / 2;
                    let late = nic.put(half as u32, &new[half..]);
                    let early = nic.put(0, &new[..half]);
                    let took = if early == half { half + late } else { early };
                    prop_assert_eq!(took, count.min(64 - there.len()));
                    nic.publish(took as u32);
                    there.extend(&new[..took]);
                }
                1 => {
                    let mut into = vec![0; count];
                    let got = app.peek_pieces(into.chunks_mut(5)).unwrap() as usize;
                    prop_assert_eq!(got, count.min(there.len()));
                    prop_assert!(there.iter().take(count).eq(&into[..got]));
                }
                2 => {
                    let mut into = vec![0; count];
                    let got = app.recv_pieces(into.chunks_mut(5)).unwrap() as usize;
                    prop_assert_eq!(there.drain(..got).collect::<Vec<_>>(), &into[..got]);
                }
                3 => {
                    let mut shown = Vec::new();
                    let copy = |pieces| {
                        shown = read_at(pieces);
                        shown.len() as u32
                    };
                    let took = app.take_pieces(count as u32, copy, |copied| copied / 2);
                    prop_assert!(there.iter().take(count).eq(&shown));
                    there.drain(..took.unwrap() as usize);
                    let over = app.skip(count as u32 / 4).unwrap() as usize;
                    prop_assert_eq!(over, (count / 4).min(there.len()));
                    there.drain(..over);
                }
                _ => {
                    let mut into = vec![0; count];
                    let got = app.recv(&mut into).unwrap() as usize;
                    prop_assert_eq!(there.drain(..got).collect::<Vec<_>>(), &into[..got]);
                }
            }
            prop_assert_eq!(app.len(), Ok(there.len() as u32));
        }
        if flips {
            nic.flip().unwrap();
        }
        let nic = receive::Nic::recover(ring, Epoch(1), nic.tail()).unwrap();
        let mut unread = [0; 80];
        let count = nic.peek(&mut unread);
        prop_assert!(there.iter().eq(&unread[..count]));
        prop_assert_eq!(app.recv(&mut [0]), Err(Lost));
    }

    /// One that grows holds the same bytes, wherever they lie.
    #[test]
    fn a_send_ring_grows(
        start in prop_oneof![Just(0), Just(u32::MAX - 100_000), any::<u32>()],
        queue in prop_oneof![Just(0_usize), 0..200_000_usize],
        steps in proptest::collection::vec((0_u8..6, prop_oneof![0..50_usize, 0..90_000_usize]), 1..50),
    ) {
        let memory = Memory::new(1 << 20);
        let ring = memory.ring();
        let mut next = 0;
        let queue = bytes(&mut next, queue);
        let mut there = VecDeque::from(queue.clone());
        let mut nic = send::Nic::open(ring, Epoch(1), start, &queue).unwrap();
        prop_assert!(nic.size() as usize >= queue.len() && nic.size() <= 1 << 20);
        let app = send::App::new(ring);
        for (step, count) in steps {
            match step {
                0 | 1 => {
                    let new = bytes(&mut next, count);
                    let room = app.room().unwrap() as usize;
                    let took = app.send(&new).unwrap() as usize;
                    prop_assert_eq!(took, count.min(room));
                    prop_assert!(there.len() + room >= 1 << 16, "the smallest size at least");
                    there.extend(&new[..took]);
                    prop_assert!(there.len() <= nic.size() as usize);
                }
                2 => nic.grow(),
                _ => {
                    nic.look().unwrap();
                    let mut all = vec![0; there.len()];
                    prop_assert_eq!(nic.peek(0, &mut all), there.len());
                    prop_assert!(there.iter().eq(&all));
                    let at = count.min(there.len());
                    let lent = nic.bytes(at as u32, 70_000).map(|piece| {
                        let mut bytes = vec![0; piece.len()];
                        piece.copy_to(&mut bytes);
                        bytes
                    });
                    let lent = lent.concat();
                    prop_assert!(!lent.is_empty() || at == there.len());
                    prop_assert_eq!(&all[at..at + lent.len()], &lent);
                    nic.release(count as u32);
                    there.drain(..at);
                }
            }
        }
        nic.look().unwrap();
        let nic = send::Nic::recover(ring, Epoch(1), nic.head()).unwrap();
        let mut all = vec![0; there.len()];
        prop_assert_eq!(nic.peek(0, &mut all), there.len());
        prop_assert!(there.iter().eq(&all));
    }

    /// The same of a ring into which the NIC writes, behind holes too.
    #[test]
    fn a_receive_ring_grows(
        start in prop_oneof![Just(0), Just(u32::MAX - 100_000), any::<u32>()],
        queue in prop_oneof![Just(0_usize), 0..200_000_usize],
        room in 0..400_000_u32,
        steps in proptest::collection::vec((0_u8..7, prop_oneof![0..50_usize, 0..90_000_usize]), 1..50),
    ) {
        let memory = Memory::new(1 << 20);
        let ring = memory.ring();
        let mut next = 0;
        let queue = bytes(&mut next, queue);
        let mut there = VecDeque::from(queue.clone());
        let mut nic = receive::Nic::open(ring, Epoch(1), start, &queue, room).unwrap();
        prop_assert!(nic.size() >= room && nic.size() as usize >= queue.len());
        // Behind the bytes that are there: those that were put and are not published.
        let mut put: VecDeque<u8> = VecDeque::new();
        let app = receive::App::new(ring);
        for (step, count) in steps {
            nic.look().unwrap();
            match step {
                0 | 1 => {
                    // The second half first.
                    let new = bytes(&mut next, count.min(nic.room() as usize - put.len()));
                    let (early, late) = new.split_at(new.len() / 2);
                    let at = put.len() + early.len();
                    prop_assert_eq!(nic.put(at as u32, late), late.len());
                    prop_assert_eq!(nic.put(put.len() as u32, early), early.len());
                    put.extend(&new);
                    let mut all = vec![0; put.len()];
                    nic.peek_put(nic.len(), &mut all);
                    prop_assert!(put.iter().eq(&all));
                }
                2 => {
                    let count = count.min(put.len());
                    nic.publish(count as u32);
                    there.extend(put.drain(..count));
                }
                3 => {
                    // As far as the peer may have been told that there is room.
                    let edge = nic.tail().wrapping_add(nic.room());
                    let size = nic.size();
                    let grew = nic.grow(edge);
                    prop_assert_eq!(nic.size(), size << u32::from(grew));
                    prop_assert!(!grew || size < 1 << 20);
                }
                4 if nic.is_empty() && put.is_empty() => nic.begin_anew(),
                _ => {
                    let mut into = vec![0; count];
                    let got = app.recv(&mut into).unwrap() as usize;
                    prop_assert_eq!(got, count.min(there.len()));
                    prop_assert_eq!(there.drain(..got).collect::<Vec<_>>(), &into[..got]);
                }
            }
            prop_assert_eq!(app.len(), Ok(there.len() as u32));
        }
        let nic = receive::Nic::recover(ring, Epoch(1), nic.tail()).unwrap();
        let mut all = vec![0; there.len()];
        prop_assert_eq!(nic.peek(&mut all), there.len());
        prop_assert!(there.iter().eq(&all));
    }

    #[test]
    fn commands_come_in_order(steps in proptest::collection::vec(any::<bool>(), 1..100)) {
        let (pushed, popped, slots) = (AtomicU64::new(0), AtomicU64::new(0), words(8));
        let ring = CommandRing::new(&pushed, &popped, &slots).unwrap();
        let (mut producer, mut consumer) = (Producer::new(ring), Consumer::new(ring));
        let (mut there, mut next) = (VecDeque::new(), 0);
        for push in steps {
            if push {
                let command: [u8; 16] = bytes(&mut next, 16).try_into().unwrap();
                match producer.push(command) {
                    Ok(()) => there.push_back(command),
                    Err(error) => {
                        prop_assert_eq!((error, there.len()), (PushError::Full(Full), 4));
                    }
                }
            } else {
                prop_assert_eq!(consumer.pop(), Ok(there.pop_front()));
            }
        }
    }

    /// Any words at any time: errors, and no more than what was asked for.
    #[test]
    fn a_hostile_application_gets_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        crate::given::hostile_rings(&bytes);
    }
}

#[test]
fn what_is_no_ring_is_refused() {
    let word = AtomicU64::new(0);
    let places = [AtomicU64::new(0), AtomicU64::new(0)];
    for (count, ring) in [(0, false), (1, false), (2, true), (3, false), (4, true)] {
        assert_eq!(Ring::new(&word, &word, &places, &words(count)).is_ok(), ring, "{count} words");
    }
    for (count, ring) in [(0, false), (1, false), (2, true), (6, false), (1 << 18, false)] {
        let slots = words(count);
        assert_eq!(CommandRing::new(&word, &word, &slots).is_ok(), ring, "{count} words");
    }
    let data = words(2);
    let ring = Ring::new(&word, &word, &places, &data).unwrap();
    assert!(matches!(send::Nic::open(ring, Epoch(1), 0, &[0; 9]), Err(BadSize)));
    assert!(matches!(receive::Nic::open(ring, Epoch(1), 0, &[0; 9], 0), Err(BadSize)));
}

#[test]
fn an_index_or_epoch_that_is_not_possible_is_hostile() {
    let memory = Memory::new(16);
    let (ring, app) = (memory.ring(), &memory.app);
    let epoch = 1 << 32;
    for (word, error) in [
        (epoch | 17, Hostile::Index),
        (epoch | 0xffff_ffff, Hostile::Index),
        (3 << 32, Hostile::Epoch),
        (0, Hostile::Epoch),
    ] {
        let mut sender = send::Nic::open(ring, Epoch(1), 0, &[]).unwrap();
        app.store(word, Ordering::Relaxed);
        assert_eq!((sender.look(), sender.len()), (Err(error), 0), "{word:x}");
        assert_eq!((sender.flip(), sender.len()), (Err(error), 0), "{word:x}");
    }
    // The application can read no more than there is, and take back nothing that it has read.
    let mut receiver = receive::Nic::open(ring, Epoch(1), 0, &[1, 2], 0).unwrap();
    app.store(epoch | 3, Ordering::Relaxed);
    assert_eq!(receiver.look(), Err(Hostile::Index));
    app.store(epoch | 2, Ordering::Relaxed);
    assert_eq!(receiver.look(), Ok(2));
    app.store(epoch | 1, Ordering::Relaxed);
    assert_eq!(receiver.look(), Err(Hostile::Index));
}

/// A thread that stopped in the middle of a call does not write into another stay of the connection.
#[test]
fn a_call_of_an_earlier_epoch_loses() {
    let memory = Memory::new(16);
    let (ring, app) = (memory.ring(), &memory.app);
    let mut first = send::Nic::open(ring, Epoch(1), 0, &[]).unwrap();
    let stale = app.load(Ordering::Relaxed);
    first.flip().unwrap();
    assert_eq!(send::App::new(ring).room(), Err(Lost), "it is the OS's");
    let mut second = send::Nic::open(ring, Epoch(3), 0, &[]).unwrap();
    let swapped = app.compare_exchange(stale, stale + 5, Ordering::AcqRel, Ordering::Relaxed);
    assert!(swapped.is_err());
    assert_eq!(second.look(), Ok(0));
}

/// When the kernel has the connection, the ring's memory may be given back, or hold bytes of another connection.
#[test]
fn what_was_copied_while_the_epoch_ended_does_not_go_on() {
    let memory = Memory::new(16);
    let ring = memory.ring();
    let mut nic = receive::Nic::open(ring, Epoch(1), 0, b"some bytes", 0).unwrap();
    let app = receive::App::new(ring);
    let copy = |_: [Piece<'_>; 2]| {
        nic.flip().unwrap();
        10
    };
    assert_eq!(app.take_pieces(10, copy, |_| unreachable!("it goes on")), Err((Lost, 0)));

    // What has gone on by then is not the ring's to take back.
    let mut nic = receive::Nic::open(ring, Epoch(3), 0, b"some bytes", 0).unwrap();
    let give = |copied| {
        nic.flip().unwrap();
        copied
    };
    assert_eq!(app.take_pieces(10, |_| 4, give), Err((Lost, 4)));
    assert_eq!(nic.len(), 10);
}

#[test]
fn what_was_written_in_place_while_the_epoch_ended_is_not_sent() {
    let memory = Memory::new(16);
    let ring = memory.ring();
    let mut nic = send::Nic::open(ring, Epoch(1), 0, b"before").unwrap();
    let mut shown = [Piece { words: &[], at: 0, len: 0 }; 2];
    let fill = |pieces| {
        shown = pieces;
        nic.flip().unwrap();
        write_at(pieces, b"behind")
    };
    assert_eq!(send::App::new(ring).begin().unwrap().fill(10, fill), Err(Lost));
    assert_eq!(nic.len(), 6, "what was there is the kernel's to send, and no more");
    assert_eq!(&read_at(shown)[..6], b"behind", "and the rest is there to be kept");
}

#[test]
fn the_bell_is_rung_for_those_that_sleep_once() {
    let word = AtomicU64::new(0);
    let bell = Doorbell::new(&word);
    assert!(!bell.must_ring());
    bell.sleep();
    assert!(bell.must_ring() && !bell.must_ring());
    bell.sleep();
    bell.wake();
    assert!(!bell.must_ring());
}
