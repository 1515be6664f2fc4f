//! Active ACK (the paper, section V.C): acknowledging data that is held, so that its sender goes on.
//!
//! The paper acknowledges nextseq for every packet with a window of 0xFFFF. That tells the sender of
//! room that the host may not have, and of data as received that the host may never be given. The
//! safe mode speaks only for what it knows:
//!
//! - It acknowledges data in order that is held and will be handed on within `max_timeout`, once a
//!   turn for each flow.
//! - It goes by the host's own packets, seen by [`Lro::observe`]: their sequence number, their clock,
//!   and the right edge of the window that they have last advertised, which is never passed. So it
//!   needs to have seen the SYNs of both sides, for the window scale (RFC 7323 section 2.2), and
//!   knows nothing of connections that began while it was off.
//! - It says nothing that would close the window, and nothing at all where congestion is notified of
//!   explicitly (ECN): whether a mark has arrived is for the host to say.
//! - What it acknowledges is old news to the host's own acknowledgment, soon after.
//!
//! Neither mode acknowledges anything beyond a hole that was given up, until the host has; nor on a
//! connection that the host has reset, or that may be another since a SYN came (see
//! [`anew`](crate::anew)); nor while the caller
//! [reports](Lro::suspend_acknowledgments) that the host does not take what it is given. So even the
//! paper's mode needs the SYN of the sender, or a word of the host.
//!
//! **What is lost if the process dies while it holds acknowledged data:** that data. The sender
//! believes it delivered and will not send it again, and the connection can only be aborted. The same
//! is so if the host's stack drops what it was given within its window: it may do so when memory is
//! short, or by a firewall's rule. This is why it is off by default.

use wire::{ETHERNET_LEN, Flags, FlowKey, IPV4_MIN_LEN, IPV6_LEN, MAC_LEN, Packet, Seq, Tcp};
use wire::{TCP_MIN_LEN, TcpOption, Timestamps, checksum, protocol};

use crate::descriptor::Descriptor;
use crate::link::Link;
use crate::observe::HostSegment;
use crate::out_of_order::OutOfOrder;
use crate::{ActiveAck, Lro, Profile, Sink};

/// Option kinds: window scale and SACK permitted (RFC 7323, 2018), and SACK.
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;

/// A window scale above this counts as this (RFC 7323 section 2.3).
const SHIFT_MAX: u8 = 14;

/// SACK blocks beside a timestamps option (RFC 2018 section 3).
const BLOCKS_MAX: usize = 3;

/// What a packet of the host begins with (`ip_default_ttl`).
const HOP_LIMIT: u8 = 64;

/// Ethernet with two tags, IPv6, TCP with 40 bytes of options.
const FRAME_MAX: usize = ETHERNET_LEN + 8 + IPV6_LEN + 60;

/// What a SYN offers.
#[derive(Clone, Copy, Debug)]
struct Offer {
    /// What acknowledges it, without its data and with all of it (RFC 7413).
    next: Seq,
    data: u32,
    shift: Option<u8>,
    sack: bool,
    /// Explicit congestion notification, accurate (RFC 9768) or not.
    ecn: bool,
}

impl Offer {
    fn read<T: AsRef<[u8]>>(syn: &Tcp<T>, data: u32) -> Offer {
        let ecn = syn.flags().any(Flags::ECE.with(Flags::CWR)) || syn.reserved() & 1 != 0;
        let mut offer = Offer { next: syn.seq() + 1, data, shift: None, sack: false, ecn };
        for option in syn.options().map_while(Result::ok) {
            match option {
                TcpOption::Other { kind: WINDOW_SCALE, data: [shift] } => {
                    offer.shift = Some((*shift).min(SHIFT_MAX));
                }
                TcpOption::Other { kind: SACK_PERMITTED, .. } => offer.sack = true,
                _ => {}
            }
        }
        offer
    }

    /// Whether this is the SYN that another one answers.
    fn is_answered_by<T: AsRef<[u8]>>(&self, syn: &Tcp<T>) -> bool {
        syn.flags().any(Flags::ACK) && syn.ack() - self.next <= self.data
    }
}

