//! Real bytes of frames, from what a stack transmits and back.

use std::net::{IpAddr, SocketAddr};

use tcp::{FourTuple, Transmit};
use wire::{
    ETHERNET_LEN, Flags, Headers, Ipv4, Ipv6, Network, Seq, Tcp, Transport, checksum, protocol,
};

/// ECN field of the IP header (RFC 3168 section 5).
const ECT: u8 = 0b10;
const CE: u8 = 0b11;

/// Writes the packets of a transmission: one, or those that a super-packet is cut into, as cards cut
/// it (FIN and PSH stay with the last, CWR with the first).
pub(crate) fn write(transmit: &Transmit<'_>, mut each: impl FnMut(Vec<u8>)) {
    let payload = transmit.payload.concat();
    let size = match transmit.gso_size {
        0 => payload.len().max(1),
        size => usize::from(size),
    };
    assert!(transmit.gso_size == 0 || payload.len() > size, "one packet is no super-packet");
    let several = payload.len() > size;
    assert!(
        !several || !transmit.flags.any(Flags::URG.with(Flags::SYN).with(Flags::RST)),
        "{:?} in a super-packet",
        transmit.flags
    );
    let mut at = 0;
    loop {
        let end = payload.len().min(at + size);
        let mut flags = transmit.flags;
        if end < payload.len() {
            flags = flags.without(Flags::FIN.with(Flags::PSH));
        }
        if at > 0 {
            flags = flags.without(Flags::CWR);
        }
        let part = Transmit {
            seq: transmit.seq + at as u32,
            flags,
            payload: [&payload[at..end], &[]],
            lent: 0,
            gso_size: 0,
            ..*transmit
        };
        each(packet(&part));
        at = end;
        if at == payload.len() {
            return;
        }
    }
}

fn packet(transmit: &Transmit<'_>) -> Vec<u8> {
    let header = transmit.header_len();
    let payload = transmit.payload[0];
    let tcp_len = header + payload.len();
    let tos = if transmit.ect { ECT } else { 0 };
    let mut frame = vec![2; ETHERNET_LEN - 2];
    match (transmit.path.local.ip(), transmit.path.remote.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([0x08, 0x00, 0x45, tos]);
            frame.extend(((20 + tcp_len) as u16).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, protocol::TCP, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60 | tos >> 4, tos << 4, 0, 0]);
            frame.extend((tcp_len as u16).to_be_bytes());
            frame.extend([protocol::TCP, 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        ends => panic!("a transmission between {ends:?}"),
    }
    let at = frame.len();
    frame.resize(at + header, 0);
    transmit.write_header(&mut frame[at..]);
    frame.extend(payload);
    let sum = pseudo(&frame, at, tcp_len).plus(checksum::sum(&frame[at..])).complement();
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    if let Ok(mut ip) = Ipv4::new(&mut frame[ETHERNET_LEN..]) {
        ip.fill_checksum();
    }
    frame
}

fn pseudo(frame: &[u8], transport_at: usize, len: usize) -> checksum::Sum {
    match transport_at - ETHERNET_LEN {
        20 => checksum::pseudo_v4(&frame[ETHERNET_LEN + 12..transport_at], protocol::TCP, len),
        _ => checksum::pseudo_v6(&frame[ETHERNET_LEN + 8..transport_at], protocol::TCP, len),
    }
}

/// Bytes of the IP packet in a frame.
pub(crate) fn ip_len(frame: &[u8]) -> usize {
    frame.len() - ETHERNET_LEN
}

/// A packet that came.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    frame: Vec<u8>,
    headers: Headers,
    /// As the receiver sees it: local is the destination.
    pub(crate) path: FourTuple,
    pub(crate) ce: bool,
}

