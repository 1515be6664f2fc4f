//! The device as a service of a service manager's.

use std::fs;
use std::process::Command;

use serde_json::Value;
use sys::process::{Signal, kill};
use testkit::lab::{Host, have, wait_until};

use super::containers::CONTAINER;
use super::programs::rping;
use super::{Pair, as_user, library, within};
use crate::handoff_kept::MANAGER;
use crate::setup::{Ip, wharf};

#[test]
fn a_service_manager_is_told_when_the_device_serves() {
    if !have(&["python3"]) {
        return;
    }
    let Some(pair) = Pair::new(&["ibv_devices"]) else { return };
    let names = std::env::temp_dir().join(format!("wharf-rdma-service-{}", std::process::id()));
    let manage = |host: &Host, words: &[&str]| {
        let mut manager = Command::new("python3");
        manager.args(["-u", "-c", MANAGER]).arg(&names).arg(wharf().get_program()).args(words);
        host.spawn(manager.env("WHARF_RDMA_LIBRARY", library()))
    };
    let mut manager = manage(&pair.server, &["rdma"]);
    manager.line_with("ready");
    let listed = pair.server.output(wharf().args(["rdma", "list"]));
    assert!(listed.status.success(), "{listed}");
    // A device of a program's own says nothing for that.
    let mut manager = manage(&pair.client, &["run", "--rdma", "--", "ibv_devices"]);
    loop {
        let line = manager.line_with("");
        assert_ne!(line, "ready");
        if line.starts_with("ended") {
            assert_eq!(line, "ended 0");
            break;
        }
    }
    let _ = fs::remove_file(names);
}

/// Also the first process of a container, which signals do not end by themselves.
#[test]
fn a_device_that_is_asked_to_end_does() {
    let Some(pair) = Pair::new(&["unshare"]) else { return };
    let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    for namespaces in [&[][..], &CONTAINER] {
        for signal in [Signal::Terminate, Signal::Interrupt] {
            let mut device = pair.server.spawn(&mut within(namespaces, &["rdma"]));
            device.line_with("serves");
            let process = pair.server.processes().into_iter().find(|pid| comm(pid) == "wharf\n");
            kill(process.unwrap(), signal).unwrap();
            let ended = device.wait();
            assert!(ended.status.success(), "{ended}");
        }
    }
}

#[test]
fn counters_of_processes_that_have_ended_are_in_the_total() {
    let Some(pair) = Pair::new(&["rping"]) else { return };
    let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    rping(&pair, Ip::V4, "64");
    let mut stats = Value::Null;
    let is_over = wait_until(|| {
        let shown = pair.client.output(&mut as_user(&["rdma", "stats", "--json"]));
        stats = serde_json::from_str(&shown.stdout).unwrap();
        stats["processes"].as_array().is_some_and(Vec::is_empty)
    });
    assert!(is_over, "{stats}");
    // 30 pings, of which each is a send at least, both ways.
    for counter in ["messages_in", "messages_out"] {
        assert!(stats["total"][counter].as_u64() >= Some(30), "{counter}: {stats}");
    }
    let shown = pair.client.output(&mut as_user(&["rdma", "stats"]));
    assert!(shown.stdout.contains("those that have ended"), "{shown}");
}
