//! What a run gives, and in what two runs differ.

use std::collections::BTreeMap;

use serde_json::Value;

use super::file::{Packet, read_pcap};

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// How it ended, as the system tells.
    pub(super) status: String,
    /// What it printed to standard output: one JSON object.
    pub(super) printed: String,
    pub(super) errors: String,
    /// The capture that it wrote, if it did.
    pub(super) capture: Option<Vec<u8>>,
}

/// Counters that only one of the two has: by name, what they came to.
pub(super) type OnlyOne = BTreeMap<String, u64>;

/// Counters that do not compare, of both.
#[derive(Clone, Debug, Default)]
pub(super) struct Unmatched {
    pub(super) before: OnlyOne,
    pub(super) after: OnlyOne,
}

/// In what two runs differ, in words; `None` if in nothing. Counters of which one of the two knows
/// nothing are no difference: they are collected in `unmatched`.
pub(super) fn difference(
    before: &Outcome,
    after: &Outcome,
    unmatched: &mut Unmatched,
) -> Option<String> {
    if before.status != after.status {
        return Some(format!("{}, and now {}: {}", before.status, after.status, after.errors));
    }
    if before.errors != after.errors {
        return Some(format!("standard error is `{}`, and now `{}`", before.errors, after.errors));
    }
    match (&before.capture, &after.capture) {
        (Some(before), Some(after)) if before != after => {
            return Some(of_captures(before, after));
        }
        (None, Some(_)) => return Some("it wrote no capture, and now it does".to_owned()),
        (Some(_), None) => return Some("it wrote a capture, and now it does not".to_owned()),
        _ => {}
    }
    of_counts(&before.printed, &after.printed, unmatched)
}

/// Which packet is the first that differs.
fn of_captures(before: &[u8], after: &[u8]) -> String {
    let (one, other) = (read_pcap(before), read_pcap(after));
    let at = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let counts = format!("{} packets before, {} after", one.len(), other.len());
    match (one.get(at), other.get(at)) {
        (Some(one), Some(other)) => {
            format!("{counts}; packet {} is {}, and now {}", at + 1, of(one), of_other(one, other))
        }
        (None, None) => {
            let at = before.iter().zip(after).take_while(|(one, other)| one == other).count();
            format!("{counts}; the files differ at byte {at}")
        }
        _ => format!("{counts}; the first {at} are the same"),
    }
}

fn of(packet: &Packet) -> String {
    format!("{} bytes at {} ns", packet.bytes.len(), packet.time)
}

fn of_other(before: &Packet, after: &Packet) -> String {
    let at = before.bytes.iter().zip(&after.bytes).take_while(|(one, other)| one == other).count();
    let is_same = before.bytes == after.bytes;
    let bytes =
        if is_same { "of the same bytes".into() } else { format!("other from byte {at} on") };
    format!("{}, {bytes}", of(after))
}

/// Totals and counters, by their names.
fn of_counts(before: &str, after: &str, unmatched: &mut Unmatched) -> Option<String> {
    let (before_counts, after_counts) = match (counts(before), counts(after)) {
        (Some(before), Some(after)) => (before, after),
        // Neither is JSON, as where a run fails.
        (None, None) if before == after => return None,
        _ => return Some(format!("it printed `{before}`, and now `{after}`")),
    };
    for (only, counts, others) in [
        (&mut unmatched.before, &before_counts, &after_counts),
        (&mut unmatched.after, &after_counts, &before_counts),
    ] {
        for (name, value) in counts.iter().filter(|(name, _)| !others.contains_key(*name)) {
            *only.entry(name.clone()).or_default() += value.as_u64().unwrap_or(0);
        }
    }
    before_counts.iter().find_map(|(name, before)| {
        let after = after_counts.get(name).filter(|after| *after != before)?;
        Some(format!("{name} is {before}, and now {after}"))
    })
}

/// Every number that was printed, by its path in the object.
fn counts(printed: &str) -> Option<BTreeMap<String, Value>> {
    let object: Value = serde_json::from_str(printed).ok().filter(Value::is_object)?;
    let mut found = BTreeMap::new();
    collect("", &object, &mut found);
    Some(found)
}

