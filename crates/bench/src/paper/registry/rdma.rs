//! "Performance Evaluation of RDMA over IP: A Case Study with the Ammasso Gigabit Ethernet NIC".

use super::{Citation, Code, Entry, Paper, Published};
use crate::paper::scenario::{SAVED, Scenario, degen, rdma};

pub(super) const WITHOUT_RESULTS: [(&str, &str); 3] = [
    ("Figure 1", "the card's protocol stacks"),
    ("Figure 2", "the hosts and the router that emulates a WAN"),
    ("Figure 4", "the benchmarks' pseudo code"),
];

fn place(section: &'static str, caption: Option<&'static str>) -> Vec<Citation> {
    vec![Citation { paper: Paper::Rdma, section, caption }]
}

pub(super) fn entries() -> Vec<Entry> {
    [vec![delays()], latency(), overlap(), progress(), cpu(), vec![lan()], rendezvous()].concat()
}

/// An entry; the text has no values for most.
fn entry(
    name: &'static str,
    places: Vec<Citation>,
    title: &'static str,
    [varied, measured]: [&'static str; 2],
    claim: &'static str,
    scenario: Scenario,
) -> Entry {
    let (published, code) = (Vec::new(), Code::Runs(Box::new(scenario)));
    Entry { name, places, title, varied, measured, claim, published, code }
}

fn delays() -> Entry {
    entry(
        "rdma-degen",
        place("section 3", None),
        "How exactly degen delays packets",
        [
            "the delay that is asked for, 0.1 to 100 ms",
            "how far the delay of packets is off, at 100,000 packets a second in each direction",
        ],
        "degen delays each packet by a given value from its time stamp on arrival; bursts \
         are taken out together, so that delays do not cascade.",
        degen::delay(),
    )
}

fn latency() -> Vec<Entry> {
    vec![
        entry(
            "rdma-latency-size",
            place("section 4.1", Some("Figure 3(a)")),
            "One-way latency through a router against the message's size",
            ["message size; RDMA write and sockets", "half of a round trip"],
            "The latencies of RDMA and sockets are almost the same regardless of the message size even \
             without the delay.",
            rdma::latency_by_size(),
        ),
        entry(
            "rdma-latency-delay",
            place("section 4.1", Some("Figure 3(b)")),
            "One-way latency of 1 KB against the network's delay",
            ["network delay; RDMA write and sockets", "half of a round trip"],
            "RDMA and sockets report almost the same latency, as the overheads on the end nodes are too \
             small compared with a network delay in the order of milliseconds.",
            rdma::latency_by_delay(),
        ),
    ]
}

fn overlap() -> Vec<Entry> {
    vec![
        entry(
            "rdma-overlap-computation",
            place("section 4.2", Some("Figure 5(a)")),
            "How much of its time a client computes while it communicates",
            [
                "computation between ping and pong of 1 KB; RDMA and sockets that do not block",
                "computation time / total time",
            ],
            "RDMA can achieve better overlap even with smaller computation time compared to the sockets.",
            rdma::overlap_by_computation(),
        ),
        entry(
            "rdma-overlap-delay",
            place("section 4.2", Some("Figure 5(b)")),
            "Overlap of computation and communication against the network's delay",
            [
                "network delay, with 242 ms of computation and 1 KB; RDMA and sockets that do not block",
                "computation time / total time",
            ],
            "The difference between RDMA and sockets reduces with large network delays; still RDMA can \
             provide better overlap than sockets for delays in order of a few milliseconds.",
            rdma::overlap_by_delay(),
        ),
    ]
}

fn progress() -> Vec<Entry> {
    vec![
        entry(
            "rdma-progress-load",
            place("section 4.3", Some("Figure 6(a)")),
            "Fetching 1 KB from a node that is busy",
            ["load of the remote node; RDMA read and sockets", "latency of the fetch"],
            "RDMA read can read data from remote memory without any impact from the load on the target; \
             sockets are not able to deliver good performance as the load increases.",
            rdma::progress_by_load(),
        ),
        entry(
            "rdma-progress-delay",
            place("section 4.3", Some("Figure 6(b)")),
            "Fetching 1 KB from a node that is busy, against the network's delay",
            ["network delay, with 16 ms of load; RDMA read and sockets", "latency of the fetch"],
            "With increase in the network delay both perform similarly; RDMA is more tolerant of the \
             network delay achieving better communication progress.",
            rdma::progress_by_delay(),
        ),
    ]
}

fn cpu() -> Vec<Entry> {
    vec![
        entry(
            "rdma-cpu-size",
            place("section 4.4", Some("Figure 7(a)")),
            "A computing server that 40 clients send to",
            ["message size; RDMA and sockets", "execution time of the computation"],
            "The execution time with sockets in the background is very high for all message sizes; \
             background RDMA does not have any significant performance impact.",
            rdma::cpu_by_size(),
        ),
        entry(
            "rdma-cpu-delay",
            place("section 4.4", Some("Figure 7(b)")),
            "A computing server that 40 clients send 16 KB messages to, over a WAN",
            ["network delay; RDMA and sockets", "execution time of the computation"],
            "Sockets significantly degrade it even on high delay WANs; it is not affected by RDMA and \
             constant for all network delays.",
            rdma::cpu_by_delay(),
        ),
    ]
}

fn lan() -> Entry {
    Entry {
        published: vec![Published {
            series: SAVED,
            // The paper does not say which messages are small.
            x: Some(1.0),
            value: 50.0,
            unit: "%",
            place: "section 4.5: \"small message latency differs by almost 50% with RDMA being better\""
                .to_owned(),
        }],
        ..entry(
            "rdma-lan",
            place("section 4.5", Some("Figure 8")),
            "One-way latency within a LAN against the message's size",
            ["message size; RDMA and sockets", "half of a round trip"],
            "The small message latency differs by almost 50 % with RDMA being better.",
            rdma::lan(),
        )
    }
}

/// The paper discusses these protocols, and has not measured them.
fn rendezvous() -> Vec<Entry> {
    let measured = "half of a round trip, with all control messages";
    let sizes = entry(
        "rdma-rendezvous-size",
        place("section 5", Some("Figure 9")),
        "Messages whose sender does not know where they belong",
        ["message size; two rendezvous protocols, eager copies and sockets", measured],
        "A rendezvous avoids a copy and can provide a low latency with large message sizes on a \
             high-speed link.",
        rdma::rendezvous_by_size(),
    );
    let delays = entry(
        "rdma-rendezvous-delay",
        place("section 5", Some("Figure 9")),
        "Messages whose sender does not know where they belong, over a WAN",
        ["network delay, with 64 KB; two rendezvous protocols, eager copies and sockets", measured],
        "On a high delay link the communication latency is higher, due to the control messages, if \
             addresses are exchanged for each communication.",
        rdma::rendezvous_by_delay(),
    );
    vec![sizes, delays]
}