/// What both SYNs have agreed on.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    /// The shift of the host's windows.
    shift: u8,
    sack: bool,
    ecn: bool,
}

/// The host's side of a connection, as far as its packets have told.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSide {
    /// What each side's SYN offered.
    host_offer: Option<Offer>,
    wire_offer: Option<Offer>,
    heard: Option<Heard>,
    /// The host has reset the connection.
    aborted: bool,
    /// The newest acknowledgment that the sender has been sent, by whom ever (Last.ACK.sent).
    acknowledged: Option<Seq>,
    /// All before it has come, whether the host has acknowledged it or it was taken in here.
    reached: Option<Seq>,
    /// Where data in order ended when some last came.
    ended: Option<Seq>,
    /// What to echo (TS.Recent, RFC 7323 section 4.3), or a little older.
    recent: Option<Seq>,
    /// The newest TSval of data that came. The host may discard what comes with an older one behind it
    /// (PAWS, RFC 7323 section 5.3): that is not for us to acknowledge.
    newest: Option<Seq>,
}

/// What the host's segments have carried since the handshake.
#[derive(Clone, Copy, Debug)]
struct Heard {
    ack: Seq,
    /// The highest sequence number that it has made room for, plus one, as of its last word.
    right_edge: Seq,
    /// Its latest TSval.
    clock: Option<Seq>,
}

fn newest(old: Option<Seq>, new: Seq) -> Option<Seq> {
    old.filter(|old| old.after(new)).or(Some(new))
}

impl HostSide {
    /// `None` unless both SYNs were seen.
    fn agreed(&self) -> Option<Agreed> {
        let (host, wire) = (self.host_offer?, self.wire_offer?);
        let shift = host.shift.filter(|_| wire.shift.is_some()).unwrap_or(0);
        Some(Agreed { shift, sack: host.sack && wire.sack, ecn: host.ecn && wire.ecn })
    }

    /// The host's SYN by itself begins a connection; one with ACK answers.
    fn host_syn<T: AsRef<[u8]>>(&mut self, syn: &Tcp<T>, data: u32) {
        let before = core::mem::take(self);
        if before.wire_offer.is_some_and(|offer| offer.is_answered_by(syn)) {
            *self = HostSide { heard: None, aborted: false, ..before };
        }
        self.host_offer = Some(Offer::read(syn, data));
    }

    /// The same of the sender's.
    fn wire_syn<T: AsRef<[u8]>>(&mut self, syn: &Tcp<T>, data: u32) {
        let offer = Offer::read(syn, data);
        let host_offer = self.host_offer.filter(|offer| offer.is_answered_by(syn));
        let recent = timestamps(syn).map(|timestamps| timestamps.value);
        *self = HostSide {
            host_offer,
            wire_offer: Some(offer),
            acknowledged: Some(offer.next),
            reached: Some(offer.next),
            recent,
            ..HostSide::default()
        };
    }

    /// A packet of the host that is no SYN.
    fn hear<T: AsRef<[u8]>>(&mut self, tcp: &Tcp<T>) {
        self.aborted |= tcp.flags().any(Flags::RST);
        if !tcp.flags().any(Flags::ACK) {
            return;
        }
        let ack = tcp.ack();
        let shift = self.agreed().map_or(0, |agreed| agreed.shift);
        let right_edge = ack + (u32::from(tcp.window()) << shift);
        let clock = timestamps(tcp).map(|timestamps| timestamps.value);
        self.heard = Some(match self.heard {
            None => Heard { ack, right_edge, clock },
            Some(old) => Heard {
                ack: if ack.after(old.ack) { ack } else { old.ack },
                right_edge: if ack.before(old.ack) { old.right_edge } else { right_edge },
                clock: clock.or(old.clock),
            },
        });
        self.acknowledged = newest(self.acknowledged, ack);
        self.reached = newest(self.reached, ack);
    }

    /// Data has come with these, perhaps again.
    pub(crate) fn came_with(&mut self, timestamps: Timestamps) {
        self.newest = newest(self.newest, timestamps.value);
    }

