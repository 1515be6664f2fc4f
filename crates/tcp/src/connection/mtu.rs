//! The path MTU: by ICMP (RFC 1191, RFC 8201, checked as RFC 5927 asks), by time-outs where a black hole
//! drops large segments, and by probes (RFC 4821).

use wire::{Seq, icmp};

use crate::config::SECOND;
use crate::connection::ack::Delivery;
use crate::connection::{Connection, Context};
use crate::{Nanos, Reason, State};

/// Smallest MTU that is believed: below it every segment would be mostly header (RFC 1191 section 3
/// says 68 for IPv4, RFC 8200 1280 for IPv6).
const MIN_V4: u16 = 552;
const MIN_V6: u16 = 1280;
/// MTU that nearly every path takes (RFC 4821 section 7.2, BASE_PMTU), for black holes.
const BASE: u16 = 1280;
/// Time-outs in a row after which large segments are suspected (RFC 4821 section 7.5).
const SUSPICIOUS: u8 = 2;
/// Ranges smaller than this are not searched.
const ENOUGH: u16 = 32;

/// After so long a size that did not pass is tried again: paths change (PMTU_RAISE_TIMER of RFC 8899 section
/// 5.1.1, RFC 8201 section 4; tcp_probe_interval and mtu_expires in Linux).
const RAISE_AFTER: Nanos = 600 * SECOND;

/// The search for a larger MTU (RFC 4821 section 7.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Search {
    /// The smallest MTU known not to pass; 0 if there is none.
    pub(crate) high: u16,
    /// A probe of this size is in flight, and ends there.
    pub(crate) probe: Option<(u16, Seq)>,
    /// When the last probe was sent, or the last message came that a packet was too big.
    pub(crate) tried: Nanos,
}

impl Connection {
    /// An ICMP message has come that quotes a segment of ours with this sequence number.
    pub(crate) fn on_icmp(&mut self, icmp: icmp::Error, seq: Seq, context: &mut Context<'_>) {
        // RFC 5927 section 4.1: only what is in flight can have caused it.
        if seq.before(self.hot.snd_una) || !seq.before(self.hot.snd_nxt) {
            context.counters.bad_icmp += 1;
            return;
        }
        match icmp {
            icmp::Error::TooBig { mtu } => self.on_too_big(mtu, context.now),
            // RFC 5927 section 5.2: in synchronized states hard errors are treated as soft ones.
            icmp::Error::Unreachable { hard } => match self.hot.state {
                State::SynSent | State::SynReceived if hard => self.finish(Reason::Refused),
                State::SynSent | State::SynReceived => self.unreachable = true,
                _ => context.counters.soft_icmp += 1,
            },
        }
    }

    fn on_too_big(&mut self, mtu: u32, now: Nanos) {
        let least = if self.key.is_v6() { MIN_V6 } else { MIN_V4 };
        // ICMPv6 has 32 bits for it; no packet of ours exceeds 16.
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let mtu = if mtu == 0 { next_plateau(self.path_mtu) } else { mtu }.max(least);
        if mtu < self.path_mtu {
            self.shrink_to(mtu, now);
        }
    }

    /// Uses smaller segments from now on; what was too big is retransmitted at once.
    fn shrink_to(&mut self, mtu: u16, now: Nanos) {
        let before = u32::from(self.hot.mss);
        self.path_mtu = mtu;
        self.mtu = Search { high: mtu.saturating_add(1), probe: None, tried: now };
        self.hot.bits.set_mtu_bounded(true);
        self.update_mss();
        if !self.hot.state.is_synchronized() || u32::from(self.hot.mss) == before {
            return;
        }
        // That it was too big is no congestion (RFC 4821 section 7.7): the window stays.
        let mss = u32::from(self.hot.mss);
        self.window.cwnd = self.window.cwnd.max(2 * mss);
        self.flight.mark_lost(|record| record.len() > mss);
        self.rearm_rto(now);
    }

