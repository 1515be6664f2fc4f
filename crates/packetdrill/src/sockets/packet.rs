//! IP packets to segments and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tcp::{FourTuple, Segment, Stack, Transmit};
use wire::{Flags, icmp};
use wire::{
    Headers, IPV4_MIN_LEN, IPV6_LEN, Ipv4, Ipv6, Network, Seq, TCP_MIN_LEN, Tcp, Transport,
};
use wire::{checksum, protocol};

use tcp::Nanos;

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// Its headers are malformed.
    Malformed,
    /// A checksum is wrong.
    Checksum,
    /// It is neither TCP nor an ICMP error about TCP.
    NotOurs,
}

/// Hands an IP packet to the stack.
pub(super) fn deliver(stack: &mut Stack, packet: &[u8], now: Nanos) -> Result<(), Dropped> {
    let headers = Headers::parse_ip(packet).map_err(|_| Dropped::Malformed)?;
    let addresses = Addresses::of(packet, headers.network)?;
    let upper = &packet[headers.transport_at..headers.end];
    match headers.transport {
        Transport::Tcp => {
            let sum = addresses.pseudo_header(protocol::TCP, upper.len());
            if sum.plus(checksum::sum(upper)).fold() != 0xffff {
                return Err(Dropped::Checksum);
            }
            let header = Tcp::new(upper).map_err(|_| Dropped::Malformed)?;
            let path = FourTuple {
                local: SocketAddr::new(addresses.destination, header.destination()),
                remote: SocketAddr::new(addresses.source, header.source()),
            };
            let payload = [&packet[headers.payload_at..headers.end]];
            let payload = if payload[0].is_empty() { &payload[..0] } else { &payload[..] };
            let mut segment = Segment::new(&header, payload);
            segment.ce = addresses.tos & 3 == 3;
            stack.receive(&path, &segment, now);
            Ok(())
        }
        Transport::Other(1) => icmp_v4(stack, upper, now),
        Transport::Other(protocol::ICMPV6) => icmp_v6(stack, upper, now),
        _ => Err(Dropped::NotOurs),
    }
}

struct Addresses {
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
}

impl Addresses {
    fn of(packet: &[u8], network: Network) -> Result<Self, Dropped> {
        match network {
            Network::Ipv4 { .. } => {
                let ip = Ipv4::new(packet).map_err(|_| Dropped::Malformed)?;
                if !ip.checksum_ok() {
                    return Err(Dropped::Checksum);
                }
                Ok(Addresses {
                    source: address(ip.source())?,
                    destination: address(ip.destination())?,
                    tos: ip.tos(),
                })
            }
            Network::Ipv6 { .. } => {
                let ip = Ipv6::new(packet).map_err(|_| Dropped::Malformed)?;
                Ok(Addresses {
                    source: address(ip.source())?,
                    destination: address(ip.destination())?,
                    tos: (packet[0] << 4) | (packet[1] >> 4),
                })
            }
            Network::Other(_) => Err(Dropped::Malformed),
        }
    }

    fn pseudo_header(&self, protocol: u8, len: usize) -> wire::Sum {
        pseudo_header(self.source, self.destination, protocol, len)
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, Dropped> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(Ipv4Addr::from(v4).into());
    }
    let v6 = <[u8; 16]>::try_from(bytes).map_err(|_| Dropped::Malformed)?;
    Ok(Ipv6Addr::from(v6).into())
}

fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> wire::Sum {
    match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            checksum::pseudo_v4(&[from.octets(), to.octets()].concat(), protocol, len)
        }
        (from, to) => {
            let octets = [octets_v6(from), octets_v6(to)].concat();
            checksum::pseudo_v6(&octets, protocol, len)
        }
    }
}

fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Destination unreachable (RFC 792), with the MTU of the next hop (RFC 1191).
fn icmp_v4(stack: &mut Stack, message: &[u8], now: Nanos) -> Result<(), Dropped> {
    let (&[kind, code, _, _, _, _, high, low], quoted) =
        message.split_first_chunk::<8>().ok_or(Dropped::Malformed)?;
    let mtu = u16::from_be_bytes([high, low]);
    let icmp = match (kind, code) {
        (3, 4) => icmp::Error::TooBig { mtu: mtu.into() },
        // Protocol, port: hard errors (RFC 1122 section 4.2.3.9), which on established connections Linux
        // treats as soft ones, as RFC 5461 describes.
        (3, 2 | 3) => icmp::Error::Unreachable { hard: true },
        (3, _) => icmp::Error::Unreachable { hard: false },
        _ => return Err(Dropped::NotOurs),
    };
    let header = usize::from(*quoted.first().ok_or(Dropped::Malformed)? & 15) * 4;
    let ip =
        quoted.get(..header).filter(|ip| ip.len() >= IPV4_MIN_LEN).ok_or(Dropped::Malformed)?;
    if ip[9] != protocol::TCP {
        return Err(Dropped::NotOurs);
    }
    let (source, destination) = (address(&ip[12..16])?, address(&ip[16..20])?);
    report(stack, icmp, source, destination, &quoted[header..], now)
}

