//! LRO by itself: nanoseconds for each packet, and how much becomes one, for wharf and its peers.
//!
//! `workload` is the input of all systems. wharf holds segments across bursts until a round
//! of 128 segments a flow ends. Its peers that work on a burst (tun-rs, wireguard-go, gVisor) let
//! go at the end of each; DPDK does at one flow, where that is the fastest it has, and with more
//! keeps a table until the round ends (`rte_gro_reassemble`).

mod case;
pub mod instructions;
#[cfg(feature = "peers")]
mod tun_rs;
mod wharf;
mod workload;

use std::time::Duration;

pub use case::Case;
use workload::Workload;

pub use crate::packet::Ip;
use crate::side_by_side::{self, Found, Group, take_turns};
use crate::{Error, Figure, Report, System, peers};

/// Most flows: each has a source port of its own.
pub const FLOWS_MAX: u32 = 65_536;

/// All systems, as the figures list them.
pub const SYSTEMS: [System; 5] =
    [System::Wharf, System::TunRs, System::WireguardGo, System::Gvisor, System::Dpdk];

/// `rte_gro_param.max_flow_num` has 16 bits.
const DPDK_FLOWS_MAX: u32 = 65_535;

/// What is varied beside the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Flows that take turns.
    pub flows: u32,
    /// IP version.
    pub ip: Ip,
    /// Whether TCP checksums are verified, or vouched for by the port.
    pub verify: bool,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verify = if self.verify { "with" } else { "without" };
        write!(f, "{} flows, IPv{}, {verify} verification", self.flows, self.ip.number())
    }
}

/// What to measure: everything listed with everything else.
#[derive(Clone, Debug)]
pub struct Options {
    /// Orders of arrival.
    pub cases: Vec<Case>,
    /// Numbers of flows, each 1 to [`FLOWS_MAX`].
    pub flows: Vec<u32>,
    /// IP versions.
    pub ips: Vec<Ip>,
    /// With or without verification.
    pub verify: Vec<bool>,
    /// The systems under test.
    pub systems: Vec<System>,
    /// How long each system runs for one figure, all repetitions together; at 65,536 flows a
    /// repetition may take longer than its share.
    pub time: Duration,
}

impl Options {
    /// Every setting, in the order in which they are measured.
    fn settings(&self) -> Vec<Setting> {
        let of_ip =
            |flows, ip| self.verify.iter().map(move |&verify| Setting { flows, ip, verify });
        let of_flows = |flows| self.ips.iter().flat_map(move |&ip| of_ip(flows, ip));
        self.flows.iter().flat_map(|&flows| of_flows(flows)).collect()
    }
}

/// Measures, and reports peers that are absent or cannot do something.
///
/// # Errors
/// wharf itself did not do what it should. Peers that fail are left out with a notice.
pub fn run(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let runners = side_by_side::find(&options.systems, find, report);
    let group = |setting: Setting| Group {
        name: setting.to_string(),
        workloads: options.cases.iter().map(|&case| Workload::new(case, setting)).collect(),
    };
    let groups: Vec<Group<Workload>> = options.settings().into_iter().map(group).collect();
    take_turns(&groups, runners, options.time, report)
}

fn find(system: System) -> Found<Workload> {
    match system {
        System::Wharf => Ok(Box::new(wharf::Wharf::default())),
        #[cfg(feature = "peers")]
        System::TunRs => Ok(Box::new(tun_rs::TunRs::default())),
        #[cfg(not(feature = "peers"))]
        System::TunRs => Err(peers::NOT_BUILT_IN.to_owned()),
        System::WireguardGo => peers::wireguard_go(left_out_by_wireguard_go),
        System::Gvisor => peers::gvisor(|_| None),
        System::Dpdk => peers::dpdk(left_out_by_dpdk),
        System::WharfCopy => Err("it has no receive offload of its own".to_owned()),
    }
}

fn left_out_by_wireguard_go(workload: &Workload) -> Option<&'static str> {
    (!workload.setting.verify).then_some("without verification: it always verifies")
}

fn left_out_by_dpdk(workload: &Workload) -> Option<&'static str> {
    if workload.setting.verify {
        Some("with verification: it verifies no checksum")
    } else if workload.setting.ip == Ip::V6 {
        Some("with IPv6: it merges TCP over IPv4 only")
    } else if workload.setting.flows > DPDK_FLOWS_MAX {
        Some("at 65,536 flows: its max_flow_num has 16 bits")
    } else {
        None
    }
}

fn figure(
    case: Case,
    setting: Setting,
    system: System,
    metric: &'static str,
    value: f64,
) -> Figure {
    Figure {
        bench: "lro",
        case: case.name().to_owned(),
        system: system.name().to_owned(),
        varied: vec![
            ("flows", setting.flows.into()),
            ("ip", setting.ip.number().into()),
            ("verify", setting.verify.into()),
        ],
        metric,
        unit: match metric {
            "ns_per_packet" => "ns",
            "mean_aggregate" => crate::figure::BYTES,
            _ => "instructions",
        },
        value,
        samples: Vec::new(),
    }
}
