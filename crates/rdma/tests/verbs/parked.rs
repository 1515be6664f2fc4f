//! Messages that wait for a receive (receiver not ready, as programs of InfiniBand know it), and what passes them.

use rdma::Status;
use rdma::rdmap::Opcode;
use rdma::rdmap::atomic::Operation;
use rdma::verbs::{Access, PARKED_MAX, State, Work};

use super::raw::{alone, untagged};
use crate::world::{BASE, LEN, Pair, Setup};

/// A program may wait for a read or an atomic operation of its own before it posts the receive for what its peer has sent.
#[test]
fn responses_pass_messages_that_wait() {
    for markers in [false, true] {
        let mut setup = Setup { emss: 200, ..Setup::default() };
        setup.config.markers = markers;
        let mut pair = Pair::ready_with(&setup);
        pair.b.rnic.let_wait(pair.b.qp, true);
        pair.a.bytes(0, 600).fill(7);
        let (sge, into) = (pair.a.sge(0, 600), pair.b.sge(1000, 600));
        let stag = pair.a.stag;
        pair.a.send(1, &[sge]);
        let bytes = pair.a.transmit(1 << 16);
        pair.b.feed_all(&bytes);
        assert!(pair.b.rnic.is_waiting(pair.b.qp));
        // A read of several segments, and an atomic operation.
        pair.b.post(11, Work::Read { stag, offset: BASE }, &[into]);
        let operation = Operation::fetch_add(1);
        pair.b.post(12, Work::Atomic { stag, offset: BASE + 4096, operation }, &[pair.b.sge(0, 8)]);
        // What the peer sends meanwhile waits as well, but for the payload of writes in front of a response.
        pair.a.post(2, Work::Write { stag: pair.b.stag, offset: BASE + 3000 }, &[sge]);
        let bytes = pair.a.transmit(1 << 16);
        pair.b.feed_all(&bytes);
        pair.pump();
        assert_eq!(pair.b.sent(), [(11, Status::Success), (12, Status::Success)]);
        assert_eq!((pair.b.bytes(1000, 600)[599], pair.b.bytes(3000, 600)[599]), (7, 7));
        assert!(pair.b.rnic.is_waiting(pair.b.qp) && pair.b.received().is_empty());
        let before = pair.b.rnic.waits_since(pair.b.qp);
        let receive = pair.b.sge(5000, 600);
        pair.b.receive(70, &[receive]);
        pair.b.feed_all(&[]);
        assert_eq!(pair.b.received(), [(70, Status::Success)]);
        assert!(!pair.b.rnic.is_waiting(pair.b.qp));
        assert_ne!(pair.b.rnic.waits_since(pair.b.qp), before);
        assert_eq!((pair.b.bytes(5000, 600)[599], pair.b.bytes(3000, 600)[599]), (7, 7));
    }
}

/// Host B with a Send that waits, behind it what `post` has the peer send, and a response of nothing that passes all of it.
fn passed(post: impl FnOnce(&mut Pair)) -> Pair {
    let mut pair = Pair::ready();
    pair.b.rnic.let_wait(pair.b.qp, true);
    pair.a.bytes(0, 64).fill(7);
    let nothing = pair.a.sge(0, 0);
    pair.a.send(1, &[nothing]);
    post(&mut pair);
    let bytes = pair.a.transmit(1 << 16);
    pair.b.feed_all(&bytes);
    assert_eq!(pair.b.bytes(0, 64), [0; 64], "nothing has passed it");
    pair.b.post(11, Work::Read { stag: pair.a.stag, offset: BASE }, &[pair.b.sge(4000, 8)]);
    pair.pump();
    assert_eq!(pair.b.sent(), [(11, Status::Success)]);
    pair
}

