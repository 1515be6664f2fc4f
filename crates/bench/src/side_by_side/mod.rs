//! Implementations of one thing, side by side.
//!
//! A bench has workloads in groups and a [`Runner`] for each system. All workloads and
//! systems of one group take turns, five times, so that other load of the machine meets all of
//! them; a time is the median of the repetitions, each of which counts its fastest lap.

pub(crate) mod callgrind;
mod laps;
mod turns;

use std::time::Duration;

use crate::{Error, Figure, Report};
pub(crate) use laps::{Lap, Sample, laps};
pub(crate) use turns::{Group, take_turns};

/// An implementation of the offloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// This project.
    Wharf,
    /// This project, with the payload copied behind the headers.
    WharfCopy,
    /// A Rust crate for TUN devices.
    TunRs,
    /// WireGuard in Go.
    WireguardGo,
    /// The network stack of Google's sandbox, in Go.
    Gvisor,
    /// The Data Plane Development Kit, in C.
    Dpdk,
}

impl System {
    /// The name in the figures' `system`.
    pub const fn name(self) -> &'static str {
        match self {
            System::Wharf => "wharf",
            System::WharfCopy => "wharf-copy",
            System::TunRs => "tun-rs",
            System::WireguardGo => "wireguard-go",
            System::Gvisor => "gvisor",
            System::Dpdk => "dpdk",
        }
    }

    /// Whether it is the one whose failure ends the run.
    const fn is_wharf(self) -> bool {
        matches!(self, System::Wharf | System::WharfCopy)
    }
}

/// The input of every system: one case of a bench at one setting.
pub(crate) trait Workload {
    /// The bench: what the harnesses in `bench/peers` are asked for by this name.
    const BENCH: &'static str;

    /// All of it as `bench/peers` read it.
    fn to_bytes(&self) -> Vec<u8>;

    /// What a system's repetitions come to.
    fn figures(&self, system: System, total: Total) -> Vec<Figure>;
}

/// The outcome of all repetitions of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    /// The median.
    pub(crate) ns_per_packet: f64,
    /// See [`Sample`].
    pub(crate) packets: u64,
    /// See [`Sample`].
    pub(crate) large: u64,
}

/// A system under test.
pub(crate) trait Runner<W> {
    fn system(&self) -> System;

    /// Why it has no part in this workload, if it has none: what follows "left out".
    fn left_out(&self, _: &W) -> Option<&'static str> {
        None
    }

    /// Runs the workload for about this time, one lap at least.
    fn slice(&mut self, workload: &W, time: Duration) -> Result<Sample, Error>;
}

/// A [`Runner`], or why there is none.
pub(crate) type Found<W> = Result<Box<dyn Runner<W>>, String>;

/// Those of `systems` that are here.
pub(crate) fn find<W>(
    systems: &[System],
    find: fn(System) -> Found<W>,
    report: &mut dyn Report,
) -> Vec<Box<dyn Runner<W>>> {
    let mut runners = Vec::new();
    for (done, &system) in systems.iter().enumerate() {
        report.progress(done, systems.len(), &format!("preparing {}", system.name()));
        match find(system) {
            Ok(runner) => runners.push(runner),
            Err(why) => report.notice(&format!("{}: absent: {why}", system.name())),
        }
    }
    runners
}
