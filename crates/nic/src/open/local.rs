//! Interfaces whose frames come from a kernel on this machine, perhaps with partial checksums.

use sys::interface::{self, Interface};

/// Kinds of interfaces whose frames a kernel or a guest of this machine sends, which may leave checksums to a card that
/// is not there.
const LOCAL: [&str; 11] = [
    "veth",
    "netkit",
    "tun",
    "bridge",
    "openvswitch",
    "macvlan",
    "macvtap",
    "ipvlan",
    "ipvtap",
    "dummy",
    "ifb",
];

/// Most interfaces on top of each other.
const DEPTH: u32 = 8;

/// Returns true if frames that arrive on the interface may have partial checksums. A bond, a team or a VLAN has the frames
/// of the interfaces below it.
pub(super) fn has_local_senders(info: &Interface) -> bool {
    match info.kind {
        // A card has no kind.
        None => false,
        Some(_) => judge(info, &interface::list().unwrap_or_default(), DEPTH),
    }
}

fn judge(info: &Interface, all: &[Interface], depth: u32) -> bool {
    let (Some(kind), Some(depth)) = (info.kind.as_deref(), depth.checked_sub(1)) else {
        return false;
    };
    match kind {
        "bond" | "team" => {
            let mut ports = all.iter().filter(|port| port.master == Some(info.index));
            ports.any(|port| judge(port, all, depth))
        }
        "vlan" => {
            let mut below = all.iter().filter(|below| info.link == Some(below.index));
            below.any(|below| judge(below, all, depth))
        }
        kind => LOCAL.contains(&kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, kind: Option<&str>) -> Interface {
        Interface {
            name: format!("i{index}"),
            index,
            mtu: 1500,
            max_mtu: 0,
            mac: None,
            ethernet: true,
            up: true,
            running: true,
            operational: true,
            kind: kind.map(str::to_owned),
            rx_queues: 1,
            tx_queues: 1,
            link: None,
            master: None,
            link_netnsid: None,
            xdp: false,
        }
    }

    #[test]
    fn a_bond_has_the_senders_of_its_ports() {
        let card = |index| interface(index, None);
        let of = |bond, port: Interface| Interface { master: Some(bond), ..port };
        let on = |below, vlan: Interface| Interface { link: Some(below), ..vlan };
        let bond = |index| interface(index, Some("bond"));
        let veth = interface(5, Some("veth"));
        let vlan = |index| interface(index, Some("vlan"));
        for (info, others, expected) in [
            (card(1), vec![], false),
            (veth.clone(), vec![], true),
            (interface(1, Some("bridge")), vec![], true),
            (interface(1, Some("vxlan")), vec![], false),
            (bond(1), vec![of(1, card(2)), of(1, card(3))], false),
            (bond(1), vec![of(1, card(2)), of(1, veth.clone())], true),
            (bond(1), vec![of(9, veth.clone())], false),
            (on(1, vlan(7)), vec![card(1)], false),
            (on(5, vlan(7)), vec![veth.clone()], true),
            (on(1, vlan(7)), vec![bond(1), of(1, veth)], true),
            // A loop, which no kernel makes.
            (on(7, vlan(7)), vec![on(7, vlan(7))], false),
        ] {
            assert_eq!(judge(&info, &others, DEPTH), expected, "{info:?} with {others:?}");
        }
    }
}
