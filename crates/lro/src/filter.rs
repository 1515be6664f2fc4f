//! The packet filter (the paper, section IV.B): questions asked of one frame, and why the answer
//! was no. Consecutive sequence numbers are not asked for here; that is [`merge`](crate::merge)'s.

use wire::{
    Flags, FlowKey, Headers, IPV4_MIN_LEN, IPV6_LEN, Malformed, Network, Seq, Sum, TcpOption,
    Timestamps, Transport, UDP_LEN, checksum, protocol,
};

use crate::config::HEADER_MAX;
use crate::link::Link;
use crate::{Config, Profile, RxChecksum};

/// Why a frame goes on as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// It was held, and nothing joined it in time.
    Alone,
    /// Its headers cannot be walked; the host decides.
    Malformed(Malformed),
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// A fragment of an IP datagram.
    Fragment,
    /// Not TCP, nor UDP where that is joined.
    NotTcp,
    /// IPv4 options.
    IpOptions,
    /// SYN: a connection begins.
    Syn,
    /// RST: a connection is reset.
    Rst,
    /// URG: urgent data keeps its own segment.
    Urg,
    /// FIN without data.
    Fin,
    /// No data: a pure acknowledgment, window update or keepalive.
    PureAck,
    /// No ACK flag, which no established connection sends.
    NoAck,
    /// TCP options other than timestamps (endpoint profile).
    TcpOptions,
    /// More than 128 bytes of headers.
    LongHeader,
    /// Data that the host has been given before, or that is held already: a retransmission, or a
    /// packet that comes later than LRO waits.
    Old,
    /// A UDP datagram without data or checksum, or one that is shorter than its IP packet: Linux
    /// joins none of these.
    UdpAlone,
    /// IPv6 extension headers, with which the checksum does not verify. One of them may name an
    /// address that counts in place of the fixed header's (a Routing header with segments left,
    /// RFC 8200 section 8.1; a Home Address option, RFC 6275 section 11.3.1): the host decides.
    ExtensionHeaders,
}

impl Pass {
    /// How many counters the reasons need.
    pub const COUNT: usize = 16 + Malformed::ALL.len();

    /// All reasons, in the order of [`index`](Self::index).
    pub fn all() -> impl Iterator<Item = Pass> {
        const PLAIN: [Pass; 16] = [
            Pass::Alone,
            Pass::NotIp,
            Pass::Fragment,
            Pass::NotTcp,
            Pass::IpOptions,
            Pass::Syn,
            Pass::Rst,
            Pass::Urg,
            Pass::Fin,
            Pass::PureAck,
            Pass::NoAck,
            Pass::TcpOptions,
            Pass::LongHeader,
            Pass::ExtensionHeaders,
            Pass::Old,
            Pass::UdpAlone,
        ];
        PLAIN.into_iter().chain(Malformed::ALL.into_iter().map(Pass::Malformed))
    }

    /// The counter's place.
    pub const fn index(self) -> usize {
        match self {
            Pass::Alone => 0,
            Pass::NotIp => 1,
            Pass::Fragment => 2,
            Pass::NotTcp => 3,
            Pass::IpOptions => 4,
            Pass::Syn => 5,
            Pass::Rst => 6,
            Pass::Urg => 7,
            Pass::Fin => 8,
            Pass::PureAck => 9,
            Pass::NoAck => 10,
            Pass::TcpOptions => 11,
            Pass::LongHeader => 12,
            Pass::ExtensionHeaders => 13,
            Pass::Old => 14,
            Pass::UdpAlone => 15,
            Pass::Malformed(why) => 16 + why as usize,
        }
    }

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Pass::Alone => "alone",
            Pass::NotIp => "not_ip",
            Pass::Fragment => "fragment",
            Pass::NotTcp => "not_tcp",
            Pass::IpOptions => "ip_options",
            Pass::Syn => "syn",
            Pass::Rst => "rst",
            Pass::Urg => "urg",
            Pass::Fin => "fin",
            Pass::PureAck => "pure_ack",
            Pass::NoAck => "no_ack",
            Pass::TcpOptions => "tcp_options",
            Pass::LongHeader => "long_header",
            Pass::ExtensionHeaders => "extension_headers",
            Pass::Old => "old",
            Pass::UdpAlone => "udp_alone",
            Pass::Malformed(why) => why.name(),
        }
    }
}

