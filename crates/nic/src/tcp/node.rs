//! The endpoint as a host on the network, without IO: packets in, packets out, and time. It finds its
//! neighbours, answers them, and has the engine behind it.

use std::net::{IpAddr, SocketAddr};

use lro::{Nanos, RxChecksum};
use tcp::{FourTuple, Segment, Stack};
use wire::{
    ETHERNET_LEN, EtherType, Headers, Ipv4, Ipv6, Network, Tcp, Transport, VirtioNetHdr, checksum,
    protocol,
};

use super::addresses::{Addresses, is_sender};
use super::arp::{Arp, Operation};
use super::counters::{Counters, Dropped};
use super::frame::Ip;
use super::icmp::{self, ICMP, Message};
use super::ndp::{self, Ndp};
use super::neighbours::{Learned, Mac, Neighbours, Resolved};
use super::outbox::Outbox;
use super::output::Output;
use super::port::{Arrived, Packet, Port};
use super::split;

/// See the module's documentation.
pub(super) struct Node {
    mac: Mac,
    addresses: Addresses,
    neighbours: Neighbours,
    outbox: Outbox,
    output: Output,
    pub(super) stack: Stack,
    pub(super) counters: Counters,
}

/// How far [`Node::transmit`] got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// There was nothing to send.
    Nothing,
    /// Something was sent, and there may be more.
    Some,
    /// The port has no room for more.
    Full,
}

/// The ends of a packet, and what else its IP header says.
#[derive(Clone, Copy, Debug)]
struct Ends {
    source: IpAddr,
    destination: IpAddr,
    /// DSCP and ECN.
    tos: u8,
}

impl Node {
    /// A host with this Ethernet address.
    pub(super) fn new(mac: Mac, addresses: Addresses, stack: Stack) -> Self {
        Node {
            mac,
            addresses,
            neighbours: Neighbours::default(),
            outbox: Outbox::default(),
            output: Output::new(mac),
            stack,
            counters: Counters::default(),
        }
    }

