//! `wharf bench paper`: what a very short run leaves, and how the next goes on with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use testkit::browser::look_at;
use testkit::missing::lacks;

use super::setup::wharf;

/// Runs it in a directory.
fn bench_paper(directory: &Path, arguments: &str) -> Output {
    let mut wharf = wharf();
    wharf.args(["bench", "paper"]).args(arguments.split(' ')).current_dir(directory);
    wharf.stdin(Stdio::null()).output().unwrap()
}

/// A directory of the test's own, removed afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        let path = std::env::temp_dir().join(format!("wharf-paper-{}", std::process::id()));
        // One that was killed may have had the same process id.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("results").join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path("")).unwrap();
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

/// A real browser finds nothing wrong with a page, on a phone and on a desk.
fn look(name: &str, page: &str, expected: &[&str]) {
    match look_at(name, page, &[360, 1280], expected).unwrap() {
        Some(faults) => assert!(faults.is_empty(), "{name}: {faults:#?}"),
        None => lacks("chromium"),
    }
}

/// The page of the run that is kept in bench/results shows every figure that it has.
#[test]
fn the_page_of_the_kept_run_shows_every_figure() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
    let kept = fs::read_dir(&results).unwrap().flatten().map(|entry| entry.path());
    let kept = kept.filter(|path| path.to_string_lossy().ends_with("-paper")).max().unwrap();
    let page = fs::read_to_string(kept.join("report.html")).unwrap();
    let list = wharf().args(["bench", "paper", "--list", "--json"]).output().unwrap();
    let entries = objects(&String::from_utf8(list.stdout).unwrap());
    let names = entries.iter().map(|entry| entry["figure"].as_str().unwrap());
    // A figure that became measurable since then has none.
    let has = |name: &&str| kept.join(format!("{name}.jsonl")).exists();
    let shown: Vec<String> = names.filter(has).map(|name| format!("#figure-{name} svg")).collect();
    assert!(shown.len() >= 15, "{shown:?}");
    let expected: Vec<&str> = shown.iter().map(String::as_str).chain(["#missing table"]).collect();
    look("kept", &page, &expected);
}

#[test]
fn a_figure_is_measured_kept_and_shown_and_not_measured_again() {
    if !sys::process::has_bpf() || sys::affinity::count() < 2 {
        return lacks("root, and two CPUs");
    }
    let directory = Directory::new();
    // Two points of IP fragments in two cases each.
    let run = "--figure gso-udp4 --quick --repetitions 1 --seconds 0.1 --out results --json";
    let output = bench_paper(&directory.0, run);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && told.contains("CPU time cannot be bounded here") {
        return lacks("control groups of version 1, to bound CPU time");
    }
    assert!(output.status.success(), "{told}");
    let files = ["gso-udp4.jsonl", "gso-udp4.svg", "report.html", "run.json"];
    assert_eq!(directory.names(), files.map(str::to_owned).into());

    let lines = objects(&directory.read("gso-udp4.jsonl"));
    let points: Vec<&Value> = lines.iter().map(|line| &line["complete"]).collect();
    assert_eq!(points.iter().filter(|point| point.is_u64()).count(), 2, "{lines:?}");
    for figure in lines.iter().filter(|line| line["complete"].is_null()) {
        assert_eq!(figure["samples"], json!([figure["value"]]), "{figure}");
        assert_eq!(figure["figure"], "gso-udp4");
    }
    let header: Value = serde_json::from_str(&directory.read("run.json")).unwrap();
    assert_eq!((&header["repetitions"], &header["seed"]), (&1.into(), &1.into()));
    assert_eq!(header["seconds"], 0.1);

    let ended = objects(&String::from_utf8(output.stdout).unwrap());
    let [ended] = &ended[..] else { panic!("{ended:?}") };
    assert!(ended["ratio"].as_f64() > Some(0.0), "{ended}");
    let page = directory.read("report.html");
    for what in [
        ended["meaning"].as_str().unwrap(),
        "GSO in software gains 17 to 19 % over none",
        "<svg",
        "2 of 6 points",
        "gso-udp4.jsonl",
    ] {
        assert!(page.contains(what), "{what}");
    }
    assert!(directory.read("gso-udp4.svg").contains("Throughput"));
    let expected = ["#figure-gso-udp4 svg", "#figure-gso-udp4 .ratio", "#missing table"];
    look("a-point", &page, &expected);

    // Again: nothing is measured. Torn: one point is. Otherwise: refused, until it is discarded.
    let raw = directory.read("gso-udp4.jsonl");
    assert!(bench_paper(&directory.0, run).status.success());
    assert_eq!(directory.read("gso-udp4.jsonl"), raw);
    fs::write(directory.path("gso-udp4.jsonl"), &raw[..raw.len() - 2]).unwrap();
    let output = bench_paper(&directory.0, run);
    assert!(output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(" 1/2, ") && !told.contains(" 0/2, "), "{told}");
    let first = raw.split_inclusive('\n').position(|line| line.contains("complete")).unwrap();
    let kept: String = raw.split_inclusive('\n').take(first + 1).collect();
    let again = directory.read("gso-udp4.jsonl");
    assert!(again.starts_with(&kept) && objects(&again).len() == lines.len());
    let output = bench_paper(&directory.0, &run.replace("--repetitions 1", "--repetitions 2"));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("repetitions 1, now 2") && told.contains("--restart"), "{told}");
}
