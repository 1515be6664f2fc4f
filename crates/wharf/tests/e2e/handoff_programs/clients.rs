//! Programs that connect.

use std::fs;
use std::process::Command;

use testkit::lab::wait_until;

use super::{Stage, files};

/// Files from a server of the client's host, by curl and wget of the server's, under wharf.
fn fetches(stage: &Stage, program: &[&str]) {
    let files = files(&stage.folder.0, &[100, 50_000, 2_000_000]);
    let mut python = Command::new("python3");
    python.args(["-m", "http.server", "8000", "--directory"]).arg(&stage.folder.0);
    let _server = stage.hosts.client.spawn(&mut python);
    let own = stage.folder.text("fetched");
    for policy in ["at_accept", "after=64KB"] {
        let before = stage.counter("handoff", "handoffs");
        for (name, bytes) in &files {
            let url = format!("http://10.77.0.1:8000/{name}");
            let fetched = wait_until(|| {
                let mut run = stage.wharf_run(policy, &[program, &[&own, &url]].concat());
                stage.hosts.server.output(&mut run).status.success()
            });
            assert!(fetched, "{url} is not fetched");
            assert!(fs::read(&own).unwrap() == *bytes, "{name} has other bytes");
        }
        let least = if policy == "at_accept" { files.len() as u64 } else { 1 };
        let were = stage.counter("handoff", "handoffs") - before;
        assert!(were >= least, "{policy}: {were}, {:?}", stage.counters());
    }
    assert_eq!(stage.counter("handoff", "restored"), 0, "{:?}", stage.counters());
}

#[test]
fn curl_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["curl", "python3"]) else { return };
    fetches(&stage, &["curl", "-sf", "--max-time", "50", "-o"]);
}

#[test]
fn wget_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["wget", "python3"]) else { return };
    fetches(&stage, &["wget", "-q", "-T", "50", "-t", "1", "-O"]);
}
