//! `wharf demo`, the first thing that a new user runs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::lab::{Host, have};
use testkit::missing::lacks;

use super::setup::wharf;

const CASES: [(&str, &str); 5] = [
    ("none", "wharf"),
    ("gso", "wharf"),
    ("lro", "wharf"),
    ("gso_lro", "wharf"),
    ("none", "kernel"),
];
const METRICS: [&str; 4] =
    ["throughput", "host_packets_per_second", "mean_aggregate", "cpu_per_gigabyte"];

/// The combinations of connections, case, system and metric that the lines are about.
fn told(lines: &str) -> BTreeSet<(u64, String, String, String)> {
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| {
            assert_eq!(line["bench"], "demo", "{line}");
            assert!(line["unit"].is_string() && line["value"].as_f64() > Some(0.0), "{line}");
            let connections = line["connections"].as_u64().unwrap();
            (connections, text(&line, "case"), text(&line, "system"), text(&line, "metric"))
        })
        .collect()
}

fn tells_all(lines: &str, connections: &[u64]) {
    let told = told(lines);
    for &connections in connections {
        for (case, system) in CASES {
            for metric in METRICS {
                let one = (connections, case.into(), system.into(), metric.into());
                assert!(told.contains(&one), "{one:?} is not in {lines}");
            }
        }
    }
}

/// Names of the interfaces of the test's own namespace: the demo leaves them alone.
fn own_interfaces() -> Vec<String> {
    sys::interface::list().unwrap().into_iter().map(|interface| interface.name).collect()
}

#[test]
fn as_root_the_demo_measures_every_case() {
    let Some(host) = Host::new() else { return };
    let before = own_interfaces();
    let words = ["demo", "--connections", "1,4", "--seconds", "0.3", "--json"];
    let ended = host.output(wharf().args(words));
    assert!(ended.status.success(), "{ended}");
    tells_all(&ended.stdout, &[1, 4]);
    assert_eq!(own_interfaces(), before);
    assert_eq!(host.processes(), [0; 0]);
}

#[test]
fn the_demo_prints_a_table_for_people() {
    let Some(host) = Host::new() else { return };
    let words = ["demo", "--connections", "2", "--seconds", "0.1"];
    let ended = host.output(wharf().args(words));
    assert!(ended.status.success(), "{ended}");
    for part in ["Gb/s", "bare kernel", "GSO and LRO"] {
        assert!(ended.stdout.contains(part), "{part:?} is not in {ended}");
    }
}

/// A row is in the pipe before the next one is measured, and the verdict is about the bare kernel.
#[test]
fn rows_come_as_they_are_measured() {
    let Some(host) = Host::new() else { return };
    // All of them take many minutes.
    let endless = vec!["1"; 1_000].join(",");
    let words = ["demo", "--seconds", "0.1", "--case", "kernel", "--connections", &endless];
    for (json, first) in [(&[][..], "bare kernel"), (&["--json"], "throughput")] {
        let mut demo = host.spawn(wharf().args(words).args(json));
        demo.line_with(first);
        assert!(demo.runs());
        demo.signal(sys::process::Signal::Kill);
        demo.wait();
    }
    let words = ["demo", "--connections", "1,2", "--seconds", "0.1"];
    let ended = host.output(wharf().args(words));
    assert!(ended.status.success(), "{ended}");
    let last: Vec<&str> = ended.stdout.lines().rev().take(2).collect();
    assert!(last[1].starts_with("At 2 connections, beside the bare kernel, "), "{ended}");
    assert!(last[0].starts_with("Beside wharf without them, "), "{ended}");
}

#[test]
fn as_an_ordinary_user_the_demo_runs_in_a_user_namespace() {
    let words = ["demo", "--connections", "1", "--seconds", "0.2", "--json"];
    let Some(program) = for_everyone() else { return };
    if !user_namespaces_work() {
        return lacks("user namespaces for ordinary users");
    }
    let output = as_nobody(program.path()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    tells_all(&String::from_utf8_lossy(&output.stdout), &[1]);
}

pub(crate) fn user_namespaces_work() -> bool {
    let unshare = ["--user", "--map-root-user", "--net", "true"];
    have(&["unshare"]) && as_nobody(Path::new("unshare")).args(unshare).status().unwrap().success()
}

/// A command that runs a program as the user nobody, if this is root; else as this user.
pub(crate) fn as_nobody(program: &Path) -> Command {
    if !sys::process::has_bpf() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command.env_remove("RUST_BACKTRACE");
    command
}

/// A copy of the program that every user may run: where it was built they may not look.
pub(crate) fn for_everyone() -> Option<Copy> {
    if !have(&["setpriv"]) {
        return None;
    }
    let number = std::thread::current().id();
    let name = format!("wharf-e2e-{}-{number:?}", std::process::id()).replace(['(', ')'], "");
    let directory = std::env::temp_dir().join(name);
    let copy = Copy { program: directory.join("wharf"), directory };
    // One that was killed may have had the same process id.
    let _ = fs::remove_dir_all(&copy.directory);
    fs::create_dir(&copy.directory).unwrap();
    super::setup::copy(env!("CARGO_BIN_EXE_wharf").as_ref(), &copy.program);
    for path in [&copy.directory, &copy.program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(copy)
}

/// A directory with the program in it; both go when this does.
pub(crate) struct Copy {
    directory: PathBuf,
    program: PathBuf,
}

impl Copy {
    pub(crate) fn path(&self) -> &Path {
        &self.program
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
