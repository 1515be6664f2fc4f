//! `engine`: cycles for each segment of 1,448 bytes inside the engine, without any IO.
//!
//! Receiving counts [`Segment::new`](::tcp::Segment::new) and `Stack::receive` for each segment or
//! aggregate, the application's `consume`, timers that are due, and `poll_transmit` with the headers of
//! the acknowledgments; sending the application's `send`, super-packets with their headers, and the
//! acknowledgments that come for them. `worker` is receiving through all of a NIC's worker: what a port would put
//! into its memory is headers of 66 bytes, written while it is timed. Otherwise frames are made, and answers looked at, while nothing is timed. A
//! time is the median of five repetitions, each of which counts its fastest lap.

mod clock;
mod frequency;
mod instructions;
mod peers;
mod receive;
mod send;
mod through;

use serde_json::Value;

pub use self::instructions::{count, run as instructions};

use self::frequency::Frequency;
use self::receive::Receiver;
use self::send::Sender;
use self::through::Through;
use super::{Options, figure};
use crate::side_by_side::{Lap, Sample, laps};
use crate::throughput::median;
use crate::{Error, Report};

/// How often everything is measured.
const REPETITIONS: u32 = 5;

/// What the engine is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// It receives segments.
    Receive,
    /// It receives aggregates of 44 segments.
    ReceiveLro,
    /// It sends; every second segment is acknowledged.
    Send,
    /// It sends; every super-packet is acknowledged.
    SendLro,
    /// It receives segments through the worker of a NIC, from frame to frame.
    Worker,
}

impl Work {
    /// All, in the order in which they are shown.
    pub const ALL: [Work; 5] =
        [Work::Receive, Work::ReceiveLro, Work::Send, Work::SendLro, Work::Worker];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Receive => "receive",
            Work::ReceiveLro => "receive_lro",
            Work::Send => "send",
            Work::SendLro => "send_lro",
            Work::Worker => "worker",
        }
    }
}

/// A stack at work.
enum Bench {
    Receiver(Receiver),
    Sender(Sender),
    Through(Box<Through>),
}

impl Bench {
    fn new(work: Work, connections: u32) -> Result<Bench, Error> {
        let lro = matches!(work, Work::ReceiveLro | Work::SendLro);
        Ok(match work {
            Work::Receive | Work::ReceiveLro => Bench::Receiver(Receiver::new(connections, lro)?),
            Work::Worker => Bench::Through(Box::new(Through::new(connections)?)),
            Work::Send | Work::SendLro => Bench::Sender(Sender::new(connections, lro)?),
        })
    }

    fn lap(&mut self) -> Result<Lap, Error> {
        match self {
            Bench::Receiver(receiver) => receiver.lap(),
            Bench::Sender(sender) => sender.lap(),
            Bench::Through(through) => through.lap(),
        }
    }
}

/// Measures each kind of work at each number of connections.
pub(super) fn run(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let total = options.connections.len() * options.works.len();
    let mut done = 0;
    for &connections in &options.connections {
        for &work in &options.works {
            report.progress(done, total, &format!("{}, {connections} connections", work.name()));
            measure(work, connections, options, report)?;
            done += 1;
        }
    }
    Ok(())
}

fn measure(
    work: Work,
    connections: u32,
    options: &Options,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let mut bench = Bench::new(work, connections)?;
    let mut samples: Vec<(Sample, Option<Frequency>)> = Vec::new();
    for _ in 0..REPETITIONS {
        let sample = laps(options.duration / REPETITIONS, || bench.lap())?;
        samples.push((sample, frequency::of_core()));
    }
    let kernel = frequency::of_kernel();
    let mut figure = |metric, unit, samples: Vec<f64>| {
        let value = median(samples.iter().copied());
        let varied = [
            ("what", Value::from(work.name())),
            ("link", "".into()),
            ("connections", connections.into()),
        ];
        report.figure(figure("engine", "wharf", varied, metric, unit, value, samples));
    };
    let cycles = |core: &(Sample, Option<Frequency>)| {
        core.1.map(|clock| core.0.ns_per_packet * clock.gigahertz)
    };
    let core: Vec<f64> = samples.iter().filter_map(cycles).collect();
    if !core.is_empty() {
        figure("cycles_per_segment", "", core);
    }
    figure(
        "ns_per_segment",
        "ns",
        samples.iter().map(|(sample, _)| sample.ns_per_packet).collect(),
    );
    let clocks: Vec<f64> =
        samples.iter().filter_map(|(_, clock)| clock.map(|clock| clock.gigahertz)).collect();
    if !clocks.is_empty() {
        figure("core_clock", "GHz", clocks);
    }
    if let Some(kernel) = kernel {
        figure("cpuinfo_clock", "GHz", vec![kernel.gigahertz]);
    }
    if let Some((_, Some(clock))) = samples.first()
        && connections == options.connections[0]
        && work == options.works[0]
    {
        let kernel = kernel.map_or(0.0, |kernel| kernel.gigahertz);
        report.notice(&format!(
            "engine: cycles are nanoseconds times the core's clock, {:.2} GHz by {}; cpu MHz of \
             /proc/cpuinfo, which in a virtual machine is the time stamp counter's, is {kernel:.2} GHz",
            clock.gigahertz, clock.source
        ));
    }
    Ok(())
}