    /// After a time-out: where large segments are lost without an ICMP message, smaller ones may pass (RFC
    /// 4821 section 7.7).
    pub(crate) fn on_black_hole(&mut self, context: &mut Context<'_>) {
        let least = if self.key.is_v6() { MIN_V6 } else { MIN_V4 };
        if !self.config.probe_mtu || self.retransmits < SUSPICIOUS || self.path_mtu <= least {
            return;
        }
        context.counters.black_holes += 1;
        let smaller = if self.path_mtu > BASE { BASE } else { self.path_mtu / 2 };
        self.path_mtu = smaller.max(least);
        self.mtu = Search { high: 0, probe: None, tried: self.mtu.tried };
        self.hot.bits.set_mtu_bounded(false);
        self.update_mss();
    }

    /// An MTU probe has arrived, or the segments behind it have and it has not.
    pub(crate) fn on_probe_result(&mut self, delivery: &Delivery) {
        let Some((mtu, end)) = self.mtu.probe else { return };
        if delivery.probe == Some(end) {
            self.mtu.probe = None;
            self.path_mtu = mtu;
            self.update_mss();
        } else if !self.flight.is_probing(end) {
            self.mtu.probe = None;
            self.mtu.high = mtu;
            self.hot.bits.set_mtu_bounded(true);
        }
    }

    /// Forgets an old bound of the path MTU: probes search again, and without them the first link's MTU is
    /// used (RFC 1191 section 6.3), as in Linux. A router whose MTU is still smaller sends another message.
    #[cold]
    pub(crate) fn forget_mtu(&mut self, now: Nanos) {
        if now.saturating_sub(self.mtu.tried) < RAISE_AFTER || self.mtu.probe.is_some() {
            return;
        }
        self.mtu.high = 0;
        self.hot.bits.set_mtu_bounded(false);
        if !self.config.probe_mtu {
            self.path_mtu = self.path_mtu.max(self.config.mtu);
            self.update_mss();
        }
    }

    /// Whether a segment of `len` bytes is a probe for a larger MTU.
    pub(crate) fn is_mtu_probe(&self, len: u32) -> bool {
        self.mtu.probe.is_some_and(|(_, end)| end == self.hot.snd_nxt + len)
    }

    /// Size of the next probe's payload, if it is time for one: nothing lost, enough data, and a range
    /// left to search (RFC 4821 section 7.4).
    pub(crate) fn next_mtu_probe(&mut self, unsent: u32, now: Nanos) -> Option<u32> {
        if !self.config.probe_mtu || self.mtu.probe.is_some() || self.flight.lost() > 0 {
            return None;
        }
        let most = self.peer_mss.min(self.our_mss());
        let fits = self.config.mtu.min(most.saturating_add(self.headers_len()));
        let high = if self.mtu.high == 0 {
            fits.saturating_add(1)
        } else {
            self.mtu.high.min(fits.saturating_add(1))
        };
        if high <= self.path_mtu.saturating_add(ENOUGH) {
            return None;
        }
        let quiet = self.recovery.state == crate::snapshot::RecoveryState::Open;
        let mtu =
            if self.mtu.high == 0 { fits } else { self.path_mtu + (high - self.path_mtu) / 2 };
        let payload = u32::from(mtu - self.path_mtu) + self.largest_segment();
        let room = self.window.cwnd.saturating_sub(self.in_flight());
        let ready =
            quiet && unsent >= 2 * payload && room >= payload && self.window_space() >= payload;
        if !ready || self.hot.state != State::Established && self.hot.state != State::CloseWait {
            return None;
        }
        self.mtu.probe = Some((mtu, self.hot.snd_nxt + payload));
        self.mtu.tried = now;
        Some(payload)
    }
}

/// The next smaller of the usual MTUs (RFC 1191 section 7.1), for routers that report none.
fn next_plateau(mtu: u16) -> u16 {
    [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576]
        .into_iter()
        .find(|&plateau| plateau < mtu)
        .unwrap_or(576)
}
