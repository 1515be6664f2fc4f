//! Packets that anyone may send: what is not the peer's changes nothing, whatever form it has.

use handoff::machine::Where;
use testkit::icmp::error4;
use testkit::packet::PacketBuilder;
use wire::{Flags, VirtioNetHdr, protocol};

use super::nic::NIC;
use super::world::*;

const PEER_IP: [u8; 4] = [10, 0, 0, 1];
const OWN_IP: [u8; 4] = [10, 0, 0, 9];
const OWN_PORT: u16 = 4000;

/// A connection that the NIC has.
fn world() -> World {
    let mut world = World::new((1, false), vec![255; 8], 0);
    world.pick();
    turns(&mut world);
    assert_eq!(world.crossing.place(), Where::Nic);
    world
}

fn turns(world: &mut World) {
    (0..10).for_each(|_| world.turn());
}

fn arrives(world: &World, frame: Vec<u8>) {
    world.nic.arrives((VirtioNetHdr::default(), frame));
}

/// A segment as the peer would send it next.
fn from_peer(world: &World) -> PacketBuilder {
    let peer = world.peer.node.stack.connection(world.peer_id).unwrap().standing();
    PacketBuilder::tcp4()
        .macs(PEER, NIC)
        .addresses4(PEER_IP, OWN_IP)
        .ports(PORT, OWN_PORT)
        .seq(peer.snd_nxt.0)
        .ack(peer.rcv_nxt.0)
}

/// A segment of this end's, as an ICMP error quotes it.
fn quoted(seq: u32, id: u16, options: &[u8]) -> Vec<u8> {
    let segment = PacketBuilder::tcp4()
        .addresses4(OWN_IP, PEER_IP)
        .ports(OWN_PORT, PORT)
        .id(id)
        .ip_options(options)
        .seq(seq)
        .payload_pattern(100);
    segment.build()[14..14 + 28 + options.len()].to_vec()
}

/// What a router reports of it: it is too big for a link of this MTU.
fn too_big(mtu: u32, quoted: &[u8], options: &[u8]) -> Vec<u8> {
    let from_router = PacketBuilder::ip4(protocol::ICMP).macs(PEER, NIC).ip_options(options);
    let message = error4(3, 4, mtu, quoted);
    from_router.addresses4([10, 0, 0, 77], OWN_IP).payload(&message).build()
}

fn restored(world: &World) -> Vec<(&'static str, u64)> {
    world.counts.restored.entries().filter(|(_, count)| *count > 0).collect()
}

fn stays(world: &World, what: &str) {
    assert_eq!((world.crossing.place(), restored(world)), (Where::Nic, vec![]), "{what}");
}

fn bad_icmp(world: &World) -> u64 {
    let lane = world.nic.workers[0].handoff().unwrap();
    lane.lane.stack().counters().bad_icmp
}

/// Every byte of the quoted ID and of quoted options, where a segment has its control bits.
#[test]
fn an_icmp_error_is_not_read_as_a_segment() {
    let mut world = world();
    for byte in 0..=255_u8 {
        for options in [&[][..], &[1, 1, 1, 0]] {
            let id = u16::from_be_bytes([0x10, byte]);
            let quote = quoted(u32::from(byte) << 24 | 77, id, &[byte.max(2), byte, byte, byte]);
            arrives(&world, too_big(1000, &quote, options));
            arrives(&world, too_big(1000, &quoted(77, id, &[]), options));
        }
        world.turn();
        stays(&world, &format!("{byte:#x}"));
    }
    assert!(bad_icmp(&world) > 900, "the engine has seen {} errors", bad_icmp(&world));
    let engine = world.nic.workers[0].handoff().unwrap().lane.stack().len();
    assert_eq!(engine, 1);
    // It goes on.
    world.write(1000, 1000);
    turns(&mut world);
    let bytes = world.peer.recv(world.peer_id, 2000, world.now);
    world.out.take(&bytes);
    assert_eq!(bytes.len(), 1000);
}

/// The error of a router on the way, about a segment that is in flight.
#[test]
fn a_router_that_takes_less_is_heard_at_the_nic() {
    let mut world = world();
    let total = 20_000;
    world.makes_holes = true;
    world.write(total, total);
    (0..2).for_each(|_| world.turn());
    let peer = world.peer.node.stack.connection(world.peer_id).unwrap().standing();
    // 0x20 is URG, where the ID of the quoted segment lies.
    arrives(&world, too_big(600, &quoted(peer.rcv_nxt.0, 0x1020, &[]), &[]));
    world.makes_holes = false;
    turns(&mut world);
    stays(&world, "an MTU of 600");
    assert_eq!(bad_icmp(&world), 0);
    let mut received = 0;
    while received < total {
        world.turn();
        let bytes = world.peer.recv(world.peer_id, total, world.now);
        world.out.take(&bytes);
        received += bytes.len();
        world.now += SECOND / 1_000;
    }
    let stack = world.nic.workers[0].handoff().unwrap().lane.stack();
    assert!(stack.counters().segments_in > 0);
    stays(&world, "after all bytes");
}

