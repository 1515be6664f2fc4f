//! Sessions: what an application posts into the shared memory is done, and nothing that it writes there does harm.

mod clock;
mod ends;
mod hostile;
mod messages;
mod side;

use std::sync::atomic::Ordering;

use crate::world::{BASE, negotiate};
use proptest::prelude::*;
use rdma::mpa::Config;
use rdma::session::completions::{ANY, Completions};
use rdma::session::posts::Posts;
use rdma::session::process::{Objects, Told};
use rdma::session::{Hostile, Request};
use rdma::verbs::{Limits, State, Work};
use side::{CHANNEL, CONTEXT, DEPTH, Side, pump, put};
use testkit::bytes::Bytes;

fn sides() -> (Side, Side) {
    let (mut a, mut b) = (Side::new(1, Limits::default()), Side::new(2, Limits::default()));
    let (ours, theirs) = negotiate(Config::default(), Config::default());
    a.start(&ours);
    b.start(&theirs);
    (a, b)
}

const SUCCESS: u8 = 0;
const FLUSHED: u8 = 5;

#[test]
fn what_is_posted_is_done_and_told() {
    let (mut a, mut b) = sides();
    assert_eq!(a.sends.state(), State::Rts);
    a.ram.buffers.get_mut(&1).unwrap()[..5].copy_from_slice(b"bytes");
    b.receive(70, &[b.sge(100, 3), b.sge(200, 50)]);
    b.completions.arm(ANY);
    let (stag, sge) = (b.stag, a.sge(0, 5));
    a.send(50, Work::Write { stag, offset: BASE + 10 }, &[sge]);
    a.send(51, Work::Send { invalidate: None }, &[sge]);
    a.send(52, Work::Read { stag, offset: BASE + 10 }, &[a.sge(1000, 5)]);
    pump(&mut a, &mut b).unwrap();
    let done: Vec<_> = a.poll().iter().map(|of| (of.wr_id, of.status, of.index)).collect();
    assert_eq!(done, [(50, SUCCESS, 0), (51, SUCCESS, 1), (52, SUCCESS, 2)]);
    let received = b.poll();
    assert_eq!((received[0].wr_id, received[0].opcode, received[0].len), (70, 128, 5));
    assert_eq!(b.told.iter().filter(|told| matches!(told, Told::Completion { .. })).count(), 1);
    assert!(b.told.contains(&Told::Completion { channel: CHANNEL, cq: b.cq }));
    let at_b = &b.ram.buffers[&1];
    assert_eq!(
        (&at_b[10..15], &at_b[100..103], &at_b[200..202]),
        (&b"bytes"[..], &b"byt"[..], &b"es"[..])
    );
    assert_eq!(&a.ram.buffers[&1][1000..1005], b"bytes");
    assert_eq!((a.sends.retired(), b.receives.retired()), (3, 1));
}

/// Either the application sees that a message waits, or the device sees what was posted.
#[test]
fn a_receive_that_is_waited_for_is_asked_for() {
    let (mut a, mut b) = sides();
    b.process.let_wait(b.qp, true);
    a.send(1, Work::Send { invalidate: None }, &[a.sge(0, 5)]);
    b.hears(&a.transmit().unwrap()).unwrap();
    assert!(b.process.is_waiting(b.qp));
    assert_eq!(b.receives.wanted(), 0);
    assert!(!b.process.want_receives(b.memory, b.qp, true), "none is posted");
    assert_eq!(b.receives.wanted(), b.qp.0);
    b.receive(70, &[b.sge(100, 5)]);
    assert!(b.process.want_receives(b.memory, b.qp, true));
    b.hears(&[]).unwrap();
    assert!(!b.process.is_waiting(b.qp));
    assert!(!b.process.want_receives(b.memory, b.qp, false));
    assert_eq!(b.receives.wanted(), 0);
    assert_eq!(b.poll().iter().map(|of| of.wr_id).collect::<Vec<_>>(), [70]);
    assert!(!b.process.share_receives(b.qp, b.qp), "it has a queue of its own");
}

