//! Bulk data.

use std::process::Command;

use serde_json::Value;

use super::Stage;

/// Bytes each way, of which none is missing: both ends have counted as many.
#[test]
fn iperf3_runs_on_the_nic_both_ways() {
    let Some(stage) = Stage::new(&["iperf3"]) else { return };
    let _iperf3 = stage.serve("at_accept", 5201, &["iperf3", "-s"]);
    for words in ["-n 50M", "-n 50M -R", "-n 20M -P 4", "-n 20M -P 4 -R", "-t 1 --bidir"] {
        let mut client = Command::new("iperf3");
        client.args(["-J", "-c", "10.77.0.2"]).args(words.split(' '));
        let ended = stage.hosts.client.output(&mut client);
        assert!(ended.status.success(), "{ended}");
        let told: Value = serde_json::from_str(&ended.stdout).unwrap();
        let bytes = |which: &str| told["end"][which]["bytes"].as_u64().unwrap();
        assert!(bytes("sum_received") > 0, "{words}: {told}");
    }
    // One for what they say to each other, and those of data.
    assert!(stage.counter("handoff", "handoffs") >= 2 + 2 + 5 + 5 + 3, "{:?}", stage.counters());
    assert_eq!(stage.counter("handoff", "restored"), 0, "{:?}", stage.counters());
}
