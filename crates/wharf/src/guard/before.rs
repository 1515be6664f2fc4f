//! The wire as it was before wharf, and how it gets that back.

use nic::features::Features;
use nic::mirror::{Latest, Mirror, Sysctls};
use nic::quiet::Switches;
use serde_json::{Value, json};
use sys::interface::{self, Interface};
use sys::netlink::neighbour::Resolved;
use sys::netlink::saved::Saved;

/// The wire as it was before wharf, and what wharf makes.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    pub(super) host: String,
    pub(super) wire: Latest,
    switches: Switches,
    features: Features,
    /// wharf sets the wire up.
    was_up: bool,
    /// Whether addresses and routes are to move to the host interface.
    take_addresses: bool,
    /// The far end that a veth as the host interface will have, unless that name is taken.
    pub(super) far_end: Option<String>,
}

impl Before {
    /// Looks at the wire.
    pub(crate) fn look(wire: &str, host: &str, take_addresses: bool) -> sys::Result<Before> {
        let far_end = nic::far_end_of(host);
        let info = Interface::by_name(wire)?;
        Ok(Before {
            far_end: interface::index(&far_end).is_err().then_some(far_end),
            host: host.to_owned(),
            wire: Latest { saved: Saved::save(info.index)?, sysctls: Sysctls::read(wire) },
            switches: Switches::read(info.index),
            features: Features::read(info.index),
            was_up: info.up,
            take_addresses,
        })
    }

    /// Looks at a wire that no host interface is made for.
    pub(crate) fn look_at(wire: &str) -> sys::Result<Before> {
        Ok(Before { far_end: None, ..Before::look(wire, wire, false)? })
    }

    /// Returns true if the wire had no addresses, apart from those that the kernel makes.
    pub(crate) fn has_no_addresses(&self) -> bool {
        self.wire.saved.addresses.is_empty()
    }

    /// Whether the host interface has what the wire had.
    pub(super) fn takes_addresses(&self) -> bool {
        self.take_addresses
    }

    /// Moves all that is to move to the host interface.
    pub(crate) fn move_to(&self, host_index: u32) -> sys::Result<Option<Mirror>> {
        self.take_addresses.then(|| Mirror::start(&self.wire, host_index)).transpose()
    }

    /// Puts the wire back, with the `latest` state if that is known. What is there already is left;
    /// a wire that is gone needs nothing.
    /// It is told of what was `resolved` at the host interface, before it has the addresses.
    pub(super) fn restore(&self, latest: Option<&Latest>, resolved: &Resolved) -> sys::Result<()> {
        // By index: it may have another name by now, and another interface may have the old one.
        let index = self.wire.saved.index;
        let Ok(Interface { name, .. }) = Interface::by_index(index) else { return Ok(()) };
        // Turning IPv6 off took addresses away, so turning it on asks for them as well.
        let was_quiet = Switches::read(index) != self.switches;
        self.switches.restore();
        self.features.restore();
        resolved.tell(index);
        if self.take_addresses {
            let latest = latest.unwrap_or(&self.wire);
            latest.sysctls.give_back(&name);
            let mut saved = latest.saved.clone().with_objects_of(&self.wire.saved);
            if latest.sysctls.accepts_advertisements() {
                saved = saved.behind_advertised();
            }
            saved.apply(index)?;
        } else if was_quiet {
            self.wire.saved.apply(index)?;
        }
        if self.was_up { Ok(()) } else { interface::set_down(&name) }
    }

    /// All but the addresses, routes and neighbours.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "host": self.host, "take_addresses": self.take_addresses,
            "sysctls": self.wire.sysctls.values(), "switches": self.switches.values(),
            "features": self.features.values(), "was_up": self.was_up, "far_end": self.far_end,
        })
    }

    pub(super) fn from_json(value: &Value, saved: Saved) -> Option<Before> {
        let text = |key| value[key].as_str().map(str::to_owned);
        let features: Vec<bool> =
            value["features"].as_array()?.iter().map(Value::as_bool).collect::<Option<_>>()?;
        Some(Before {
            features: Features::from_values(saved.index, features.try_into().ok()?),
            was_up: value["was_up"].as_bool()?,
            host: text("host")?,
            take_addresses: value["take_addresses"].as_bool()?,
            far_end: text("far_end"),
            switches: Switches::from_values(
                saved.index,
                texts(&value["switches"])?.try_into().ok()?,
            ),
            wire: Latest { saved, sysctls: Sysctls::from_values(texts(&value["sysctls"])?) },
        })
    }
}

/// Values that may be missing.
pub(super) fn texts(value: &Value) -> Option<Vec<Option<String>>> {
    Some(value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect())
}
