//! Features of a card that change received frames, and are incompatible with a port.
//!
//! A card that strips VLAN tags delivers them beside the frame, where AF_XDP cannot see them: tagged frames
//! would reach the host untagged. A card that merges packets (LRO) does so in a way that `virtio_net_hdr`
//! cannot describe, and AF_PACKET refuses to deliver them.

use sys::ethtool::Ethtool;
use sys::interface::{self, Interface};

const STRIPS_VLAN: &str = "rx-vlan-hw-parse";
const MERGES: &str = "rx-lro";

/// Former values of these features, to be restored. The wire is identified by its index: its name may change,
/// and another interface may get the old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    index: u32,
    strips_vlan: bool,
    merges: bool,
}

impl Features {
    /// Reads the features of the interface with this index; one that cannot be read is not restored.
    pub fn read(index: u32) -> Self {
        let active = ethtool(index).and_then(|ethtool| ethtool.features());
        let is_on = |name| active.as_ref().is_ok_and(|features| features.get(name) == Some(&true));
        Features { index, strips_vlan: is_on(STRIPS_VLAN), merges: is_on(MERGES) }
    }

    /// Turns on those that were on, if the interface still exists.
    pub fn restore(&self) {
        for (name, was_on) in [(STRIPS_VLAN, self.strips_vlan), (MERGES, self.merges)] {
            if was_on {
                let _ = self.set(name, true);
            }
        }
    }

    /// The values, in a fixed order, from which another process can [make](Self::from_values) this again.
    pub fn values(&self) -> [bool; 2] {
        [self.strips_vlan, self.merges]
    }

    /// The features of the interface with this index, from [`values`](Self::values).
    pub fn from_values(index: u32, [strips_vlan, merges]: [bool; 2]) -> Self {
        Features { index, strips_vlan, merges }
    }

    /// Turns a feature off. Returns whether it is off now.
    fn turned_off(&self, name: &str) -> bool {
        matches!(self.set(name, false), Ok(false))
    }

    fn set(&self, name: &str, on: bool) -> sys::Result<bool> {
        tracing::debug!("the feature {name} of interface {} is set to {on}", self.index);
        ethtool(self.index)?.set_feature(name, on)
    }
}

fn ethtool(index: u32) -> sys::Result<Ethtool> {
    Ethtool::open(&interface::name(index)?)
}

/// A wire with features that suit the port, until this is dropped.
#[derive(Debug)]
pub(crate) struct Suited(Features);

impl Suited {
    /// Turns off features that AF_XDP cannot handle. One that cannot be turned off becomes a notice.
    pub(crate) fn to_xdp(wire: &Interface, notices: &mut Vec<String>) -> Self {
        let features = Features::read(wire.index);
        if features.strips_vlan && !features.turned_off(STRIPS_VLAN) {
            notices.push(format!(
                "{} takes VLAN tags out of frames and cannot be told not to, so tagged frames \
                 arrive untagged: use wire.mode=packet if there are any",
                wire.name
            ));
        }
        Suited(features)
    }

    /// As [`to_xdp`](Self::to_xdp), for AF_PACKET.
    pub(crate) fn to_packet(wire: &Interface, notices: &mut Vec<String>) -> Self {
        let features = Features::read(wire.index);
        if features.merges && !features.turned_off(MERGES) {
            notices.push(format!(
                "{} merges packets in a way that AF_PACKET cannot hand over, and cannot be told \
                 not to: merged packets are lost",
                wire.name
            ));
        }
        Suited(features)
    }
}

impl Drop for Suited {
    fn drop(&mut self) {
        self.0.restore();
    }
}
