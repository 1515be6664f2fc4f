//! What connection handoff needs, and what keeps connections with the kernel.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;

use nic::control::{self, Client};
use sys::netlink::{Connection, Protocol, nftables, traffic, xfrm};
use sys::tcp::{namespace_of, repair};
use sys::{Versions, bpf, interface, xtables};

use super::{Finding, some, version};
use crate::loaded::library::handoff_library;
use crate::units::time;

/// What is the same for all wharfs of this network namespace.
const HERE: &str = "this network namespace";
const STAY: &str = "connections that it sees stay with the kernel";
const BYPASS: &str = "set handoff.bypass_firewall=true where it need not see packets of connections that are \
                      established, or take the rules away";
const TO_LOOK: &str = "run as root, to look";

/// All of it, of the machine as it is; what is tried is in [`try_repair`].
pub(super) fn examine(release: &str) -> Vec<Finding> {
    let mut findings = vec![kernel(release), the_library()];
    let hosts = control::running().unwrap_or_default();
    let is_interface = |host: &&String| interface::index(host).is_ok();
    let hosts: Vec<String> = hosts.iter().filter(is_interface).cloned().collect();
    for host in &hosts {
        findings.extend(of_wharf(host));
    }
    if hosts.is_empty() {
        findings.push(firewall(HERE, None));
    }
    findings.extend([ipsec(), conntrack(), control_groups()]);
    findings
}

fn kernel(release: &str) -> Finding {
    let check = "handoff: kernel";
    let cookie = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(namespace_of);
    match (cookie, version(release)) {
        (Err(error), _) => Finding::missing(
            check,
            format!("no network namespaces of sockets: {error}"),
            "`wharf run` needs Linux 5.14 or later (SO_NETNS_COOKIE)",
        ),
        (_, Some(version)) if version < (5, 16) => Finding::limited(
            check,
            release,
            "calls that wait are interrupted by each signal (EINTR) before 5.16 (futex_waitv)",
        ),
        (_, Some(version)) if version < (6, 15) => Finding::limited(
            check,
            release,
            "before 6.15 a connection may stand still for up to 3 s after a kill -9 of wharf",
        ),
        _ => Finding::ok(check, release),
    }
}

fn the_library() -> Finding {
    let check = "handoff: libwharf.so";
    match handoff_library() {
        Ok(path) => Finding::ok(check, path.display().to_string()),
        Err(error) => Finding::missing(
            check,
            error.to_string(),
            "`wharf run` loads it into programs; nothing else needs it",
        ),
    }
}

/// A wharf that runs here: whether it takes connections over, and who sees their packets on its host interface.
fn of_wharf(host: &str) -> Vec<Finding> {
    let check = format!("handoff: wharf of {host}");
    let mut client = match Client::connect(Some(host)) {
        Ok(client) => client,
        Err(error) => return vec![Finding::limited(&check, error.to_string(), TO_LOOK)],
    };
    let takes = client.stats().is_ok_and(|stats| stats["handoff"].is_string());
    let bypasses = client
        .get(Some("handoff.bypass_firewall"))
        .is_ok_and(|values| matches!(values.as_slice(), [(_, value)] if value == "true"));
    let own = match takes {
        true => Finding::ok(check, "takes connections over"),
        false => {
            Finding::limited(&check, "takes no connections over", "it needs handoff.connections")
        }
    };
    if bypasses {
        let found = "not asked (handoff.bypass_firewall)";
        return vec![own, Finding::ok(format!("handoff: firewall of {host}"), found)];
    }
    vec![own, firewall(host, Some(host)), traffic_control(host)]
}

/// The firewall, of a host's interface or of any.
fn firewall(whose: &str, name: Option<&str>) -> Finding {
    let check = format!("handoff: firewall of {whose}");
    let looked = || -> sys::Result<Vec<String>> {
        let mut netlink = match Connection::open(Protocol::Netfilter) {
            Ok(netlink) => netlink,
            Err(_) => return Ok(Vec::new()),
        };
        let chains = nftables::chains(&mut netlink)?;
        // Chains at the hook of an interface are at one that is there.
        let sees = |chain: &&nftables::Chain| chain.sees(name.unwrap_or("")) != Versions::NONE;
        let of_nftables = chains.iter().filter(sees);
        let mut all: Vec<String> =
            of_nftables.map(|chain| format!("{} {}", chain.table, chain.name)).collect();
        if xtables::sees()? != Versions::NONE {
            all.push("iptables as before nftables".to_owned());
        }
        Ok(all)
    };
    match looked() {
        Ok(all) if all.is_empty() => {
            Finding::ok(check, "no rules for what this machine sends or receives")
        }
        Ok(all) => Finding::limited(
            &check,
            format!("sees packets: {}", some(&all)),
            &format!("{STAY}: {BYPASS}"),
        ),
        Err(error) => Finding::limited(&check, error.to_string(), TO_LOOK),
    }
}

