//! Any packets and times against a host: it replies only to requests for its own addresses, learns from hosts
//! only, keeps its memory bounded, and stops sending requests. The fuzz target has this from here, too.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use iface::{
    Addresses, Config, Dropped, Interface, MESSAGES_MAX, NEIGHBOURS_MAX, Packet, Received, Route,
    UpperLayer, WAITING_BYTES,
};
use testkit::bytes::Bytes;
use testkit::packet::PacketBuilder;
use testkit::verify;
use wire::arp::{self, Arp, Operation};
use wire::ndp::{self, Ndp};
use wire::{Headers, Ipv6, Mac, Transport, VirtioNetHdr, is_group, protocol};

const SECOND: u64 = 1_000_000_000;
const OWN: Mac = [2, 0, 0, 0, 0, 2];
const OWN4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 7)];
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// Most steps of one run.
const STEPS_MAX: usize = 300;
/// Seconds that exceed all requests for a neighbour.
const PATIENCE: u64 = 10;

/// A host, and what it may send because of what has arrived.
struct Drive {
    host: Interface,
    now: u64,
    /// Addresses that were claimed for each neighbour.
    claims: HashMap<IpAddr, HashSet<Mac>>,
    /// Replies that are due: the frame's destination, and the message.
    owed: Vec<(Mac, Owed)>,
    /// Echo requests, whose replies may wait for a neighbour: source, and data.
    pings: Vec<(IpAddr, Vec<u8>)>,
    /// Frames of the transport's that wait for a neighbour.
    held: u64,
    /// How many of them were sent.
    released: u64,
    /// Of the last echo request.
    number: u32,
    /// Addresses that were announced.
    announced: HashSet<IpAddr>,
    duplicates: HashSet<IpAddr>,
}

#[derive(PartialEq, Eq, Debug)]
enum Owed {
    Arp { of: Ipv4Addr, to: Ipv4Addr },
    Advertisement { of: Ipv6Addr, solicited: bool },
}

/// All laws, for these decisions.
pub(crate) fn run(bytes: &[u8]) {
    let bytes = &mut Bytes(bytes);
    let mut drive = Drive::new(bytes.pick(&[0, 0, 1, 3]));
    for _ in 0..STEPS_MAX {
        if bytes.0.is_empty() {
            break;
        }
        drive.step(bytes);
        drive.invariants();
    }
    drive.end();
}

