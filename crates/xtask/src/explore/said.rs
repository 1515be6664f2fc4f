//! What failed, read from what programs wrote.

use std::path::PathBuf;

/// The tests that failed, by what libtest says.
pub(super) fn failed(said: &str) -> Vec<String> {
    let test =
        |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    said.lines().filter_map(test).collect()
}

/// What this machine lacks, if a test says so (`testkit::missing`): another seed would not help.
pub(super) fn lacks(said: &str) -> Option<&str> {
    said.lines().find(|line| line.starts_with("this machine lacks "))
}

/// Failed runs of the simulation: the test, and the seed.
pub(super) fn seeds(said: &str) -> Vec<(String, u64)> {
    let mut test = String::new();
    let mut found = Vec::new();
    for line in said.lines() {
        let head = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
        if let Some(name) = head {
            test = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("seed ") {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            found.extend(rest[..end].parse().ok().map(|seed| (test.clone(), seed)));
        }
    }
    found
}

/// The number of the sequence about which wharf and the kernel do not agree.
pub(super) fn sequence(said: &str) -> Option<u64> {
    said.split_once(", sequence ")?.1.split(':').next()?.parse().ok()
}

/// The number of the sequence of calls that differs, or hangs.
pub(super) fn calls(said: &str) -> Option<u64> {
    let number = |line: &str| {
        let line = line.strip_prefix("differential: ").unwrap_or(line);
        let rest = line.strip_prefix("sequence ")?;
        rest.split([',', ' ']).next()?.parse().ok()
    };
    said.lines().find_map(number)
}

/// The files in which libFuzzer left what made a target fail.
pub(super) fn inputs(said: &str) -> Vec<PathBuf> {
    let written = said.lines().filter_map(|line| line.split_once("Test unit written to "));
    written.map(|(_, path)| PathBuf::from(path.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_read_from_the_words_of_libtest() {
        let said = "test a::b ... ok\ntest laws::c ... FAILED\n---- laws::c stdout ----\n\
            thread panicked at x:\nseed 17: bytes are lost\n  WHARF_SIM_SEED=17\nseed 9, packet 3:\n";
        assert_eq!(failed(said), ["laws::c"]);
        let law = || "laws::c".to_owned();
        assert_eq!(seeds(said), [(law(), 17), (law(), 9)]);
        assert_eq!(lacks(said), None);
        assert_eq!(lacks("x\nthis machine lacks root\n"), Some("this machine lacks root"));
    }

    #[test]
    fn and_from_those_of_the_differential_and_of_libfuzzer() {
        assert_eq!(sequence("seed 0x1f, sequence 170: the kernel"), Some(170));
        let said = "    PeerShut\nsequence 1869, step 14: the NIC's gave [0]\n    PeerShut\n";
        assert_eq!(calls(said), Some(1869));
        assert_eq!(calls("differential: sequence 7 hangs in step 2"), Some(7));
        let said = "artifact_prefix='a/'; Test unit written to /x/fuzz/artifacts/lro/crash-1\n";
        assert_eq!(inputs(said), [PathBuf::from("/x/fuzz/artifacts/lro/crash-1")]);
    }
}
