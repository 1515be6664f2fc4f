//! Windows, invalidation and fast registration.

use rdma::Status;
use rdma::ddp::TaggedError;
use rdma::rdmap::terminate::{Cause, Operation, Protection};
use rdma::verbs::{
    Access, Bind, Done, Event, FastRegister, Payload, SendRequest, State, WindowKind, Work,
};

use crate::world::{BASE, Pair};

const REMOTE: Access = Access::REMOTE_WRITE.and(Access::REMOTE_READ);

/// The next key of an STag, as `ibv_inc_rkey` has it.
fn next(stag: u32) -> u32 {
    stag & !0xff | (stag + 1) & 0xff
}

fn bind(pair: &Pair, window: u32, offset: u64, len: u64) -> Work {
    Work::Bind(Bind { window, region: pair.b.stag, offset: BASE + offset, len, access: REMOTE })
}

/// Whether A may write eight bytes there. A pair that may not is spent.
fn writes(pair: &mut Pair, stag: u32, offset: u64) -> bool {
    pair.a.bytes(0, 8).copy_from_slice(b"in there");
    pair.b.bytes(offset as usize, 8).fill(0);
    let sge = pair.a.sge(0, 8);
    pair.a.post(77, Work::Write { stag, offset: BASE + offset }, &[sge]);
    pair.pump();
    pair.a.sent();
    let landed = pair.b.bytes(offset as usize, 8) == b"in there";
    assert_eq!(landed, pair.b.state() == State::Rts);
    landed
}

/// B does this work, and it ends so.
fn done(pair: &mut Pair, work: Work) -> Status {
    pair.b.post(5, work, &[]);
    pair.pump();
    let completions = pair.b.poll(pair.b.send_cq);
    assert_eq!(completions.len(), 1, "{work:?}");
    completions[0].status
}

#[test]
fn a_window_is_as_large_as_it_was_bound() {
    for kind in [WindowKind::One, WindowKind::Two] {
        for (offset, granted) in [(99, false), (100, true), (112, true), (113, false)] {
            let mut pair = Pair::ready();
            let stag = next(pair.b.rnic.alloc_window(pair.b.pd, kind).unwrap());
            let work = bind(&pair, stag, 100, 20);
            assert_eq!(done(&mut pair, work), Status::Success);
            assert_eq!(writes(&mut pair, stag, offset), granted, "{kind:?}, {offset}");
        }
    }
}

