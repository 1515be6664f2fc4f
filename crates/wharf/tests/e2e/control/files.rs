//! Root's socket is a file that comes and goes with its wharf.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use sys::process::Signal;
use testkit::lab::{Ended, Host, have, wait_until};

use super::{only_root, socket};
use crate::setup::{HOST, Plan, Port, WIRE, wharf};

fn refused(ended: &Ended, part: &str) {
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    assert_eq!((ended.stderr.lines().count(), &*ended.stdout), (1, ""), "{ended}");
    assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
}

/// Runs a line of shell on a host, in a mount namespace of its own.
fn with_other_mounts(host: &Host, line: &str) -> Ended {
    let wharf = wharf().get_program().to_owned();
    host.output(Command::new("unshare").args(["--mount", "sh", "-c", line, "sh"]).arg(wharf))
}

#[test]
fn the_file_goes_with_its_wharf_and_a_stale_one_is_replaced() {
    if !only_root() {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let path = socket(&hosts.server, HOST);
    let wharf = hosts.wharf_up(&[]);
    let found = fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!((found.mode() & 0o777, found.uid(), found.gid()), (0o666, 0, 0));
    let directory = fs::symlink_metadata("/run/wharf").unwrap();
    assert_eq!((directory.mode() & 0o777, directory.uid()), (0o755, 0));
    refused(&hosts.wharf(&["up", "--wire", WIRE, "--host", HOST]), "already");

    wharf.signal(Signal::Kill);
    wharf.wait();
    refused(&hosts.wharf(&["stats"]), "no wharf runs");
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");

    // It has left its file, unless another wharf has swept it away since.
    let _ = fs::remove_file(&path);
    drop(UnixListener::bind(&path).unwrap());
    let wharf = hosts.wharf_up(&[]);
    assert!(hosts.wharf(&["stats"]).status.success());
    wharf.signal(Signal::Interrupt);
    let ended = wharf.wait();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
    let inode = path.rsplit_once('/').unwrap().1.split_once('-').unwrap().0.to_owned();
    let left: Vec<_> = fs::read_dir("/run/wharf")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(&inode))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn mode_and_group_say_who_may_ask() {
    if !only_root() {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let path = socket(&hosts.server, HOST);
    let words = ["--set", "control.mode=0660", "--set", "control.group=4243"];
    let _wharf = hosts.wharf_up(&words);
    let sessions = std::path::Path::new(&path).with_extension("handoff");
    for path in [std::path::Path::new(&path), &sessions] {
        let found = fs::symlink_metadata(path).unwrap();
        assert_eq!((found.mode() & 0o777, found.gid()), (0o660, 4_243), "{}", path.display());
    }
    let connect = |uid| sys::process::run_as(uid, || UnixStream::connect(&path)).unwrap();
    assert_eq!(connect(4_242).unwrap_err().kind(), ErrorKind::PermissionDenied);
    // Its group has the same number.
    connect(4_243).unwrap();
    assert!(hosts.wharf(&["stats"]).status.success());
}

/// Another mount namespace may have another /run.
#[test]
fn with_other_mounts_a_wharf_is_seen_but_not_reached() {
    if !only_root() || !have(&["unshare"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Packet).up() else { return };
    for words in ["stats", "set lro.enable true", "stats --host host0"] {
        let line = format!("mount -t tmpfs none /run && exec \"$1\" {words}");
        refused(&with_other_mounts(&up.hosts.server, &line), "mount namespace");
    }
    // Nor may it have the same wire there, where it cannot see the lock.
    for way in ["mount -t tmpfs none /run", "mount -t tmpfs -o ro none /run"] {
        let line = format!("{way} && exec \"$1\" up --wire {WIRE} --host other0");
        let ended = with_other_mounts(&up.hosts.server, &line);
        refused(&ended, "already");
    }
}

/// Where /run cannot be written to, the socket has an abstract name, and a word is said of it.
#[test]
fn without_run_the_name_is_an_abstract_one() {
    if !only_root() || !have(&["unshare"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let line = format!(
        "mount -t tmpfs -o ro none /run && exec \"$1\" up --wire {WIRE} --host {HOST} \
         --set wire.mode=packet"
    );
    let program = wharf().get_program().to_owned();
    let words = ["--mount", "sh", "-c", &line, "sh"];
    let mut wharf = hosts.server.spawn(Command::new("unshare").args(words).arg(program));
    wharf.line_with("up: ");
    assert!(wait_until(|| wharf.errors().contains("abstract")), "{}", wharf.errors());
    let stats = hosts.wharf(&["stats"]);
    assert!(stats.status.success(), "{stats}");
    refused(&hosts.wharf(&["up", "--wire", WIRE, "--host", "other0"]), "already");
}

/// degen's name has a colon, and an interface's may have any byte that is no space.
#[test]
fn names_of_odd_bytes_are_found_again_and_shown_escaped() {
    if !only_root() || !have(&["ip"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let odd = "n\u{1b}[7m\u{9b}7m";
    let mut wharf = hosts.server.spawn(wharf().args(["up", "--wire", WIRE, "--host", odd]));
    wharf.line_with("up: ");
    let stats = hosts.wharf(&["stats"]);
    assert!(stats.status.success(), "{stats}");
    assert!(stats.stdout.contains("host n\\u{1b}[7m\\u{9b}7m;"), "{stats}");
    for words in [&["stats", "--json"][..], &["set"], &["stats", "--host", odd, "--all"]] {
        let ended = hosts.wharf(words);
        assert!(ended.status.success(), "{ended}");
        assert!(!ended.stdout.contains(['\x1b', '\u{9b}']), "{ended}");
    }
    let ended = hosts.wharf(&["stats", "--host", "nic\u{202e}\u{9b}"]);
    refused(&ended, "nic\\u{202e}\\u{9b}");
}
