//! `wharf bench gso`: what its figures look like, and what it says of peers that are not here.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs it where no other program can be found.
fn bench_gso(arguments: &str) -> Output {
    let mut wharf = Command::new(env!("CARGO_BIN_EXE_wharf"));
    wharf.args(["bench", "gso"]).args(arguments.split(' ')).env("PATH", "");
    wharf.stdin(Stdio::null()).output().unwrap()
}

/// One JSON object a line.
fn figures(output: &Output) -> Vec<Value> {
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_figure_says_what_it_is_of() {
    let output = bench_gso("--json --seconds 0.01 --system wharf,wharf-copy,tun-rs");
    assert!(output.status.success(), "{output:?}");
    let figures = figures(&output);
    for figure in &figures {
        let object = figure.as_object().unwrap();
        let mut names: Vec<&str> = object.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["bench", "case", "gso_size", "metric", "system", "unit", "value"]);
        let text = |name: &str| figure[name].as_str().unwrap();
        assert_eq!((text("bench"), text("metric"), text("unit")), ("gso", "ns_per_segment", "ns"));
        assert!(figure["value"].as_f64().unwrap() > 0.0, "{figure}");
    }
    // Three gso_sizes of six cases; tun-rs makes no fragments.
    for case in ["tcp4", "tcp6", "uso4", "uso6", "frag4", "frag6"] {
        for gso_size in [536, 1448, 8948] {
            let of = |system: &str| {
                let of_it = |f: &&Value| {
                    f["case"] == case && f["gso_size"] == gso_size && f["system"] == system
                };
                figures.iter().filter(of_it).count()
            };
            let tun_rs = cfg!(feature = "peers") && !case.starts_with("frag");
            let counts = (of("wharf"), of("wharf-copy"), of("tun-rs"));
            assert_eq!(counts, (1, 1, tun_rs.into()), "{case} {gso_size}");
        }
    }
    let tun_rs = if cfg!(feature = "peers") { 12 } else { 0 };
    assert_eq!(figures.len(), 36 + tun_rs);
}

#[test]
fn a_peer_that_is_absent_is_named_and_the_rest_is_measured() {
    let output = bench_gso("--json --quick --seconds 0.01 --case uso6");
    assert!(output.status.success(), "{output:?}");
    let words = String::from_utf8(output.stderr.clone()).unwrap();
    for (peer, what) in [("wireguard-go", "`go`"), ("dpdk", "libdpdk-dev")] {
        let told = |line: &str| line.contains(&format!("{peer}: absent")) && line.contains(what);
        assert!(words.lines().any(told), "{words}");
    }
    assert!(figures(&output).iter().any(|figure| figure["system"] == "wharf"));
}

#[test]
fn counting_instructions_says_what_it_needs() {
    let output = bench_gso("--instructions --case tcp4 --gso-size 1448");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.starts_with("wharf: ") && words.contains("valgrind"), "{words}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for arguments in
        ["--case tcp5", "--gso-size 0", "--gso-size 63", "--gso-size 32001", "--system gvisor"]
    {
        let output = bench_gso(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
        assert!(output.stdout.is_empty());
    }
}
