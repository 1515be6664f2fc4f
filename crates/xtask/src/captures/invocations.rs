//! How `wharf pcap` is called over a capture.

use super::random::Random;

/// Settings that change what LRO does, with values of which some are extremes.
const SETTINGS: [(&str, &[&str]); 10] = [
    ("lro.max_aggregate", &["1500", "3000", "9828", "40000", "65535"]),
    ("lro.max_segments", &["2", "3", "17", "1000"]),
    ("lro.timeout_factor", &["1", "100", "1000"]),
    ("lro.min_timeout", &["0", "1ms"]),
    ("lro.max_timeout", &["1us", "100us", "100ms"]),
    ("lro.hole_timeout", &["0", "100us", "100ms"]),
    ("lro.flush_on_psh", &["false"]),
    ("lro.active_ack", &["safe", "paper"]),
    ("lro.udp", &["true"]),
    ("lro.flows", &["1", "2", "8"]),
];

/// The MTUs at which packets are cut.
const MTUS: [&str; 6] = ["68", "100", "576", "1280", "1499", "9000"];

/// One call of `wharf pcap`: its words, without the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    /// `lro`, `gso` or `roundtrip`.
    pub(super) command: &'static str,
    pub(super) options: Vec<String>,
}

impl Invocation {
    fn new(command: &'static str, options: &str) -> Self {
        Invocation { command, options: options.split_whitespace().map(str::to_owned).collect() }
    }
}

impl std::fmt::Display for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "wharf pcap {}", self.command)?;
        self.options.iter().try_for_each(|option| write!(f, " {option}"))
    }
}

/// Every subcommand and profile, with the default settings and with others.
pub(super) fn invocations(random: &mut Random) -> Vec<Invocation> {
    let endpoint = format!("--profile endpoint {}", settings(random));
    let lossless = format!("--profile lossless {}", settings(random));
    let mtu = format!("--mtu {}", random.pick(&MTUS));
    vec![
        Invocation::new("lro", ""),
        Invocation::new("lro", "--profile lossless"),
        Invocation::new("lro", &endpoint),
        Invocation::new("lro", &lossless),
        Invocation::new("roundtrip", &settings(random)),
        Invocation::new("gso", "--mtu 1500"),
        Invocation::new("gso", &mtu),
    ]
}

/// `--set` for none to four of them.
fn settings(random: &mut Random) -> String {
    let mut words = String::new();
    for _ in 0..random.below(5) {
        let (key, values) = random.pick(&SETTINGS);
        words += &format!(" --set {key}={}", random.pick(values));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_and_every_mtu_has_its_turn() {
        let mut random = Random::of(1, 0);
        let all: Vec<String> = (0..300)
            .flat_map(|_| invocations(&mut random))
            .map(|invocation| format!("{invocation} "))
            .collect();
        let is_there = |word: &str| all.iter().any(|invocation| invocation.contains(word));
        for (key, values) in SETTINGS {
            for value in values {
                assert!(is_there(&format!(" --set {key}={value} ")), "{key}={value}");
            }
        }
        for mtu in MTUS {
            assert!(is_there(&format!("wharf pcap gso --mtu {mtu} ")), "{mtu}");
        }
        for command in ["lro", "lro --profile endpoint", "lro --profile lossless", "roundtrip"] {
            assert!(is_there(&format!("wharf pcap {command} ")), "{command}");
        }
    }
}
