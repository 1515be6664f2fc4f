//! However degen ends, both interfaces are as they were before.

use sys::process::Signal;
use testkit::lab::{have, wait_until};

use super::{LEFT, Middle, RIGHT, other_words};
use crate::setup::{Ip, give, ping};

/// Everything of an interface that must be as it was.
fn state(middle: &Middle, name: &str) -> Vec<String> {
    let link = middle.ip(&format!("-d link show dev {name}"));
    // A wire that is down and up again may get there by way of "unknown".
    let link = link.split_whitespace().filter(|word| *word != "UNKNOWN").map(str::to_owned);
    let mut all: Vec<String> = link.collect();
    let mut addresses: Vec<String> = middle
        .ip(&format!("-o address show dev {name} scope global"))
        .lines()
        .chain(middle.ip(&format!("-4 route show dev {name}")).lines())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    addresses.sort();
    all.extend(addresses);
    all.extend(middle.host.run(|| {
        let v4 = ["rp_filter", "arp_ignore", "arp_announce", "forwarding", "accept_local"];
        let v6 = ["disable_ipv6", "accept_ra", "forwarding", "accept_dad"];
        let v4 = v4.map(|key| sys::sysctl::ipv4_conf(name, key).unwrap());
        v4.into_iter()
            .chain(v6.map(|key| sys::sysctl::ipv6_conf(name, key).unwrap()))
            .collect::<Vec<_>>()
    }));
    if have(&["ethtool"]) {
        all.push(middle.host.succeed("ethtool", &["-k", name]));
    }
    all
}

fn both(middle: &Middle) -> [Vec<String>; 2] {
    [state(middle, LEFT[1]), state(middle, RIGHT[1])]
}

#[test]
fn interfaces_are_as_before_however_it_ends() {
    if !have(&["ip"]) {
        return;
    }
    let Some(middle) = Middle::new(1500, 1500) else { return };
    give(&middle.host, LEFT[1], &Ip::BOTH, |ip| match ip {
        Ip::V4 => [10, 77, 0, 3].into(),
        Ip::V6 => "fd77::3".parse().unwrap(),
    });
    middle.ip(&format!("route add 192.0.2.0/24 via 10.77.0.9 dev {}", LEFT[1]));
    let modes = Middle::modes().iter().flat_map(|mode| [(mode, false), (mode, true)]);
    for (mode, down) in modes {
        for signal in [Signal::Terminate, Signal::Interrupt, Signal::Kill] {
            if down {
                middle.ip(&format!("link set {} down", RIGHT[1]));
            }
            let before = both(&middle);
            let degen = middle.degen(mode);
            assert!(both(&middle)[0].join(" ").contains("promiscuity 1"));
            if !down {
                ping(&middle.hosts.client, Ip::V4.server(), &[]);
            }
            degen.program.signal(signal);
            let ended = degen.program.wait();
            if signal != Signal::Kill {
                assert!(ended.status.success() && other_words(&ended.stderr).is_empty(), "{ended}");
            }
            let same = wait_until(|| both(&middle) == before);
            assert!(same, "{mode:?} {signal:?}: {:#?} is not {before:#?}", both(&middle));
            assert!(wait_until(|| middle.host.processes().is_empty()), "a process stays behind");
        }
    }
}

#[test]
fn degen_ends_when_an_interface_is_gone() {
    if !have(&["ip"]) {
        return;
    }
    for (name, mode) in [LEFT[1], RIGHT[1]].into_iter().zip(Middle::modes()) {
        let Some(middle) = Middle::new(1500, 1500) else { return };
        let degen = middle.degen(&[&["--delay", "1ms"], &mode[..]].concat());
        middle.ip(&format!("link delete {name}"));
        let ended = degen.program.wait();
        assert_eq!(ended.status.code(), Some(1), "{ended}");
        assert_eq!(other_words(&ended.stderr).len(), 1, "{ended}");
        for part in [name, "gone"] {
            assert!(ended.stderr.contains(part), "{part:?} is not in: {ended}");
        }
        assert!(wait_until(|| middle.host.processes().is_empty()), "a process stays behind");
        let other = if name == LEFT[1] { RIGHT[1] } else { LEFT[1] };
        assert!(state(&middle, other).join(" ").contains("promiscuity 0"));
    }
}
