//! degen's settings as people write them: read as they are meant, or refused at their place.

use degen::keys::KEYS;
use degen::{Config, Discipline, Distribution, Probability};
use nic::degen::{Direction, SettingError, Settings, entries};
use proptest::prelude::*;

fn read(text: &str) -> Settings {
    Settings::from_toml("wan.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What is said of a wrong file.
fn refusal(text: &str) -> String {
    match Settings::from_toml("wan.toml", text) {
        Ok(settings) => panic!("{text:?} was read as {settings:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn everything_can_be_set() {
    let settings = read(
        "delay = '300ms'\njitter = '1.5ms'\njitter_distribution = 'pareto'\n\
         jitter_reorders = false\nloss = '0.1%'\ngilbert_p = '1%'\ngilbert_r = '25%'\n\
         gilbert_h = '10%'\ngilbert_k = '99.9%'\nduplicate = '2%'\ncorrupt = '3%'\n\
         reorder = '4%'\nreorder_distance = 7\nreorder_wait = '5ms'\nmark = '6%'\necn = true\n\
         rate = '2.5gbit'\noverhead = 24\nqueue = 'codel'\nqueue_packets = 5_000\n\
         queue_bytes = '64KB'\ncodel_target = '10ms'\ncodel_interval = '200ms'\nseed = 18\n",
    );
    let percent = |percent| Probability::percent(percent).unwrap();
    let expected = Config {
        delay: 300_000_000,
        jitter: 1_500_000,
        jitter_distribution: Distribution::Pareto,
        jitter_reorders: false,
        loss: percent(0.1),
        gilbert_p: percent(1.0),
        gilbert_r: percent(25.0),
        gilbert_h: percent(10.0),
        gilbert_k: percent(99.9),
        duplicate: percent(2.0),
        corrupt: percent(3.0),
        reorder: percent(4.0),
        reorder_distance: 7,
        reorder_wait: 5_000_000,
        mark: percent(6.0),
        ecn: true,
        rate: 2_500_000_000,
        overhead: 24,
        queue: Discipline::CoDel,
        queue_packets: 5_000,
        queue_bytes: 64_000,
        codel_target: 10_000_000,
        codel_interval: 200_000_000,
    };
    assert_eq!(settings.configs, [expected.clone(), expected]);
    assert_eq!(settings.seed, Some(18));
}

/// What the documentation shows can be copied.
#[test]
fn the_documented_file_is_one() {
    let page = include_str!("../../../docs/reference/degen.md");
    let files = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let with_schedule: Vec<_> = files.filter(|file| file.contains("[[schedule]]")).collect();
    assert!(!with_schedule.is_empty());
    for file in with_schedule {
        assert!(read(file).schedules.iter().all(|schedule| !schedule.steps().is_empty()));
    }
}

#[test]
fn one_direction_goes_over_both_wherever_it_stands() {
    for text in [
        "forward.delay = '2ms'\ndelay = '1ms'\n",
        "delay = '1ms'\nforward.delay = '2ms'\n",
        "forward = { delay = '2ms' }\ndelay = '1ms'\n",
        "delay = '1ms'\n[forward]\ndelay = '2ms'\n[reverse]\n",
        "delay = '1ms'\n'forward.delay' = '2ms'\n",
    ] {
        let [forward, reverse] = read(text).configs;
        assert_eq!((forward.delay, reverse.delay), (2_000_000, 1_000_000), "{text}");
    }
}

/// In a step as at the top.
#[test]
fn one_direction_goes_over_both_in_steps_too() {
    let text = "[[schedule]]\nforward.loss = '5%'\nat = '1s'\nloss = '1%'\n";
    let settings = read(text);
    for (direction, expected) in Direction::BOTH.into_iter().zip([5.0, 1.0]) {
        let [step] = settings.schedules[direction as usize].steps() else { panic!("one step") };
        let mut config = Config::default();
        step.changes.iter().for_each(|change| change.apply(&mut config));
        assert_eq!(config.loss, Probability::percent(expected).unwrap(), "{direction:?}");
        assert_eq!(step.at, 1_000_000_000);
    }
}

#[test]
fn nothing_and_comments_are_the_default() {
    for text in ["", "# nothing\n", "[forward]\n[reverse]\n", "schedule = []", "repeat = '0'"] {
        assert_eq!(read(text), Settings::default(), "{text:?}");
    }
}

#[test]
fn what_is_wrong_is_told_at_its_place() {
    for (text, parts) in [
        // Not TOML.
        ("delay = ", &[":1:"][..]),
        ("delay = '1ms'\n[forward\nloss='1%'\n", &[":2:"]),
        ("delay = '1ms'\ndelay = '2ms'\n", &[":2:1", "duplicate"]),
        ("\u{feff}delay = \u{0}", &[":1:"]),
        // Keys.
        ("delya = '1ms'", &[":1:1", "`delya`", "did you mean `delay`?"]),
        ("\n  [forward]\n  los = '1%'", &[":3:3", "`forward.los`", "did you mean `forward.loss`?"]),
        ("sideways.loss = '1%'", &[":1:10", "`sideways.loss`", "did you mean `loss`?"]),
        ("[forward.reverse]\nloss = '1%'", &[":2:1", "`forward.reverse.loss`"]),
        ("[sideways]", &[":1:2", "`sideways`"]),
        ("forward = '1%'", &[":1:1", "`forward`"]),
        ("at = '1s'", &[":1:1", "`at`"]),
        ("['']\nloss = '1%'", &[":2:1", "`.loss`"]),
        // Values.
        ("delay = '-5ms'", &[":1:9", "negative", "5ms"]),
        ("delay = 5", &[":1:9", "time such as"]),
        ("delay = 5.0", &[":1:9", "time such as"]),
        ("delay = '3601s'", &[":1:9", "up to 3600s"]),
        ("delay = 1979-05-27", &[":1:9", "time such as"]),
        ("delay = ['1ms']", &[":1:9", "time such as"]),
        ("delay = {}", &[":1:9", "time such as"]),
        ("loss = '100.1%'", &[":1:8", "from 0 to 100%"]),
        ("loss = '0.00000001%'", &[":1:8", "too fine"]),
        ("loss = 0.5", &[":1:8", "percentage"]),
        ("loss = '5 percent'", &[":1:8", "percentage"]),
        ("ecn = 1", &[":1:7", "true or false"]),
        ("queue = 'red'", &[":1:9", "tail_drop or codel"]),
        ("jitter_distribution = 'x'", &["uniform, normal or pareto"]),
        ("reorder_distance = 0", &[":1:20", "from 1 to 65535"]),
        ("reorder_distance = 0x1_0000", &[":1:20", "from 1 to 65535"]),
        ("rate = '1mb'", &[":1:8", "rate such as"]),
        ("rate = '1001gbit'", &["up to 1000gbit"]),
        ("queue_packets = 99999999999999999999999999999999999999999999", &["`queue_packets`"]),
        ("seed = -1", &[":1:8", "`seed`", "from 0 to 18446744073709551615"]),
        ("seed = '18446744073709551616'", &[":1:8", "from 0 to 18446744073709551615"]),
        ("seed = 1.5", &[":1:8", "whole number"]),
        ("forward.seed = 1", &[":1:9", "seed", "both directions"]),
        // Schedules.
        ("[[schedule]]\nloss = '1%'", &[":1:1", "time"]),
        ("schedule = [{ at = '1s' }, {}]", &[":1:28", "time"]),
        ("[[schedule]]\nat = '2s'\n[[schedule]]\nat = '1s'", &[":4:6", "goes back in time"]),
        ("[[schedule]]\nat = '-1s'", &[":2:6", "negative"]),
        ("[[schedule]]\nat = 1", &[":2:6", "`at`", "time such as"]),
        ("[[schedule]]\nat = '1s'\nlos = '1%'", &[":3:1", "did you mean `loss`?"]),
        ("[[schedule]]\nat = '1s'\nloss = '101%'", &[":3:8", "100%"]),
        ("[[schedule]]\nat = '1s'\nseed = 5", &[":3:1", "seed"]),
        ("[[schedule]]\nat = '1s'\n[[schedule.more]]\nat = '1s'", &[":3:", "`more`"]),
        ("[schedule]\nat = '1s'\nloss = '1%'", &[":1:2", "[[schedule]]"]),
        ("schedule = 'never'", &[":1:1", "[[schedule]]"]),
        ("schedule = [1]", &[":1:13", "[[schedule]]"]),
        ("repeat = '1s'", &[":1:10", "[[schedule]]"]),
        ("repeat = '1s'\nschedule = []", &[":1:10", "[[schedule]]"]),
        ("repeat = '1s'\n[[schedule]]\nat = '1s'", &[":1:10", "longer"]),
        ("repeat = '999us'\n[[schedule]]\nat = '0'", &[":1:10", "at least 1ms"]),
        ("repeat = 'often'\n[[schedule]]\nat = '0'", &[":1:10", "`repeat`"]),
    ] {
        let words = refusal(text);
        assert!(words.starts_with("wan.toml:"), "{words}");
        assert_eq!(words.lines().count(), 1, "{words:?}");
        for part in parts {
            assert!(words.contains(part), "{text:?}: {words:?} does not say {part:?}");
        }
    }
}

/// Tables within tables, deeper than any stack.
#[test]
fn depth_is_no_trouble() {
    for text in ["a.".repeat(100_000) + "b = 1", "a = ".to_owned() + &"[".repeat(100_000)] {
        assert_eq!(refusal(&text).lines().count(), 1);
    }
}

/// What `wharf set` shows can be written into a file, and is the same again.
#[test]
fn what_is_shown_reads_back() {
    let mut settings = Settings::default();
    for (key, value) in [
        ("delay", "1.5ms"),
        ("forward.loss", "0.0000001%"),
        ("reverse.rate", "999999999bit"),
        ("queue_bytes", "65536"),
        ("queue", "codel"),
        ("ecn", "on"),
    ] {
        settings.set(key, value).unwrap();
    }
    let shown = entries(&settings.configs, None).unwrap();
    assert_eq!(shown.len(), 2 * KEYS.len());
    let text: String = shown.iter().map(|(key, value)| format!("{key} = '{value}'\n")).collect();
    assert_eq!(read(&text), settings);
    assert_eq!(entries(&settings.configs, Some("loss")).unwrap().len(), 2);
    assert_eq!(entries(&settings.configs, Some("reverse.loss")).unwrap().len(), 1);
    assert!(matches!(
        entries(&settings.configs, Some("los")),
        Err(SettingError::UnknownKey { closest: Some(known), .. }) if known == "loss"
    ));
}

/// Pieces of which a settings file, or nearly one, is made.
fn pieces() -> impl Strategy<Value = String> {
    let keys: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    let key = prop_oneof![
        prop::sample::select(keys),
        prop::sample::select(vec!["at", "repeat", "seed", "schedule", "forward", "reverse", "x"]),
    ];
    let direction = prop::sample::select(vec!["", "", "forward.", "reverse.", "schedule.", "''."]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "'1ms'",
            "'0'",
            "0",
            "5",
            "-1",
            "'50%'",
            "true",
            "'codel'",
            "'10mbit'",
            "'1s'",
            "'2s'",
            "[]",
            "{}",
            "1.5",
            "nan",
            "1979-05-27",
            "{ at = '1s' }",
            "[{ at = '1s' }]",
            "'99999999999999999999999s'",
            "0x7fffffffffffffff",
            "'.'",
            "'ms'",
            "'1.s'",
            "' '",
        ])
        .prop_map(str::to_owned),
        "'[0-9.]{0,20}(ns|us|ms|s|%|bit|kbit|gbit|KB|MiB|)'",
        "\"[^\"\\\\\\p{Cc}]{0,8}\"",
    ];
    let line = prop_oneof![
        8 => (direction, key, value).prop_map(|(d, k, v)| format!("{d}{k} = {v}\n")),
        3 => Just("[[schedule]]\nat = '1s'\n".to_owned()),
        1 => Just("[[schedule]]\n".to_owned()),
        1 => Just("[forward]\n".to_owned()),
        1 => Just("[schedule]\n".to_owned()),
        1 => ".{0,12}\n",
    ];
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

/// Read or refused, in one line with a place, and nothing else.
fn is_read_or_refused(text: &str) -> Result<(), TestCaseError> {
    match Settings::from_toml("wan.toml", text) {
        Ok(settings) => {
            for schedule in &settings.schedules {
                let times: Vec<_> = schedule.steps().iter().map(|step| step.at).collect();
                prop_assert!(times.is_sorted());
            }
        }
        Err(error) => {
            prop_assert!(matches!(error, SettingError::At { .. }), "{:?}", error);
            prop_assert!(error.to_string().starts_with("wan.toml:"));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        is_read_or_refused(&text)?;
    }

    #[test]
    fn anything_like_a_file_is_read_or_refused(text in pieces()) {
        is_read_or_refused(&text)?;
    }

    #[test]
    fn any_key_and_value_is_set_or_refused(key in "[a-z_.]{0,20}", value in any::<String>()) {
        let _ = Settings::default().set(&key, &value);
        for known in KEYS {
            let mut settings = Settings::default();
            if settings.set(known.name, &value).is_ok() {
                // And then it is shown in a way that can be set.
                let shown = entries(&settings.configs, Some(known.name)).unwrap();
                let mut again = Settings::default();
                again.set(known.name, &shown[0].1).unwrap();
                prop_assert_eq!(again, settings);
            }
        }
    }
}
