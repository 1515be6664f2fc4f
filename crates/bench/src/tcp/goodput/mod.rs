//! `tcp-goodput`: how fast a peer's TCP moves bytes through a path that loses packets, to and from the
//! kernel's TCP and wharf's.
//!
//! The path is mostly delay, so several transfers can go on at a time. Those of kernel and wharf with the
//! same seed, with which degen loses the same packets, are neighbours in time.

mod kernel;
mod path;
mod peer;
mod program;
mod served;
#[cfg(feature = "peers")]
mod smoltcp;
mod table;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nic::config::Config;
use nic::degen::Settings;

pub use peer::{Peer, Way};

use super::system::System;
use crate::{Error, Report};
use path::Path;
use program::Built;
use table::{Outcome, Row};

/// A transfer that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(120);
/// Half of the round-trip time, unless something else is asked for.
const DELAY: &str = "10ms";
/// Those beside each other.
const SYSTEMS: [System; 2] = [System::Kernel, System::Wharf];

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The direction: wharf sends, receives, or is in front of the kernel.
    pub ways: Vec<Way>,
    /// Whose TCP is at the other end.
    pub peers: Vec<Peer>,
    /// How many transfers, each with another seed, of which the median is shown.
    pub seeds: u64,
    /// Bytes of a transfer.
    pub bytes: u64,
    /// Transfers at a time.
    pub jobs: usize,
    /// Keys and values of degen's settings, besides or instead of delay and loss.
    pub path: Vec<(String, String)>,
    /// What wharf is set to.
    pub config: Config,
}

/// What is moved, and which way.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    way: Way,
    bytes: u64,
}

/// One transfer.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Which row of the table it is for.
    row: usize,
    system: System,
    seed: u64,
}

/// Runs it.
///
/// # Errors
/// What the kernel says, or that wharf or a peer would not start. A transfer that fails counts as nothing
/// moved, with a notice.
pub fn goodput(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    if options.seeds == 0 || options.bytes == 0 || options.jobs == 0 {
        return Err(Error::Usage("there must be a seed, a byte and a job at least".to_owned()));
    }
    for way in &options.ways {
        settings(options, *way)?;
    }
    let peers = present(options, report);
    let of_way = |way: &Way| {
        let way = *way;
        peers.0.iter().filter(move |peer| way.has(**peer)).map(move |peer| Row::new(way, *peer))
    };
    let mut rows: Vec<Row> = options.ways.iter().flat_map(of_way).collect();
    let runs: Vec<Run> = (0..rows.len())
        .flat_map(|row| (1..=options.seeds).map(move |seed| (row, seed)))
        .flat_map(|(row, seed)| SYSTEMS.map(|system| Run { row, system, seed }))
        .collect();
    let transfers = rows.iter().map(|row| (row.way, row.peer)).collect::<Vec<_>>();
    let measure = |run: &Run| measure(options, transfers[run.row], run, &peers.1);
    let (mut done, mut reported) = (0, 0);
    report.progress(done, runs.len(), "begins");
    all(&runs, options.jobs, measure, |run, outcome| {
        done += 1;
        let row = &mut rows[run.row];
        let words = format!("{}, seed {}, {}", row.words(), run.seed, run.system.name());
        if let Err(why) = &outcome {
            report.notice(&format!("{words}: {why}; it counts as nothing moved"));
        }
        row.add(Outcome { system: run.system, seed: run.seed, rate: outcome.unwrap_or(0.0) });
        report.progress(done, runs.len(), &words);
        // In order, though the last of one row may end after the first of the next.
        while let Some(row) = rows.get(reported).filter(|row| row.is_complete(options.seeds)) {
            row.report(&path_words(options, row.way), report);
            reported += 1;
        }
    })
}

/// Those of the peers that are here, and the programs of those that are programs.
fn present(options: &Options, report: &mut dyn Report) -> (Vec<Peer>, Arc<Built>) {
    let mut peers = options.peers.clone();
    let mut absent = Vec::new();
    let built = Built::new(&peers, |peer, why| absent.push((peer, why)));
    #[cfg(not(feature = "peers"))]
    if peers.contains(&Peer::Smoltcp) {
        absent.push((Peer::Smoltcp, crate::peers::NOT_BUILT_IN.to_owned()));
    }
    for (peer, why) in absent {
        report.notice(&format!("{}: absent: {why}", peer.name()));
        peers.retain(|other| *other != peer);
    }
    (peers, Arc::new(built))
}

/// Bits in a second, or what went wrong with the transfer.
fn measure(
    options: &Options,
    (way, peer): (Way, Peer),
    run: &Run,
    built: &Arc<Built>,
) -> Result<Result<f64, Error>, Error> {
    let transfer = Transfer { way, bytes: options.bytes };
    let mut settings = settings(options, way)?;
    settings.seed = Some(run.seed);
    let mut path = Path::new(peer, run.system, transfer, (&settings, &options.config), built)?;
    let rate = |took: Duration| options.bytes as f64 * 8.0 / took.as_secs_f64();
    Ok(path.run(transfer).map(rate))
}

/// What degen does.
fn settings(options: &Options, way: Way) -> Result<Settings, Error> {
    let mut settings = Settings::default();
    for (key, value) in keys(options, way) {
        settings.set(&key, &value).map_err(|error| Error::Usage(error.to_string()))?;
    }
    Ok(settings)
}

fn keys(options: &Options, way: Way) -> Vec<(String, String)> {
    let usual = [("loss", way.loss()), ("delay", DELAY)];
    let mut keys = usual.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    for (key, value) in &options.path {
        keys.retain(|(other, _)| other != key);
        keys.push((key.clone(), value.clone()));
    }
    keys
}

fn path_words(options: &Options, way: Way) -> String {
    let words = keys(options, way).into_iter().map(|(key, value)| format!("{key}={value}"));
    words.collect::<Vec<_>>().join(",")
}

/// Does all runs, so many at a time and in order, and calls `each` with the result of each.
fn all<T: Send>(
    runs: &[Run],
    jobs: usize,
    measure: impl Fn(&Run) -> Result<T, Error> + Sync,
    mut each: impl FnMut(&Run, T),
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let (sender, measured) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(runs.len()) {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // After an error the receiver of results is gone.
                    if sender.send((run, measure(run))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (run, outcome) in measured {
            each(run, outcome?);
        }
        Ok(())
    })
}
