//! ConnectionDescriptor (the paper, section IV.A): what is remembered of one connection, and how
//! the header of its aggregate is written (IV.D).
//!
//! What is held of it are two things: the run, whose segments continue one another and go to the
//! host next, and the blocks behind holes. All have the same headers, of which one is kept, but
//! for what [`Carried`] tells.

use core::mem::offset_of;

use wire::{Flags, FlowKey, GsoType, Seq, Tcp, Timestamps, VirtioNetHdr, protocol};

use crate::arena::Chain;
use crate::config::HEADER_MAX;
use crate::filter::{Carried, Segment};
use crate::hole::Holes;
use crate::layout::Layout;
use crate::link::Link;
use crate::list::{Links, List};
use crate::out_of_order::Block;
use crate::send::SendSpace;
use crate::{Nanos, Profile};

/// Offsets in a TCP header, the last two with the usual twelve timestamp bytes for options (RFC 7323
/// appendix A: two NOPs, kind, length, TSval, TSecr).
const SEQ_AT: usize = 4;
const VALUE_AT: usize = 20 + 4;
const ECHO_AT: usize = VALUE_AT + 4;

/// [`Descriptor::armed`] of a flow that is in no slot of the wheel.
pub(crate) const UNARMED: Nanos = Nanos::MAX;

/// How the IPv4 ID moves from segment to segment; the second one decides (docs/kernel-rules.md, rule 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdStep {
    Undecided,
    /// Up by one each (lossless), or anyhow but not the same for all (endpoint).
    Moving,
    Fixed,
}

/// One connection. What each segment in order touches comes first, up to the header as most have it, which
/// tells whose it is, too: three cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    /// In-order segments that are held.
    pub(crate) run: Chain,
    /// The sequence number that continues the run, or what was handed on last (the paper's
    /// nextseq).
    pub(crate) next_seq: Seq,
    /// The one after the highest that is in the run or was handed on. All before it is old; a
    /// retransmission may have set `next_seq` back behind it.
    pub(crate) frontier: Seq,
    payload_len: u32,
    /// Of what is held, or else of what was held last: that of the latest segment in order.
    pub(crate) last: Carried,
    /// When a segment last came.
    pub(crate) last_arrival: Nanos,
    pub(crate) out_of_order: List,
    /// The acknowledgment of what was held first of all that is held.
    first_ack: Seq,
    /// What the host has sent.
    pub(crate) send: SendSpace,
    /// Positions are those of this epoch, or mean nothing.
    pub(crate) epoch: u32,
    /// Largest payload in the run.
    pub(crate) gso_size: u16,
    /// Payload of the run's last segment, or 0 if that joined with its block.
    pub(crate) last_len: u16,
    /// How the IPv4 ID got to `last`.
    pub(crate) id_step: IdStep,
    /// PSH and FIN of all segments in the run, and CWR, with which a segment is the only one.
    flags: Flags,
    pub(crate) recently_used: bool,
    /// A PSH has completed the run.
    pub(crate) pushed: bool,
    /// The first segment's TSval is not the one that the run will carry, or not all of its bytes
    /// are the run's.
    raised: bool,
    /// It is known where the flow is: `next_seq` and `frontier` mean something.
    pub(crate) begun: bool,
    /// It has had data in order: `last` means something.
    pub(crate) has_data: bool,
    /// What it holds is to be acknowledged.
    pub(crate) ack_due: bool,
    network_at: u8,
    header_len: u8,
    /// What [`predict`](crate::predict) may expect.
    pub(crate) layout: Layout,
    /// The host takes each acknowledgment of what is held; otherwise all of them are equal.
    acceptable: bool,
    header: [u8; HEADER_MAX],
    transport_at: u8,
    pub(crate) slot: u8,
    /// The run's first segment: what it carried, and its sequence number.
    first_seq: Seq,
    first: Carried,
    pub(crate) links: Links,
    /// When it is looked at for a time-out, or `UNARMED`.
    pub(crate) armed: Nanos,
    /// When the run began to be held.
    pub(crate) since: Nanos,
    /// How long its holes are waited for.
    pub(crate) holes: Holes,
    pub(crate) pushed_links: Links,
    /// The mean time between two segments (the paper, section IV.E).
    pub(crate) average_interval: Nanos,
    pub(crate) key: FlowKey,
}

/// What of a descriptor a segment in order touches, if it has an Ethernet header, IPv6 and timestamps.
pub(crate) const HOT: usize = 192;

const _: () = {
    assert!(offset_of!(Descriptor, header) + 14 + 40 + 32 <= HOT);
    assert!(size_of::<Descriptor>() == 384); // six cache lines
};

