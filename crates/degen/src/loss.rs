//! What is lost on the way.

use crate::{Config, Probability, Random};

/// Loss of single packets, and of bursts of them.
#[derive(Clone, Debug)]
pub struct Loss {
    random: Random,
    bursts: Random,
    /// Gilbert and Elliott's channel is in its bad state.
    bad: bool,
}

impl Loss {
    /// A channel in its good state.
    pub fn new(seed: u64) -> Self {
        Loss { random: Random::stream(seed, 1), bursts: Random::stream(seed, 2), bad: false }
    }

    /// Is the next packet lost? Each packet draws the same numbers whatever the answer, so the packets
    /// lost are the same ones however the rest is set.
    pub fn loses(&mut self, config: &Config) -> bool {
        let alone = self.random.happens(config.loss);
        let burst = self.burst(config);
        alone || burst
    }

    /// Gilbert and Elliott: E. O. Elliott, "Estimates of error rates for codes on burst-noise channels"
    /// (1963). As netem has it, a packet meets the state before the change.
    fn burst(&mut self, config: &Config) -> bool {
        let change = if self.bad { config.gilbert_r } else { config.gilbert_p };
        let passes = if self.bad { config.gilbert_h } else { config.gilbert_k };
        let changes = self.bursts.happens(change);
        let passed = self.bursts.happens(passes);
        if config.gilbert_p == Probability::NEVER {
            self.bad = false;
            return false;
        }
        self.bad ^= changes;
        !passed
    }
}
