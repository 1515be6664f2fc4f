//! Programs in containers: in user, PID and mount namespaces of their own, without capabilities.

use std::fs;
use std::process::Command;

use serde_json::Value;
use testkit::lab::{Host, have, wait_until};

use super::programs::{RPING, perftest, rping};
use super::{Pair, USER, as_user, library, ordinary, within};
use crate::setup::Ip;

/// A container: a user of another number there, without any capability, also of its own user namespace's.
pub(super) const CONTAINER: [&str; 18] = [
    "unshare",
    "--user",
    "--map-user=1000",
    "--map-group=1000",
    "--keep-caps",
    "--pid",
    "--mount",
    "--mount-proc",
    "--kill-child",
    "setpriv",
    "--no-new-privs",
    "--bounding-set",
    "-all",
    "--inh-caps",
    "-all",
    "--ambient-caps",
    "-all",
    "--",
];
/// What a user makes who wants to be root.
const ROOT: [&str; 5] = ["unshare", "--user", "--map-root-user", "--pid", "--kill-child"];
/// A namespace that does not know its user, and one that calls it as those whom it does not know.
const UNMAPPED: [&str; 4] = ["unshare", "--user", "--pid", "--kill-child"];
const NOBODY: [&str; 5] = ["unshare", "--user", "--map-user=65534", "--pid", "--kill-child"];

/// Where a device is that is not at the address of a user's.
const ADDRESS: &str = "@wharf-rdma-of-a-test";

/// What libraries and commands say where a user cannot be told from others.
const ANYBODY: &str = "what this user namespace calls everybody whom it does not know";

/// Processes that the device of this host serves.
fn served(host: &Host, pod: &[&str]) -> Vec<Value> {
    let ended = host.output(&mut within(pod, &["rdma", "stats", "--json"]));
    assert!(ended.status.success(), "{ended}");
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    told["processes"].as_array().unwrap().clone()
}

/// One device serves programs in namespaces that it is above.
#[test]
fn programs_run_in_namespaces_below_the_devices() {
    let programs = ["rping", "ib_write_bw", "ib_read_lat", "unshare"];
    let Some(mut pair) = Pair::new(&programs) else { return };
    let mut devices = [&pair.server, &pair.client].map(|host| host.spawn(&mut as_user(&["rdma"])));
    devices.iter_mut().for_each(|device| drop(device.line_with("serves")));
    for container in [&[][..], &ROOT, &CONTAINER] {
        pair.container = container;
        rping(&pair, Ip::V4, "1000");
        for name in ["ib_write_bw", "ib_read_lat"] {
            perftest(&pair, &[name, "-R", "-n", "200"]);
        }
        // It is these devices that have done it.
        let to = Ip::V4.server().to_string();
        let _server = pair.serve(RPING, &["rping", "-s", "-P", "-a", &to]);
        let is_alone = || served(&pair.server, &[]).len() == 1;
        assert!(wait_until(is_alone), "{container:?}");
    }
}

/// What a process there has of capabilities, and its namespaces.
fn rights(pair: &Pair) -> (Vec<String>, Vec<String>) {
    const SHOW: &str = "grep ^Cap /proc/self/status; readlink /proc/self/ns/*";
    let shown = pair.call(&["sh", "-c", SHOW]);
    assert!(shown.status.success(), "{shown}");
    let lines = shown.stdout.lines().map(str::to_owned);
    lines.partition(|line| line.starts_with("Cap"))
}

/// Two pods: network, user, PID and mount namespaces of their own, and no capability. The device is in the container of the
/// program, or in one beside it.
#[test]
fn two_pods_without_capabilities_write_to_each_other() {
    let Some(mut pair) = Pair::new(&["ib_write_bw", "rping", "unshare"]) else { return };
    pair.pod = &CONTAINER;
    let (capabilities, namespaces) = rights(&pair);
    assert_eq!(capabilities.len(), 5);
    let has_none = |line: &String| line.ends_with("\t0000000000000000");
    assert!(capabilities.iter().all(has_none), "{capabilities:?}");
    for kind in ["net", "user", "pid", "mnt"] {
        let own = fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap();
        let own = own.to_str().unwrap();
        assert!(namespaces.iter().any(|line| line.starts_with(&format!("{kind}:"))));
        assert!(namespaces.iter().all(|line| line != own), "{own} is the tests'");
    }
    let write = |pair: &Pair| drop(perftest(pair, &["ib_write_bw", "-R", "-n", "500"]));
    write(&pair);
    let beside = |host: &Host| host.spawn(&mut within(&CONTAINER, &["rdma"]));
    let mut devices = [&pair.server, &pair.client].map(beside);
    devices.iter_mut().for_each(|device| drop(device.line_with("serves")));
    write(&pair);
    rping(&pair, Ip::V4, "65000");
    let to = Ip::V4.server().to_string();
    let _server = pair.serve(RPING, &["rping", "-s", "-P", "-a", &to]);
    // It has no number in the device's container.
    let is_alone = || matches!(&served(&pair.server, &CONTAINER)[..], [one] if one["pid"] == 0);
    assert!(wait_until(is_alone), "{:?}", served(&pair.server, &CONTAINER));
}

