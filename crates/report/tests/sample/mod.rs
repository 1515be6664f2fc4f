//! A report with figures of all kinds. Its numbers are made up; nothing of it is shown as measured.

use report::{Axis, Figure, Missing, Plot, Point, Report, Series};

pub(crate) fn report() -> Report {
    Report {
        title: "Five papers, measured on wharf".to_owned(),
        subtitle:
            "What the papers say of their network cards, beside what a software NIC does today"
                .to_owned(),
        machine: [
            ("CPU", "Sample CPU @ 2.10 GHz, 2 cores"),
            ("Kernel", "Linux 6.18.0-sample x86_64"),
            ("wharf", "0.1.0 (0123456789ab)"),
            ("Seed", "0x5eed_2026"),
            ("Repetitions", "5, interleaved"),
            ("Date", "2026-01-02 03:04 UTC"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        figures: vec![lro(), gso(), starvation(), degen()],
        missing: vec![
            missing(
                "handoff-latency",
                "Time to hand a connection off against its window",
                "TCP engine",
            ),
            missing(
                "rdma-throughput",
                "RDMA write throughput against message size",
                "RDMA over TCP",
            ),
        ],
    }
}

fn missing(name: &str, title: &str, lacks: &str) -> Missing {
    Missing {
        name: name.to_owned(),
        title: title.to_owned(),
        paper: "Connection handoff".to_owned(),
        section: "section 6, figure 5".to_owned(),
        lacks: format!("Needs the {lacks}, which wharf does not have yet"),
    }
}

/// Repetitions around a value.
fn around(x: f64, value: f64, spread: f64) -> Point {
    Point { x, median: value, min: value * (1.0 - spread), max: value * (1.0 + spread * 0.7) }
}

fn curve(xs: &[f64], value: impl Fn(f64) -> f64, spread: f64) -> Vec<Point> {
    xs.iter().map(|x| around(*x, value(*x), spread)).collect()
}

const CONNECTIONS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

fn lro() -> Figure {
    let plot = |wire: &str, factor: f64| Plot {
        title: format!("TCP receive throughput, {wire}"),
        x: Axis::log2("Connections", ""),
        y: Axis::linear("Throughput", "Gb/s"),
        series: vec![
            Series::measured(
                "LRO on",
                curve(&CONNECTIONS, |x| factor * (5.4 - 0.2 * x.ln()), 0.08),
            ),
            Series::measured(
                "LRO off",
                curve(&CONNECTIONS, |x| factor * (1.2 - 0.05 * x.ln()), 0.15),
            ),
            Series::measured(
                "kernel GRO",
                curve(&CONNECTIONS, |x| factor * (4.1 - 0.4 * x.ln()), 0.05),
            ),
            Series::published("LRO on", vec![Point::level(4.75)]),
            Series::published("LRO off", vec![Point::level(0.913)]),
        ],
    };
    Figure {
        name: "lro-throughput".to_owned(),
        title: "Receiving with and without LRO, 1 to 64 connections".to_owned(),
        paper: "LRO on a network processor".to_owned(),
        section: "section V, figure 7".to_owned(),
        claim: "With LRO the receiver takes 4.75 Gb/s, without it 0.913 Gb/s.".to_owned(),
        measured: "5.4 Gb/s with LRO and 1.2 Gb/s without, at one connection over AF_XDP.".to_owned(),
        ratio: "5.2 × in the paper, 4.5 × here".to_owned(),
        meaning: "Merging saves the host most of its work for each packet, as the paper says.".to_owned(),
        plots: vec![plot("AF_XDP wire", 1.0), plot("AF_PACKET wire", 0.7)],
        notes: vec![
            "Sender, wharf and receiver share two cores; the paper’s receiver had a machine of its own."
                .to_owned(),
            "Medians of 5 interleaved repetitions of 2 s, with the least and the greatest.".to_owned(),
        ],
        raw: "lro-throughput.jsonl".to_owned(),
    }
}

fn gso() -> Figure {
    let speeds = [15.0, 30.0, 45.0, 60.0, 75.0, 90.0, 100.0];
    let plot = |kind: &str, scale: f64| Plot {
        title: format!("{kind}: throughput against the CPU’s frequency"),
        x: Axis::linear("CPU frequency", "% of the highest"),
        y: Axis::linear("Throughput", "Mb/s"),
        series: vec![
            Series::measured("none", curve(&speeds, |x| scale * 42.0 * x, 0.06)),
            Series::measured("kernel", curve(&speeds, |x| scale * 71.0 * x, 0.04)),
            Series::measured("gso", curve(&speeds, |x| scale * 80.0 * x, 0.05)),
            Series::measured("tso", curve(&speeds, |x| scale * 110.0 * x, 0.03)),
            Series::published("none", speeds.map(|x| Point::single(x, 38.0 * x)).into()),
            Series::published("gso", speeds.map(|x| Point::single(x, 75.0 * x)).into()),
            Series::published("tso", speeds.map(|x| Point::single(x, 94.0 * x)).into()),
        ],
    };
    Figure {
        name: "gso-tables".to_owned(),
        title: "Sending with software GSO on a slower and slower CPU".to_owned(),
        paper: "Software GSO for FreeBSD".to_owned(),
        section: "slides 20 to 23".to_owned(),
        claim: "GSO sends up to twice as much as no offload; TSO a quarter more than GSO."
            .to_owned(),
        measured: "1.9 times as much as no offload; TSO a third more.".to_owned(),
        ratio: "2.0 × in the paper, 1.9 × here".to_owned(),
        meaning: "One walk down the stack per 64 KB is what counts, whoever cuts in the end."
            .to_owned(),
        plots: vec![
            plot("TCP over IPv4", 1.0),
            plot("TCP over IPv6", 0.96),
            plot("UDP over IPv4", 0.5),
            plot("UDP over IPv6", 0.47),
        ],
        notes: vec!["The frequency is set by a quota of CPU time.".to_owned()],
        raw: "gso-tables.jsonl".to_owned(),
    }
}

fn starvation() -> Figure {
    let orders = ["round_robin", "lifo"];
    let opened = Plot {
        title: "Connections that opened beside a heavy one".to_owned(),
        x: Axis::category("Order of the requests", &orders),
        y: Axis::linear("Opened", "%"),
        series: vec![
            Series::measured("wharf", vec![around(0.0, 99.4, 0.008), around(1.0, 31.0, 0.3)]),
            Series::published("wharf", vec![Point::single(0.0, 100.0), Point::single(1.0, 0.0)]),
        ],
    };
    let time = Plot {
        title: "Time until a connection opened".to_owned(),
        x: Axis::category("Order of the requests", &orders),
        y: Axis::log10("Time", "ms"),
        series: vec![
            Series::measured("median", vec![around(0.0, 0.4, 0.4), around(1.0, 1020.0, 0.1)]),
            Series::measured(
                "99th percentile",
                vec![around(0.0, 2.2, 0.5), around(1.0, 7100.0, 0.3)],
            ),
        ],
    };
    Figure {
        name: "dma-starvation".to_owned(),
        title: "A heavy flow must not starve another’s SYN".to_owned(),
        paper: "LRO on a network processor, long version".to_owned(),
        section: "section IV.D".to_owned(),
        claim:
            "With last in, first out, SYN packets wait behind the heavy flow until they time out."
                .to_owned(),
        measured: "99.4 % of the connections open round robin, 31 % with lifo.".to_owned(),
        ratio: "3.2 × as many".to_owned(),
        meaning: "Fair turns at the shared queue cost nothing and keep new connections alive."
            .to_owned(),
        plots: vec![opened, time],
        notes: Vec::new(),
        raw: "dma-starvation.jsonl".to_owned(),
    }
}

fn degen() -> Figure {
    let asked = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];
    let plot = Plot {
        title: "How exactly degen delays".to_owned(),
        x: Axis::log10("Delay asked for", "ms"),
        y: Axis::linear("Error", "µs"),
        series: vec![
            Series::measured("50th percentile", curve(&asked, |x| 3.0 + x.sqrt() * 0.2, 0.2)),
            Series::measured("99th percentile", curve(&asked, |x| 21.0 + x.sqrt(), 0.3)),
        ],
    };
    Figure {
        name: "degen-accuracy".to_owned(),
        title: "How exactly degen delays".to_owned(),
        paper: "RDMA over IP".to_owned(),
        section: "section 3, figure 2".to_owned(),
        claim: "Packets are stamped on arrival, so delays do not cascade; no numbers are given."
            .to_owned(),
        measured: "24 µs at the 99th percentile for a delay of 10 ms.".to_owned(),
        ratio: String::new(),
        meaning: "The emulated distance is exact enough for what stands on either side of it."
            .to_owned(),
        plots: vec![plot],
        notes: vec!["100,000 packets a second in both directions, on two cores.".to_owned()],
        raw: "degen-accuracy.jsonl".to_owned(),
    }
}
