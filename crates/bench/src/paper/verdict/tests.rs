//! The words follow from the numbers.

use serde_json::json;

use super::*;
use crate::paper::registry;

/// A point at which each case has these samples of the figure's metric, in the unit of its y axis.
fn row(name: &str, point: u32, cases: &[(&str, &[f64])]) -> Row {
    let entry = entry(name);
    let scenario = entry.scenario().unwrap();
    let figure = |(id, samples): &(&str, &[f64])| {
        let samples: Vec<f64> = samples.iter().map(|value| value / scenario.y.factor).collect();
        let series = scenario.series(id).unwrap();
        json!({"case": series.case, "metric": series.metric, "samples": samples})
    };
    let figures = cases.iter().map(figure).collect();
    Row { point, figures, notices: Vec::new(), took: 1.0 }
}

fn entry(name: &str) -> Entry {
    registry().into_iter().find(|entry| entry.name == name).unwrap()
}

#[track_caller]
fn judged(name: &str, rows: &[Row]) -> Verdict {
    let verdict = verdict(&entry(name), rows).unwrap();
    for text in [&verdict.measured, &verdict.ratio, &verdict.meaning] {
        assert!(!text.is_empty() && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }
    assert!(verdict.meaning.ends_with('.') && verdict.meaning.matches(". ").count() == 0);
    verdict
}

const LRO: &str = "lro-throughput-memory";

fn lro(on: &[f64]) -> Verdict {
    let kernel = [20.0; 3];
    let cases: [(&str, &[f64]); 3] =
        [("on", on), ("off", &[1.0, 2.0, 4.0]), ("kernel_gro", &kernel)];
    judged(LRO, &[row(LRO, 1, &cases), row(LRO, 64, &cases)])
}

#[test]
fn a_ratio_above_the_papers_is_said_to_be_more() {
    let verdict = lro(&[10.0, 20.0, 44.0]);
    let found = verdict.found.unwrap();
    assert_eq!([found.median, found.min, found.max].map(f64::round), [10.0, 10.0, 11.0]);
    assert!((verdict.claimed.unwrap() - 5.2).abs() < 0.01);
    assert_eq!(
        verdict.meaning,
        "LRO on gives 10.0 times what LRO off gives, at 64 connections, more than the paper's 5.20; \
         kernel's GRO gives as much as LRO on."
    );
    assert_eq!(verdict.ratio, "5.20 in the paper, 10.0 (10.0 to 11.0) here, at 64 connections");
    assert_eq!(
        verdict.measured,
        "From 1 connection to 64 connections: LRO on 20.0 to 20.0 Gb/s, LRO off 2.00 to 2.00 Gb/s, \
         kernel's GRO 20.0 to 20.0 Gb/s."
    );
}

#[test]
fn a_ratio_below_the_papers_is_said_to_be_less() {
    let verdict = lro(&[2.0, 4.0, 8.0]);
    let less = "less than the paper's 5.20: 38.5 % of that; kernel's GRO is ahead, with 5.00 times";
    assert!(verdict.meaning.contains(less), "{}", verdict.meaning);
    assert!(!verdict.meaning.contains("loss"), "{}", verdict.meaning);
}

#[test]
fn a_ratio_below_one_is_said_to_be_a_loss() {
    let verdict = lro(&[0.5, 1.0, 2.0]);
    assert!(verdict.meaning.contains("it is a loss here"), "{}", verdict.meaning);
    assert!(verdict.meaning.contains("less than the paper's"), "{}", verdict.meaning);
}

#[test]
fn a_ratio_that_is_the_papers_is_said_to_be_the_same() {
    let verdict = lro(&[5.2, 10.4, 20.8]);
    assert!(verdict.meaning.contains("as many as in the paper (5.20)"), "{}", verdict.meaning);
}

#[test]
fn a_difference_that_repetitions_have_as_well_is_said_to_be_one() {
    let differ = ", though repetitions differ by more than that";
    for (on, words) in [
        ([4.0, 9.0, 24.0], "less than the paper's 5.20: 86.5 % of that"),
        ([4.0, 12.0, 28.0], "more than the paper's 5.20"),
    ] {
        let verdict = lro(&on);
        assert!(verdict.meaning.contains(&format!("{words}{differ}")), "{}", verdict.meaning);
    }
}

#[test]
fn ratios_are_those_of_runs_that_followed_each_other() {
    // A machine that grew slower all the time: each pair has the same ratio.
    let verdict = lro(&[8.0, 16.0, 32.0]);
    let found = verdict.found.unwrap();
    assert_eq!((found.min.round(), found.max.round()), (8.0, 8.0));
}

#[test]
fn a_table_is_judged_by_its_best_row_and_by_how_many_are_ahead() {
    let name = "gso-udp4";
    let at = |point, gso: f64| row(name, point, &[("none", &[1.0]), ("gso", &[gso])]);
    let verdict = judged(name, &[at(36, 3.0), at(100, 1.1), at(15, 2.0)]);
    assert_eq!(number(verdict.found.unwrap().median), "3.00");
    assert_eq!(
        verdict.meaning,
        "At best GSO gives 3.00 times what none gives, at 36 % of a CPU, more than the paper's 1.19; \
         it is more than the paper's at 2 of 3 points."
    );
    assert!(verdict.measured.starts_with("From 100 % of a CPU to 15 % of a CPU: none"));
    let verdict = judged(name, &[at(36, 1.1), at(100, 1.0)]);
    assert!(verdict.meaning.contains("less than the paper's 1.19"), "{}", verdict.meaning);
    assert!(verdict.meaning.contains("at 0 of 2 points"), "{}", verdict.meaning);
}

#[test]
fn starvation_is_told_as_it_is_found() {
    let name = "lro-starvation";
    let verdict_of = |points: [(f64, f64); 2]| {
        let at = |point, (fair, stack): (f64, f64)| {
            row(name, point, &[("round_robin", &[fair]), ("lifo", &[stack])])
        };
        judged(name, &[at(0, points[0]), at(1, points[1])])
    };
    let verdict = verdict_of([(100.0, 50.0), (100.0, 100.0)]);
    assert_eq!(
        verdict.meaning,
        "With round robin every connection opens, with one stack 50.0 % at worst, with LRO off, and \
         all with LRO on: \
         the paper's starvation shows, and its cure works."
    );
    assert_eq!(number(verdict.found.unwrap().median), "2.00");
    let verdict = verdict_of([(100.0, 100.0), (100.0, 100.0)]);
    assert!(verdict.meaning.contains("does not show here"), "{}", verdict.meaning);
    let verdict = verdict_of([(90.0, 50.0), (100.0, 100.0)]);
    assert!(verdict.meaning.contains("not as complete"), "{}", verdict.meaning);
    // None at all: no ratio, and no words for one.
    let verdict = verdict_of([(100.0, 0.0), (100.0, 0.0)]);
    assert_eq!(verdict.found, None);
    assert_eq!(verdict.ratio, "no number in the paper, 100 % to 0.00 % here");
}

#[test]
fn nothing_is_said_of_what_was_not_measured() {
    assert_eq!(verdict(&entry(LRO), &[]), None);
    assert_eq!(verdict(&entry(LRO), &[row(LRO, 1, &[("on", &[1.0])])]), None);
    assert_eq!(verdict(&entry("handoff-web"), &[row(LRO, 1, &[])]), None);
}

#[test]
fn a_time_is_exact_enough_or_not() {
    let name = "rdma-degen";
    let verdict_of = |off: [f64; 2]| {
        let at =
            |point, off: f64| row(name, point, &[("p50", &[1.0]), ("p99", &[off, off, 900.0])]);
        judged(name, &[at(100, off[0]), at(100_000, off[1])])
    };
    let verdict = verdict_of([12.0, 30.0]);
    assert_eq!(
        verdict.meaning,
        "The 99th percentile is off by 30.0 us where it is off most, with 100000 us asked for, and by \
         no more than 50 us (a twentieth of a millisecond, in which the paper counts its delays) at 2 of \
         2 points: exact enough."
    );
    let verdict = verdict_of([70.0, 30.0]);
    assert!(verdict.meaning.contains("off by 70.0 us where it is off most, with 100 us asked for"));
    assert!(verdict.meaning.ends_with("at 1 of 2 points: not exact enough here."));
    assert_eq!(
        verdict.measured,
        "The 99th percentile is off by 70.0 us with 100 us asked for, 30.0 us with \
                                  100000 us asked for."
    );
}

fn saved(name: &str, points: &[(u32, f64, f64)]) -> Verdict {
    let at =
        |(point, os, nic): &(u32, f64, f64)| row(name, *point, &[("os", &[*os]), ("nic", &[*nic])]);
    judged(name, &points.iter().map(at).collect::<Vec<_>>())
}

#[test]
fn what_is_saved_is_told_where_the_paper_saves_most() {
    let name = "handoff-prototype";
    // Published: 76, 84, 36 and 16 %, and 54 % of a web server.
    let points = [
        (0, 100.0, 10.0),
        (1, 100.0, 20.0),
        (2, 100.0, 64.5),
        (3, 100.0, 90.0),
        (4, 100.0, 1.0),
        (7, 100.0, 46.0),
    ];
    let verdict = saved(name, &points);
    // Ratios are of what is left.
    assert!((verdict.claimed.unwrap() - 0.16).abs() < 1e-9);
    assert!((verdict.found.unwrap().median - 0.2).abs() < 1e-9);
    assert_eq!(
        verdict.meaning,
        "handoff saves 80.0 % with 0//256, where the paper's saves 84.0 %; it saves as much as the \
         paper's or more at 3 of 5 points."
    );
    assert!(verdict.measured.starts_with("0//1: 100 ns without, 10.0 ns with; 0//256:"));
    assert_eq!(verdict.ratio, "84.0 % saved in the paper, 80.0 % here, with 0//256");
    let verdict = saved(name, &[(1, 100.0, 150.0)]);
    assert!(verdict.meaning.starts_with("handoff costs 50.0 % more with 0//256, where"));
}

#[test]
fn what_the_paper_gives_no_number_for_is_told_without() {
    let verdict = saved("handoff-firmware", &[(0, 100.0, 130.0), (1, 100.0, 25.0)]);
    assert_eq!(verdict.claimed, None);
    assert_eq!(verdict.meaning, "handoff saves 75.0 % with 0//256; the paper gives no number.");
    assert!(verdict.ratio.starts_with("no number in the paper, 75.0 % saved here"));
    let verdict = saved("handoff-firmware", &[(0, 100.0, 130.0)]);
    assert_eq!(verdict.meaning, "handoff costs 30.0 % more with 0//1; the paper gives no number.");
}

#[test]
fn steps_are_told_from_point_to_point() {
    let name = "handoff-stack";
    let at = |point, values: &[f64]| row(name, point, &[("os", values)]);
    let rows = [at(0, &[900.0]), at(2, &[90.0, 100.0, 110.0]), at(3, &[150.0]), at(4, &[300.0])];
    let verdict = judged(name, &rows);
    assert_eq!(verdict.found.map(|found| found.median), Some(1.5));
    assert!((verdict.claimed.unwrap() - 7_374.0 / 4_295.0).abs() < 1e-3);
    assert_eq!(
        verdict.meaning,
        "D 1,024 connections takes 1.50 times what C no checksums takes, 1.72 in the paper; E 20 ms \
         takes 2.00 times what D 1,024 connections takes, 1.12 in the paper; C no checksums takes 0.11 \
         times what A copies takes, 0.41 in the paper."
    );
    assert_eq!(
        verdict.ratio,
        "1.72 in the paper, 1.50 (1.36 to 1.67) here, of D 1,024 connections to C no checksums"
    );
    assert!(verdict.measured.starts_with("A copies: 900 ns; C no checksums: 100 ns;"));
    // What is told of a part needs it at both points.
    let part =
        |point, values: &[f64], tcp: f64| row(name, point, &[("os", values), ("tcp", &[tcp])]);
    let more = [part(2, &[100.0], 50.0), part(3, &[150.0], 60.0), part(5, &[900.0], 90.0)];
    let verdict = judged(name, &more);
    assert_eq!(verdict.found.map(|found| found.median), Some(1.5));
    assert_eq!(
        verdict.meaning,
        "D 1,024 connections takes 1.50 times what C no checksums takes, 1.72 in the paper; TCP takes \
         with F nginx 1.50 times what it takes with D 1,024 connections, no number in the paper."
    );
    // Without the points that it stands between there is no step.
    assert_eq!(super::verdict(&entry(name), &[at(0, &[1.0])]), None);
}

#[test]
fn what_is_never_to_be_a_loss_is_judged_where_it_is_worst() {
    let name = "handoff-policies";
    let at = |point, os: f64, nic: f64, policies: f64| {
        row(name, point, &[("os", &[os]), ("nic", &[nic]), ("policies", &[policies])])
    };
    let verdict = judged(name, &[at(0, 100.0, 200.0, 190.0), at(1, 100.0, 50.0, 98.0)]);
    assert_eq!(verdict.found.map(|found| found.median), Some(0.98));
    assert!(verdict.meaning.starts_with("At worst handoff by policies gives 0.98 times"));
    assert!(verdict.meaning.contains("handoff of all gives 0.51 times"), "{verdict:?}");
}

#[test]
fn what_is_to_take_as_long_is_judged_where_it_takes_longest() {
    let name = "rdma-progress-load";
    let at = |point, [rdma, unloaded, sockets]: [&[f64]; 3]| {
        let entry = entry(name);
        let scenario = entry.scenario().unwrap();
        let figure = |(id, samples): (&str, &[f64])| {
            let series = scenario.series(id).unwrap();
            json!({"case": series.case, "metric": series.metric, "samples": samples})
        };
        let all = [("rdma", rdma), ("unloaded", unloaded), ("sockets", sockets)];
        let figures = all.map(figure).to_vec();
        Row { point, figures, notices: Vec::new(), took: 1.0 }
    };
    let even = at(0, [&[50.0], &[50.0], &[40.0]]);
    let verdict = judged(name, &[even.clone(), at(16, [&[52.0], &[50.0], &[16_000.0]])]);
    assert_eq!(verdict.found.map(|found| found.median), Some(1.04));
    assert_eq!(
        verdict.meaning,
        "At most RDMA read takes 1.04 times as long as RDMA read without load, with 16 ms of load, and at \
         least 1.00 times, with 0 ms of load; sockets: up to 320 times, with 16 ms of load; no more than \
         1.05 times, or its own spread, is as long: so it is at 2 of 2 points."
    );
    assert!(verdict.ratio.starts_with("no number in the paper, 1.04 here, with 16 ms"));
    assert!(verdict.measured.starts_with("0 ms of load: RDMA read 50.0 us, RDMA read without"));
    // More than that is not; but where reads without load take as long at times, it is.
    let slow = judged(name, &[even.clone(), at(16, [&[60.0], &[50.0], &[16_000.0]])]);
    assert!(slow.meaning.ends_with("so it is at 1 of 2 points."), "{}", slow.meaning);
    let same = [&[60.0; 3][..], &[50.0, 50.0, 65.0], &[16_000.0; 3]];
    let spread = judged(name, &[even, at(16, same)]);
    assert!(spread.meaning.ends_with("so it is at 2 of 2 points."), "{}", spread.meaning);
}

#[test]
fn a_crossover_is_the_first_of_the_last_points() {
    let name = "rdma-rendezvous-size";
    let at = |point, [write, read]: [f64; 2]| {
        let all: [(&str, &[f64]); 3] =
            [("rendezvous_write", &[write]), ("rendezvous_read", &[read]), ("eager", &[100.0])];
        row(name, point, &all)
    };
    let rows = [at(1_024, [90.0, 300.0]), at(4_096, [200.0, 120.0]), at(65_536, [80.0, 110.0])];
    let verdict = judged(name, &rows);
    assert_eq!(verdict.found.map(|found| found.median), Some(0.8));
    assert_eq!(
        verdict.meaning,
        "rendezvous, RDMA write takes less than eager copies from 65536 bytes on (0.80 times), and 0.80 times as long \
         with 65536 bytes; rendezvous, RDMA read takes less than eager copies at none of the last points, \
         and 1.10 times as long with 65536 bytes."
    );
    let marked: Vec<(u32, f64)> =
        marks(&entry(name), &rows).into_iter().map(|(at, spread)| (at, spread.median)).collect();
    assert_eq!(marked, [(65_536, 80.0)]);
    // Other figures have none.
    assert_eq!(marks(&entry(LRO), &[]), []);
}

#[test]
fn what_the_paper_has_a_number_of_is_said_beside_it() {
    let name = "handoff-instructions";
    let at = |point, [nic, bypass]: [f64; 2]| {
        row(name, point, &[("nic", &[nic]), ("bypass", &[bypass])])
    };
    let verdict = judged(name, &[at(1, [600.0, 60.0]), at(256, [786.0, 70.0])]);
    assert_eq!((verdict.claimed, verdict.found), (None, None));
    assert_eq!(
        verdict.measured,
        "NIC: 600 a packet with 1 connection, 786 a packet with 256 connections; bypass layer: 60.0 a packet \
         with 1 connection, 70.0 a packet with 256 connections."
    );
    assert_eq!(verdict.ratio, "3144 a packet in the paper, 786 here, of NIC with 256 connections");
    assert_eq!(
        verdict.meaning,
        "NIC: 786 a packet with 256 connections, 25.0 % of the paper's 3144; bypass layer: 70.0 a packet with \
         256 connections, 50.0 % of the paper's 140."
    );
}
