//! Values that were probably meant by a text that is none: `100ms` by `100`, `10mbit` by `10mbps`.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::value::{Unit, decimal};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

/// Other names of units of time, and nanoseconds of each.
const TIMES: [(&[&str], u64); 6] = [
    (&["h", "hr", "hrs", "hour", "hours"], 60 * MINUTE),
    (&["min", "mins", "minute", "minutes"], MINUTE),
    (&["sec", "secs", "second", "seconds"], SECOND),
    (&["msec", "msecs", "milli", "millis", "millisecond", "milliseconds"], MILLISECOND),
    (
        &["\u{b5}s", "\u{3bc}s", "mus", "usec", "usecs", "micros", "microsecond", "microseconds"],
        1_000,
    ),
    (&["nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"], 1),
];

/// Ways to end a rate that is one in a second.
const A_SECOND: [&str; 5] = ["/second", "/sec", "/s", "psec", "ps"];

/// Returns the values that `text` may stand for, in the unit's smallest parts. Each of the inner lists is one way to read the
/// text, with the likeliest value first; a value may be out of a setting's range.
pub(crate) fn readings(unit: Unit, text: &str) -> Vec<Vec<u64>> {
    let text = text.trim().trim_start_matches('+').replacen(',', ".", 1);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, name) = text.split_at(end);
    let name = name.trim();
    let lower = name.to_lowercase();
    let of = |size: u64| decimal(number, size).ok();
    let sizes: Vec<Vec<u64>> = match unit {
        Unit::Time => times(&lower),
        Unit::Rate => rates(name, &lower, of(1).unwrap_or_default()),
        Unit::Bytes => vec![bytes(&lower).into_iter().collect()],
        Unit::Count => vec![
            prefix(&lower)
                .filter(|(_, rest)| rest.is_empty())
                .map(|(size, _)| size)
                .into_iter()
                .collect(),
        ],
        Unit::Probability => return probabilities(number, &lower),
    };
    let values = |sizes: Vec<u64>| sizes.into_iter().filter_map(of).collect();
    sizes.into_iter().map(values).collect()
}

fn times(name: &str) -> Vec<Vec<u64>> {
    if name.is_empty() {
        return vec![vec![MILLISECOND, 1_000, SECOND]];
    }
    if name == "m" {
        return vec![vec![MILLISECOND], vec![MINUTE]];
    }
    // One that is known is read with a comma for a point.
    let known = [("s", SECOND), ("ms", MILLISECOND), ("us", 1_000), ("ns", 1)];
    let known = known.into_iter().find(|(known, _)| *known == name).map(|(_, size)| size);
    let other = TIMES.into_iter().find(|(names, _)| names.contains(&name)).map(|(_, size)| size);
    vec![known.or(other).into_iter().collect()]
}

/// The size of a prefix such as `k`, and what follows it. No prefix is none.
fn prefix(name: &str) -> Option<(u64, &str)> {
    let sizes = [('k', 1_000), ('m', 1_000_000), ('g', 1_000_000_000), ('t', 1_000_000_000_000)];
    let mut letters = name.chars();
    let first = letters.next()?;
    let size = sizes.into_iter().find(|(letter, _)| *letter == first)?.1;
    Some((size, letters.as_str()))
}

fn rates(name: &str, lower: &str, number: u64) -> Vec<Vec<u64>> {
    if lower.is_empty() {
        // Who writes so many means bits.
        return vec![if number >= 1_000_000 { vec![1] } else { vec![1_000_000, 1_000, 1] }];
    }
    let without = A_SECOND.iter().find_map(|end| lower.strip_suffix(end)).unwrap_or(lower);
    let (size, rest) = prefix(without).unwrap_or((1, without));
    let (may_be_bits, is_of_bytes) = match rest {
        "" | "b" | "i" | "ib" => {
            // A capital B is bytes; among capitals alone it may be anything.
            let is_capital = rest.ends_with('b') && name.contains('B');
            (!is_capital || !name.contains(|c: char| c.is_ascii_lowercase()), is_capital)
        }
        "bit" | "bits" | "ibit" | "ibits" | "bd" => (true, false),
        "byte" | "bytes" | "ibyte" | "ibytes" => (false, true),
        _ => (false, false),
    };
    let bits = may_be_bits.then(|| vec![size]);
    bits.into_iter().chain(is_of_bytes.then(|| vec![8 * size])).collect()
}

fn bytes(name: &str) -> Option<u64> {
    let (size, rest) = prefix(name).unwrap_or((1, name));
    match rest {
        "" | "b" | "byte" | "bytes" | "octet" | "octets" => Some(size),
        "i" | "ib" | "ibyte" | "ibytes" => {
            let power = size.ilog10() / 3;
            1024_u64.checked_pow(power)
        }
        _ => None,
    }
}

