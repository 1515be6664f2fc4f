//! `wharf doctor`: what this machine can do, found out by doing it.
//!
//! Whatever is made for it is made in an anonymous network namespace, which ends with this
//! process, however it ends.

mod handoff;
mod offloads;

use std::fs;
use std::io;

use clap::Args;
use nic::port::hardware::Hardware;
use serde_json::json;
use sys::ethtool::Ethtool;
use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::{self, Namespace};
use sys::packet::PacketSocket;
use sys::tap::{Offloads, Tap, TapError};
use sys::xdp::{Mode, Redirect, XdpSocket};
use sys::{affinity, packet, process, xdp};

use crate::error::Error;
use crate::print;
use crate::table::{Align, Table};

/// Find out what this machine can do, and what to do about what is missing
///
/// Tries each thing that wharf uses, in network namespaces of its own, which leave nothing
/// behind.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  wharf doctor")]
pub(crate) struct DoctorArgs {
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Error> {
    let findings = examine();
    if args.json {
        let lines = findings.iter().map(|finding| {
            json!({
                "check": finding.check,
                "status": finding.status.name(),
                "found": finding.found,
                "advice": finding.advice,
            })
            .to_string()
                + "\n"
        });
        return print(lines.collect::<String>());
    }
    let mut table = Table::new(&[Align::Left; 3]);
    for finding in &findings {
        table.row([&finding.check, finding.status.name(), &finding.found]);
        if !finding.advice.is_empty() {
            table.line(format!("    -> {}", finding.advice));
        }
    }
    print(table.to_string())
}

/// How it stands with one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Ok,
    Limited,
    Missing,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Missing => "missing",
        }
    }
}

/// What one check found, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    check: String,
    status: Status,
    found: String,
    advice: String,
}

impl Finding {
    fn new(check: impl Into<String>, status: Status, found: impl Into<String>) -> Finding {
        Finding { check: check.into(), status, found: found.into(), advice: String::new() }
    }

    fn ok(check: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding::new(check, Status::Ok, found)
    }

    fn limited(check: &str, found: impl Into<String>, advice: &str) -> Finding {
        Finding { advice: advice.to_owned(), ..Finding::new(check, Status::Limited, found) }
    }

    fn missing(check: &str, found: impl Into<String>, advice: &str) -> Finding {
        Finding { advice: advice.to_owned(), ..Finding::new(check, Status::Missing, found) }
    }
}

const AS_ROOT: &str = "run as root; as an ordinary user wharf works in user namespaces of its own";

/// All checks. First those of the machine as it is; the last ones move an ordinary user's process
/// to a namespace where it may try things.
fn examine() -> Vec<Finding> {
    let mut findings = vec![kernel(), cpus(), privilege(), perf(), tun_device()];
    findings.extend(wires());
    findings.extend(handoff::examine(release().trim()));
    let privileged = process::has_net_admin();
    let user_namespace = if privileged { Ok(()) } else { netns::unshare_user_net() };
    findings.push(user_namespaces(privileged, &user_namespace));
    match user_namespace.and_then(|()| Namespace::new()) {
        Ok(namespace) => match namespace.run(try_all) {
            Ok(tried) => findings.extend(tried),
            Err(error) => findings.push(no_laboratory(&error)),
        },
        Err(error) => findings.push(no_laboratory(&error)),
    }
    findings
}

/// Nothing can be tried.
fn no_laboratory(error: &sys::Error) -> Finding {
    Finding::missing("network namespace", format!("{error}; nothing else can be tried"), AS_ROOT)
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

fn kernel() -> Finding {
    let release = release();
    let release = release.trim();
    let check = "kernel";
    match version(release) {
        None => Finding::limited(check, release, "wharf knows Linux 5.9 and later"),
        Some(version) if version < (5, 9) => {
            let advice = "XDP by bpf_link came with 5.9; wire.mode = \"packet\" works without";
            Finding::limited(check, release, advice)
        }
        Some(version) if version < (6, 2) => {
            let advice = "UDP segmentation on a TAP (USO) came with 6.2; TCP is not concerned";
            Finding::limited(check, release, advice)
        }
        Some(_) => Finding::ok(check, release),
    }
}

/// Major and minor of "6.18.5-amd64".
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn cpus() -> Finding {
    match affinity::count() {
        1 => {
            let advice = "wharf's worker and the applications share it; two or more serve better";
            Finding::limited("processors", "1", advice)
        }
        count => Finding::ok("processors", count.to_string()),
    }
}

fn privilege() -> Finding {
    let check = "privilege";
    match (process::has_net_admin(), process::has_bpf()) {
        (true, true) => Finding::ok(check, "CAP_NET_ADMIN and CAP_BPF"),
        (true, false) => {
            let advice = "AF_XDP needs CAP_BPF in the first user namespace: run as root";
            Finding::limited(check, "CAP_NET_ADMIN, no CAP_BPF", advice)
        }
        (false, _) => Finding::limited(
            check,
            "an ordinary user",
            "`wharf demo` works; `wharf up` on this machine's own interfaces needs root",
        ),
    }
}

/// For users who want to see with perf(1) where the time goes.
fn perf() -> Finding {
    let check = "perf counters";
    let Ok(paranoid) = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid") else {
        let advice = "only `perf` needs them; the kernel was built without CONFIG_PERF_EVENTS";
        return Finding::missing(check, "no perf events", advice);
    };
    let level: i32 = paranoid.trim().parse().unwrap_or(2);
    let found = format!("perf_event_paranoid is {level}");
    let has_hardware = fs::read_dir("/sys/bus/event_source/devices").is_ok_and(|mut devices| {
        devices
            .any(|device| device.is_ok_and(|d| d.file_name().to_string_lossy().starts_with("cpu")))
    });
    if !has_hardware {
        let advice = "a virtual machine without a PMU; `perf record -e cpu-clock` still works";
        Finding::limited(check, format!("{found}, no hardware counters"), advice)
    } else if level > 1 && !process::is_root() {
        Finding::limited(check, found, "as root: sysctl kernel.perf_event_paranoid=1")
    } else {
        Finding::ok(check, found)
    }
}

