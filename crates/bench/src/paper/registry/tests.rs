//! The laws of the registry.

use std::collections::BTreeSet;

use super::*;
use crate::paper::Judge;
use crate::paper::scenario::SAVED;
use crate::paper::scenario::gso::CPU_PERCENTS;

/// Every caption of the papers, as their texts have them.
fn captions(paper: Paper) -> Vec<String> {
    let numbers = |last: u32| (1..=last).map(|number| format!("Figure {number}"));
    match paper {
        Paper::LroLong => numbers(13).collect(),
        Paper::LroShort => numbers(6).collect(),
        Paper::Gso => Vec::new(),
        Paper::Handoff => {
            numbers(9).chain((1..=2).map(|number| format!("Table {number}"))).collect()
        }
        Paper::Rdma => {
            let parts = |number| match number {
                3 | 5 | 6 | 7 => vec![format!("Figure {number}(a)"), format!("Figure {number}(b)")],
                _ => vec![format!("Figure {number}")],
            };
            (1..=9).flat_map(parts).collect()
        }
    }
}

#[test]
fn every_caption_of_every_paper_is_an_entry_or_shows_no_results() {
    for paper in Paper::ALL {
        let mut found: Vec<String> =
            paper.without_results().iter().map(|(caption, _)| (*caption).to_owned()).collect();
        let captions_of = |entry: &Entry| {
            let here = entry.places.iter().filter(|place| place.paper == paper);
            here.filter_map(|place| place.caption).map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let of_entries: BTreeSet<String> = registry().iter().flat_map(captions_of).collect();
        found.extend(of_entries);
        found.sort();
        let mut expected = captions(paper);
        expected.sort();
        assert_eq!(found, expected, "{paper:?}");
    }
}

#[test]
fn every_slide_with_results_is_an_entry() {
    let entries = registry();
    for slide in ["TCP/IPv4", "TCP/IPv6", "UDP/IPv4", "UDP/IPv6"] {
        let there = |entry: &&Entry| {
            entry.places.iter().any(|p| p.section == format!("slide \"Results {slide}\""))
        };
        assert_eq!(entries.iter().filter(there).count(), 1, "{slide}");
    }
}

#[test]
fn names_are_unique_and_can_be_files_and_anchors() {
    let entries = registry();
    let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), entries.len());
    for name in names {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(fits));
    }
}

#[test]
fn every_entry_says_what_it_is_and_what_it_lacks() {
    for entry in registry() {
        for text in [entry.title, entry.varied, entry.measured, entry.claim] {
            assert!(!text.is_empty() && !text.contains("  "), "{}: {text:?}", entry.name);
        }
        assert!(entry.claim.ends_with('.'), "{}", entry.name);
        assert!(!entry.places.is_empty(), "{}", entry.name);
        assert!(entry.places.iter().all(|place| !place.section.is_empty()), "{}", entry.name);
        if let Some(what) = entry.lacks() {
            assert!(what.starts_with("needs "), "{}: {what}", entry.name);
            // The engine is there: it is `wharf tcp`.
            assert!(!what.contains("TCP engine"), "{}: {what}", entry.name);
        }
    }
}

