//! `wharf doctor` beside a wharf: what connection handoff needs, and what keeps connections with the kernel.

use std::process::Command;

use serde_json::Value;
use testkit::firewall::{self, Hook, Kind, Rule};
use testkit::lab::Host;
use testkit::missing::kernel_lacks;

use crate::handoff::library;
use crate::setup::{HOST, Plan, Port, wharf};

/// What it finds of one thing.
fn finds(host: &Host, check: &str) -> (String, String) {
    let ended = host.output(wharf().env("WHARF_LIBRARY", library()).args(["doctor", "--json"]));
    assert!(ended.status.success(), "{ended}");
    let all: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found = all.iter().find(|one| one["check"] == check);
    let text = |name: &str| found.and_then(|one| one[name].as_str()).unwrap_or("").to_owned();
    assert!(found.is_some(), "{check} is not in {ended}");
    assert_eq!(text("status") == "ok", text("advice").is_empty(), "{found:?}");
    (text("status"), text("found"))
}

#[test]
fn the_doctor_names_what_keeps_connections_with_the_kernel() {
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let server = &up.hosts.server;
    let status = |check: &str| finds(server, check).0;
    for check in ["kernel", "TCP_REPAIR", "libwharf.so", "IPsec", "conntrack"] {
        assert_eq!(status(&format!("handoff: {check}")), "ok", "{check}");
    }
    assert_eq!(status(&format!("handoff: wharf of {HOST}")), "ok");
    let firewall = format!("handoff: firewall of {HOST}");
    assert_eq!(status(&firewall), "ok");
    let added =
        server.run(|| firewall::add(Kind::Filter, &[Hook::Input, Hook::Output], &[Rule::Accept]));
    match added {
        Err(error) => kernel_lacks(format!("nftables: {error}")),
        Ok(()) => {
            let (status, found) = finds(server, &firewall);
            assert!(status == "limited" && found.starts_with("sees packets: "), "{found}");
            server.run(firewall::remove).unwrap();
        }
    }
    let traffic = format!("handoff: tc and XDP of {HOST}");
    assert_eq!(status(&traffic), "ok");
    let tc =
        |words: &str| server.output(Command::new("tc").args(words.split(' '))).status.success();
    if !tc(&format!("qdisc replace dev {HOST} root tbf rate 1gbit burst 64kb latency 50ms")) {
        return kernel_lacks("tbf");
    }
    let (status, found) = finds(server, &traffic);
    assert!(status == "limited" && found.starts_with("tc, by"), "{found}");
}

#[test]
fn the_doctor_says_what_a_wharf_lacks_to_take_connections_over() {
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    let check = format!("handoff: wharf of {HOST}");
    let none = hosts.wharf_up(&["--set", "handoff.connections=0"]);
    assert_eq!(finds(&hosts.server, &check).0, "limited");
    drop(none);
    let _bypasses =
        hosts.wharf_up(&["--set", "workers=1", "--set", "handoff.bypass_firewall=true"]);
    let (status, found) = finds(&hosts.server, &format!("handoff: firewall of {HOST}"));
    assert!(status == "ok" && found.contains("bypass_firewall"), "{found}");
}
