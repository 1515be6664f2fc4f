//! Active ACK (the paper, section V.C): acknowledging data that is held, so that its sender goes on.
//!
//! The paper acknowledges nextseq for every packet with a window of 0xFFFF. That tells the sender of
//! room that the host may not have, and of data as received that the host may never be given. The
//! safe mode speaks only for what it knows:
//!
//! - It acknowledges data in order that is held and will be handed on within `max_timeout`, once a
//!   turn for each flow; none while the caller [says](Lro::suspend_acknowledgments) that the host
//!   does not take what it is given.
//! - It goes by the host's own packets, seen by [`Lro::observe`]: their sequence number, their clock,
//!   and the right edge of the window that they have advertised, which is never passed. So it needs
//!   to have seen the SYNs of both sides, for the window scale (RFC 7323 section 2.2).
//! - What it acknowledges is old news to the host's own acknowledgment, soon after.
//!
//! **What is lost if the process dies while it holds acknowledged data:** that data. The sender
//! believes it delivered and will not send it again, and the connection can only be aborted. This is
//! why it is off by default.

use wire::{ETHERNET_LEN, Flags, Headers, IPV4_MIN_LEN, IPV6_LEN, MAC_LEN, Seq, Tcp, TcpOption};
use wire::{TCP_MIN_LEN, Transport, checksum, protocol};

use crate::descriptor::Descriptor;
use crate::island::Islands;
use crate::key::FlowKey;
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

/// What the options of a SYN offer.
#[derive(Clone, Copy, Debug)]
struct Offer {
    shift: Option<u8>,
    sack: bool,
}

impl Offer {
    fn read<T: AsRef<[u8]>>(syn: &Tcp<T>) -> Offer {
        let mut offer = Offer { shift: None, sack: false };
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
}

/// The host's side of a connection, as far as its packets have told.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSide {
    /// What each side's SYN offered.
    host_offer: Option<Offer>,
    wire_offer: Option<Offer>,
    heard: Option<Heard>,
    /// What was last acknowledged in its name.
    acknowledged: Option<Seq>,
}

/// What the host has said since the handshake.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// Its SND.NXT.
    next_seq: Seq,
    ack: Seq,
    /// The highest sequence number that it has made room for, plus one.
    right_edge: Seq,
    /// Its latest TSval.
    clock: Option<Seq>,
}

impl HostSide {
    /// The shift of the host's windows and whether SACK may be used; `None` unless both SYNs were
    /// seen.
    fn agreed(&self) -> Option<(u8, bool)> {
        let (host, wire) = (self.host_offer?, self.wire_offer?);
        let shift = host.shift.filter(|_| wire.shift.is_some()).unwrap_or(0);
        Some((shift, host.sack && wire.sack))
    }

    /// A packet of the host that is no SYN.
    fn hear<T: AsRef<[u8]>>(&mut self, tcp: &Tcp<T>, len: u32) {
        let Some((shift, _)) = self.agreed() else { return };
        if !tcp.flags().any(Flags::ACK) {
            return;
        }
        let next_seq = tcp.seq() + len + u32::from(tcp.flags().any(Flags::FIN));
        let edge = tcp.ack() + (u32::from(tcp.window()) << shift);
        let clock = tcp.options().map_while(Result::ok).find_map(|option| match option {
            TcpOption::Timestamps(timestamps) => Some(timestamps.value),
            _ => None,
        });
        let newest = |old: Seq, new: Seq| if new.after(old) { new } else { old };
        self.heard = Some(match self.heard {
            None => Heard { next_seq, ack: tcp.ack(), right_edge: edge, clock },
            Some(old) => Heard {
                next_seq: newest(old.next_seq, next_seq),
                ack: newest(old.ack, tcp.ack()),
                right_edge: newest(old.right_edge, edge),
                clock: clock.or(old.clock),
            },
        });
    }
}

/// The numbers of an acknowledgment.
struct Numbers {
    seq: Seq,
    ack: Seq,
    window: u16,
    clock: Option<Seq>,
    sack: bool,
}

impl<F> Lro<F> {
    /// A packet that the host sends, super-packets included; `bytes` from its Ethernet header on.
    /// To be called for all of them if `active_ack` is on; does nothing if it is off.
    pub fn observe(&mut self, bytes: &[u8]) {
        if !self.acknowledges() {
            return;
        }
        let Ok(headers) = Headers::parse(bytes) else { return };
        if headers.transport != Transport::Tcp {
            return;
        }
        let Ok(tcp) = Tcp::new(&bytes[headers.transport_at..headers.end]) else { return };
        let key = FlowKey::of(bytes, &headers).reversed();
        let known = self.table.find(&key);
        if tcp.flags().any(Flags::SYN) {
            let Some(index) = known.or_else(|| self.open_quietly(key)) else { return };
            let wire_offer = self.hosts[index as usize].wire_offer;
            // A SYN by itself begins a connection; one with ACK answers.
            let wire_offer = wire_offer.filter(|_| tcp.flags().any(Flags::ACK));
            let host_offer = Some(Offer::read(&tcp));
            self.hosts[index as usize] = HostSide { host_offer, wire_offer, ..HostSide::default() };
        } else if let Some(index) = known {
            self.hosts[index as usize].hear(&tcp, headers.payload_len() as u32);
        }
    }

