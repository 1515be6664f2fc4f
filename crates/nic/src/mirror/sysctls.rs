//! Settings of an interface under `/proc/sys/net`, and which of them the host interface takes over from the
//! wire.

use sys::interface::Interface;
use sys::sysctl;

/// How a setting is treated while the host interface stands for the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Both interfaces have it: a change of one is applied to the other.
    Shared,
    /// The host interface has it. wharf may have changed the wire's ([`quiet`](crate::quiet)), so only
    /// changes on the host interface count.
    OfHost,
    /// The same, and it is 0 on the wire.
    OffOnWire,
}

use Kind::{OfHost, OffOnWire, Shared};

const IPV4: [(&str, Kind); 21] = [
    ("forwarding", Shared),
    ("rp_filter", OfHost),
    ("arp_ignore", OfHost),
    ("arp_announce", Shared),
    ("arp_accept", Shared),
    ("arp_filter", Shared),
    ("arp_notify", Shared),
    ("accept_local", Shared),
    ("accept_redirects", Shared),
    ("accept_source_route", Shared),
    ("bc_forwarding", Shared),
    ("disable_policy", Shared),
    ("disable_xfrm", Shared),
    ("ignore_routes_with_linkdown", Shared),
    ("log_martians", Shared),
    ("promote_secondaries", Shared),
    ("proxy_arp", Shared),
    ("route_localnet", Shared),
    ("secure_redirects", Shared),
    ("send_redirects", Shared),
    ("src_valid_mark", Shared),
];

const IPV6: [(&str, Kind); 17] = [
    ("disable_ipv6", OfHost),
    ("forwarding", Shared),
    // These come behind forwarding, on which their defaults in the kernel depend.
    ("accept_ra", Shared),
    ("accept_ra_defrtr", Shared),
    ("accept_ra_pinfo", Shared),
    ("accept_ra_rtr_pref", Shared),
    ("accept_ra_min_hop_limit", Shared),
    ("accept_redirects", Shared),
    ("accept_source_route", Shared),
    ("accept_dad", Shared),
    ("autoconf", Shared),
    ("hop_limit", Shared),
    ("ignore_routes_with_linkdown", Shared),
    ("keep_addr_on_down", Shared),
    ("ndisc_notify", Shared),
    ("proxy_ndp", Shared),
    // The wire would make another temporary address for each advertised one, as they are moved away; the host
    // interface makes those of addresses with `mngtmpaddr`.
    ("use_tempaddr", OffOnWire),
];

fn keys() -> impl Iterator<Item = (&'static str, &'static str, Kind)> {
    let v4 = IPV4.into_iter().map(|(key, kind)| ("ipv4", key, kind));
    v4.chain(IPV6.into_iter().map(|(key, kind)| ("ipv6", key, kind)))
}

/// Values of an interface's settings, in a fixed order; `None` for those that this kernel lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctls(Vec<Option<String>>);

impl Sysctls {
    /// Reads the settings of `interface`.
    pub fn read(interface: &str) -> Self {
        let read = |family, key| sysctl::read(&[family, "conf", interface, key]).ok();
        Sysctls(keys().map(|(family, key, _)| read(family, key)).collect())
    }

    /// Restores on the wire those that only the host interface had; it has the others.
    pub fn give_back(&self, wire: &str) {
        for ((family, key, kind), value) in keys().zip(&self.0) {
            if kind != Shared {
                set(wire, family, key, value.as_deref());
            }
        }
    }

    /// Whether the kernel makes routes from router advertisements on an interface with these settings
    /// (`ipv6_accept_ra`).
    pub fn accepts_advertisements(&self) -> bool {
        let forwards = self.ipv6("forwarding") == Some("1");
        match self.ipv6("accept_ra") {
            Some("2") => true,
            Some("0") | None => false,
            Some(_) => !forwards,
        }
    }

    fn ipv6(&self, wanted: &str) -> Option<&str> {
        let mut pairs = keys().zip(&self.0);
        let found = pairs.find(|((family, key, _), _)| *family == "ipv6" && *key == wanted);
        found.and_then(|(_, value)| value.as_deref())
    }

    /// The values, from which another process can [make](Self::from_values) this again.
    pub fn values(&self) -> &[Option<String>] {
        &self.0
    }

    /// The settings from which [`values`](Self::values) were taken.
    pub fn from_values(values: Vec<Option<String>>) -> Self {
        Sysctls(values)
    }

    /// Applies these settings, which the wire had, to the host interface.
    pub(super) fn move_to(&self, wire: &str, host: &str) {
        for ((family, key, kind), value) in keys().zip(&self.0) {
            set(host, family, key, value.as_deref());
            if kind == OffOnWire && value.is_some() {
                set(wire, family, key, Some("0"));
            }
        }
    }

    /// Applies changes of one interface since these were the settings to the other. Returns whether there
    /// were any.
    pub(super) fn follow(&mut self, wire: u32, host: u32) -> bool {
        let name = |index| Interface::by_index(index).map(|interface| interface.name);
        let (Ok(wire), Ok(host)) = (name(wire), name(host)) else { return false };
        let mut changed = false;
        for ((family, key, kind), agreed) in keys().zip(&mut self.0) {
            let read = |interface: &str| sysctl::read(&[family, "conf", interface, key]).ok();
            let on_host = read(&host);
            if on_host.is_some() && on_host != *agreed {
                if kind == Shared {
                    set(&wire, family, key, on_host.as_deref());
                }
                (*agreed, changed) = (on_host, true);
            } else if kind == Shared
                && let on_wire @ Some(_) = read(&wire)
                && on_wire != *agreed
            {
                set(&host, family, key, on_wire.as_deref());
                // If it was refused, the old value of the host interface must not count as a change.
                (*agreed, changed) = (read(&host), true);
            }
        }
        changed
    }
}

/// Writes a setting if it differs, as some writes have side effects. A refusal is ignored: an ordinary user
/// may change the settings of its own network namespaces only.
fn set(interface: &str, family: &str, key: &str, value: Option<&str>) {
    let parts = [family, "conf", interface, key];
    let Some(value) = value else { return };
    if sysctl::read(&parts).is_ok_and(|present| present != value) {
        let _ = sysctl::write(&parts, value);
    }
}
