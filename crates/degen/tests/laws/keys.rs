//! What is written is what is set, or is refused with its reason.

use degen::keys::{self, KEYS, Key, find};
use degen::{Config, Probability, ValueError};
use proptest::prelude::*;

fn key(name: &str) -> &'static Key {
    find(name).unwrap()
}

fn any_key() -> impl Strategy<Value = &'static Key> {
    (0..KEYS.len()).prop_map(|at| &KEYS[at])
}

/// Every value, but for those out of range: small ones, round ones, and any.
fn values() -> impl Strategy<Value = u64> {
    let round = (0..20_u32, 1..10_u64).prop_map(|(zeros, digit)| digit * 10_u64.pow(zeros.min(18)));
    let powers = (0..40_u32).prop_map(|bit| 1 << bit);
    prop_oneof![0..100_u64, round, powers, 0..10_000_000_000_000_u64]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_value_reads_back(key in any_key(), value in values()) {
        let text = key.format(value);
        if key.parse(&text) != Err(ValueError::OutOfRange) && !text.is_empty() && !key.is_bool() {
            prop_assert_eq!(key.parse(&text), Ok(value), "{} = {}", key.name, text);
        }
    }

    #[test]
    fn a_key_sets_one_thing(key in any_key(), value in values()) {
        if key.parse(&key.format(value)) != Ok(value) {
            return Ok(());
        }
        let (mut config, before) = (Config::default(), Config::default());
        key.set(&mut config, value);
        prop_assert_eq!(key.parse(&key.get(&config)), Ok(value));
        for other in KEYS.iter().filter(|other| other.name != key.name) {
            prop_assert_eq!(other.get(&config), other.get(&before));
        }
        prop_assert_eq!(config == before, key.get(&config) == key.get(&before));
    }

    #[test]
    fn every_time_reads_back(time: u64) {
        prop_assert_eq!(keys::time(&keys::time_text(time)), Ok(time));
    }

    #[test]
    fn any_text_is_read_or_refused(key in any_key(), text: String) {
        let _ = key.parse(&text);
    }

    #[test]
    fn any_number_is_read_or_refused(
        key in any_key(),
        text in "[ +-]?[0-9]{0,45}[.,]?[0-9]{0,45} ?([munkMG]?(s|bit|bits|bps|b|iB)(/s)?|%|\u{212a}b)?",
    ) {
        let _ = key.parse(&text);
    }

    /// Decimal numbers are read exactly: never rounded.
    #[test]
    fn decimals_are_exact(whole in 0..1_000_000_u64, digits in 0..13_usize, part: u64) {
        let part = part % 10_u64.pow(digits as u32);
        let number = match digits {
            0 => format!("{whole}"),
            _ => format!("{whole}.{part:0digits$}"),
        };
        let units = [
            ("delay", "s", 1_000_000_000_u128),
            ("delay", "ms", 1_000_000),
            ("loss", "%", 10_000_000),
            ("rate", "mbit", 1_000_000),
            ("queue_bytes", "KiB", 1_024),
        ];
        for (name, unit, size) in units {
            let scale = 10_u128.pow(digits as u32);
            let parts = (u128::from(whole) * scale + u128::from(part)) * size;
            let expected = match parts.is_multiple_of(scale) {
                true => Ok((parts / scale) as u64),
                false => Err(ValueError::TooFine),
            };
            let read = key(name).parse(&format!("{number}{unit}"));
            if read != Err(ValueError::OutOfRange) {
                prop_assert_eq!(read, expected, "{}{}", number, unit);
            }
        }
    }
}

/// Every field of the configuration has a key, and the key's value for the default is the default.
#[test]
fn defaults_are_those_of_the_configuration() {
    let mut config = Config {
        delay: 1,
        jitter: 1,
        jitter_distribution: degen::Distribution::Pareto,
        jitter_reorders: false,
        loss: Probability::from_parts(1).unwrap(),
        gilbert_p: Probability::from_parts(1).unwrap(),
        gilbert_r: Probability::from_parts(1).unwrap(),
        gilbert_h: Probability::from_parts(1).unwrap(),
        gilbert_k: Probability::from_parts(1).unwrap(),
        duplicate: Probability::from_parts(1).unwrap(),
        corrupt: Probability::from_parts(1).unwrap(),
        reorder: Probability::from_parts(1).unwrap(),
        reorder_distance: 1,
        reorder_wait: 1,
        mark: Probability::from_parts(1).unwrap(),
        ecn: true,
        rate: 1,
        overhead: 1,
        queue: degen::Discipline::CoDel,
        queue_packets: 1,
        queue_bytes: 1,
        codel_target: 1,
        codel_interval: 1,
    };
    for key in KEYS {
        let default = key.default_text();
        assert_eq!(default, key.get(&Config::default()));
        assert_ne!(key.get(&config), default, "{}", key.name);
        key.set(&mut config, key.parse(&default).unwrap());
    }
    assert_eq!(config, Config::default());
}

