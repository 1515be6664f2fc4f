//! What the command does with bad input: one line that says what to do, exit status 2, and
//! nothing left behind.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of the test's own, removed afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("wharf-cli-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Names in it, hidden ones too.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wharf(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wharf")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs wharf, which must refuse in one line that contains all of `parts`.
#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let output = wharf(args);
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {words}");
    assert!(words.starts_with("wharf: ") && words.ends_with('\n'), "{words:?}");
    assert_eq!(words.lines().count(), 1, "{words:?}");
    for part in parts {
        assert!(words.contains(part), "{words:?} does not say {part:?}");
    }
    assert!(output.stdout.is_empty());
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;

/// A pcap file header.
fn header(link: u32) -> Vec<u8> {
    [MICROSECONDS, 4 << 16 | 2, 0, 0, 65_535, link].into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A capture of these frames, a microsecond apart.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = header(1);
    for (number, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        file.extend([0, number as u32, len, len].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

/// In-order segments of one connection.
fn segments(count: u32) -> Vec<Vec<u8>> {
    let builder = testkit::packet::PacketBuilder::tcp4().timestamps(1, 2).payload_pattern(1000);
    (0..count).map(|n| builder.clone().seq(1 + n * 1000).id(n as u16).build()).collect()
}

#[test]
fn an_unknown_interface_is_refused_before_anything_is_made() {
    let up = ["up", "--wire", "no-such-if", "--host", "wharf-cli-test"];
    refused(&up, &["no-such-if"]);
    assert!(!Path::new("/sys/class/net/wharf-cli-test").exists());
}

#[test]
fn a_name_that_no_interface_can_have_is_refused() {
    for name in ["", "sixteen-bytes-xx", "a/b", "a b", "."] {
        refused(&["up", "--wire", name, "--host", "nic0"], &["--wire", &format!("{name:?}")]);
    }
    for name in ["", "sixteen-bytes-xx", "a\nb", "nic%d", "all", "default"] {
        refused(&["up", "--wire", "lo", "--host", name], &["--host", &format!("{name:?}")]);
    }
}

#[test]
fn settings_are_checked_before_interfaces() {
    let directory = Directory::new();
    let up = |extra: &[&str], parts: &[&str]| {
        let mut args = vec!["up", "--wire", "no-such-if", "--host", "wharf-cli-test"];
        args.extend(extra);
        refused(&args, parts);
    };
    let malformed = directory.file("malformed.toml", b"[lro\nenable = true\n");
    up(&["--config", &malformed], &["malformed.toml:1:"]);
    let unknown = directory.file("unknown.toml", b"[lro]\nenabel = true\n");
    up(&["--config", &unknown], &["unknown.toml:2:1", "did you mean `lro.enable`?"]);
    let range = directory.file("range.toml", b"lro.max_aggregate = 70000\n");
    up(&["--config", &range], &["range.toml:1:21", "1500 to 65535 bytes"]);
    let kind = directory.file("kind.toml", b"lro.max_timeout = 100\n");
    up(&["--config", &kind], &["kind.toml:1:19", "with its unit"]);
    let missing = directory.path("missing.toml");
    up(&["--config", &missing], &["missing.toml", "No such file"]);
    let binary = directory.file("binary.toml", b"\xff\xfe\x00");
    up(&["--config", &binary], &["binary.toml"]);

    up(&["--set", "lro.enabel=true"], &["did you mean `lro.enable`?"]);
    up(&["--set", "lro.max_segments=1"], &["lro.max_segments", "2 to 1000"]);
    up(&["--set", "poll.spin=11ms"], &["0 to 10ms"]);
    up(&["--set", "lro.profile="], &["endpoint or lossless"]);
    up(&["--set", "a\nb=1"], &["a\\nb"]);
    // The command line has the last word, so a file that it mends is still read first.
    up(&["--config", &range, "--set", "lro.max_aggregate=60000"], &["range.toml"]);
}

#[test]
fn a_capture_that_cannot_be_read_leaves_no_output() {
    let directory = Directory::new();
    let whole = capture(&segments(3));
    let truncated = directory.file("truncated.pcap", &whole[..whole.len() - 1]);
    let no_header = directory.file("header.pcap", &whole[..20]);
    let empty = directory.file("empty.pcap", b"");
    let text = directory.file("text.pcap", b"this is no capture at all\n");
    let cooked = directory.file("cooked.pcap", &header(113));
    let missing = directory.path("missing.pcap");
    let itself = directory.path("");
    let output = directory.path("out.pcap");
    let before = directory.names();
    for (input, parts) in [
        (&truncated, &["truncated.pcap", "packet 3"][..]),
        (&no_header, &["header.pcap", "truncated", "header"]),
        (&empty, &["empty.pcap", "not a capture"]),
        (&text, &["text.pcap", "not a capture"]),
        (&cooked, &["cooked.pcap", "LINUX_SLL", "ETHERNET", "tcpdump -i eth0"]),
        (&missing, &["missing.pcap", "No such file"]),
        (&itself, &["directory"]),
    ] {
        refused(&["pcap", "lro", input, &output], parts);
        refused(&["pcap", "gso", input, &output, "--mtu", "1500"], parts);
        refused(&["pcap", "roundtrip", input, &output], parts);
    }
    assert_eq!(directory.names(), before);
}

#[test]
fn an_output_that_stood_before_survives_a_failed_run() {
    let directory = Directory::new();
    let whole = capture(&segments(3));
    let truncated = directory.file("in.pcap", &whole[..whole.len() - 1]);
    let output = directory.file("out.pcap", b"of value");
    refused(&["pcap", "lro", &truncated, &output], &["packet 3"]);
    assert_eq!(fs::read(&output).unwrap(), b"of value");
}

#[test]
fn an_output_that_cannot_be_made_is_named() {
    let directory = Directory::new();
    let input = directory.file("in.pcap", &capture(&segments(3)));
    let output = directory.path("missing/out.pcap");
    refused(&["pcap", "lro", &input, &output], &["missing/out.pcap", "No such file"]);
    refused(&["pcap", "lro", &input, &directory.path("")], &["directory"]);
    refused(&["pcap", "lro", &input, &output, "--set", "nonsense=1"], &["unknown key"]);
    assert_eq!(directory.names(), ["in.pcap"]);
}

#[test]
fn usage_errors_have_status_2() {
    for args in [
        &["nonsense"][..],
        &[],
        &["up", "--wire", "eth0"],
        &["up", "--wire", "eth0", "--host", "nic0", "--set", "lro.enable"],
        &["pcap", "gso", "a", "b"],
        &["pcap", "gso", "a", "b", "--mtu", "0"],
        &["pcap", "gso", "a", "b", "--mtu", "65536"],
        &["pcap", "lro", "a", "b", "--profile", "router"],
        &["demo", "--connections", "0"],
        &["demo", "--seconds", "forever"],
        &["completions", "tcsh"],
    ] {
        let output = wharf(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn captures_go_through_and_come_back() {
    let directory = Directory::new();
    let input = directory.file("in.pcap", &capture(&segments(20)));
    let (joined, cut, back) =
        (directory.path("joined.pcap"), directory.path("cut.pcap"), directory.path("back.pcap"));

    let output = wharf(&["pcap", "lro", &input, &joined, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (report["packets_in"].as_u64(), report["packets_out"].as_u64()),
        (Some(20), Some(1))
    );

    assert!(wharf(&["pcap", "gso", &joined, &cut, "--mtu", "1052"]).status.success());
    let output = wharf(&["pcap", "roundtrip", &input, &back]);
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("restored") && !report.contains("changed"), "{report}");

    // Time stamps are those at which the aggregate was let go; the bytes are the same.
    let frames = |path: &str| {
        let reader = nic::capture::Reader::new(fs::File::open(path).unwrap()).unwrap();
        reader.map(|packet| packet.unwrap().data).collect::<Vec<_>>()
    };
    assert_eq!(frames(&cut), segments(20));
    assert_eq!(frames(&back), segments(20));
    assert_eq!(directory.names(), ["back.pcap", "cut.pcap", "in.pcap", "joined.pcap"]);
}

#[test]
fn a_file_may_be_replaced_by_its_own_result() {
    let directory = Directory::new();
    let file = directory.file("a.pcap", &capture(&segments(20)));
    let link = directory.path("link.pcap");
    std::os::unix::fs::symlink("a.pcap", &link).unwrap();
    assert!(wharf(&["pcap", "lro", &file, &link]).status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::metadata(&file).unwrap().len() < 21_000);
    assert!(wharf(&["pcap", "lro", &file, "/dev/null"]).status.success());
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(directory.names(), ["a.pcap", "link.pcap"]);
}

#[test]
fn keys_are_listed_without_a_wharf() {
    let output = wharf(&["set", "--defaults"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for key in nic::config::KEYS {
        assert!(text.contains(key.name) && text.contains(key.help), "{}", key.name);
    }
    refused(&["set", "lro.enabel", "true"], &["did you mean `lro.enable`?"]);
    refused(&["stats", "--host", "wharf-cli-none"], &["wharf"]);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    let output = command.args(["completions", "bash"]).stdout(writer).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = wharf(&["completions", shell]);
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains("roundtrip"), "{shell}");
    }
}

#[test]
fn the_doctor_says_how_it_stands_and_leaves_nothing() {
    let interfaces = || {
        let entries = fs::read_dir("/sys/class/net").unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = interfaces();
    let output = wharf(&["doctor", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let finding: serde_json::Value = serde_json::from_str(line).unwrap();
        let status = finding["status"].as_str().unwrap();
        assert!(["ok", "limited", "missing"].contains(&status), "{line}");
        assert_eq!(status == "ok", finding["advice"] == "", "{line}");
    }
    assert!(wharf(&["doctor"]).status.success());
    assert_eq!(interfaces(), before);
}
