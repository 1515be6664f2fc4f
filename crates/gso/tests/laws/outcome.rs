//! What must be true of whatever comes out of a `Segmenter`, whatever went in. The fuzz target asks
//! the same.

use gso::{Kind, MAX_HEADER_LEN, Refusal, Segmenter};
use testkit::reassemble::reassemble;
use testkit::sctp;
use testkit::verify::{ones_complement_sum, pseudo_header};
use wire::{Flags, GsoType, Headers, Network, Transport, UdpTunnel, VirtioNetHdr};

/// A packet, and how it is to be cut.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) hdr: VirtioNetHdr,
    /// It begins with IP, not with Ethernet.
    pub(crate) bare_ip: bool,
    pub(crate) mtu: usize,
    pub(crate) fragment_id: u32,
}

/// What was made of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: Option<Kind>,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl<'a> Given<'a> {
    pub(crate) fn new(packet: &'a [u8], hdr: VirtioNetHdr, mtu: usize, fragment_id: u32) -> Self {
        Given { packet, hdr, bare_ip: false, mtu, fragment_id }
    }

    pub(crate) fn segmenter(&self) -> Result<Segmenter<'a>, Refusal> {
        let Given { packet, hdr, mtu, fragment_id, .. } = self;
        if self.bare_ip {
            Segmenter::of_ip(packet, hdr, *mtu, *fragment_id)
        } else {
            Segmenter::with_mtu(packet, hdr, *mtu, *fragment_id)
        }
    }

    fn headers(&self) -> Headers {
        let parse = if self.bare_ip { Headers::parse_ip } else { Headers::parse };
        parse(self.packet).expect("cut without being parsed")
    }

    /// Cuts it, and holds what comes out to the laws.
    pub(crate) fn cut(&self) -> Result<Outcome, Refusal> {
        let segmenter = self.segmenter()?;
        let frames = all_ways(&segmenter);
        let outcome = Outcome { kind: segmenter.kind(), frames };
        if outcome.kind.is_none() {
            assert_eq!(segmenter.fragment_ids(), 0, "IDs");
        }
        let headers = self.headers();
        self.check_sizes(&headers, &outcome.frames);
        match outcome.kind {
            _ if self.hdr.tunnel.is_some() => self.check_tunnel(&headers, &outcome),
            Some(Kind::Frag4 | Kind::Frag6) if self.hdr.gso_type == GsoType::UdpL4 => {
                let used = self.check_datagrams(&headers, &outcome.frames);
                assert_eq!(segmenter.fragment_ids(), used, "IDs");
            }
            None => self.check_whole(&headers, &outcome.frames),
            Some(Kind::Frag4 | Kind::Frag6) => self.check_fragments(&headers, &outcome.frames),
            Some(Kind::Sctp4 | Kind::Sctp6) => self.check_sctp(&headers, &outcome.frames),
            Some(_) => self.check_segments(&headers, &outcome.frames),
        }
        if !self.bare_ip && !matches!(headers.network, Network::Other(_)) {
            self.check_bare_ip(&headers, &outcome);
        }
        Ok(outcome)
    }

    /// The same without its link layer gives the same without theirs.
    fn check_bare_ip(&self, headers: &Headers, outcome: &Outcome) {
        let link = headers.network_at;
        if usize::from(self.hdr.csum_start) < link {
            return;
        }
        let packet = &self.packet[link..];
        let hdr = moved(&self.hdr, link);
        let bare =
            Given { packet, hdr, bare_ip: true, ..*self }.segmenter().expect("with Ethernet");
        assert_eq!(bare.kind(), outcome.kind);
        let without: Vec<&[u8]> = outcome.frames.iter().map(|frame| &frame[link..]).collect();
        assert!(by_slices(bare) == without, "of_ip gives other packets");
    }

    /// What is in the tunnel is cut as if it were in none, and the tunnel is around each segment.
    fn check_tunnel(&self, outer: &Headers, outcome: &Outcome) {
        let tunnel = self.hdr.tunnel.expect("asked before");
        let (at, inner_at) = (outer.transport_at, usize::from(tunnel.inner_nh_offset));
        let hdr = VirtioNetHdr { tunnel: None, ..moved(&self.hdr, inner_at) };
        let mtu = self.mtu.saturating_sub(inner_at - outer.network_at);
        let packet = &self.packet[inner_at..outer.end];
        let inner = Given { packet, hdr, bare_ip: true, mtu, ..*self }.cut().expect("in a tunnel");
        assert_eq!(inner.kind, outcome.kind);
        let within: Vec<&[u8]> = outcome.frames.iter().map(|frame| &frame[inner_at..]).collect();
        assert!(inner.frames == within, "the tunnel changes what is in it");
        for (n, frame) in outcome.frames.iter().enumerate() {
            self.check_ip_header(outer, frame, n, 0..at + 4);
            self.check_ip_header(outer, frame, n, at + 8..inner_at);
            let len = usize::from(frame[at + 4]) << 8 | usize::from(frame[at + 5]);
            assert_eq!(len, frame.len() - at, "outer UDP length");
            if tunnel.csum {
                let pseudo = pseudo_header(&frame[addresses(outer)], 17, len);
                let sum = ones_complement_sum(&[&pseudo[..], &frame[at..]].concat());
                assert!(sum == 0xffff && frame[at + 6..at + 8] != [0, 0], "outer checksum");
            } else {
                assert_eq!(frame[at + 6..at + 8], self.packet[at + 6..at + 8]);
            }
        }
    }

    fn check_sizes(&self, headers: &Headers, frames: &[Vec<u8>]) {
        let (link, end) = (headers.network_at, headers.end);
        for frame in frames {
            assert!(frame.len() - link <= self.mtu, "a frame over the MTU");
            assert_eq!(frame[..link], self.packet[..link], "the link layer changed");
        }
        if matches!(headers.network, Network::Other(_)) || frames.len() == 1 {
            return;
        }
        for frame in frames {
            let ip = &frame[link..];
            let parsed = Headers::parse_ip(ip).expect("a frame that cannot be parsed");
            assert_eq!(parsed.end, ip.len(), "IP's length is not the frame's");
            if ip[0] >> 4 == 4 {
                let header = &ip[..usize::from(ip[0] & 15) * 4];
                assert_eq!(ones_complement_sum(header), 0xffff, "IPv4 header checksum");
            }
        }
        assert!(end - link > self.mtu || self.hdr.gso_type != GsoType::None, "cut without need");
    }

    /// The packet with its checksum completed, by RFC 1071 and RFC 9260 alone.
    pub(crate) fn completed(&self) -> Vec<u8> {
        let mut packet = self.packet.to_vec();
        if !self.hdr.needs_csum {
            return packet;
        }
        let headers = self.headers();
        let start = usize::from(self.hdr.csum_start);
        let field = start + usize::from(self.hdr.csum_offset);
        if headers.transport == Transport::Other(sctp::SCTP) {
            packet[field..field + 4].fill(0);
            let crc = sctp::crc32c(&packet[start..headers.end]);
            packet[field..field + 4].copy_from_slice(&crc.to_le_bytes());
        } else {
            let checksum = match !ones_complement_sum(&packet[start..headers.end]) {
                0 => 0xffff,
                other => other,
            };
            packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        packet
    }

    fn check_whole(&self, headers: &Headers, frames: &[Vec<u8>]) {
        let completed = self.completed();
        let [frame] = frames else { panic!("{} frames", frames.len()) };
        assert!(frame.len() >= headers.end, "cut short");
        // Of padding there may be less, if the frame were over the MTU with it.
        assert!(completed.starts_with(frame), "not the packet");
        let over = completed.len() - headers.network_at > self.mtu;
        assert!(frame.len() == completed.len() || over, "padding is lost");
    }

    fn check_fragments(&self, headers: &Headers, frames: &[Vec<u8>]) {
        let ip: Vec<&[u8]> = frames.iter().map(|frame| &frame[headers.network_at..]).collect();
        let whole = reassemble(&ip).expect("fragments that do not belong together");
        let mut expected = self.completed()[headers.network_at..headers.end].to_vec();
        let mut id = self.fragment_id;
        if expected[0] >> 4 == 4 {
            let header = usize::from(expected[0] & 15) * 4;
            // DF, no more fragments, offset 0: RFC 6864's atomic datagram.
            if [expected[6] & 0x7f, expected[7]] == [0x40, 0] {
                expected[4..6].copy_from_slice(&(id as u16).to_be_bytes());
            }
            id = u32::from(u16::from_be_bytes([expected[4], expected[5]]));
            // DF, and the bit that is reserved.
            expected[6] &= 0x3f;
            set_ip_checksum(&mut expected);
            check_options(&ip, header);
        } else {
            check_per_fragment_headers(&ip);
            if headers.transport == Transport::Fragment {
                // Cut again: what it was put together from is of no account.
                let field = headers.transport_at - headers.network_at;
                (expected[field + 1], expected[field + 3]) = (0, expected[field + 3] & !6);
                let own = reassemble(&[&expected]).expect("cut without being a fragment");
                (expected, id) = (own.packet, own.id);
            }
        }
        assert!(whole.packet == expected, "another datagram");
        assert_eq!((whole.id, whole.fragments), (id, frames.len()));
        if self.hdr.gso_type != GsoType::Udp {
            self.check_few(&ip);
        }
    }

    /// As few fragments as can be: none but the last could have held eight bytes more.
    fn check_few(&self, fragments: &[&[u8]]) {
        let limit = self.mtu.min(65_535);
        for fragment in &fragments[..fragments.len() - 1] {
            assert!(fragment.len() + 8 > limit, "{} bytes of {limit}", fragment.len());
        }
    }

    /// USO over the MTU: put together, the datagrams are those that the super-packet says, each with
    /// an ID of its own; what fits is no fragment. Returns how many were cut.
    fn check_datagrams(&self, headers: &Headers, frames: &[Vec<u8>]) -> u32 {
        let ip: Vec<&[u8]> = frames.iter().map(|frame| &frame[headers.network_at..]).collect();
        let payload = &self.packet[headers.payload_at..headers.end];
        let (mut rest, mut cut) = (&ip[..], 0);
        for (n, payload) in payload.chunks(self.hdr.gso_size.into()).enumerate() {
            let mut expected = self.datagram(headers, n, payload);
            let v4 = expected[0] >> 4 == 4;
            if expected.len() <= self.mtu {
                assert!(rest[0] == expected, "datagram {n}, which fits");
                rest = &rest[1..];
                continue;
            }
            let more = |packet: &&[u8]| {
                let parsed = Headers::parse_ip(packet).expect("a frame that cannot be parsed");
                let at = if v4 { 6 } else { parsed.transport_at + 3 };
                assert_eq!(parsed.transport, Transport::Fragment);
                packet[at] & if v4 { 0x20 } else { 1 } != 0
            };
            let last = rest.iter().position(|packet| !more(packet)).expect("a last fragment");
            let (fragments, others) = rest.split_at(last + 1);
            let whole = reassemble(fragments).expect("fragments that do not belong together");
            let mut id = self.fragment_id.wrapping_add(cut);
            if v4 {
                id &= 0xffff;
                expected[4..6].copy_from_slice(&(id as u16).to_be_bytes());
                // Neither DF nor the bit that is reserved.
                expected[6] = 0;
                set_ip_checksum(&mut expected);
                check_options(fragments, usize::from(expected[0] & 15) * 4);
            } else {
                check_per_fragment_headers(fragments);
            }
            assert!(whole.packet == expected, "datagram {n}");
            assert_eq!((whole.id, whole.fragments > 1), (id, true), "datagram {n}");
            self.check_few(fragments);
            (rest, cut) = (others, cut + 1);
        }
        assert!(rest.is_empty() && cut > 0, "{} frames too many", rest.len());
        cut
    }

    /// Datagram `n` of USO, an IP packet, by RFC 768 and what the host's partial checksum says.
    fn datagram(&self, headers: &Headers, n: usize, payload: &[u8]) -> Vec<u8> {
        let ip_header = headers.transport_at - headers.network_at;
        let mut ip = [&self.packet[headers.network_at..headers.payload_at], payload].concat();
        let len = (8 + payload.len()) as u16;
        let (start, udp) = ip.split_at_mut(ip_header);
        if start[0] >> 4 == 4 {
            let id = u16::from_be_bytes([start[4], start[5]]).wrapping_add(n as u16);
            start[2..4].copy_from_slice(&(ip_header as u16 + len).to_be_bytes());
            start[4..6].copy_from_slice(&id.to_be_bytes());
            set_ip_checksum(start);
        } else {
            start[4..6].copy_from_slice(&((ip_header - 40) as u16 + len).to_be_bytes());
        }
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        let host_len = (headers.end - headers.transport_at) as u16;
        let pseudo = [&udp[6..8], &(!host_len).to_be_bytes(), &len.to_be_bytes()].concat();
        udp[6..8].fill(0);
        let checksum = match !ones_complement_sum(&[&pseudo, &*udp].concat()) {
            0 => 0xffff,
            other => other,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        ip
    }

    fn check_sctp(&self, headers: &Headers, frames: &[Vec<u8>]) {
        let at = headers.transport_at;
        let room = self.mtu - (at - headers.network_at);
        let packets: Vec<&[u8]> = frames.iter().map(|frame| &frame[at..]).collect();
        let bodies: Vec<&[u8]> = packets.iter().map(|packet| &packet[12..]).collect();
        assert!(bodies.concat() == self.packet[at + 12..headers.end], "other chunks");
        for (n, packet) in packets.iter().enumerate() {
            assert_eq!(packet[..8], self.packet[at..at + 8], "ports or verification tag");
            let chunks = sctp::chunks(packet).expect("a packet of whole chunks");
            assert!(!chunks.is_empty());
            if let Some(following) = packets.get(n + 1) {
                let next = sctp::chunks(following).expect("a packet of whole chunks")[0].len();
                let next = next.next_multiple_of(4).min(following.len() - 12);
                assert!(packet.len() + next > room, "one more chunk would have fitted");
            }
            self.check_ip_header(headers, &frames[n], n, 0..at);
        }
    }

    /// TCP and USO.
    fn check_segments(&self, headers: &Headers, frames: &[Vec<u8>]) {
        let (at, start) = (headers.transport_at, headers.payload_at);
        let tcp = headers.transport == Transport::Tcp;
        let payload: Vec<u8> = frames.iter().flat_map(|frame| &frame[start..]).copied().collect();
        assert!(payload == self.packet[start..headers.end], "another payload");
        let size = frames[0].len() - start;
        let be32 = |b: &[u8]| u32::from_be_bytes([b[at + 4], b[at + 5], b[at + 6], b[at + 7]]);
        for (n, frame) in frames.iter().enumerate() {
            let last = n + 1 == frames.len();
            assert!(frame.len() - start == size || last && frame.len() - start < size);
            self.check_checksum(headers, frame);
            self.check_ip_header(headers, frame, n, 0..at);
            if !tcp {
                assert_eq!(frame[at..at + 4], self.packet[at..at + 4], "ports");
                let len = usize::from(frame[at + 4]) << 8 | usize::from(frame[at + 5]);
                assert_eq!(len, frame.len() - at, "UDP length");
                continue;
            }
            let seq = be32(self.packet).wrapping_add((n * size) as u32);
            assert_eq!(be32(frame), seq, "sequence number");
            let mut flags = Flags(self.packet[at + 13]);
            if n > 0 {
                flags = flags.without(Flags::CWR);
            }
            if !last {
                flags = flags.without(Flags::FIN).without(Flags::PSH);
            }
            assert_eq!(Flags(frame[at + 13]), flags);
            for same in [0..4, 8..13, 14..16, 18..start - at] {
                let same = at + same.start..at + same.end;
                assert_eq!(frame[same.clone()], self.packet[same.clone()], "bytes {same:?}");
            }
        }
        let wanted = match self.hdr.gso_type {
            GsoType::None => usize::MAX,
            _ => usize::from(self.hdr.gso_size),
        };
        let room = self.mtu.saturating_sub(start - headers.network_at);
        assert!(frames.len() == 1 || size == wanted.min(room), "{size} of {wanted} and {room}");
    }

    /// The transport's checksum, which the host's partial sum is believed for.
    fn check_checksum(&self, headers: &Headers, frame: &[u8]) {
        let at = headers.transport_at;
        let (number, field) = match headers.transport {
            Transport::Tcp => (6, at + 16),
            _ => (17, at + 6),
        };
        let pseudo = if self.hdr.needs_csum {
            let host_len = (headers.end - at) as u16;
            let len = (frame.len() - at) as u16;
            let partial = &self.packet[field..field + 2];
            [partial, &(!host_len).to_be_bytes(), &len.to_be_bytes()].concat()
        } else {
            pseudo_header(&frame[addresses(headers)], number, frame.len() - at)
        };
        let sum = ones_complement_sum(&[&pseudo[..], &frame[at..]].concat());
        assert_eq!(sum, 0xffff, "transport checksum");
        assert!(number == 6 || frame[field..field + 2] != [0, 0], "UDP checksum 0");
    }

    /// Nothing in `range` changes but IP's lengths and checksum, and the ID, which counts.
    fn check_ip_header(
        &self,
        headers: &Headers,
        frame: &[u8],
        n: usize,
        range: core::ops::Range<usize>,
    ) {
        let at = headers.network_at;
        let v4 = matches!(headers.network, Network::Ipv4 { .. });
        let changing: &[usize] = if v4 { &[2, 3, 4, 5, 10, 11] } else { &[4, 5] };
        for i in range {
            let changes = i >= at && changing.contains(&(i - at));
            assert!(changes || frame[i] == self.packet[i], "byte {i} changed");
        }
        if v4 {
            let id = |bytes: &[u8]| u16::from_be_bytes([bytes[at + 4], bytes[at + 5]]);
            assert_eq!(id(frame), id(self.packet).wrapping_add(n as u16), "ID of {n}");
        }
    }
}

/// Computes an IPv4 header's checksum.
fn set_ip_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = !ones_complement_sum(&packet[..usize::from(packet[0] & 15) * 4]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Source and destination, as they stand in the fixed header.
fn addresses(headers: &Headers) -> core::ops::Range<usize> {
    let at = headers.network_at;
    match headers.network {
        Network::Ipv4 { .. } => at + 12..at + 20,
        _ => at + 8..at + 40,
    }
}

/// `hdr` of a packet whose first `by` bytes are gone; places among them are anything.
fn moved(hdr: &VirtioNetHdr, by: usize) -> VirtioNetHdr {
    let back = |place: u16| place.wrapping_sub(by as u16);
    let tunnel = hdr.tunnel.map(|tunnel| UdpTunnel {
        outer_th_offset: back(tunnel.outer_th_offset),
        inner_nh_offset: back(tunnel.inner_nh_offset),
        ..tunnel
    });
    VirtioNetHdr { csum_start: back(hdr.csum_start), tunnel, ..*hdr }
}

/// RFC 791 section 3.1: options with the copied flag are in all fragments, others in the first; wharf
/// puts no-operations in their place.
fn check_options(fragments: &[&[u8]], header: usize) {
    let first = &fragments[0][20..header];
    let mut later = first.to_vec();
    let mut at = 0;
    while at < first.len() && first[at] != 0 {
        let len = if first[at] == 1 { 1 } else { usize::from(*first.get(at + 1).unwrap_or(&0)) };
        if len == 0 || first[at] != 1 && len < 2 || at + len > first.len() {
            break;
        }
        if first[at] & 0x80 == 0 {
            later[at..at + len].fill(1);
        }
        at += len;
    }
    for fragment in &fragments[1..] {
        assert_eq!(fragment[20..header], later, "options");
        let same = [0..2, 8..10, 12..20];
        assert!(same.into_iter().all(|same| fragment[same.clone()] == fragments[0][same]));
    }
}

/// All but the payload length, offset and flag of the headers that every fragment has are the same.
fn check_per_fragment_headers(fragments: &[&[u8]]) {
    let (mut next, mut end) = (fragments[0][6], 40);
    while next != 44 {
        next = fragments[0][end];
        end += 8 + usize::from(fragments[0][end + 1]) * 8;
    }
    for fragment in &fragments[1..] {
        for same in [0..4, 6..end + 2, end + 4..end + 8] {
            assert_eq!(fragment[same.clone()], fragments[0][same.clone()], "bytes {same:?}");
        }
    }
}

/// All frames, by `next_segment`.
pub(crate) fn by_slices(mut segmenter: Segmenter<'_>) -> Vec<Vec<u8>> {
    let mut header = [0xee; MAX_HEADER_LEN];
    std::iter::from_fn(|| {
        let segment = segmenter.next_segment(&mut header)?;
        Some([&header[..segment.header_len], segment.payload].concat())
    })
    .collect()
}

/// All frames, by `next_into`.
pub(crate) fn by_copies(mut segmenter: Segmenter<'_>) -> Vec<Vec<u8>> {
    let mut out = vec![0xdd; segmenter.max_segment_len()];
    std::iter::from_fn(|| {
        let len = segmenter.next_into(&mut out).expect("max_segment_len bytes are too few")?;
        Some(out[..len].to_vec())
    })
    .collect()
}

/// All frames: both ways give the same, as many as were announced, from wherever one goes on.
fn all_ways(segmenter: &Segmenter<'_>) -> Vec<Vec<u8>> {
    let frames = by_slices(segmenter.clone());
    assert!(by_copies(segmenter.clone()) == frames, "the two ways differ");
    assert!(!frames.is_empty(), "nothing came out");
    assert_eq!(frames.len(), segmenter.gso_segs());
    assert!(frames.iter().all(|frame| frame.len() <= segmenter.max_segment_len()));
    for n in [1, frames.len() / 2, frames.len() - 1, frames.len(), usize::MAX] {
        let mut rest = segmenter.clone();
        rest.skip_to(n);
        let from = n.min(frames.len());
        assert_eq!(rest.position(), from);
        assert!(by_slices(rest) == frames[from..], "not the same from {n} on");
    }
    frames
}