impl Default for Descriptor {
    fn default() -> Self {
        Descriptor {
            key: FlowKey::NONE,
            run: Chain::EMPTY,
            next_seq: Seq(0),
            frontier: Seq(0),
            last: Carried::NOTHING,
            last_arrival: 0,
            average_interval: 0,
            out_of_order: List::EMPTY,
            payload_len: 0,
            gso_size: 0,
            last_len: 0,
            id_step: IdStep::Undecided,
            flags: Flags(0),
            recently_used: false,
            pushed: false,
            raised: false,
            begun: false,
            has_data: false,
            ack_due: false,
            network_at: 0,
            transport_at: 0,
            header_len: 0,
            slot: 0,
            layout: Layout::Unusual,
            acceptable: false,
            first_ack: Seq(0),
            send: SendSpace::default(),
            header: [0; HEADER_MAX],
            first: Carried::NOTHING,
            first_seq: Seq(0),
            links: Links::ALONE,
            pushed_links: Links::ALONE,
            since: 0,
            armed: UNARMED,
            epoch: 0,
            holes: Holes::default(),
        }
    }
}

impl Descriptor {
    /// A connection of which nothing is known; what is not named here is set before it is read.
    pub(crate) fn open(&mut self, key: FlowKey) {
        self.key = key;
        self.begun = false;
        self.has_data = false;
        self.ack_due = false;
        self.average_interval = 0;
        self.last_arrival = 0;
        self.send = SendSpace::default();
        self.holes = Holes::default();
    }

    #[inline]
    pub(crate) fn has_run(&self) -> bool {
        self.run.len() > 0
    }

    #[inline]
    pub(crate) fn is_holding(&self) -> bool {
        self.has_run() || !self.out_of_order.is_empty()
    }

    /// Whether a segment with this acknowledgment may join what is held: only if the host takes both of them or
    /// neither (RFC 5961 section 5.2); and none may follow a newer one, which the aggregate would not
    /// tell any more.
    #[inline(always)]
    pub(crate) fn admits(&self, ack: Seq) -> bool {
        let held = if self.has_run() { self.last.ack } else { self.first_ack };
        ack == held
            || self.acceptable && self.send.accepts(ack) && !(self.has_run() && ack.before(held))
    }

    /// Whether the run brings the byte at `seq`.
    pub(crate) fn is_within_run(&self, seq: Seq) -> bool {
        self.has_run() && !seq.before(self.first_seq) && seq.before(self.next_seq)
    }

    pub(crate) fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Bytes of the IP packet that the run would be.
    #[inline]
    pub(crate) fn ip_len(&self) -> u32 {
        u32::from(self.header_len - self.network_at) + self.payload_len
    }

    /// The memory that the header begins.
    #[inline(always)]
    pub(crate) fn header_memory(&self) -> &[u8; HEADER_MAX] {
        &self.header
    }

    /// The header that all held segments have, Ethernet to TCP options.
    #[inline]
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// Link header, IP header and ports of the sender's packets.
    pub(crate) fn front(&self) -> (&[u8], &[u8], &[u8]) {
        let transport_at = usize::from(self.transport_at);
        let (front, tcp) = self.header().split_at(transport_at);
        let (link, ip) = front.split_at(usize::from(self.network_at));
        (link, ip, &tcp[..4])
    }

    /// Where the run starts and ends, or the last one if nothing but that has been handed on since.
    pub(crate) fn last_run(&self) -> Option<(Seq, Seq)> {
        let is_last = self.has_data && self.first_seq + self.payload_len == self.next_seq;
        is_last.then_some((self.first_seq, self.next_seq))
    }

    /// Timestamps of the run's first segment, or the last one's.
    pub(crate) fn first_timestamps(&self) -> Option<Timestamps> {
        if self.has_data { self.first.timestamps } else { None }
    }

    /// Whether the run has a FIN, after which no more comes.
    pub(crate) fn is_finished(&self) -> bool {
        self.flags.any(Flags::FIN)
    }

    /// Whether all segments of the run carried one IPv4 ID.
    pub(crate) fn fixed_id(&self) -> bool {
        !self.key.ipv6 && self.id_step == IdStep::Fixed
    }

