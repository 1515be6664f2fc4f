//! `wharf bench paper`: what it lists, what it refuses, and what it says of figures that cannot run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs it in a directory.
fn bench_paper(directory: &Path, arguments: &str) -> Output {
    let mut wharf = Command::new(env!("CARGO_BIN_EXE_wharf"));
    wharf.args(["bench", "paper"]).args(arguments.split_whitespace()).current_dir(directory);
    wharf.stdin(Stdio::null()).output().unwrap()
}

/// A directory of the test's own, removed afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("wharf-{name}-{}", std::process::id()));
        // One that was killed may have had the same process id.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One JSON object a line.
fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_list_tells_what_runs_and_what_the_rest_needs() {
    let directory = Directory::new("paper-list");
    let output = bench_paper(&directory.0, "--list");
    assert!(output.status.success(), "{output:?}");
    let list = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("lro-throughput-memory").contains("Figure 13"), "{list}");
    assert!(line("lro-throughput-memory").ends_with("yes"), "{list}");
    let lacking = list.lines().filter(|line| line.contains("  no: needs "));

    let output = bench_paper(&directory.0, "--list --json");
    let listed = objects(&String::from_utf8(output.stdout).unwrap());
    assert!(listed.len() > 20, "{listed:?}");
    assert_eq!(lacking.count(), listed.iter().filter(|entry| entry["runs"] == false).count());
    for entry in &listed {
        assert_eq!(entry["runs"] == true, entry["lacks"].is_null(), "{entry}");
        assert!(entry["claim"].is_string() && !entry["places"].as_array().unwrap().is_empty());
    }
    assert!(directory.names().is_empty());
}

#[test]
fn bad_input_is_refused_in_words_and_leaves_nothing() {
    let directory = Directory::new("paper-refused");
    fs::write(directory.0.join("file"), "").unwrap();
    for (arguments, words) in [
        ("--figure lro,gso-tcp4", &["no figure lro", "lro-throughput-memory", "rdma-lan"][..]),
        ("--out file/results", &["cannot make file/results"]),
        ("--out file", &["cannot make file"]),
        // The directory is not empty.
        ("--out .", &["other files", "--out"]),
        ("--repetitions 0", &["--repetitions"]),
        ("--seconds 0", &["--seconds"]),
        ("--seed -1", &["-1"]),
        ("--set lro.enable=perhaps", &["lro.enable"]),
    ] {
        let output = bench_paper(&directory.0, arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {told}");
        assert!(words.iter().all(|word| told.contains(word)), "{arguments}: {told}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(directory.names().len(), 1);
}

#[test]
fn figures_that_cannot_be_measured_are_told_of_on_the_page_and_in_the_table() {
    let directory = Directory::new("paper-gaps");
    let mut wharf = Command::new(env!("CARGO_BIN_EXE_wharf"));
    wharf.args(["bench", "paper", "--figure", "rdma-lan,rdma-cpu-size"]);
    // They need a library that is not there.
    wharf.env("WHARF_RDMA_LIBRARY", "/none").current_dir(&directory.0).stdin(Stdio::null());
    let output = wharf.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("user namespace") {
        return testkit::missing::lacks("user namespaces");
    }
    assert_eq!(output.status.code(), Some(1), "{told}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("paper-results/report.html"), "{table}");
    let page = directory.read("paper-results/report.html");
    for name in ["rdma-lan", "rdma-cpu-size"] {
        assert!(page.contains(name), "{name}");
        let line = table.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.contains("libwharf_rdma.so"), "{line}");
    }
    for what in ["libwharf_rdma.so", "Connection handoff", "wharf bench paper --figure"] {
        assert!(page.contains(what), "{what}");
    }
}