impl Arrival {
    /// `None` for what a host drops: broken headers and wrong checksums.
    pub(crate) fn parse(frame: Vec<u8>) -> Option<Arrival> {
        let headers = Headers::parse(&frame).ok()?;
        if headers.transport != Transport::Tcp {
            return None;
        }
        let ip = &frame[headers.network_at..];
        let (source, destination, tos): (IpAddr, IpAddr, u8) = match headers.network {
            Network::Ipv4 { .. } => {
                let ip = Ipv4::new(ip).ok().filter(Ipv4::checksum_ok)?;
                let address = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
                (address(ip.source())?, address(ip.destination())?, ip.tos())
            }
            Network::Ipv6 { extensions: false } => {
                let ip = Ipv6::new(ip).ok()?;
                let address = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok();
                (address(ip.source())?, address(ip.destination())?, ip.traffic_class())
            }
            _ => return None,
        };
        let segment = &frame[headers.transport_at..headers.end];
        let sum = pseudo(&frame, headers.transport_at, segment.len()).plus(checksum::sum(segment));
        if sum.fold() != 0xffff {
            return None;
        }
        let tcp = Tcp::new(segment).ok()?;
        let path = FourTuple {
            local: SocketAddr::new(destination, tcp.destination()),
            remote: SocketAddr::new(source, tcp.source()),
        };
        Some(Arrival { path, ce: tos & CE == CE, headers, frame })
    }

    /// The TCP header; payload follows.
    pub(crate) fn tcp(&self) -> Tcp<&[u8]> {
        match Tcp::new(&self.frame[self.headers.transport_at..self.headers.end]) {
            Ok(tcp) => tcp,
            Err(error) => panic!("it was parsed before: {error:?}"),
        }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.frame[self.headers.payload_at..self.headers.end]
    }

    /// One after the last byte of the payload.
    pub(crate) fn end(&self) -> Seq {
        self.tcp().seq() + self.payload().len() as u32
    }

    /// Whether `next` may be merged into one segment with this, of which all have `size` bytes so far, as LRO
    /// and GRO decide it.
    pub(crate) fn merges_with(&self, next: &Arrival, size: usize) -> bool {
        let (a, b) = (self.tcp(), next.tcp());
        let plain = |flags: Flags| flags.without(Flags::PSH) == Flags::ACK;
        let whole = self.payload().len() == size && (1..=size).contains(&next.payload().len());
        plain(a.flags())
            && plain(b.flags())
            && !a.flags().any(Flags::PSH)
            && self.end() == b.seq()
            && whole
            && a.ack() == b.ack()
            && a.window() == b.window()
            && a.option_bytes() == b.option_bytes()
            && self.ce == next.ce
            && self.path == next.path
    }
}

#[test]
fn what_is_written_is_read_again_and_what_is_damaged_is_not() {
    for (local, remote) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
        let path = FourTuple { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
        let bytes: Vec<u8> = (0..250).collect();
        let transmit = Transmit {
            path,
            seq: Seq(u32::MAX - 50),
            ack: Seq(7),
            flags: Flags::ACK.with(Flags::PSH).with(Flags::FIN),
            window: 9,
            urgent: 0,
            options: tcp::Options::default().encode(),
            payload: [&bytes[..130], &bytes[130..]],
            lent: 0,
            gso_size: 100,
            ect: true,
        };
        let mut frames = Vec::new();
        write(&transmit, |frame| frames.push(frame));
        let arrivals: Vec<_> = frames.iter().cloned().filter_map(Arrival::parse).collect();
        let payloads: Vec<&[u8]> = arrivals.iter().map(Arrival::payload).collect();
        assert_eq!(payloads, [&bytes[..100], &bytes[100..200], &bytes[200..]]);
        assert_eq!(arrivals[0].tcp().flags(), Flags::ACK);
        assert_eq!(arrivals[2].tcp().flags(), transmit.flags);
        assert_eq!(arrivals[2].path, FourTuple { local: path.remote, remote: path.local });
        assert!(arrivals[0].merges_with(&arrivals[1], 100));
        assert!(!arrivals[1].merges_with(&arrivals[2], 100), "a FIN");
        for bit in (ETHERNET_LEN + 40) * 8..frames[0].len() * 8 {
            let mut frame = frames[0].clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(Arrival::parse(frame).is_none(), "bit {bit}");
        }
    }
}
