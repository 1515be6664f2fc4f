//! Random sequences: the same few thousand in every check, and as many as one likes by
//! `cargo xtask gro`; `cargo xtask explore` tries others.

use std::fmt::Write;
use std::time::Instant;

use super::check::{Merged, Oracles};
use super::reasons::{Reason, TABLE};
use super::sequence::sequence;

/// The seed of the sequences that are the same in every check.
const SEED: u64 = 0x6c72_6f20_6772_6f21;

/// What came of a run.
#[derive(Default)]
struct Tally {
    sequences: u64,
    packets: u64,
    agreements: u64,
    only_order: u64,
    reasons: [u64; TABLE.len()],
    kernel: Merged,
    wharf: Merged,
}

impl Tally {
    /// Runs `count` sequences from number `first` on. A disagreement that no reason explains ends
    /// the test, in as few frames as it takes.
    fn run(&mut self, oracles: &mut Oracles, seed: u64, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let verdict = match oracles.check(&sequence(seed, number)) {
                Ok(verdict) => verdict,
                Err(found) => panic!(
                    "seed {seed:#x}, sequence {number}: {}\
                     again: cargo xtask gro --seed {seed:#x} --first {number} --sequences 1",
                    oracles.minimise(found)
                ),
            };
            self.sequences += 1;
            self.packets += verdict.frames;
            self.agreements += u64::from(verdict.agrees);
            self.only_order += u64::from(verdict.only_order);
            verdict.reasons.iter().for_each(|reason| self.reasons[*reason as usize] += 1);
            for (sum, one) in [(&mut self.kernel, verdict.kernel), (&mut self.wharf, verdict.wharf)]
            {
                sum.aggregates += one.aggregates;
                sum.packets += one.packets;
            }
        }
    }

    /// One line of JSON for each figure. Disagreements here are those with a listed reason, as
    /// the run ends with the first that has none; a sequence may have several.
    fn json(&self, seed: u64, first: u64, retries: u64) -> String {
        let mut lines = String::new();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = kernel.trim_end();
        let mut line = |system: &str, metric: &str, more: &str, value: u64| {
            let _ = writeln!(
                lines,
                "{{\"bench\":\"gro_kernel\",\"case\":\"random\",\"system\":\"{system}\",\
                 \"seed\":\"{seed:#x}\",\"first\":{first},\"kernel\":\"{kernel}\",\
                 \"metric\":\"{metric}\",{more}\"unit\":\"count\",\"value\":{value}}}"
            );
        };
        line("both", "sequences", "", self.sequences);
        line("both", "packets", "", self.packets);
        line("both", "agreements", "", self.agreements);
        line("both", "disagreements", "", self.sequences - self.agreements);
        line("both", "disagreements_in_order_only", "", self.only_order);
        for (system, merged) in [("kernel", self.kernel), ("wharf", self.wharf)] {
            line(system, "aggregates", "", merged.aggregates);
            line(system, "packets_merged", "", merged.packets);
        }
        line("kernel", "retries_for_a_passing_jiffy", "", retries);
        for (reason, name, effect, why) in TABLE {
            let more = format!(
                "\"reason\":\"{name}\",\"wharf_merges\":\"{}\",\"why\":\"{why}\",",
                format!("{effect:?}").to_lowercase()
            );
            line("wharf", "disagreements_by_reason", &more, self.reasons[reason as usize]);
        }
        lines
    }
}

/// A number in the environment, decimal or with 0x.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// The same sequences in every run, so many that every reason they can give shows. Which cannot:
/// a full bucket (three flows do not fill it), and what this kernel's version does not do.
#[test]
fn the_same_sequences_as_ever() {
    Oracles::with(|oracles| {
        let mut tally = Tally::default();
        tally.run(oracles, SEED, 0..3000);
        for (reason, name, ..) in TABLE {
            let absent = match reason {
                Reason::Bucket => true,
                Reason::Vlan => oracles.kernel.vlan,
                Reason::Cwr => !oracles.kernel.cwr,
                Reason::FixedId => oracles.kernel.fixed_id,
                _ => false,
            };
            assert_eq!(tally.reasons[reason as usize] == 0, absent, "{name}");
        }
        // The sequences are about merging.
        assert!(tally.agreements > tally.sequences / 2, "{} agree", tally.agreements);
        assert!(tally.kernel.packets > tally.packets / 3, "{} merged", tally.kernel.packets);
    });
}

/// What `cargo xtask gro` runs, by its settings; nothing without them.
#[test]
fn as_many_as_asked_for() {
    let Some(sequences) = setting("WHARF_GRO_SEQUENCES") else { return };
    let seed = setting("WHARF_GRO_SEED").unwrap_or(SEED);
    let first = setting("WHARF_GRO_FIRST").unwrap_or(0);
    let ran = Oracles::with(|oracles| {
        let mut tally = Tally::default();
        let start = Instant::now();
        for done in (0..sequences).step_by(20_000) {
            let from = first + done;
            tally.run(oracles, seed, from..(from + 20_000).min(first + sequences));
            let rate = tally.sequences as f64 / start.elapsed().as_secs_f64();
            let agree = tally.agreements;
            eprintln!("{} of {sequences}: {agree} agree, {rate:.0} a second", tally.sequences);
        }
        tally.json(seed, first, oracles.gro.retries())
    });
    let lines = ran.expect("there is no kernel to compare with");
    match std::env::var_os("WHARF_GRO_JSON") {
        Some(path) => std::fs::write(path, lines).unwrap(),
        None => println!("{lines}"),
    }
}