    /// The own address that speaks with `to`.
    pub(super) fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        self.addresses.source_for(to)
    }

    /// Tells all neighbours where its addresses are (RFC 5227 section 2.3, RFC 4861 section 7.2.6).
    pub(super) fn announce(&mut self) {
        for address in self.addresses.own() {
            match address.ip {
                IpAddr::V4(ip) => self.outbox.frame(&Arp::request((self.mac, ip), ip, None)),
                IpAddr::V6(ip) => self.outbox.frame(&ndp::advertisement(self.mac, ip, None)),
            };
        }
    }

    /// Takes a packet.
    #[inline]
    pub(super) fn receive(&mut self, packet: Arrived<'_>, now: Nanos) {
        if let Err(why) = self.take(&packet, now) {
            self.counters.drop(why);
        }
    }

    #[inline]
    fn take(&mut self, packet: &Arrived<'_>, now: Nanos) -> Result<(), Dropped> {
        let bytes = packet.bytes;
        let Some(to) = bytes.first_chunk::<6>() else { return Err(Dropped::Malformed) };
        // Groups are looked at by their IP address.
        if *to != self.mac && to[0] & 1 == 0 {
            return Err(Dropped::OtherHost);
        }
        let headers = match packet.rest {
            [] => Headers::parse(bytes),
            rest => split::parse(bytes, rest),
        }
        .map_err(|_| Dropped::Malformed)?;
        if headers.network_at > ETHERNET_LEN {
            return Err(Dropped::Vlan);
        }
        let ends = match headers.network {
            Network::Ipv4 { .. } => v4_ends(&bytes[headers.network_at..headers.transport_at])?,
            Network::Ipv6 { .. } => v6_ends(&bytes[headers.network_at..headers.transport_at]),
            Network::Other(EtherType::ARP) => return self.take_arp(&bytes[ETHERNET_LEN..], now),
            Network::Other(_) => return Err(Dropped::NotIp),
        };
        match headers.transport {
            Transport::Tcp => self.take_segment(packet, &headers, &ends, now),
            Transport::Other(protocol::ICMPV6) if ends.source.is_ipv6() => {
                self.take_icmp_v6(bytes, &headers, &ends, now)
            }
            Transport::Other(ICMP) if ends.source.is_ipv4() => {
                self.take_icmp_v4(bytes, &headers, &ends, now)
            }
            Transport::Fragment => Err(Dropped::Fragment),
            _ if !self.addresses.is_own(ends.destination) => Err(Dropped::OtherAddress),
            _ => Err(Dropped::Protocol),
        }
    }

    #[inline]
    fn take_segment(
        &mut self,
        packet: &Arrived<'_>,
        headers: &Headers,
        ends: &Ends,
        now: Nanos,
    ) -> Result<(), Dropped> {
        self.is_for_us(ends)?;
        let bytes = packet.bytes;
        let transport = &bytes[headers.transport_at..headers.end.min(bytes.len())];
        let header = Tcp::new(transport).map_err(|_| Dropped::Malformed)?;
        let is_right = match packet.checksum {
            RxChecksum::Verified => true,
            RxChecksum::Unverified => verifies(packet, headers),
            RxChecksum::MaybePartial => {
                verifies(packet, headers) || wire::partial_checksum(bytes).is_some()
            }
        };
        if !is_right {
            return Err(Dropped::TcpChecksum);
        }
        let path = FourTuple {
            local: SocketAddr::new(ends.destination, header.destination()),
            remote: SocketAddr::new(ends.source, header.source()),
        };
        let first = &transport[header.header_len()..];
        let ce = ends.tos & 3 == 3;
        let segment =
            |payload| Segment { gso_size: packet.gso_size, ce, ..Segment::new(&header, payload) };
        let len = match (first, packet.rest) {
            ([], rest) => give(&mut self.stack, &path, &segment(rest), now),
            (first, []) => give(&mut self.stack, &path, &segment(&[first]), now),
            (first, [second]) => give(&mut self.stack, &path, &segment(&[first, second]), now),
            // Nothing hands these over: an aggregate's first piece is its headers.
            _ => return Err(Dropped::Malformed),
        };
        self.counters.segments_in.count(len as usize);
        self.counters.aggregates += u64::from(packet.gso_size > 0);
        Ok(())
    }

    /// Whether its source and destination are such that it is for this endpoint.
    #[inline]
    fn is_for_us(&self, ends: &Ends) -> Result<(), Dropped> {
        if !self.addresses.is_own(ends.destination) {
            return Err(Dropped::OtherAddress);
        }
        if !is_sender(ends.source) || self.addresses.is_own(ends.source) {
            return Err(Dropped::BadSource);
        }
        Ok(())
    }

    #[cold]
    fn take_arp(&mut self, message: &[u8], now: Nanos) -> Result<(), Dropped> {
        let arp = Arp::parse(message).ok_or(Dropped::Arp)?;
        let (sender, target) = (IpAddr::V4(arp.sender), IpAddr::V4(arp.target));
        if !self.addresses.is_own(target) {
            // One that announces itself, or a question for others: an update of what is known (RFC 826).
            self.learn(sender, arp.sender_mac, Learned::FromAnswer { overrides: true }, now);
            return Err(Dropped::Arp);
        }
        match arp.operation {
            Operation::Request => {
                self.learn(sender, arp.sender_mac, Learned::FromQuestion, now);
                self.counters.resolutions += 1;
                self.reply(&arp.reply(self.mac))
            }
            Operation::Reply => {
                self.learn(sender, arp.sender_mac, Learned::FromAnswer { overrides: true }, now);
                Ok(())
            }
        }
    }

    /// What a neighbour says of itself, if it can be one.
    fn learn(&mut self, ip: IpAddr, mac: Mac, how: Learned, now: Nanos) {
        if is_sender(ip) && !self.addresses.is_own(ip) && self.addresses.next_hop(ip) == Some(ip) {
            self.neighbours.learn(ip, mac, how, now);
        }
    }

    fn reply(&mut self, frame: &[u8]) -> Result<(), Dropped> {
        match self.outbox.frame(frame) {
            true => Ok(()),
            false => Err(Dropped::TooManyReplies),
        }
    }

    #[cold]
    fn take_icmp_v4(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        ends: &Ends,
        now: Nanos,
    ) -> Result<(), Dropped> {
        self.is_for_us(ends)?;
        let message = &bytes[headers.transport_at..headers.end];
        if checksum::sum(message).fold() != 0xffff {
            return Err(Dropped::IcmpChecksum);
        }
        self.take_message(message, ends, now)
    }

    #[cold]
    fn take_icmp_v6(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        ends: &Ends,
        now: Nanos,
    ) -> Result<(), Dropped> {
        let message = &bytes[headers.transport_at..headers.end];
        let ip = Ip::new(ends.source, ends.destination, protocol::ICMPV6);
        let sum = ip.pseudo_header(message.len()).plus(checksum::sum(message));
        if sum.fold() != 0xffff {
            return Err(Dropped::IcmpChecksum);
        }
        let view = Ipv6::new(&bytes[headers.network_at..]).map_err(|_| Dropped::Malformed)?;
        if view.hop_limit() == ndp::HOP_LIMIT
            && let (IpAddr::V6(source), IpAddr::V6(destination)) = (ends.source, ends.destination)
            && let Some(said) = Ndp::parse(message, source, destination)
            && let Some(from) = bytes[6..].first_chunk::<6>()
        {
            return self.take_ndp(said, ends.source, *from, now);
        }
        self.is_for_us(ends)?;
        self.take_message(message, ends, now)
    }

    fn take_ndp(
        &mut self,
        said: Ndp,
        source: IpAddr,
        from: Mac,
        now: Nanos,
    ) -> Result<(), Dropped> {
        match said {
            Ndp::Solicitation { target, mac } if self.addresses.is_own(IpAddr::V6(target)) => {
                if let Some(mac) = mac {
                    self.learn(source, mac, Learned::FromQuestion, now);
                }
                self.counters.resolutions += 1;
                let asked = match source {
                    IpAddr::V6(source) if !source.is_unspecified() => Some((source, from)),
                    _ => None,
                };
                self.reply(&ndp::advertisement(self.mac, target, asked))
            }
            Ndp::Advertisement { target, mac: Some(mac), overrides, .. } => {
                self.learn(IpAddr::V6(target), mac, Learned::FromAnswer { overrides }, now);
                Ok(())
            }
            _ => Err(Dropped::Icmp),
        }
    }

    fn take_message(&mut self, message: &[u8], ends: &Ends, now: Nanos) -> Result<(), Dropped> {
        let v6 = ends.source.is_ipv6();
        match icmp::parse(message, v6) {
            Message::EchoRequest => {
                self.counters.pings += 1;
                let ip = Ip::new(
                    ends.destination,
                    ends.source,
                    if v6 { protocol::ICMPV6 } else { ICMP },
                );
                let hop = self.addresses.next_hop(ends.source).ok_or(Dropped::NoRoute)?;
                let made = self.outbox.packet(hop, self.mac, &ip, message, |reply| {
                    icmp::make_reply(reply, v6);
                });
                if made { Ok(()) } else { Err(Dropped::TooManyReplies) }
            }
            Message::Error { path, what, seq } if self.addresses.is_own(path.local.ip()) => {
                self.counters.icmp_errors += 1;
                self.stack.unreachable(&path, what, seq, now);
                Ok(())
            }
            Message::Error { .. } | Message::Other => Err(Dropped::Icmp),
        }
    }

    /// Runs what is due: the engine's timers and the questions where neighbours are.
    pub(super) fn on_time(&mut self, now: Nanos) {
        if self.stack.next_deadline().is_some_and(|due| now >= due) {
            self.stack.on_time(now);
        }
        let Node { neighbours, outbox, addresses, counters, mac, .. } = self;
        neighbours.on_time(now, |ip, known| {
            counters.questions += 1;
            match (ip, addresses.source_for(ip)) {
                (IpAddr::V4(ip), Some(IpAddr::V4(own))) => {
                    outbox.frame(&Arp::request((*mac, own), ip, known))
                }
                (IpAddr::V6(ip), Some(IpAddr::V6(own))) => {
                    outbox.frame(&ndp::solicitation((*mac, own), ip, known))
                }
                _ => false,
            };
        });
        counters.neighbour_silent = neighbours.given_up();
        counters.neighbours = neighbours.len() as u64;
    }

    /// When [`on_time`](Self::on_time) is to be called.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.stack.next_deadline().into_iter().chain(self.neighbours.next_deadline()).min()
    }

    /// Gives the port what there is to send, at most `max` segments of the engine's.
    pub(super) fn transmit(&mut self, port: &mut impl Port, now: Nanos, max: usize) -> Sent {
        let mut sent = self.transmit_replies(port, now);
        let Node { stack, neighbours, addresses, output, counters, .. } = self;
        for _ in 0..max {
            if !port.has_room() {
                return Sent::Full;
            }
            let Some(segment) = stack.poll_transmit(now) else { return sent };
            sent = Sent::Some;
            let Some(hop) = addresses.next_hop(segment.path.remote.ip()) else {
                counters.drop(Dropped::NoRoute);
                continue;
            };
            let resolved = neighbours.resolve(hop, now);
            let to = match resolved {
                Resolved::At(mac) => mac,
                // Written when it is known.
                Resolved::Asking => Mac::default(),
                Resolved::TooMany => {
                    counters.drop(Dropped::TooManyNeighbours);
                    continue;
                }
            };
            let [first, second] = segment.payload;
            counters.segments_out.count(first.len() + second.len());
            counters.super_packets += u64::from(segment.gso_size > 0);
            let (vnet, header) = output.headers(&segment, to);
            match resolved {
                Resolved::Asking => neighbours.hold(hop, vnet, [header, first, second].concat()),
                _ => port.send(&Packet { vnet, header, payload: segment.payload }),
            }
        }
        sent
    }

    /// Answers, questions, and what has waited for a neighbour.
    fn transmit_replies(&mut self, port: &mut impl Port, now: Nanos) -> Sent {
        let mut sent = Sent::Nothing;
        while port.has_room() {
            let Some(waiting) = self.neighbours.released() else { break };
            sent = Sent::Some;
            port.send(&Packet::frame(waiting.vnet, &waiting.bytes));
        }
        while port.has_room() {
            let Some(mut reply) = self.outbox.next() else { break };
            sent = Sent::Some;
            match reply.hop.map(|hop| (hop, self.neighbours.resolve(hop, now))) {
                None => port.send(&Packet::frame(VirtioNetHdr::default(), &reply.bytes)),
                Some((_, Resolved::At(mac))) => {
                    reply.bytes[..6].copy_from_slice(&mac);
                    port.send(&Packet::frame(VirtioNetHdr::default(), &reply.bytes));
                }
                Some((hop, Resolved::Asking)) => {
                    let bytes = reply.bytes.clone();
                    self.neighbours.hold(hop, VirtioNetHdr::default(), bytes);
                }
                Some((_, Resolved::TooMany)) => self.counters.drop(Dropped::TooManyNeighbours),
            }
            self.outbox.reuse(reply);
        }
        sent
    }
}