fn tun_device() -> Finding {
    use std::os::unix::fs::MetadataExt;
    let check = "/dev/net/tun";
    match fs::metadata(check) {
        Err(_) => Finding::missing(check, "there is none", &TapError::NoDevice.to_string()),
        Ok(_) if fs::OpenOptions::new().read(true).write(true).open(check).is_err() => {
            Finding::missing(check, "may not be opened", &TapError::DevicePermission.to_string())
        }
        Ok(metadata) if metadata.mode() & 0o006 != 0o006 => {
            let found = format!("mode {:o}", metadata.mode() & 0o777);
            Finding::limited(check, found, "only root may use it; chmod 0666 lets others, too")
        }
        Ok(_) => Finding::ok(check, "open to everyone"),
    }
}

/// The interfaces that wharf could stand on. Nothing is tried on them.
fn wires() -> Vec<Finding> {
    let Ok(mut interfaces) = interface::list() else { return Vec::new() };
    interfaces.retain(|interface| interface.ethernet);
    if interfaces.is_empty() {
        let advice = "`wharf up` needs one; `wharf demo` makes its own";
        return vec![Finding::limited("Ethernet interface", "none here", advice)];
    }
    let describe = |interface: &Interface| {
        let driver = Ethtool::open(&interface.name).and_then(|ethtool| ethtool.driver());
        let driver = driver.unwrap_or_else(|_| interface.kind.clone().unwrap_or_default());
        let queues = interface.rx_queues;
        let s = if queues == 1 { "" } else { "s" };
        let mut found = format!("{driver}, {queues} receive queue{s}, MTU {}", interface.mtu);
        let hardware = Hardware::read(&interface.name);
        for (cuts, what) in
            [(hardware.tcp4, ", TSO4"), (hardware.tcp6, ", TSO6"), (hardware.uso, ", USO")]
        {
            found.push_str(if cuts { what } else { "" });
        }
        let check = format!("interface {}", interface.name);
        if interface.up { Finding::ok(check, found) } else { Finding::ok(check, found + ", down") }
    };
    interfaces.iter().map(describe).collect()
}

fn user_namespaces(privileged: bool, made: &sys::Result<()>) -> Finding {
    let check = "user namespaces";
    let advice = "lets ordinary users run `wharf demo`";
    match (privileged, made) {
        (false, Ok(())) => Finding::ok(check, "for ordinary users"),
        (false, Err(error)) => {
            let advice = obstacle().map_or_else(|| AS_ROOT.to_owned(), |o| format!("as root: {o}"));
            Finding::missing(check, error.to_string(), &advice)
        }
        (true, _) => match obstacle() {
            None => Finding::ok(check, "for ordinary users"),
            Some(obstacle) => {
                Finding::limited(check, "not for ordinary users", &format!("{obstacle} {advice}"))
            }
        },
    }
}

/// The setting that keeps ordinary users from making user namespaces, as the command that changes
/// it. The second is Debian's, the third Ubuntu's.
fn obstacle() -> Option<&'static str> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    if number("/proc/sys/user/max_user_namespaces") == Some(0) {
        Some("sysctl user.max_user_namespaces=15000")
    } else if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        Some("sysctl kernel.unprivileged_userns_clone=1")
    } else if number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        Some("sysctl kernel.apparmor_restrict_unprivileged_userns=0")
    } else {
        None
    }
}

/// What is tried in a namespace of our own.
fn try_all() -> Vec<Finding> {
    let mut findings = vec![tap(), tap_queues()];
    findings.extend(offloads::tap());
    findings.push(handoff::try_repair());
    match veth() {
        Ok(ifindex) => {
            findings.push(Finding::ok("veth pair", "made"));
            findings.push(af_packet(ifindex));
            findings.push(xdp_program(ifindex, Mode::Native));
            findings.push(xdp_program(ifindex, Mode::Generic));
            findings.push(af_xdp(ifindex));
            findings.extend(offloads::veth());
        }
        Err(error) => findings.push(Finding::missing(
            "veth pair",
            error.to_string(),
            "`wharf demo` needs it: modprobe veth",
        )),
    }
    findings
}

