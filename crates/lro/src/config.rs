//! What the caller decides.

use wire::{FlowHash, Nanos};

/// Which segments may become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// For a host that terminates TCP: acknowledgment, window and timestamp echo are those of
    /// the last segment (the paper, section IV.D), sizes may differ, IPv4 IDs do not matter.
    #[default]
    Endpoint,
    /// For routers and bridges: exactly what Linux GRO may merge, so that forwarding can restore
    /// the packets bit for bit.
    Lossless,
}

/// Whether data that is held is acknowledged in the host's name (the paper, section V.C).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ActiveAck {
    /// The host acknowledges what it is given, when it is given it.
    #[default]
    Off,
    /// Never beyond the window that the host has advertised, and only where all that this needs is
    /// known.
    Safe,
    /// The paper's: every packet, with a window of 0xFFFF.
    Paper,
}

/// Sizes are fixed for the life of an [`Lro`](crate::Lro); the rest may change while it runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which segments may become one.
    pub profile: Profile,
    /// Largest aggregate, in bytes of IP packet, at most 65,535 (the paper's 64 KB threshold).
    pub max_aggregate: u32,
    /// Most segments in an aggregate; a `writev` takes at most 1,024 slices.
    pub max_segments: u32,
    /// What a flow holds goes when the flow has been idle for so many times its average interval
    /// between arrivals (the paper, section IV.E: 10; its short version: 100).
    pub timeout_factor: u32,
    /// No flow counts as idle before this.
    pub min_timeout: Nanos,
    /// No frame is held longer than this, and no hole is waited for longer.
    pub max_timeout: Nanos,
    /// No hole is waited for longer than this, as what is missing may be lost and not late. How long
    /// within this is learnt for each flow, beginning with not at all; 0 is never to wait. Over
    /// `max_timeout` it counts as that.
    pub hole_timeout: Nanos,
    /// No hole is waited for less long, as far as `hole_timeout` allows: for paths that are known to
    /// reorder.
    pub min_hole_timeout: Nanos,
    /// Flush an aggregate that a PSH completes as soon as the burst ends (`Lro::burst_ends`).
    /// The lossless profile does so at once, as Linux GRO does.
    pub flush_on_psh: bool,
    /// Acknowledge data that is held (endpoint profile).
    pub active_ack: ActiveAck,
    /// Join UDP datagrams, too, by the rules of Linux (`NETIF_F_GRO_UDP_FWD`): of equal size but
    /// for the last, at most 64. A receiver must know USO, and what may be a tunnel is better left
    /// alone, so this is off by default.
    pub udp: bool,
    /// Flows remembered; past that the one used longest ago is recycled. Fixed.
    pub flows: usize,
    /// Frames held over all flows; past that the oldest aggregate goes. Fixed.
    pub held_frames: usize,
    /// The hash by which flows are found, with keys from the caller's entropy, so that outsiders cannot
    /// aim at one bucket. That of the default is no secret. Fixed.
    pub flow_hash: FlowHash,
}

/// The largest IP packet: its length field has 16 bits.
pub(crate) const IP_MAX: u32 = 65_535;

/// Most UDP datagrams in an aggregate (`UDP_GRO_CNT_MAX` in Linux).
pub(crate) const DATAGRAMS_MAX: u32 = 64;

/// Header bytes kept per flow: Ethernet, two VLAN tags, IPv6 and TCP with all options fit.
pub(crate) const HEADER_MAX: usize = 128;

impl Config {
    /// How long a hole may be waited for.
    pub(crate) fn hole_limit(&self) -> Nanos {
        self.hole_timeout.min(self.max_timeout)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            profile: Profile::Endpoint,
            max_aggregate: IP_MAX,
            max_segments: 512,
            timeout_factor: 10,
            min_timeout: 20_000,
            max_timeout: 2_000_000,
            hole_timeout: 2_000_000,
            min_hole_timeout: 0,
            flush_on_psh: true,
            active_ack: ActiveAck::Off,
            udp: false,
            flows: 4096,
            held_frames: 4096,
            flow_hash: FlowHash::from_seed(0),
        }
    }
}
