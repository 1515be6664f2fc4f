//! The headers of what the engine sends.

use iface::{Interface, UpperLayer};
use tcp::{FourTuple, Transmit};
use wire::{ETHERNET_LEN, Flags, GsoType, IPV6_LEN, Mac, VirtioNetHdr, protocol};

/// Bytes of the longest headers: Ethernet, IPv6, TCP with all its options.
pub(super) const HEADERS_MAX: usize = ETHERNET_LEN + IPV6_LEN + 60;

/// Where the checksum lies in a TCP header.
const CHECKSUM_OFFSET: u16 = 16;
/// ECT(0) (RFC 3168 section 5).
const ECT_0: u8 = 2;

/// Where headers are written.
#[derive(Debug)]
pub(super) struct Output {
    bytes: [u8; HEADERS_MAX],
}

impl Output {
    /// With nothing written.
    pub(super) fn new() -> Self {
        Output { bytes: [0; HEADERS_MAX] }
    }

    /// The headers of a segment from the Ethernet header on, and how the packet is to be cut. The TCP
    /// checksum is the pseudo-header's sum, for the port to complete (virtio 1.2 section 5.1.6.2).
    /// `None` if the ends are of two IP versions, which those of a connection never are.
    #[inline]
    pub(super) fn headers(
        &mut self,
        interface: &Interface,
        segment: &Transmit<'_>,
        to: Mac,
    ) -> Option<(VirtioNetHdr, &[u8])> {
        let FourTuple { local, remote } = segment.path;
        let tcp_len = segment.header_len();
        let packet = UpperLayer {
            local,
            remote,
            protocol: protocol::TCP,
            tos: if segment.ect { ECT_0 } else { 0 },
            len: tcp_len + segment.payload_len(),
        };
        let written = interface.write_headers(&mut self.bytes, to, &packet)?;
        let tcp_at = written.len;
        let tcp = &mut self.bytes[tcp_at..tcp_at + tcp_len];
        segment.write_header(tcp);
        let at = usize::from(CHECKSUM_OFFSET);
        tcp[at..at + 2].copy_from_slice(&written.pseudo.fold().to_be_bytes());
        let hdr_len = tcp_at + tcp_len;
        let gso_type = match (segment.gso_size, local.is_ipv4()) {
            (0, _) => GsoType::None,
            (_, true) => GsoType::Tcpv4,
            (_, false) => GsoType::Tcpv6,
        };
        let vnet = VirtioNetHdr {
            needs_csum: true,
            gso_type,
            ecn: gso_type != GsoType::None && segment.flags.any(Flags::CWR),
            hdr_len: hdr_len as u16,
            gso_size: segment.gso_size,
            csum_start: tcp_at as u16,
            csum_offset: CHECKSUM_OFFSET,
            ..VirtioNetHdr::default()
        };
        Some((vnet, &self.bytes[..hdr_len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire_queue::Packet;
    use crate::wire_queue::cut::Frames;
    use proptest::prelude::*;
    use tcp::options::Options;
    use wire::{Headers, Seq, Tcp, Timestamps, Transport};

    const MAC: Mac = [2, 0, 0, 0, 0, 1];
    const TO: Mac = [2, 0, 0, 0, 0, 2];

    proptest! {
        #[test]
        fn segments_arrive_as_they_were_meant(
            v6: bool,
            ect: bool,
            timestamps: bool,
            one in proptest::collection::vec(any::<u8>(), 0..3000),
            two in proptest::collection::vec(any::<u8>(), 0..3000),
            gso_size in 200..2000u16,
            seq: u32,
            ack: u32,
            window: u16,
        ) {
            let end = |v6: bool, host: u8, port: u16| match v6 {
                true => ([0xfd, 0, 0, 0, 0, 0, 0, host as u16], port).into(),
                false => ([10, 0, 0, host], port).into(),
            };
            let path = FourTuple { local: end(v6, 2, 7), remote: end(v6, 1, 4000) };
            let stamp = Timestamps { value: Seq(1), echo: Seq(2) };
            let options = Options { timestamps: timestamps.then_some(stamp), ..Options::default() };
            let whole = [&one[..], &two[..]].concat();
            let segment = Transmit {
                path,
                seq: Seq(seq),
                ack: Seq(ack),
                flags: Flags::ACK.with(Flags::PSH),
                window,
                urgent: 0,
                options: options.encode(),
                payload: [&one, &two],
                lent: 0,
                gso_size: if whole.len() > usize::from(gso_size) { gso_size } else { 0 },
                ect,
            };
            let own = iface::Address { ip: path.local.ip(), prefix_len: 8 };
            let addresses = iface::Addresses::new(vec![own], Vec::new()).unwrap();
            let interface =
                Interface::new(iface::Config { mac: MAC, addresses, secret: [seq as u8; 16], probes: 0 });
            let mut output = Output::new();
            let (vnet, header) = output.headers(&interface, &segment, TO).unwrap();
            let payload = segment.payload.map(wire::Bytes::from);
            let frames = Frames::of(&Packet { vnet, header, payload });
            let (mut out, mut bytes) = (vec![0; 10_000], Vec::new());
            for number in 0..frames.count() {
                let len = frames.write(number, &mut out);
                let frame = &out[..len];
                testkit::verify::checksums(frame).unwrap();
                let headers = Headers::parse(frame).unwrap();
                prop_assert_eq!((headers.transport, headers.end), (Transport::Tcp, len));
                let tcp = Tcp::new(&frame[headers.transport_at..]).unwrap();
                prop_assert_eq!((tcp.source(), tcp.destination()), (7, 4000));
                prop_assert_eq!((tcp.seq(), tcp.ack()), (Seq(seq) + bytes.len() as u32, Seq(ack)));
                prop_assert_eq!((tcp.window(), tcp.option_bytes()), (window, segment.options.as_slice()));
                let tos = if v6 { frame[15] >> 4 } else { frame[15] };
                prop_assert_eq!(tos, if ect { ECT_0 } else { 0 });
                bytes.extend_from_slice(&frame[headers.payload_at..]);
            }
            prop_assert_eq!(bytes, whole);
        }
    }
}
