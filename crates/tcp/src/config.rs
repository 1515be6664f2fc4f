//! Settings of connections. One [`Config`] serves many of them.

use crate::Nanos;

/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;
/// Longest time that a setting or a snapshot may have: a hundred years.
pub const TIME_MAX: Nanos = 100 * 365 * 24 * 3600 * SECOND;

/// Congestion control algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Neither asked for nor agreed to.
    Off,
    /// Agreed to when the peer asks, as Linux does.
    #[default]
    Passive,
    /// Asked for as well.
    On,
}

/// Keep-alive: probes of a connection on which nothing is received (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Time without a segment from the peer before the first probe; less than a millisecond counts as one.
    pub idle: Nanos,
    /// Time between two probes; less than a millisecond counts as one.
    pub interval: Nanos,
    /// Unanswered probes after which the connection is aborted.
    pub probes: u8,
}

impl Keepalive {
    /// The same, with times of a millisecond at least, as 0 would probe without a pause, and no longer than a
    /// snapshot may have.
    pub(crate) fn bounded(self) -> Keepalive {
        let time = |time: Nanos| time.clamp(MILLISECOND, TIME_MAX);
        Keepalive { idle: time(self.idle), interval: time(self.interval), probes: self.probes }
    }
}

impl Default for Keepalive {
    /// Linux's values: 2 hours (RFC 9293 MUST-28), 75 seconds, 9 probes.
    fn default() -> Self {
        Keepalive { idle: 7200 * SECOND, interval: 75 * SECOND, probes: 9 }
    }
}

/// Settings of a connection. The defaults are Linux's, where Linux has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// MTU of the path's first link: bytes of an IP packet. Less than 128 (IPv6: 148) counts as that: a
    /// segment has room for 88 bytes of payload and TCP options in any case, as in Linux (TCP_MIN_MSS).
    pub mtu: u16,
    /// Largest MSS to announce and to use, in bytes; 0 for what the MTU gives.
    pub mss: u16,
    /// Size of the send queue in bytes: data that is not sent yet, and data that is not acknowledged.
    pub send_buffer: u32,
    /// Receive window in bytes at the start.
    pub receive_buffer: u32,
    /// Bytes that the receive window may grow to while the application keeps up; at most 1 GiB.
    pub receive_buffer_max: u32,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Segments that are sent before the first acknowledgment; 0 for those of RFC 6928: ten, within 14,600
    /// bytes or two segments.
    pub initial_window: u32,
    /// Offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Offer window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Longest time that an acknowledgment is held back (RFC 9293 section 3.8.6.3: below 500 ms).
    pub delayed_ack: Nanos,
    /// Retransmission time-out before the first measurement (RFC 6298 section 2.1).
    pub initial_rto: Nanos,
    /// Smallest retransmission time-out. RFC 6298 section 2.4 asks for 1 s; the default is Linux's
    /// (TCP_RTO_MIN).
    pub min_rto: Nanos,
    /// Largest retransmission time-out (RFC 6298 section 2.5).
    pub max_rto: Nanos,
    /// Times that a SYN is sent again before the connection is given up.
    pub syn_retries: u8,
    /// Times that a SYN-ACK is sent again.
    pub syn_ack_retries: u8,
    /// Times that data is sent again before the connection is given up (RFC 9293 section 3.8.3, R2).
    pub retries: u8,
    /// How long data may stay unacknowledged (RFC 5482); 0 for what `retries` gives.
    pub user_timeout: Nanos,
    /// Send our user timeout to the peer, and adopt the peer's, within bounds (RFC 5482).
    pub user_timeout_option: bool,
    /// Probes of a silent peer; `None` for none (RFC 9293 MUST-25).
    pub keepalive: Option<Keepalive>,
    /// Send small segments at once (RFC 9293 section 3.7.4: Nagle's algorithm is switched off).
    pub no_delay: bool,
    /// How long TIME-WAIT lasts: twice the maximum segment lifetime.
    pub time_wait: Nanos,
    /// How long a connection that the application has closed stays in FIN-WAIT-2 (tcp_fin_timeout in Linux).
    pub fin_wait_2: Nanos,
    /// Most payload bytes of a super-packet; less than a segment counts as one.
    pub burst: u32,
    /// Probe for a larger path MTU (RFC 4821), and lower it where full-sized segments do not get through.
    pub probe_mtu: bool,
    /// The urgent byte stays in the stream (SO_OOBINLINE).
    pub urgent_inline: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mtu: 1500,
            mss: 0,
            send_buffer: 4 << 20,
            receive_buffer: 64 << 10,
            receive_buffer_max: 6 << 20,
            congestion: Algorithm::Cubic,
            initial_window: 0,
            timestamps: true,
            sack: true,
            window_scaling: true,
            ecn: Ecn::Passive,
            delayed_ack: 40 * MILLISECOND,
            initial_rto: SECOND,
            min_rto: 200 * MILLISECOND,
            max_rto: 120 * SECOND,
            syn_retries: 6,
            syn_ack_retries: 5,
            retries: 15,
            user_timeout: 0,
            user_timeout_option: false,
            keepalive: None,
            no_delay: false,
            time_wait: 60 * SECOND,
            fin_wait_2: 60 * SECOND,
            burst: 65_535 - 120,
            probe_mtu: false,
            urgent_inline: false,
        }
    }
}