#[test]
fn a_window_that_is_not_bound_grants_nothing() {
    let mut pair = Pair::ready();
    let stag = pair.b.rnic.alloc_window(pair.b.pd, WindowKind::One).unwrap();
    assert!(!writes(&mut pair, stag, 0));
    // Bound, the old key does not do.
    let mut pair = Pair::ready();
    let stag = pair.b.rnic.alloc_window(pair.b.pd, WindowKind::One).unwrap();
    let work = bind(&pair, next(stag), 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    assert!(!writes(&mut pair, stag, 0));
}

/// Type 1 is bound anew: another place and another key, or nothing at all.
#[test]
fn a_type_1_window_moves() {
    let mut pair = Pair::ready();
    let first = next(pair.b.rnic.alloc_window(pair.b.pd, WindowKind::One).unwrap());
    let work = bind(&pair, first, 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    assert!(writes(&mut pair, first, 0));
    let second = next(first);
    let work = bind(&pair, second, 1000, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    assert!(writes(&mut pair, second, 1000));
    // Its region cannot go meanwhile.
    assert!(pair.b.rnic.deregister(pair.b.stag).is_err());
    let third = next(second);
    let work = bind(&pair, third, 0, 0);
    assert_eq!(done(&mut pair, work), Status::Success);
    assert!(!writes(&mut pair, third, 1000));
    assert!(pair.b.rnic.deregister(pair.b.stag).is_ok());
}

/// Type 2 is invalidated, by its owner or by the peer, before it is bound again.
#[test]
fn a_type_2_window_is_invalidated() {
    let mut pair = Pair::ready();
    let stag = next(pair.b.rnic.alloc_window(pair.b.pd, WindowKind::Two).unwrap());
    let work = bind(&pair, stag, 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    assert!(writes(&mut pair, stag, 0));
    assert_eq!(done(&mut pair, Work::LocalInvalidate { stag }), Status::Success);
    // Again, with another key.
    let stag = next(stag);
    let work = bind(&pair, stag, 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    // By the peer.
    pair.b.receive(8, &[]);
    pair.a.post(1, Work::Send { invalidate: Some(stag) }, &[]);
    pair.pump();
    let received = pair.b.poll(pair.b.receive_cq);
    assert_eq!((received[0].status, received[0].invalidated), (Status::Success, Some(stag)));
    assert!(!writes(&mut pair, stag, 0));
}

#[test]
fn a_window_of_another_queue_pair() {
    let mut pair = Pair::ready();
    let stag = next(pair.b.rnic.alloc_window(pair.b.pd, WindowKind::Two).unwrap());
    let work = bind(&pair, stag, 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    // The queue pair that bound it begins again: the window does not come along.
    pair.b.rnic.modify(pair.b.qp, State::Reset).unwrap();
    let (here, there) = crate::world::negotiate(Default::default(), Default::default());
    pair.b.rnic.modify(pair.b.qp, State::Init).unwrap();
    pair.b.rnic.start(pair.b.qp, &there, 1448).unwrap();
    pair.a.rnic.modify(pair.a.qp, State::Reset).unwrap();
    pair.a.rnic.modify(pair.a.qp, State::Init).unwrap();
    pair.a.rnic.start(pair.a.qp, &here, 1448).unwrap();
    assert!(!writes(&mut pair, stag, 0));
}

/// What cannot be bound ends the queue pair of who tries.
#[test]
fn binds_that_are_refused() {
    let region = |pair: &mut Pair, access| pair.b.register(0x9000, 64, access);
    type Make = fn(&mut Pair, u32, &dyn Fn(&mut Pair, Access) -> u32) -> Work;
    let cases: [(&str, Make); 9] = [
        ("over the end", |pair, window, _| bind(pair, window, 65_530, 10)),
        ("no such region", |pair, window, _| {
            let Work::Bind(of) = bind(pair, window, 0, 8) else { unreachable!() };
            Work::Bind(Bind { region: 0x1200, ..of })
        }),
        ("no such window", |pair, _, _| bind(pair, 0x3400, 0, 8)),
        ("not a window", |pair, _, _| bind(pair, pair.b.stag, 0, 8)),
        ("no right to bind", |pair, window, region| {
            let region = region(pair, Access::LOCAL_WRITE.and(REMOTE));
            Work::Bind(Bind { window, region, offset: 0x9000, len: 8, access: REMOTE })
        }),
        ("a right to write that the region has not", |pair, window, region| {
            let region = region(pair, Access::WINDOW_BIND.and(Access::REMOTE_READ));
            Work::Bind(Bind { window, region, offset: 0x9000, len: 8, access: REMOTE })
        }),
        ("local rights", |pair, window, _| {
            let Work::Bind(of) = bind(pair, window, 0, 8) else { unreachable!() };
            Work::Bind(Bind { access: Access::LOCAL_WRITE, ..of })
        }),
        ("invalidated before it is bound", |_, window, _| Work::LocalInvalidate { stag: window }),
        ("invalidated though it is a region", |pair, _, _| Work::LocalInvalidate {
            stag: pair.b.stag,
        }),
    ];
    for (name, make) in cases {
        for kind in [WindowKind::One, WindowKind::Two] {
            let mut pair = Pair::ready();
            let window = next(pair.b.rnic.alloc_window(pair.b.pd, kind).unwrap());
            let work = make(&mut pair, window, &region);
            assert_eq!(done(&mut pair, work), Status::MemoryWindowBind, "{name}, {kind:?}");
            assert_eq!(pair.b.state(), State::Err);
            let told = pair.a.take_events();
            assert!(told.contains(&Event::Terminated(pair.a.qp, Cause::Local)));
        }
    }
    // A type 2 window that is bound already.
    let mut pair = Pair::ready();
    let stag = next(pair.b.rnic.alloc_window(pair.b.pd, WindowKind::Two).unwrap());
    let work = bind(&pair, stag, 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    let work = bind(&pair, next(stag), 0, 64);
    assert_eq!(done(&mut pair, work), Status::MemoryWindowBind);
}

#[test]
fn fast_registration() {
    let mut pair = Pair::ready();
    let stag = pair.b.rnic.alloc_region(pair.b.pd, 4096).unwrap();
    let memory = pair.b.handle(4096);
    let access = Access::LOCAL_WRITE.and(REMOTE);
    let of = |stag, len| FastRegister { stag, iova: BASE, len, access, memory };
    let key = next(stag);
    assert_eq!(done(&mut pair, Work::FastRegister(of(key, 4096))), Status::Success);
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, Work::Write { stag: key, offset: BASE + 4088 }, &[sge]);
    pair.pump();
    assert_eq!(pair.b.state(), State::Rts);
    // The peer may take it away.
    pair.b.receive(8, &[]);
    pair.a.post(2, Work::Send { invalidate: Some(key) }, &[]);
    pair.pump();
    assert_eq!(pair.b.received(), [(8, Status::Success)]);
    // And the owner register it anew, and take it away itself.
    let key = next(key);
    assert_eq!(done(&mut pair, Work::FastRegister(of(key, 8))), Status::Success);
    assert_eq!(done(&mut pair, Work::LocalInvalidate { stag: key }), Status::Success);
    // Too long, and while it is valid.
    assert_eq!(done(&mut pair, Work::FastRegister(of(key, 4097))), Status::MemoryWindowBind);
    let mut pair = Pair::ready();
    let stag = pair.b.rnic.alloc_region(pair.b.pd, 64).unwrap();
    let memory = pair.b.handle(64);
    let of = FastRegister { stag, iova: 0, len: 64, access, memory };
    assert_eq!(done(&mut pair, Work::FastRegister(of)), Status::Success);
    assert_eq!(done(&mut pair, Work::FastRegister(of)), Status::MemoryWindowBind);
}

/// RFC 5040 sections 5.3 and 7.2: what a peer cannot invalidate ends the stream.
#[test]
fn a_peer_that_invalidates_what_it_cannot() {
    let cannot = Cause::Operation(Operation::CannotInvalidate);
    let denied = Cause::Protection(Protection::CannotInvalidate);
    type Make = fn(&mut Pair) -> u32;
    let cases: [(&str, Make, Cause); 5] = [
        ("nothing", |_| 0x4500, cannot),
        ("a region", |pair| pair.b.stag, cannot),
        ("another key", |pair| pair.b.stag ^ 1, cannot),
        (
            "no remote access",
            |pair| {
                let stag = pair.b.rnic.alloc_region(pair.b.pd, 64).unwrap();
                let memory = pair.b.handle(64);
                let access = Access::LOCAL_WRITE;
                let of = FastRegister { stag, iova: 0, len: 64, access, memory };
                pair.b.post(1, Work::FastRegister(of), &[]);
                stag
            },
            denied,
        ),
        (
            "another domain",
            |pair| {
                let pd = pair.b.rnic.alloc_pd().unwrap();
                pair.b.rnic.alloc_region(pd, 64).unwrap()
            },
            cannot,
        ),
    ];
    for (name, make, cause) in cases {
        let mut pair = Pair::ready();
        let stag = make(&mut pair);
        pair.pump();
        pair.b.receive(8, &[]);
        pair.a.post(1, Work::Send { invalidate: Some(stag) }, &[]);
        pair.pump();
        assert_eq!(pair.b.received(), [(8, Status::RemoteInvalidRequest)], "{name}");
        let told = pair.a.take_events();
        assert!(told.contains(&Event::Terminated(pair.a.qp, cause)), "{name}: {told:?}");
    }
}

/// Invalidation is done at its place among the posts and among the messages.
#[test]
fn invalidation_follows_the_order() {
    let mut pair = Pair::ready();
    let stag = next(pair.b.rnic.alloc_window(pair.b.pd, WindowKind::Two).unwrap());
    let work = bind(&pair, stag, 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    pair.b.receive(8, &[]);
    pair.a.bytes(0, 8).copy_from_slice(b"in there");
    let sge = pair.a.sge(0, 8);
    // Written, invalidated, written: all three in one turn of the peer's.
    pair.a.post(1, Work::Write { stag, offset: BASE }, &[sge]);
    pair.a.post(2, Work::Send { invalidate: Some(stag) }, &[]);
    pair.a.post(3, Work::Write { stag, offset: BASE + 16 }, &[sge]);
    pair.pump();
    assert_eq!(pair.b.bytes(0, 8), b"in there");
    assert_eq!(pair.b.bytes(16, 8), [0; 8]);
    assert_eq!(pair.b.received(), [(8, Status::Success)]);
    let told = pair.a.take_events();
    assert!(told.contains(&Event::Terminated(pair.a.qp, TaggedError::InvalidStag.into())));
    // Locally: what was posted before an invalidation has read its region, what is behind it does not.
    let mut pair = Pair::ready();
    let local = pair.a.rnic.alloc_region(pair.a.pd, 64).unwrap();
    let memory = pair.a.handle(64);
    let access = Access::LOCAL_WRITE;
    let of = FastRegister { stag: local, iova: 0, len: 64, access, memory };
    let sge = rdma::verbs::Sge { addr: 0, len: 8, lkey: local };
    let write = Work::Write { stag: pair.b.stag, offset: BASE };
    pair.a.post(1, Work::FastRegister(of), &[]);
    pair.a.post(2, write, &[sge]);
    pair.a.post(3, Work::LocalInvalidate { stag: local }, &[]);
    pair.a.post(4, write, &[sge]);
    pair.pump();
    let done = pair.a.poll(pair.a.send_cq);
    let ends: Vec<_> = done.iter().map(|of| (of.wr_id, of.status)).collect();
    let success = |id| (id, Status::Success);
    assert_eq!(ends, [success(1), success(2), success(3), (4, Status::LocalProtection)]);
    assert_eq!((done[0].done, done[2].done), (Done::FastRegister, Done::LocalInvalidate));
}

/// An lkey is never a window's.
#[test]
fn a_window_is_not_local_memory() {
    let mut pair = Pair::ready();
    let stag = next(pair.b.rnic.alloc_window(pair.b.pd, WindowKind::One).unwrap());
    let work = bind(&pair, stag, 0, 64);
    assert_eq!(done(&mut pair, work), Status::Success);
    let sge = rdma::verbs::Sge { addr: BASE, len: 8, lkey: stag };
    let (payload, flags) = (Payload::Sges(&[sge]), Default::default());
    let work = Work::Send { invalidate: None };
    pair.b.rnic.post_send(pair.b.qp, &SendRequest { wr_id: 1, work, payload, flags }).unwrap();
    pair.pump();
    assert_eq!(pair.b.sent(), [(1, Status::LocalProtection)]);
}