/// Packet too big and destination unreachable (RFC 4443 section 3).
fn icmp_v6(stack: &mut Stack, message: &[u8], now: Nanos) -> Result<(), Dropped> {
    let (head, quoted) = message.split_first_chunk::<8>().ok_or(Dropped::Malformed)?;
    let mtu = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let icmp = match (head[0], head[1]) {
        (2, _) => icmp::Error::TooBig { mtu },
        (1, 1 | 4) => icmp::Error::Unreachable { hard: true },
        (1, _) => icmp::Error::Unreachable { hard: false },
        _ => return Err(Dropped::NotOurs),
    };
    let ip = quoted.get(..IPV6_LEN).ok_or(Dropped::Malformed)?;
    if ip[6] != protocol::TCP {
        return Err(Dropped::NotOurs);
    }
    let (source, destination) = (address(&ip[8..24])?, address(&ip[24..40])?);
    report(stack, icmp, source, destination, &quoted[IPV6_LEN..], now)
}

/// Passes an ICMP error to the stack, with the ports and the sequence number that it quotes.
fn report(
    stack: &mut Stack,
    icmp: icmp::Error,
    source: IpAddr,
    destination: IpAddr,
    quoted: &[u8],
    now: Nanos,
) -> Result<(), Dropped> {
    let &[a, b, c, d, e, f, g, h] = quoted.first_chunk::<8>().ok_or(Dropped::Malformed)?;
    let path = FourTuple {
        local: SocketAddr::new(source, u16::from_be_bytes([a, b])),
        remote: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    };
    stack.unreachable(&path, icmp, Seq(u32::from_be_bytes([e, f, g, h])), now);
    Ok(())
}

/// The segments into which a host without TSO cuts a super-packet: PSH and FIN are on the last, CWR on the
/// first (RFC 3168 section 6.1.2).
pub(super) fn cut(transmit: &Transmit<'_>) -> Vec<Vec<u8>> {
    let (size, len) = (usize::from(transmit.gso_size), transmit.payload_len());
    if size == 0 {
        return vec![encode(transmit)];
    }
    let piece = |from: usize| {
        let to = (from + size).min(len);
        let mut segment = *transmit;
        segment.seq = transmit.seq + from as u32;
        segment.payload = range(transmit.payload, from, to);
        segment.gso_size = 0;
        if from > 0 {
            segment.flags = segment.flags.without(Flags::CWR);
        }
        if to < len {
            segment.flags = segment.flags.without(Flags::PSH.with(Flags::FIN));
        }
        encode(&segment)
    };
    (0..len).step_by(size).map(piece).collect()
}

/// A part of what lies in two pieces.
fn range(pieces: [&[u8]; 2], from: usize, to: usize) -> [&[u8]; 2] {
    let middle = pieces[0].len();
    [
        &pieces[0][from.min(middle)..to.min(middle)],
        &pieces[1][from.saturating_sub(middle)..to.saturating_sub(middle)],
    ]
}

/// What the stack sends, as an IP packet. A super-packet is one packet, as a card with TSO sees it.
pub(super) fn encode(transmit: &Transmit<'_>) -> Vec<u8> {
    let header = transmit.header_len();
    let len = header + transmit.payload_len();
    let tos = if transmit.ect { 2 } else { 0 };
    let (source, destination) = (transmit.path.local.ip(), transmit.path.remote.ip());
    let mut out = ip_header(source, destination, tos, protocol::TCP, len);
    let at = out.len();
    out.resize(at + header, 0);
    transmit.write_header(&mut out[at..]);
    transmit.payload.iter().for_each(|piece| out.extend_from_slice(piece));
    fill_tcp_checksum(&mut out, at, source, destination);
    out
}

/// Computes the checksum of the TCP segment that begins at `at` and ends with the packet.
pub(crate) fn fill_tcp_checksum(packet: &mut [u8], at: usize, source: IpAddr, destination: IpAddr) {
    debug_assert!(packet.len() >= at + TCP_MIN_LEN);
    packet[at + 16..at + 18].fill(0);
    let sum = pseudo_header(source, destination, protocol::TCP, packet.len() - at);
    let check = sum.plus(checksum::sum(&packet[at..])).complement();
    packet[at + 16..at + 18].copy_from_slice(&check.to_be_bytes());
}

/// An IP header for `len` bytes behind it.
pub(crate) fn ip_header(
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
    protocol: u8,
    len: usize,
) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut out = vec![0; IPV4_MIN_LEN];
            out[0] = 0x45;
            out[1] = tos;
            out[2..4].copy_from_slice(&((IPV4_MIN_LEN + len) as u16).to_be_bytes());
            out[6] = 0x40;
            out[8] = 64;
            out[9] = protocol;
            out[12..16].copy_from_slice(&source.octets());
            out[16..20].copy_from_slice(&destination.octets());
            let check = checksum::sum(&out).complement();
            out[10..12].copy_from_slice(&check.to_be_bytes());
            out
        }
        (source, destination) => {
            let mut out = vec![0; IPV6_LEN];
            out[0] = 0x60 | (tos >> 4);
            out[1] = tos << 4;
            out[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            out[6] = protocol;
            out[7] = 64;
            out[8..24].copy_from_slice(&octets_v6(source));
            out[24..40].copy_from_slice(&octets_v6(destination));
            out
        }
    }
}
