//! How a system is timed: laps, of which the fastest counts.

use std::time::{Duration, Instant};

use crate::Error;

/// The outcome of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Of the fastest lap.
    pub(crate) ns_per_packet: f64,
    /// Packets of the wire's size: the input of LRO, the output of GSO.
    pub(crate) packets: u64,
    /// What they became, or came from. A packet that joined no other is one.
    pub(crate) large: u64,
}

/// A part of a slice that is timed by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    pub(crate) time: Duration,
    /// See [`Sample`].
    pub(crate) packets: u64,
    /// See [`Sample`].
    pub(crate) large: u64,
}

/// Laps for about this time. The fastest counts: what else the machine does only adds to it.
pub(crate) fn laps(
    time: Duration,
    mut lap: impl FnMut() -> Result<Lap, Error>,
) -> Result<Sample, Error> {
    let end = Instant::now() + time;
    let mut sample = Sample { ns_per_packet: f64::INFINITY, packets: 0, large: 0 };
    loop {
        let Lap { time, packets, large } = lap()?;
        sample.ns_per_packet = sample.ns_per_packet.min(time.as_nanos() as f64 / packets as f64);
        sample.packets += packets;
        sample.large += large;
        if Instant::now() >= end {
            return Ok(sample);
        }
    }
}
