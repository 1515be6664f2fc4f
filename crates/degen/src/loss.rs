//! Loss of packets.

use crate::{Config, Probability, Random};

/// Loss of single packets (Bernoulli), and of bursts (Gilbert-Elliott).
#[derive(Clone, Debug)]
pub struct Loss {
    alone: Random,
    changes: Random,
    passes: Random,
    /// Whether the Gilbert-Elliott channel is in its bad state.
    bad: bool,
}

impl Loss {
    /// A generator whose channel is in its good state.
    pub fn new(seed: u64) -> Self {
        let stream = |purpose| Random::stream(seed, purpose);
        Loss { alone: stream(1), changes: stream(2), passes: stream(3), bad: false }
    }

    /// Whether the packet of this number is lost. To be called for each packet, in the order of arrival.
    pub fn loses(&mut self, number: u64, config: &Config) -> bool {
        let alone = self.alone.happens(number, config.loss);
        let burst = self.burst(number, config);
        alone || burst
    }

    /// Gilbert-Elliott: E. O. Elliott, "Estimates of error rates for codes on burst-noise channels" (1963).
    /// As in netem, a packet meets the state before the change.
    fn burst(&mut self, number: u64, config: &Config) -> bool {
        if config.gilbert_p == Probability::NEVER {
            self.bad = false;
            return false;
        }
        let (change, passes) = match self.bad {
            true => (config.gilbert_r, config.gilbert_h),
            false => (config.gilbert_p, config.gilbert_k),
        };
        self.bad ^= self.changes.happens(number, change);
        !self.passes.happens(number, passes)
    }
}
