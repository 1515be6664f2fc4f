//! A connection that changes sides at random, in virtual time: a kernel (another engine), an application with both
//! ways to its connection, a peer behind a wire that loses, and the NIC between, whose workers see the connection's
//! packets by queues that change at random. Every byte arrives once and in order, in both directions, whoever runs the
//! connection when it is written and read.

mod application;
mod crowd;
mod echo;
mod forged;
mod nic;
mod tcpip;
mod world;

use handoff::command::nic::Ctrl;
use handoff::machine::{ToNic, Where};
use handoff::session::status::Place;
use handoff::{Epoch, RestoreReason};
use proptest::prelude::*;

use self::nic::CHUNKS;
use self::tcpip::Tcpip;
use self::world::*;
use super::link::{Key, ToWorker};

proptest! {
    #[test]
    fn a_connection_that_changes_sides_loses_nothing(
        workers in 1..4_usize,
        choices in proptest::collection::vec(any::<u8>(), 50..1000),
        loss in prop_oneof![Just(0), Just(0), 1_usize..12],
        delay in prop_oneof![Just(0), 1_usize..240],
        full in prop_oneof![Just(0), 1_usize..128],
        lazy in prop_oneof![Just(None), (0_usize..250).prop_map(Some)],
        total in 1_usize..300_000,
    ) {
        let mut world = World::new((workers, lazy.is_some_and(|_| workers > 1)), choices, loss);
        (world.delay, world.full, world.lazy) = (delay, full, lazy.unwrap_or(0));
        world.run(total);
        (world.delay, world.full, world.lazy) = (0, 0, 0);
        prop_assert_eq!((world.out.received, world.back.received), (total, total));
        // It goes back, and there is nothing left at the NIC.
        world.want_back();
        for _ in 0..1000 {
            world.turn();
        }
        prop_assert_eq!(world.crossing.place(), Where::Os);
        prop_assert_eq!(world.handoffs, world.restores);
        for worker in &mut world.nic.workers {
            worker.turn(world.now).unwrap();
            prop_assert_eq!(worker.pool().available(), CHUNKS as usize, "frames are missing");
            prop_assert_eq!(worker.strays_dropped(), 0);
        }
        prop_assert_eq!(world.counts.lost + world.counts.abandoned, 0);
    }
}

proptest! {
    /// Packets that come by one queue keep their order, whichever worker has the connection, and whoever runs it; so do
    /// those that leave.
    #[test]
    fn a_connection_whose_packets_keep_their_queue_stays_in_order(
        workers in 1..4_usize,
        choices in proptest::collection::vec(any::<u8>(), 50..1000),
        delay in prop_oneof![Just(0), 1_usize..240],
        late in 0..220_usize,
        queue in 0..3_usize,
        total in 1_usize..300_000,
    ) {
        let mut world = World::new((workers, false), choices, 0);
        (world.delay, world.late) = (delay, late);
        // Its worker is that of another queue, most often, once it has moved for the first time.
        world.pick();
        (0..20).for_each(|_| world.turn());
        world.keeps_queue = true;
        world.nic.move_inbound(queue);
        let late = |world: &World| {
            let of = |host: &Tcpip| host.node.stack.counters().out_of_order;
            (of(&world.kernel), of(&world.peer), world.nic.late_and_lost().0)
        };
        let before = late(&world);
        world.run(total);
        // What comes behind one that was lost is out of order.
        if world.nic.late_and_lost().1 == 0 {
            prop_assert_eq!(late(&world), before, "at the kernel, the peer and the NIC");
        }
    }
}

proptest! {
    /// The NIC dies before or after any commit, and the kernel goes on from its records and the rings.
    #[test]
    fn a_nic_that_dies_loses_nothing(
        workers in 1..4_usize,
        choices in proptest::collection::vec(any::<u8>(), 50..1000),
        loss in prop_oneof![Just(0), Just(0), 1_usize..12],
        total in 1_usize..300_000,
        at in prop_oneof![0_u64..50, 0_u64..3000],
        ahead in prop_oneof![Just(0), 0_u64..50_000_000],
    ) {
        let mut world = World::new((workers, false), choices, loss);
        world.ahead = ahead;
        world.nic.death.lock().unwrap().at = Some(at);
        world.run(total);
        prop_assert_eq!((world.out.received, world.back.received), (total, total));
    }
}

proptest! {
    /// Whatever another process writes into its own memory, this one's connection does not notice.
    #[test]
    fn a_hostile_application_harms_itself_alone(
        workers in 1..3_usize,
        choices in proptest::collection::vec(any::<u8>(), 50..1000),
        total in 1_usize..100_000,
        gives_back: bool,
    ) {
        let mut world = World::new((workers, false), choices, 0);
        world.add_hostile();
        world.run(total);
        if gives_back {
            let (key, tag) = (Key { session: 1, cid: CID }, Epoch(1).tag());
            let told = ToNic::Restore(RestoreReason::Command);
            world.ways.tell(0, ToWorker::Told { key, tag, told });
        }
        world.ways.tell_all(|| ToWorker::End { session: 1, resets: [].into(), stay: [].into() });
        for _ in 0..20 {
            world.turn();
        }
        prop_assert_eq!((world.out.received, world.back.received), (total, total));
    }
}

