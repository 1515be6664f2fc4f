//! `wharf bench rdma`. Nothing depends on speed.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use testkit::lab::have;
use testkit::missing::lacks;

use super::library;
use crate::setup::wharf;

/// Whether the programs that are measured can be built.
fn builds() -> bool {
    let has_headers = Path::new("/usr/include/rdma/rdma_cma.h").exists();
    if !has_headers {
        lacks("librdmacm-dev");
    }
    has_headers && have(&["gcc", "make"])
}

/// Whether there can be nodes with a CPU each.
fn has_two_nodes() -> bool {
    let has = sys::process::is_root() && sys::affinity::count() > 1;
    if !has {
        lacks("root, and two CPUs");
    }
    has
}

#[test]
fn every_case_is_told_of_verbs_and_sockets() {
    if !builds() {
        return;
    }
    let mut command = wharf();
    command.env("WHARF_RDMA_LIBRARY", library());
    // The program itself compares every byte at the end of a run.
    let words = ["bench", "rdma", "--seconds", "0.1", "--repetitions", "1", "--json"];
    let output = command.args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut told = BTreeSet::new();
    for line in lines.lines() {
        let figure: Value = serde_json::from_str(line).unwrap();
        assert_eq!(figure["bench"], "rdma", "{line}");
        assert!(figure["value"].as_f64() >= Some(0.0), "{line}");
        let fields = ["case", "system", "cores", "metric"];
        told.insert(fields.map(|field| figure[field].as_str().unwrap().to_owned()));
    }
    let mut rows = vec![("latency", "one", "median_rtt")];
    match sys::affinity::count() {
        0 | 1 => assert!(error.contains("two CPUs"), "{error}"),
        _ => rows.extend([
            ("latency", "two", "median_rtt"),
            ("write", "two", "throughput"),
            ("rate", "two", "writes_per_second"),
        ]),
    }
    for (case, cores, metric) in rows {
        let has = |system: &str, metric: &str| {
            let row = [case, system, cores, metric].map(str::to_owned);
            assert!(told.contains(&row), "{row:?} is not in {told:?}");
        };
        let has_fabric = Path::new("/usr/include/rdma/fabric.h").exists();
        assert_eq!(has_fabric, !error.contains("apt install libfabric-dev"), "{error}");
        let beside = has_fabric.then_some("libfabric-tcp");
        for system in ["kernel", "wharf"].into_iter().chain(beside) {
            [metric, "client_cpu", "server_cpu"].iter().for_each(|metric| has(system, metric));
        }
        for metric in ["client_device_cpu", "server_device_cpu", "times_kernel"] {
            has("wharf", metric);
        }
        if has_fabric {
            has("wharf", "times_libfabric");
        }
    }
}

#[test]
fn every_case_of_the_wan_is_told_of_verbs_and_sockets() {
    if !builds() || !has_two_nodes() {
        return;
    }
    let mut command = wharf();
    command.env("WHARF_RDMA_LIBRARY", library());
    // The program itself looks at the ends of every message.
    let words = ["bench", "rdma-wan", "--seconds", "0.1", "--repetitions", "1", "--json"];
    command.args(words).args(["--bytes", "1024", "--time", "2000", "--delay", "1"]);
    let output = command.args(["--path", "loss=0.1%,reorder=1%"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut told = BTreeSet::new();
    for line in lines.lines() {
        let figure: Value = serde_json::from_str(line).unwrap();
        assert_eq!(figure["bench"], "rdma-wan", "{line}");
        assert_eq!(figure["path"], "loss=0.1%,reorder=1%", "{line}");
        // A computation may take less time with clients than without, and clients on a lossy path may get nothing through in so
        // short a time, both by chance.
        let may_be_none = figure["metric"] == "slowdown" || figure["metric"] == "throughput";
        assert!(may_be_none || figure["value"].as_f64() > Some(0.0), "{line}");
        // Each way is through degen, but within a LAN.
        if figure["metric"] == "one_way" && figure["case"] != "lan" {
            assert!(figure["value"].as_f64() > Some(1_000.0), "{line}");
        }
        let fields = ["case", "by", "placement", "metric"];
        told.insert(fields.map(|field| figure[field].as_str().unwrap().to_owned()));
    }
    let has = |row: [&str; 4]| {
        assert!(told.contains(&row.map(str::to_owned)), "{row:?} is not in {told:?}");
    };
    for by in ["sockets", "rdma"] {
        has(["latency", by, "nodes", "one_way"]);
        has(["lan", by, "nodes", "p99_one_way"]);
        for placement in ["alone", "nodes"] {
            has(["overlap", by, placement, "overlap"]);
            has(["progress", by, placement, "fetch"]);
            has(["progress", by, placement, "times_unloaded"]);
            let metrics = ["run_time", "cpu_time", "idle_run_time", "slowdown", "throughput"];
            metrics.iter().for_each(|metric| has(["cpu", by, placement, metric]));
        }
    }
    for by in ["sockets", "eager", "rendezvous_write", "rendezvous_read"] {
        has(["rendezvous", by, "nodes", "mean_one_way"]);
    }
}

/// A run on the NIC fails if its connections do not come there.
#[test]
fn the_wan_is_measured_on_the_tcp_of_the_nic() {
    if !builds() || !has_two_nodes() {
        return;
    }
    let mut command = wharf();
    command.env("WHARF_RDMA_LIBRARY", library());
    command.env("WHARF_LIBRARY", crate::handoff::library());
    let words = ["bench", "rdma-wan", "--seconds", "0.1", "--repetitions", "1", "--json"];
    command.args(words).args(["--bytes", "1024", "--time", "2000", "--carrier", "nic"]);
    let output = command.args(["--case", "latency,progress,cpu,rendezvous"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let figures = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: BTreeSet<String> = figures.map(|one| one["by"].to_string()).collect();
    assert_eq!(told.len(), 5, "{told:?}");
}

/// A figure of each kind, in a run that is too short to say something.
#[test]
fn the_papers_figures_are_measured_and_shown() {
    if !builds() || !has_two_nodes() {
        return;
    }
    let out = std::env::temp_dir().join(format!("wharf-rdma-paper-{}", std::process::id()));
    let figures = [
        "rdma-latency-delay",
        "rdma-overlap-computation",
        "rdma-progress-load",
        "rdma-cpu-size",
        "rdma-lan",
        "rdma-rendezvous-size",
    ];
    let mut command = wharf();
    command.env("WHARF_RDMA_LIBRARY", library());
    command.args(["bench", "paper", "--quick", "--repetitions", "1", "--seconds", "0.1", "--json"]);
    command.args(["--figure", &figures.join(","), "--out"]).arg(&out);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told.lines().count(), figures.len(), "{told}");
    for line in told.lines() {
        let ended: Value = serde_json::from_str(line).unwrap();
        assert!(ended["ratio"].as_f64() > Some(0.0) && ended["incomplete"].is_null(), "{ended}");
        assert!(page.contains(ended["meaning"].as_str().unwrap()), "{ended}");
        let name = ended["figure"].as_str().unwrap();
        assert!(out.join(format!("{name}.svg")).exists() && figures.contains(&name), "{name}");
    }
    let _ = std::fs::remove_dir_all(&out);
}
