//! GSO by itself: nanoseconds for each segment, for wharf and its peers.
//!
//! `workload` is the input of all systems. Their outputs differ:
//!
//! - wharf (`next_segment`) writes headers and hands out payload where it lies, summed for the
//!   checksum: what AF_PACKET and any port that gathers sends. `wharf-copy` (`next_into`) writes
//!   whole frames, as AF_XDP needs them.
//! - tun-rs and wireguard-go (`gso_split`, `gsoSplit`) write whole IP packets, without Ethernet, with
//!   checksums.
//! - DPDK (`rte_gso_segment`, and `rte_ipv6_fragment_packet` for IPv6 fragments) copies headers into
//!   buffers from a pool and attaches payload without looking at it: it copies none and computes no
//!   checksum, neither IP's nor the transport's. Its buffers come from the pool's cache for this
//!   core and go back there, which is timed too (a third of the whole): they are there only because
//!   of the cut.
//!
//! What each makes is compared with the super-packet before it is timed, wharf's checksums too.

mod case;
mod check;
pub mod instructions;
#[cfg(feature = "peers")]
mod tun_rs;
mod wharf;
mod workload;

use std::ops::RangeInclusive;
use std::time::Duration;

pub use case::Case;
use workload::Workload;

use crate::side_by_side::{self, Found, Group, take_turns};
use crate::{Error, Figure, Report, System, peers};

/// All systems, as the figures list them.
pub const SYSTEMS: [System; 5] =
    [System::Wharf, System::WharfCopy, System::TunRs, System::WireguardGo, System::Dpdk];

/// What [`Options::gso_sizes`] may be: a super-packet has at least two segments of the largest.
pub const GSO_SIZES: RangeInclusive<u16> = 64..=32_000;

/// The least MTU of an IPv6 link (RFC 8200 section 5).
const IPV6_MIN_MTU: usize = 1280;

/// What to measure: everything listed with everything else.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kinds of super-packets.
    pub cases: Vec<Case>,
    /// Bytes of payload in a segment, each one of [`GSO_SIZES`]; of IP payload in a fragment, less
    /// what is no multiple of 8.
    pub gso_sizes: Vec<u16>,
    /// The systems under test.
    pub systems: Vec<System>,
    /// How long each system runs for one figure, all repetitions together.
    pub time: Duration,
}

impl Options {
    fn workloads(&self) -> impl Iterator<Item = Workload> {
        let of = |gso_size| self.cases.iter().map(move |&case| Workload::new(case, gso_size));
        self.gso_sizes.iter().flat_map(move |&gso_size| of(gso_size))
    }
}

/// Measures, and reports peers that are absent or cannot do something.
///
/// # Errors
/// wharf itself did not do what it should. Peers that fail are left out with a notice.
pub fn run(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let runners = side_by_side::find(&options.systems, find, report);
    let group = |&gso_size: &u16| Group {
        name: format!("gso_size {gso_size}"),
        workloads: options.cases.iter().map(|&case| Workload::new(case, gso_size)).collect(),
    };
    let groups: Vec<Group<Workload>> = options.gso_sizes.iter().map(group).collect();
    take_turns(&groups, runners, options.time, report)
}

fn find(system: System) -> Found<Workload> {
    match system {
        System::Wharf => Ok(Box::new(wharf::Slices::default())),
        System::WharfCopy => Ok(Box::new(wharf::Copies::default())),
        #[cfg(feature = "peers")]
        System::TunRs => Ok(Box::new(tun_rs::TunRs::default())),
        #[cfg(not(feature = "peers"))]
        System::TunRs => Err(peers::NOT_BUILT_IN.to_owned()),
        System::WireguardGo => peers::wireguard_go(left_out_by_wireguard_go),
        System::Dpdk => peers::dpdk(left_out_by_dpdk),
        System::Gvisor => Err("it has no part in `bench gso`".to_owned()),
    }
}

fn left_out_by_wireguard_go(workload: &Workload) -> Option<&'static str> {
    workload.case.is_fragmented().then_some("of frag4 and frag6: it makes no fragments")
}

fn left_out_by_dpdk(workload: &Workload) -> Option<&'static str> {
    match workload.case {
        Case::Tcp6 => Some("of tcp6: rte_gso_segment cuts TCP over IPv4 only"),
        Case::Uso4 | Case::Uso6 => {
            Some("of uso4 and uso6: rte_gso_segment cuts UDP into IP fragments only")
        }
        Case::Frag6 if workload.mtu < IPV6_MIN_MTU => {
            Some("of frag6 at MTUs under 1,280: rte_ipv6_fragment_packet refuses them")
        }
        Case::Tcp4 | Case::Frag4 | Case::Frag6 => None,
    }
}

fn figure(workload: &Workload, system: System, metric: &'static str, value: f64) -> Figure {
    Figure {
        bench: "gso",
        case: workload.case.name().to_owned(),
        system: system.name().to_owned(),
        varied: vec![("gso_size", workload.gso_size.into())],
        metric,
        unit: if metric == "ns_per_segment" { "ns" } else { "instructions" },
        value,
        samples: Vec::new(),
    }
}
