//! What cannot be is refused: one line that says what to do, exit status 2, nothing left behind.

use std::fs;
use std::process::Command;

use sys::process::Signal;
use testkit::lab::{Ended, Wire, have, wait_until};

use super::setup::{HOST, Hosts, Ip, Plan, Port, WIRE, give, ping, wharf};

fn is_refusal(ended: &Ended, part: &str) {
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
    assert_eq!(ended.stdout, "", "{ended}");
}

/// The server's interfaces and their addresses, without what the kernel makes by itself.
fn interfaces(hosts: &Hosts) -> (Vec<String>, String) {
    let all = hosts.server.run(sys::interface::list).unwrap();
    let names = all.into_iter().map(|interface| interface.name).collect();
    (names, hosts.ip("-o address show scope global"))
}

/// A host interface whose name is taken, by another wharf or by anything else.
#[test]
fn a_second_wharf_leaves_the_first_alone() {
    if !have(&["ip"]) {
        return;
    }
    for port in Port::EACH {
        let Some(mut up) = Plan::new(port).up() else { continue };
        Wire { near: "wire1", far: "peer1", mtu: 1500, queues: 1, offloads: true }
            .lay(&up.hosts.server, &up.hosts.client);
        let before = interfaces(&up.hosts);
        for (wire, host) in [(WIRE, HOST), ("wire1", HOST), ("wire1", WIRE)] {
            let ended = up.hosts.wharf(&["up", "--wire", wire, "--host", host]);
            is_refusal(&ended, host);
            assert_eq!(interfaces(&up.hosts), before);
        }
        for ip in Ip::BOTH {
            ping(&up.hosts.client, ip.server(), &[]);
        }
        assert!(up.wharf.runs());
    }
}

#[test]
fn a_wire_that_cannot_be_one_is_refused() {
    if !have(&["ip"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let before = interfaces(&hosts);
    let up = |wire, host| hosts.wharf(&["up", "--wire", wire, "--host", host]);
    is_refusal(&up("nowhere0", HOST), WIRE);
    is_refusal(&up("lo", HOST), "Ethernet");
    is_refusal(&up(WIRE, "a-name-too-long-for-linux"), "a-name-too-long-for-linux");
    is_refusal(&up(WIRE, "a/b"), "a/b");
    is_refusal(&up(WIRE, ""), "");
    assert_eq!(interfaces(&hosts), before);
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
}

/// What is sent to addresses that stay on the wire would be lost, with `rp_filter=1` without a word.
#[test]
fn a_wire_whose_addresses_would_stay_is_refused() {
    if !have(&["ip", "ping"]) {
        return;
    }
    for ip in Ip::BOTH {
        let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
        hosts.ip(&format!("address add fe80::7/64 dev {WIRE} nodad"));
        give(&hosts.server, WIRE, &[ip], Ip::server);
        let before = interfaces(&hosts);
        let ended = hosts.wharf(&["up", "--wire", WIRE, "--host", HOST]);
        let address = ip.server().to_string();
        for part in [WIRE, &address, "--take-addresses", &format!("ip address flush dev {WIRE}")] {
            is_refusal(&ended, part);
        }
        assert_eq!(interfaces(&hosts), before);
        assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
        // Either way that the line names.
        let is_reached = || {
            let mut ping = Command::new("ping");
            let ping = ping.args(["-n", "-c", "1", "-W", "2", &address]);
            hosts.client.output(ping).status.success()
        };
        let wharf = hosts.wharf_up(&["--take-addresses"]);
        assert!(wait_until(is_reached), "{address}");
        wharf.signal(Signal::Interrupt);
        assert!(wharf.wait().status.success());
        hosts.ip(&format!("address flush dev {WIRE}"));
        // Every interface has some of these.
        hosts.ip(&format!("address add fe80::7/64 dev {WIRE} nodad"));
        let _wharf = hosts.wharf_up(&[]);
        give(&hosts.server, HOST, &[ip], Ip::server);
        assert!(wait_until(is_reached), "{address}");
    }
}

#[test]
fn a_wrong_configuration_is_refused() {
    if !have(&["ip"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let before = interfaces(&hosts);
    let file = std::env::temp_dir().join(format!("wharf-e2e-{}.toml", std::process::id()));
    let place = file.display().to_string();
    let up = ["up", "--wire", WIRE, "--host", HOST, "--config", &place];
    for (content, part) in [
        ("lro = {", "1"),
        ("[lro]\nno_such_key = 1\n", "no_such_key"),
        ("[lro]\nmax_aggregate = 12\n", "65535"),
        ("[lro]\nenable = \"maybe\"\n", "true or false"),
        // What only shows the papers is for benches.
        ("[lro]\nactive_ack = \"paper\"\n", "off or safe"),
        ("[host]\nscheduler = \"lifo\"\n", "unknown key `host.scheduler`"),
    ] {
        fs::write(&file, content).unwrap();
        is_refusal(&hosts.wharf(&up), part);
    }
    fs::remove_file(&file).unwrap();
    is_refusal(&hosts.wharf(&up), &place);
    assert_eq!(interfaces(&hosts), before);
}

#[test]
fn without_privilege_up_says_what_it_needs() {
    if !have(&["ip", "setpriv"]) || !sys::process::has_bpf() {
        eprintln!("skipped unless root: it gives its privilege up");
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    let before = interfaces(&hosts);
    let Some(program) = super::demo::for_everyone() else { return };
    let mut command = super::demo::as_nobody(program.path());
    let ended = hosts.server.output(command.args(["up", "--wire", WIRE, "--host", HOST]));
    is_refusal(&ended, "root");
    assert_eq!(interfaces(&hosts), before);
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
}

#[test]
fn stats_and_set_say_that_no_wharf_runs() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    for words in [&["stats"][..], &["set"], &["set", "lro.enable", "true"]] {
        is_refusal(&hosts.server.output(wharf().args(words)), "wharf up");
    }
}