fn traffic_control(host: &str) -> Finding {
    let check = format!("handoff: tc and XDP of {host}");
    let looked = || -> sys::Result<Vec<&str>> {
        let index = interface::index(host)?;
        let mut route = Connection::open(Protocol::Route)
            .map_err(|error| sys::Error::new("ask the kernel", error))?;
        let linked = match bpf::at_interface(index) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
            linked => linked.map_err(|error| sys::Error::new("look for BPF programs", error))?,
        };
        let found = [
            (
                traffic::decides(&mut route, index)?,
                "tc, by a filter or a discipline that does more than queue",
            ),
            (traffic::has_xdp(&mut route, index)?, "an XDP program"),
            (linked, "a BPF program (tcx)"),
        ];
        Ok(found.into_iter().filter_map(|(is_there, what)| is_there.then_some(what)).collect())
    };
    match looked() {
        Ok(all) if all.is_empty() => Finding::ok(check, "none that sees packets"),
        Ok(all) => Finding::limited(&check, all.join(", "), &format!("{STAY}: {BYPASS}")),
        Err(error) => Finding::limited(&check, error.to_string(), TO_LOOK),
    }
}

fn ipsec() -> Finding {
    let check = "handoff: IPsec";
    let listed = Connection::open(Protocol::Xfrm).map(|mut netlink| xfrm::policies(&mut netlink));
    match listed {
        Ok(Ok(all)) if all.is_empty() => Finding::ok(check, "no policies"),
        Ok(Ok(all)) => Finding::limited(
            check,
            format!("policies: {}", all.len()),
            "connections to which one may apply stay with the kernel (ip xfrm policy)",
        ),
        Ok(Err(error)) => Finding::limited(check, error.to_string(), TO_LOOK),
        // Not in this kernel.
        Err(_) => Finding::ok(check, "none"),
    }
}

fn conntrack() -> Finding {
    let check = "handoff: conntrack";
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    match count.map(|count| count.trim().to_owned()) {
        Err(_) => Finding::ok(check, "not in use"),
        Ok(count) if count == "0" => Finding::ok(check, "follows no connection"),
        Ok(count) => Finding::ok(
            check,
            format!(
                "follows {count} connections; those that it translates, or whose payload a helper reads, stay with the kernel"
            ),
        ),
    }
}

/// Those of this process: a program of another has others.
fn control_groups() -> Finding {
    let check = "handoff: BPF of control groups";
    let looked = || -> io::Result<bool> {
        let Some(tree) = bpf::Groups::find()? else { return Ok(false) };
        match tree.of_process(std::process::id())? {
            Some(group) => bpf::at_group(group.as_fd()),
            None => Ok(false),
        }
    };
    match looked() {
        Ok(false) => Finding::ok(check, "none that sees packets, of this shell's group"),
        Ok(true) => Finding::limited(
            check,
            "programs see packets, or follow connections, of this shell's group",
            "connections of its programs stay with the kernel (bpftool cgroup tree); start them in another group",
        ),
        Err(error) => Finding::limited(check, error.to_string(), TO_LOOK),
    }
}

/// A connection is taken out of the kernel and put back, in a network namespace of our own.
pub(super) fn try_repair() -> Finding {
    let check = "handoff: TCP_REPAIR";
    let tried = || -> io::Result<u64> {
        interface::set_up("lo").map_err(io::Error::other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let mut far = listener.accept()?.0;
        let begun = Instant::now();
        let parts = repair::take(&near)?;
        repair::put_back(&near, &parts)?;
        let took = begun.elapsed().as_nanos() as u64;
        near.write_all(b"x")?;
        far.read_exact(&mut [0])?;
        Ok(took)
    };
    match tried() {
        Ok(took) => Finding::ok(
            check,
            format!("a connection left the kernel and came back in {}", time(took)),
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::missing(check, error.to_string(), "wharf needs CAP_NET_ADMIN: run it as root")
        }
        Err(error) => Finding::missing(
            check,
            error.to_string(),
            "`wharf run` needs a kernel with CONFIG_CHECKPOINT_RESTORE",
        ),
    }
}
