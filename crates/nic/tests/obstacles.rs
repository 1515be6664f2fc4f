//! What gets in the way of a running NIC: a wire that drops, a wire that is down, a host interface
//! that is deleted. On real interfaces, in network namespaces.

use std::os::fd::AsFd;

use nic::Nic;
use nic::config::Config;
use sys::ethtool::Ethtool;
use sys::frames::FramePool;
use sys::interface;
use sys::packet::{Message, PacketSocket, Received, VNET_HDR_LEN};
use sys::poll::poll;
use testkit::lab::{Host, Wire, wait_until};
use testkit::missing::lacks;

/// For local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// A peer, a server, and wharf between the server's wire and its host interface.
struct Lab {
    // Before the hosts, so that it ends before them.
    nic: Nic,
    peer: Ours,
    host: Ours,
    client: Host,
    server: Host,
}

/// Frames of ours at one interface.
struct Ours {
    socket: PacketSocket,
    pool: FramePool,
}

impl Ours {
    fn at(host: &Host, name: &str) -> Self {
        let open = || PacketSocket::open(interface::index(name).unwrap(), Default::default());
        Ours { socket: host.run(open).unwrap(), pool: FramePool::new(256, 2048).unwrap() }
    }

    /// A frame of `len` bytes with a number.
    fn send(&mut self, number: u8, len: usize) {
        let mut frame = vec![number; len];
        frame[..12].copy_from_slice(&[[0xff; 6], [2; 6]].concat());
        frame[12..14].copy_from_slice(&ETHERTYPE);
        let message = Message { vnet: [0; VNET_HDR_LEN], header: &frame, payload: &[] };
        // What the host's own queue drops is not sent.
        let _ = self.socket.send(&[message]);
    }

    /// The numbers of the frames that have arrived.
    fn arrived(&mut self) -> Vec<u8> {
        let mut received: Vec<Received> = Vec::new();
        poll(&[self.socket.as_fd()], Some(1_000_000)).unwrap();
        self.socket.receive(&mut self.pool, &mut received, 64).unwrap();
        let mut numbers = Vec::new();
        for packet in received {
            let bytes = self.pool.bytes(&packet.frame);
            numbers.extend((bytes[12..14] == ETHERTYPE).then(|| bytes[14]));
            self.pool.free(packet.frame);
        }
        numbers
    }
}

impl Lab {
    fn new(settings: &[(&str, &str)]) -> Option<Self> {
        let (client, server) = (Host::new()?, Host::new()?);
        Wire { near: "peer0", far: "wire0", mtu: 1500, queues: 1, offloads: false }
            .lay(&client, &server);
        let mut config = Config::default();
        settings.iter().for_each(|(key, value)| config.set(key, value).unwrap());
        // The peer is to be silent, or what it says would wake wharf.
        client.run(|| sys::sysctl::set_ipv6_conf("peer0", "disable_ipv6", "1")).unwrap();
        let nic = server.run(|| Nic::start("wire0", "host0", config)).unwrap();
        let (peer, host) = (Ours::at(&client, "peer0"), Ours::at(&server, "host0"));
        Some(Lab { nic, peer, host, client, server })
    }

    fn counter(&self, group: &str, name: &str) -> u64 {
        let all = self.nic.counters();
        all.iter().find(|entry| (entry.group, entry.name) == (group, name)).unwrap().value
    }
}

#[test]
fn a_frame_that_the_wire_always_drops_does_not_stop_those_behind_it() {
    let Some(mut lab) = Lab::new(&[("wire.mode", "packet")]) else { return };
    lab.client.run(|| interface::set_mtu("peer0", 500)).unwrap();
    for number in 0..10 {
        lab.host.send(number, 1000);
        lab.host.send(number, 100);
    }
    let mut arrived = Vec::new();
    assert!(wait_until(|| {
        arrived.extend(lab.peer.arrived());
        arrived.len() >= 10
    }));
    assert_eq!(arrived, Vec::from_iter(0..10));
    assert!(wait_until(|| lab.counter("wire", "tx_lost") == 10));
    nothing_is_sent_that_was_lost(&lab);
}

/// Each packet from the host was one frame.
fn nothing_is_sent_that_was_lost(lab: &Lab) {
    let counted = || {
        let [taken, sent, lost] =
            [("host", "taken_packets"), ("wire", "tx_packets"), ("wire", "tx_lost")]
                .map(|(group, name)| lab.counter(group, name));
        (taken, sent + lost)
    };
    let right = wait_until(|| counted().0 == counted().1);
    assert!(right, "taken, and sent or lost: {:?}", counted());
}

