//! HyStart++ (RFC 9406): the first slow start is left when the delay rises, before it has to be left
//! because of losses.

use crate::Nanos;

use super::Acked;

/// Smallest rise of the delay that counts, in microseconds (MIN_RTT_THRESH, RFC 9406 section 4.3).
const MIN_RTT_THRESH: u32 = 4_000;
/// Largest rise that is asked for, in microseconds (MAX_RTT_THRESH).
const MAX_RTT_THRESH: u32 = 16_000;
/// Between the two the rise asked for is this part of the delay (MIN_RTT_DIVISOR).
const MIN_RTT_DIVISOR: u32 = 8;
/// Round-trip times that a round must have for its minimum to count (N_RTT_SAMPLE).
const N_RTT_SAMPLE: u8 = 8;
/// In Conservative Slow Start the window grows by this part of what slow start would give
/// (CSS_GROWTH_DIVISOR).
const CSS_GROWTH_DIVISOR: u32 = 4;
/// Rounds that Conservative Slow Start lasts (CSS_ROUNDS).
const CSS_ROUNDS: u8 = 5;
/// A round-trip time that was not measured.
const UNKNOWN: u32 = u32::MAX;

/// Which kind of slow start it is in (RFC 9406 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
enum Phase {
    /// Nothing was acknowledged yet: there is no round.
    #[default]
    Before = 0,
    /// Standard slow start.
    Standard = 1,
    /// Conservative slow start.
    Conservative = 2,
}

/// State over the rounds of a slow start. Times are in microseconds: the thresholds are thousands of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HyStart {
    /// The round ends when this sequence number is acknowledged (`windowEnd`).
    window_end: u32,
    /// Smallest round-trip time of the round before (`lastRoundMinRTT`).
    last_min: u32,
    /// Smallest round-trip time of this round (`currentRoundMinRTT`).
    current_min: u32,
    /// The one at which conservative slow start was entered (`cssBaselineMinRtt`).
    baseline: u32,
    /// Measurements in this round, up to [`N_RTT_SAMPLE`] (`rttSampleCount`).
    samples: u8,
    /// Rounds of conservative slow start that are over.
    rounds: u8,
    phase: Phase,
}

impl Default for HyStart {
    fn default() -> Self {
        HyStart {
            window_end: 0,
            last_min: UNKNOWN,
            current_min: UNKNOWN,
            baseline: UNKNOWN,
            samples: 0,
            rounds: 0,
            phase: Phase::Before,
        }
    }
}

impl HyStart {
    /// An acknowledgment in the first slow start. Returns the divisor of its growth: the window grows by the
    /// bytes acknowledged divided by it. `None` if slow start is over.
    ///
    /// There is no limit L to the growth of one acknowledgment (RFC 9406 section 4.3): receivers
    /// that merge segments acknowledge forty and more at once as a rule, and a limit of 8 would hold
    /// slow start back for as long as they do. Linux has none either.
    pub(super) fn on_ack(&mut self, acked: &Acked) -> Option<u32> {
        let round_ends =
            self.phase == Phase::Before || !acked.snd_una.before(wire::Seq(self.window_end));
        if round_ends {
            self.begin_round(acked);
        }
        if self.rounds >= CSS_ROUNDS {
            return None;
        }
        // The window grows first; the measurement counts from the next acknowledgment on (RFC 9406 section
        // 4.2).
        let divisor = if self.phase == Phase::Conservative { CSS_GROWTH_DIVISOR } else { 1 };
        if let Some(rtt) = acked.rtt {
            self.current_min = self.current_min.min(micros(rtt));
            self.samples = self.samples.saturating_add(1).min(N_RTT_SAMPLE);
        }
        if self.samples >= N_RTT_SAMPLE {
            self.judge();
        }
        Some(divisor)
    }

    fn begin_round(&mut self, acked: &Acked) {
        match self.phase {
            Phase::Before => self.phase = Phase::Standard,
            Phase::Standard => {}
            // The round in which it was entered counts, however little of it was left.
            Phase::Conservative => self.rounds += 1,
        }
        self.last_min = self.current_min;
        self.current_min = UNKNOWN;
        self.samples = 0;
        self.window_end = acked.snd_nxt.0;
    }

    /// Changes the phase if the delay has risen, or has fallen back, in this round (RFC 9406 section 4.2).
    fn judge(&mut self) {
        if self.phase == Phase::Conservative {
            if self.current_min < self.baseline {
                self.phase = Phase::Standard;
                self.baseline = UNKNOWN;
                self.rounds = 0;
            }
            return;
        }
        if self.last_min == UNKNOWN || self.current_min == UNKNOWN {
            return;
        }
        let threshold = (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.current_min >= self.last_min.saturating_add(threshold) {
            self.phase = Phase::Conservative;
            self.baseline = self.current_min;
        }
    }

    /// The state as words for a snapshot: durations, no instants, inverted so that zeros are a new slow
    /// start.
    pub(super) fn words(&self) -> [u64; 3] {
        let small = u64::from(self.samples)
            | u64::from(self.rounds) << 8
            | u64::from(self.phase as u8) << 16;
        [
            u64::from(self.window_end) << 32 | u64::from(!self.last_min),
            u64::from(!self.current_min) << 32 | u64::from(!self.baseline),
            small,
        ]
    }

    /// The state of words that [`words`](Self::words) gave. Any other words give a valid state, too.
    pub(super) fn from_words(words: [u64; 3]) -> Self {
        let [_, _, _, _, _, phase, rounds, samples] = words[2].to_be_bytes();
        HyStart {
            window_end: (words[0] >> 32) as u32,
            last_min: !(words[0] as u32),
            current_min: !((words[1] >> 32) as u32),
            baseline: !(words[1] as u32),
            samples: samples.min(N_RTT_SAMPLE),
            rounds: rounds.min(CSS_ROUNDS),
            phase: match phase {
                1 => Phase::Standard,
                2 => Phase::Conservative,
                _ => Phase::Before,
            },
        }
    }
}

/// Microseconds; what is longer than a `u32` holds (71 minutes) counts as not measured.
fn micros(time: Nanos) -> u32 {
    u32::try_from(time / 1_000).unwrap_or(UNKNOWN)
}