    /// A descriptor for a flow that the host begins, if one can be had without letting go of
    /// anything; otherwise the flow does without acknowledgments.
    fn open_quietly(&mut self, key: FlowKey) -> Option<u32> {
        if let Some(oldest) = self.table.pick_for_recycling() {
            if self.table[oldest].is_holding() {
                return None;
            }
            self.counters.recycled += 1;
            self.table.close(oldest);
        }
        Some(self.table.open(key, false))
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

    /// Is active ACK on, for a profile that may speak for the host?
    #[inline]
    pub(crate) fn acknowledges(&self) -> bool {
        self.config.active_ack != ActiveAck::Off && self.config.profile == Profile::Endpoint
    }

    /// A SYN from the wire begins, or answers, a connection.
    pub(crate) fn note_wire_syn(&mut self, key: &FlowKey, bytes: &[u8]) {
        let Some(index) = self.table.find(key) else { return };
        let Ok(headers) = Headers::parse(bytes) else { return };
        let Ok(syn) = Tcp::new(&bytes[headers.transport_at..headers.end]) else { return };
        let host_offer = self.hosts[index as usize].host_offer;
        let host_offer = host_offer.filter(|_| syn.flags().any(Flags::ACK));
        let wire_offer = Some(Offer::read(&syn));
        self.hosts[index as usize] = HostSide { host_offer, wire_offer, ..HostSide::default() };
    }

    /// A data segment has come: the paper acknowledges at once, the safe mode after the batch.
    pub(crate) fn acknowledge_later(&mut self, index: u32, sink: &mut impl Sink<F>) {
        let flow = &mut self.table[index];
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
        let numbers = match self.config.active_ack {
            ActiveAck::Paper => Some(paper_numbers(flow, host)),
            _ if self.suspended => None,
            _ => safe_numbers(flow, host),
        };
        let Some(numbers) = numbers else { return };
        let mut frame = [0; FRAME_MAX];
        let len = write(&mut frame, flow, &self.islands, &numbers);
        self.hosts[index as usize].acknowledged = Some(numbers.ack);
        self.counters.acknowledged += 1;
        sink.acknowledge(&frame[..len]);
    }
}

/// The paper's: nextseq, and a window of 0xFFFF.
fn paper_numbers(flow: &Descriptor, host: &HostSide) -> Numbers {
    let echo = flow.last.timestamps.map(|timestamps| timestamps.echo);
    Numbers {
        seq: host.heard.map_or(flow.last.ack, |heard| heard.next_seq),
        ack: flow.next_seq,
        window: 0xffff,
        clock: host.heard.and_then(|heard| heard.clock).or(echo),
        sack: host.agreed().is_some_and(|(_, sack)| sack),
    }
}

/// What the host would say, and will, unless that has been said already; `None` if not enough is
/// known.
fn safe_numbers(flow: &Descriptor, host: &HostSide) -> Option<Numbers> {
    let (shift, sack) = host.agreed()?;
    let heard = host.heard?;
    let said = host.acknowledged.filter(|said| said.after(heard.ack)).unwrap_or(heard.ack);
    // The host may have a hole from before, which only its own acknowledgments can tell.
    if flow.first_seq().after(said) {
        return None;
    }
    let past_edge = flow.next_seq.after(heard.right_edge);
    let ack = if past_edge { heard.right_edge } else { flow.next_seq };
    if !ack.after(said) || flow.last.timestamps.is_some() && heard.clock.is_none() {
        return None;
    }
    let window = ((heard.right_edge - ack) >> shift).min(0xffff) as u16;
    Some(Numbers { seq: heard.next_seq, ack, window, clock: heard.clock, sack })
}

/// Writes the frame, from the host to the flow's sender, and gives its length.
fn write(
    frame: &mut [u8; FRAME_MAX],
    flow: &Descriptor,
    islands: &Islands,
    numbers: &Numbers,
) -> usize {
    let (link, ip, ports) = flow.front();
    let network_at = link.len();
    frame[..network_at].copy_from_slice(link);
    frame[..MAC_LEN].copy_from_slice(&link[MAC_LEN..2 * MAC_LEN]);
    frame[MAC_LEN..2 * MAC_LEN].copy_from_slice(&link[..MAC_LEN]);

    let ipv6 = flow.key.ipv6;
    let ip_len = if ipv6 { IPV6_LEN } else { IPV4_MIN_LEN };
    let (head, tcp) = frame[network_at..].split_at_mut(ip_len);
    tcp[..2].copy_from_slice(&ports[2..4]);
    tcp[2..4].copy_from_slice(&ports[..2]);
    tcp[4..8].copy_from_slice(&numbers.seq.0.to_be_bytes());
    tcp[8..12].copy_from_slice(&numbers.ack.0.to_be_bytes());
    tcp[13] = Flags::ACK.0;
    tcp[14..16].copy_from_slice(&numbers.window.to_be_bytes());
    let tcp_len = TCP_MIN_LEN + options(&mut tcp[TCP_MIN_LEN..], flow, islands, numbers);
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

/// Timestamps, if the connection has them, and SACK blocks for the islands; gives their length.
///
/// TSecr is the TSval of the first segment that is not acknowledged yet (RFC 7323 section 4.3).
fn options(at: &mut [u8], flow: &Descriptor, islands: &Islands, numbers: &Numbers) -> usize {
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        at[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    if let (Some(clock), Some(first)) = (numbers.clock, flow.first_timestamps()) {
        put(&[1, 1, 8, 10]);
        put(&clock.0.to_be_bytes());
        put(&first.value.0.to_be_bytes());
    }
    let count =
        if numbers.sack { islands.latest_first(&flow.islands).take(BLOCKS_MAX).count() } else { 0 };
    if count > 0 {
        put(&[1, 1, SACK, 2 + 8 * count as u8]);
        for island in islands.latest_first(&flow.islands).take(count) {
            put(&island.start.0.to_be_bytes());
            put(&island.end.0.to_be_bytes());
        }
    }
    len
}