/// A TAP, and what its kernel leaves to the reader.
fn tap() -> Finding {
    let check = "TAP with vnet_hdr";
    let tried = Tap::create("doctor%d", 1).and_then(|tap| tap.set_offload(Offloads::ALL));
    match tried {
        Ok(taken) if taken == Offloads::ALL => Finding::ok(check, names(taken)),
        Ok(taken) => {
            let advice = "what is missing came with later kernels (USO: 6.2, UDP tunnels: 6.17); the rest works";
            Finding::limited(check, names(taken), advice)
        }
        Err(error) => without_tap(check, &error),
    }
}

/// The first of a list, and how many more there are.
fn some(all: &[String]) -> String {
    const SHOWN: usize = 3;
    let more = all.len().saturating_sub(SHOWN);
    let first = all[..all.len().min(SHOWN)].join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

fn names(offloads: Offloads) -> String {
    let all = [
        (offloads.csum, "CSUM"),
        (offloads.tso4, "TSO4"),
        (offloads.tso6, "TSO6"),
        (offloads.tso_ecn, "TSO_ECN"),
        (offloads.uso4, "USO4"),
        (offloads.uso6, "USO6"),
        (offloads.udp_tunnel, "UDP_TUNNEL_GSO"),
    ];
    let on: Vec<&str> = all.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
    if on.is_empty() { "no offloads".to_owned() } else { on.join(", ") }
}

fn tap_queues() -> Finding {
    let check = "multi-queue TAP";
    match Tap::create("doctor%d", 2) {
        Ok(_) => Finding::ok(check, "a queue for each worker"),
        Err(error) => without_tap(check, &error),
    }
}

fn without_tap(check: &str, error: &TapError) -> Finding {
    let advice = "until then wharf uses a veth pair and AF_PACKET (host.kind = \"veth\")";
    Finding::missing(check, error.to_string(), advice)
}

/// A pair to try things on; the index of the end that is up.
fn veth() -> sys::Result<u32> {
    create_veth(&VethEnd::new("doctor-a"), &VethEnd::new("doctor-b"))?;
    interface::set_up("doctor-a")?;
    interface::set_up("doctor-b")?;
    interface::index("doctor-a")
}

fn af_packet(ifindex: u32) -> Finding {
    let check = "AF_PACKET with vnet_hdr";
    match PacketSocket::open(ifindex, packet::Config::default()) {
        Ok(_) => Finding::ok(check, "opened"),
        Err(error) => Finding::missing(check, error.to_string(), "wharf needs CAP_NET_RAW"),
    }
}

fn xdp_program(ifindex: u32, mode: Mode) -> Finding {
    let (check, found) = match mode {
        Mode::Native => ("XDP native", "on a veth; a card's driver must know it, too"),
        Mode::Generic | Mode::Auto => ("XDP generic", "on any interface"),
    };
    match Redirect::attach(ifindex, mode) {
        Ok(_) => Finding::ok(check, found),
        Err(error) => {
            let advice = if error.is_permission() {
                "run as root; without it wharf uses AF_PACKET"
            } else {
                "wharf uses AF_PACKET (wire.mode = \"packet\")"
            };
            Finding::missing(check, error.to_string(), advice)
        }
    }
}

fn af_xdp(ifindex: u32) -> Finding {
    let check = "AF_XDP";
    let tried = || -> io::Result<bool> {
        let mut redirect = Redirect::attach(ifindex, Mode::Auto)?;
        let pool = FramePool::new(256, 2048)?;
        let sizes = xdp::Config {
            rx_size: 64,
            tx_size: 64,
            fill_size: 64,
            completion_size: 64,
            ..xdp::Config::default()
        };
        let socket = XdpSocket::open(ifindex, 0, &pool, sizes)?;
        redirect.set(&socket)?;
        Ok(socket.zero_copy())
    };
    match tried() {
        Ok(true) => Finding::ok(check, "zero-copy"),
        Ok(false) => Finding::ok(check, "copy on a veth; zero-copy is up to a card's driver"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::missing(
            check,
            error.to_string(),
            "run as root; without it wharf uses AF_PACKET",
        ),
        Err(error) => {
            let advice =
                "wharf uses AF_PACKET (wire.mode = \"packet\"); CONFIG_XDP_SOCKETS brings it";
            Finding::missing(check, error.to_string(), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_read() {
        assert_eq!(version("6.18.5"), Some((6, 18)));
        assert_eq!(version("5.9-rc1-amd64"), Some((5, 9)));
        assert_eq!(version("odd"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn a_long_list_is_cut() {
        let all: Vec<String> = (0..5).map(|at| at.to_string()).collect();
        assert_eq!([1, 3, 5].map(|len| some(&all[..len])), ["0", "0, 1, 2", "0, 1, 2 and 2 more"]);
    }

    #[test]
    fn offloads_have_the_kernels_names() {
        assert_eq!(names(Offloads::ALL), "CSUM, TSO4, TSO6, TSO_ECN, USO4, USO6, UDP_TUNNEL_GSO");
        assert_eq!(names(Offloads::NONE), "no offloads");
    }
}