/// The kernel takes them, and drops them as there is no carrier.
#[test]
fn frames_that_are_dropped_behind_af_xdp_are_lost_and_not_sent() {
    if !sys::process::has_bpf() {
        return lacks("root, for AF_XDP");
    }
    let settings = [("wire.mode", "xdp"), ("wire.transmit", "xdp"), ("wire.frames", "1024")];
    let Some(mut lab) = Lab::new(&settings) else { return };
    lab.client.run(|| interface::set_down("peer0")).unwrap();
    let down =
        || !lab.server.run(|| sys::interface::Interface::by_name("wire0").unwrap()).operational;
    assert!(wait_until(down));
    (0..10).for_each(|number| lab.host.send(number, 100));
    assert!(wait_until(|| lab.counter("wire", "tx_lost") >= 10), "{:#?}", lab.nic.counters());
    nothing_is_sent_that_was_lost(&lab);
}

/// Of what the host sent meanwhile, the wire's ring full and not full.
#[test]
fn a_wire_that_comes_up_again_sends_what_waited() {
    if !sys::process::has_bpf() {
        return lacks("root, for AF_XDP");
    }
    for count in [3, 1000] {
        let transmit = ("wire.transmit", "xdp");
        let settings =
            [("wire.mode", "xdp"), transmit, ("wire.frames", "1024"), ("wire.ring", "64")];
        let Some(mut lab) = Lab::new(&settings) else { return };
        lab.server.run(|| interface::set_down("wire0")).unwrap();
        (0..count).for_each(|_| lab.host.send(1, 100));
        let slept = lab.counter("worker", "sleeps");
        assert!(wait_until(|| lab.counter("worker", "sleeps") > slept));
        lab.server.run(|| interface::set_up("wire0")).unwrap();
        let mut arrived = 0;
        // A veth without carrier drops, so some of the first may be lost.
        let enough = if count < 64 { 1 } else { 64 };
        assert!(wait_until(|| {
            arrived += lab.peer.arrived().len();
            arrived >= enough
        }));
    }
}

/// AF_PACKET loses what it is given meanwhile, and goes on.
#[test]
fn a_wire_that_is_sent_to_by_af_packet_goes_on_when_it_comes_up_again() {
    if !sys::process::has_bpf() {
        return lacks("root, for AF_XDP");
    }
    let Some(mut lab) = Lab::new(&[("wire.mode", "xdp"), ("wire.transmit", "packet")]) else {
        return;
    };
    lab.server.run(|| interface::set_down("wire0")).unwrap();
    (0..10).for_each(|number| lab.host.send(number, 100));
    assert!(wait_until(|| lab.counter("wire", "tx_lost") >= 10), "{:#?}", lab.nic.counters());
    nothing_is_sent_that_was_lost(&lab);
    lab.server.run(|| interface::set_up("wire0")).unwrap();
    assert!(wait_until(|| {
        lab.host.send(77, 100);
        lab.peer.arrived().contains(&77)
    }));
}

#[test]
fn a_host_interface_that_is_deleted_ends_the_nic() {
    for kind in ["tap", "veth"] {
        let Some(lab) = Lab::new(&[("wire.mode", "packet"), ("host.kind", kind)]) else { return };
        assert!(!lab.server.run(|| lab.nic.has_failed()));
        lab.server.run(|| sys::netlink::link::delete("host0")).unwrap();
        assert!(wait_until(|| lab.server.run(|| lab.nic.has_failed())), "{kind}");
        lab.nic.stop().unwrap_err();
    }
}

#[test]
fn the_far_end_of_a_veth_is_nobodys_neighbour() {
    let settings = [("wire.mode", "packet"), ("host.kind", "veth")];
    let Some(lab) = Lab::new(&settings) else { return };
    let addresses = || {
        let far = interface::index(&nic::far_end_of("host0"))?;
        sys::netlink::address::list(far)
    };
    assert_eq!(lab.server.run(addresses).unwrap(), []);
}

/// Else packets within tunnels would be handed over that nothing says how to cut.
#[test]
fn a_veth_leaves_to_the_kernel_what_virtio_cannot_say() {
    let settings = [("wire.mode", "packet"), ("host.kind", "veth")];
    let Some(lab) = Lab::new(&settings) else { return };
    let features = lab.server.run(|| Ethtool::open("host0").and_then(|host| host.features()));
    let features = features.unwrap();
    for (feature, on) in features {
        let beyond = ["gre", "ipxip", "udp_tnl", "sctp", "accecn"];
        let names_it = feature.starts_with("tx-") && beyond.iter().any(|b| feature.contains(b));
        assert!(!(names_it && on), "{feature}");
    }
}

/// As much as fits, and what that is.
#[test]
fn an_mtu_over_what_a_tap_takes_is_told_of() {
    let settings = [("wire.mode", "packet"), ("host.kind", "tap"), ("host.mtu", "65535")];
    let Some(lab) = Lab::new(&settings) else { return };
    let host = lab.server.run(|| interface::Interface::by_name("host0")).unwrap();
    assert_eq!((host.mtu, host.max_mtu), (65_521, 65_521));
    let told = lab.nic.notices().iter().any(|notice| {
        ["host.mtu=65535", "65521", "host0"].iter().all(|part| notice.contains(part))
    });
    assert!(told, "{:?}", lab.nic.notices());
}
