//! What was measured of a peer: kernel and wharf beside each other.

use serde_json::Value;

use super::peer::{Peer, Way};
use crate::tcp::system::System;
use crate::throughput::median;
use crate::{Figure, Report};

/// The rate of a transfer, in bits a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) system: System,
    pub(super) seed: u64,
    pub(super) rate: f64,
}

/// A peer and a way.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) way: Way,
    pub(super) peer: Peer,
    outcomes: Vec<Outcome>,
}

impl Row {
    pub(super) fn new(way: Way, peer: Peer) -> Row {
        Row { way, peer, outcomes: Vec::new() }
    }

    pub(super) fn words(&self) -> String {
        format!("{} {}", self.way.name(), self.peer.name())
    }

    pub(super) fn add(&mut self, outcomes: Outcome) {
        self.outcomes.push(outcomes);
    }

    /// Whether all is there that so many seeds give.
    pub(super) fn is_complete(&self, seeds: u64) -> bool {
        self.outcomes.len() as u64 == 2 * seeds
    }

    /// The rates of a system, in the order of seeds.
    fn of(&self, system: System) -> Vec<f64> {
        let mut outcomes: Vec<Outcome> =
            self.outcomes.iter().copied().filter(|outcomes| outcomes.system == system).collect();
        outcomes.sort_by_key(|outcomes| outcomes.seed);
        outcomes.into_iter().map(|outcomes| outcomes.rate).collect()
    }

    /// Reports the medians of both, their ratio, and the quartiles of the ratios of each seed.
    pub(super) fn report(&self, path: &str, report: &mut dyn Report) {
        let (kernel, wharf) = (self.of(System::Kernel), self.of(System::Wharf));
        let ratios: Vec<f64> =
            wharf.iter().zip(&kernel).map(|(wharf, kernel)| ratio(*wharf, *kernel)).collect();
        let middle = |samples: &[f64]| median(samples.iter().copied());
        let both = [middle(&kernel), middle(&wharf)];
        let quartiles = [0.25, 0.75].map(|part| quantile(&ratios, part));
        let seeds = kernel.len();
        let mut figure = |metric, unit, value, samples| {
            report.figure(Figure {
                bench: "tcp-goodput",
                case: self.way.name().to_owned(),
                system: self.peer.name().to_owned(),
                varied: vec![("path", Value::from(path)), ("seeds", Value::from(seeds))],
                metric,
                unit,
                value,
                samples,
            });
        };
        let mega = |samples: Vec<f64>| samples.into_iter().map(|rate| rate / 1e6).collect();
        figure("kernel", "Mbit/s", both[0] / 1e6, mega(kernel));
        figure("wharf", "Mbit/s", both[1] / 1e6, mega(wharf));
        figure("ratio", "", ratio(both[1], both[0]), Vec::new());
        figure("quartile1", "", quartiles[0], Vec::new());
        figure("quartile3", "", quartiles[1], Vec::new());
    }
}

/// No infinity, which JSON does not have.
fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

/// The sample at this part of them, in order of size.
fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    let at = (samples.len().saturating_sub(1) as f64 * part).round() as usize;
    samples.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorded(Vec<(&'static str, f64, Vec<f64>)>);

    impl Report for Recorded {
        fn figure(&mut self, figure: Figure) {
            self.0.push((figure.metric, figure.value, figure.samples));
        }
        fn progress(&mut self, _: usize, _: usize, _: &str) {}
        fn notice(&mut self, _: &str) {}
    }

    #[test]
    fn medians_are_compared_and_the_ratios_of_seeds_spread() {
        let mut row = Row::new(Way::Send, Peer::Lwip);
        // They end in any order.
        for (system, seed, rate) in [
            (System::Wharf, 3, 9e6),
            (System::Kernel, 1, 4e6),
            (System::Kernel, 3, 6e6),
            (System::Wharf, 1, 4e6),
            (System::Wharf, 2, 0.0),
            (System::Kernel, 2, 8e6),
        ] {
            assert!(!row.is_complete(3));
            row.add(Outcome { system, seed, rate });
        }
        assert!(row.is_complete(3));
        let mut recorded = Recorded::default();
        row.report("", &mut recorded);
        let expected = [
            ("kernel", 6.0, vec![4.0, 8.0, 6.0]),
            ("wharf", 4.0, vec![4.0, 0.0, 9.0]),
            ("ratio", 4.0 / 6.0, vec![]),
            ("quartile1", 1.0, vec![]),
            ("quartile3", 1.5, vec![]),
        ];
        assert_eq!(recorded.0, expected);
    }
}
