//! `tcp`: the TCP engine beside Linux's and smoltcp's.

mod case;
mod client;
mod cores;
pub mod engine;
mod fairness;
pub mod goodput;
mod live;
mod recovery;
mod server;
mod steering;
mod system;
mod testbed;
mod turns;
mod virtual_time;

use std::time::Duration;

use nic::config::WireMode;
use serde_json::Value;

pub use case::Case;
use engine::Work;
pub use system::{Link, System};

use crate::{Error, Figure, Report};

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Scenarios.
    pub cases: Vec<Case>,
    /// The systems under test.
    pub systems: Vec<System>,
    /// What joins them to the client, for [`Case::Bulk`], [`Case::Rr`], [`Case::Connect`] and
    /// [`Case::Recovery`].
    pub links: Vec<Link>,
    /// Server and client have a CPU each, for [`Case::Bulk`], [`Case::Rr`] and [`Case::Connect`].
    pub own_cpus: bool,
    /// What wharf's frames come and go by on a veth without offloads.
    pub mode: WireMode,
    /// How long each system runs for one figure; ten times that for [`Case::Recovery`] and
    /// [`Case::Fairness`].
    pub duration: Duration,
    /// Rounds of which the median is shown, but for [`Case::Engine`].
    pub repetitions: usize,
    /// What the engine is at, for [`Case::Engine`].
    pub works: Vec<Work>,
    /// Connections, for [`Case::Engine`].
    pub connections: Vec<u32>,
}

/// Runs it.
///
/// # Errors
/// What the kernel says, or that the engine did not do what it should.
pub fn tcp(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    for case in &options.cases {
        match case {
            Case::Engine => engine::run(options, report)?,
            Case::Bulk => live::bulk(options, report)?,
            Case::Rr => live::request_response(options, report)?,
            Case::Connect => live::connect(options, report)?,
            Case::Recovery => recovery::run(options, report)?,
            Case::Fairness => fairness::run(options, report)?,
        }
    }
    Ok(())
}

/// One figure of this bench, whose cases all vary the same things.
fn figure(
    case: &'static str,
    system: &'static str,
    varied: [(&'static str, Value); 3],
    metric: &'static str,
    unit: &'static str,
    value: f64,
    samples: Vec<f64>,
) -> Figure {
    let (case, system) = (case.to_owned(), system.to_owned());
    Figure { bench: "tcp", case, system, varied: varied.into(), metric, unit, value, samples }
}