impl Drive {
    fn new(probes: u8) -> Self {
        let own = |ip: IpAddr, prefix_len| iface::Address { ip, prefix_len };
        let own = vec![own(OWN4[0].into(), 24), own(OWN6.into(), 64), own(OWN4[1].into(), 32)];
        let gateways = vec![[10, 0, 0, 1].into(), [0xfe80, 0, 0, 0, 0, 0, 0, 1].into()];
        let addresses = Addresses::new(own, gateways).expect("addresses of a host");
        let config = Config { mac: OWN, addresses, secret: [7; 16], probes };
        let mut host = Interface::new(config);
        host.start(SECOND);
        Drive {
            host,
            now: SECOND,
            claims: HashMap::new(),
            owed: Vec::new(),
            pings: Vec::new(),
            held: 0,
            released: 0,
            number: 0,
            announced: HashSet::new(),
            duplicates: HashSet::new(),
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.next() % 16 {
            0 => self.now += bytes.pick(&[0, 1, SECOND / 2, SECOND, 31 * SECOND]),
            1 => self.host.on_time(self.now),
            2 => self.drain(usize::from(bytes.next())),
            3..=5 => self.arp(bytes),
            6..=8 => self.neighbour_discovery(bytes),
            9..=10 => self.ping(bytes),
            11 => self.error(bytes),
            12 => self.segment(bytes),
            13 => {
                let len = usize::from(bytes.next());
                let noise = bytes.0[..len.min(bytes.0.len())].to_vec();
                self.claim_all(&noise);
                let _ = self.receive(&noise);
            }
            _ => self.send(bytes),
        }
    }

    /// What holds after every step.
    fn invariants(&mut self) {
        while let Some(found) = self.host.poll_duplicate() {
            assert!(is_own(found.ip) && found.mac != OWN && self.duplicates.insert(found.ip));
        }
        let counters = self.host.counters();
        assert!(counters.neighbours <= NEIGHBOURS_MAX as u64);
        // Replies to pings that wait for their neighbour are dropped as well.
        assert!(self.released <= self.held);
        assert!(self.owed.len() <= MESSAGES_MAX);
    }

    /// Hands over a frame: what is dropped is counted once, for one reason.
    fn receive<'a>(&mut self, frame: &'a [u8]) -> Result<Received<'a>, Dropped> {
        let before = self.host.counters().dropped;
        let received = self.host.receive(&Packet::frame(frame), self.now);
        let after = self.host.counters().dropped;
        for why in Dropped::ALL {
            let counted = after[why as usize] - before[why as usize];
            assert_eq!(counted, u64::from(received.err() == Some(why)), "{why:?}");
        }
        let to: Option<&Mac> = frame.first_chunk();
        let for_us = to.is_some_and(|to| *to == OWN || is_group(*to));
        assert!(for_us || received.is_err(), "of another host");
        match received {
            Ok(Received::Segment(segment)) => {
                self.is_of_a_host(segment.remote);
                assert!(self.host.is_own(segment.local.ip()));
                verify::checksums(frame).expect("checksums that were verified");
            }
            Ok(Received::Error { local, .. }) => assert!(self.host.is_own(local.ip())),
            _ => {}
        }
        received
    }

    fn is_of_a_host(&self, end: SocketAddr) {
        let ip = end.ip();
        assert!(!ip.is_multicast() && !ip.is_unspecified() && !ip.is_loopback() && !is_own(ip));
    }

    fn claim(&mut self, ip: impl Into<IpAddr>, mac: Mac) {
        self.claims.entry(ip.into()).or_default().insert(mac);
    }

    /// Claims that noise may hold by chance.
    fn claim_all(&mut self, frame: &[u8]) {
        if let Some(arp) = frame.get(14..).and_then(Arp::parse) {
            self.claim(arp.sender, arp.sender_mac);
            if self.host.is_own(arp.target.into()) && arp.operation == Operation::Request {
                self.owed.push((arp.sender_mac, Owed::Arp { of: arp.target, to: arp.sender }));
            }
        }
    }

    fn arp(&mut self, bytes: &mut Bytes<'_>) {
        let (mac, sender) = (mac(bytes), v4(bytes));
        let (operation, target) = (bytes.next(), v4(bytes));
        let operation = if operation & 1 == 0 { Operation::Request } else { Operation::Reply };
        let arp = Arp { operation, sender_mac: mac, sender, target_mac: OWN, target };
        let frame = arp.frame(bytes.pick(&[[0xff; 6], OWN, [2, 0, 0, 0, 0, 99]]));
        self.claim(sender, mac);
        let received = self.receive(&frame);
        if received.is_ok() {
            assert!(self.host.is_own(target.into()) && !is_group(mac));
            if operation == Operation::Request {
                self.owed.push((mac, Owed::Arp { of: target, to: sender }));
            }
        }
    }

    fn neighbour_discovery(&mut self, bytes: &mut Bytes<'_>) {
        let (mac, source, target) = (mac(bytes), v6(bytes), v6(bytes));
        let kind = bytes.next() % 4;
        let mut frame = match kind {
            0 => ndp::solicitation((mac, source), target, None).to_vec(),
            1 => ndp::solicitation((mac, source), target, Some(OWN)).to_vec(),
            2 => ndp::probe(mac, target).to_vec(),
            _ => {
                let asked = (bytes.next() & 1 == 0).then_some((OWN6, OWN));
                ndp::advertisement(mac, target, asked).to_vec()
            }
        };
        // Damaged, or from beyond a router.
        let sound = match bytes.next() % 8 {
            0 => {
                frame[60] ^= 1;
                false
            }
            1 => {
                frame[21] = 254;
                false
            }
            _ => true,
        };
        if sound {
            self.claim(if kind == 3 { target } else { source }, mac);
        }
        let received = self.receive(&frame);
        if received.is_ok() {
            assert!(sound, "damaged, or from elsewhere");
            if kind < 3 {
                assert!(self.host.is_own(target.into()));
                let asked = kind < 2 && !source.is_unspecified();
                let to = if asked { mac } else { ndp::group_mac(ndp::ALL_NODES) };
                self.owed.push((to, Owed::Advertisement { of: target, solicited: asked }));
            }
        }
    }

    fn ping(&mut self, bytes: &mut Bytes<'_>) {
        let is_v6 = bytes.next() & 1 == 0;
        let mut message = vec![if is_v6 { 128 } else { 8 }, 0, 0, 0];
        self.number += 1;
        message.extend(self.number.to_be_bytes());
        message.resize(8 + usize::from(bytes.next()) * 4, bytes.next());
        let (mac, wrong) = (mac(bytes), bytes.next().is_multiple_of(8));
        let (builder, source) = match is_v6 {
            true => {
                let (source, to) = (v6(bytes), v6(bytes));
                let builder = PacketBuilder::ip6(58).addresses6(source.octets(), to.octets());
                (builder, IpAddr::V6(source))
            }
            false => {
                let (source, to) = (v4(bytes), v4(bytes));
                let builder = PacketBuilder::ip4(1).addresses4(source.octets(), to.octets());
                (builder, IpAddr::V4(source))
            }
        };
        let mut frame = builder.macs(mac, OWN).payload(&message).build();
        complete(&mut frame, is_v6);
        if wrong {
            *frame.last_mut().expect("a frame") ^= 1;
        }
        if self.receive(&frame).is_ok() {
            assert!(!wrong, "a wrong checksum");
            self.pings.push((source, message[4..].to_vec()));
        }
    }

    /// An error about a segment of ours, or of others.
    fn error(&mut self, bytes: &mut Bytes<'_>) {
        let (router, of, to) = (v4(bytes), v4(bytes), v4(bytes));
        let quoted = PacketBuilder::tcp4().addresses4(of.octets(), to.octets()).build();
        let message = [&[3, bytes.next() % 8, 0, 0, 0, 0, 5, 0], &quoted[14..42]].concat();
        let ip = PacketBuilder::ip4(1).addresses4(router.octets(), OWN4[0].octets());
        let mut frame = ip.macs([2, 0, 0, 0, 0, 1], OWN).payload(&message).build();
        complete(&mut frame, false);
        let received = self.receive(&frame);
        if let Ok(Received::Error { local, remote, .. }) = received {
            assert_eq!((local.ip(), remote.ip()), (of.into(), to.into()));
        }
    }

    fn segment(&mut self, bytes: &mut Bytes<'_>) {
        let builder = match bytes.next() & 1 {
            0 => PacketBuilder::tcp4().addresses4(v4(bytes).octets(), v4(bytes).octets()),
            _ => PacketBuilder::tcp6().addresses6(v6(bytes).octets(), v6(bytes).octets()),
        };
        let builder = builder.macs(mac(bytes), bytes.pick(&[OWN, [2, 0, 0, 0, 0, 99]]));
        let payload = vec![7; usize::from(bytes.next())];
        let wrong = bytes.next().is_multiple_of(8);
        let builder = builder.payload(&payload);
        let frame = if wrong { builder.wrong_checksum() } else { builder }.build();
        match self.receive(&frame) {
            Ok(Received::Segment(segment)) => {
                assert!(!wrong);
                assert_eq!(segment.payload, payload);
            }
            other => assert!(other.is_err(), "{other:?}"),
        }
    }

    /// Sends a segment of the transport.
    fn send(&mut self, bytes: &mut Bytes<'_>) {
        let to: IpAddr = match bytes.next() & 1 {
            0 => v4(bytes).into(),
            _ => v6(bytes).into(),
        };
        let len = usize::from(bytes.next()) * 200;
        let local: IpAddr = if to.is_ipv4() { OWN4[0].into() } else { OWN6.into() };
        if is_own(to) || !self.host.is_own(local) {
            // A transport does not send to itself by a link, nor from an address that is not used.
            return;
        }
        let Ok(route) = self.host.route(to, self.now) else { return };
        let packet = UpperLayer {
            local: SocketAddr::new(local, 7),
            remote: SocketAddr::new(to, 4000),
            protocol: 0xfd,
            tos: 2,
            len,
        };
        let mac = match route {
            Route::At(mac) => {
                assert!(!is_group(mac), "packets for one host go to one host");
                mac
            }
            Route::Asking(_) => Mac::default(),
        };
        let mut frame = vec![0; 54 + len];
        let written = self.host.write_headers(&mut frame, mac, &packet).expect("of one version");
        frame.truncate(written.len + len);
        if let Route::Asking(hop) = route {
            self.held += 1;
            self.host.hold(hop, VirtioNetHdr::default(), frame);
        } else {
            self.check_sent(&frame);
        }
    }

    /// Takes at most so many frames.
    fn drain(&mut self, most: usize) {
        let mut bytes = 0;
        for _ in 0..most {
            let Some(frame) = self.host.poll_transmit(self.now) else { return };
            let frame = frame.bytes.to_vec();
            bytes += frame.len();
            self.check_sent(&frame);
            self.check_frame(&frame);
        }
        assert!(bytes <= WAITING_BYTES + MESSAGES_MAX * 2048);
    }

    /// Checks any frame that is sent.
    fn check_sent(&self, frame: &[u8]) {
        assert_eq!(frame[6..12], OWN, "from itself");
        verify::checksums(frame).expect("right checksums");
        let headers = Headers::parse(frame).expect("headers of ours");
        let (to, hop) = (*frame.first_chunk::<6>().expect("long enough"), destination(frame));
        if let Some(ip) = hop
            && !is_group(to)
        {
            let hop = self.host.addresses().next_hop(ip).expect("a route");
            let asked = self.owed.iter().any(|(mac, _)| *mac == to);
            let claimed = self.claims.get(&hop).is_some_and(|macs| macs.contains(&to));
            assert!(claimed || asked, "{to:02x?} was not claimed for {hop}");
        }
        assert!(headers.end <= frame.len());
    }

    /// Checks a frame that the host itself has made, or held.
    fn check_frame(&mut self, frame: &[u8]) {
        let to = *frame.first_chunk::<6>().expect("long enough");
        let headers = Headers::parse(frame).expect("headers of ours");
        match headers.transport {
            Transport::Other(0xfd) => self.released += 1,
            Transport::Other(protocol::ICMP | protocol::ICMPV6) => self.check_icmp(to, frame),
            _ => {
                let arp = Arp::parse(&frame[14..]).expect("ARP, or ICMP");
                assert_eq!((arp.sender_mac, frame.len()), (OWN, arp::FRAME_LEN));
                match arp.operation {
                    Operation::Request if arp.sender.is_unspecified() => {
                        assert!(is_own(arp.target.into()), "a probe");
                    }
                    Operation::Request if arp.sender == arp.target => {
                        self.announced(arp.sender.into());
                    }
                    Operation::Request => {
                        assert!(self.host.is_own(arp.sender.into()));
                        assert!(!is_own(arp.target.into()));
                    }
                    Operation::Reply => {
                        assert_eq!(arp.target_mac, to);
                        assert!(self.host.is_own(arp.sender.into()));
                        self.pay(to, &Owed::Arp { of: arp.sender, to: arp.target });
                    }
                }
            }
        }
    }

    fn check_icmp(&mut self, to: Mac, frame: &[u8]) {
        let v6 = frame[12] == 0x86;
        let at = if v6 { 54 } else { 34 };
        let sum = match v6 {
            true => {
                [verify::pseudo_header(&frame[22..54], 58, frame.len() - at), frame[at..].to_vec()]
                    .concat()
            }
            false => frame[at..].to_vec(),
        };
        assert_eq!(verify::ones_complement_sum(&sum), 0xffff);
        if let (0 | 129, Some(ip)) = (frame[at], destination(frame)) {
            let place = self
                .pings
                .iter()
                .position(|(from, data)| *from == ip && data[..] == frame[at + 4..]);
            self.pings.remove(place.expect("an echo request that was sent"));
            return;
        }
        let ip = Ipv6::new(&frame[14..]).expect("a header of ours");
        let (source, destination) = match ip.addresses() {
            wire::ip::Addresses::V6 { source, destination } => (source, destination),
            wire::ip::Addresses::V4 { .. } => unreachable!("a header of IPv6"),
        };
        match Ndp::parse(&frame[54..], source, destination).expect("Neighbour Discovery") {
            Ndp::Solicitation { target, mac } if source.is_unspecified() => {
                assert!(is_own(target.into()), "a probe");
                assert_eq!(mac, None);
            }
            Ndp::Solicitation { target, mac } => {
                assert!(self.host.is_own(source.into()) && !is_own(target.into()));
                assert_eq!(mac, Some(OWN));
            }
            Ndp::Advertisement { target, mac, solicited, .. } => {
                assert!(self.host.is_own(target.into()));
                assert_eq!((mac, source), (Some(OWN), target));
                let reply = Owed::Advertisement { of: target, solicited };
                match !solicited && !self.owed.contains(&(to, reply)) {
                    true => self.announced(target.into()),
                    false => self.pay(to, &Owed::Advertisement { of: target, solicited }),
                }
            }
        }
    }

    /// An address is announced once, and not before it is used.
    fn announced(&mut self, ip: IpAddr) {
        assert!(self.host.is_own(ip) && self.announced.insert(ip), "{ip} is announced");
    }

    /// A reply that is due is sent.
    fn pay(&mut self, to: Mac, reply: &Owed) {
        let place = self.owed.iter().position(|(mac, owed)| *mac == to && owed == reply);
        self.owed.remove(place.unwrap_or_else(|| panic!("{reply:?} to {to:02x?} was not asked")));
    }

    /// Without more packets the host has nothing left to do, and every packet is accounted for.
    fn end(&mut self) {
        for _ in 0..PATIENCE {
            self.drain(usize::MAX);
            self.host.on_time(self.now);
            assert!(self.host.next_deadline().is_none_or(|due| due > self.now), "time goes on");
            self.now += SECOND;
        }
        self.drain(usize::MAX);
        assert_eq!(self.host.next_deadline(), None, "each request has an end");
        assert!(self.host.is_settled());
        for own in self.host.addresses().own() {
            assert_ne!(self.host.is_own(own.ip), self.duplicates.contains(&own.ip));
        }
        assert!(self.owed.is_empty(), "{:?}", self.owed);
        let counters = self.host.counters();
        let given_up = counters.neighbour_silent;
        let left = self.held - self.released + self.pings.len() as u64;
        let refused = counters.dropped[Dropped::TooManyNeighbours as usize];
        assert!(given_up <= left && left <= given_up + refused, "{left} of which {given_up}");
    }
}

