//! The table of `status`: what is refused, what completes how, and what the peer hears.

use rdma::Status;
use rdma::ddp::{self, TaggedError, UntaggedError};
use rdma::rdmap::atomic::Operation as Atomic;
use rdma::rdmap::terminate::{Cause, Operation, Protection};
use rdma::verbs::{Access, Event, Flags, Payload, Registration, Sge, State, Work};

use crate::world::{BASE, LEN, Pair, Setup};

/// What the peer is told, and what both sides' work ends as.
#[derive(Debug, PartialEq)]
struct Outcome {
    a: Vec<(u64, Status)>,
    b: Vec<(u64, Status)>,
    /// Told by one of them.
    cause: Cause,
}

fn run(pair: &mut Pair) -> Outcome {
    pair.pump();
    assert_eq!((pair.a.state(), pair.b.state()), (State::Err, State::Err));
    let mut told = pair.a.take_events();
    let at_b = pair.b.take_events();
    pair.b.events.clone_from(&at_b);
    told.extend(at_b);
    let cause = told.iter().find_map(|event| match event {
        Event::Terminated(_, cause) => Some(*cause),
        _ => None,
    });
    let (a, b) = (pair.a.sent(), pair.b.received());
    Outcome { a, b, cause: cause.unwrap() }
}

/// A region of B's that is not the usual one.
fn region(pair: &mut Pair, access: Access) -> u32 {
    pair.b.register(0x5000, 4096, access)
}

/// How often memory was not granted: for its STag, its bounds, its rights and its domain.
fn reasons(pair: &Pair) -> [u64; 4] {
    let counters = pair.b.rnic.counters();
    [counters.stag_errors, counters.bounds_errors, counters.access_errors, counters.domain_errors]
}

fn expected_reasons(protection: Protection) -> [u64; 4] {
    match protection {
        Protection::InvalidStag => [1, 0, 0, 0],
        Protection::Bounds | Protection::Wrap => [0, 1, 0, 0],
        Protection::NotAssociated => [0, 0, 0, 1],
        _ => [0, 0, 1, 0],
    }
}

