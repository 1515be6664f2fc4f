//! Addresses that are renewed on the wire stay while wharf has them: leases of DHCP, and what
//! routers advertise.
//!
//! Lifetimes are seconds here. What is waited for is that they are renewed and outlast the first,
//! not that it happens in time: on a busy machine a lifetime may run out once, and begin again.

use std::path::PathBuf;
use std::process::Command;

use sys::process::Signal;
use testkit::lab::{Program, have, wait_until};
use testkit::missing::lacks;

use super::ends::{End, bring_to_an_end, shown};
use super::setup::{HOST, Hosts, PEER, Plan, Port, WIRE};

/// A file of this test's own.
fn file(port: Port, name: &str, text: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{port:?}-{name}"));
    std::fs::write(&file, text).unwrap();
    file
}

/// Waits until a program has said something so many more times.
fn says(program: &Program, words: &str, more: usize) {
    let count = || program.errors().matches(words).count();
    let before = count();
    // Some of what is waited for takes as long as a lease; each time has patience of its own.
    for so_many in 1..=more {
        let said = wait_until(|| count() >= before + so_many);
        assert!(said, "{words:?} is not said {so_many} times more\n{}", program.errors());
    }
}

/// Waits until an interface has an address that begins so, with a lifetime that ends.
fn has(hosts: &Hosts, name: &str, address: &str) {
    let there = || shown(hosts, name).iter().any(|l| l.contains(address) && l.contains("dynamic"));
    assert!(wait_until(there), "{name} lacks {address}: {:#?}", shown(hosts, name));
}

/// Waits until the client answers the server: an address that has just come to the wire is in the
/// host interface's way for a second.
fn reaches(hosts: &Hosts, address: &str) {
    let mut ping = Command::new("ping");
    ping.args(["-n", "-c", "1", "-W", "1", address]);
    let answers = || hosts.server.output(&mut ping).status.success();
    assert!(wait_until(answers), "no answer: {}", hosts.ip("address show"));
}

/// A DHCP server on the client's side that says what it does.
fn dhcp_server(hosts: &Hosts, port: Port) -> Program {
    let leases = file(port, "dnsmasq.leases", "");
    let mut dnsmasq = Command::new("dnsmasq");
    dnsmasq.args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--pid-file="]);
    dnsmasq.args(["--interface", PEER, "--bind-interfaces", "--log-facility=-", "--user="]);
    dnsmasq.args(["--dhcp-option=6", "--dhcp-option=15"]);
    dnsmasq.arg("--dhcp-range=10.77.0.100,10.77.0.120,2m");
    dnsmasq.arg(format!("--dhcp-leasefile={}", leases.display()));
    hosts.client.spawn(&mut dnsmasq)
}

/// Debian's DHCP client on the wire, which takes a lease for 16 seconds.
fn dhclient(hosts: &Hosts, port: Port) -> Program {
    // No name servers are asked for: the machine's resolv.conf is not to change.
    let config = "request subnet-mask, broadcast-address, routers;\nsupersede dhcp-lease-time 16;\nsupersede dhcp-renewal-time 4;\n\
                  supersede dhcp-rebinding-time 10;\ntimeout 60;\nretry 2;\n";
    let config = file(port, "dhclient.conf", config);
    let leases = file(port, "dhclient.leases", "");
    let mut dhclient = Command::new("dhclient");
    dhclient.args(["-4", "-d", "-pf", "/dev/null"]).arg("-cf").arg(config);
    hosts.server.spawn(dhclient.arg("-lf").arg(leases).arg(WIRE))
}

/// A lease from before wharf is renewed while it runs, over more than one lease, and after it.
fn a_lease_is_kept(port: Port) {
    if !have(&["ip", "dnsmasq", "dhclient"]) {
        return;
    }
    if !sys::process::has_bpf() {
        lacks("root, which a DHCP server needs");
        return;
    }
    let Some(hosts) = Plan::new(port).hosts() else { return };
    let server = dhcp_server(&hosts, port);
    let client = dhclient(&hosts, port);
    has(&hosts, WIRE, "10.77.0.1");

    let wharf = hosts.wharf_up(&["--take-addresses"]);
    has(&hosts, HOST, "10.77.0.1");
    // Six renewals by four seconds or so are longer than the lease.
    says(&server, "DHCPACK", 6);
    has(&hosts, HOST, "10.77.0.1");
    reaches(&hosts, "10.77.0.1");
    let default = hosts.ip("route show default");
    assert!(default.contains(&format!("via 10.77.0.1 dev {HOST}")), "{default}");

    bring_to_an_end(End::Kill, &hosts, wharf);
    has(&hosts, WIRE, "10.77.0.1");
    says(&server, "DHCPACK", 1);
    has(&hosts, WIRE, "10.77.0.1");
    reaches(&hosts, "10.77.0.1");
    drop((client, server));
}