    /// Whether the run, if it is one segment, cannot go on as that came.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised
    }

    /// A segment has arrived: `average_interval = (average_interval + now - last_arrival) / 2`.
    /// Returns whether it was another time than the last one's. Those that one look at the clock brought
    /// have no interval between them that a clock tells.
    #[inline]
    pub(crate) fn arrives(&mut self, now: Nanos) -> bool {
        let interval = now.saturating_sub(self.last_arrival);
        if interval == 0 {
            return false;
        }
        if self.last_arrival != 0 {
            self.average_interval = self.average_interval.saturating_add(interval) / 2;
        }
        self.last_arrival = now;
        true
    }

    /// Keeps the header that what is held from now on must have. The filter has seen that it fits.
    #[inline]
    pub(crate) fn keep_header<L: Link>(
        &mut self,
        profile: Profile,
        segment: &Segment,
        bytes: &[u8],
    ) {
        if !self.is_holding() {
            self.first_ack = segment.carried.ack;
            self.acceptable = self.send.accepts(segment.carried.ack);
        }
        self.layout = match profile {
            Profile::Endpoint => Layout::of::<L>(segment),
            Profile::Lossless => Layout::Unusual,
        };
        self.header[..segment.payload_at].copy_from_slice(&bytes[..segment.payload_at]);
        self.header_len = segment.payload_at as u8;
        self.network_at = segment.network_at as u8;
        self.transport_at = segment.transport_at as u8;
    }

    /// The first segment of a run.
    #[inline]
    pub(crate) fn begin(&mut self, seq: Seq, len: u32, carried: &Carried, now: Nanos) {
        self.first_seq = seq;
        self.first = *carried;
        self.since = now;
        self.gso_size = len as u16;
        self.id_step = IdStep::Undecided;
        self.flags = Flags(carried.flags.0 & Flags::CWR.0);
        self.raised = carried.cut;
        self.payload_len = 0;
        self.next_seq = seq;
        self.last = *carried;
        self.begun = true;
        self.has_data = true;
        self.extend(len, carried.flags);
    }

    /// One more segment in order, which [`merge`](crate::merge) has let in.
    #[inline]
    pub(crate) fn append(&mut self, len: u32, carried: &Carried) {
        self.gso_size = self.gso_size.max(len as u16);
        let fixed = carried.id == self.last.id && self.id_step != IdStep::Moving;
        self.id_step = if fixed { IdStep::Fixed } else { IdStep::Moving };
        self.last = *carried;
        self.extend(len, carried.flags);
    }

    /// All segments of a block, as if each had been appended. `first` and `last` are what the outermost
    /// carried.
    #[inline(always)]
    pub(crate) fn absorb(&mut self, block: &Block, first: &Carried, last: &Carried) {
        self.gso_size = self.gso_size.max(block.largest);
        let fixed = block.fixed_id && first.id == self.last.id && self.id_step != IdStep::Moving;
        self.id_step = if fixed { IdStep::Fixed } else { IdStep::Moving };
        self.last = *last;
        self.since = self.since.min(block.since);
        self.extend(block.bytes(), block.flags);
        self.last_len = 0; // a block does not tell
    }

    #[inline]
    fn extend(&mut self, len: u32, flags: Flags) {
        self.last_len = len as u16;
        self.payload_len += len;
        self.next_seq += len;
        if self.next_seq.after(self.frontier) {
            self.frontier = self.next_seq;
        }
        self.flags = self.flags.with(Flags(flags.0 & (Flags::FIN.0 | Flags::PSH.0)));
    }

    /// What a segment that has waited in a block carries on, now that its turn has come.
    ///
    /// What filled the hole was sent later, perhaps, so that its acknowledgment, TSval and TSecr are
    /// the newer ones. The newest acknowledgment stands ("the maximum ACK number after packets
    /// reordering", the paper, section IV.A) within the run; that of what was handed on is not known to
    /// be one that the host takes. TSval must not go back: the host would discard the data as an old
    /// duplicate (PAWS, RFC 7323 section 5), which in the order of arrival it was not. True if it was
    /// raised.
    pub(crate) fn catch_up(&self, carried: &mut Carried) -> bool {
        if !self.has_data {
            return false;
        }
        if self.has_run() && carried.ack.before(self.last.ack) {
            carried.ack = self.last.ack;
            carried.window = self.last.window;
        }
        let (Some(new), Some(last)) = (&mut carried.timestamps, self.last.timestamps) else {
            return false;
        };
        if new.echo.before(last.echo) {
            new.echo = last.echo;
        }
        let raised = new.value.before(last.value);
        if raised {
            new.value = last.value;
        }
        raised
    }

    /// Whether a segment's TSval is newer than that of the latest in order, as far as is known.
    pub(crate) fn is_outdated_by(&self, carried: &Carried) -> bool {
        match (self.last.timestamps.filter(|_| self.has_data), carried.timestamps) {
            (Some(last), Some(new)) => last.value.before(new.value),
            (last, new) => last.is_none() && new.is_some(),
        }
    }

    /// The run's first segment cannot go on as it came, should it stay alone.
    pub(crate) fn set_raised(&mut self) {
        self.raised = true;
    }

    /// Gives up the run; the next segment is expected where it ended.
    pub(crate) fn take_run(&mut self) -> Chain {
        core::mem::replace(&mut self.run, Chain::EMPTY)
    }

    /// Panics in a debug build if the flow contradicts itself.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            debug_assert!(!self.pushed || self.has_run(), "a PSH has completed no run");
            debug_assert_eq!(self.armed != UNARMED, self.is_holding(), "what is held is timed");
            if self.begun && self.is_holding() {
                let (next, frontier) = (self.next_seq, self.frontier);
                debug_assert!(!next.after(frontier), "{next:?} is beyond {frontier:?}");
            }
            if self.has_run() {
                debug_assert!(self.begun && self.has_data);
                let (start, end) = (self.first_seq, self.next_seq);
                debug_assert_eq!(start + self.payload_len, end, "the run's bytes");
                let (last, largest) = (self.last_len, self.gso_size);
                debug_assert!(
                    last <= largest,
                    "{last} bytes in the last, {largest} in the largest"
                );
                let (segments, len) = (self.run.len(), self.ip_len());
                debug_assert!(segments == 1 || len <= 0xffff, "an aggregate of {len} bytes");
            }
        }
    }

    /// Writes the header of `segments` in one (the paper, section IV.D): sequence number and TSval of the
    /// first segment, acknowledgment, window and TSecr of the last, PSH and FIN of any, lengths
    /// and IPv4 checksum anew, and the pseudo-header sum where the TCP checksum goes.
    ///
    /// TSval stays the first's because TS.Recent is taken from the segment that covers
    /// Last.ACK.sent (RFC 7323 section 4.3), which is the first.
    pub(crate) fn reconstruct(&mut self, segments: u32) -> (&[u8], VirtioNetHdr) {
        let network_at = usize::from(self.network_at);
        let transport_at = usize::from(self.transport_at);
        let header_len = usize::from(self.header_len);
        let len = header_len - transport_at + self.payload_len as usize;
        let ip_len = self.ip_len() as usize;
        let ipv6 = self.key.ipv6;
        let udp = self.key.udp;
        let protocol = if udp { protocol::UDP } else { protocol::TCP };
        let (front, transport) = self.header[..header_len].split_at_mut(transport_at);
        let ip = &mut front[network_at..];

        let pseudo = if ipv6 {
            let payload_len = (ip_len - wire::IPV6_LEN) as u16;
            ip[4..6].copy_from_slice(&payload_len.to_be_bytes());
            wire::checksum::pseudo_v6(&ip[8..40], protocol, len)
        } else {
            ip[2..4].copy_from_slice(&(ip_len as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&self.first.id.to_be_bytes());
            ip[10..12].fill(0);
            let checksum = wire::checksum::sum(&ip[..wire::IPV4_MIN_LEN]).complement();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            wire::checksum::pseudo_v4(&ip[12..20], protocol, len)
        };

        if udp {
            transport[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            transport[6..8].copy_from_slice(&pseudo.fold().to_be_bytes());
        } else {
            self.reconstruct_tcp(pseudo.fold());
        }
        let alone = segments == 1;
        let vnet = VirtioNetHdr {
            needs_csum: true,
            data_valid: false,
            gso_type: match (udp, ipv6) {
                _ if alone => GsoType::None,
                (true, _) => GsoType::UdpL4,
                (false, true) => GsoType::Tcpv6,
                (false, false) => GsoType::Tcpv4,
            },
            ecn: false, // with CWR there are no two segments
            hdr_len: header_len as u16,
            gso_size: if alone { 0 } else { self.gso_size },
            csum_start: transport_at as u16,
            csum_offset: if udp { 6 } else { 16 },
            tunnel: None,
        };
        (&self.header[..header_len], vnet)
    }

    /// The TCP part of that.
    fn reconstruct_tcp(&mut self, checksum: u16) {
        let tcp = &mut self.header[usize::from(self.transport_at)..usize::from(self.header_len)];
        tcp[SEQ_AT..SEQ_AT + 4].copy_from_slice(&self.first_seq.0.to_be_bytes());
        if let (Some(first), Some(last)) = (self.first.timestamps, self.last.timestamps) {
            tcp[VALUE_AT..VALUE_AT + 4].copy_from_slice(&first.value.0.to_be_bytes());
            tcp[ECHO_AT..ECHO_AT + 4].copy_from_slice(&last.echo.0.to_be_bytes());
        }
        if let Ok(mut tcp) = Tcp::new(tcp) {
            let of_the_run = Flags::CWR.with(Flags::FIN).with(Flags::PSH);
            tcp.set_ack(self.last.ack);
            tcp.set_window(self.last.window);
            tcp.set_flags(tcp.flags().without(of_the_run).with(self.flags));
            tcp.set_checksum(checksum);
        }
    }
}
