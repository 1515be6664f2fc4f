//! What the command does with bad input: one line that says what to do, exit status 2, and
//! nothing left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

mod captures;
#[path = "cli/values.rs"]
mod values;

/// A directory of the test's own, removed afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("wharf-cli-{}-{number}", std::process::id()));
        // One that was killed may have had the same process id.
        let _ = fs::remove_dir_all(&path);
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
    up(&["--set", "lro.profile="], &["auto, endpoint or lossless"]);
    up(&["--set", "a\nb=1"], &["a\\nb"]);
    // The command line has the last word, so a file that it mends is still read first.
    up(&["--config", &range, "--set", "lro.max_aggregate=60000"], &["range.toml"]);
}

/// Nothing is looked at before the settings are: these interfaces do not exist.
fn degen_refused(extra: &[&str], parts: &[&str]) {
    refused(&[&["degen", "--between", "no-such-a", "no-such-b"], extra].concat(), parts);
}

#[test]
fn degen_refuses_what_no_wan_does() {
    for (extra, parts) in [
        (&["--delay", "-5ms"][..], &["`delay`", "\"-5ms\"", "negative"][..]),
        (&["--delay=-5ms"], &["`delay`", "\"-5ms\"", "negative"]),
        (&["--delay", "5"], &["`delay`", "\"5\"", "a time such as 5ms", "did you mean `5ms`?"]),
        (&["--delay", "100"], &["did you mean `100ms`?"]),
        (&["--reorder-wait", "20 msec"], &["did you mean `20ms`?"]),
        (&["--delay", "5 light years"], &["`delay`", "a time such as 5ms"]),
        (&["--delay", ""], &["`delay`", "a time such as 5ms"]),
        (&["--delay", "\n"], &["`delay`", "\\n"]),
        (&["--delay", "--loss"], &["`delay`", "\"--loss\""]),
        (&["--loss", "101%"], &["`loss`", "from 0 to 100%"]),
        (&["--loss", "-0.1%"], &["`loss`", "negative"]),
        (&["--loss", "0.5"], &["`loss`", "a percentage such as 1%"]),
        (&["--reverse", "loss=101%"], &["`loss`", "from 0 to 100%"]),
        (&["--forward", "los=1%"], &["`forward.los`", "did you mean `forward.loss`?"]),
        (&["--forward", "nonsense=1%"], &["`forward.nonsense`", "wharf degen --help"]),
        (&["--forward", "=1%"], &["unknown key"]),
        (&["--forward", "seed=1"], &["seed", "both directions"]),
        (&["--jitter-distribution", "zipf"], &["uniform, normal or pareto"]),
        (&["--queue", "red"], &["tail_drop or codel"]),
        (&["--ecn=maybe"], &["`ecn`", "true or false"]),
        (&["--reorder-distance", "0"], &["`reorder_distance`", "from 1 to 65535"]),
        (&["--queue-packets", "1.5"], &["`queue_packets`", "a whole number"]),
        (&["--rate", "10mb"], &["`rate`", "did you mean `10mbit`?"]),
        (&["--rate", "10mbps"], &["`rate`", "did you mean `10mbit`?"]),
        (&["--rate", "10MBps"], &["`rate`", "did you mean `80mbit`?"]),
        (&["--reverse", "rate=2.5Gb/s"], &["`rate`", "did you mean `2500mbit`?"]),
        (&["--queue-bytes", "64k"], &["`queue_bytes`", "did you mean `64kb`?"]),
        (&["--loss", "5"], &["`loss`", "did you mean `5%`?"]),
        (&["--ecn=yes"], &["`ecn`", "did you mean `true`?"]),
        (&["--rate", "0.1bit"], &["`rate`", "too fine"]),
        (&["--seed", "-1"], &["`seed`", "from 0 to"]),
        (&["--seed", "0x10"], &["`seed`", "whole number"]),
        (&["--seed", "18446744073709551616"], &["`seed`", "18446744073709551615"]),
        // A switch takes no other option for its value.
        (&["--ecn", "--delay", "1ms", "--jitter-reorders", "--seed", "1"], &["no-such-a"]),
    ] {
        degen_refused(extra, parts);
    }
}

