//! Packets that arrive: processed by the host itself, handed to the transport, or dropped for a reason.

use core::net::{IpAddr, SocketAddr};

use wire::arp::{Arp, Operation};
use wire::icmp::{self, Message};
use wire::ip::{Addresses, IpHeader};
use wire::ndp::{self, Ndp};
use wire::{
    ETHERNET_LEN, EtherType, IcmpPacket, Ipv6, Mac, Network, RxChecksum, Seq, Tcp, TcpPacket,
    Transport, checksum, is_group, protocol,
};

use crate::Nanos;
use crate::addresses::is_sender;
use crate::counters::Dropped;
use crate::interface::Interface;
use crate::neighbours::Learned;

/// A packet that has arrived, in the memory where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The packet from the Ethernet header on, with all headers.
    pub bytes: &'a [u8],
    /// The rest of the packet, where it lies elsewhere: in any number of pieces if `bytes` are headers alone,
    /// else in one.
    pub rest: &'a [&'a [u8]],
    /// What is known of the transport's checksum.
    pub checksum: RxChecksum,
}

impl<'a> Packet<'a> {
    /// A frame in one piece, whose checksum is not verified yet.
    pub fn frame(bytes: &'a [u8]) -> Self {
        Packet { bytes, rest: &[], checksum: RxChecksum::Unverified }
    }
}

/// What a packet was.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// It was for the host itself, and has been processed.
    Consumed,
    /// A segment for the transport.
    Segment(Segment<'a>),
    /// An ICMP error that quotes a segment from one of the host's addresses. Whether the connection has sent
    /// such a segment is for the transport to check (RFC 5927 section 4).
    Error {
        /// This end.
        local: SocketAddr,
        /// The other end.
        remote: SocketAddr,
        /// The error.
        what: icmp::Error,
        /// Sequence number of the quoted segment.
        seq: Seq,
    },
}

/// A TCP segment to one of the host's addresses, whose checksums are right.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its header.
    pub header: Tcp<&'a [u8]>,
    /// Its payload, as far as it lies behind the headers in one piece; [`Packet::rest`] follows, in at most
    /// one piece if this is not empty.
    pub payload: &'a [u8],
    /// It bears the mark of congestion (CE, RFC 3168).
    pub ce: bool,
}

/// Fields of a packet's IP header.
#[derive(Clone, Copy, Debug)]
struct Ends {
    addresses: Addresses,
    source: IpAddr,
    destination: IpAddr,
    /// DSCP and ECN.
    tos: u8,
}

