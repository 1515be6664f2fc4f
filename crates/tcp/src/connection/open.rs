//! Opening: the three-way handshake, from either side or from both (RFC 9293 section 3.5).

use alloc::sync::Arc;

use wire::{Flags, Seq, Timestamps};

use crate::config::{Config, Ecn, SECOND};
use crate::connection::ListenerId;
use crate::connection::input::Answer;
use crate::connection::recovery::initial_window;
use crate::connection::{Connection, Context, Events};
use crate::options::Options;
use crate::{FourTuple, Nanos, Reason, Segment, State};

/// Largest shift (RFC 7323 section 2.3).
const SHIFT_MAX: u8 = 14;

impl Connection {
    /// An active open: a SYN is due.
    pub(crate) fn connect(path: &FourTuple, config: Arc<Config>, iss: Seq, ts_offset: u32) -> Self {
        let mut connection = Connection::new(path, config, iss, ts_offset);
        connection.hot.state = State::SynSent;
        connection.hot.bits.set_syn_due(true);
        connection.window.cwnd = initial_window(&connection);
        connection
    }

    /// A passive open: a SYN has come for a listener.
    pub(crate) fn accept(
        path: &FourTuple,
        config: Arc<Config>,
        listener: ListenerId,
        (iss, ts_offset): (Seq, u32),
        syn: &Segment<'_>,
        now: Nanos,
    ) -> Self {
        let mut connection = Connection::new(path, config, iss, ts_offset);
        connection.listener = Some(listener);
        connection.learn(syn, now);
        let asks_ecn = syn.flags.any(Flags::ECE) && syn.flags.any(Flags::CWR);
        connection.hot.bits.set_ecn(asks_ecn && connection.config.ecn != Ecn::Off);
        connection.hot.state = State::SynReceived;
        connection.hot.bits.set_syn_due(true);
        // It has no application yet.
        connection.hot.bits.set_released(true);
        connection
    }

    /// A connection whose SYN-ACK was a SYN cookie: the peer's ACK, with what the cookie keeps, stands for
    /// the SYN.
    pub(crate) fn from_cookie(
        path: &FourTuple,
        config: Arc<Config>,
        listener: ListenerId,
        (iss, ts_offset): (Seq, u32),
        syn: &Segment<'_>,
        now: Nanos,
    ) -> Self {
        let mut connection = Connection::accept(path, config, listener, (iss, ts_offset), syn, now);
        connection.hot.bits.set_syn_due(false);
        connection.hot.bits.set_ecn(false);
        connection.hot.bits.set_cookie(true);
        connection.hot.snd_nxt = iss + 1;
        connection.flight.push(iss, iss + 1, now, 1, false);
        connection.offer_first();
        connection
    }

    /// Takes up the options and the window of a SYN (RFC 9293 section 3.7.1, RFC 7323 sections 2.2 and 3.2,
    /// RFC 2018 section 2).
    fn learn(&mut self, syn: &Segment<'_>, now: Nanos) {
        let options = &syn.options;
        self.irs = syn.seq;
        self.hot.rcv_nxt = syn.seq + 1;
        self.hot.rcv_acked = self.hot.rcv_nxt;
        self.hot.last_received = now;
        if let Some(mss) = options.mss {
            self.peer_mss = mss;
        }
        self.hot.bits.set_sack(self.config.sack && options.sack_permitted);
        if let (true, Some(timestamps)) = (self.config.timestamps, options.timestamps) {
            self.hot.bits.set_timestamps(true);
            self.hot.ts_recent = timestamps.value.0;
        }
        if let (true, Some(shift)) = (self.config.window_scaling, options.window_scale) {
            self.scaled = true;
            // A larger one is to be used as 14 (RFC 7323 section 2.3).
            self.hot.snd_shift = shift.min(SHIFT_MAX);
            self.hot.rcv_shift = our_shift(&self.config);
        }
        if let Some(seconds) = options.user_timeout {
            self.take_user_timeout(seconds);
        }
        self.update_mss();
        // A SYN's window is never scaled (RFC 7323 section 2.2).
        self.hot.snd_wnd = u32::from(syn.window);
        self.max_snd_wnd = self.hot.snd_wnd;
        self.hot.snd_wl1 = syn.seq;
        self.hot.snd_wl2 = self.hot.snd_una;
        self.window.cwnd = initial_window(self);
        self.offer_first();
    }

    /// The window that a SYN offers, which is never scaled.
    pub(crate) fn first_window(&self) -> u16 {
        u16::try_from(self.hot.buffer).unwrap_or(u16::MAX)
    }

    pub(crate) fn offer_first(&mut self) {
        self.hot.rcv_edge = self.hot.rcv_nxt + u32::from(self.first_window());
    }

    /// Options of a SYN, or of a SYN-ACK, which only agrees to what was offered.
    pub(crate) fn syn_options(&self, now: Nanos) -> Options {
        let answers = self.hot.state == State::SynReceived;
        let (config, bits) = (&self.config, self.hot.bits);
        let timestamps = if answers { bits.timestamps() } else { config.timestamps };
        let scale = if answers { self.scaled } else { config.window_scaling };
        Options {
            mss: Some(self.our_mss()),
            window_scale: scale.then(|| our_shift(config)),
            sack_permitted: if answers { bits.sack() } else { config.sack },
            timestamps: timestamps.then(|| Timestamps {
                value: Seq(self.ts_clock(now)),
                echo: Seq(self.hot.ts_recent),
            }),
            user_timeout: self.our_user_timeout(),
            ..Options::default()
        }
    }

