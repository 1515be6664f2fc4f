//! Congestion control: how much may be in flight. Loss recovery decides when there was a loss (module
//! `recovery`), congestion control how the window responds.

mod cubic;
mod hystart;
mod newreno;

pub use cubic::Cubic;
pub use newreno::NewReno;

use crate::Nanos;
use crate::config::Algorithm;

/// The variables of congestion control, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow start threshold; [`u32::MAX`] before the first loss.
    pub ssthresh: u32,
    /// Payload of a full segment.
    pub mss: u32,
}

impl Window {
    /// Whether it is below the threshold (RFC 5681 section 3.1).
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows by `bytes`, up to the threshold; returns the bytes that are left over.
    fn grow_to_threshold(&mut self, bytes: u32) -> u32 {
        let grown = bytes.min(self.ssthresh.saturating_sub(self.cwnd));
        self.cwnd += grown;
        bytes - grown
    }
}

/// A part of the window, at least the two segments of RFC 5681 (equation 4) and RFC 9438 (section 4.6): a
/// slow start threshold.
fn threshold(window: &Window, part: (u32, u32)) -> u32 {
    fraction(window.cwnd, part).max(window.mss.saturating_mul(2))
}

/// `value * part.0 / part.1`, for parts of at most a whole.
fn fraction(value: u32, part: (u32, u32)) -> u32 {
    (u64::from(value) * u64::from(part.0) / u64::from(part.1)) as u32
}

/// An acknowledgment of new data, outside of recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// When it came.
    pub now: Nanos,
    /// Bytes newly delivered.
    pub bytes: u32,
    /// Smoothed round-trip time; 0 if there is none yet.
    pub srtt: Nanos,
    /// Round-trip time that this acknowledgment measured, if it did.
    pub rtt: Option<Nanos>,
    /// Bytes in flight before it.
    pub in_flight: u32,
    /// What was sent was bounded by the window, not by the application (RFC 7661).
    pub cwnd_limited: bool,
    /// SND.NXT: for rounds.
    pub snd_nxt: wire::Seq,
    /// SND.UNA: the first byte not acknowledged.
    pub snd_una: wire::Seq,
}

/// A congestion control algorithm. Events come in, and it changes the window; further state is its own.
pub trait CongestionControl {
    /// New data was acknowledged outside of recovery: the window may grow.
    fn on_ack(&mut self, window: &mut Window, acked: &Acked);

    /// A loss, or a congestion mark (RFC 3168 section 6.1.2), begins a recovery. Returns the new slow start
    /// threshold; PRR then leads the window there, or the caller sets it at once for a mark.
    fn on_congestion(&mut self, window: &Window, in_flight: u32, now: Nanos) -> u32;

    /// A retransmission time-out. Returns the new slow start threshold; the caller sets the window to one
    /// segment (RFC 5681 section 3.1).
    fn on_timeout(&mut self, window: &Window, in_flight: u32, now: Nanos) -> u32;

    /// The loss was spurious: takes back what [`on_congestion`](Self::on_congestion) or
    /// [`on_timeout`](Self::on_timeout) changed in the algorithm's own state.
    fn undo(&mut self);

    /// Sending goes on after `idle` nanoseconds in which nothing was sent (RFC 9293 section 3.8.2, RFC 5681
    /// section 4.1).
    fn on_idle(&mut self, idle: Nanos);

    /// The algorithm's own state, for a snapshot taken at `now`: the words mean something to this algorithm
    /// alone, and times are distances from `now`.
    fn private(&self, now: Nanos) -> [u64; PRIVATE_WORDS];

    /// Restores what [`private`](Self::private) gave, with `now` as the time that the distances count from.
    /// Values that make no sense are put right, never trusted; zeros are a new algorithm, for a connection of
    /// which nothing else is known.
    fn restore(&mut self, private: &[u64; PRIVATE_WORDS], now: Nanos);
}

/// Words of private state in a snapshot.
pub const PRIVATE_WORDS: usize = 12;

/// The algorithm of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Congestion {
    /// CUBIC.
    Cubic(Cubic),
    /// NewReno.
    NewReno(NewReno),
}

impl Congestion {
    /// A new one, before the first acknowledgment.
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Cubic => Congestion::Cubic(Cubic::default()),
            Algorithm::NewReno => Congestion::NewReno(NewReno::default()),
        }
    }

    /// Which algorithm it is.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Congestion::Cubic(_) => Algorithm::Cubic,
            Congestion::NewReno(_) => Algorithm::NewReno,
        }
    }

    /// The algorithm, to call it.
    #[inline]
    pub fn control(&mut self) -> &mut dyn CongestionControl {
        match self {
            Congestion::Cubic(cubic) => cubic,
            Congestion::NewReno(newreno) => newreno,
        }
    }

    /// As [`CongestionControl::private`].
    pub fn private(&self, now: Nanos) -> [u64; PRIVATE_WORDS] {
        match self {
            Congestion::Cubic(cubic) => cubic.private(now),
            Congestion::NewReno(newreno) => newreno.private(now),
        }
    }
}
