//! The figures of the papers on LRO.

use std::time::Duration;

use nic::config::Order;

use super::{Headline, Judge, Run, Scale, Scenario, Series, XAxis, YAxis};
use crate::fairness::{self, fairness};
use crate::paper::parameters::Parameters;
use crate::throughput::{self, WireKind, lro_throughput};
use crate::{Case, Error, Report};

/// Connections that try to open while others saturate the host's port.
const OPENERS: usize = 64;

pub(in crate::paper) fn throughput(wire: WireKind) -> Scenario {
    Scenario {
        x: XAxis { label: "connections", unit: "", words: " connections", scale: Scale::Log2 },
        y: YAxis { label: "Throughput", unit: "Gb/s", factor: 1e-9, scale: Scale::Linear },
        series: vec![
            Series::of("on", "throughput", "LRO on"),
            Series::of("off", "throughput", "LRO off"),
            Series::of("kernel_gro", "throughput", "kernel's GRO"),
        ],
        points: vec![1, 2, 4, 8, 16, 32, 64],
        quick: vec![1, 8, 64],
        run: Run::LroThroughput(wire),
        overhead: Duration::from_millis(500),
        at_least: Duration::ZERO,
        judge: Judge::Ratio {
            subject: "on",
            baseline: "off",
            peer: Some("kernel_gro"),
            headline: Headline::Last,
        },
        differs: match wire {
            WireKind::Memory => {
                "The paper's sender is a host of its own behind 10 Gb/s of fibre; here senders in \
                 memory cost next to nothing and no link bounds them, so that the receiver is what is \
                 measured. The paper's card was bounded by its PCIe bus. kernel's GRO is behind a TAP \
                 that is written frame by frame."
            }
            WireKind::Veth => {
                "The paper's hosts are two machines; here both, and wharf, share one machine and its \
                 cores, joined by a veth that bounds nothing. kernel's GRO is a receiver on the bare \
                 veth, without wharf."
            }
        },
    }
}

pub(super) fn run_throughput(
    wire: WireKind,
    connections: u32,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let options = throughput::Options {
        connections: vec![connections as usize],
        cases: Case::ALL.to_vec(),
        duration: parameters.duration,
        repetitions: parameters.repetitions,
        seed: parameters.seed,
        config: parameters.config.clone(),
    };
    lro_throughput(&options, &[wire], report)
}

pub(in crate::paper) fn starvation() -> Scenario {
    Scenario {
        x: XAxis { label: "LRO", unit: "", words: "", scale: Scale::Names(&["LRO off", "LRO on"]) },
        y: YAxis {
            label: "Connections that opened",
            unit: "%",
            factor: 100.0 / OPENERS as f64,
            scale: Scale::Linear,
        },
        series: vec![
            Series::of("round_robin", "handshakes_completed", "round robin"),
            Series::of("lifo", "handshakes_completed", "one stack"),
        ],
        points: vec![0, 1],
        quick: vec![0, 1],
        run: Run::Starvation,
        overhead: Duration::from_millis(600),
        // Until the last SYN of those that starve has timed out.
        at_least: Duration::from_millis(1500),
        judge: Judge::Cure { subject: "round_robin", baseline: "lifo" },
        differs: "The paper's DMA engine is a TAP with one queue here, to which writing costs more \
                  than receiving; 8 connections over 4 workers saturate it while 64 more try to open \
                  with three SYNs each, 0.2 and 0.4 s apart. The paper gives no numbers.",
    }
}

pub(super) fn run_starvation(
    lro: bool,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let options = fairness::Options {
        duration: parameters.duration,
        workers: 4,
        requests: 1024,
        heavy: 8,
        openers: OPENERS,
        lro: vec![lro],
        orders: vec![Order::RoundRobin, Order::Lifo],
        repetitions: parameters.repetitions,
        config: parameters.config.clone(),
    };
    fairness(&options, report)
}