    /// Data has come: in order, when it is held now or has just been handed on, or not.
    fn reach(&mut self, flow: &Descriptor) {
        let in_order = self.ended.replace(flow.next_seq) != Some(flow.next_seq);
        let before = self.newest;
        if let Some(last) = flow.last.timestamps {
            self.came_with(last);
        }
        let (Some(reached), Some((from, to))) = (self.reached, flow.last_run()) else { return };
        // A hole that was given up is for the host to tell of.
        if from.after(reached) || !to.after(reached) {
            return;
        }
        let first = flow.first_timestamps();
        if first.zip(before).is_some_and(|(first, newest)| first.value.before(newest)) {
            return;
        }
        self.reached = Some(to);
        // TS.Recent is of the segment that Last.ACK.sent lies in; one that comes with others behind
        // it, which have waited for it, is not known here.
        let is_one = in_order && to - reached == u32::from(flow.last_len);
        let timestamps = flow.last.timestamps.filter(|_| is_one);
        let covers = self.acknowledged.is_some_and(|acknowledged| !reached.after(acknowledged));
        if let Some(timestamps) = timestamps.filter(|_| covers) {
            self.recent = newest(self.recent, timestamps.value);
        }
    }
}

fn timestamps<T: AsRef<[u8]>>(tcp: &Tcp<T>) -> Option<Timestamps> {
    tcp.options().map_while(Result::ok).find_map(|option| match option {
        TcpOption::Timestamps(timestamps) => Some(timestamps),
        _ => None,
    })
}

/// The numbers of an acknowledgment.
struct Numbers {
    seq: Seq,
    ack: Seq,
    window: u16,
    /// TSval and TSecr.
    times: Option<(Seq, Seq)>,
    sack: bool,
}

