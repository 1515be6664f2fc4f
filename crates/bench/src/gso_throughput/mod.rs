//! `gso-throughput`: how fast a sender is that has only so much CPU time, with nothing cutting what it
//! sends, with the host's kernel, with wharf, and with a card doing it. The slides on GSO have it as
//! four tables, against the frequency of the sender's CPU; here a bound on the CPU time of the
//! sender's threads stands in for that.
//!
//! Cases take turns within each repetition, so that a machine that grows slower does so for all of
//! them; what is reported is the median of the repetitions.

mod case;
mod limited;
mod run;
mod tcp;
mod udp;

use std::sync::Arc;
use std::time::Duration;

use nic::config::Config;
use sys::cgroup::CpuGroup;

pub use case::{Case, Protocol};

use self::limited::Cores;
pub(crate) use self::limited::receiving_thread;
use self::run::{Measured, Run};
use crate::throughput::median;
use crate::{Error, Figure, Report};

/// How threads are named whose CPU time is asked for.
const SENDER: &str = "sender";
const WORKER: &str = "wharf-";
const SINK: &str = "sink-0";

/// A sender that uses less of what it may is not what limits.
const ENOUGH: f64 = 0.9;

/// The least bound on CPU time, in per cent.
pub const LEAST_CPU: u32 = 10;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who cuts.
    pub cases: Vec<Case>,
    /// What is sent, one round each.
    pub protocols: Vec<Protocol>,
    /// The sender's CPU time, in per cent of one core, one round each.
    pub cpu_percents: Vec<u32>,
    /// How long each run is measured.
    pub duration: Duration,
    /// Runs of which the median counts.
    pub repetitions: usize,
    /// wharf's settings, but for those that make the cases.
    pub config: Config,
}

/// Reports the throughput of each case for each protocol and bound.
///
/// # Errors
/// What the kernel says, or that a byte did not arrive as it was sent.
pub fn gso_throughput(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    options.check()?;
    let cores = Cores::choose()?;
    let group = group(options, report)?;
    let bounded = |percent: &u32| *percent < 100 && group.is_none();
    let percents: Vec<u32> =
        options.cpu_percents.iter().copied().filter(|percent| !bounded(percent)).collect();
    let rounds = options.protocols.len() * percents.len() * options.repetitions;
    let mut round = 0;
    for &protocol in &options.protocols {
        let cases: Vec<Case> =
            options.cases.iter().copied().filter(|case| protocol.has(*case)).collect();
        for &case in &cases {
            let what = format!("compares every byte, {}, {}", protocol.name(), case.name());
            report.progress(round, rounds, &what);
            for notice in run::check(case, protocol, &options.config, cores)? {
                report.notice(&format!("{}, {}: {notice}", protocol.name(), case.name()));
            }
        }
        for &cpu_percent in &percents {
            let mut outcomes: Vec<Vec<Measured>> = vec![Vec::new(); cases.len()];
            for _ in 0..options.repetitions {
                round += 1;
                for (&case, outcomes) in cases.iter().zip(&mut outcomes) {
                    let (protocol_name, name) = (protocol.name(), case.name());
                    let what = format!("{protocol_name}, {cpu_percent} % of a CPU, {name}");
                    report.progress(round, rounds, &what);
                    let run = Run { case, protocol, cpu_percent };
                    let (config, duration) = (&options.config, options.duration);
                    outcomes.push(run::measure(run, config, cores, group.as_ref(), duration)?);
                }
            }
            for (&case, outcomes) in cases.iter().zip(&outcomes) {
                report_run(Run { case, protocol, cpu_percent }, outcomes, report);
            }
        }
    }
    Ok(())
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        if self.cpu_percents.iter().any(|percent| !(LEAST_CPU..=100).contains(percent)) {
            return Err(Error::Usage(format!("CPU time is {LEAST_CPU} to 100 % of a core")));
        }
        if self.repetitions == 0 {
            return Err(Error::Usage("there must be one repetition at least".to_owned()));
        }
        Ok(())
    }
}

/// What bounds the sender's CPU time, where that is asked for and can be had.
fn group(options: &Options, report: &mut dyn Report) -> Result<Option<Arc<CpuGroup>>, Error> {
    if options.cpu_percents.iter().all(|percent| *percent == 100) {
        return Ok(None);
    }
    match CpuGroup::new() {
        Ok(group) => Ok(Some(Arc::new(group))),
        Err(error) if error.is_missing() || error.is_permission() => {
            report.notice(&format!("CPU time cannot be bounded here, so 100 % only: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reports the runs of one case.
fn report_run(run: Run, outcomes: &[Measured], report: &mut dyn Report) {
    let Run { case, protocol, cpu_percent } = run;
    let repeated: u64 = outcomes.iter().map(|run| run.repeated).sum();
    if repeated > 0 {
        report.notice(&format!(
            "{}, {cpu_percent} %, {}: {repeated} segments were lost and sent again",
            protocol.name(),
            case.name()
        ));
    }
    let each = |value: fn(&Measured) -> f64| outcomes.iter().map(value).collect::<Vec<f64>>();
    let middle = |value: fn(&Measured) -> f64| median(outcomes.iter().map(value));
    let (used, receiver) = (middle(|run| run.sender_cpu), middle(|run| run.receiver_cpu));
    if used < ENOUGH * f64::from(cpu_percent) {
        report.notice(&format!(
            "{}, {cpu_percent} %, {}: the sender used {used:.0} % of its core only; the receiver used \
             {receiver:.0} % of its own, so it, or others on this machine, were the bottleneck",
            protocol.name(),
            case.name()
        ));
    }
    let mut figures = vec![
        ("throughput", "bit/s", each(|run| run.throughput)),
        ("mean_super_packet", crate::figure::BYTES, each(|run| run.mean_packet)),
        ("cpu_per_gigabyte", "s/GB", each(|run| run.cpu_per_gigabyte)),
        ("sender_cpu", "%", each(|run| run.sender_cpu)),
        ("worker_share", "%", each(|run| run.worker_share)),
        ("receiver_cpu", "%", each(|run| run.receiver_cpu)),
    ];
    if !protocol.is_tcp() {
        figures.push(("lost", "%", each(|run| run.lost)));
    }
    for (metric, unit, samples) in figures {
        report.figure(Figure {
            bench: "gso-throughput",
            case: case.name().to_owned(),
            system: "wharf".to_owned(),
            varied: vec![
                ("wire", "veth".into()),
                ("protocol", protocol.name().into()),
                ("cpu_percent", cpu_percent.into()),
            ],
            metric,
            unit,
            value: median(samples.iter().copied()),
            samples,
        });
    }
}