#[test]
fn urgent_data_behind_ip_options_goes_to_the_kernel() {
    for options in [&[][..], &[1, 1, 1, 0]] {
        let mut world = world();
        let urgent = from_peer(&world).flags(Flags::ACK.with(Flags::URG)).urgent(1);
        arrives(&world, urgent.ip_options(options).payload(b"u").build());
        turns(&mut world);
        assert_eq!(restored(&world), [("urgent", 1)], "{options:?}");
        assert_eq!(world.crossing.place(), Where::Os);
    }
}

/// Urgent data that the peer cannot have sent.
#[test]
fn forged_urgent_data_changes_nothing() {
    let mut world = world();
    let segment = || from_peer(&world).flags(Flags::ACK.with(Flags::URG)).urgent(1).payload(b"u");
    let peer = world.peer.node.stack.connection(world.peer_id).unwrap().standing();
    let forged = [
        ("before the window", segment().seq(peer.snd_nxt.0.wrapping_sub(100_000))),
        ("behind the window", segment().seq(peer.snd_nxt.0.wrapping_add(1 << 30))),
        ("acknowledges what was not sent", segment().ack(peer.rcv_nxt.0.wrapping_add(1))),
        ("acknowledges what is long past", segment().ack(peer.rcv_nxt.0.wrapping_sub(1 << 29))),
        ("a wrong checksum", segment().wrong_checksum()),
        ("a fragment", segment().fragment(0, true)),
        ("a VLAN tag", segment().vlan(5)),
        ("no acknowledgment", segment().flags(Flags::URG)),
    ]
    .map(|(what, builder)| (what, builder.build()));
    for (what, frame) in forged {
        // Others go to the host, which this world has none of.
        if matches!(what, "a fragment" | "a VLAN tag") {
            assert!(crate::steer::Subject::of(&frame, &[]).is_none(), "{what}");
            continue;
        }
        arrives(&world, frame);
        turns(&mut world);
        stays(&world, what);
    }
}

/// A connection of which both ends have closed is remembered: only a SYN that none of its segments can be ends that.
#[test]
fn only_a_new_syn_ends_time_wait() {
    use handoff::command::NicControl::Close;
    let mut world = world();
    let close = handoff::command::nic::Ctrl {
        cmd: Close,
        ..handoff::command::nic::Ctrl::new(CID, world.crossing.epoch())
    };
    world.command(close.into());
    turns(&mut world);
    let (id, now) = (world.peer_id, world.now);
    world.peer.node.stack.socket(id, now).unwrap().shutdown();
    turns(&mut world);
    let state = |world: &World| {
        let stack = world.nic.workers[0].handoff().unwrap().lane.stack();
        let all = world.nic.workers[0].handoff().unwrap().lane.app().all.get(0)?;
        let id = all.engine.as_ref()?.id;
        stack.connection(id).map(|connection| connection.state())
    };
    assert_eq!(state(&world), Some(tcp::State::TimeWait));
    let syn = |seq: u32| {
        let peer = PacketBuilder::tcp4().macs(PEER, NIC).addresses4(PEER_IP, OWN_IP);
        peer.ports(PORT, OWN_PORT).flags(Flags::SYN).seq(seq)
    };
    let rcv_nxt = {
        let lane = world.nic.workers[0].handoff().unwrap();
        let id = lane.lane.app().all.get(0).unwrap().engine.as_ref().unwrap().id;
        lane.lane.stack().connection(id).unwrap().standing().rcv_nxt.0
    };
    // SYN without ACK, where the quoted ID lies.
    arrives(&world, too_big(1000, &quoted(77, 0x1002, &[]), &[]));
    arrives(&world, syn(rcv_nxt.wrapping_sub(1000)).build());
    arrives(&world, syn(rcv_nxt.wrapping_add(1000)).wrong_checksum().build());
    for _ in 0..4 {
        // The peer, which knows nothing of the connection any more, would reset it: it is not to hear of it.
        let Ok(sent) = world.nic.turn(0, world.now) else { panic!("the NIC is not dead") };
        assert_eq!((sent.to_host.len(), state(&world)), (0, Some(tcp::State::TimeWait)));
    }
    // The kernel is the one to answer it.
    arrives(&world, syn(rcv_nxt.wrapping_add(1000)).build());
    let Ok(sent) = world.nic.turn(0, world.now) else { panic!("the NIC is not dead") };
    assert_eq!((sent.to_host.len(), state(&world)), (1, None));
}