/// RFC 5041 section 5.3: placed once, and delivered in the order of the stream. The program may have used the memory since.
#[test]
fn a_write_that_was_placed_ahead_is_not_placed_again() {
    let mut pair = passed(|pair| {
        let (stag, sge) = (pair.b.stag, pair.a.sge(0, 40));
        pair.a.post(2, Work::Write { stag, offset: BASE }, &[sge]);
        let immediate = Work::WriteImmediate { stag, offset: BASE + 40, immediate: [1, 2, 3, 4] };
        pair.a.post(3, immediate, &[pair.a.sge(40, 24)]);
    });
    assert_eq!(pair.b.bytes(0, 64), [7; 64]);
    pair.b.bytes(0, 64).fill(9);
    pair.b.receive(70, &[]);
    pair.b.receive(71, &[]);
    pair.b.feed_all(&[]);
    let done = pair.b.poll(pair.b.receive_cq);
    let told: Vec<_> = done.iter().map(|of| (of.wr_id, of.len, of.immediate)).collect();
    assert_eq!(told, [(70, 0, None), (71, 24, Some([1, 2, 3, 4]))]);
    assert_eq!(pair.b.bytes(0, 64), [9; 64]);
}

/// The read shows that the write has come, and so the program takes the region back.
#[test]
fn the_right_to_a_write_that_was_placed_ahead_is_not_asked_for_again() {
    let mut stag = 0;
    let mut pair = passed(|pair| {
        stag = pair.b.register(0, 64, Access::ALL);
        let sge = pair.a.sge(0, 64);
        pair.a.post(2, Work::Write { stag, offset: 0 }, &[sge]);
    });
    assert_eq!(pair.b.ram.buffers[&2], [7; 64]);
    pair.b.rnic.deregister(stag).unwrap();
    pair.b.receive(70, &[]);
    pair.b.feed_all(&[]);
    assert_eq!((pair.b.received(), pair.b.state()), (vec![(70, Status::Success)], State::Rts));
}

/// A write that is not granted ends the stream when it has its turn, and nothing behind it is placed.
#[test]
fn a_write_ahead_has_the_rights_of_any_other() {
    let mut pair = passed(|pair| {
        let (stag, sge) = (pair.b.stag, pair.a.sge(0, 32));
        pair.a.post(2, Work::Write { stag, offset: BASE }, &[sge]);
        pair.a.post(3, Work::Write { stag, offset: BASE + LEN as u64 - 31 }, &[sge]);
        pair.a.post(4, Work::Write { stag, offset: BASE + 32 }, &[sge]);
    });
    assert_eq!(pair.b.bytes(31, 2), [7, 0]);
    assert_eq!(pair.b.state(), State::Rts);
    pair.b.receive(70, &[]);
    pair.b.feed_all(&[]);
    assert_eq!((pair.b.received(), pair.b.state()), (vec![(70, Status::Success)], State::Sqe));
    assert_eq!(pair.b.bytes(31, 2), [7, 0]);
}

/// An atomic operation in front of a write shows the value from before it.
#[test]
fn a_write_to_the_word_of_an_atomic_operation_stays_behind_it() {
    let mut pair = passed(|pair| {
        let (stag, sge) = (pair.b.stag, pair.a.sge(0, 8));
        let operation = Operation::fetch_add(1);
        pair.a.post(2, Work::Atomic { stag, offset: BASE + 8, operation }, &[pair.a.sge(64, 8)]);
        pair.a.post(3, Work::Write { stag, offset: BASE }, &[sge]);
        pair.a.post(4, Work::Write { stag, offset: BASE + 15 }, &[sge]);
        pair.a.post(5, Work::Write { stag, offset: BASE + 32 }, &[sge]);
    });
    assert_eq!((pair.b.bytes(0, 8)[7], pair.b.bytes(8, 56)), (7, &mut [0; 56][..]));
    pair.b.receive(70, &[]);
    pair.b.feed_all(&[]);
    pair.pump();
    assert_eq!(pair.a.bytes(64, 8), [0; 8]);
    assert_eq!(pair.b.bytes(8, 7), &1_u64.to_ne_bytes()[..7]);
    assert_eq!(pair.b.bytes(15, 8), [7; 8]);
    assert_eq!(pair.b.bytes(32, 8), [7; 8]);
}

/// The peer may not write any more once its Send has invalidated the STag.
#[test]
fn a_write_stays_behind_a_send_that_invalidates_its_stag() {
    for is_its_own in [true, false] {
        let mut pair = passed(|pair| {
            let stag = pair.b.stag;
            let other = if is_its_own { stag } else { stag ^ 1 };
            pair.a.post(2, Work::Send { invalidate: Some(other) }, &[]);
            let sge = pair.a.sge(0, 8);
            pair.a.post(3, Work::Write { stag, offset: BASE }, &[sge]);
        });
        assert_eq!(pair.b.bytes(0, 1), [7 * u8::from(!is_its_own)]);
    }
}