/// Both ends close while the NIC has the connection: the application sees the end of the stream, the peer too, and
/// the NIC forgets it.
#[test]
fn a_connection_ends_at_the_nic() {
    let mut world = World::new((1, false), vec![255; 8], 0);
    world.pick();
    for _ in 0..10 {
        world.turn();
    }
    assert_eq!((world.crossing.place(), world.status().place), (Where::Nic, Place::Nic));
    world.write(1000, 1000);
    let id = world.peer_id;
    let peer = &mut world.peer.node.stack;
    peer.socket(id, world.now).unwrap().shutdown();
    for _ in 0..10 {
        world.turn();
    }
    assert!(world.status().peer_closed);
    let close = handoff::command::NicControl::Close;
    let close = Ctrl { cmd: close, ..Ctrl::new(CID, world.crossing.epoch()) };
    world.command(close.into());
    for _ in 0..20 {
        world.turn();
    }
    let bytes = world.peer.recv(id, 2000, world.now);
    world.out.take(&bytes);
    assert_eq!(bytes.len(), 1000);
    assert!(world.peer.node.stack.socket(id, world.now).unwrap().is_at_end());
    for _ in 0..10 {
        world.now += 60 * SECOND;
        world.turn();
    }
    assert_eq!(world.crossing.place(), Where::Closed);
}

/// What the application has written leaves before the reset by which it closes, with bytes unread or without lingering, and
/// so does the end that it has shut.
#[test]
fn what_was_written_leaves_before_a_reset() {
    use handoff::command::NicControl::{Abort, Close, ShutdownWrite};
    for (commands, has_unread, bytes) in [
        (&[Close][..], true, 1000),
        (&[Abort], false, 1000),
        (&[Abort], true, 1000),
        (&[ShutdownWrite, Close], true, 1000),
        (&[ShutdownWrite, Abort], false, 0),
    ] {
        let mut world = World::new((1, false), vec![255; 8], 0);
        world.pick();
        (0..10).for_each(|_| world.turn());
        assert_eq!(world.crossing.place(), Where::Nic);
        world.may_reset = true;
        let (id, now) = (world.peer_id, world.now);
        if has_unread {
            world.peer.send(id, b"not read", now);
            (0..10).for_each(|_| world.turn());
        }
        world.write(bytes, bytes);
        for cmd in commands {
            world.command(Ctrl { cmd: *cmd, ..Ctrl::new(CID, world.crossing.epoch()) }.into());
        }
        (0..20).for_each(|_| world.turn());
        let came = world.peer.recv(id, 2 * bytes, world.now);
        assert_eq!(came.len(), world.out.sent, "{commands:?}");
        world.out.take(&came);
        let peer = world.peer.node.stack.connection(id).map(|peer| (peer.end(), peer.ended_in()));
        let was_told = commands.contains(&ShutdownWrite);
        let state = if was_told { tcp::State::CloseWait } else { tcp::State::Established };
        assert_eq!(peer, Some((Some(tcp::Reason::Reset), Some(state))), "{commands:?}");
        assert_eq!(world.crossing.place(), Where::Closed, "{commands:?}");
    }
}

/// The same where the peer's bytes come with the packets that the close is found beside.
#[test]
fn what_was_written_leaves_though_bytes_come_as_it_is_closed() {
    let mut world = World::new((1, false), vec![255; 8], 0);
    world.pick();
    (0..10).for_each(|_| world.turn());
    assert_eq!(world.crossing.place(), Where::Nic);
    world.may_reset = true;
    let (id, now) = (world.peer_id, world.now);
    world.peer.send(id, b"not read", now);
    world.write(1000, 1000);
    let cmd = handoff::command::NicControl::Close;
    world.command(Ctrl { cmd, ..Ctrl::new(CID, world.crossing.epoch()) }.into());
    (0..20).for_each(|_| world.turn());
    let came = world.peer.recv(id, 2000, world.now);
    assert_eq!(came.len(), world.out.sent);
    world.out.take(&came);
    let end = world.peer.node.stack.connection(id).and_then(|peer| peer.end());
    assert_eq!(end, Some(tcp::Reason::Reset));
    assert_eq!(world.crossing.place(), Where::Closed);
}

/// A process resets a connection and ends at once: the NIC may find the one with the other.
#[test]
fn a_reset_is_one_though_the_process_ends() {
    for turns in 0..3 {
        let mut world = World::new((1, false), vec![255; 8], 0);
        world.pick();
        (0..10).for_each(|_| world.turn());
        assert_eq!(world.crossing.place(), Where::Nic);
        world.may_reset = true;
        let cmd = handoff::command::NicControl::Abort;
        world.command(Ctrl { cmd, ..Ctrl::new(CID, world.crossing.epoch()) }.into());
        (0..turns).for_each(|_| world.turn());
        world.ways.tell_all(|| ToWorker::End { session: 0, resets: [].into(), stay: [].into() });
        (0..20).for_each(|_| world.turn());
        let peer = world.peer.node.stack.connection(world.peer_id);
        let end = peer.map(|peer| (peer.end(), peer.ended_in()));
        let reset = (Some(tcp::Reason::Reset), Some(tcp::State::Established));
        assert_eq!(end, Some(reset), "after {turns} turns");
    }
}

