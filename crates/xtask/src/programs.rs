//! The programs that the end-to-end tests run, from the distribution's packages.

use std::process::Command;

use crate::cargo::may_lack;
use crate::outcome::Outcome;
use crate::process::{is_installed, is_root, run};
use crate::tree::Tree;

/// A program and the Debian package that has it.
const PROGRAMS: [(&str, &str); 15] = [
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("ethtool", "ethtool"),
    ("curl", "curl"),
    ("nc", "netcat-openbsd"),
    ("sha256sum", "coreutils"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("chromium", "chromium"),
    ("dnsmasq", "dnsmasq-base"),
    ("dhclient", "isc-dhcp-client"),
    ("radvd", "radvd"),
    ("busybox", "busybox"),
    ("python3", "python3-minimal"),
];

/// Installs what is missing, when root on a system with apt; fails by its name otherwise.
pub(crate) fn install(_: &Tree) -> Outcome {
    let missing = missing();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let names = names.join(", ");
    if !is_root() || !is_installed("apt-get") {
        let how = format!("apt-get install {}", packages.join(" "));
        let why = format!("what needs {names}, not installed here: as root, `{how}`");
        return if may_lack() { Ok(vec![why]) } else { Err(why) };
    }
    println!("    installing {}", packages.join(" "));
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get")
            .arg("-qq")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], &packages[..]].concat())?;
    Ok(Vec::new())
}

fn missing() -> Vec<(&'static str, &'static str)> {
    PROGRAMS.into_iter().filter(|(program, _)| !is_installed(program)).collect()
}