fn collect(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value {
        // `wharf` prints counters as a list of group, name and value.
        Value::Array(entries) => {
            for entry in entries {
                let word = |field: &str| entry[field].as_str().unwrap_or_default();
                collect(&format!("{}.{}", word("group"), word("name")), &entry["value"], found);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(&path, value, found);
            }
        }
        _ => drop(found.insert(path.to_owned(), value.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::Format;
    use super::*;

    const NANOSECONDS: Format = Format::Pcap { unit: 1, big_endian: false };

    fn outcome(packets: &[Packet], merged: u64) -> Outcome {
        Outcome {
            status: "exit status: 0".to_owned(),
            printed: format!(
                "{{\"packets_in\":9,\"truncated_in_packet\":null,\
                 \"counters\":[{{\"group\":\"lro\",\"name\":\"merged\",\"value\":{merged}}}]}}\n"
            ),
            errors: String::new(),
            capture: Some(NANOSECONDS.write(packets)),
        }
    }

    fn packets() -> [Packet; 2] {
        [Packet::new(1_000, vec![1; 60]), Packet::new(2_000, vec![2; 80])]
    }

    fn told(before: &Outcome, after: &Outcome) -> Option<String> {
        difference(before, after, &mut Unmatched::default())
    }

    #[test]
    fn two_runs_that_give_the_same_do_not_differ() {
        let one = outcome(&packets(), 3);
        assert_eq!(told(&one, &one.clone()), None);
        let failed = Outcome { capture: None, printed: "no".to_owned(), ..one };
        assert_eq!(told(&failed, &failed.clone()), None);
    }

    /// One byte, one nanosecond, one packet, one count, one word: whatever differs is told.
    #[test]
    fn whatever_differs_is_told() {
        let before = outcome(&packets(), 3);
        let with = |change: fn(&mut [Packet; 2])| {
            let mut packets = packets();
            change(&mut packets);
            outcome(&packets, 3)
        };
        let byte = with(|packets| packets[1].bytes[17] ^= 1);
        let time = with(|packets| packets[1].time += 1);
        let len = with(|packets| packets[0].original_len += 1);
        let fewer = outcome(&packets()[..1], 3);
        let count = outcome(&packets(), 4);
        let status = Outcome { status: "exit status: 1".to_owned(), ..before.clone() };
        let errors = Outcome { errors: "cut".to_owned(), ..before.clone() };
        let none = Outcome { capture: None, ..before.clone() };
        let no_json = Outcome { printed: "9".to_owned(), ..before.clone() };
        for (after, words) in [
            (
                &byte,
                "packet 2 is 80 bytes at 2000 ns, and now 80 bytes at 2000 ns, other from byte 17 on",
            ),
            (&time, "and now 80 bytes at 2001 ns, of the same bytes"),
            (&len, "packet 1 is 60 bytes"),
            (&fewer, "2 packets before, 1 after; the first 1 are the same"),
            (&count, "lro.merged is 3, and now 4"),
            (&status, "exit status: 0, and now exit status: 1"),
            (&errors, "standard error is ``, and now `cut`"),
            (&none, "it wrote a capture, and now it does not"),
            (&no_json, "it printed"),
        ] {
            let there = told(&before, after).unwrap_or_default();
            assert!(there.contains(words), "{words}: {there}");
            assert!(told(after, &before).is_some(), "{words}");
        }
        let mut header = before.clone();
        header.capture.as_mut().unwrap()[16] ^= 1;
        assert!(told(&before, &header).unwrap().contains("the files differ at byte 16"));
    }

    #[test]
    fn counters_that_one_of_them_lacks_are_collected() {
        let before = outcome(&packets(), 3);
        let renamed =
            Outcome { printed: before.printed.replace("merged", "joined"), ..before.clone() };
        let mut unmatched = Unmatched::default();
        for _ in 0..2 {
            assert_eq!(difference(&before, &renamed, &mut unmatched), None);
        }
        assert_eq!(unmatched.before, BTreeMap::from([("lro.merged".to_owned(), 6)]));
        assert_eq!(unmatched.after, BTreeMap::from([("lro.joined".to_owned(), 6)]));
    }
}