/// Each way in which a peer's memory may not be reached: by whom, and how it is told.
#[test]
fn memory_of_the_peer_that_is_not_granted() {
    // STag and offset, eight bytes; how DDP and how RDMAP tell of it.
    type Case = (&'static str, fn(&mut Pair) -> (u32, u64), TaggedError, Protection);
    let cases: [Case; 7] = [
        (
            "not registered",
            |_| (0x7777_7700, BASE),
            TaggedError::InvalidStag,
            Protection::InvalidStag,
        ),
        (
            "wrong key",
            |pair| (pair.b.stag ^ 1, BASE),
            TaggedError::InvalidStag,
            Protection::InvalidStag,
        ),
        (
            "over the end",
            |pair| (pair.b.stag, BASE + LEN as u64 - 7),
            TaggedError::Bounds,
            Protection::Bounds,
        ),
        (
            "before the begin",
            |pair| (pair.b.stag, BASE - 1),
            TaggedError::Bounds,
            Protection::Bounds,
        ),
        ("over 2^64", |pair| (pair.b.stag, u64::MAX - 3), TaggedError::Wrap, Protection::Wrap),
        (
            "another domain",
            |pair| {
                let pd = pair.b.rnic.alloc_pd().unwrap();
                let memory = pair.b.handle(64);
                let access = Access::ALL;
                let of = Registration { pd, iova: 0x5000, len: 64, access, memory };
                (pair.b.rnic.register(of).unwrap(), 0x5000)
            },
            TaggedError::NotAssociated,
            Protection::NotAssociated,
        ),
        (
            "gone",
            |pair| {
                let stag = region(pair, Access::ALL);
                pair.b.rnic.deregister(stag).unwrap();
                (stag, 0x5000)
            },
            TaggedError::InvalidStag,
            Protection::InvalidStag,
        ),
    ];
    for (name, place, ddp, rdmap) in cases {
        let mut pair = Pair::ready();
        let (stag, offset) = place(&mut pair);
        let sge = pair.a.sge(0, 8);
        pair.a.post(1, Work::Write { stag, offset }, &[sge]);
        let writes = pair.b.ram.log.len();
        // The write is complete: the stream has it. What the peer says comes too late for it.
        let expected = Outcome { a: vec![(1, Status::Success)], b: vec![], cause: ddp.into() };
        assert_eq!(run(&mut pair), expected, "{name}");
        assert_eq!(pair.b.take_events()[0], Event::QpAccessError(pair.b.qp, ddp.into()), "{name}");
        assert_eq!(reasons(&pair), expected_reasons(rdmap), "{name}");
        let atomic = Work::Atomic { stag, offset, operation: Atomic::fetch_add(1) };
        for work in [Work::Read { stag, offset }, atomic] {
            let is_atomic = work == atomic;
            if is_atomic && offset % 8 != 0 {
                continue;
            }
            let mut pair = Pair::ready();
            let (stag, offset) = place(&mut pair);
            let work = match work {
                Work::Read { .. } => Work::Read { stag, offset },
                _ => Work::Atomic { stag, offset, operation: Atomic::fetch_add(1) },
            };
            let sge = pair.a.sge(0, 8);
            pair.a.post(1, work, &[sge]);
            pair.a.post(2, Work::Send { invalidate: None }, &[]);
            let cause = Cause::Protection(rdmap);
            let outcome = run(&mut pair);
            assert_eq!(outcome.cause, cause, "{name}");
            assert_eq!(reasons(&pair), expected_reasons(rdmap), "{name}");
            assert_eq!(outcome.a[0], (1, Status::RemoteAccess), "{name}");
            assert_eq!(pair.b.ram.log.len(), writes);
        }
    }
    // Rights: each alone does not do for the others.
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    for granted in rights {
        for needed in rights {
            let mut pair = Pair::ready();
            let stag = region(&mut pair, granted.and(Access::LOCAL_WRITE));
            let offset = 0x5000;
            let work = match needed {
                Access::REMOTE_WRITE => Work::Write { stag, offset },
                Access::REMOTE_READ => Work::Read { stag, offset },
                _ => Work::Atomic { stag, offset, operation: Atomic::fetch_add(1) },
            };
            let sge = pair.a.sge(0, 8);
            pair.a.post(1, work, &[sge]);
            pair.pump();
            let is_well = granted == needed;
            assert_eq!(pair.b.state() == State::Rts, is_well, "{granted:?} for {needed:?}");
            if !is_well {
                assert_eq!(run(&mut pair).cause, Cause::Protection(Protection::Access));
            }
        }
    }
}

/// RFC 5040 section 5.2: what has no bytes names no memory.
#[test]
fn nothing_is_looked_at_if_there_are_no_bytes() {
    let mut pair = Pair::ready();
    let nowhere = Sge { addr: 1, len: 0, lkey: 0x1234 };
    pair.b.receive(5, &[nowhere]);
    pair.a.post(1, Work::Write { stag: 0xbad, offset: u64::MAX }, &[nowhere]);
    pair.a.post(2, Work::Read { stag: 0xbad, offset: 3 }, &[nowhere]);
    pair.a.post(3, Work::Read { stag: 0xbad, offset: 3 }, &[]);
    pair.a.send(4, &[nowhere]);
    pair.pump();
    let sent = pair.a.sent();
    assert_eq!(sent, [1, 2, 3, 4].map(|id| (id, Status::Success)));
    assert_eq!(pair.b.received(), [(5, Status::Success)]);
}

/// Local memory that does not do, for each kind of work.
#[test]
fn local_memory_that_is_not_registered() {
    let read_only = Access::REMOTE_READ;
    for (name, lkey, addr, len) in [
        ("not registered", Some(0x9900), BASE, 8),
        ("wrong key", None, BASE, 8),
        ("over the end", Some(0), BASE + LEN as u64 - 4, 8),
        ("before the begin", Some(0), BASE - 1, 8),
        ("over 2^64", Some(0), u64::MAX - 3, 8),
    ] {
        for kind in 0..4 {
            let mut pair = Pair::ready();
            let lkey = match lkey {
                Some(0) => pair.a.stag,
                Some(other) => other,
                None => pair.a.stag ^ 5,
            };
            let sge = Sge { addr, len, lkey };
            let (stag, offset) = (pair.b.stag, BASE);
            let work = match kind {
                0 => Work::Write { stag, offset },
                1 => Work::Send { invalidate: None },
                2 => Work::Read { stag, offset },
                _ => Work::Atomic { stag, offset, operation: Atomic::fetch_add(1) },
            };
            let good = pair.a.sge(0, 8);
            pair.b.receive(9, &[]);
            pair.a.post(1, Work::Write { stag, offset }, &[good]);
            pair.a.post(2, work, &[sge]);
            pair.a.post(3, Work::Write { stag, offset }, &[good]);
            let outcome = run(&mut pair);
            let expected =
                [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
            assert_eq!(outcome.a, expected, "{name}, {kind}");
            assert_eq!(outcome.b, [(9, Status::Flushed)]);
            assert_eq!(outcome.cause, Cause::Local);
            assert_eq!(pair.a.rnic.counters().local_errors, 1);
        }
    }
    // What comes back needs the right to write.
    let mut pair = Pair::ready();
    let lkey = pair.a.register(0x8000, 64, read_only);
    let sge = Sge { addr: 0x8000, len: 8, lkey };
    pair.a.post(1, Work::Read { stag: pair.b.stag, offset: BASE }, &[sge]);
    assert_eq!(run(&mut pair).a, [(1, Status::LocalProtection)]);
}

#[test]
fn a_receive_whose_memory_does_not_do() {
    let mut pair = Pair::ready();
    let lkey = pair.b.register(0x8000, 64, Access::REMOTE_READ);
    pair.b.receive(5, &[Sge { addr: 0x8000, len: 8, lkey }]);
    pair.b.receive(6, &[]);
    let sge = pair.a.sge(0, 8);
    pair.a.send(1, &[sge]);
    let outcome = run(&mut pair);
    assert_eq!(outcome.b, [(5, Status::LocalProtection), (6, Status::Flushed)]);
    assert_eq!(outcome.cause, Cause::Ddp(ddp::Error::Catastrophic));
}

#[test]
fn a_send_that_is_longer_than_its_receive() {
    for (emss, len) in [(1448, 9), (200, 2000)] {
        let mut pair = Pair::ready_with(&Setup { emss, ..Setup::default() });
        let into = pair.b.sge(0, len - 1);
        pair.b.receive(5, &[into]);
        pair.b.receive(6, &[into]);
        let sge = pair.a.sge(0, len);
        pair.a.send(1, &[sge]);
        let outcome = run(&mut pair);
        assert_eq!(outcome.a, [(1, Status::Success)]);
        assert_eq!(outcome.b, [(5, Status::LocalLength), (6, Status::Flushed)]);
        assert_eq!(outcome.cause, UntaggedError::TooLong.into());
        assert_eq!(pair.b.rnic.counters().length_errors, 1);
    }
}

/// A Send that is still being sent when the peer refuses it fails itself.
#[test]
fn a_send_that_is_refused_while_it_is_sent() {
    let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
    let sge = pair.a.sge(0, 20_000);
    pair.a.post(1, Work::Write { stag: pair.b.stag, offset: BASE }, &[]);
    pair.a.send(2, &[sge]);
    pair.a.send(3, &[sge]);
    let first = pair.a.transmit(1000);
    pair.b.feed_all(&first);
    let answer = pair.b.transmit(1000);
    pair.a.feed_all(&answer);
    let outcome = run(&mut pair);
    assert_eq!(outcome.cause, UntaggedError::NoBuffer.into());
    let statuses = [Status::Success, Status::RemoteInvalidRequest, Status::Flushed];
    let expected: Vec<_> = [1, 2, 3].into_iter().zip(statuses).collect();
    assert_eq!(outcome.a, expected);
    assert_eq!(pair.b.rnic.counters().no_buffer_errors, 1);
    // So does a write.
    let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
    pair.a.post(1, Work::Write { stag: 0x1100, offset: BASE }, &[sge]);
    let first = pair.a.transmit(1000);
    pair.b.feed_all(&first);
    let answer = pair.b.transmit(1000);
    pair.a.feed_all(&answer);
    assert_eq!(run(&mut pair).a, [(1, Status::RemoteAccess)]);
}

/// Work of which nothing is sent is not what the peer has refused, even if it is for the same place.
#[test]
fn a_write_that_has_had_no_room() {
    let mut pair = Pair::ready();
    let (stag, offset) = (0x1100, BASE);
    let sge = pair.a.sge(0, 1000);
    pair.a.post(1, Work::Write { stag, offset }, &[sge]);
    pair.a.post(2, Work::Write { stag, offset }, &[sge]);
    let first = pair.a.transmit(1100);
    assert_eq!(pair.a.sent(), [(1, Status::Success)]);
    pair.b.feed_all(&first);
    let answer = pair.b.transmit(1000);
    pair.a.feed_all(&answer);
    assert_eq!(run(&mut pair).a, [(2, Status::Flushed)]);
}

#[test]
fn an_atomic_that_is_not_aligned() {
    for offset in 1..8 {
        let mut pair = Pair::ready();
        let (stag, offset) = (pair.b.stag, BASE + offset);
        let sge = pair.a.sge(0, 8);
        pair.a.post(1, Work::Atomic { stag, offset, operation: Atomic::fetch_add(1) }, &[sge]);
        let outcome = run(&mut pair);
        assert_eq!(outcome.cause, Cause::Operation(Operation::CatastrophicStream));
        assert_eq!(outcome.a, [(1, Status::RemoteInvalidRequest)]);
        assert_eq!(pair.b.rnic.counters().atomics, 0);
    }
}

#[test]
fn a_read_with_no_ord() {
    let mut setup = Setup::default();
    setup.config.ord = 0;
    let mut pair = Pair::ready_with(&setup);
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, Work::Read { stag: pair.b.stag, offset: BASE }, &[sge]);
    pair.a.send(2, &[]);
    let outcome = run(&mut pair);
    assert_eq!(outcome.a, [(1, Status::LocalOperation), (2, Status::Flushed)]);
}

/// Memory that is registered and not there: the application has unmapped it, or is gone.
#[test]
fn memory_that_is_gone() {
    // A target of a write.
    let mut pair = Pair::ready();
    let sge = pair.a.sge(0, 8);
    let work = Work::Write { stag: pair.b.stag, offset: BASE };
    pair.a.post(1, work, &[sge]);
    pair.b.ram.buffers.clear();
    let outcome = run(&mut pair);
    assert_eq!(outcome.cause, Cause::Ddp(ddp::Error::Catastrophic));
    // That of a receive: receives before it are complete, the one that failed says so.
    let mut pair = Pair::ready();
    let lkey = pair.b.register(0x8000, 64, Access::LOCAL_WRITE);
    let into = pair.b.sge(0, 8);
    pair.b.receive(5, &[into]);
    pair.b.receive(6, &[Sge { addr: 0x8000, len: 8, lkey }]);
    pair.b.receive(7, &[into]);
    pair.b.receive(8, &[into]);
    pair.b.ram.buffers.remove(&2);
    for id in 1..=3 {
        pair.a.send(id, &[sge]);
    }
    let outcome = run(&mut pair);
    let statuses = [Status::Success, Status::LocalProtection, Status::Flushed, Status::Flushed];
    let expected: Vec<_> = [5, 6, 7, 8].into_iter().zip(statuses).collect();
    assert_eq!(outcome.b, expected);
    // That of a send: what is before it is sent, and arrives.
    let mut pair = Pair::ready();
    let lkey = pair.a.register(0x8000, 64, Access::LOCAL_WRITE);
    pair.a.bytes(0, 4).copy_from_slice(b"sent");
    let first = pair.a.sge(0, 4);
    pair.a.post(1, work, &[first]);
    pair.a.post(2, work, &[Sge { addr: 0x8000, len: 8, lkey }]);
    pair.a.post(3, work, &[first]);
    pair.a.ram.buffers.remove(&2);
    let outcome = run(&mut pair);
    assert_eq!(pair.b.bytes(0, 4), b"sent");
    let expected = [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
    assert_eq!(outcome.a, expected);
    // That of a read's source, found when the response is made.
    let mut pair = Pair::ready();
    pair.b.ram.buffers.clear();
    pair.a.post(1, Work::Read { stag: pair.b.stag, offset: BASE }, &[sge]);
    assert_eq!(run(&mut pair).a, [(1, Status::Flushed)]);
}

/// A region that goes while a response is half sent.
#[test]
fn a_source_that_goes_while_it_is_read() {
    let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
    let stag = pair.b.register(0x5000, 8192, Access::REMOTE_READ);
    let sge = pair.a.sge(0, 8192);
    pair.a.post(1, Work::Read { stag, offset: 0x5000 }, &[sge]);
    let request = pair.a.transmit(4096);
    pair.b.feed_all(&request);
    let part = pair.b.transmit(1000);
    pair.a.feed_all(&part);
    pair.b.rnic.deregister(stag).unwrap();
    let outcome = run(&mut pair);
    assert_eq!(outcome.cause, Cause::Protection(Protection::InvalidStag));
    assert_eq!(outcome.a, [(1, Status::RemoteAccess)]);
}

/// Errors are never silent, signaled or not.
#[test]
fn unsignaled_work_that_fails_completes() {
    let mut pair = Pair::ready();
    let bad = Sge { addr: BASE, len: 1, lkey: 3 };
    let send = Work::Send { invalidate: None };
    pair.a.post_with(1, send, Payload::Sges(&[bad]), Flags::default());
    pair.a.post_with(2, send, Payload::Sges(&[]), Flags::default());
    assert_eq!(run(&mut pair).a, [(1, Status::LocalProtection), (2, Status::Flushed)]);
}
