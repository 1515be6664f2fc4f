//! TAP devices of the running kernel, in network namespaces of the tests' own.
//!
//! Without the privilege to make one the tests fail, or are left out (`testkit::missing`).

use std::io::IoSlice;
use std::os::fd::AsFd;

use sys::ethtool::{Ethtool, Offload};
use sys::interface::{self, Interface};
use sys::netlink::address;
use sys::netlink::link::{self, VethEnd};
use sys::netns::Namespace;
use sys::poll::poll;
use sys::sysctl;
use sys::tap::{Offloads, Tap, TapError, VNET_HDR_LEN};
use testkit::missing::lacks;

/// Runs `test` in a namespace of its own, if this process may make one and there is `/dev/net/tun`.
fn with_tap(test: impl FnOnce() + Send) {
    let run = || match Tap::create("probe", 1) {
        Err(error @ (TapError::NoDevice | TapError::DevicePermission)) => {
            lacks(error);
        }
        probe => {
            drop(probe);
            test();
        }
    };
    match Namespace::new() {
        Ok(namespace) => namespace.run(run).unwrap(),
        Err(error) if error.is_permission() => lacks(error),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_tap_shows_the_offloads_that_were_set_also_while_up() {
    with_tap(|| {
        let tap = Tap::create("tap0", 2).unwrap();
        assert_eq!((tap.queues.len(), tap.name.as_str()), (2, "tap0"));
        assert_eq!(interface::index("tap0").unwrap(), tap.ifindex);
        let shown = Interface::by_name("tap0").unwrap();
        assert_eq!(shown.kind.as_deref(), Some("tun"));
        let ethtool = Ethtool::open("tap0").unwrap();
        assert_eq!(ethtool.driver().unwrap(), "tun");
        let tso = || {
            let features = ethtool.features().unwrap();
            (features["tx-tcp-segmentation"], features["tx-tcp6-segmentation"])
        };
        assert_eq!(tso(), (false, false));
        let accepted = tap.set_offload(Offloads::ALL).unwrap();
        assert!(accepted.csum && accepted.tso4 && accepted.tso6 && accepted.tso_ecn);
        assert_eq!(tso(), (true, true));
        assert!(ethtool.offload(Offload::Tso).unwrap());
        let features = ethtool.features().unwrap();
        assert_eq!(features["tx-udp-segmentation"], accepted.uso4);

        interface::set_up("tap0").unwrap();
        let tso4 = Offloads { csum: true, tso4: true, ..Offloads::NONE };
        assert_eq!(tap.set_offload(tso4).unwrap(), tso4);
        assert_eq!(tso(), (true, false));
        assert_eq!(tap.set_offload(Offloads::NONE).unwrap(), Offloads::NONE);
        assert_eq!(tso(), (false, false));

        tap.set_carrier(false).unwrap();
        assert!(!Interface::by_name("tap0").unwrap().running);
        tap.set_carrier(true).unwrap();
        assert!(Interface::by_name("tap0").unwrap().running);
    });
}

#[test]
fn a_tap_name_that_is_taken_is_told_apart() {
    with_tap(|| {
        let one = Tap::create("tap0", 1).unwrap();
        link::create_veth(&VethEnd::new("veth0"), &VethEnd::new("veth1")).unwrap();
        for name in ["tap0", "veth0", "lo"] {
            for queues in [1, 2] {
                let error = Tap::create(name, queues).unwrap_err();
                assert!(matches!(error, TapError::NameTaken { .. }), "{name}: {error:?}");
            }
        }
        drop(one);
        // A process that another test starts holds all descriptors until it executes its program.
        let is_gone = || interface::index("tap0").is_err_and(|error| error.is_missing());
        assert!(testkit::lab::wait_until(is_gone));
        Tap::create("tap0", 1).unwrap();
    });
}

#[test]
fn a_tap_without_the_privilege_is_told_apart() {
    with_tap(|| {
        // Only this thread, which ends with the test, gives its capabilities up.
        drop_capabilities();
        assert!(!sys::process::has_net_admin());
        assert!(matches!(Tap::create("tap0", 1), Err(TapError::NoNetAdmin { .. })));
    });
}

fn drop_capabilities() {
    let header = [0x2008_0522u32, 0];
    let none = [0u32; 6];
    #[allow(unsafe_code)]
    // SAFETY: capset, version 3, reads a header of two words and six words of capabilities.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0);
}

#[test]
fn frames_go_both_ways_through_a_tap() {
    with_tap(|| {
        let tap = Tap::create("tap0", 1).unwrap();
        sysctl::set_ipv6_conf("tap0", "disable_ipv6", "1").ok();
        let queue = &tap.queues[0];
        let mut buffer = vec![0; VNET_HDR_LEN + 65_535];
        let frame = [0xffu8; 60];
        let slices = [IoSlice::new(&[0; VNET_HDR_LEN]), IoSlice::new(&frame)];
        // Down: the frame is refused, the queue lives on.
        assert!(queue.writev(&slices).is_err());
        interface::set_up("tap0").unwrap();
        queue.writev(&slices).unwrap();
        let too_many = vec![IoSlice::new(&[]); sys::tap::MAX_SLICES + 1];
        assert!(queue.writev(&too_many).is_err());

        while queue.read(&mut buffer).unwrap().is_some() {}
        address::add(tap.ifindex, "10.0.0.1".parse().unwrap(), 24, false).unwrap();
        let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
        socket.send_to(b"who has", "10.0.0.2:9").unwrap();
        assert!(poll(&[queue.as_fd()], None).unwrap().contains(0));
        let length = queue.read(&mut buffer).unwrap().unwrap();
        // The kernel asks for the neighbour: ARP (0x0806) behind header and MAC addresses.
        assert!(length >= VNET_HDR_LEN + 42);
        assert_eq!(buffer[VNET_HDR_LEN + 12..][..2], [0x08, 0x06]);
        assert_eq!(queue.read(&mut buffer).unwrap(), None);
    });
}
