//! Duplicate address detection, in virtual time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use iface::{Address, Addresses, Config, Dropped, Duplicate, Interface, Packet};
use wire::arp::{Arp, Operation};
use wire::{Mac, ndp};

const SECOND: u64 = 1_000_000_000;
const OWN: Mac = [2, 0, 0, 0, 0, 2];
const OTHER: Mac = [2, 0, 0, 0, 0, 9];
const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const PEER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

fn host(probes: u8) -> Interface {
    let own =
        vec![Address { ip: V4.into(), prefix_len: 24 }, Address { ip: V6.into(), prefix_len: 64 }];
    let addresses = Addresses::new(own, Vec::new()).unwrap();
    Interface::new(Config { mac: OWN, addresses, secret: [7; 16], probes })
}

fn sent(host: &mut Interface, now: u64) -> Vec<Vec<u8>> {
    host.on_time(now);
    std::iter::from_fn(|| host.poll_transmit(now).map(|frame| frame.bytes.to_vec())).collect()
}

fn probes() -> Vec<Vec<u8>> {
    vec![Arp::probe(OWN, V4).to_vec(), ndp::probe(OWN, V6).to_vec()]
}

fn announcements() -> Vec<Vec<u8>> {
    let arp = Arp::request((OWN, V4), V4, None).to_vec();
    vec![arp, ndp::advertisement(OWN, V6, None).to_vec()]
}

fn requests() -> [Vec<u8>; 2] {
    let arp = Arp::request((OTHER, PEER4), V4, None).to_vec();
    [arp, ndp::solicitation((OTHER, PEER6), V6, None).to_vec()]
}

#[test]
fn addresses_are_used_and_announced_when_no_probe_was_answered() {
    for count in [1, 3] {
        let mut host = host(count);
        host.start(0);
        for number in 0..u64::from(count) {
            assert_eq!(host.next_deadline(), Some(number * SECOND));
            assert_eq!(sent(&mut host, number * SECOND), probes());
            assert_eq!(sent(&mut host, number * SECOND), Vec::<Vec<u8>>::new());
            for (request, why) in requests().iter().zip([Dropped::Arp, Dropped::Icmp]) {
                assert_eq!(host.receive(&Packet::frame(request), 0).err(), Some(why));
            }
            assert!(!host.is_own(V4.into()) && !host.is_own(V6.into()) && !host.is_settled());
        }
        let end = u64::from(count) * SECOND;
        assert_eq!(sent(&mut host, end - 1), Vec::<Vec<u8>>::new());
        assert_eq!(sent(&mut host, end), announcements());
        assert!(host.is_settled() && host.is_own(V4.into()) && host.is_own(V6.into()));
        assert_eq!((host.poll_duplicate(), host.next_deadline()), (None, None));
        for request in requests() {
            assert!(host.receive(&Packet::frame(&request), end).is_ok());
        }
        assert_eq!(sent(&mut host, end).len(), 2, "replies");
    }
}

#[test]
fn without_probes_addresses_are_used_at_once() {
    let mut host = host(0);
    host.start(0);
    assert!(host.is_settled() && host.is_own(V4.into()));
    assert_eq!(sent(&mut host, 0), announcements());
}

/// Messages of another host that has one of the addresses, or probes for it at the same time.
fn claims() -> Vec<(IpAddr, Vec<u8>)> {
    let reply = Arp {
        operation: Operation::Reply,
        sender_mac: OTHER,
        sender: V4,
        target_mac: OWN,
        target: Ipv4Addr::UNSPECIFIED,
    };
    vec![
        (V4.into(), reply.frame(OWN).to_vec()),
        (V4.into(), Arp::request((OTHER, V4), V4, None).to_vec()),
        (V4.into(), Arp::request((OTHER, V4), PEER4, None).to_vec()),
        (V4.into(), Arp::probe(OTHER, V4).to_vec()),
        (V6.into(), ndp::advertisement(OTHER, V6, None).to_vec()),
        (V6.into(), ndp::probe(OTHER, V6).to_vec()),
    ]
}

