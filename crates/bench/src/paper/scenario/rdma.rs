//! The paper on RDMA over IP, by `rdma-wan`.

use std::time::Duration;

use super::{Headline, Judge, Run, Scale, Scenario, Series, XAxis, YAxis};
use crate::paper::parameters::Parameters;
use crate::rdma_wan::{Case, Options, rdma_wan};
use crate::{Error, Figure, Report};

/// What a figure varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Varied {
    /// The size of messages, in bytes.
    Bytes,
    /// The delay of each direction, in milliseconds.
    Delay,
    /// The computation, in microseconds.
    Computation,
    /// The load of the remote node, in milliseconds.
    Load,
}

/// What differs in all figures, and in one.
macro_rules! differs {
    ($text:literal) => {
        concat!(
            "The paper's nodes and its router are machines with Gigabit Ethernet; here they are network namespaces \
             of one, joined by veths, which have no bandwidth of their own. The paper's card runs RDMA and its TCP; \
             here wharf's device does, a process beside the program, over TCP of the kernel, or of a wharf up on each node (--carrier). Programs poll \
             where they wait, and give way to others of their CPU meanwhile. ",
            $text
        )
    };
}

const ENDS: &str = differs!(
    "Each node has a CPU, with its program and its device; degen is on that of the server."
);

/// A run is measured for a third of the time that is asked for: there are many.
const PART: u32 = 3;

const SIZES: [u32; 6] = [1, 64, 1_024, 4_096, 16_384, 65_536];

const BYTES: XAxis = XAxis { label: "message", unit: "bytes", words: " bytes", scale: Scale::Log2 };
const DELAY: XAxis =
    XAxis { label: "delay one way", unit: "ms", words: " ms of delay", scale: Scale::Linear };

const MICROSECONDS: YAxis =
    YAxis { label: "One-way latency", unit: "us", factor: 1.0, scale: Scale::Log10 };
const MILLISECONDS: YAxis =
    YAxis { label: "One-way latency", unit: "ms", factor: 1e-3, scale: Scale::Linear };

/// Ratios of RDMA to sockets, where it is worst.
const TIMES: Judge = Judge::Times { subject: "rdma", baseline: "sockets", peer: None, most: None };

/// Figure 3(a).
pub(in crate::paper) fn latency_by_size() -> Scenario {
    scenario(Case::Latency, Varied::Bytes, BYTES, MICROSECONDS, one_way(), TIMES, ENDS)
}

/// Figure 3(b).
pub(in crate::paper) fn latency_by_delay() -> Scenario {
    scenario(Case::Latency, Varied::Delay, DELAY, MILLISECONDS, one_way(), TIMES, ENDS)
}

/// Figure 8.
pub(in crate::paper) fn lan() -> Scenario {
    let judge = Judge::Saved { subject: "rdma", baseline: "sockets" };
    let differs = differs!(
        "The nodes are joined by one veth; each has a CPU, with its program and its device."
    );
    scenario(Case::Lan, Varied::Bytes, BYTES, MICROSECONDS, one_way(), judge, differs)
}

fn one_way() -> Vec<Series> {
    vec![Series::of("rdma", "one_way", "RDMA write"), Series::of("sockets", "one_way", "sockets")]
}

const OVERLAP: YAxis =
    YAxis { label: "Computation of all time", unit: "%", factor: 1.0, scale: Scale::Linear };

const OVERLAPS: &str = differs!(
    "Computation time is the CPU time of the computation. The client has a CPU alone; its device, the server with \
     its device, and degen have the other. With \"node's CPU\" the client shares its own with its device."
);

fn overlapped() -> (Vec<Series>, Judge) {
    let series = vec![
        Series::of("rdma", "overlap", "RDMA write"),
        Series::of("sockets", "overlap", "sockets"),
        Series::of("rdma_nodes", "overlap", "RDMA write, node's CPU"),
        Series::of("sockets_nodes", "overlap", "sockets, node's CPU"),
    ];
    let (subject, baseline) = ("rdma", "sockets");
    (series, Judge::Ratio { subject, baseline, peer: None, headline: Headline::Best })
}

/// Figure 5(a).
pub(in crate::paper) fn overlap_by_computation() -> Scenario {
    let x = XAxis {
        label: "computation",
        unit: "us",
        words: " us of computation",
        scale: Scale::Log10,
    };
    let (series, judge) = overlapped();
    scenario(Case::Overlap, Varied::Computation, x, OVERLAP, series, judge, OVERLAPS)
}

