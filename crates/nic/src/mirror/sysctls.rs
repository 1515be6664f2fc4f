//! The settings that an interface has under `/proc/sys/net`, and which of them the host interface
//! takes over from the wire.

use sys::interface::Interface;
use sys::sysctl;

/// What becomes of a setting while the host interface stands for the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Both have it: what is changed on one is changed on the other.
    Shared,
    /// The host interface has it. The wire's may be wharf's own meanwhile
    /// ([`quiet`](crate::quiet)), so only what is changed on the host interface counts.
    OfHost,
    /// The same, and the wire's is 0 meanwhile.
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
    // The kernel counts forwarding in for its default, so these come behind it.
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
    // The wire makes each advertised address anew, as it moves on, and would make another temporary
    // one with each; the host interface makes them where an address says `mngtmpaddr`.
    ("use_tempaddr", OffOnWire),
];

fn keys() -> impl Iterator<Item = (&'static str, &'static str, Kind)> {
    let v4 = IPV4.into_iter().map(|(key, kind)| ("ipv4", key, kind));
    v4.chain(IPV6.into_iter().map(|(key, kind)| ("ipv6", key, kind)))
}

/// The values of an interface's settings, in a fixed order; `None` for what this kernel lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctls(Vec<Option<String>>);

impl Sysctls {
    /// Reads the settings of `interface`.
    pub fn read(interface: &str) -> Self {
        let read = |family, key| sysctl::read(&[family, "conf", interface, key]).ok();
        Sysctls(keys().map(|(family, key, _)| read(family, key)).collect())
    }

    /// Gives the wire those that were of the host interface alone; it has the others.
    pub fn give_back(&self, wire: &str) {
        for ((family, key, kind), value) in keys().zip(&self.0) {
            if kind != Shared {
                set(wire, family, key, value.as_deref());
            }
        }
    }

    /// Whether the kernel makes routes of what routers advertise to an interface with these settings
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

    /// The values, for another process to [give back](Self::from_values).
    pub fn values(&self) -> &[Option<String>] {
        &self.0
    }

    /// Settings as [`values`](Self::values) gave them.
    pub fn from_values(values: Vec<Option<String>>) -> Self {
        Sysctls(values)
    }

    /// Gives these settings, which the wire had, to the host interface.
    pub(super) fn move_to(&self, wire: &str, host: &str) {
        for ((family, key, kind), value) in keys().zip(&self.0) {
            set(host, family, key, value.as_deref());
            if kind == OffOnWire && value.is_some() {
                set(wire, family, key, Some("0"));
            }
        }
    }

    /// Takes over what has changed on one of the interfaces since these were their settings;
    /// whether anything has.
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
                // Were it refused, what the host interface has would seem to be a change.
                (*agreed, changed) = (read(&host), true);
            }
        }
        changed
    }
}

/// Writes a setting that differs: some writes have effects of their own. One that is refused is left: an ordinary user may set those of a
/// network namespace of its own only.
fn set(interface: &str, family: &str, key: &str, value: Option<&str>) {
    let parts = [family, "conf", interface, key];
    let Some(value) = value else { return };
    if sysctl::read(&parts).is_ok_and(|present| present != value) {
        let _ = sysctl::write(&parts, value);
    }
}
