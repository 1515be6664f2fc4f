//! `tcp`: the TCP engine beside Linux's and smoltcp's.

mod case;
pub mod engine;

use std::time::Duration;

use serde_json::Value;

pub use case::Case;
use engine::Work;

use crate::{Error, Figure, Report};

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Scenarios.
    pub cases: Vec<Case>,
    /// How long each system runs for one figure.
    pub duration: Duration,
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
        }
    }
    Ok(())
}

/// One figure of this bench, whose cases all vary the same two things.
fn figure(
    case: &'static str,
    system: &'static str,
    varied: [(&'static str, Value); 2],
    metric: &'static str,
    unit: &'static str,
    value: f64,
    samples: Vec<f64>,
) -> Figure {
    let (case, system) = (case.to_owned(), system.to_owned());
    Figure { bench: "tcp", case, system, varied: varied.into(), metric, unit, value, samples }
}
