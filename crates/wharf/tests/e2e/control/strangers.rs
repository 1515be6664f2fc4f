//! Ordinary users of the same network namespace: what they take, say or hold is no harm to root.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;

use testkit::lab::{Host, wait_until};

use super::{only_root, socket};
use crate::setup::{HOST, Plan, Port, WIRE};

/// Some ordinary user.
const STRANGER: u32 = 4_242;
/// Escapes for a terminal, of C0 and of C1, and an override of the direction of text.
const ESCAPES: &str = "\x1b[2J\u{9b}31m\u{202e}";

/// Does something on a host as an ordinary user.
fn as_stranger<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    host.run(|| sys::process::run_as(STRANGER, work)).unwrap()
}

fn take(host: &Host, name: &[u8]) -> UnixListener {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    as_stranger(host, || UnixListener::bind_addr(&address)).unwrap()
}

/// Answers each client with what is meant to harm it.
fn answer(listener: UnixListener) {
    thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let line = format!("{{\"error\":\"{ESCAPES}pwned\"}}\n");
            let _ = client.write_all(line.as_bytes());
            let _ = client.read(&mut [0; 64]);
        }
    });
}

#[test]
fn names_that_are_taken_first_keep_root_from_nothing() {
    if !only_root() {
        return;
    }
    for port in Port::EACH {
        let Some(hosts) = Plan::new(port).hosts() else { continue };
        let index = hosts.server.run(|| sys::interface::index(WIRE)).unwrap();
        let _wire = take(&hosts.server, format!("wharf-wire/{index}").as_bytes());
        answer(take(&hosts.server, format!("wharf/{HOST}").as_bytes()));
        // Names that are no text, and one that makes a line of its own in the list.
        let _odd = take(&hosts.server, b"wharf/\xff\x1b[2J");
        let _line = take(&hosts.server, b"wharf/x\n0: 0 0 00010000 1 1 1 @wharf/y");
        answer(take(&hosts.server, b"wharf/other"));

        let _up = hosts.wharf_up(&[]);
        let set = hosts.wharf(&["set", "lro.enable", "false"]);
        assert!(set.status.success() && set.stderr.is_empty(), "{set}");
        let stats = hosts.wharf(&["stats"]);
        assert!(stats.status.success() && stats.stdout.starts_with("host host0;"), "{stats}");
        // The wire is taken for root, too.
        let second = hosts.wharf(&["up", "--wire", WIRE, "--host", "other1"]);
        assert_eq!(second.status.code(), Some(2), "{second}");
        assert!(second.stderr.contains("already"), "{second}");
    }
}

#[test]
fn who_passes_for_a_wharf_is_told_of_and_not_believed() {
    if !only_root() {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    answer(take(&hosts.server, format!("wharf/{HOST}").as_bytes()));
    for words in [&["stats"][..], &["stats", "--host", HOST], &["set", "lro.enable", "true"]] {
        let ended = hosts.wharf(words);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert_eq!((ended.stderr.lines().count(), &*ended.stdout), (1, ""), "{ended}");
        assert!(ended.stderr.contains("user 4242"), "{ended}");
        assert!(!ended.stderr.contains("pwned") && !ended.stderr.contains('\x1b'), "{ended}");
    }
}

#[test]
fn ordinary_users_cannot_hold_all_places() {
    if !only_root() {
        return;
    }
    let Some(up) = Plan::new(Port::Packet).up() else { return };
    let path = socket(&up.hosts.server, HOST);
    let mut crowd: Vec<UnixStream> = as_stranger(&up.hosts.server, || {
        (0..80).map(|_| UnixStream::connect(&path).unwrap()).collect()
    });
    // The last of them has been told that there is no place.
    let mut told = String::new();
    crowd.last_mut().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("too many"), "{told}");
    let stats = up.hosts.wharf(&["stats"]);
    assert!(stats.status.success(), "{stats}");
    let set = up.hosts.wharf(&["set", "lro.enable", "false"]);
    assert!(set.status.success(), "{set}");
    // What ordinary users may not do is as it was.
    drop(crowd);
    let asked = wait_until(|| {
        let mut one = as_stranger(&up.hosts.server, || UnixStream::connect(&path)).unwrap();
        let mut answer = String::new();
        // There may be no place yet; then it is told so, and not heard.
        let _ = one.write_all(b"{\"set\":{\"lro.enable\":true}}\n");
        let _ = one.shutdown(std::net::Shutdown::Write);
        let _ = one.read_to_string(&mut answer);
        assert!(!answer.contains("\"ok\""), "{answer}");
        answer.contains("only root")
    });
    assert!(asked, "there is no answer");
}