#[test]
fn keys_have_names_of_their_own_and_help() {
    for (at, key) in KEYS.iter().enumerate() {
        assert!(std::ptr::eq(find(key.name).unwrap(), key));
        assert!(KEYS[..at].iter().all(|other| other.name != key.name));
        assert!(!key.help.is_empty() && !key.takes().is_empty());
    }
    assert!(find("latency").is_none());
}

#[test]
fn values_are_read_as_people_write_them() {
    let read = |name: &str, text: &str| key(name).parse(text);
    for text in ["5ms", "5000us", "0.005s", " 5 ms ", "5MS", "5.0ms", "5000000ns", ".005s"] {
        assert_eq!(read("delay", text), Ok(5_000_000), "{text}");
    }
    for text in ["2.5gbit", "2500mbit", "2500Mbit/s", "2.5 Gbitps", "2500000kbit"] {
        assert_eq!(read("rate", text), Ok(2_500_000_000), "{text}");
    }
    for text in ["64KB", "64000", "64000b", "62.5KiB"] {
        assert_eq!(read("queue_bytes", text), Ok(64_000), "{text}");
    }
    for (text, parts) in [("100%", 1_000_000_000), ("0.1 %", 1_000_000), ("0.0000001%", 1)] {
        assert_eq!(read("loss", text), Ok(parts), "{text}");
    }
    for key in KEYS.iter().filter(|key| key.is_bool()) {
        assert_eq!([key.parse("true"), key.parse("off")], [Ok(1), Ok(0)]);
    }
}

#[test]
fn wrong_values_are_refused_by_their_error() {
    use ValueError::{Negative, OutOfRange, TooFine, TooLarge, Unreadable};
    let cases = [
        ("delay", "-5ms", Negative),
        ("delay", "-.5ms", Negative),
        ("loss", "-1%", Negative),
        ("rate", "-1mbit", Negative),
        ("reorder_distance", "-3", Negative),
        ("loss", "101%", OutOfRange),
        ("loss", "100.0000001%", OutOfRange),
        ("delay", "3600.000000001s", OutOfRange),
        ("rate", "1000.1gbit", OutOfRange),
        ("reorder_distance", "0", OutOfRange),
        ("reorder_distance", "65536", OutOfRange),
        ("codel_target", "999ns", OutOfRange),
        ("codel_interval", "0", OutOfRange),
        ("queue_bytes", "5gb", OutOfRange),
        ("overhead", "1501", OutOfRange),
        ("delay", "0.1ns", TooFine),
        ("loss", "0.00000001%", TooFine),
        ("delay", "0.1234567890123s", TooFine),
        ("queue_packets", "1.5", TooFine),
        ("delay", "99999999999999999999s", TooLarge),
        ("delay", "99999999999999999999999999999999999999999999s", TooLarge),
        ("queue_packets", "18446744073709551616", TooLarge),
    ];
    for (name, text, why) in cases {
        assert_eq!(key(name).parse(text), Err(why), "{name} = {text}");
    }
    let nonsense = [
        "",
        " ",
        ".",
        "ms",
        "%",
        "five",
        "5",
        "5m",
        "5 5ms",
        "+5ms",
        "5ms5",
        "0x5ms",
        "1e3ms",
        "NaN",
        "inf",
        "5,5ms",
        "5..5ms",
        "5.5.5ms",
        "-",
        "--5ms",
        "-x",
        "5mss",
        "5%",
        "\u{2212}5ms",
        "٥ms",
    ];
    for text in nonsense {
        assert_eq!(key("delay").parse(text), Err(Unreadable), "{text}");
    }
    // tc counts bytes with `bps`.
    for text in [
        "10mbps",
        "1000",
        "10m",
        "10mb",
        "10mbit/s/s",
        "10mbitpsps",
        "10mbit/sps",
        "10 /s",
        "1Kbit/",
    ] {
        assert_eq!(key("rate").parse(text), Err(Unreadable), "{text}");
    }
    for text in ["5", "5 percent", "0.05x", "5%%", "1\u{212a}%"] {
        assert_eq!(key("loss").parse(text), Err(Unreadable), "{text}");
    }
    for text in ["1kbit", "5ms", "1\u{212a}B", "1ib"] {
        assert_eq!(key("queue_bytes").parse(text), Err(Unreadable), "{text}");
    }
    for name in ["ecn", "jitter_distribution", "queue"] {
        for text in ["", "yes", "2", "-1", "True", "gauss", "red"] {
            assert_eq!(key(name).parse(text), Err(Unreadable), "{name} = {text}");
        }
    }
    for why in [Negative, OutOfRange, TooFine, TooLarge, Unreadable] {
        assert!(why.to_string().starts_with("it "), "{why}");
    }
}

#[test]
fn percentages_are_of_a_whole() {
    assert_eq!(Probability::percent(0.1).map(Probability::parts), Some(1_000_000));
    assert_eq!(Probability::percent(100.0), Some(Probability::ALWAYS));
    for wrong in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
        assert_eq!(Probability::percent(wrong), None);
    }
    assert_eq!(Probability::from_parts(1_000_000_001), None);
}