#[test]
fn every_entry_that_runs_has_axes_series_and_points() {
    for entry in registry() {
        let Some(scenario) = entry.scenario() else { continue };
        let name = entry.name;
        assert!(!scenario.x.label.is_empty() && !scenario.y.label.is_empty(), "{name}");
        assert!(!scenario.y.unit.is_empty() && scenario.y.factor > 0.0, "{name}");
        let ids: BTreeSet<&str> = scenario.series.iter().map(|series| series.id).collect();
        assert_eq!(ids.len(), scenario.series.len(), "{name}");
        let judged = match scenario.judge {
            Judge::Ratio { subject, baseline, peer, .. }
            | Judge::Times { subject, baseline, peer, .. } => [Some(subject), Some(baseline), peer],
            Judge::Crossover { subjects: [one, other], baseline } => {
                [Some(one), Some(other), Some(baseline)]
            }
            Judge::Cure { subject, baseline } | Judge::Saved { subject, baseline } => {
                [Some(subject), Some(baseline), None]
            }
            Judge::Exact { subject, .. } | Judge::Steps { subject, .. } => {
                [Some(subject), None, None]
            }
            Judge::Published { .. } => [None; 3],
        };
        if let Judge::Published { subjects } = scenario.judge {
            let has =
                |id: &&str| entry.published.iter().any(|one| one.series == *id && one.x.is_none());
            assert!(
                !subjects.is_empty() && subjects.iter().all(|id| has(id) && ids.contains(id)),
                "{name}"
            );
        }
        judged.into_iter().flatten().for_each(|id| assert!(ids.contains(id), "{name}: {id}"));
        if let Judge::Steps { parts, .. } = scenario.judge {
            parts.iter().for_each(|(id, _)| assert!(ids.contains(id), "{name}: {id}"));
        }
        let points: BTreeSet<u32> = scenario.points.iter().copied().collect();
        assert!(points.len() >= 2 && points.len() == scenario.points.len(), "{name}");
        assert!(!scenario.quick.is_empty(), "{name}");
        assert!(scenario.quick.iter().all(|point| points.contains(point)), "{name}");
        for point in &scenario.points {
            assert_ne!(scenario.words(*point), "?", "{name}");
        }
    }
}

#[test]
fn every_published_value_cites_a_place_and_fits_its_figure() {
    for entry in registry() {
        for published in &entry.published {
            let Published { series, value, unit, place, .. } = published;
            assert!(place.contains("section ") || place.contains("slide ") || place == "Table 2");
            assert!(value.is_finite() && *value > 0.0 && !unit.is_empty(), "{published:?}");
            let Some(scenario) = entry.scenario() else { continue };
            match scenario.judge {
                Judge::Saved { .. } if *series == SAVED => assert_eq!(*unit, "%", "{published:?}"),
                _ => {
                    assert!(scenario.series(series).is_some(), "{published:?}");
                    assert_eq!(*unit, scenario.y.unit, "{published:?}");
                }
            }
            let at = |x: f64| scenario.points.iter().any(|point| f64::from(*point) == x);
            assert!(published.x.is_none_or(at), "{published:?}");
        }
    }
}

#[test]
fn the_cards_parts_are_all_of_its_instructions() {
    let entries = registry();
    let entry = entries.iter().find(|entry| entry.name == "handoff-instructions").unwrap();
    let value = |series: &str| entry.published.iter().find(|p| p.series == series).unwrap().value;
    // Those of Table 2 are 3,114, where its total is 3,144.
    let parts: f64 = ["handoff", "tcp", "ip_ethernet", "other"].map(value).iter().sum();
    assert!((parts - value("nic")).abs() <= 30.0, "{parts}");
}

#[test]
fn the_slides_speedups_follow_from_their_values() {
    // The last column of each table, in per cent.
    for (name, speedups) in [
        ("gso-tcp4", [12, 39, 69, 98, 97, 77]),
        ("gso-tcp6", [78, 107, 109, 121, 108, 131]),
        ("gso-udp4", [17, 17, 19, 18, 19, 17]),
        ("gso-udp6", [17, 19, 19, 19, 20, 21]),
    ] {
        let entries = registry();
        let entry = entries.iter().find(|entry| entry.name == name).unwrap();
        for (percent, speedup) in CPU_PERCENTS.into_iter().zip(speedups) {
            let value = |series: &str| {
                let of_it = entry.published.iter().filter(|p| p.series == series);
                let mut there = of_it.filter(|p| p.x == Some(f64::from(percent)));
                there.next().unwrap().value
            };
            let computed = (value("gso") / value("none") - 1.0) * 100.0;
            // The slides round.
            assert!((computed - f64::from(speedup)).abs() <= 1.0, "{name}: {computed} {speedup}");
        }
    }
}