/// Where a user cannot be told from others, there is neither a device nor a session with one.
#[test]
fn users_who_may_be_anybody_are_refused() {
    let Some(mut pair) = Pair::new(&["ibv_devices", "unshare"]) else { return };
    for namespaces in [&UNMAPPED[..], &NOBODY] {
        for words in [&["rdma"][..], &["rdma", "list"], &["run", "--rdma", "--", "ibv_devices"]] {
            let ended = pair.client.output(&mut within(namespaces, words));
            assert_eq!(ended.status.code(), Some(2), "{ended}");
            assert!(ended.stderr.contains(ANYBODY), "{ended}");
        }
    }
    let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    for namespaces in [&UNMAPPED[..], &NOBODY] {
        pair.container = namespaces;
        let ended = pair.call(&["ibv_devices"]);
        assert!(ended.stderr.contains(ANYBODY), "{ended}");
        assert!(!ended.stdout.contains("wharf0"), "{ended}");
    }
}

/// A process of another user's than the tests' are, of Python: `s` is its socket, and `at` the address that it is given.
fn stranger(does: &str, address: &str) -> Command {
    const BECOMES: &str = "
import os, socket, sys
os.setgroups([])
os.setresgid(4242, 4242, 4242)
os.setresuid(4242, 4242, 4242)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
at = '\\0' + sys.argv[1][1:]";
    let mut command = Command::new("python3");
    command.args(["-u", "-c", &format!("{BECOMES}{does}"), address]);
    command
}

/// It asks a device.
const ASKS: &str = "
s.connect(at)
try:
    s.send(b'stats')
    print('told', len(s.recv(4096)))
except OSError: print('told 0')
";

/// It is at the address of a device: whoever comes might send it its memory.
const POSES: &str = "
s.bind(at)
s.listen(8)
print('serves')
while True:
    c, _ = s.accept()
    try: print('got', len(c.recv(4096)))
    except OSError: print('got 0')
";

#[test]
fn a_stranger_is_told_nothing() {
    if !have(&["python3"]) {
        return;
    }
    let Some(pair) = Pair::new(&["unshare"]) else { return };
    for (number, namespaces) in [&[][..], &ROOT, &CONTAINER].into_iter().enumerate() {
        // That of the one before is free a while after it was killed.
        let address = format!("{ADDRESS}-{number}");
        let serve = ["rdma", "--address", &address];
        let mut device = pair.client.spawn(&mut within(namespaces, &serve));
        device.line_with("serves");
        let asked = pair.client.output(&mut stranger(ASKS, &address));
        assert_eq!(asked.stdout, "told 0\n", "{asked}\n{}", device.errors());
        let list = ["rdma", "list", "--address", &address];
        let ended = pair.client.output(&mut within(namespaces, &list));
        assert!(ended.status.success(), "its own user is told: {ended}");
    }
}

#[test]
fn a_stranger_gets_no_memory() {
    if !have(&["python3"]) {
        return;
    }
    let Some(pair) = Pair::new(&["ibv_devices", "unshare"]) else { return };
    let mut poses = pair.client.spawn(&mut stranger(POSES, ADDRESS));
    poses.line_with("serves");
    let preload = format!("LD_PRELOAD={}", library().display());
    let address = format!("WHARF_RDMA={ADDRESS}");
    // Some do not even connect.
    for namespaces in [&UNMAPPED[..], &NOBODY, &[], &ROOT, &CONTAINER] {
        let words = [namespaces, &["env", &preload, &address, "ibv_devices"]].concat();
        let ended = pair.client.output(&mut ordinary(&words));
        assert!(!ended.stdout.contains("wharf0"), "{ended}");
        assert!(ended.stderr.contains("no RDMA device: "), "{ended}");
    }
    for _ in 0..3 {
        assert_eq!(poses.line_with("got "), "got 0");
    }
    // Where it has taken the name of a user's device, the user's programs have one of their own.
    let name = format!("@wharf-rdma-{USER}");
    let mut poses = pair.client.spawn(&mut stranger(POSES, &name));
    poses.line_with("serves");
    let ended = pair.call(&["ibv_devices"]);
    assert!(ended.status.success() && ended.stdout.contains("wharf0"), "{ended}");
    assert_eq!(poses.line_with("got "), "got 0");
}
