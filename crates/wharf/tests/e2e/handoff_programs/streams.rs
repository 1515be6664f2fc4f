//! Bulk data.

use std::process::Command;

use serde_json::Value;

use super::Stage;

/// Bytes each way, over one connection and several at once.
#[test]
fn iperf3_runs_on_the_nic_both_ways() {
    let Some(stage) = Stage::new(&["iperf3"]) else { return };
    let mut iperf3 = stage.serve("at_accept", 5201, &["iperf3", "-s", "--forceflush"]);
    for words in ["-n 50M", "-n 50M -R", "-n 20M -P 4", "-n 20M -P 4 -R", "-t 1 --bidir"] {
        // It listens anew for each: what has come by then is reset.
        iperf3.line_with("Server listening");
        let mut client = Command::new("iperf3");
        client.args(["-J", "-c", "10.77.0.2"]).args(words.split(' '));
        let ended = stage.hosts.client.output(&mut client);
        assert!(ended.status.success(), "{ended}");
        let told: Value = serde_json::from_str(&ended.stdout).unwrap();
        let received = told["end"]["sum_received"]["bytes"].as_u64();
        assert!(received.is_some_and(|bytes| bytes > 0), "{words}: {told}");
    }
    // One for what they say to each other, and those of data.
    stage.were_handed_off(0, 2 + 2 + 5 + 5 + 3);
    assert_eq!(stage.counter("handoff", "restored"), 0, "{:?}", stage.counters());
}