/// A client that begins when wharf has the wire gets a lease for the host interface, route and all.
fn a_lease_is_taken(port: Port) {
    if !have(&["ip", "busybox"]) {
        return;
    }
    if !sys::process::has_bpf() {
        lacks("root, which a DHCP server needs");
        return;
    }
    let Some(hosts) = Plan::new(port).hosts() else { return };
    let wharf = hosts.wharf_up(&["--take-addresses"]);
    let (leases, pid) = (file(port, "udhcpd.leases", ""), file(port, "udhcpd.pid", ""));
    let config = format!(
        "start 10.77.0.100\nend 10.77.0.120\ninterface {PEER}\nmin_lease 8\nlease_file {}\n\
         pidfile {}\noption subnet 255.255.255.0\noption router 10.77.0.1\noption lease 12\n",
        leases.display(),
        pid.display()
    );
    let config = file(port, "udhcpd.conf", &config);
    let script = "#!/bin/sh\ncase $1 in bound|renew)\n\
         ip address replace $ip/$mask valid_lft $lease preferred_lft $lease dev $interface\n\
         [ $1 = renew ] || ip route add default via $router dev $interface\n\
         esac\n";
    let script = file(port, "udhcpc.sh", script);
    hosts.server.succeed("chmod", &["0755", script.to_str().unwrap()]);
    let mut udhcpd = Command::new("busybox");
    let server = hosts.client.spawn(udhcpd.args(["udhcpd", "-f"]).arg(config));
    let mut udhcpc = Command::new("busybox");
    udhcpc.args(["udhcpc", "-f", "-i", WIRE, "-s"]).arg(script);
    let client = hosts.server.spawn(&mut udhcpc);

    has(&hosts, HOST, "10.77.0.1");
    let default = || hosts.ip("route show default").contains(&format!("10.77.0.1 dev {HOST}"));
    assert!(wait_until(default), "{}", hosts.ip("route show"));
    // Over more than one lease. It asks the server alone, in vain, before it asks all again.
    says(&client, "obtained", 3);
    has(&hosts, HOST, "10.77.0.1");
    reaches(&hosts, "10.77.0.1");
    bring_to_an_end(End::Signal(Signal::Interrupt), &hosts, wharf);
    has(&hosts, WIRE, "10.77.0.1");
    drop((client, server));
}

/// The seconds that an address with this prefix has left.
fn valid(hosts: &Hosts, name: &str, prefix: &str) -> Option<u32> {
    let lines = hosts.ip(&format!("-6 -o address show dev {name} scope global"));
    let line = lines.lines().find(|line| line.contains(prefix))?;
    let left = line.split("valid_lft ").nth(1)?;
    left.split("sec").next()?.parse().ok()
}

/// What a router advertises reaches the kernel behind the wire, and the address that it makes of it
/// the host interface, again and again.
fn an_advertised_address_is_kept(port: Port) {
    if !have(&["ip", "radvd"]) {
        return;
    }
    if !sys::process::has_bpf() {
        lacks("root, which radvd needs");
        return;
    }
    let Some(hosts) = Plan::new(port).hosts() else { return };
    hosts.client.run(|| sys::sysctl::write(&["ipv6", "conf", "all", "forwarding"], "1")).unwrap();
    hosts.client.succeed("ip", &["address", "add", "2001:db8:7::1/64", "dev", PEER, "nodad"]);
    let config = format!(
        "interface {PEER} {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4;\n\
         AdvDefaultLifetime 12; prefix 2001:db8:7::/64 {{ AdvValidLifetime 14;\n\
         AdvPreferredLifetime 12; }}; }};\n"
    );
    let (config, pid) = (file(port, "radvd.conf", &config), file(port, "radvd.pid", ""));
    std::fs::remove_file(&pid).unwrap();
    let mut radvd = Command::new("radvd");
    radvd.args(["--nodaemon", "--logmethod", "stderr"]).arg("--pidfile").arg(pid);
    let router = hosts.client.spawn(radvd.arg("--config").arg(config));
    has(&hosts, WIRE, "2001:db8:7:");

    let wharf = hosts.wharf_up(&["--take-addresses"]);
    has(&hosts, HOST, "2001:db8:7:");
    renewed(&hosts, HOST, 5);
    let default = hosts.ip("-6 route show default");
    assert!(default.contains(&format!("dev {HOST} proto ra")), "{default}");
    reaches(&hosts, "2001:db8:7::1");

    bring_to_an_end(End::Kill, &hosts, wharf);
    has(&hosts, WIRE, "2001:db8:7:");
    renewed(&hosts, WIRE, 5);
    let default = hosts.ip("-6 route show default");
    assert!(default.contains(&format!("dev {WIRE} proto ra")), "{default}");
    drop(router);
}

/// Waits until the lifetime of the advertised address has grown again so many times: with
/// advertisements three seconds apart at least, that is longer than it was at first.
fn renewed(hosts: &Hosts, name: &str, times: usize) {
    let mut last = valid(hosts, name, "2001:db8:7:");
    for so_many in 1..=times {
        let grown = wait_until(|| {
            let now = valid(hosts, name, "2001:db8:7:");
            let grown = now > last && last.is_some();
            last = now.or(last.map(|_| 0));
            grown
        });
        assert!(grown, "{name}: not renewed for the {so_many}th time: {:#?}", shown(hosts, name));
    }
}

mod xdp {
    use super::{Port, a_lease_is_kept, a_lease_is_taken, an_advertised_address_is_kept};

    #[test]
    fn dhclient_keeps_its_lease() {
        a_lease_is_kept(Port::Xdp);
    }

    #[test]
    fn udhcpc_takes_a_lease() {
        a_lease_is_taken(Port::Xdp);
    }

    #[test]
    fn an_advertised_address_is_renewed() {
        an_advertised_address_is_kept(Port::Xdp);
    }
}

mod packet {
    use super::{Port, a_lease_is_kept, a_lease_is_taken, an_advertised_address_is_kept};

    #[test]
    fn dhclient_keeps_its_lease() {
        a_lease_is_kept(Port::Packet);
    }

    #[test]
    fn udhcpc_takes_a_lease() {
        a_lease_is_taken(Port::Packet);
    }

    #[test]
    fn an_advertised_address_is_renewed() {
        an_advertised_address_is_kept(Port::Packet);
    }
}
