//! ARP, Neighbour Discovery, ICMP and IP headers: any bytes are parsed or refused without a panic, and what
//! is written is parsed to the same values. The fuzz target has this from here, too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use testkit::bytes::Bytes;
use wire::arp::{self, Arp, Operation};
use wire::icmp::{self, Message, Quoted};
use wire::ip::{Addresses, IpHeader};
use wire::ndp::{self, Ndp};
use wire::{Headers, Ipv4, Ipv6, Mac, Network, Seq, is_group};

fn two(bytes: &mut Bytes<'_>) -> u16 {
    u16::from_be_bytes(bytes.array())
}

fn addresses(bytes: &mut Bytes<'_>) -> Addresses {
    match bytes.next() & 1 {
        0 => Addresses::V4 { source: bytes.array().into(), destination: bytes.array().into() },
        _ => Addresses::V6 { source: bytes.array().into(), destination: bytes.array().into() },
    }
}

/// All laws, for these bytes.
pub(crate) fn run(bytes: &[u8]) {
    noise(bytes);
    let values = &mut Bytes(bytes);
    let (at, flip) = (usize::from(two(values)), values.next());
    let damaged = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        let at = at % frame.len();
        frame[at] ^= flip;
        noise(&frame[14..]);
        noise(&frame[14..at.max(14)]);
    };
    damaged(&arp(values));
    neighbours(values).iter().for_each(|frame| damaged(frame));
    damaged(&icmp(values));
    header(values);
}

/// Bytes as a message of each kind.
fn noise(bytes: &[u8]) {
    if let Some(arp) = Arp::parse(bytes) {
        assert!(!is_group(arp.sender_mac));
        assert_eq!(arp.frame([0; 6])[14..], bytes[..arp::MESSAGE_LEN]);
    }
    for (source, destination) in ends_of(bytes) {
        let message = bytes.get(40..).unwrap_or(bytes);
        match Ndp::parse(message, source, destination) {
            Some(Ndp::Solicitation { target, mac } | Ndp::Advertisement { target, mac, .. }) => {
                assert!(!target.is_multicast());
                assert!(mac.is_none_or(|mac| !is_group(mac)));
                assert!(message.len() >= 24);
            }
            None => {}
        }
    }
    for (v6, read) in [(false, Message::parse_v4(bytes)), (true, Message::parse_v6(bytes))] {
        if let Message::Error { quoted: Quoted { source, destination, .. }, .. } = read {
            assert_eq!((source.is_ipv6(), destination.is_ipv6()), (v6, v6));
            // The header and the first eight bytes of what it carries.
            assert!(bytes.len() >= icmp::HEADER_LEN + if v6 { 48 } else { 28 });
        }
        let mut reply = bytes.to_vec();
        icmp::make_reply(&mut reply, v6);
        assert_eq!(reply.len(), bytes.len());
    }
    for at in [bytes.len() / 2, bytes.len().min(54)] {
        let (first, rest) = bytes.split_at(at);
        if let Ok(split) = Headers::parse_split(first, &[rest]) {
            assert_eq!(Headers::parse(bytes), Ok(split), "in pieces as in one");
        }
    }
}

/// The addresses that an IPv6 header in front would have, and those of a probe.
fn ends_of(bytes: &[u8]) -> [(Ipv6Addr, Ipv6Addr); 2] {
    let ip = |at: usize| {
        let octets = bytes.get(at..at + 16).and_then(|octets| <[u8; 16]>::try_from(octets).ok());
        Ipv6Addr::from(octets.unwrap_or_default())
    };
    [(ip(8), ip(24)), (Ipv6Addr::UNSPECIFIED, ndp::solicited_node(ip(48)))]
}

fn arp(values: &mut Bytes<'_>) -> Vec<u8> {
    let (mac, own): (Mac, Mac) = (values.array(), values.array());
    let (sender, target): (Ipv4Addr, Ipv4Addr) = (values.array().into(), values.array().into());
    let request = Arp::request((mac, sender), target, None);
    let read = Arp::parse(&request[14..]);
    assert_eq!(read.is_some(), !is_group(mac), "a group asks nothing");
    if let Some(read) = read {
        assert_eq!((read.operation, read.sender_mac), (Operation::Request, mac));
        assert_eq!((read.sender, read.target), (sender, target));
        let reply = read.reply(own);
        assert_eq!((&reply[..6], &reply[6..12]), (&mac[..], &own[..]));
        if let Some(reply) = Arp::parse(&reply[14..]) {
            assert_eq!((reply.operation, reply.sender_mac), (Operation::Reply, own));
            assert_eq!((reply.sender, reply.target), (target, sender));
            assert_eq!(reply.target_mac, mac);
        }
    }
    let probe = Arp::parse(&Arp::probe(mac, target)[14..]);
    assert!(probe.is_none_or(|probe| probe.sender.is_unspecified() && probe.target == target));
    request.to_vec()
}

