//! Captures that are cut, that are their own output, and that come and go by pipes.

use std::fs;
use std::process::{Command, Stdio};

use super::{Directory, capture, header, refused, segments, wharf};

/// A capture whose program was killed ends anywhere: what is complete is taken.
#[test]
fn a_capture_that_ends_in_a_packet_gives_those_before_it() {
    let directory = Directory::new();
    let whole = capture(&segments(3));
    let two = whole.len() - (16 + segments(3)[2].len());
    let expected = directory.file("two.pcap", &whole[..two]);
    let joined = directory.path("joined.pcap");
    let output = wharf(&["pcap", "lro", &expected, &joined]);
    assert!(output.status.success() && output.stderr.is_empty());
    // In the middle of its bytes, and of its header.
    for cut in [whole.len() - 1, two + 16, two + 5] {
        let input = directory.file("in.pcap", &whole[..cut]);
        let out = directory.path("out.pcap");
        for more in [&[][..], &["--json"]] {
            let output = wharf(&[&["pcap", "lro", &input, &out], more].concat());
            let words = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(0), "{words}");
            assert_eq!(words.lines().count(), 1, "{words:?}");
            for part in ["wharf: ", "in.pcap", "truncated in packet 3", "before it was taken"] {
                assert!(words.contains(part), "{part:?} is not in {words:?}");
            }
            if !more.is_empty() {
                let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(report["truncated_in_packet"].as_u64(), Some(3));
                assert_eq!(report["packets_in"].as_u64(), Some(2));
            }
            assert_eq!(fs::read(&out).unwrap(), fs::read(&joined).unwrap());
        }
    }
}

#[test]
fn a_capture_is_not_written_over_itself() {
    let directory = Directory::new();
    let whole = capture(&segments(3));
    let input = directory.file("in.pcap", &whole);
    let (hard, soft) = (directory.path("hard.pcap"), directory.path("soft.pcap"));
    fs::hard_link(&input, &hard).unwrap();
    std::os::unix::fs::symlink(&input, &soft).unwrap();
    let before = directory.names();
    let around = directory.path("../") + &format!("{}/in.pcap", base(&directory));
    for (from, to) in
        [(&input, &input), (&input, &hard), (&input, &soft), (&soft, &input), (&input, &around)]
    {
        refused(&["pcap", "lro", from, to], &["is read", "another file"]);
        refused(&["pcap", "gso", from, to, "--mtu", "1500"], &["is read", "another file"]);
    }
    // Appended to what is read, it would never end.
    let appended = fs::OpenOptions::new().append(true).open(&input).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    let command = command.args(["pcap", "lro", &input, "-"]).stdout(appended);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is read"));
    assert_eq!((fs::read(&input).unwrap(), directory.names()), (whole, before));
}

fn base(directory: &Directory) -> String {
    directory.0.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_capture_comes_by_standard_input_and_goes_by_standard_output() {
    let directory = Directory::new();
    let input = directory.file("in.pcap", &capture(&segments(20)));
    let expected = directory.path("out.pcap");
    let from_file = wharf(&["pcap", "lro", &input, &expected]);
    let piped = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
        let command = command.args(args).stdin(fs::File::open(&input).unwrap());
        command.output().unwrap()
    };
    let both = piped(&["pcap", "lro", "-", "-"]);
    assert!(both.status.success());
    assert_eq!(both.stdout, fs::read(&expected).unwrap());
    assert_eq!(both.stderr, from_file.stdout, "the summary");
    let json = piped(&["pcap", "lro", &input, "-", "--json"]);
    assert_eq!(json.stdout, both.stdout);
    let report: serde_json::Value = serde_json::from_slice(&json.stderr).unwrap();
    assert_eq!(report["packets_in"].as_u64(), Some(20));
    let out = directory.path("piped.pcap");
    let read = piped(&["pcap", "lro", "-", &out]);
    assert_eq!((fs::read(&out).unwrap(), read.stdout), (both.stdout, from_file.stdout));
    refused(&["pcap", "lro", "-", "-"], &["cannot read -", "not a capture"]);
    assert_eq!(directory.names(), ["in.pcap", "out.pcap", "piped.pcap"]);
}

/// Of what `tcpdump -s` left out, nothing can be said.
#[test]
fn a_round_trip_says_how_many_packets_it_could_not_judge() {
    let directory = Directory::new();
    let out = directory.path("out.pcap");
    let cut = |snaplen: usize| {
        let mut file = header(1);
        for (number, frame) in segments(20).iter().enumerate() {
            // The first five are whole.
            let len = if number < 5 { frame.len() } else { frame.len().min(snaplen) };
            let lengths = [0, number as u32, len as u32, frame.len() as u32];
            file.extend(lengths.into_iter().flat_map(u32::to_le_bytes));
            file.extend(&frame[..len]);
        }
        directory.file("in.pcap", &file)
    };
    let output = wharf(&["pcap", "roundtrip", &cut(96), &out]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("15 of 20 packets could not be judged"), "{text}");
    assert!(text.contains("Every other packet came back bit for bit, 5 of them"), "{text}");
    let output = wharf(&["pcap", "roundtrip", &cut(96), &out, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets_not_judged"].as_u64(), Some(15));
    let output = wharf(&["pcap", "roundtrip", &cut(9999), &out]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Every packet came back") && !text.contains("judged"), "{text}");
}