/// The immediate data that follow a write are told with its length, whatever has passed them.
#[test]
fn a_response_between_changes_nothing_of_what_waits() {
    let mut pair = Pair::ready();
    pair.b.rnic.let_wait(pair.b.qp, true);
    let (sge, stag) = (pair.a.sge(0, 40), pair.b.stag);
    let immediate = Work::WriteImmediate { stag, offset: BASE, immediate: [1, 2, 3, 4] };
    pair.a.post(1, immediate, &[sge]);
    let bytes = pair.a.transmit(1 << 16);
    pair.b.feed_all(&bytes);
    pair.b.post(11, Work::Read { stag: pair.a.stag, offset: BASE }, &[pair.b.sge(100, 8)]);
    pair.pump();
    assert_eq!(pair.b.sent(), [(11, Status::Success)]);
    pair.b.receive(70, &[]);
    pair.b.feed_all(&[]);
    let done = pair.b.poll(pair.b.receive_cq);
    assert_eq!((done.len(), done[0].len, done[0].immediate), (1, 40, Some([1, 2, 3, 4])));
}

/// RFC 5040 section 5.4: the peer sends nothing behind a Terminate message, so that no receive changes what it says.
#[test]
fn a_terminate_passes_messages_that_wait() {
    let mut pair = Pair::ready();
    pair.b.rnic.let_wait(pair.b.qp, true);
    let sge = pair.a.sge(0, 40);
    pair.a.send(1, &[sge]);
    pair.pump();
    assert!(pair.b.rnic.is_waiting(pair.b.qp));
    let sge = pair.b.sge(0, 8);
    pair.b.post(11, Work::Read { stag: pair.a.stag ^ 1, offset: BASE }, &[sge]);
    pair.pump();
    assert_eq!(pair.b.sent(), [(11, Status::RemoteAccess)]);
    assert!(!pair.b.rnic.is_waiting(pair.b.qp));
    assert_eq!(pair.b.state(), State::Err);
}

/// RFC 5042: a peer does not make grow what is kept.
#[test]
fn no_more_waits_than_there_is_room_for() {
    let mut host = alone();
    host.rnic.let_wait(host.qp, true);
    let payload = [5; 1000];
    let message = |msn| untagged(Opcode::Send, true, msn, 0, &payload);
    let mut kept = 0;
    for msn in 1.. {
        host.feed(&message(msn), usize::MAX);
        if !host.held.is_empty() {
            break;
        }
        assert!(!host.rnic.is_full(host.qp));
        kept += 1;
    }
    assert!(host.rnic.is_full(host.qp) && host.rnic.is_waiting(host.qp));
    assert!((PARKED_MAX - 1018 - 1018..=PARKED_MAX).contains(&(kept * 1018)), "{kept}");
    assert!(host.held.len() < 1100);
    // With receives all of them come, in their order, and what was held behind them.
    let mut all = Vec::new();
    for id in 0..=kept as u64 {
        let into = host.sge(0, 1000);
        host.receive(id, &[into]);
        host.feed(&[], usize::MAX);
        all.extend(host.received());
    }
    assert_eq!(all, (0..=kept as u64).map(|id| (id, Status::Success)).collect::<Vec<_>>());
    assert!(host.held.is_empty() && !host.rnic.is_waiting(host.qp) && !host.rnic.is_full(host.qp));
    assert_eq!(host.state(), State::Rts);
}

/// Nothing is left of what waits when its stream ends.
#[test]
fn what_waits_ends_with_its_stream() {
    for by_modify in [false, true] {
        let mut host = alone();
        host.rnic.let_wait(host.qp, true);
        host.feed_all(&untagged(Opcode::Send, true, 1, 0, b"one"));
        host.feed_all(&untagged(Opcode::Send, true, 2, 0, b"two"));
        assert!(host.rnic.is_waiting(host.qp));
        if by_modify {
            host.rnic.modify(host.qp, State::Err).unwrap();
        } else {
            host.rnic.stream_ended(host.qp);
        }
        assert!(!host.rnic.is_waiting(host.qp) && !host.rnic.is_full(host.qp));
        host.receive(1, &[]);
        assert_eq!(host.received(), [(1, Status::Flushed)]);
    }
}
