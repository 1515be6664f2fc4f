//! What an application is told while a stream ends, whatever it posts meanwhile.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rdma::session::Request;
use rdma::session::area::Area;
use rdma::session::completions::Completions;
use rdma::session::posts::Posts;
use rdma::verbs::{Sge, State, Work};

use super::side::DEPTH;
use super::{FLUSHED, sides};
use crate::world::BASE;

const LOCAL_PROTECTION: u8 = 4;

/// Entries have their places until all before them are over: another thread may post as soon as it has read a completion.
#[test]
fn a_failure_that_is_told_first_gives_no_places_away() {
    let (mut a, b) = sides();
    // A read that is not answered, what waits behind it, and what has no region.
    assert!(a.send(10, Work::Read { stag: b.stag, offset: BASE }, &[a.sge(0, 8)]));
    a.transmit().unwrap();
    let write = Work::Write { stag: b.stag, offset: BASE };
    assert!(a.send(11, write, &[a.sge(0, 8)]));
    assert!(a.send(12, write, &[Sge { addr: BASE, len: 8, lkey: 1 }]));
    assert!(a.send(13, write, &[a.sge(0, 8)]));
    a.transmit().unwrap();
    let told: Vec<_> =
        a.poll().iter().map(|of| (of.wr_id, of.status, of.index, of.is_early)).collect();
    let expected = [(12, LOCAL_PROTECTION, 2, true), (10, FLUSHED, 0, false)];
    assert_eq!(told[..2], expected, "by the first nothing is over");
    assert_eq!(told[2..].iter().map(|of| of.0).collect::<Vec<_>>(), [11, 13]);
    assert_eq!(a.sends.retired(), 4);
}

/// Posts receives as the library does, while the stream ends: it rings if the state behind a post says so. Returns how many
/// it has posted, and whether it has rung.
fn post_receives(areas: [Area; 3], memory: &[AtomicU64], after: u32) -> (u64, bool) {
    let sends = Posts::new(areas[0], DEPTH, memory).unwrap();
    let mut receives = Posts::new(areas[1], DEPTH, memory).unwrap();
    (0..after).for_each(|_| spin_loop());
    for posted in 0..u64::from(DEPTH) {
        let entry = receives.slot().unwrap();
        entry[0].store(posted, Ordering::Relaxed);
        entry[1].store(0, Ordering::Relaxed);
        receives.push();
        receives.publish();
        fence(Ordering::SeqCst);
        if matches!(sends.state(), State::Sqd | State::Sqe | State::Err) {
            return (posted + 1, true);
        }
        (0..20).for_each(|_| spin_loop());
    }
    (DEPTH.into(), false)
}

#[test]
fn a_receive_that_is_posted_while_the_stream_ends_is_flushed() {
    for round in 0..2_000 {
        let (mut a, _b) = sides();
        let begin = Barrier::new(2);
        let (posted, has_rung) = std::thread::scope(|scope| {
            let (areas, memory, begin) = (a.areas, a.memory, &begin);
            let posting = scope.spawn(move || {
                begin.wait();
                post_receives(areas, memory, round % 10)
            });
            begin.wait();
            a.process.stream_ended(a.memory, 0, a.qp).unwrap();
            posting.join().unwrap()
        });
        if has_rung {
            a.process.pull(a.memory, 0, a.qp).unwrap();
        }
        let mut completions = Completions::new(a.areas[2], a.memory).unwrap();
        let told: Vec<u64> = std::iter::from_fn(|| completions.poll()).map(|of| of.wr_id).collect();
        assert_eq!(told, (0..posted).collect::<Vec<_>>(), "has rung: {has_rung}");
    }
}

/// What is posted while the peer is waited for is flushed behind that, as completions are told in the order of posts.
#[test]
fn what_is_posted_behind_a_disconnect_takes_no_place_of_what_is_outstanding() {
    let (mut a, mut b) = sides();
    let read = Work::Read { stag: b.stag, offset: BASE };
    for wr_id in 0..3 {
        assert!(a.send(wr_id, read, &[a.sge(0, 8)]));
    }
    let asked = a.transmit().unwrap();
    a.ask(&Request::ModifyQp { qp: a.qp.0, state: State::Sqd as u8 }).unwrap();
    let write = Work::Write { stag: b.stag, offset: BASE };
    let posted = (3..100).take_while(|wr_id| {
        let posted = a.send(*wr_id, write, &[a.sge(0, 8)]);
        a.transmit().unwrap();
        posted
    });
    assert_eq!(posted.count() as u32, DEPTH - 3);
    assert_eq!(a.poll().len(), 0);
    b.hears(&asked).unwrap();
    let answer = b.transmit().unwrap();
    a.hears(&answer).unwrap();
    let told: Vec<_> = a.poll().iter().map(|of| (of.wr_id, of.status)).collect();
    assert_eq!(told, [(0, 0), (1, 0), (2, 0)]);
    // And the stream ends; the posts may be looked at before.
    a.process.stream_ended(a.memory, 0, a.qp).unwrap();
    let told: Vec<_> = a.poll().iter().map(|of| (of.wr_id, of.status)).collect();
    assert_eq!(told, (3..u64::from(DEPTH)).map(|wr_id| (wr_id, FLUSHED)).collect::<Vec<_>>());
    assert_eq!(a.sends.retired(), DEPTH);
}
