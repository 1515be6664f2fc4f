//! When the kernel received a frame. Needs root: see `testkit::missing`.

use std::os::fd::AsFd;

use sys::clock;
use sys::frames::FramePool;
use sys::interface;
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::Namespace;
use sys::packet::{Config, Message, PacketSocket};
use sys::poll::poll;
use testkit::missing::lacks;

/// For local experiments (IEEE 802): no other traffic on the wire has it.
const FRAME: &[u8] = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5when did I come?";

fn receive_one(stamps: bool) -> Option<(u64, Option<u64>, u64)> {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) if error.is_permission() => {
            lacks(format!("root: {error}"));
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let sockets = namespace.run(|| {
        create_veth(&VethEnd::new("near"), &VethEnd::new("far")).unwrap();
        ["near", "far"].map(|name| {
            interface::set_up(name).unwrap();
            let config = Config { stamps, ..Config::default() };
            PacketSocket::open(interface::index(name).unwrap(), config).unwrap()
        })
    });
    let [mut near, mut far] = sockets.unwrap();
    let mut pool = FramePool::new(128, 2048).unwrap();
    let mut received = Vec::new();
    loop {
        let before = clock::now();
        near.send(&[Message { vnet: [0; 10], header: FRAME, payload: &[] }]).unwrap();
        poll(&[far.as_fd()], Some(100_000_000)).unwrap();
        far.receive(&mut pool, &mut received, 64).unwrap();
        // The kernel has things of its own to say on a new interface.
        let ours = |frame: &sys::packet::Received| pool.bytes(&frame.frame) == FRAME;
        if let Some(frame) = received.iter().rev().find(|frame| ours(frame)) {
            return Some((before, frame.stamp, clock::now()));
        }
    }
}

#[test]
fn a_frame_says_when_it_was_received() {
    let Some((before, stamp, after)) = receive_one(true) else { return };
    let stamp = stamp.unwrap();
    // The two clocks are read one after the other, on a machine that may be busy; they are half a
    // century apart.
    let slack = 10_000_000_000;
    assert!(before <= stamp + slack && stamp <= after + slack, "{before} {stamp} {after}");
}

#[test]
fn only_if_it_was_asked_to() {
    let Some((_, stamp, _)) = receive_one(false) else { return };
    assert_eq!(stamp, None);
}