impl Interface {
    /// Processes a packet at `now`.
    ///
    /// # Errors
    /// The packet is dropped, and counted, for this reason.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        packet: &Packet<'a>,
        now: Nanos,
    ) -> Result<Received<'a>, Dropped> {
        let received = self.take(packet, now);
        if let Err(why) = received {
            self.counters.drop(why);
        }
        received
    }

    /// Learns from a packet that another interface with the same addresses receives: the Ethernet addresses
    /// of neighbours, and duplicates of own addresses. It sends no reply and counts nothing.
    pub fn overhear(&mut self, packet: &Packet<'_>, now: Nanos) {
        let counters = self.counters.clone();
        self.outbox.is_muted = true;
        // The result is for the other interface.
        let _ = self.take(packet, now);
        self.outbox.is_muted = false;
        self.counters = counters;
    }

    #[inline]
    fn take<'a>(&mut self, packet: &Packet<'a>, now: Nanos) -> Result<Received<'a>, Dropped> {
        let bytes = packet.bytes;
        let Some(to) = bytes.first_chunk::<6>() else { return Err(Dropped::Malformed) };
        // Groups are checked by their IP address.
        if *to != self.mac && !is_group(*to) {
            return Err(Dropped::OtherHost);
        }
        let parsed =
            wire::Packet::parse_pieces(bytes, packet.rest).map_err(|_| Dropped::Malformed)?;
        let headers = *parsed.headers();
        if headers.network_at > ETHERNET_LEN {
            return Err(Dropped::Vlan);
        }
        let ends = match headers.network {
            Network::Ipv4 { .. } => v4_ends(&bytes[headers.network_at..headers.transport_at])?,
            Network::Ipv6 { .. } => v6_ends(&bytes[headers.network_at..headers.transport_at]),
            Network::Other(EtherType::ARP) => return self.take_arp(&bytes[ETHERNET_LEN..], now),
            Network::Other(_) => return Err(Dropped::NotIp),
        };
        match parsed {
            wire::Packet::Tcp(segment) => self.take_segment(packet, &segment, &ends),
            wire::Packet::Icmp(message) if ends.source.is_ipv6() => {
                self.take_icmp_v6(bytes, &message, &ends, now)
            }
            wire::Packet::Icmp(message) => self.take_icmp_v4(&message, &ends),
            _ if headers.transport == Transport::Fragment => Err(Dropped::Fragment),
            _ if !self.is_own(ends.destination) => Err(Dropped::OtherAddress),
            _ => Err(Dropped::Protocol),
        }
    }

    #[inline]
    fn take_segment<'a>(
        &self,
        packet: &Packet<'a>,
        segment: &TcpPacket<'a>,
        ends: &Ends,
    ) -> Result<Received<'a>, Dropped> {
        self.is_for_us(ends)?;
        let header = segment.tcp();
        // LRO verifies what it merges.
        let is_right = match packet.checksum {
            RxChecksum::Verified => true,
            RxChecksum::Unverified => segment.checksum_ok(packet.rest),
            RxChecksum::MaybePartial => {
                segment.checksum_ok(packet.rest) || wire::partial_checksum(packet.bytes).is_some()
            }
        };
        if !is_right {
            return Err(Dropped::TcpChecksum);
        }
        let payload = segment.payload();
        if !payload.is_empty() && packet.rest.len() > 1 {
            // No packet comes like this: an aggregate's first piece is its headers.
            return Err(Dropped::Malformed);
        }
        Ok(Received::Segment(Segment {
            local: SocketAddr::new(ends.destination, header.destination()),
            remote: SocketAddr::new(ends.source, header.source()),
            header,
            payload,
            ce: ends.tos & 3 == 3,
        }))
    }

    /// Checks that a packet is from another host, for this one.
    #[inline]
    fn is_for_us(&self, ends: &Ends) -> Result<(), Dropped> {
        if !self.is_own(ends.destination) {
            return Err(Dropped::OtherAddress);
        }
        if !is_sender(ends.source) || self.addresses.is_own(ends.source) {
            return Err(Dropped::BadSource);
        }
        Ok(())
    }

    #[cold]
    fn take_arp(&mut self, message: &[u8], now: Nanos) -> Result<Received<'static>, Dropped> {
        let arp = Arp::parse(message).ok_or(Dropped::Arp)?;
        let (sender, target) = (IpAddr::V4(arp.sender), IpAddr::V4(arp.target));
        self.detection.on_arp(&arp, self.mac);
        if !self.is_own(target) {
            // An announcement, or a request for another host: it updates what is known (RFC 826).
            self.learn(sender, arp.sender_mac, Learned::FromReply { overrides: true }, now);
            return Err(Dropped::Arp);
        }
        match arp.operation {
            Operation::Request => {
                self.learn(sender, arp.sender_mac, Learned::FromRequest, now);
                self.counters.resolutions += 1;
                self.reply(&arp.reply(self.mac))
            }
            Operation::Reply => {
                self.learn(sender, arp.sender_mac, Learned::FromReply { overrides: true }, now);
                Ok(Received::Consumed)
            }
        }
    }

    /// Learns a neighbour's Ethernet address, if it can be one's.
    fn learn(&mut self, ip: IpAddr, mac: Mac, how: Learned, now: Nanos) {
        if is_sender(ip) && !self.addresses.is_own(ip) && self.addresses.next_hop(ip) == Some(ip) {
            self.neighbours.learn(ip, mac, how, now);
        }
    }

    fn reply(&mut self, frame: &[u8]) -> Result<Received<'static>, Dropped> {
        match self.outbox.frame(frame) {
            true => Ok(Received::Consumed),
            false => Err(Dropped::TooManyReplies),
        }
    }

    #[cold]
    fn take_icmp_v4(
        &mut self,
        packet: &IcmpPacket<'_>,
        ends: &Ends,
    ) -> Result<Received<'static>, Dropped> {
        self.is_for_us(ends)?;
        if checksum::sum(packet.bytes()).fold() != 0xffff {
            return Err(Dropped::IcmpChecksum);
        }
        self.take_message(packet, ends)
    }

    #[cold]
    fn take_icmp_v6(
        &mut self,
        bytes: &[u8],
        packet: &IcmpPacket<'_>,
        ends: &Ends,
        now: Nanos,
    ) -> Result<Received<'static>, Dropped> {
        let message = packet.bytes();
        let pseudo = ends.addresses.pseudo_header(protocol::ICMPV6, message.len());
        if pseudo.plus(checksum::sum(message)).fold() != 0xffff {
            return Err(Dropped::IcmpChecksum);
        }
        let network_at = packet.headers().network_at;
        let view = Ipv6::new(&bytes[network_at..]).map_err(|_| Dropped::Malformed)?;
        if view.hop_limit() == ndp::HOP_LIMIT
            && let Addresses::V6 { source, destination } = ends.addresses
            && let Some(ndp) = Ndp::parse(message, source, destination)
            && let Some(from) = bytes[6..].first_chunk::<6>()
        {
            return self.take_ndp(ndp, ends.source, *from, now);
        }
        self.is_for_us(ends)?;
        self.take_message(packet, ends)
    }

    fn take_ndp(
        &mut self,
        ndp: Ndp,
        source: IpAddr,
        from: Mac,
        now: Nanos,
    ) -> Result<Received<'static>, Dropped> {
        self.detect(ndp, source, from);
        match ndp {
            Ndp::Solicitation { target, mac } if self.is_own(IpAddr::V6(target)) => {
                if let Some(mac) = mac {
                    self.learn(source, mac, Learned::FromRequest, now);
                }
                self.counters.resolutions += 1;
                let asked = match source {
                    IpAddr::V6(source) if !source.is_unspecified() => Some((source, from)),
                    _ => None,
                };
                self.reply(&ndp::advertisement(self.mac, target, asked))
            }
            Ndp::Advertisement { target, mac: Some(mac), overrides, .. } => {
                self.learn(IpAddr::V6(target), mac, Learned::FromReply { overrides }, now);
                Ok(Received::Consumed)
            }
            _ => Err(Dropped::Icmp),
        }
    }

    /// Another host has a tentative address, or probes for it as well. A solicitation from a host that
    /// resolves the address does neither (RFC 4862 sections 5.4.3 and 5.4.4).
    fn detect(&mut self, ndp: Ndp, source: IpAddr, from: Mac) {
        match ndp {
            Ndp::Solicitation { target, .. } if source.is_unspecified() => {
                self.detection.claimed(target.into(), from, self.mac);
            }
            Ndp::Solicitation { .. } => {}
            Ndp::Advertisement { target, mac, .. } => {
                self.detection.claimed(target.into(), mac.unwrap_or(from), self.mac);
            }
        }
    }

    fn take_message(
        &mut self,
        packet: &IcmpPacket<'_>,
        ends: &Ends,
    ) -> Result<Received<'static>, Dropped> {
        match packet.message() {
            Message::EchoRequest => {
                self.counters.pings += 1;
                let (v6, addresses) = (ends.source.is_ipv6(), ends.addresses.reversed());
                let kind = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
                let ip = IpHeader::new(addresses, kind);
                let hop = self.addresses.next_hop(ends.source).ok_or(Dropped::NoRoute)?;
                let made = self.outbox.packet(hop, self.mac, &ip, packet.bytes(), |reply| {
                    icmp::make_reply(reply, v6);
                });
                if made { Ok(Received::Consumed) } else { Err(Dropped::TooManyReplies) }
            }
            Message::Error { what, quoted } if self.is_own(quoted.source.ip()) => {
                self.counters.icmp_errors += 1;
                let (local, remote) = (quoted.source, quoted.destination);
                Ok(Received::Error { local, remote, what, seq: quoted.seq })
            }
            Message::Error { .. } | Message::Other => Err(Dropped::Icmp),
        }
    }
}

/// Fields of the IPv4 header of a packet that was parsed.
#[inline]
fn v4_ends(header: &[u8]) -> Result<Ends, Dropped> {
    if checksum::sum(header).fold() != 0xffff {
        return Err(Dropped::IpChecksum);
    }
    let ip = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]].into();
    let addresses = Addresses::V4 { source: ip(12), destination: ip(16) };
    Ok(Ends::new(addresses, header[1]))
}

/// The same for IPv6.
#[inline]
fn v6_ends(header: &[u8]) -> Ends {
    let ip = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().unwrap_or_default();
        octets.into()
    };
    let addresses = Addresses::V6 { source: ip(8), destination: ip(24) };
    Ends::new(addresses, header[0] << 4 | header[1] >> 4)
}

impl Ends {
    #[inline]
    fn new(addresses: Addresses, tos: u8) -> Self {
        let (source, destination) = (addresses.source(), addresses.destination());
        Ends { addresses, source, destination, tos }
    }
}
