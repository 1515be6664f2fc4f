//! With AF_PACKET the stack behind the wire hears what wharf hears, and is to be silent.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::wait_until;

use super::setup::{Ip, Plan, Port, WIRE, give};

/// What arrives while wharf comes up, and while it goes.
#[test]
fn no_datagram_arrives_twice_while_wharf_starts_or_ends() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    give(&hosts.server, WIRE, &[Ip::V4], Ip::server);
    // What comes through one interface is taken for an address of another.
    for name in ["all", "default", WIRE] {
        let set = || sys::sysctl::set_ipv4_conf(name, "rp_filter", "0");
        hosts.server.run(set).unwrap();
    }
    let server = hosts.server.run(|| UdpSocket::bind((Ip::V4.server(), 0))).unwrap();
    let client = hosts.client.run(|| UdpSocket::bind((Ip::V4.client(), 0))).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (enough, latest) = (AtomicBool::new(false), AtomicU32::new(0));
    let sent = AtomicU32::new(0);
    let twice = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                let number = sent.fetch_add(1, Ordering::Relaxed);
                // Without a neighbour or a queue it is lost.
                let _ = client.send(&number.to_ne_bytes());
                if number.is_multiple_of(64) {
                    std::thread::yield_now();
                }
            }
        });
        let receiver = scope.spawn(|| {
            let mut seen = Vec::new();
            let mut twice = 0;
            let mut datagram = [0; 4];
            loop {
                match server.recv(&mut datagram) {
                    Ok(_) => {
                        let number = u32::from_ne_bytes(datagram) as usize;
                        seen.resize(seen.len().max(number + 1), false);
                        twice += u32::from(std::mem::replace(&mut seen[number], true));
                        latest.fetch_max(number as u32, Ordering::Relaxed);
                    }
                    Err(_) if enough.load(Ordering::Relaxed) => return twice,
                    Err(_) => {}
                }
            }
        });
        // Of those that are sent from now on, one arrives.
        let flows = || {
            let from = sent.load(Ordering::Relaxed);
            assert!(wait_until(|| latest.load(Ordering::Relaxed) > from), "nothing arrives");
        };
        flows();
        for _ in 0..5 {
            let wharf = hosts.wharf_up(&["--take-addresses"]);
            flows();
            wharf.signal(Signal::Interrupt);
            let ended = wharf.wait();
            assert!(ended.status.success(), "{ended}");
            flows();
        }
        enough.store(true, Ordering::Relaxed);
        receiver.join().unwrap()
    });
    assert_eq!(twice, 0, "datagrams arrived twice");
}

#[test]
fn without_nftables_a_filter_of_all_that_is_loose_is_told() {
    for (all, told) in [("2", true), ("1", false), ("0", false)] {
        let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
        // The table that wharf would make is another's, so nftables is not to be had.
        let _table = hosts.server.run(|| sys::ingress::IngressDrop::on(WIRE)).unwrap();
        hosts.server.run(|| sys::sysctl::set_ipv4_conf("all", "rp_filter", all)).unwrap();
        let wharf = hosts.wharf_up(&[]);
        let strict = hosts.server.run(|| sys::sysctl::ipv4_conf(WIRE, "rp_filter")).unwrap();
        assert_eq!(strict, "1", "not by the switches");
        wharf.signal(Signal::Interrupt);
        let ended = wharf.wait();
        let says = ended.stderr.contains("sysctl net.ipv4.conf.all.rp_filter=1");
        assert_eq!(says, told, "{all}: {ended}");
    }
}
