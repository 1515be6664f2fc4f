//! What all systems have in common: they are given a workload for a time, and say what it took.

use std::time::{Duration, Instant};

use super::System;
use crate::Error;
use crate::lro::Setting;
use crate::lro::workload::Workload;

/// A system under test.
pub(crate) trait Runner {
    fn system(&self) -> System;

    /// Why it has no part in this setting, if it has none.
    fn left_out(&self, _: Setting) -> Option<&'static str> {
        None
    }

    /// Runs the workload for about this time, one lap at least.
    fn slice(&mut self, workload: &Workload, time: Duration) -> Result<Sample, Error>;
}

/// What a slice gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Of the fastest lap.
    pub(crate) ns_per_packet: f64,
    pub(crate) packets: u64,
    /// What they became; a packet that joined no other is one.
    pub(crate) outputs: u64,
}

/// A part of a slice that is timed by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    pub(crate) time: Duration,
    pub(crate) packets: u64,
    pub(crate) outputs: u64,
}

/// Laps for about this time. The fastest counts: what else the machine does only adds to it.
pub(crate) fn laps(
    time: Duration,
    mut lap: impl FnMut() -> Result<Lap, Error>,
) -> Result<Sample, Error> {
    let end = Instant::now() + time;
    let mut sample = Sample { ns_per_packet: f64::INFINITY, packets: 0, outputs: 0 };
    loop {
        let Lap { time, packets, outputs } = lap()?;
        sample.ns_per_packet = sample.ns_per_packet.min(time.as_nanos() as f64 / packets as f64);
        sample.packets += packets;
        sample.outputs += outputs;
        if Instant::now() >= end {
            return Ok(sample);
        }
    }
}

/// Of an odd number the one in the middle, of an even number the larger of the two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