/// What the header of a packet that was walked says.
#[inline]
fn v4_ends(header: &[u8]) -> Result<Ends, Dropped> {
    if checksum::sum(header).fold() != 0xffff {
        return Err(Dropped::IpChecksum);
    }
    let ip = |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Ok(Ends { source: ip(12), destination: ip(16), tos: header[1] })
}

/// The same for IPv6.
#[inline]
fn v6_ends(header: &[u8]) -> Ends {
    let ip = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().unwrap_or_default();
        IpAddr::from(octets)
    };
    let tos = header[0] << 4 | header[1] >> 4;
    Ends { source: ip(8), destination: ip(24), tos }
}

/// Whether the transport's checksum verifies.
fn verifies(packet: &Arrived<'_>, headers: &Headers) -> bool {
    if packet.rest.is_empty() {
        return verifies_whole(packet.bytes, headers);
    }
    // What joins packets has verified them; should one not have, it costs a copy.
    let whole = [packet.bytes, &packet.rest.concat()].concat();
    verifies_whole(&whole, headers)
}

fn verifies_whole(bytes: &[u8], headers: &Headers) -> bool {
    let transport = &bytes[headers.transport_at..headers.end];
    let network = &bytes[headers.network_at..headers.end];
    let pseudo = match headers.network {
        Network::Ipv4 { .. } => Ipv4::new(network).map(|ip| ip.pseudo_header(transport.len())),
        _ => Ipv6::new(network).map(|ip| ip.pseudo_header(protocol::TCP, transport.len())),
    };
    pseudo.is_ok_and(|pseudo| pseudo.plus(checksum::sum(transport)).fold() == 0xffff)
}

/// Gives the engine a segment; returns how many bytes of payload it has.
#[inline]
fn give(stack: &mut Stack, path: &FourTuple, segment: &Segment<'_>, now: Nanos) -> u32 {
    stack.receive(path, segment, now);
    segment.payload_len()
}