impl<F, L: Link> Lro<F, L> {
    /// A packet of the host, for [`observe`](Self::observe).
    #[inline(never)]
    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        let Ok(Packet::Tcp(packet)) = L::packet(bytes) else { return };
        let (tcp, key) = (packet.tcp(), packet.key().reversed());
        let len = packet.payload_len() as u32;
        let known = self.table.peek(&key);
        let segment = HostSegment::new(&tcp, len);
        if tcp.flags().any(Flags::SYN) {
            let Some(index) = known.or_else(|| self.open_quietly(key)) else { return };
            self.hosts[index as usize].host_syn(&tcp, len);
            let flow = &mut self.table[index];
            flow.holes.note_host_syn(&tcp, flow.has_data);
            segment.note(&mut self.table[index].send);
        } else if let Some(index) = known {
            self.hosts[index as usize].hear(&tcp);
            segment.note(&mut self.table[index].send);
        }
    }

    /// A descriptor for a flow that the host begins, if one can be had without a flush of
    /// anything; otherwise the flow does without acknowledgments.
    fn open_quietly(&mut self, key: FlowKey) -> Option<u32> {
        if let Some(oldest) = self.table.pick_for_recycling() {
            if self.table[oldest].is_holding() {
                return None;
            }
            self.counters.recycled += 1;
            self.table.close(oldest);
        }
        let index = self.table.open(key, false);
        self.hosts[index as usize] = HostSide::default();
        Some(index)
    }

    /// Acknowledges what was taken in since the last call and is still held. To be called after a
    /// batch of frames.
    pub fn acknowledge(&mut self, sink: &mut impl Sink<F>) {
        for at in 0..self.unacknowledged.len() {
            let index = self.unacknowledged[at];
            if core::mem::take(&mut self.table[index].ack_due) && self.table[index].has_run() {
                self.send_acknowledgment(index, sink);
            }
        }
        self.unacknowledged.clear();
    }

    /// Holds acknowledgments back, or does so no longer: while the host does not take what it is
    /// given, nothing more may be acknowledged in its name.
    pub fn suspend_acknowledgments(&mut self, suspend: bool) {
        self.suspended = suspend;
    }

    /// Whether active ACK is on, for a profile that may speak for the host.
    #[inline]
    pub(crate) fn acknowledges(&self) -> bool {
        self.config.active_ack != ActiveAck::Off && self.config.profile == Profile::Endpoint
    }

    /// What is known of the hosts' sides is not any more: packets may have come by meanwhile.
    pub(crate) fn forget_hosts(&mut self) {
        self.hosts.fill(HostSide::default());
    }

    /// A SYN from the wire begins, or answers, a connection.
    pub(crate) fn note_wire_syn(&mut self, key: &FlowKey, bytes: &[u8]) {
        let Some(index) = self.table.peek(key) else { return };
        let Ok(Packet::Tcp(syn)) = L::packet(bytes) else { return };
        self.hosts[index as usize].wire_syn(&syn.tcp(), syn.payload_len() as u32);
    }

    /// A data segment has come: the paper acknowledges at once, the safe mode after the batch.
    pub(crate) fn acknowledge_later(&mut self, index: u32, sink: &mut impl Sink<F>) {
        let flow = &mut self.table[index];
        if flow.holes.syn.is_open() {
            return;
        }
        self.hosts[index as usize].reach(flow);
        if !flow.is_holding() {
            return;
        }
        if self.config.active_ack == ActiveAck::Paper {
            self.send_acknowledgment(index, sink);
        } else if !flow.ack_due && self.unacknowledged.len() < self.unacknowledged.capacity() {
            flow.ack_due = true;
            self.unacknowledged.push(index);
        }
    }

    fn send_acknowledgment(&mut self, index: u32, sink: &mut impl Sink<F>) {
        let (flow, host) = (&self.table[index], &self.hosts[index as usize]);
        // Beyond a hole there is nothing to acknowledge.
        let whole = host.reached.is_some_and(|reached| !flow.next_seq.after(reached));
        let is_doubted = flow.holes.syn.is_open();
        if !self.acknowledges() || self.suspended || host.aborted || !whole || is_doubted {
            return;
        }
        let numbers = match self.config.active_ack {
            ActiveAck::Paper => {
                let block = self.out_of_order.first(&flow.out_of_order).filter(|_| !flow.has_run());
                let (ack, seen) = match block {
                    Some(block) => {
                        let (first, last) = self.out_of_order.ends(block);
                        (last.ack, first.timestamps)
                    }
                    None => (flow.last.ack, flow.first_timestamps()),
                };
                Some(paper_numbers(flow, host, ack, seen))
            }
            _ => safe_numbers(flow, host),
        };
        let Some(numbers) = numbers else { return };
        let mut frame = [0; FRAME_MAX];
        let len = write(&mut frame, flow, &self.out_of_order, &numbers);
        let host = &mut self.hosts[index as usize];
        host.acknowledged = newest(host.acknowledged, numbers.ack);
        self.counters.acknowledged += 1;
        sink.acknowledge(&frame[..len]);
    }
}

/// The paper's: nextseq, and a window of 0xFFFF. What is held has acknowledged so much, at this time.
fn paper_numbers(
    flow: &Descriptor,
    host: &HostSide,
    ack: Seq,
    seen: Option<Timestamps>,
) -> Numbers {
    let clock = host.heard.and_then(|heard| heard.clock).or(seen.map(|seen| seen.echo));
    Numbers {
        seq: flow.send.next_seq().filter(|_| host.heard.is_some()).unwrap_or(ack),
        ack: flow.next_seq,
        window: 0xffff,
        times: clock.zip(seen).map(|(clock, seen)| (clock, host.recent.unwrap_or(seen.value))),
        sack: host.agreed().is_some_and(|agreed| agreed.sack),
    }
}