#[test]
fn a_queue_takes_as_many_as_it_is_deep() {
    let (mut a, b) = sides();
    // Reads wait for the peer: none of them is over before it has answered.
    let (stag, offset) = (b.stag, BASE);
    for n in 0..DEPTH {
        assert!(a.send(n.into(), Work::Read { stag, offset }, &[a.sge(0, 8)]));
    }
    a.transmit().unwrap();
    assert!(!a.send(99, Work::Read { stag, offset }, &[]), "it is full");
    let (mut a, mut b) = sides();
    for round in 0..100 {
        assert!(a.send(round, Work::Write { stag: b.stag, offset }, &[a.sge(0, 8)]));
        pump(&mut a, &mut b).unwrap();
        assert_eq!(a.poll().len(), 1);
    }
}

/// An application on another CPU sees a completion while the device still writes others: the place is free by then.
#[test]
fn who_sees_a_completion_may_post_one_more() {
    const ROUNDS: u64 = 20_000;
    /// Looks in vain after which the device may need this CPU.
    const SPINS: u32 = 100;
    let (mut a, mut b) = sides();
    let (memory, qp, areas) = (a.memory, a.qp, a.areas);
    let (sge, work) = (a.sge(0, 8), Work::Write { stag: b.stag, offset: BASE });
    let application = std::thread::spawn(move || {
        let mut sends = Posts::new(areas[0], DEPTH, memory).unwrap();
        let mut completions = Completions::new(areas[2], memory).unwrap();
        let mut post = |wr_id: u64| put(&mut sends, memory, qp, wr_id, work, &[sge]);
        assert!((0..DEPTH.into()).all(&mut post));
        for round in 0..ROUNDS {
            let mut spins = 0;
            let entry = loop {
                if let Some(entry) = completions.poll() {
                    break entry;
                }
                spins += 1;
                match spins % SPINS {
                    0 => std::thread::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            };
            assert_eq!(entry.wr_id, round);
            completions.release();
            assert!(post(round + u64::from(DEPTH)), "{round}: the place of what completed is free");
        }
    });
    while !application.is_finished() {
        let written = a.transmit().unwrap();
        b.hears(&written).unwrap();
        std::thread::yield_now();
    }
    application.join().unwrap();
}

#[test]
fn entries_that_are_none_end_the_queue_pair_and_not_the_session() {
    let (mut a, mut b) = sides();
    a.send(5, Work::Send { invalidate: None }, &[]);
    // Its operation is none.
    let first = a.areas[0].at as usize + 16 + 1;
    a.memory[first].store(0xee, Ordering::Relaxed);
    a.receive(6, &[]);
    pump(&mut a, &mut b).unwrap();
    let done: Vec<_> = a.poll().iter().map(|of| (of.wr_id, of.status)).collect();
    const LOCAL_OPERATION: u8 = 2;
    assert_eq!(done, [(5, LOCAL_OPERATION), (6, FLUSHED)]);
    assert_eq!(a.sends.state(), State::Err);
    a.send(7, Work::Send { invalidate: None }, &[]);
    pump(&mut a, &mut b).unwrap();
    assert_eq!(a.poll().iter().map(|of| (of.wr_id, of.status)).collect::<Vec<_>>(), [(7, FLUSHED)]);
}

#[test]
fn what_was_read_has_room_again_before_what_was_posted_later_completes() {
    let (mut a, mut b) = sides();
    a.ask(&Request::ModifyQp { qp: a.qp.0, state: State::Err as u8 }).unwrap();
    for round in 0..20 {
        for n in 0..DEPTH {
            assert!(a.send(n.into(), Work::Send { invalidate: None }, &[]));
            assert!(a.receive(n.into(), &[]));
        }
        pump(&mut a, &mut b).unwrap();
        assert_eq!(a.poll().len() as u32, 2 * DEPTH, "{round}");
    }
}

#[test]
fn indices_that_are_not_possible_end_the_session() {
    for (which, value) in [(0, 17), (0, u64::MAX), (1, 17), (2, 1)] {
        let (mut a, mut b) = sides();
        a.memory[a.areas[which].at as usize].store(value, Ordering::Relaxed);
        a.control().post(a.qp.0 as usize & 0xfff);
        let ended = pump(&mut a, &mut b).and_then(|()| a.hears(&[]));
        assert_eq!(ended, Err(Hostile), "{which} {value}");
    }
}

#[test]
fn a_queue_pair_begins_anew() {
    let (mut a, mut b) = sides();
    a.send(5, Work::Read { stag: b.stag, offset: BASE }, &[a.sge(0, 8)]);
    a.transmit().unwrap();
    let reset = Request::ModifyQp { qp: a.qp.0, state: State::Reset as u8 };
    a.ask(&reset).unwrap();
    assert!(a.told.contains(&Told::Forgotten(a.qp)));
    a.sends.reset();
    a.receives.reset();
    assert_eq!((a.sends.state(), a.poll().len()), (State::Reset, 0));
    let (ours, theirs) = negotiate(Config::default(), Config::default());
    a.ask(&Request::ModifyQp { qp: a.qp.0, state: State::Init as u8 }).unwrap();
    a.start(&ours);
    b = Side::new(3, Limits::default());
    b.start(&theirs);
    a.send(6, Work::Write { stag: b.stag, offset: BASE }, &[a.sge(0, 8)]);
    pump(&mut a, &mut b).unwrap();
    assert_eq!(a.poll().iter().map(|of| of.wr_id).collect::<Vec<_>>(), [6]);
}

#[test]
fn all_ends_with_its_context() {
    let (mut a, _) = sides();
    let window = a.ask(&Request::AllocWindow { pd: a.pd, is_type_2: false });
    assert!(window.is_ok());
    let before = a.process.objects();
    assert_eq!((before.qps, before.cqs, before.regions, before.windows), (1, 1, 1, 1));
    const EBUSY: u16 = 16;
    assert_eq!(a.ask(&Request::DeallocPd(a.pd)), Err(EBUSY));
    assert_eq!(a.ask(&Request::DestroyCq(a.cq)), Err(EBUSY));
    a.ask(&Request::CloseContext(CONTEXT + 1)).unwrap();
    assert_eq!(a.process.objects(), before);
    a.ask(&Request::CloseContext(CONTEXT)).unwrap();
    assert_eq!(a.process.objects(), Objects::default());
    assert!(a.told.contains(&Told::Released(rdma::Handle(1))));
}

#[test]
fn objects_that_come_and_go_take_no_more_memory() {
    let (mut a, _) = sides();
    for _ in 0..10_000 {
        let request = Request::CreateQp(side::qp_request(a.pd, a.cq));
        let qp = a.ask(&request).unwrap().words[0] as u32;
        a.ask(&Request::DestroyQp(qp)).unwrap();
    }
}

#[test]
fn events_wait_for_so_many_entries_or_so_long() {
    let (mut a, mut b) = sides();
    a.ask(&Request::Moderate { cq: a.cq, count: 3, period: 50 }).unwrap();
    let events = |side: &Side| {
        side.told.iter().filter(|told| matches!(told, Told::Completion { .. })).count()
    };
    let mut round = |a: &mut Side, count: u32| {
        a.completions.arm(ANY);
        for _ in 0..count {
            a.send(1, Work::Write { stag: b.stag, offset: BASE }, &[a.sge(0, 8)]);
            pump(a, &mut b).unwrap();
        }
        a.poll();
    };
    round(&mut a, 3);
    assert_eq!(events(&a), 1);
    round(&mut a, 2);
    assert_eq!((events(&a), a.process.deadline().is_some()), (1, true));
    let due = a.process.deadline().unwrap();
    a.process.expire(a.memory, due);
    a.told.extend(std::iter::from_fn(|| a.process.poll_told()));
    assert_eq!((events(&a), a.process.deadline()), (2, None));
    // Where there were enough, nothing waits any more, and the next has its own time.
    round(&mut a, 1);
    assert!(a.process.deadline().is_some());
    round(&mut a, 2);
    assert_eq!((events(&a), a.process.deadline()), (3, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn anything_in_the_shared_memory(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        hostile::run(&mut Bytes(&bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_armed_queue_is_told_once_and_in_time(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        clock::run(&mut Bytes(&bytes));
    }
}
