//! What a run gives.

use serde_json::Value;

use super::Case;

/// One value of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: f64,
}

/// What a program tells: how much it did, and how long a piece of it took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Told {
    pub(super) bytes: f64,
    pub(super) messages: f64,
    pub(super) nanoseconds: f64,
    median: f64,
    p99: f64,
}

impl Told {
    /// Reads it from a line.
    pub(super) fn read(line: &str) -> Option<Told> {
        let told: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| told[name].as_f64();
        Some(Told {
            bytes: number("bytes")?,
            messages: number("messages")?,
            nanoseconds: number("nanoseconds")?,
            median: number("median")?,
            p99: number("p99")?,
        })
    }

    /// What a client measured.
    pub(super) fn readings(&self, case: Case) -> Vec<Reading> {
        let reading = |metric, unit, value| Reading { metric, unit, value };
        let mean = self.nanoseconds / self.messages;
        match case {
            Case::Latency | Case::Lan | Case::Rendezvous => vec![
                reading("one_way", "us", self.median / 2e3),
                reading("mean_one_way", "us", mean / 2e3),
                reading("p99_one_way", "us", self.p99 / 2e3),
            ],
            // The program tells the computation's CPU time in place of bytes.
            Case::Overlap => {
                vec![reading("overlap", "%", 100.0 * self.bytes / self.nanoseconds)]
            }
            Case::Progress => vec![
                reading("fetch", "us", self.median / 1e3),
                reading("mean_fetch", "us", mean / 1e3),
                reading("p99_fetch", "us", self.p99 / 1e3),
            ],
            // So it does here: of the rest of the time the computation waited for its CPU.
            Case::Cpu => vec![
                reading("run_time", "ms", self.nanoseconds / 1e6),
                reading("cpu_time", "ms", self.bytes / 1e6),
            ],
        }
    }
}

/// What is there of a metric.
pub(super) fn value(readings: &[Reading], metric: &str) -> Option<f64> {
    readings.iter().find(|reading| reading.metric == metric).map(|reading| reading.value)
}

/// How much longer a computation took than the same alone, which took so many milliseconds.
pub(super) fn slowdown(readings: &[Reading], idle: f64) -> Vec<Reading> {
    let slower = value(readings, "run_time").map(|time| 100.0 * (time / idle - 1.0));
    let slower = slower.map(|value| Reading { metric: "slowdown", unit: "%", value });
    let idle = Reading { metric: "idle_run_time", unit: "ms", value: idle };
    slower.into_iter().chain([idle]).collect()
}

/// A metric in terms of what RDMA read takes from an idle node, and that.
pub(super) fn ratio(readings: &[Reading], of: &str, unloaded: f64) -> Vec<Reading> {
    let times = value(readings, of).map(|value| value / unloaded);
    let times = times.map(|value| Reading { metric: "times_unloaded", unit: "", value });
    let beside = Reading { metric: "unloaded_fetch", unit: "us", value: unloaded };
    times.into_iter().chain([beside]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_tells_becomes_the_metrics_of_its_case() {
        let line =
            r#"{"bytes": 900, "messages": 10, "nanoseconds": 1000, "median": 80, "p99": 200}"#;
        let told = Told::read(line).unwrap();
        let of = |case, metric| value(&told.readings(case), metric);
        assert_eq!(of(Case::Latency, "one_way"), Some(0.04));
        assert_eq!(of(Case::Lan, "mean_one_way"), Some(0.05));
        assert_eq!(of(Case::Overlap, "overlap"), Some(90.0));
        assert_eq!(of(Case::Progress, "fetch"), Some(0.08));
        assert_eq!(of(Case::Cpu, "run_time"), Some(0.001));
        assert_eq!(Told::read(r#"{"error": "line 1"}"#), None);
    }

    #[test]
    fn ratios_are_to_what_is_undisturbed() {
        let run_time = [Reading { metric: "run_time", unit: "ms", value: 505.0 }];
        let slower = value(&slowdown(&run_time, 500.0), "slowdown").unwrap();
        assert!((slower - 1.0).abs() < 1e-9);
        let fetch = [Reading { metric: "fetch", unit: "us", value: 84.0 }];
        assert_eq!(value(&ratio(&fetch, "fetch", 80.0), "times_unloaded"), Some(1.05));
    }
}
