//! LRO by itself: nanoseconds for each packet, and how much becomes one, for wharf and its peers.
//!
//! `workload` says what everyone is given. wharf holds segments across bursts until a round
//! of 128 segments a flow ends. Its peers that work on a burst (tun-rs, wireguard-go, gVisor) let
//! go at the end of each; DPDK does at one flow, where that is the fastest it has, and with more
//! keeps a table until the round ends (`rte_gro_reassemble`).
//!
//! All cases and systems of one setting take turns, five times, so that whatever else the machine
//! does meets all of them; a figure is the median of the repetitions, each of which
//! counts its fastest lap.

mod case;
pub mod instructions;
#[cfg(feature = "peers")]
mod tun_rs;
mod wharf;
pub(crate) mod workload;

use std::time::Duration;

pub use case::Case;
use workload::{PAYLOAD, Workload};

pub use crate::packet::Ip;
use crate::side_by_side::{Runner, Sample, System, median};
use crate::{Error, Figure, Report, peers};

/// How often each system does each case.
const REPETITIONS: u32 = 5;

/// Most flows: each has a source port of its own.
pub const FLOWS_MAX: u32 = 65_536;

/// What is varied beside the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Flows that take turns.
    pub flows: u32,
    /// IP version.
    pub ip: Ip,
    /// Are TCP checksums verified, or vouched for by the port?
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
    /// Who takes part.
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

/// Measures, and tells of peers that are absent or cannot take part in something.
///
/// # Errors
/// wharf itself did not do what it should. Peers that fail are left out with a notice.
pub fn run(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let mut runners = runners(&options.systems, report);
    let settings = options.settings();
    let mut told = Vec::new();
    for (done, &setting) in settings.iter().enumerate() {
        for runner in &runners {
            if let Some(why) = runner.left_out(setting) {
                let words = format!("{}: left out {why}", runner.system().name());
                if !told.contains(&words) {
                    report.notice(&words);
                    told.push(words);
                }
            }
        }
        let mut group = Group::new(options, setting);
        for repetition in 0..REPETITIONS {
            let what = format!("{setting}, {} of {REPETITIONS}", repetition + 1);
            report.progress(done, settings.len(), &what);
            group.repeat(&mut runners, report)?;
        }
        group.figures(&options.systems, report);
    }
    Ok(())
}

/// Those of `systems` that are here.
fn runners(systems: &[System], report: &mut dyn Report) -> Vec<Box<dyn Runner>> {
    let mut runners: Vec<Box<dyn Runner>> = Vec::new();
    for (done, &system) in systems.iter().enumerate() {
        report.progress(done, systems.len(), &format!("building {}", system.name()));
        let found: Result<Box<dyn Runner>, String> = match system {
            System::Wharf => Ok(Box::new(wharf::Wharf::default())),
            #[cfg(feature = "peers")]
            System::TunRs => Ok(Box::new(tun_rs::TunRs::default())),
            #[cfg(not(feature = "peers"))]
            System::TunRs => Err("wharf was built without the feature `peers`".to_owned()),
            System::WireguardGo => peers::wireguard_go(),
            System::Gvisor => peers::gvisor(),
            System::Dpdk => peers::dpdk(),
        };
        match found {
            Ok(runner) => runners.push(runner),
            Err(why) => report.notice(&format!("{}: absent: {why}", system.name())),
        }
    }
    runners
}

/// All cases and systems at one setting.
struct Group {
    setting: Setting,
    time: Duration,
    workloads: Vec<(Case, Workload)>,
    samples: Vec<(Case, System, Sample)>,
}

impl Group {
    fn new(options: &Options, setting: Setting) -> Group {
        Group {
            setting,
            time: options.time / REPETITIONS,
            workloads: options.cases.iter().map(|&c| (c, Workload::new(c, setting))).collect(),
            samples: Vec::new(),
        }
    }

    /// Each case by each system, once. A peer that fails takes no further part.
    fn repeat(
        &mut self,
        runners: &mut Vec<Box<dyn Runner>>,
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        for (case, workload) in &self.workloads {
            let mut failed = Vec::new();
            for runner in runners.iter_mut() {
                let system = runner.system();
                if runner.left_out(self.setting).is_some() {
                    continue;
                }
                match runner.slice(workload, self.time) {
                    Ok(sample) => self.samples.push((*case, system, sample)),
                    Err(error) if system == System::Wharf => return Err(error),
                    Err(error) => {
                        report.notice(&format!("{error}; it is left out from here"));
                        failed.push(system);
                    }
                }
            }
            runners.retain(|runner| !failed.contains(&runner.system()));
        }
        Ok(())
    }

    fn figures(&self, systems: &[System], report: &mut dyn Report) {
        for (case, _) in &self.workloads {
            for &system in systems {
                let of = |sample: &&(Case, System, Sample)| (sample.0, sample.1) == (*case, system);
                let samples: Vec<Sample> = self.samples.iter().filter(of).map(|s| s.2).collect();
                if samples.is_empty() {
                    continue;
                }
                let outputs: u64 = samples.iter().map(|sample| sample.outputs).sum();
                let packets: u64 = samples.iter().map(|sample| sample.packets).sum();
                let bytes = packets as f64 * PAYLOAD as f64 / outputs as f64;
                let times = samples.iter().map(|sample| sample.ns_per_packet).collect();
                report.figure(figure(*case, self.setting, system, "ns_per_packet", median(times)));
                report.figure(figure(*case, self.setting, system, "mean_aggregate", bytes));
            }
        }
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
            "mean_aggregate" => "bytes",
            _ => "instructions",
        },
        value,
    }
}