#[test]
fn degen_wants_two_interfaces() {
    let between = |one, other, parts: &[&str]| refused(&["degen", "--between", one, other], parts);
    between("no-such", "no-such", &["two interfaces", "no-such"]);
    between("no-such-a", "no-such-b", &["no-such-a", "there are:"]);
    between("lo", "no-such-b", &["lo", "Ethernet"]);
    between("sixteen-bytes-xx", "lo", &["--between", "sixteen-bytes-xx"]);
    between("lo", "a/b", &["--between", "a/b"]);
    between("", "lo", &["--between", "\"\""]);
    for args in [
        &["degen"][..],
        &["degen", "--between", "one"],
        &["degen", "--between", "one", "two", "three"],
        &["degen", "--between", "one", "two", "--frames", "10"],
        &["degen", "--between", "one", "two", "--forward", "loss"],
        &["degen", "--between", "one", "two", "--delay", "1ms", "--delay", "2ms"],
        &["degen", "--between", "one", "two", "--dealy", "1ms"],
    ] {
        let output = wharf(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn degen_says_where_a_file_is_wrong() {
    let directory = Directory::new();
    let wrong = |text: &str, parts: &[&str]| {
        let file = directory.file("wan.toml", text.as_bytes());
        degen_refused(&["--file", &file], parts);
        // And so does `wharf up`, for the same file.
        refused(&["up", "--wire", "no-such-if", "--host", "nic0", "--degen", &file], parts);
    };
    wrong("delay = 5ms\n", &["wan.toml:1:9"]);
    wrong("delay = '-5ms'\n", &["wan.toml:1:9", "negative"]);
    wrong("\n[reverse]\n  los = '1%'\n", &["wan.toml:3:3", "did you mean `reverse.loss`?"]);
    wrong("[[schedule]]\nloss = '1%'\n", &["wan.toml:1:", "at = "]);
    wrong("[[schedule]]\nat = '2s'\n[[schedule]]\nat = '1s'\n", &["wan.toml:4:6", "back in time"]);
    wrong("repeat = '2s'\n[[schedule]]\nat = '2s'\n", &["wan.toml:1:10", "longer"]);
    wrong("repeat = '2s'\n", &["wan.toml:1:10", "[[schedule]]"]);
    wrong("seed = 'lucky'\n", &["wan.toml:1:8", "`seed`"]);
    degen_refused(&["--file", &directory.path("none.toml")], &["none.toml", "No such file"]);
    degen_refused(&["--file", &directory.path("")], &["directory"]);
    degen_refused(&["--file", &directory.file("binary", b"\xff\xfe\x00")], &["binary"]);
    // Whatever the options say of it, a wrong file is wrong; a right one is not looked at again.
    let file = directory.file("wan.toml", b"loss = '1%'\n");
    degen_refused(&["--file", &file, "--loss", "2%"], &["no-such-a"]);
}

/// Everything that can be set is in the help, with what it takes and what it is without.
#[test]
fn the_help_of_degen_names_every_setting() {
    let output = wharf(&["degen", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for key in degen::keys::KEYS {
        let option = format!("--{}", key.name.replace('_', "-"));
        let rest = format!("[takes: {}] [default: {}]", key.takes(), key.default_text());
        let at = words.find(&format!("{option} ")).unwrap_or_else(|| panic!("{option}"));
        assert!(words[at..].contains(&rest), "{option}: {rest}");
    }
    // The file that it shows is one.
    let (_, file) = help.split_once("a file of:\n").unwrap();
    let settings = nic::degen::Settings::from_toml("example", file).unwrap();
    assert_eq!(settings.schedules[0].steps().len(), 2);
}

#[test]
fn a_capture_that_cannot_be_read_leaves_no_output() {
    let directory = Directory::new();
    let whole = capture(&segments(3));
    let no_header = directory.file("header.pcap", &whole[..20]);
    let empty = directory.file("empty.pcap", b"");
    let text = directory.file("text.pcap", b"this is no capture at all\n");
    let wireless = directory.file("wireless.pcap", &header(105));
    let missing = directory.path("missing.pcap");
    let itself = directory.path("");
    let output = directory.path("out.pcap");
    let before = directory.names();
    for (input, parts) in [
        (&no_header, &["header.pcap", "truncated", "header"][..]),
        (&empty, &["empty.pcap", "not a capture"]),
        (&text, &["text.pcap", "not a capture"]),
        (&wireless, &["wireless.pcap", "IEEE802_11", "ETHERNET", "LINUX_SLL2"]),
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
    let truncated = directory.file("in.pcap", &whole[..20]);
    let output = directory.file("out.pcap", b"of value");
    refused(&["pcap", "lro", &truncated, &output], &["truncated", "header"]);
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

    // Time stamps are those at which the aggregate was flushed; the bytes are the same.
    let frames = |path: &str| {
        let reader = nic::capture::Reader::new(fs::File::open(path).unwrap()).unwrap();
        reader.map(|packet| packet.unwrap().data).collect::<Vec<_>>()
    };
    assert_eq!(frames(&cut), segments(20));
    assert_eq!(frames(&back), segments(20));
    assert_eq!(directory.names(), ["back.pcap", "cut.pcap", "in.pcap", "joined.pcap"]);
}

#[test]
fn a_link_stays_one_and_the_file_behind_it_is_replaced() {
    let directory = Directory::new();
    let file = directory.file("a.pcap", &capture(&segments(20)));
    let (before, link) = (directory.file("b.pcap", b"before"), directory.path("link.pcap"));
    std::os::unix::fs::symlink("b.pcap", &link).unwrap();
    assert!(wharf(&["pcap", "lro", &file, &link]).status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let written = fs::metadata(&before).unwrap().len();
    assert!((20_000..21_000).contains(&written), "{written}");
    assert!(wharf(&["pcap", "lro", &file, "/dev/null"]).status.success());
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(directory.names(), ["a.pcap", "b.pcap", "link.pcap"]);
}

#[test]
fn one_key_is_listed_without_a_wharf() {
    let list = |key| {
        let output = wharf(&["set", "--defaults", key]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = list("lro.enable");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("lro.enable") && !text.contains("gso."), "{text}");
    for key in ["loss", "forward.loss", "degen.loss", "degen.reverse.loss"] {
        let text = list(key);
        assert!(text.starts_with("DEGEN") && text.lines().count() == 3, "{text}");
        assert!(text.contains("\nloss "), "{text}");
    }
    refused(&["set", "--defaults", "lro.enabel"], &["lro.enable"]);
    let both = wharf(&["set", "--defaults", "lro.enable", "true"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn what_can_be_chosen_is_named_in_usage_errors() {
    for (args, parts) in [
        (
            &["tcp", "echo", "--address", "10.0.0.2/24", "--port", "7"],
            ["--host <NAME>", "--wire <IF>"],
        ),
        (
            &["tcp", "echo", "--address", "10.0.0.2/24", "--host", "x"],
            ["--port <N>", "--connect <HO"],
        ),
    ] {
        let output = wharf(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        // On the line that says what is missing, and not only in the usage behind it.
        let missing = text.lines().nth(1).unwrap_or_default();
        assert!(parts.iter().all(|part| missing.contains(part)), "{text}");
    }
    let both =
        ["tcp", "echo", "--address", "10.0.0.2/24", "--port", "7", "--host", "x", "--wire", "y"];
    let text = String::from_utf8(wharf(&both).stderr).unwrap();
    assert!(
        text.contains("--host") && text.contains("--wire") && text.contains("cannot"),
        "{text}"
    );
}

#[test]
fn a_destination_without_a_route_is_refused() {
    for service in ["source", "echo"] {
        let to = |to: &'static str, more: &[&'static str], parts: &[&str]| {
            let args = ["tcp", service, "--host", "x", "--address", "10.0.0.2/24", "--connect", to];
            refused(&[&args[..], more].concat(), parts);
        };
        to("192.0.2.1:9", &[], &["no route to 192.0.2.1", "--gateway"]);
        let six = ["--address", "fd00::2/64", "--gateway", "10.0.0.1"];
        to("[2001:db8::1]:9", &six, &["no route to 2001:db8::1", "--gateway"]);
    }
}

#[test]
fn keys_are_listed_without_a_wharf() {
    let output = wharf(&["set", "--defaults"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for key in nic::config::KEYS {
        assert!(text.contains(key.name) && text.contains(key.help), "{}", key.name);
    }
    // degen's have a section of their own.
    let (_, of_degen) = text.split_once("\nDEGEN").unwrap();
    for key in degen::keys::KEYS {
        let row = of_degen.lines().find(|line| line.split_whitespace().next() == Some(key.name));
        let row = row.unwrap_or_else(|| panic!("{}", key.name));
        assert!(row.contains(&key.default_text()) && row.contains(&key.takes()), "{row}");
        assert!(of_degen.contains(key.help), "{}", key.help);
    }
    refused(&["set", "lro.enabel", "true"], &["did you mean `lro.enable`?"]);
    refused(&["set", "forward.los", "1%"], &["did you mean `forward.loss`?"]);
    refused(&["set", "degen.forward.los", "1%"], &["did you mean `degen.forward.loss`?"]);
    refused(&["set", "los"], &["did you mean `loss`?"]);
    refused(&["set", "seed", "1"], &["seed", "start"]);
    refused(&["set", "utter.nonsense", "-1"], &["utter.nonsense"]);
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
        let script = String::from_utf8(output.stdout).unwrap();
        for part in ["roundtrip", "degen", "between", "jitter-distribution", "queue-bytes"] {
            assert!(script.contains(part), "{shell}: {part}");
        }
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
    let mut checks = std::collections::BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let finding: serde_json::Value = serde_json::from_str(line).unwrap();
        let status = finding["status"].as_str().unwrap();
        assert!(["ok", "limited", "missing"].contains(&status), "{line}");
        assert_eq!(status == "ok", finding["advice"] == "", "{line}");
        checks.insert(finding["check"].as_str().unwrap().to_owned(), status.to_owned());
    }
    // Without a veth nothing can be tried on one.
    if checks.get("veth pair").is_some_and(|status| status == "ok") {
        for check in ["TAP: aggregates", "veth: super-packets", "kernel: TSO", "kernel: USO"] {
            assert!(checks.contains_key(check), "{check} is not in {checks:?}");
        }
    }
    assert!(wharf(&["doctor"]).status.success());
    assert_eq!(interfaces(), before);
}
