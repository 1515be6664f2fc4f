//! `wharf bench`: what the measurements of a live receiver print. None of it depends on speed.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::lab::{Host, have};
use testkit::missing::lacks;

use super::handoff::library;
use super::setup::wharf;

/// Runs a scenario with `--json` in a namespace of its own, where this process may make one.
fn bench(words: &[&str]) -> Option<Vec<Value>> {
    let host = Host::new()?;
    let mut command = wharf();
    command.env("WHARF_LIBRARY", library());
    let ended = host.output(command.arg("bench").args(words).arg("--json"));
    if !ended.status.success() && ended.stderr.contains("/dev/net/tun") {
        lacks(ended);
        return None;
    }
    assert!(ended.status.success(), "{ended}");
    assert_eq!(host.processes(), [0; 0]);
    Some(ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// What each figure is about, all but its value.
fn about(figures: &[Value], bench: &str, fields: &[&str]) -> BTreeSet<Vec<String>> {
    let one = |figure: &Value| {
        assert_eq!(figure["bench"], bench, "{figure}");
        // How much it is depends on who else uses the machine, and may be nothing in so short a run.
        assert!(figure["value"].as_f64() >= Some(0.0), "{figure}");
        fields.iter().map(|field| figure[field].to_string().replace('"', "")).collect()
    };
    figures.iter().map(one).collect()
}

/// Where only root may set up the kernel's GRO, its figures may be missing.
fn lacks_nothing(told: &BTreeSet<Vec<String>>, expected: &[Vec<&str>]) {
    for one in expected {
        let one: Vec<String> = one.iter().map(|&word| word.to_owned()).collect();
        let may_be_missing = one[0] == "kernel_gro" && !sys::process::has_bpf();
        assert!(may_be_missing || told.contains(&one), "{one:?} is not in {told:?}");
    }
}

const CASES: [(&str, &str); 3] = [("on", "wharf"), ("off", "wharf"), ("kernel_gro", "kernel")];
const METRICS: [&str; 3] = ["throughput", "mean_aggregate", "cpu_per_gigabyte"];

#[test]
fn lro_throughput_tells_every_case_over_both_wires() {
    let words = ["lro-throughput", "--quick", "--connections", "1,3", "--seconds", "0.1"];
    let Some(figures) = bench(&words) else { return };
    let fields = ["case", "system", "wire", "connections", "metric"];
    let told = about(&figures, "lro-throughput", &fields);
    for (case, system) in CASES {
        for wire in ["memory", "veth"] {
            for connections in ["1", "3"] {
                let row = |metric| vec![case, system, wire, connections, metric];
                lacks_nothing(&told, &METRICS.map(row));
            }
        }
    }
    // LRO off, nothing is larger than a frame's payload; a little was on its way when it began.
    let off = figures.iter().filter(|f| f["case"] == "off" && f["metric"] == "mean_aggregate");
    off.for_each(|figure| assert!(figure["value"].as_f64() < Some(3000.0), "{figure}"));
}

#[test]
fn reordering_tells_every_case_for_every_percentage() {
    let words = ["reordering", "--percent", "0,20", "--connections", "2", "--seconds", "0.1"];
    let Some(figures) = bench(&[&words[..], &["--repetitions", "1"]].concat()) else { return };
    let told = about(&figures, "reordering", &["case", "system", "reordered", "metric"]);
    for (case, system) in CASES {
        for percent in ["0", "20"] {
            lacks_nothing(&told, &METRICS.map(|metric| vec![case, system, percent, metric]));
        }
    }
}

#[test]
fn latency_tells_the_median_of_every_case() {
    let words = ["latency", "--messages", "20", "--rounds", "2"];
    let Some(figures) = bench(&words) else { return };
    let told = about(&figures, "latency", &["case", "system", "bytes", "metric", "unit"]);
    for (case, system) in CASES {
        let row = |bytes| vec![case, system, bytes, "median_rtt", "us"];
        lacks_nothing(&told, &["1", "1024"].map(row));
    }
}

#[test]
fn load_tells_every_case_of_wharf_and_the_kernel() {
    let words = ["load", "--quick", "--seconds", "0.1", "--connections", "1,40", "--threads", "3"];
    let Some(figures) = bench(&[&words[..], &["--reordered", "10"]].concat()) else { return };
    let told =
        about(&figures, "load", &["case", "system", "connections", "reordered", "cpus", "metric"]);
    let streams =
        ["cpu_per_gigabyte", "throughput", "retransmitted", "timeouts", "longest_silence"];
    let mut expected = Vec::new();
    for system in ["wharf", "kernel"] {
        for connections in ["1", "40"] {
            let row = |metric| vec!["connections", system, connections, "null", "null", metric];
            expected.extend(streams.map(row));
            expected.extend(["mean_aggregate", "least_share"].map(row));
        }
        expected.extend(streams.map(|metric| vec!["send", system, "8", "null", "null", metric]));
        expected
            .extend(streams.map(|metric| vec!["reordering", system, "8", "10", "null", metric]));
        let row = |metric| vec!["request_response", system, "null", "null", "free", metric];
        expected.extend(["median_rtt", "p99_rtt", "requests_per_second"].map(row));
        let row = |metric| vec!["udp", system, "null", "null", "null", metric];
        expected.extend(["loss", "throughput", "cpu_per_gigabyte"].map(row));
    }
    for row in &expected {
        let row: Vec<String> = row.iter().map(|&word| word.to_owned()).collect();
        assert!(told.contains(&row), "{row:?} is not in {told:?}");
    }
}

#[test]
fn scale_tells_what_workers_do_alone_and_together() {
    let words = ["scale", "--workers", "2", "--connections", "3", "--strays", "0,30"];
    let Some(figures) = bench(&[&words[..], &["--quick", "--seconds", "0.1"]].concat()) else {
        return;
    };
    let told = about(&figures, "scale", &["case", "system", "workers", "strays", "metric"]);
    let metrics =
        ["packets_per_second", "worker_mean", "worker_least", "scaling", "cpu_per_packet"];
    let rows = [("host", "1", "null"), ("host", "2", "null"), ("engine", "1", "0")];
    let rows = rows.into_iter().chain([("engine", "2", "0"), ("engine", "2", "30")]);
    for (case, workers, strays) in rows {
        let row = |metric| vec![case, "wharf", workers, strays, metric];
        lacks_nothing(&told, &metrics.map(row));
    }
    // Packets are counted as they come; what one does alone is the measure of the others.
    let value = |metric, workers: u32, strays: u32| {
        let of = |figure: &&Value| {
            (&figure["case"], &figure["metric"]) == (&"engine".into(), &Value::from(metric))
                && figure["workers"] == workers
                && figure["strays"] == strays
        };
        figures.iter().find(of).and_then(|figure| figure["value"].as_f64())
    };
    assert_eq!(value("scaling", 1, 0), Some(1.0));
    assert_eq!(value("strayed", 2, 0), Some(0.0));
    assert!(value("strayed", 2, 30) > Some(0.0), "{figures:?}");
    assert!(value("worker_least", 2, 30) > Some(0.0), "{figures:?}");
}

#[test]
fn load_with_a_transmit_queue_draws_its_cost() {
    let file = std::env::temp_dir().join(format!("wharf-load-{}.svg", std::process::id()));
    let words = ["load", "--case", "connections", "--connections", "2", "--seconds", "0.1"];
    let path = file.to_str().unwrap();
    let more = ["--repetitions", "1", "--wire-queue", "1000", "--plot", path];
    let Some(figures) = bench(&[&words[..], &more].concat()) else { return };
    assert!(figures.iter().all(|figure| figure["wire_queue"] == 1000), "{figures:?}");
    let drawing = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("kernel"), "{drawing}");
}

#[test]
fn load_names_what_it_cannot_do_before_it_measures() {
    let host = Host::new();
    let Some(host) = host else { return };
    for (words, why) in [
        (&["--case", "udp", "--plot", "/tmp/none.svg"][..], "--plot draws the case connections"),
        (&["--plot", "/none/none.svg"], "cannot write /none/none.svg"),
        (&["--case", "all"], "it is one of connections, send"),
    ] {
        let ended = host.output(wharf().args(["bench", "load"]).args(words));
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert!(ended.stderr.contains(why), "{ended}");
    }
}

#[test]
fn gso_throughput_tells_every_case_of_a_sender_with_half_a_cpu() {
    let words = ["gso-throughput", "--protocol", "tcp4,udp6,uso4", "--cpu-percent"];
    let cpu = ["50", "--seconds", "0.1", "--repetitions", "1"];
    if !sys::process::has_bpf() || sys::affinity::count() < 2 {
        return lacks("root, and two CPUs");
    }
    let Some(figures) = bench(&[&words[..], &cpu[..]].concat()) else { return };
    let told = about(&figures, "gso-throughput", &["case", "protocol", "cpu_percent", "metric"]);
    if told.is_empty() {
        return lacks("control groups of version 1, to bound CPU time");
    }
    for protocol in ["tcp4", "udp6", "uso4"] {
        // Neither Linux nor a card makes fragments of datagrams in the stack's stead.
        let cases = if protocol.starts_with("udp") { 2 } else { 4 };
        for case in &["none", "gso", "kernel", "tso"][..cases] {
            let row = |metric| vec![*case, protocol, "50", metric];
            lacks_nothing(&told, &["throughput", "mean_super_packet", "worker_share"].map(row));
        }
    }
    let packets = figures.iter().filter(|figure| figure["metric"] == "mean_super_packet");
    for figure in packets.filter(|figure| figure["case"] == "none") {
        assert!(figure["value"].as_f64() <= Some(1514.0), "{figure}");
    }
}

#[test]
fn tcp_tells_every_system_over_every_link_and_their_ratios() {
    if !sys::process::has_bpf() {
        return lacks("root, for AF_XDP");
    }
    let words = ["tcp", "--case", "bulk,connect", "--repetitions", "1", "--seconds"];
    let systems = ["0.1", "--system", "kernel,wharf"];
    let Some(figures) = bench(&[&words[..], &systems[..]].concat()) else { return };
    let told = about(&figures, "tcp", &["case", "what", "system", "link", "connections", "metric"]);
    let plain = [("kernel", "veth"), ("wharf", "veth"), ("wharf", "tap")];
    let offloads =
        [("kernel", "veth_offloads"), ("wharf", "veth_offloads"), ("wharf", "tap_offloads")];
    let both = [plain, offloads].concat();
    let mut expected = BTreeSet::new();
    let (bulk, rate) = (["throughput", "cpu_per_gigabyte"], ["rate", "cpu_each"]);
    for (case, what, connections, metrics, entrants) in [
        ("bulk", "in", "1", &bulk[..], &both[..]),
        ("bulk", "out", "1", &bulk, &both),
        ("connect", "1 byte", "1", &rate, &plain),
        ("connect", "1 byte", "8", &rate, &plain),
    ] {
        for &(system, link) in entrants {
            let row = |metric: &str| {
                [case, what, system, link, connections, metric].map(str::to_owned).to_vec()
            };
            expected.extend(metrics.iter().map(|metric| row(metric)));
            expected.extend((system == "wharf").then(|| row("times_kernel")));
        }
    }
    assert_eq!(told, expected);
}

#[test]
fn handoff_tells_what_moves_and_calls_cost_at_the_nic_and_at_the_host() {
    // All but splice, which has a test of its own.
    let cases = "handoff,profile,packet,stack,web,policies,echo";
    let words = ["handoff", "--case", cases, "--idle", "20", "--moves", "3", "--seconds", "0.1"];
    let Some(figures) = bench(&[&words[..], &["--quick"]].concat()) else { return };
    let told = about(&figures, "handoff", &["case", "where", "to", "queued", "metric"]);
    for to in ["nic", "os"] {
        for queued in ["0", "4096", "65536", "1048576"] {
            lacks_nothing(&told, &[vec!["handoff", "null", to, queued, "stop_time"]]);
        }
        lacks_nothing(&told, &[vec!["handoff", "null", to, "null", "per_second"]]);
        for metric in ["host_time_per_segment", "program_time_per_segment", "throughput"] {
            lacks_nothing(&told, &[vec!["profile", to, "null", "null", metric]]);
        }
    }
    let others = ["others_p99_rtt", "others_p99_rtt_during_moves"];
    lacks_nothing(&told, &others.map(|metric| vec!["handoff", "null", "null", "null", metric]));
    assert!(told.iter().any(|one| one[0] == "echo" && one[1] == "nic"), "{told:?}");
}

#[test]
fn handoff_tells_what_a_proxy_passes_on_and_that_the_nic_moved_it() {
    if !have(&["haproxy"]) {
        return;
    }
    let Some(figures) = bench(&["handoff", "--quick", "--case", "splice", "--connections", "2"])
    else {
        return;
    };
    let told = about(&figures, "handoff", &["case", "where", "moved_by", "connections", "metric"]);
    for (place, by) in [("os", "haproxy"), ("nic", "haproxy"), ("nic", "nic")] {
        for metric in ["throughput", "host_and_nic_cpu_per_gigabyte", "moved_by_nic"] {
            lacks_nothing(&told, &[vec!["splice", place, by, "2", metric]]);
        }
        let share = figures
            .iter()
            .find(|one| one["where"] == place && one["moved_by"] == by && one["unit"] == "%");
        let share = share.unwrap()["value"].as_f64().unwrap();
        assert_eq!(share > 0.0, by == "nic", "{share} % at {place}");
    }
    for metric in ["times_throughput", "times_less_cpu"] {
        lacks_nothing(&told, &[vec!["splice", "nic", "nic", "2", metric]]);
    }
}

#[test]
fn tcp_goodput_tells_kernel_and_wharf_beside_each_other_for_every_peer() {
    if !sys::process::has_bpf() {
        return lacks("root");
    }
    // Those that need no other program, and lwIP where it is installed.
    let words = ["tcp-goodput", "--seeds", "1", "--bytes", "100000", "--path", "loss=0,delay=1ms"];
    let peers = "linux,linux-nosack,linux-mtu9000,smoltcp,lwip";
    let Some(figures) = bench(&[&words[..], &["--only", peers]].concat()) else { return };
    let told = about(&figures, "tcp-goodput", &["case", "system", "metric", "path", "seeds"]);
    let row = |case: &str, peer: &str, metric: &str| {
        [case, peer, metric, "loss=0,delay=1ms", "1"].map(str::to_owned).to_vec()
    };
    let ways = ["linux", "linux-nosack", "linux-mtu9000"].map(|peer| (peer, true));
    let smoltcp = cfg!(feature = "peers").then_some(("smoltcp", true));
    // What needs a program of lwIP's may be missing.
    for (peer, expected) in ways.into_iter().chain(smoltcp).chain([("lwip", false)]) {
        for case in ["send", "receive", "lro"] {
            let is_here = (expected || told.contains(&row("send", peer, "kernel")))
                && (case != "lro" || ["linux", "linux-nosack"].contains(&peer));
            for metric in ["kernel", "wharf", "ratio", "quartile1", "quartile3"] {
                assert_eq!(told.contains(&row(case, peer, metric)), is_here, "{case} {peer}");
            }
        }
    }
    // Whatever the speed, every transfer came to its end.
    assert!(figures.iter().all(|figure| figure["value"].as_f64() > Some(0.0)), "{figures:?}");
}
