//! "Performance Evaluation of RDMA over IP: A Case Study with the Ammasso Gigabit Ethernet NIC".

use super::{Citation, Code, Entry, Paper, Published};
use crate::paper::scenario::degen;

pub(super) const WITHOUT_RESULTS: [(&str, &str); 4] = [
    ("Figure 1", "the card's protocol stacks"),
    ("Figure 2", "the hosts and the router that emulates a WAN"),
    ("Figure 4", "the benchmarks' pseudo code"),
    ("Figure 9", "two rendezvous protocols, discussed and not measured"),
];

const RDMA: &str = "needs a measurement that is not written yet";

fn place(section: &'static str, caption: Option<&'static str>) -> Vec<Citation> {
    vec![Citation { paper: Paper::Rdma, section, caption }]
}

pub(super) fn entries() -> Vec<Entry> {
    [vec![delays()], latency(), overlap(), progress(), cpu(), vec![lan()]].concat()
}

/// An entry that waits for RDMA; the text has no values for most.
fn waiting(
    name: &'static str,
    places: Vec<Citation>,
    title: &'static str,
    [varied, measured]: [&'static str; 2],
    claim: &'static str,
) -> Entry {
    let (published, code) = (Vec::new(), Code::Lacks(RDMA));
    Entry { name, places, title, varied, measured, claim, published, code }
}

fn delays() -> Entry {
    Entry {
        name: "rdma-degen",
        places: place("section 3", None),
        title: "How exactly degen delays packets",
        varied: "the delay that is asked for, 0.1 to 100 ms",
        measured: "how far the delay of packets is off, at 100,000 packets a second in each direction",
        claim: "degen delays each packet by a given value from its time stamp on arrival; bursts \
                are taken out together, so that delays do not cascade.",
        published: Vec::new(),
        code: Code::Runs(Box::new(degen::delay())),
    }
}

fn latency() -> Vec<Entry> {
    vec![
        waiting(
            "rdma-latency-size",
            place("section 4.1", Some("Figure 3(a)")),
            "One-way latency through a router against the message's size",
            ["message size; RDMA write and sockets", "half of a round trip"],
            "RDMA and sockets are almost the same regardless of the message size.",
        ),
        waiting(
            "rdma-latency-delay",
            place("section 4.1", Some("Figure 3(b)")),
            "One-way latency of 1 KB against the network's delay",
            ["network delay; RDMA write and sockets", "half of a round trip"],
            "RDMA and sockets report almost the same latency.",
        ),
    ]
}

fn overlap() -> Vec<Entry> {
    vec![
        waiting(
            "rdma-overlap-computation",
            place("section 4.2", Some("Figure 5(a)")),
            "How much of its time a client computes while it communicates",
            [
                "computation between ping and pong; RDMA and sockets",
                "computation time / total time",
            ],
            "RDMA overlaps better, even with smaller computation times.",
        ),
        Entry {
            published: vec![Published {
                series: "computation time",
                x: None,
                value: 242.0,
                unit: "ms",
                place: "section 4.2, on Figure 5(b)".to_owned(),
            }],
            ..waiting(
                "rdma-overlap-delay",
                place("section 4.2", Some("Figure 5(b)")),
                "Overlap of computation and communication against the network's delay",
                ["network delay; RDMA and sockets", "computation time / total time"],
                "The difference shrinks with large delays; RDMA still overlaps better for delays of \
                 a few milliseconds.",
            )
        },
    ]
}

fn progress() -> Vec<Entry> {
    vec![
        waiting(
            "rdma-progress-load",
            place("section 4.3", Some("Figure 6(a)")),
            "Fetching 1 KB from a node that is busy",
            ["load of the remote node; RDMA read and sockets", "latency of the fetch"],
            "RDMA read is independent of the remote node's load; sockets grow slower with it.",
        ),
        Entry {
            published: vec![Published {
                series: "load of the remote node",
                x: None,
                value: 16.0,
                unit: "ms",
                place: "section 4.3, on Figure 6(b)".to_owned(),
            }],
            ..waiting(
                "rdma-progress-delay",
                place("section 4.3", Some("Figure 6(b)")),
                "Fetching 1 KB from a node that is busy, against the network's delay",
                [
                    "network delay, with 16 ms of load; RDMA read and sockets",
                    "latency of the fetch",
                ],
                "Both become similar as the delay grows; RDMA tolerates it better.",
            )
        },
    ]
}

fn cpu() -> Vec<Entry> {
    vec![
        waiting(
            "rdma-cpu-size",
            place("section 4.4", Some("Figure 7(a)")),
            "A computing server that 40 clients send to",
            ["message size; RDMA and sockets", "execution time of the computation"],
            "Sockets in the background make it very slow for all message sizes; RDMA has no \
             significant impact.",
        ),
        waiting(
            "rdma-cpu-delay",
            place("section 4.4", Some("Figure 7(b)")),
            "A computing server that 40 clients send 16 KB messages to, over a WAN",
            ["network delay; RDMA and sockets", "execution time of the computation"],
            "Sockets slow it down even with high delays; with RDMA its time is constant for all.",
        ),
    ]
}

fn lan() -> Entry {
    Entry {
        published: vec![Published {
            series: "sockets' latency over RDMA's less, small messages",
            x: None,
            value: 50.0,
            unit: "%",
            place: "section 4.5: \"differs by almost 50% with RDMA being better\"".to_owned(),
        }],
        ..waiting(
            "rdma-lan",
            place("section 4.5", Some("Figure 8")),
            "One-way latency within a LAN against the message's size",
            ["message size; RDMA and sockets", "half of a round trip"],
            "The latency of small messages differs by almost 50 %, RDMA being better.",
        )
    }
}
