//! `wharf bench tcp`: what the engine's figures look like, and what is refused.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bench_tcp(arguments: &str) -> Output {
    let mut wharf = Command::new(env!("CARGO_BIN_EXE_wharf"));
    wharf.args(["bench", "tcp"]).args(arguments.split(' '));
    wharf.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_engine_tells_cycles_of_all_it_does() {
    let output = bench_tcp("--json --case engine --seconds 0.1 --connections 1,50");
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut told = BTreeSet::new();
    for figure in &figures {
        assert_eq!((&figure["bench"], &figure["case"]), (&"tcp".into(), &"engine".into()));
        assert!(figure["value"].as_f64().unwrap() > 0.0, "{figure}");
        let [what, metric] = ["what", "metric"].map(|name| figure[name].as_str().unwrap());
        if metric == "ns_per_segment" {
            // Five repetitions, and the median is one of them.
            let samples = figure["samples"].as_array().unwrap();
            assert!(samples.len() == 5 && samples.contains(&figure["value"]), "{figure}");
            told.insert((what.to_owned(), figure["connections"].as_u64().unwrap()));
        }
    }
    let works = ["receive", "receive_lro", "send", "send_lro", "worker"];
    let expected = works.iter().flat_map(|what| [1, 50].map(|n| ((*what).to_owned(), n)));
    assert_eq!(told, expected.collect());
}

#[test]
fn what_it_does_not_know_is_refused_with_what_it_does() {
    for (arguments, says) in [
        ("--case speed", "it is one of engine, bulk, rr, connect, recovery, fairness"),
        ("--system lwip", "it is one of kernel, wharf, smoltcp"),
        ("--link wire", "it is one of veth, veth_offloads, tap, tap_offloads, wan, virtual"),
        ("--connections 0", "0 is not in 1..=1000000"),
    ] {
        let output = bench_tcp(arguments);
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && words.contains(says), "{arguments}: {words}");
    }
}

#[test]
fn a_path_that_degen_does_not_know_is_refused_before_anything_is_measured() {
    for (path, says) in [
        ("los=1%", "did you mean `loss`?"),
        ("delay=50ms,loss=much", "loss"),
        ("loss", "it is KEY=VALUE"),
    ] {
        let mut wharf = Command::new(env!("CARGO_BIN_EXE_wharf"));
        wharf.args(["bench", "tcp-goodput", "--only", "linux", "--path", path]);
        let output = wharf.stdin(Stdio::null()).output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && words.contains(says), "{path}: {words}");
    }
    let mut wharf = Command::new(env!("CARGO_BIN_EXE_wharf"));
    let output = wharf.args(["bench", "tcp-goodput", "--only", "uip"]).output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && words.contains("lwip, smoltcp, gvisor"), "{words}");
}