fn probabilities(number: &str, name: &str) -> Vec<Vec<u64>> {
    let of = |size: u64| decimal(number, size).ok().into_iter().collect();
    match name {
        // A part of one, perhaps.
        "" if number.contains('.') => vec![of(10_000_000), of(1_000_000_000)],
        "" | "%" | "pc" | "pct" | "percent" | "per cent" => vec![of(10_000_000)],
        "\u{2030}" | "permille" => vec![of(1_000_000)],
        "ppm" => vec![of(1_000)],
        _ => Vec::new(),
    }
}

/// Writes the first value of each reading that is `allowed`, at most two of them, as a question: `; did you mean `5ms`?`.
/// Empty if there is none.
pub(crate) fn question(unit: Unit, text: &str, allowed: impl Fn(u64) -> bool) -> String {
    let readings = readings(unit, text);
    let firsts = readings.iter().filter_map(|values| values.iter().find(|value| allowed(**value)));
    let mut shown: Vec<String> = firsts.map(|value| unit.format(*value)).collect();
    shown.dedup();
    ask(&shown)
}

/// The question whether these were meant; empty for none.
pub(crate) fn ask(shown: &[String]) -> String {
    match shown {
        [] => String::new(),
        [one] => alloc::format!("; did you mean `{one}`?"),
        [one, other, ..] => alloc::format!("; did you mean `{one}` or `{other}`?"),
    }
}

/// The switch that a word other than `true` and `false` stands for.
pub(crate) fn switch(text: &str) -> String {
    let on = ["yes", "y", "1", "enable", "enabled"];
    let off = ["no", "n", "0", "disable", "disabled", "none"];
    let text = text.trim().to_lowercase();
    let meant = if on.contains(&&*text) {
        "true"
    } else if off.contains(&&*text) {
        "false"
    } else {
        return String::new();
    };
    ask(&[meant.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(unit: Unit, text: &str) -> String {
        let question = question(unit, text, |_| true);
        question.trim_start_matches("; did you mean ").trim_end_matches('?').replace('`', "")
    }

    #[test]
    fn what_was_probably_meant_is_found() {
        for (unit, text, meant) in [
            (Unit::Time, "100", "100ms"),
            (Unit::Time, "0.5", "500us"),
            (Unit::Time, "20 msec", "20ms"),
            (Unit::Time, "3 \u{b5}s", "3us"),
            (Unit::Time, "1,5ms", "1500us"),
            (Unit::Time, "5m", "5ms or 300s"),
            (Unit::Time, "2 minutes", "120s"),
            (Unit::Time, "5 light years", ""),
            (Unit::Rate, "10mbps", "10mbit"),
            (Unit::Rate, "10 Mb/s", "10mbit"),
            (Unit::Rate, "10MBps", "80mbit"),
            (Unit::Rate, "10MBPS", "10mbit or 80mbit"),
            (Unit::Rate, "1.5G", "1500mbit"),
            (Unit::Rate, "10 mbytes/s", "80mbit"),
            (Unit::Rate, "10", "10mbit"),
            (Unit::Rate, "10000000", "10mbit"),
            (Unit::Rate, "100bps", "100bit"),
            (Unit::Rate, "fast", ""),
            (Unit::Bytes, "64k", "64kb"),
            (Unit::Bytes, "64 kbytes", "64kb"),
            (Unit::Bytes, "1Mi", "1mib"),
            (Unit::Bytes, "100 bytes", "100"),
            (Unit::Probability, "5", "5%"),
            (Unit::Probability, "0.5", "0.5% or 50%"),
            (Unit::Probability, "2 percent", "2%"),
            (Unit::Count, "2k", "2000"),
            (Unit::Count, "2 dozen", ""),
        ] {
            assert_eq!(hint(unit, text), meant, "{text}");
            // What is proposed is read.
            for one in meant.split(" or ").filter(|one| !one.is_empty()) {
                assert!(unit.parse(one).is_ok(), "{one}");
            }
        }
    }

    #[test]
    fn only_what_may_be_is_proposed() {
        assert_eq!(
            question(Unit::Time, "100", |time| time < MILLISECOND),
            "; did you mean `100us`?"
        );
        assert_eq!(question(Unit::Time, "100", |_| false), "");
        for text in ["", "\u{b5}", "..", "9999999999999999999999s", "-5ms", "1..2ms"] {
            for unit in [Unit::Time, Unit::Rate, Unit::Bytes, Unit::Count, Unit::Probability] {
                assert_eq!(question(unit, text, |_| true), "", "{text:?} {unit:?}");
            }
        }
        assert_eq!(switch("yes"), "; did you mean `true`?");
        assert_eq!(switch("maybe"), "");
    }
}