#[test]
fn a_duplicate_is_reported_and_never_used() {
    for (ip, claim) in claims() {
        let mut host = host(1);
        host.start(0);
        assert_eq!(sent(&mut host, 0), probes());
        let _ = host.receive(&Packet::frame(&claim), SECOND / 2);
        let _ = host.receive(&Packet::frame(&claim), SECOND / 2);
        assert_eq!(host.poll_duplicate(), Some(Duplicate { ip, mac: OTHER }));
        assert_eq!(host.poll_duplicate(), None, "once");
        assert!(!host.is_settled(), "the other one is probed for still");
        assert_eq!(sent(&mut host, SECOND).len(), 1, "the other one's announcement");
        assert!(host.is_settled() && !host.is_own(ip));
        assert_ne!(host.is_own(V4.into()), host.is_own(V6.into()));
        for request in requests() {
            let _ = host.receive(&Packet::frame(&request), SECOND);
        }
        let replies = sent(&mut host, 2 * SECOND);
        assert_eq!(replies.len(), 1, "of the other one");
        let version = if ip.is_ipv4() { [0x86, 0xdd] } else { [0x08, 0x06] };
        assert_eq!(replies[0][12..14], version);
    }
}

/// Frames that the link loops back are not of another host (RFC 4862 section 5.4.3), and a host that resolves
/// an address does not use it.
#[test]
fn own_probes_and_requests_are_no_claims() {
    let mut host = host(1);
    host.start(0);
    for frame in probes().into_iter().chain(announcements()).chain(requests()) {
        let _ = host.receive(&Packet::frame(&frame), 0);
    }
    assert_eq!(host.poll_duplicate(), None);
    sent(&mut host, 0);
    assert_eq!(sent(&mut host, SECOND), announcements());
}

/// An address in use is defended by the reply to a probe, and is not given up.
#[test]
fn an_address_in_use_is_defended() {
    let mut host = host(1);
    host.start(0);
    sent(&mut host, 0);
    sent(&mut host, SECOND);
    for (_, claim) in claims() {
        let _ = host.receive(&Packet::frame(&claim), SECOND);
    }
    assert_eq!(host.poll_duplicate(), None);
    assert!(host.is_own(V4.into()) && host.is_own(V6.into()));
    let all = sent(&mut host, SECOND);
    let to_all = ndp::advertisement(OWN, V6, None).to_vec();
    assert!(all.contains(&to_all), "a probe is answered to all");
    let to_prober = Arp::parse(&Arp::probe(OTHER, V4)[14..]).unwrap().reply(OWN).to_vec();
    assert!(all.contains(&to_prober));
}

/// Of two interfaces with the same addresses one sends; the other learns from what it overhears.
#[test]
fn one_of_several_interfaces_sends_and_all_learn() {
    let (mut one, mut other) = (host(1), host(1).unannounced());
    for interface in [&mut one, &mut other] {
        interface.start(0);
    }
    assert_eq!((sent(&mut one, 0), sent(&mut other, 0)), (probes(), Vec::new()));
    let taken = Arp::request((OTHER, V4), PEER4, None);
    assert!(one.receive(&Packet::frame(&taken), 0).is_err());
    other.overhear(&Packet::frame(&taken), 0);
    let duplicate = Duplicate { ip: V4.into(), mac: OTHER };
    assert_eq!((one.poll_duplicate(), other.poll_duplicate()), (Some(duplicate), Some(duplicate)));
    assert_eq!(sent(&mut one, SECOND).len(), 1);
    assert_eq!(sent(&mut other, SECOND), Vec::<Vec<u8>>::new());
    assert!(other.is_own(V6.into()) && !other.is_own(V4.into()));
    // From a request of the peer both learn its address; one answers.
    let [_, request] = requests();
    other.overhear(&Packet::frame(&request), SECOND);
    assert_eq!(sent(&mut other, SECOND), Vec::<Vec<u8>>::new());
    assert_eq!(other.counters().resolutions, 0);
    assert_eq!(other.route(PEER6.into(), SECOND), Ok(iface::Route::At(OTHER)));
}
