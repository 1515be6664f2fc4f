//! Opening ports: of a wire, of the host interface, and of the two wires of a bridge.

pub(crate) mod bridge;
mod held;
pub(crate) mod host;
mod local;
mod packet;
mod wire;
mod xdp;

pub(crate) use held::Held;
pub use host::far_end_of;
pub(crate) use host::{HostEnd, HostInterface, Hosts, Queues};
pub(crate) use packet::chunk as packet_chunk;
pub use wire::find_wire;
pub(crate) use wire::{OpenWire, Purpose, Room, Wires, open, set_up};

/// Ethernet header and two VLAN tags, around an IP packet of the MTU.
const LINK_OVERHEAD: u32 = 14 + 8;
/// The AF_PACKET fanout group: a number that other programs in this namespace are unlikely to use.
const FANOUT_GROUP: u16 = 0x5748;
