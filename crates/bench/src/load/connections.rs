//! TCP connections in one direction, over the wire itself or over a path that reorders.

use std::time::Duration;

use nic::degen::Settings;

use super::streams::{Direction, Received, Streams};
use super::{Case, Options, Reading, Readings, Row, Testbed};
use crate::Error;

/// How long connections have to find their windows before they are measured.
const WARM_UP: Duration = Duration::from_millis(500);
/// Connections over a path that reorders.
const REORDERED: usize = 8;

/// The server receives.
pub(super) fn receive(options: &Options) -> impl Iterator<Item = Row<'_>> {
    options.connections.iter().map(move |&count| {
        Row::new(Case::Connections, vec![("connections", count.into())], move |system| {
            let testbed = Testbed::new(system, options)?;
            run(testbed, Direction::Receive, count, options)
        })
    })
}

/// The server sends.
pub(super) fn send(options: &Options) -> impl Iterator<Item = Row<'_>> {
    options.senders.iter().map(move |&count| {
        Row::new(Case::Send, vec![("connections", count.into())], move |system| {
            let testbed = Testbed::new(system, options)?;
            run(testbed, Direction::Send, count, options)
        })
    })
}

/// The server receives what degen has displaced.
pub(super) fn reordering(options: &Options) -> impl Iterator<Item = Row<'_>> {
    options.displaced.iter().map(move |&percent| {
        let varied = vec![("connections", REORDERED.into()), ("reordered", percent.into())];
        Row::new(Case::Reordering, varied, move |system| {
            let testbed = Testbed::through(&path(percent)?, system, &options.config)?;
            run(testbed, Direction::Receive, REORDERED, options)
        })
    })
}

/// A path on which so many per cent of the client's packets come late.
fn path(percent: u32) -> Result<Settings, Error> {
    let mut settings = Settings::default();
    let set = settings.set("forward.reorder", &format!("{percent}%"));
    set.map_err(|error| Error::Usage(error.to_string()))?;
    Ok(settings)
}

fn run(testbed: Testbed, direction: Direction, count: usize, options: &Options) -> Readings {
    let streams = Streams::start(&testbed.hosts, direction, count, options.threads)?;
    std::thread::sleep(WARM_UP);
    let before = testbed.read()?;
    streams.begin(before.at);
    std::thread::sleep(options.duration);
    let after = testbed.read()?;
    let received = streams.end(after.at)?;
    let bytes = received.iter().map(|one| one.bytes).sum();
    let mut readings = after.since(&before, bytes);
    if direction == Direction::Receive {
        readings.push(after.mean_aggregate(&before, bytes));
    }
    readings.extend(after.repeated(&before, direction));
    readings.extend(of_each(&received, bytes));
    testbed.stop()?;
    Ok(readings)
}

/// How those fared that fared worst.
fn of_each(received: &[Received], bytes: u64) -> [Reading; 2] {
    let silence = received.iter().map(|one| one.silence).max().unwrap_or(0);
    let least = received.iter().map(|one| one.bytes).min().unwrap_or(0);
    let share = bytes.max(1) as f64 / received.len().max(1) as f64;
    [
        Reading::new("longest_silence", "ms", silence as f64 / 1e6),
        Reading::new("least_share", "%", 100.0 * least as f64 / share),
    ]
}