/// Why a frame is discarded (the paper, section II: "packets with wrong checksum are discarded").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Discard {
    /// The IPv4 header checksum does not verify.
    IpChecksum,
    /// The TCP checksum does not verify.
    TcpChecksum,
    /// The UDP checksum does not verify.
    UdpChecksum,
}

impl Discard {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Discard; 3] = [Discard::IpChecksum, Discard::TcpChecksum, Discard::UdpChecksum];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Discard::IpChecksum => "ip_checksum",
            Discard::TcpChecksum => "tcp_checksum",
            Discard::UdpChecksum => "udp_checksum",
        }
    }
}

/// A data segment that may be held, with what the flow needs to know of it.
///
/// Where its parts lie is kept as plain numbers: an enum among them would be written in bytes and
/// copied in words, for which the CPU has to wait.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) key: FlowKey,
    pub(crate) network_at: usize,
    pub(crate) transport_at: usize,
    /// Length of all headers.
    pub(crate) payload_at: usize,
    /// First byte of payload that is wanted: all of it is, until some is trimmed.
    pub(crate) start: usize,
    /// Sequence number of that byte.
    pub(crate) seq: Seq,
    /// Bytes of payload that are wanted; never 0.
    pub(crate) len: u32,
    pub(crate) carried: Carried,
}

/// What a data segment tells besides its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) ack: Seq,
    pub(crate) timestamps: Option<Timestamps>,
    pub(crate) window: u16,
    /// IPv4 identification; 0 for IPv6.
    pub(crate) id: u16,
    pub(crate) flags: Flags,
    /// Its last bytes are left out: another segment brought them before, and they come behind it.
    pub(crate) cut: bool,
}

impl Carried {
    pub(crate) const NOTHING: Carried =
        Carried { ack: Seq(0), timestamps: None, window: 0, id: 0, flags: Flags(0), cut: false };
}

impl Carried {
    /// Whether nothing about it decides where in an aggregate it may be.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        !self.cut && self.flags.0 & (Flags::FIN.0 | Flags::CWR.0) == 0
    }

    /// Whether acknowledgment and timestamps, if both have them, are no older than those of `before`.
    #[inline(always)]
    pub(crate) fn follows(&self, before: &Carried) -> bool {
        let forward = match (self.timestamps, before.timestamps) {
            (Some(new), Some(old)) => !new.value.before(old.value) && !new.echo.before(old.echo),
            (None, None) => true,
            _ => false,
        };
        forward && !self.ack.before(before.ack)
    }
}

impl Segment {
    /// The sequence number after the last that is wanted.
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.len
    }

    /// Gives up what comes before `seq`, which lies within.
    pub(crate) fn trim_front(&mut self, seq: Seq) {
        let bytes = seq - self.seq;
        self.start += bytes as usize;
        self.len -= bytes;
        self.seq = seq;
        self.carried.cut = true;
    }

    /// Gives up what comes from `seq` on, which lies within.
    pub(crate) fn trim_back(&mut self, seq: Seq) {
        self.len = seq - self.seq;
        self.carried.cut = true;
    }
}

/// What the filter decides.
#[derive(Debug)]
pub(crate) enum Verdict {
    Discard(Discard),
    /// No flow is concerned.
    Pass(Pass),
    /// Goes on after what is held of its flow, which it takes up to this sequence number; with its
    /// acknowledgment, if it has one.
    PassAfterFlow(Pass, FlowKey, Seq, Option<Seq>),
    /// As that, but its numbers cannot be trusted.
    PassUnread(Pass, FlowKey),
    Buffer(Segment),
}