/// The acknowledgment that the host would send, unless it has been sent already; `None` if not enough
/// is known.
fn safe_numbers(flow: &Descriptor, host: &HostSide) -> Option<Numbers> {
    let (agreed, heard) = (host.agreed()?, host.heard?);
    // Whether the host has seen a mark of congestion, only it can tell.
    if agreed.ecn {
        return None;
    }
    let past_edge = flow.next_seq.after(heard.right_edge);
    let ack = if past_edge { heard.right_edge } else { flow.next_seq };
    if host.acknowledged.is_some_and(|acknowledged| !ack.after(acknowledged)) {
        return None;
    }
    let times = match flow.first_timestamps() {
        Some(seen) => Some((heard.clock?, host.recent.unwrap_or(seen.value))),
        None => None,
    };
    let window = ((heard.right_edge - ack) >> agreed.shift).min(0xffff) as u16;
    let seq = flow.send.next_seq()?;
    // A window that closes stops the sender, and the host is about to open it.
    (window > 0).then_some(Numbers { seq, ack, window, times, sack: agreed.sack })
}

/// Writes the frame, from the host to the flow's sender, and gives its length.
fn write(
    frame: &mut [u8; FRAME_MAX],
    flow: &Descriptor,
    out_of_order: &OutOfOrder,
    numbers: &Numbers,
) -> usize {
    let (link, ip, ports) = flow.front();
    let network_at = link.len();
    frame[..network_at].copy_from_slice(link);
    if let Some((macs, _)) = link.split_at_checked(2 * MAC_LEN) {
        frame[..MAC_LEN].copy_from_slice(&macs[MAC_LEN..]);
        frame[MAC_LEN..2 * MAC_LEN].copy_from_slice(&macs[..MAC_LEN]);
    }

    let ipv6 = flow.key.ipv6;
    let ip_len = if ipv6 { IPV6_LEN } else { IPV4_MIN_LEN };
    let (head, tcp) = frame[network_at..].split_at_mut(ip_len);
    tcp[..2].copy_from_slice(&ports[2..4]);
    tcp[2..4].copy_from_slice(&ports[..2]);
    tcp[4..8].copy_from_slice(&numbers.seq.0.to_be_bytes());
    tcp[8..12].copy_from_slice(&numbers.ack.0.to_be_bytes());
    tcp[13] = Flags::ACK.0;
    tcp[14..16].copy_from_slice(&numbers.window.to_be_bytes());
    let tcp_len = TCP_MIN_LEN + options(&mut tcp[TCP_MIN_LEN..], flow, out_of_order, numbers);
    tcp[12] = (tcp_len as u8 / 4) << 4;

    let pseudo = if ipv6 {
        head[0] = 0x60;
        head[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
        (head[6], head[7]) = (protocol::TCP, HOP_LIMIT);
        head[8..24].copy_from_slice(&ip[24..40]);
        head[24..40].copy_from_slice(&ip[8..24]);
        checksum::pseudo_v6(&head[8..40], protocol::TCP, tcp_len)
    } else {
        head[0] = 0x45;
        head[2..4].copy_from_slice(&((ip_len + tcp_len) as u16).to_be_bytes());
        head[6] = 0x40; // DF
        (head[8], head[9]) = (HOP_LIMIT, protocol::TCP);
        head[12..16].copy_from_slice(&ip[16..20]);
        head[16..20].copy_from_slice(&ip[12..16]);
        let sum = checksum::sum(head).complement();
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        checksum::pseudo_v4(&head[12..20], protocol::TCP, tcp_len)
    };
    let sum = pseudo.plus(checksum::sum(&tcp[..tcp_len])).complement();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    network_at + ip_len + tcp_len
}

/// Timestamps, if the connection has them, and SACK blocks for what is out of order; gives their length.
fn options(
    at: &mut [u8],
    flow: &Descriptor,
    out_of_order: &OutOfOrder,
    numbers: &Numbers,
) -> usize {
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        at[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    if let Some((clock, echo)) = numbers.times {
        put(&[1, 1, 8, 10]);
        put(&clock.0.to_be_bytes());
        put(&echo.0.to_be_bytes());
    }
    let count = if numbers.sack {
        out_of_order.latest_first(&flow.out_of_order).take(BLOCKS_MAX).count()
    } else {
        0
    };
    if count > 0 {
        put(&[1, 1, SACK, 2 + 8 * count as u8]);
        for block in out_of_order.latest_first(&flow.out_of_order).take(count) {
            put(&block.start.0.to_be_bytes());
            put(&block.end.0.to_be_bytes());
        }
    }
    len
}