fn neighbours(values: &mut Bytes<'_>) -> [Vec<u8>; 4] {
    let (mac, to): (Mac, Mac) = (values.array(), values.array());
    let (source, target): (Ipv6Addr, Ipv6Addr) = (values.array().into(), values.array().into());
    // A solicitation from the unspecified address has no link-layer option, and a group is no host's address.
    let option = (!is_group(mac)).then_some(mac);
    let asks = |from_none| {
        let group = target.is_multicast() || source.is_multicast();
        let may = !group && (!source.is_unspecified() || from_none);
        may.then_some(Ndp::Solicitation { target, mac: option })
    };
    let all = ndp::solicitation((mac, source), target, None);
    assert_eq!(all[..6], ndp::group_mac(ndp::solicited_node(target)));
    assert_eq!(read(&all), asks(option.is_none()));
    let one = ndp::solicitation((mac, source), target, Some(to));
    assert_eq!(read(&one), asks(false));
    let probe = ndp::probe(mac, target);
    let expected = (!target.is_multicast()).then_some(Ndp::Solicitation { target, mac: None });
    assert_eq!(read(&probe), expected);
    let advertises = |solicited| {
        let to_a_group = solicited && source.is_multicast();
        let valid = !target.is_multicast() && !to_a_group;
        valid.then_some(Ndp::Advertisement { target, mac: option, solicited, overrides: true })
    };
    let answer = ndp::advertisement(mac, target, Some((source, to)));
    assert_eq!(read(&answer), advertises(true));
    let announcement = ndp::advertisement(mac, target, None);
    assert_eq!(read(&announcement), advertises(false));
    let frames = [all.to_vec(), one.to_vec(), probe.to_vec(), answer.to_vec()];
    for frame in &frames {
        let ip = Ipv6::new(&frame[14..]).expect("a header of ours");
        assert_eq!((ip.hop_limit(), frame.len()), (ndp::HOP_LIMIT, 54 + frame[54..].len()));
        let sum = ip.pseudo_header(58, frame.len() - 54);
        assert_eq!(sum.plus(wire::checksum::sum(&frame[54..])).fold(), 0xffff);
    }
    frames
}

fn read(frame: &[u8]) -> Option<Ndp> {
    let Addresses::V6 { source, destination } = Ipv6::new(&frame[14..]).ok()?.addresses() else {
        return None;
    };
    Ndp::parse(&frame[54..], source, destination)
}

/// An error that quotes a segment, which is read as it was sent.
fn icmp(values: &mut Bytes<'_>) -> Vec<u8> {
    let addresses = addresses(values);
    let (ports, seq) = (values.array::<4>(), values.array::<4>());
    let (kind, code, mtu) = (values.next(), values.next(), two(values));
    let ip = IpHeader::new(addresses, wire::protocol::TCP);
    let mut bytes = vec![0; 14 + icmp::HEADER_LEN + ip.header_len()];
    bytes[14..16].copy_from_slice(&[kind, code]);
    bytes[20..22].copy_from_slice(&mtu.to_be_bytes());
    ip.write(&mut bytes[14 + icmp::HEADER_LEN..], 20);
    bytes.extend([ports, seq].concat());
    let v6 = addresses.source().is_ipv6();
    let parse = if v6 { Message::parse_v6 } else { Message::parse_v4 };
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    let quoted = Quoted {
        source: SocketAddr::new(addresses.source(), port(0)),
        destination: SocketAddr::new(addresses.destination(), port(2)),
        seq: Seq(u32::from_be_bytes(seq)),
    };
    match parse(&bytes[14..]) {
        Message::Error { what, quoted: read } => {
            assert_eq!(read, quoted);
            if let icmp::Error::TooBig { mtu: read } = what {
                assert_eq!(read, u32::from(mtu));
            }
        }
        Message::EchoRequest => assert_eq!((kind, code), (if v6 { 128 } else { 8 }, 0)),
        Message::Other => {}
    }
    // One byte less than a router must quote does not identify a segment.
    let short = parse(&bytes[14..bytes.len() - 1]);
    assert!(!matches!(short, Message::Error { .. }));
    bytes
}

/// A header is read as it was written.
fn header(values: &mut Bytes<'_>) {
    let addresses = addresses(values);
    let label = u32::from_be_bytes(values.array());
    let header = IpHeader {
        ttl: values.next(),
        tos: values.next(),
        flow_label: label,
        ..IpHeader::new(addresses, values.next() | 0x80)
    };
    let len = usize::from(values.next());
    let mut frame = vec![0; 14 + header.header_len() + len];
    wire::write_ethernet(&mut frame, values.array(), values.array(), header.ether_type());
    header.write(&mut frame[14..], len);
    let at = Headers::parse(&frame).expect("headers of ours");
    assert_eq!((at.transport_at, at.end), (14 + header.header_len(), frame.len()));
    let (read, tos, ttl, protocol, sum) = match at.network {
        Network::Ipv4 { .. } => {
            let ip = Ipv4::new(&frame[14..]).expect("parsed before");
            assert!(ip.checksum_ok() && ip.dont_fragment() && !ip.is_fragment());
            (ip.addresses(), ip.tos(), ip.ttl(), ip.protocol(), ip.pseudo_header(len))
        }
        _ => {
            let ip = Ipv6::new(&frame[14..]).expect("parsed before");
            assert_eq!(ip.flow_label(), label & 0xf_ffff);
            let sum = ip.pseudo_header(ip.next_header(), len);
            (ip.addresses(), ip.traffic_class(), ip.hop_limit(), ip.next_header(), sum)
        }
    };
    assert_eq!((read, tos, ttl), (addresses, header.tos, header.ttl));
    assert_eq!((protocol, sum.fold()), (header.protocol, header.pseudo_header(len).fold()));
    assert_eq!(read.reversed().reversed(), read);
    assert_eq!(Addresses::new(read.source(), read.destination()), Some(read));
    let other: IpAddr = if read.source().is_ipv4() { [0; 16].into() } else { [0; 4].into() };
    assert_eq!(Addresses::new(read.source(), other), None, "of two versions");
}