fn is_own(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => OWN4.contains(&ip),
        IpAddr::V6(ip) => ip == OWN6,
    }
}

/// Neighbours, a group, the host itself.
fn mac(bytes: &mut Bytes<'_>) -> Mac {
    let last = bytes.next();
    match last % 16 {
        0 => [0x33, 0x33, 0, 0, 0, 1],
        1 => OWN,
        2 => [0xff; 6],
        _ => [2, 0, 0, 0, 0, last],
    }
}

fn v4(bytes: &mut Bytes<'_>) -> Ipv4Addr {
    let last = bytes.next();
    match last % 16 {
        0..=4 => OWN4[0],
        5 => OWN4[1],
        6 => Ipv4Addr::UNSPECIFIED,
        7 => Ipv4Addr::BROADCAST,
        8 => Ipv4Addr::new(224, 0, 0, 1),
        9 => Ipv4Addr::new(198, 51, 100, last),
        10 => Ipv4Addr::LOCALHOST,
        11 => Ipv4Addr::new(10, 0, 0, 1),
        _ => Ipv4Addr::new(10, 0, 0, last),
    }
}

fn v6(bytes: &mut Bytes<'_>) -> Ipv6Addr {
    let last = bytes.next();
    match last % 16 {
        0..=4 => OWN6,
        5 => Ipv6Addr::UNSPECIFIED,
        6 => ndp::ALL_NODES,
        7 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()),
        8 => Ipv6Addr::LOCALHOST,
        9 => ndp::solicited_node(OWN6),
        10 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last.into()),
        _ => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()),
    }
}

/// Destination of an IP packet; `None` of other frames.
fn destination(frame: &[u8]) -> Option<IpAddr> {
    match [frame[12], frame[13]] {
        [0x08, 0x00] => Some(<[u8; 4]>::try_from(&frame[30..34]).ok()?.into()),
        [0x86, 0xdd] => Some(<[u8; 16]>::try_from(&frame[38..54]).ok()?.into()),
        _ => None,
    }
}

/// The checksum of an ICMP message.
fn complete(frame: &mut [u8], v6: bool) {
    let at = if v6 { 54 } else { 34 };
    frame[at + 2..at + 4].fill(0);
    let mut bytes = frame[at..].to_vec();
    if v6 {
        bytes = [verify::pseudo_header(&frame[22..54], 58, frame.len() - at), bytes].concat();
    }
    let sum = !verify::ones_complement_sum(&bytes);
    frame[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
}
