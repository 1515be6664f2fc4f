//! A wharf that runs is watched and changed.

use testkit::lab::have;

use super::setup::{HOST, Ip, Plan, Port, Up, WIRE};
use super::traffic::{Direction, Load, transfer};

/// Changes one setting.
pub(crate) fn set(up: &Up, key: &str, value: &str) {
    let ended = up.hosts.wharf(&["set", key, value]);
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
    let ended = up.hosts.wharf(&["set", key]);
    assert_eq!(ended.stdout.trim_end(), value, "{ended}");
}

/// Whether `ethtool -k` shows a feature of the host interface as on.
fn is_on(up: &Up, feature: &str) -> bool {
    let features = up.hosts.server.succeed("ethtool", &["-k", HOST]);
    features.lines().any(|line| line.trim_start().starts_with(&format!("{feature}: on")))
}

#[test]
fn no_byte_is_lost_when_offloads_are_switched_under_load() {
    if !have(&["sha256sum"]) {
        return;
    }
    for port in Port::EACH {
        for direction in [Direction::In, Direction::Out] {
            let Some(up) = Plan::new(port).up() else { continue };
            let load = Load::start(&up.hosts, Ip::V4, direction, None);
            for value in ["false", "true"] {
                for key in ["lro.enable", "gso.enable", "lro.flush_on_psh"] {
                    set(&up, key, value);
                    load.goes_on();
                }
            }
            for (key, value) in [("lro.profile", "lossless"), ("lro.max_aggregate", "9000")] {
                set(&up, key, value);
                load.goes_on();
            }
            assert!(!load.is_done());
            load.finish();
        }
    }
}

#[test]
fn switching_gso_switches_what_ethtool_shows() {
    if !have(&["ethtool"]) {
        return;
    }
    for port in [Port::Packet, Port::Veth] {
        let Some(up) = Plan::new(port).up() else { return };
        assert!(is_on(&up, "tcp-segmentation-offload"));
        set(&up, "gso.enable", "false");
        assert!(!is_on(&up, "tcp-segmentation-offload"));
        set(&up, "gso.enable", "true");
        assert!(is_on(&up, "tcp-segmentation-offload") && is_on(&up, "tx-checksumming"));
    }
}

#[test]
fn stats_say_what_was_merged_and_cut() {
    if !have(&["sha256sum"]) {
        return;
    }
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up() else { continue };
        assert_eq!(up.counter("lro", "merged"), 0);
        transfer(&up.hosts, Ip::V4, Direction::In, 16 << 20);
        transfer(&up.hosts, Ip::V6, Direction::Out, 16 << 20);
        up.all_counted();
        // Every byte of payload is in a frame, and most frames are in an aggregate.
        let (frames, bytes) = (up.counter("wire", "rx_packets"), up.counter("wire", "rx_bytes"));
        assert!(bytes > 16 << 20 && frames > (16 << 20) / 1500, "{frames} frames, {bytes} bytes");
        let merged = up.counter("lro", "merged");
        assert!(merged > 0 && merged < frames, "{merged} of {frames}");
        assert!(up.counter("gso", "segments") > up.counter("gso", "super_packets"));
        let drops =
            ["host_down", "host_full", "host_refused"].map(|why| up.counter("host_drop", why));
        assert_eq!(drops, [0; 3], "drops by the host");

        let stats = up.hosts.wharf(&["stats"]);
        assert!(stats.status.success() && stats.stdout.contains("merged"), "{stats}");
        let json: serde_json::Value =
            serde_json::from_str(&up.hosts.wharf(&["stats", "--json"]).stdout).unwrap();
        assert_eq!((&json["wire"], &json["host"]), (&WIRE.into(), &HOST.into()), "{json}");
    }
}

#[test]
fn a_wrong_setting_changes_nothing() {
    let Some(up) = Plan::new(Port::Packet).up() else { return };
    let before = up.hosts.wharf(&["set"]).stdout;
    for words in [
        &["set", "lro.max_aggregate", "12"][..],
        &["set", "lro.enable", "maybe"],
        &["set", "no.such.key", "1"],
        &["set", "workers", "2"],
        &["set", "lro.enable", "false", "--host", "other0"],
    ] {
        let ended = up.hosts.wharf(words);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    }
    assert_eq!(up.hosts.wharf(&["set"]).stdout, before);
}
