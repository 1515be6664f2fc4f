//! Devices that are killed while there is work, and programs that end while their threads do.

use std::process::Command;

use super::verbs::{leave_nothing, of_one_heap};
use super::{Pair, as_user, built};
use crate::setup::Ip;

/// `WHARF_RDMA_DEVICE_KILLS=20` says the median of so many.
#[test]
fn a_device_that_is_killed_leaves_nothing_outstanding() {
    let kills = std::env::var("WHARF_RDMA_DEVICE_KILLS").map_or(1, |kills| kills.parse().unwrap());
    let Some(program) = built("killed.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let own = Ip::V4.client().to_string();
    let mut all = Vec::new();
    for _ in 0..kills {
        let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
        device.line_with("serves");
        let ended = pair.call(&[program, &own, &device.id().to_string()]);
        assert!(ended.status.success() && ended.stdout.ends_with("flushed\n"), "{ended}");
        let told = ended.stdout.lines().find_map(|line| line.strip_prefix("told "));
        let microseconds: u64 = told.unwrap().parse().unwrap();
        all.push(microseconds);
        device.wait();
    }
    all.sort_unstable();
    // A test of how long it takes would depend on what else the machine does.
    let (median, most) = (all[all.len() / 2], all[all.len() - 1]);
    eprintln!(
        "told of the device's end after {median} us in the median of {kills}, {most} at most"
    );
}

/// `WHARF_RDMA_EXITS=60` is the long run.
#[test]
fn nothing_is_left_of_processes_that_end_while_their_threads_are_busy() {
    let exits = std::env::var("WHARF_RDMA_EXITS").map_or(8, |exits| exits.parse().unwrap());
    let Some(program) = built("threads.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let device = of_one_heap(&pair.client);
    let own = Ip::V4.client().to_string();
    leave_nothing(&device, exits, || {
        let ended = pair.call(&[program, &own]);
        assert!(ended.status.success() && ended.stdout == "ends\n", "{ended}");
    });
}

#[test]
fn calls_that_fail_leave_nothing() {
    let Some(program) = built("apart.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let ended = pair.call(&[program, &Ip::V4.client().to_string()]);
    assert!(ended.status.success() && ended.stdout.ends_with("all\n"), "{ended}");
}

/// Something lies on /proc.
const COVERED: [&str; 8] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    "mount -n -t tmpfs none /proc && exec \"$@\"",
    "sh",
];
/// An address that is no device's.
const NOWHERE: [&str; 2] = ["env", "WHARF_RDMA=@wharf-rdma-nowhere"];

/// A device that says `EPERM` to whatever is sent to it, in a message of the same version.
const REFUSES: &str = r"
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind('\0wharf-rdma-refuses')
s.listen(8)
print('serves')
while True:
    c, _ = s.accept()
    c.send(c.recv(4096)[:2] + b'\1\0' + bytes(84))
";
const REFUSED: [&str; 2] = ["env", "WHARF_RDMA=@wharf-rdma-refuses"];

/// There is no device in this container, and standard error says why, by a line with these words.
fn is_told(container: &'static [&'static str], case: &str, words: &[&str]) {
    let Some(mut pair) = Pair::new(&["unshare"]) else { return };
    pair.container = container;
    is_told_by(&pair, case, words);
}

/// The same of these hosts.
fn is_told_by(pair: &Pair, case: &str, words: &[&str]) {
    let Some(program) = built("apart.c") else { return };
    let ended = pair.call(&[program, case]);
    assert!(ended.status.success() && ended.stdout == "none\n", "{ended}");
    let why = ended.stderr.lines().find_map(|line| line.strip_prefix("wharf: no RDMA device: "));
    let is_all = |why: &str| words.iter().all(|word| why.contains(word));
    assert!(why.is_some_and(is_all), "{ended}");
}

#[test]
fn a_process_that_is_not_dumpable_has_no_device() {
    is_told(&[], "hidden", &["/proc/self/mem", "PR_SET_DUMPABLE"]);
}

#[test]
fn a_process_without_proc_has_no_device() {
    is_told(&COVERED, "without", &["/proc/self/mem", "there is no /proc: mount it"]);
}

#[test]
fn a_process_whose_device_is_not_there_is_told_to_start_one() {
    is_told(&NOWHERE, "without", &["@wharf-rdma-nowhere", "`wharf rdma`", "`wharf run --rdma`"]);
}

#[test]
fn a_process_whose_memory_the_device_cannot_have_is_told_why() {
    let Some(mut pair) = Pair::new(&["python3"]) else { return };
    // It is of root where the tests are, and programs trust root.
    let mut refuses = pair.client.spawn(Command::new("python3").args(["-u", "-c", REFUSES]));
    refuses.line_with("serves");
    pair.container = &REFUSED;
    let why = ["@wharf-rdma-refuses", "a security module", "its standard error"];
    is_told_by(&pair, "without", &why);
}
