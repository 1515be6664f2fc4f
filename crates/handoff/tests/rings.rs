//! Rings as one thread sees them: the bytes are those of a queue, whatever the indices, and nothing that the
//! application writes makes the NIC do more than say that it is hostile.
#![cfg(not(loom))]

mod given;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use handoff::Epoch;
use handoff::ring::command::{CommandRing, Consumer, Full, Producer, PushError};
use handoff::ring::{BadSize, Doorbell, Hostile, Lost, Ring, receive, send};
use proptest::prelude::*;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
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

proptest! {
    #[test]
    fn a_send_ring_is_a_queue(
        start in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
        queue in 0_usize..64,
        steps in proptest::collection::vec((0_u8..4, 0_usize..80), 1..80),
        flips: bool,
    ) {
        let (app, nic, data) = (AtomicU64::new(0), AtomicU64::new(0), words(8));
        let ring = Ring::new(&app, &nic, &data).unwrap();
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
        steps in proptest::collection::vec((0_u8..4, 0_usize..80), 1..80),
        flips: bool,
    ) {
        let (app, nic, data) = (AtomicU64::new(0), AtomicU64::new(0), words(8));
        let ring = Ring::new(&app, &nic, &data).unwrap();
        let mut next = 0;
        let queue = bytes(&mut next, queue);
        let mut there = VecDeque::from(queue.clone());
        let mut nic = receive::Nic::open(ring, Epoch(1), start, &queue).unwrap();
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
                    let got = app.peek(&mut into).unwrap() as usize;
                    prop_assert!(there.iter().take(count).eq(&into[..got]));
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
        given::hostile_rings(&bytes);
    }
}

#[test]
fn what_is_no_ring_is_refused() {
    let word = AtomicU64::new(0);
    for (count, ring) in [(0, false), (1, true), (3, false), (4, true)] {
        assert_eq!(Ring::new(&word, &word, &words(count)).is_ok(), ring, "{count} words");
    }
    for (count, ring) in [(0, false), (1, false), (2, true), (6, false), (1 << 18, false)] {
        let slots = words(count);
        assert_eq!(CommandRing::new(&word, &word, &slots).is_ok(), ring, "{count} words");
    }
    let data = words(1);
    let ring = Ring::new(&word, &word, &data).unwrap();
    assert!(matches!(send::Nic::open(ring, Epoch(1), 0, &[0; 9]), Err(BadSize)));
    assert!(matches!(receive::Nic::open(ring, Epoch(1), 0, &[0; 9]), Err(BadSize)));
}

#[test]
fn an_index_or_epoch_that_is_not_possible_is_hostile() {
    let (app, nic, data) = (AtomicU64::new(0), AtomicU64::new(0), words(2));
    let ring = Ring::new(&app, &nic, &data).unwrap();
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
    let mut receiver = receive::Nic::open(ring, Epoch(1), 0, &[1, 2]).unwrap();
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
    let (app, nic, data) = (AtomicU64::new(0), AtomicU64::new(0), words(2));
    let ring = Ring::new(&app, &nic, &data).unwrap();
    let mut first = send::Nic::open(ring, Epoch(1), 0, &[]).unwrap();
    let stale = app.load(Ordering::Relaxed);
    first.flip().unwrap();
    assert_eq!(send::App::new(ring).room(), Err(Lost), "it is the OS's");
    let mut second = send::Nic::open(ring, Epoch(3), 0, &[]).unwrap();
    let swapped = app.compare_exchange(stale, stale + 5, Ordering::AcqRel, Ordering::Relaxed);
    assert!(swapped.is_err());
    assert_eq!(second.look(), Ok(0));
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