/// Figure 5(b).
pub(in crate::paper) fn overlap_by_delay() -> Scenario {
    let (series, judge) = overlapped();
    scenario(Case::Overlap, Varied::Delay, DELAY, OVERLAP, series, judge, OVERLAPS)
}

const LOADED: &str = differs!(
    "By RDMA the remote node computes without pause, in pieces of its load; by sockets it computes for that long \
     before it answers. The load has a CPU alone, and all else the other. With \"node's CPU\" it shares that of its \
     node with the node's device and degen. Reads from the node without load are measured in the same repetition."
);

fn fetched() -> Vec<Series> {
    vec![
        Series::of("rdma", "fetch", "RDMA read"),
        Series::new("unloaded", "rdma", "unloaded_fetch", "RDMA read without load"),
        Series::of("sockets", "fetch", "sockets"),
        Series::of("rdma_nodes", "fetch", "RDMA read, node's CPU"),
        Series::of("sockets_nodes", "fetch", "sockets, node's CPU"),
    ]
}

/// Figure 6(a).
pub(in crate::paper) fn progress_by_load() -> Scenario {
    let x = XAxis { label: "load", unit: "ms", words: " ms of load", scale: Scale::Linear };
    let y = YAxis { label: "Time to fetch 1 KB", ..MICROSECONDS };
    let judge = Judge::Times {
        subject: "rdma",
        baseline: "unloaded",
        peer: Some("sockets"),
        most: Some(5),
    };
    scenario(Case::Progress, Varied::Load, x, y, fetched(), judge, LOADED)
}

/// Figure 6(b).
pub(in crate::paper) fn progress_by_delay() -> Scenario {
    let y = YAxis { label: "Time to fetch 1 KB", ..MILLISECONDS };
    scenario(Case::Progress, Varied::Delay, DELAY, y, fetched(), TIMES, LOADED)
}

const BESIDE: &str = differs!(
    "The clients are 40 connections of one program; by verbs each has four writes under way. The server's \
     computation has a CPU alone, and all else the other. With \"node's CPU\" it shares that of its node with the \
     node's device, or the thread that receives by sockets, and with degen. The idle node's time is of the same \
     repetition."
);

fn computed(x: XAxis, varied: Varied) -> Scenario {
    let y = YAxis { label: "Run time", unit: "ms", factor: 1.0, scale: Scale::Linear };
    let series = vec![
        Series::of("rdma", "run_time", "RDMA write"),
        Series::of("sockets", "run_time", "sockets"),
        Series::new("idle", "rdma", "idle_run_time", "no clients"),
        Series::of("rdma_nodes", "run_time", "RDMA write, node's CPU"),
        Series::of("sockets_nodes", "run_time", "sockets, node's CPU"),
    ];
    let judge =
        Judge::Times { subject: "rdma", baseline: "idle", peer: Some("sockets"), most: Some(1) };
    Scenario {
        // The clients' connections, and time for them to come up to speed.
        overhead: Duration::from_millis(900),
        ..scenario(Case::Cpu, varied, x, y, series, judge, BESIDE)
    }
}

/// Figure 7(a).
pub(in crate::paper) fn cpu_by_size() -> Scenario {
    computed(BYTES, Varied::Bytes)
}

/// Figure 7(b).
pub(in crate::paper) fn cpu_by_delay() -> Scenario {
    computed(DELAY, Varied::Delay)
}

const RENDEZVOUS: &str = differs!(
    "Messages go there and back, and each is stamped and looked at. Memory is registered once. Eager copies go from \
     and to buffers that are registered, by send and receive. Each node has a CPU, with its program and its device; \
     degen is on that of the server."
);

fn met(x: XAxis, y: YAxis, varied: Varied) -> Scenario {
    let series = vec![
        Series::of("rendezvous_write", "one_way", "rendezvous, RDMA write"),
        Series::of("rendezvous_read", "one_way", "rendezvous, RDMA read"),
        Series::of("eager", "one_way", "eager copies"),
        Series::of("sockets", "one_way", "sockets"),
    ];
    let judge =
        Judge::Crossover { subjects: ["rendezvous_write", "rendezvous_read"], baseline: "eager" };
    scenario(Case::Rendezvous, varied, x, y, series, judge, RENDEZVOUS)
}

/// Figure 9's protocols, by size.
pub(in crate::paper) fn rendezvous_by_size() -> Scenario {
    met(BYTES, MICROSECONDS, Varied::Bytes)
}