    /// The user timeout to send to the peer, in seconds (RFC 5482 section 3).
    fn our_user_timeout(&self) -> Option<u32> {
        let sends = self.config.user_timeout_option && self.user_timeout >= SECOND;
        sends.then(|| u32::try_from(self.user_timeout / SECOND).unwrap_or(u32::MAX))
    }

    /// Takes up the peer's user timeout (RFC 5482 section 3.1): not below 100 s, which the RFC's
    /// L_LIMIT is, nor above an hour; what the application asks for holds if it is longer.
    #[cold]
    pub(crate) fn take_user_timeout(&mut self, seconds: u32) {
        if self.config.user_timeout_option && self.user_timeout > 0 {
            let theirs = (Nanos::from(seconds) * SECOND).clamp(100 * SECOND, 3600 * SECOND);
            self.user_timeout = self.user_timeout.max(theirs);
        }
    }

    /// Flags of a SYN, or of a SYN-ACK (RFC 3168 section 6.1.1).
    pub(crate) fn syn_flags(&self) -> Flags {
        let asks = Flags::ECE.with(Flags::CWR);
        if self.hot.state == State::SynReceived {
            let flags = Flags::SYN.with(Flags::ACK);
            return if self.hot.bits.ecn() { flags.with(Flags::ECE) } else { flags };
        }
        // A SYN that gets no answer may be dropped for its ECN bits (RFC 3168 section 6.1.1.1).
        let ecn = self.config.ecn == Ecn::On && self.retransmits < 2;
        if ecn { Flags::SYN.with(asks) } else { Flags::SYN }
    }

    /// A segment in SYN-SENT (RFC 9293 section 3.10.7.3).
    pub(crate) fn on_syn_sent(
        &mut self,
        segment: &Segment<'_>,
        context: &mut Context<'_>,
    ) -> Answer {
        let acknowledges = segment.flags.any(Flags::ACK);
        let acceptable = segment.ack.after(self.iss) && !segment.ack.after(self.hot.snd_nxt);
        if acknowledges && !acceptable {
            context.counters.bad_acks += 1;
            return Answer::reset_unless_reset(segment);
        }
        if segment.flags.any(Flags::RST) {
            if acknowledges {
                self.finish(Reason::Refused);
            } else {
                context.counters.bad_resets += 1;
            }
            return Answer::None;
        }
        if !segment.flags.any(Flags::SYN) {
            return Answer::None;
        }
        self.learn(segment, context.now);
        if acknowledges {
            let agrees = segment.flags.any(Flags::ECE) && !segment.flags.any(Flags::CWR);
            self.hot.bits.set_ecn(agrees && self.config.ecn == Ecn::On);
            self.acknowledge_syn(segment, context.now);
            self.hot.bits.set_ack_now(true);
            self.hot.events.add(Events::CONNECTED);
            self.establish(context.now);
        } else {
            // Both have opened at once (RFC 9293 section 3.5, figure 8).
            let asks = segment.flags.any(Flags::ECE) && segment.flags.any(Flags::CWR);
            self.hot.bits.set_ecn(asks && self.config.ecn != Ecn::Off);
            self.hot.state = State::SynReceived;
            self.hot.bits.set_syn_due(true);
        }
        Answer::None
    }

    /// Our SYN is acknowledged. Its round trip counts if it was sent once (RFC 6298 section 3).
    pub(crate) fn acknowledge_syn(&mut self, segment: &Segment<'_>, now: Nanos) {
        self.hot.snd_una = self.iss + 1;
        let mut sent = None;
        self.flight.acknowledge(self.hot.snd_una, |record| {
            if !record.retransmitted {
                sent = Some(record.at);
            }
        });
        if self.hot.bits.cookie() {
            // The low bits of a cookie's timestamp are options, and not time.
        } else if let Some(at) = sent {
            self.rtt.measure(now.saturating_sub(at), now);
        } else if let (true, Some(timestamps)) =
            (self.hot.bits.timestamps(), segment.options.timestamps)
        {
            self.measure_by_timestamp(timestamps.echo.0, now);
        }
        if self.retransmits > 0 {
            self.rtt.use_fallback();
        }
        if self.retransmits > 1 {
            // RFC 5681 section 3.1: the initial window is one segment if the SYN was lost.
            self.window.cwnd = u32::from(self.hot.mss);
        }
        self.retransmits = 0;
        self.rtt.backoff = 0;
        self.hot.snd_wl1 = segment.seq;
        self.hot.snd_wl2 = segment.ack;
        self.recovery.point = self.hot.snd_una;
        self.recovery.fack = self.hot.snd_una;
        self.snd_small = self.hot.snd_una;
        self.hot.bits.set_syn_due(false);
    }

    /// The handshake is complete: the connection is established.
    pub(crate) fn establish(&mut self, now: Nanos) {
        self.hot.state = State::Established;
        if self.listener.is_some() {
            self.hot.bits.set_released(false);
        }
        self.rearm_rto(now);
        self.tune_since = now;
        self.hot.tune_at = self.hot.rcv_nxt + self.hot.buffer / 4;
        self.last_sent = now;
        self.arm_slow(now);
        self.hot.events.add(Events::WRITABLE);
        if self.hot.bits.fin_queued() {
            self.hot.state = State::FinWait1;
        }
    }
}

/// The smallest shift with which our largest window can be announced (RFC 7323 section 2.3).
pub(crate) fn our_shift(config: &Config) -> u8 {
    let largest = config.receive_buffer_max.max(config.receive_buffer).min(1 << 30);
    (0..SHIFT_MAX).find(|shift| 65_535u32 << shift >= largest).unwrap_or(SHIFT_MAX)
}