/// Runs the questions, cheapest and most telling first.
#[inline]
pub(crate) fn ask<L: Link>(config: &Config, bytes: &[u8], known: RxChecksum) -> Verdict {
    let headers = &match L::parse(bytes) {
        Ok(headers) => headers,
        Err(why) => return Verdict::Pass(Pass::Malformed(why)),
    };
    if let Some(why) = not_ours(config, headers) {
        return Verdict::Pass(why);
    }
    let Some(key) = headers.key(bytes) else { return Verdict::Pass(Pass::NotTcp) };
    let udp = key.udp;
    if udp && datagram_stays_alone(bytes, headers) {
        return Verdict::PassUnread(Pass::UdpAlone, key);
    }
    match headers.network {
        Network::Ipv4 { options: true } => return Verdict::PassUnread(Pass::IpOptions, key),
        Network::Ipv4 { .. } if !ip_checksum_ok(bytes, headers) => {
            return Verdict::Discard(Discard::IpChecksum);
        }
        // Not left to the port either: the aggregate's checksum is written anew, by the fixed
        // header's addresses.
        Network::Ipv6 { extensions: true }
            if !checksum_ok(bytes, headers, RxChecksum::Unverified) =>
        {
            return Verdict::PassUnread(Pass::ExtensionHeaders, key);
        }
        _ if !checksum_ok(bytes, headers, known) => {
            let why = if udp { Discard::UdpChecksum } else { Discard::TcpChecksum };
            return Verdict::Discard(why);
        }
        _ => {}
    }
    if udp { datagram(bytes, headers, key) } else { segment(config, bytes, headers, key) }
}

/// The questions about TCP itself.
#[inline]
fn segment(config: &Config, bytes: &[u8], headers: &Headers, key: FlowKey) -> Verdict {
    let Some(tcp) = headers.tcp(bytes) else { return Verdict::Pass(Pass::NotTcp) };
    let options = match options(tcp.option_bytes()) {
        Ok(options) => options,
        Err(why) => return Verdict::PassUnread(Pass::Malformed(why), key),
    };
    if let Some(why) = keeps_its_own_packet(config, headers, tcp.flags(), options) {
        let len = headers.payload_len() as u32 + u32::from(tcp.flags().any(Flags::SYN));
        let ack = tcp.flags().any(Flags::ACK).then(|| tcp.ack());
        return Verdict::PassAfterFlow(why, key, tcp.seq() + len, ack);
    }
    Verdict::Buffer(Segment {
        key,
        network_at: headers.network_at,
        transport_at: headers.transport_at,
        payload_at: headers.payload_at,
        start: headers.payload_at,
        seq: tcp.seq(),
        len: headers.payload_len() as u32,
        carried: Carried {
            ack: tcp.ack(),
            timestamps: options.timestamps,
            window: tcp.window(),
            id: ip_id(bytes, headers),
            flags: tcp.flags(),
            cut: false,
        },
    })
}

/// A UDP datagram, which has no numbers.
fn datagram(bytes: &[u8], headers: &Headers, key: FlowKey) -> Verdict {
    if headers.payload_at > HEADER_MAX {
        return Verdict::PassUnread(Pass::LongHeader, key);
    }
    Verdict::Buffer(Segment {
        key,
        network_at: headers.network_at,
        transport_at: headers.transport_at,
        payload_at: headers.payload_at,
        start: headers.payload_at,
        seq: Seq(0),
        len: headers.payload_len() as u32,
        carried: Carried { id: ip_id(bytes, headers), ..Carried::NOTHING },
    })
}

/// IPv4 identification; 0 for IPv6.
#[inline]
fn ip_id(bytes: &[u8], headers: &Headers) -> u16 {
    match headers.network {
        Network::Ipv4 { .. } => {
            u16::from_be_bytes([bytes[headers.network_at + 4], bytes[headers.network_at + 5]])
        }
        _ => 0,
    }
}

/// Why this is none of the whole TCP packets over IP, or UDP if that is wanted, that LRO joins.
#[inline]
fn not_ours(config: &Config, headers: &Headers) -> Option<Pass> {
    match (headers.network, headers.transport) {
        (Network::Other(_), _) => Some(Pass::NotIp),
        (_, Transport::Fragment) => Some(Pass::Fragment),
        (_, Transport::Tcp) => None,
        (_, Transport::Udp) if config.udp => None,
        _ => Some(Pass::NotTcp),
    }
}

/// Whether Linux leaves this datagram alone (`udp_gro_receive_segment`; docs/kernel-rules.md, rule 8):
/// no data, no checksum, or a UDP length that is not that of the IP payload.
fn datagram_stays_alone(bytes: &[u8], headers: &Headers) -> bool {
    let udp = &bytes[headers.transport_at..];
    let len = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    len <= UDP_LEN || udp[6..8] == [0, 0] || headers.transport_at + len != headers.end
}

