//! `wharf bench lro`: what its figures look like, and what it says of peers that are not here.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs it where no other program can be found.
fn bench_lro(arguments: &str) -> Output {
    let mut wharf = Command::new(env!("CARGO_BIN_EXE_wharf"));
    wharf.args(["bench", "lro"]).args(arguments.split(' ')).env("PATH", "");
    wharf.stdin(Stdio::null()).output().unwrap()
}

/// One JSON object a line.
fn figures(output: &Output) -> Vec<Value> {
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_figure_says_what_it_is_of() {
    let output = bench_lro("--json --quick --seconds 0.01 --flows 1,3 --system wharf,tun-rs");
    assert!(output.status.success(), "{output:?}");
    let figures = figures(&output);
    let text = |figure: &Value, name: &str| figure[name].as_str().unwrap().to_owned();
    for figure in &figures {
        let object = figure.as_object().unwrap();
        let mut names: Vec<&str> = object.keys().map(String::as_str).collect();
        names.sort_unstable();
        let fields =
            ["bench", "case", "flows", "ip", "metric", "system", "unit", "value", "verify"];
        assert_eq!(names, fields);
        assert_eq!((text(figure, "bench").as_str(), &figure["ip"]), ("lro", &4.into()));
        let value = figure["value"].as_f64().unwrap();
        match text(figure, "metric").as_str() {
            "ns_per_packet" => assert!(text(figure, "unit") == "ns" && value > 0.0, "{figure}"),
            "mean_aggregate" => {
                assert!(text(figure, "unit") == "B" && value >= 1448.0, "{figure}");
                if text(figure, "case") == "in_order" {
                    assert!(value > 60_000.0 || figure["flows"] != 1, "{figure}");
                }
            }
            _ => panic!("{figure}"),
        }
    }
    // Two metrics, six cases, two numbers of flows; tun-rs has no part without verification.
    let of = |system: &str, verify: bool| {
        let of_it = |f: &&Value| f["system"] == system && f["verify"] == verify;
        figures.iter().filter(of_it).count()
    };
    assert_eq!((of("wharf", true), of("wharf", false)), (24, 24));
    let tun_rs = if cfg!(feature = "peers") { 24 } else { 0 };
    assert_eq!((of("tun-rs", true), of("tun-rs", false)), (tun_rs, 0));
    assert_eq!(figures.len(), 48 + tun_rs);
}

#[test]
fn a_peer_that_is_absent_is_named_and_the_rest_is_measured() {
    let arguments = "--json --quick --seconds 0.01 --case swap --flows 1 --verify on";
    let output = bench_lro(arguments);
    assert!(output.status.success(), "{output:?}");
    let words = String::from_utf8(output.stderr.clone()).unwrap();
    for (peer, what) in [("wireguard-go", "`go`"), ("gvisor", "`go`"), ("dpdk", "libdpdk-dev")] {
        let told = |line: &str| line.contains(&format!("{peer}: absent")) && line.contains(what);
        assert!(words.lines().any(told), "{words}");
    }
    assert!(figures(&output).iter().any(|figure| figure["system"] == "wharf"));
}

#[test]
fn counting_instructions_says_what_it_needs() {
    let output = bench_lro("--instructions --case in_order --flows 1");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.starts_with("wharf: ") && words.contains("valgrind"), "{words}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for arguments in
        ["--case backwards", "--flows 0", "--flows 65537", "--ip 5", "--verify maybe", "--system x"]
    {
        let output = bench_lro(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
        assert!(output.stdout.is_empty());
    }
}
