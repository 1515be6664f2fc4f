//! The network of the guest: a wire (tap) to a network namespace of this command's own, so that it needs no root and that
//! any port of either side can be reached. TCP's segments come as they were sent.

use std::process::Command;

use crate::process::{ends_with_this, run, works};

/// This side's end of the wire.
pub(super) const TAP: &str = "guest0";
/// This side's address.
pub(super) const HERE: &str = "10.0.2.2";
/// The guest's.
pub(super) const GUEST: &str = "10.0.2.15";
/// In its user namespace this user is root, which may make interfaces.
const NAMESPACES: [&str; 3] = ["--user", "--map-root-user", "--net"];

/// Why there can be no such network, if so.
pub(super) fn lacks() -> Option<String> {
    let make = format!("ip tuntap add {TAP} mode tap");
    let words: Vec<&str> = NAMESPACES.into_iter().chain(["sh", "-c", &make]).collect();
    (!works("unshare", &words)).then(|| {
        "it needs user namespaces, network namespaces and /dev/net/tun, which this user may not use"
            .to_owned()
    })
}

/// Runs this command again, with these arguments, in namespaces of its own.
pub(super) fn inside(arguments: &[&str]) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    // unshare(1) becomes what it runs.
    run(ends_with_this("unshare").args(NAMESPACES).arg(own).args(arguments))
}

/// Makes this side's end of the wire. The namespace's end is the wire's.
pub(super) fn make() -> Result<(), String> {
    let address = format!("{HERE}/24");
    let calls: [&[&str]; 4] = [
        &["link", "set", "lo", "up"],
        &["tuntap", "add", TAP, "mode", "tap"],
        &["address", "add", &address, "dev", TAP],
        &["link", "set", TAP, "up"],
    ];
    calls.iter().try_for_each(|words| run(Command::new("ip").args(*words)))
}