/// Whether the IPv4 header checksum verifies (docs/kernel-rules.md, rule 8). What a port says of a
/// checksum is about the transport's only, and a damaged header must not be made right by rewriting it.
#[inline]
fn ip_checksum_ok(bytes: &[u8], headers: &Headers) -> bool {
    let Some(header) = bytes[headers.network_at..].first_chunk::<IPV4_MIN_LEN>() else {
        return false; // parse has seen it
    };
    // Options are no longer with us. The sum of 0xFFFF is the same in any byte order.
    let words = header.as_chunks::<4>().0.iter();
    let sum: u64 = words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff) == 0xffff
}

/// Whether the transport's checksum is right with the addresses of the IP header, as far as the port leaves
/// that to be found out.
#[inline]
fn checksum_ok(bytes: &[u8], headers: &Headers, known: RxChecksum) -> bool {
    if known == RxChecksum::Verified {
        return true;
    }
    let segment = &bytes[headers.transport_at..headers.end];
    let (addresses_at, addresses_end) = match headers.network {
        Network::Ipv4 { .. } => (headers.network_at + 12, headers.network_at + IPV4_MIN_LEN),
        _ => (headers.network_at + 8, headers.network_at + IPV6_LEN),
    };
    let (protocol, at) = match headers.transport {
        Transport::Udp => (protocol::UDP, 6),
        _ => (protocol::TCP, 16),
    };
    let addresses = &bytes[addresses_at..addresses_end];
    let rest = Sum::default().plus_word(protocol.into()).plus_word(segment.len() as u16);
    let partial =
        || checksum::sum(addresses).plus(rest).fold().to_be_bytes() == segment[at..at + 2];
    if known == RxChecksum::MaybePartial && partial() {
        return true;
    }
    let sum = if addresses_end == headers.transport_at {
        checksum::sum_payload(&bytes[addresses_at..headers.end]) // in one go
    } else {
        checksum::sum(addresses).plus(checksum::sum(segment))
    };
    sum.plus(rest).fold() == 0xffff
}

/// What the TCP options amount to.
#[derive(Clone, Copy, Debug)]
struct Options {
    timestamps: Option<Timestamps>,
    others: bool,
}

/// Reads the options; the layout that nearly every sender uses (RFC 7323 appendix A) first.
#[inline]
fn options(bytes: &[u8]) -> Result<Options, Malformed> {
    if let [1, 1, 8, 10, v0, v1, v2, v3, e0, e1, e2, e3] = *bytes {
        let timestamps = Some(Timestamps {
            value: Seq(u32::from_be_bytes([v0, v1, v2, v3])),
            echo: Seq(u32::from_be_bytes([e0, e1, e2, e3])),
        });
        return Ok(Options { timestamps, others: false });
    }
    let mut found = Options { timestamps: None, others: false };
    for option in wire::TcpOptions::new(bytes) {
        match option? {
            TcpOption::Nop => {}
            TcpOption::Timestamps(_) | TcpOption::Other { .. } => found.others = true,
        }
    }
    Ok(found)
}

/// Why this segment must arrive as a packet of its own, if it must (the paper, figure 6).
fn keeps_its_own_packet(
    config: &Config,
    headers: &Headers,
    flags: Flags,
    options: Options,
) -> Option<Pass> {
    if flags.any(Flags::SYN) {
        Some(Pass::Syn)
    } else if flags.any(Flags::RST) {
        Some(Pass::Rst)
    } else if flags.any(Flags::URG) {
        Some(Pass::Urg)
    } else if headers.payload_len() == 0 {
        Some(if flags.any(Flags::FIN) { Pass::Fin } else { Pass::PureAck })
    } else if !flags.any(Flags::ACK) {
        Some(Pass::NoAck)
    } else if options.others && config.profile == Profile::Endpoint {
        Some(Pass::TcpOptions)
    } else if headers.payload_at > HEADER_MAX {
        Some(Pass::LongHeader)
    } else {
        None
    }
}
