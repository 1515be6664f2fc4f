//! The device as a service of a service manager's.

use std::fs;
use std::process::Command;

use sys::process::{Signal, kill};
use testkit::lab::{Host, have};

use super::containers::CONTAINER;
use super::{Pair, library, within};
use crate::handoff_kept::MANAGER;
use crate::setup::wharf;

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