/// Application and peer wait for each other: the one writes what there is room for when the other has acknowledged all.
#[test]
fn a_send_ring_grows_that_is_full_whenever_it_is_not_empty() {
    let mut world = World::new((1, false), vec![255; 8], 0);
    world.pick();
    (0..10).for_each(|_| world.turn());
    assert_eq!(world.crossing.place(), Where::Nic);
    let most = application::layout(1).send as usize;
    let mut rooms = Vec::new();
    while rooms.len() < 40 && rooms.last() != Some(&most) {
        let before = world.out.sent;
        world.write(most, usize::MAX);
        rooms.push(world.out.sent - before);
        while world.out.received < world.out.sent {
            world.turn();
            let bytes = world.peer.recv(world.peer_id, most, world.now);
            world.out.take(&bytes);
        }
        (0..10).for_each(|_| world.turn());
    }
    assert_eq!(rooms.last(), Some(&most), "{rooms:?}");
}

/// The peer's FIN comes when this end has sent its own, and just then the connection is to go back: it is over, as no
/// kernel takes it, and the peer hears that its FIN has come.
#[test]
fn a_peer_that_closes_last_is_answered_though_the_connection_is_wanted_back() {
    for turns in 0..6 {
        let mut world = World::new((1, false), vec![255; 8], 0);
        world.pick();
        (0..10).for_each(|_| world.turn());
        let cmd = handoff::command::NicControl::ShutdownWrite;
        let shut = Ctrl { cmd, ..Ctrl::new(CID, world.crossing.epoch()) };
        world.command(shut.into());
        (0..10).for_each(|_| world.turn());
        let (id, now) = (world.peer_id, world.now);
        world.peer.node.stack.socket(id, now).unwrap().shutdown();
        (0..turns).for_each(|_| world.turn());
        world.want_back();
        (0..10).for_each(|_| world.turn());
        let peer = world.peer.node.stack.socket(id, world.now);
        let end = peer.map(|peer| (peer.end(), peer.state()));
        assert_eq!(end, Some((Some(tcp::Reason::Closed), tcp::State::Closed)), "after {turns}");
    }
}

/// Where there is no more room a connection goes back that nobody uses, and one that is used does not.
#[test]
fn an_idle_connection_makes_room() {
    let mut world = World::new((1, false), vec![255; 8], 0);
    world.pick();
    let turns = |world: &mut World| (0..10).for_each(|_| world.turn());
    turns(&mut world);
    for _ in 0..3 {
        world.write(1000, 10_000);
        turns(&mut world);
        world.ways.tell(0, ToWorker::MakeRoom { reason: RestoreReason::Connections });
        turns(&mut world);
        let restored: Vec<_> = world.counts.restored.entries().filter(|(_, n)| *n > 0).collect();
        assert_eq!((world.crossing.place(), restored), (Where::Nic, vec![]));
        world.now += SECOND / 2;
    }
    world.now += 2 * SECOND;
    // The first time it was used since it was looked at last.
    for _ in 0..2 {
        world.ways.tell(0, ToWorker::MakeRoom { reason: RestoreReason::Connections });
        turns(&mut world);
    }
    assert_eq!(world.crossing.place(), Where::Os);
    let restored = |reason: &str| world.counts.restored.entries().find(|(name, _)| *name == reason);
    assert_eq!(restored("connections"), Some(("connections", 1)));
}

/// What has come behind a hole, and what the peer has reported by SACK, the kernel knows when it has the connection back.
#[test]
fn nothing_is_taken_back_that_was_reported() {
    let mut world = World::new((1, false), vec![255; 8], 0);
    world.pick();
    for _ in 0..10 {
        world.turn();
    }
    assert_eq!(world.crossing.place(), Where::Nic);
    let total = 20_000;
    world.write(total, total);
    let bytes = world.back.next(total, total);
    world.back.sent += world.peer.send(world.peer_id, &bytes, world.now);
    world.makes_holes = true;
    for _ in 0..4 {
        world.turn();
    }
    world.want_back();
    for _ in 0..4 {
        world.turn();
    }
    world.makes_holes = false;
    let kernel = world.kernel.node.stack.connection(world.kernel_id.unwrap()).unwrap();
    assert!(kernel.has_holes(), "what came behind the hole");
    assert!(kernel.info().sacked > 1_448, "what SACK reported: {:?}", kernel.info());
    let again = world.peer.node.stack.connection(world.peer_id).unwrap().info();
    assert!(again.sacked > 1_448, "what the kernel says of it to the peer: {again:?}");
    while world.out.received < total || world.back.received < total {
        world.read(total);
        let bytes = world.peer.recv(world.peer_id, total, world.now);
        world.out.take(&bytes);
        world.turn();
        world.now += SECOND / 1_000;
    }
}
