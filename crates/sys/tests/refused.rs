//! What AF_XDP lost, and where it is counted. Needs root.

use std::time::{Duration, Instant};

use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::Namespace;
use sys::packet::{self, Message, PacketSocket};
use sys::sysctl;
use sys::xdp::{self, Mode, Redirect, Refused, XdpSocket};
use testkit::missing::lacks;

/// For local experiments (IEEE 802), from one that no card has.
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Both ends of a veth in one namespace, up and without IPv6, so that the kernel sends nothing.
/// Runs `test` in it, with the two indices.
fn with_veth(test: impl FnOnce(u32, u32) + Send) {
    let namespace = match Namespace::new() {
        Ok(namespace) if sys::process::has_bpf() => namespace,
        _ => return lacks("root, for AF_XDP"),
    };
    let run = || {
        sysctl::set_ipv6_conf("default", "disable_ipv6", "1").unwrap();
        create_veth(&VethEnd::new("near"), &VethEnd::new("far")).unwrap();
        for name in ["near", "far"] {
            interface::set_up(name).unwrap();
        }
        let operational = |name| Interface::by_name(name).unwrap().operational;
        until("the wire is up", || operational("near") && operational("far"));
        test(interface::index("near").unwrap(), interface::index("far").unwrap());
    };
    namespace.run(run).unwrap();
}

/// Without a carrier the kernel takes frames from the ring and drops them (`__dev_direct_xmit`).
#[test]
fn frames_that_the_interface_drops_are_counted() {
    with_veth(|near, far| {
        let mut pool = FramePool::new(64, 2048).unwrap();
        let _redirect = Redirect::attach(near, Mode::Native).unwrap();
        let mut socket = XdpSocket::open(near, 0, &pool, xdp::Config::default()).unwrap();
        let mut send = |count: u64| {
            for number in 0..count {
                let mut frame = pool.alloc().unwrap();
                pool.set_range(&mut frame, 0, 60 + number as usize);
                pool.bytes_mut(&mut frame).fill(0);
                pool.bytes_mut(&mut frame)[..14].copy_from_slice(&HEADER);
                socket.transmit(frame).unwrap();
            }
            until("the kernel has all", || {
                socket.kick().unwrap();
                socket.reap(&mut pool);
                socket.tx_queued() == 0 && pool.available() == pool.capacity()
            });
            socket.refused()
        };
        assert_eq!(send(3), Refused::default());
        interface::set_down("far").unwrap();
        until("the carrier is gone", || !Interface::by_index(near).unwrap().operational);
        assert_eq!(send(5), Refused { frames: 5, bytes: 60 + 61 + 62 + 63 + 64 });
        interface::set_up("far").unwrap();
        until("the carrier is back", || Interface::by_index(near).unwrap().operational);
        assert_eq!(send(2).frames, 5);
        let _ = far;
    });
}

/// So the sum of both would count them twice.
#[test]
fn frames_without_an_entry_of_the_fill_ring_are_among_the_dropped() {
    with_veth(|near, far| {
        let mut pool = FramePool::new(64, 2048).unwrap();
        let mut redirect = Redirect::attach(far, Mode::Native).unwrap();
        let socket = XdpSocket::open(far, 0, &pool, xdp::Config::default()).unwrap();
        redirect.set(&socket).unwrap();
        let mut sender = PacketSocket::open(near, packet::Config::default()).unwrap();
        let bytes = [&HEADER[..], &[0; 46]].concat();
        let message = Message { vnet: [0; 10], header: &bytes, payload: &[] };
        for _ in 0..7 {
            assert_eq!(sender.send(&[message]).unwrap(), 1);
        }
        let counted = || socket.statistics().unwrap();
        until("all are dropped", || counted().rx_dropped >= 7);
        let counted = counted();
        assert_eq!((counted.rx_dropped, counted.rx_fill_ring_empty), (7, 7), "{counted:?}");
        assert_eq!(counted.rx_ring_full, 0);
        assert_eq!(socket.close(&mut pool), 0);
        sender.close(&mut pool);
    });
}
