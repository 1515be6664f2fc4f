//! Whether this host forwards the packets of others. What LRO's endpoint profile has joined cannot be
//! restored, so they would leave changed. Linux turns LRO off in the same cases: where `forwarding`
//! is on (`devinet_sysctl_forward`, `addrconf_fixup_forwarding`), and in bridges (`br_add_if`).

use sys::interface::{self, Interface};
use sys::netlink::netconf;

/// Kinds of interfaces that forward between their ports.
const BRIDGES: [&str; 3] = ["bridge", "openvswitch", "batadv"];

/// Kinds of interfaces that stand on another one (`IFLA_LINK`), so that what arrives there may
/// arrive at them. A veth's link is its peer.
const ABOVE: [&str; 6] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"];

/// How it is seen that this host forwards, `None` where it does not: any `forwarding` switch of the
/// calling thread's network namespace is on, or the interface with the index `host` is in a bridge.
///
/// # Errors
/// What the kernel says.
pub(crate) fn sign(host: u32) -> sys::Result<Option<String>> {
    let all = interface::list()?;
    if let Some(bridge) = bridge_above(host, &all) {
        return Ok(Some(format!("its interface is in the bridge {}", bridge.name)));
    }
    let on = netconf::forwarding()?;
    // The switch of all has turned on the others.
    let first = on.iter().find(|switch| switch.index.is_none()).or(on.first());
    Ok(first.map(|switch| {
        let version = if switch.ipv6 { 6 } else { 4 };
        let name = |index| all.iter().find(|other| other.index == index);
        let name = match switch.index {
            None => "all".to_owned(),
            Some(index) => name(index).map_or(format!("#{index}"), |found| found.name.clone()),
        };
        format!("net.ipv{version}.conf.{name}.forwarding is on")
    }))
}

/// The bridge that an interface is a port of, by itself or under a bond, a VLAN or a macvlan: as far
/// as `dev_disable_lro` goes down from a bridge's port.
fn bridge_above(host: u32, all: &[Interface]) -> Option<&Interface> {
    let find = |index| all.iter().find(|interface| interface.index == index);
    let is_of = |interface: &Interface, kinds: &[&str]| {
        interface.kind.as_deref().is_some_and(|kind| kinds.contains(&kind))
    };
    let mut below = vec![host];
    let mut at = 0;
    while let Some(&index) = below.get(at) {
        at += 1;
        let master = find(index).and_then(|interface| interface.master).and_then(find);
        if let Some(bridge) = master.filter(|master| is_of(master, &BRIDGES)) {
            return Some(bridge);
        }
        let stands_on = |interface: &&Interface| {
            interface.link == Some(index)
                && interface.link_netnsid.is_none()
                && is_of(interface, &ABOVE)
        };
        for above in master.into_iter().chain(all.iter().filter(stands_on)) {
            if !below.contains(&above.index) {
                below.push(above.index);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With an index, a kind, and the indices of link and master; 0 is none.
    fn interface(index: u32, kind: &str, link: u32, master: u32) -> Interface {
        let some = |index| (index != 0).then_some(index);
        Interface {
            name: format!("if{index}"),
            index,
            kind: Some(kind.to_owned()),
            link: some(link),
            master: some(master),
            ..Interface::by_name("lo").unwrap()
        }
    }

    #[test]
    fn a_bridge_is_seen_from_all_that_is_under_it() {
        let all = [
            interface(10, "bridge", 0, 0),
            interface(20, "tun", 0, 10),
            interface(21, "tun", 0, 22),
            interface(22, "bond", 0, 10),
            interface(23, "tun", 0, 0),
            interface(24, "vlan", 23, 25),
            interface(25, "bond", 0, 10),
        ];
        for host in [20, 21, 22, 23] {
            assert_eq!(bridge_above(host, &all).map(|bridge| bridge.index), Some(10), "{host}");
        }
    }

    #[test]
    fn others_bridges_are_not_this_hosts() {
        let all = [
            interface(10, "bridge", 0, 0),
            // A veth whose peer is in the bridge.
            interface(20, "veth", 21, 0),
            interface(21, "veth", 20, 10),
            // In no bridge: bonds that a snapshot shows within each other, and a VRF.
            interface(30, "bond", 0, 31),
            interface(31, "bond", 0, 30),
            interface(40, "tun", 0, 41),
            interface(41, "vrf", 0, 0),
            // In another network namespace, which numbers its interfaces by itself.
            Interface { link_netnsid: Some(0), ..interface(51, "macvlan", 50, 10) },
            interface(50, "tun", 0, 0),
        ];
        for host in [20, 30, 31, 40, 50, 99] {
            assert_eq!(bridge_above(host, &all), None, "{host}");
        }
    }
}