/// The same by delay.
pub(in crate::paper) fn rendezvous_by_delay() -> Scenario {
    met(DELAY, MILLISECONDS, Varied::Delay)
}

fn scenario(
    case: Case,
    varied: Varied,
    x: XAxis,
    y: YAxis,
    series: Vec<Series>,
    judge: Judge,
    differs: &'static str,
) -> Scenario {
    let (points, quick) = points(case, varied);
    Scenario {
        x,
        y,
        series,
        points,
        quick,
        run: Run::RdmaWan(case, varied),
        // The namespaces and the devices; not all of the time is measured.
        overhead: Duration::from_millis(100),
        at_least: Duration::ZERO,
        judge,
        differs,
    }
}

/// The points of a figure, and those of a quick run.
fn points(case: Case, varied: Varied) -> (Vec<u32>, Vec<u32>) {
    let (all, quick): (&[u32], [u32; 2]) = match (case, varied) {
        (Case::Rendezvous, Varied::Bytes) => {
            (&[1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576], [1_024, 262_144])
        }
        (Case::Cpu, Varied::Bytes) => (&[1_024, 16_384, 65_536], [1_024, 16_384]),
        (_, Varied::Bytes) => (&SIZES, [1, 1_024]),
        // The computation takes longer than a round trip, but with the last.
        (Case::Overlap, Varied::Delay) => (&[0, 1, 4, 16, 128], [1, 16]),
        (Case::Cpu, Varied::Delay) => (&[0, 4, 16], [0, 4]),
        (Case::Latency, Varied::Delay) => (&[0, 1, 2, 4, 8, 16], [0, 4]),
        (_, Varied::Delay) => (&[0, 1, 4, 16], [0, 4]),
        (_, Varied::Computation) => (&[10, 30, 100, 1_000, 10_000], [30, 1_000]),
        (_, Varied::Load) => (&[0, 1, 2, 4, 8, 16], [0, 16]),
    };
    (all.to_vec(), quick.to_vec())
}

pub(super) fn run(
    (case, varied): (Case, Varied),
    point: u32,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let options = options((case, varied), point, parameters)?;
    rdma_wan(&options, &mut ByPlacement(report))
}

fn options(
    (case, varied): (Case, Varied),
    point: u32,
    parameters: &Parameters,
) -> Result<Options, Error> {
    let bytes = match (case, varied) {
        (_, Varied::Bytes) => point,
        // Section 4.4, on figure 7(b).
        (Case::Cpu, _) => 16_384,
        (Case::Rendezvous, _) => 65_536,
        // Sections 4.1 to 4.3.
        _ => 1_024,
    };
    let duration = parameters.duration / PART;
    let computation = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
    let times = match (case, varied) {
        (_, Varied::Computation) => vec![point],
        (_, Varied::Load) => vec![point * 1_000],
        (Case::Cpu, _) => vec![computation],
        // As the paper has it.
        _ => Vec::new(),
    };
    let library = parameters.rdma_library.clone().ok_or_else(|| {
        Error::Usage(
            "no libwharf_rdma.so of the same build is beside this program: build it, or install both"
                .to_owned(),
        )
    })?;
    Ok(Options {
        cases: vec![case],
        bytes: vec![bytes],
        delays: if varied == Varied::Delay { vec![point] } else { Vec::new() },
        times,
        placements: Vec::new(),
        path: parameters.path.clone(),
        carrier: parameters.carrier,
        duration,
        repetitions: parameters.repetitions,
        seed: parameters.seed,
        mode: crate::degen::Options::best_mode(),
        library,
    })
}

/// Names the case of each figure by what is compared, and by the placement where that shares a CPU which the other does
/// not.
struct ByPlacement<'a>(&'a mut dyn Report);

impl Report for ByPlacement<'_> {
    fn figure(&mut self, mut figure: Figure) {
        let varied = |wanted| figure.varied.iter().find(|(name, _)| *name == wanted);
        let text = |wanted| varied(wanted).and_then(|(_, value)| value.as_str());
        let has_both = ["overlap", "progress", "cpu"].contains(&figure.case.as_str());
        if let (Some(by), Some(placement)) = (text("by"), text("placement")) {
            figure.case = match has_both && placement == "nodes" {
                true => format!("{by}_nodes"),
                false => by.to_owned(),
            };
        }
        self.0.figure(figure);
    }

    fn progress(&mut self, done: usize, total: usize, what: &str) {
        self.0.progress(done, total, what);
    }

    fn notice(&mut self, text: &str) {
        self.0.notice(text);
    }
}
