//! ConnectionDescriptor (the paper, section IV.A): what is remembered of one connection, and how
//! the header of its aggregate is written (IV.D).

use wire::{Flags, GsoType, Seq, Tcp, Timestamps, VirtioNetHdr, protocol};

use crate::Nanos;
use crate::config::HEADER_MAX;
use crate::filter::Segment;
use crate::held::Chain;
use crate::key::FlowKey;
use crate::list::Links;

/// Offset of TSecr in a TCP header whose options are the usual twelve timestamp bytes
/// (RFC 7323 appendix A): 20, two NOPs, kind, length, TSval.
const ECHO_AT: usize = 20 + 2 + 2 + 4;

/// How the IPv4 ID moves from segment to segment; the second one decides (facts, rule 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdStep {
    Undecided,
    /// Up by one each (lossless), or anyhow but not the same for all (endpoint).
    Moving,
    Fixed,
}

/// One connection.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Descriptor {
    pub(crate) key: FlowKey,
    pub(crate) links: Links,
    pub(crate) deadline: Nanos,
    pub(crate) recently_used: bool,
    /// A PSH has completed what is held.
    pub(crate) pushed: bool,
    pub(crate) chain: Chain,
    /// The sequence number that continues what is held (the paper's nextseq).
    pub(crate) next_seq: Seq,
    /// Acknowledgment, window and timestamps of the last segment held.
    pub(crate) ack: Seq,
    pub(crate) window: u16,
    pub(crate) timestamps: Option<Timestamps>,
    /// Largest payload held.
    pub(crate) gso_size: u16,
    /// Payload of the last segment held.
    pub(crate) last_len: u32,
    /// IPv4 ID of the last segment held, and how it got there.
    pub(crate) id: u16,
    pub(crate) id_step: IdStep,
    /// FIN and PSH of all segments held.
    flags: Flags,
    payload_len: u32,
    network_at: u8,
    transport_at: u8,
    header_len: u8,
    header: [u8; HEADER_MAX],
}

impl Default for Descriptor {
    fn default() -> Self {
        Descriptor {
            key: FlowKey::NOBODY,
            links: Links::ALONE,
            deadline: 0,
            recently_used: false,
            pushed: false,
            chain: Chain::EMPTY,
            next_seq: Seq(0),
            ack: Seq(0),
            window: 0,
            timestamps: None,
            gso_size: 0,
            last_len: 0,
            id: 0,
            id_step: IdStep::Undecided,
            flags: Flags(0),
            payload_len: 0,
            network_at: 0,
            transport_at: 0,
            header_len: 0,
            header: [0; HEADER_MAX],
        }
    }
}

impl Descriptor {
    pub(crate) fn is_holding(&self) -> bool {
        self.chain.len() > 0
    }

    pub(crate) fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Bytes of the IP packet that the aggregate would be.
    #[inline]
    pub(crate) fn ip_len(&self) -> u32 {
        u32::from(self.header_len - self.network_at) + self.payload_len
    }

    /// The first segment's header, Ethernet to TCP options.
    #[inline]
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// Has the sender said that no more will come?
    pub(crate) fn is_finished(&self) -> bool {
        self.flags.any(Flags::FIN)
    }

    /// Did all segments carry one IPv4 ID?
    pub(crate) fn fixed_id(&self) -> bool {
        !self.key.ipv6 && self.id_step == IdStep::Fixed
    }

    /// The first segment of an aggregate. The filter has seen that its header fits.
    pub(crate) fn begin(&mut self, segment: &Segment, bytes: &[u8]) {
        self.header[..segment.payload_at].copy_from_slice(&bytes[..segment.payload_at]);
        self.header_len = segment.payload_at as u8;
        self.network_at = segment.network_at as u8;
        self.transport_at = segment.transport_at as u8;
        self.gso_size = segment.len as u16;
        self.id = segment.id;
        self.id_step = IdStep::Undecided;
        self.flags = Flags(0);
        self.payload_len = 0;
        self.next_seq = segment.seq;
        self.take_over(segment);
    }

    /// One more segment, which [`merge`](crate::merge) has let in.
    #[inline]
    pub(crate) fn append(&mut self, segment: &Segment) {
        self.gso_size = self.gso_size.max(segment.len as u16);
        let fixed = segment.id == self.id && self.id_step != IdStep::Moving;
        self.id_step = if fixed { IdStep::Fixed } else { IdStep::Moving };
        self.id = segment.id;
        self.take_over(segment);
    }

    /// What is always that of the last segment.
    fn take_over(&mut self, segment: &Segment) {
        self.ack = segment.ack;
        self.window = segment.window;
        self.timestamps = segment.timestamps;
        self.last_len = segment.len;
        self.payload_len += segment.len;
        self.next_seq += segment.len;
        self.flags = self.flags.with(Flags(segment.flags.0 & (Flags::FIN.0 | Flags::PSH.0)));
    }

    /// Gives up the chain; the flow holds nothing from here on.
    pub(crate) fn take_chain(&mut self) -> Chain {
        self.pushed = false;
        core::mem::replace(&mut self.chain, Chain::EMPTY)
    }

    /// Writes the aggregate's header (the paper, section IV.D): sequence number and TSval of the
    /// first segment, acknowledgment, window and TSecr of the last, PSH and FIN of any, lengths
    /// and IPv4 checksum anew, and the pseudo-header sum where the TCP checksum goes.
    ///
    /// TSval stays the first's because TS.Recent is taken from the segment that covers
    /// Last.ACK.sent (RFC 7323 section 4.3), which is the first.
    pub(crate) fn reconstruct(&mut self) -> (&[u8], VirtioNetHdr) {
        let network_at = usize::from(self.network_at);
        let transport_at = usize::from(self.transport_at);
        let header_len = usize::from(self.header_len);
        let tcp_len = header_len - transport_at + self.payload_len as usize;
        let ip_len = self.ip_len() as usize;
        let ipv6 = self.key.ipv6;
        let (front, tcp) = self.header[..header_len].split_at_mut(transport_at);
        let ip = &mut front[network_at..];

        let pseudo = if ipv6 {
            let payload_len = (ip_len - wire::IPV6_LEN) as u16;
            ip[4..6].copy_from_slice(&payload_len.to_be_bytes());
            wire::checksum::pseudo_v6(&ip[8..40], protocol::TCP, tcp_len)
        } else {
            ip[2..4].copy_from_slice(&(ip_len as u16).to_be_bytes());
            ip[10..12].fill(0);
            let checksum = wire::checksum::sum(&ip[..wire::IPV4_MIN_LEN]).complement();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            wire::checksum::pseudo_v4(&ip[12..20], protocol::TCP, tcp_len)
        };

        if let Some(timestamps) = self.timestamps {
            tcp[ECHO_AT..ECHO_AT + 4].copy_from_slice(&timestamps.echo.0.to_be_bytes());
        }
        let mut cwr = false;
        if let Ok(mut tcp) = Tcp::new(tcp) {
            cwr = tcp.flags().any(Flags::CWR);
            tcp.set_ack(self.ack);
            tcp.set_window(self.window);
            tcp.set_flags(tcp.flags().with(self.flags));
            tcp.set_checksum(pseudo.fold());
        }
        let vnet = VirtioNetHdr {
            needs_csum: true,
            data_valid: false,
            gso_type: if ipv6 { GsoType::Tcpv6 } else { GsoType::Tcpv4 },
            ecn: cwr,
            hdr_len: header_len as u16,
            gso_size: self.gso_size,
            csum_start: transport_at as u16,
            csum_offset: 16,
        };
        (&self.header[..header_len], vnet)
    }
}
