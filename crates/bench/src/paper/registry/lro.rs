//! "Implementation of TCP Large Receive Offload on Multi-core NPU Platform", in both versions.

use super::{Citation, Code, Entry, Paper, Published};
use crate::paper::scenario::lro;
use crate::throughput::WireKind;

pub(super) const LONG_WITHOUT_RESULTS: [(&str, &str); 12] = [
    ("Figure 1", "where LRO in a driver stands"),
    ("Figure 2", "where LRO in a card stands"),
    ("Figure 3", "the system's parts"),
    ("Figure 4", "what happens to a packet, in order"),
    ("Figure 5", "the ConnectionTable"),
    ("Figure 6", "the packet filter"),
    ("Figure 7", "how packets are processed"),
    ("Figure 8", "how packet descriptors lie in memory"),
    ("Figure 9", "messages to the DMA engine"),
    ("Figure 10", "messages with DMA load balance"),
    ("Figure 11", "the XLS416"),
    ("Figure 12", "the two hosts of the test"),
];

pub(super) const SHORT_WITHOUT_RESULTS: [(&str, &str); 5] = [
    ("Figure 1", "where LRO in a driver stands"),
    ("Figure 2", "where LRO in a card stands"),
    ("Figure 3", "what happens to a packet, in order"),
    ("Figure 4", "the packet filter"),
    ("Figure 5", "how packets are processed"),
];

const fn place(paper: Paper, section: &'static str, caption: Option<&'static str>) -> Citation {
    Citation { paper, section, caption }
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        throughput(
            "lro-throughput-memory",
            "Receive throughput over a wire in memory, against the number of connections",
            WireKind::Memory,
        ),
        throughput(
            "lro-throughput-veth",
            "Receive throughput over a veth, against the number of connections",
            WireKind::Veth,
        ),
        Entry {
            name: "lro-starvation",
            places: vec![
                place(Paper::LroLong, "section V.B", None),
                place(Paper::LroShort, "section V.A", None),
            ],
            title: "New connections while others keep the way to the host busy",
            varied: "the order in which requests to the host are served, with and without LRO",
            measured: "share of the new connections that open before their SYNs time out",
            claim: "With all requests in one stack only a few connections could conduct data \
                    transmission, and the others' establishment failed due to timeout; queues \
                    served round robin solve it.",
            published: Vec::new(),
            code: Code::Runs(Box::new(lro::starvation())),
        },
    ]
}

fn throughput(name: &'static str, title: &'static str, wire: WireKind) -> Entry {
    Entry {
        name,
        places: vec![
            place(Paper::LroLong, "section VII", Some("Figure 13")),
            place(Paper::LroShort, "section VI", Some("Figure 6")),
        ],
        title,
        varied: "TCP connections, 1 to 64, with LRO, without, and with the kernel's GRO",
        measured: "payload that the receiving host takes",
        claim: "With LRO throughput grows with the number of connections and stabilizes around \
                4.75 Gb/s; without, it is approximately 913.3 Mb/s and irrelevant to their number.",
        published: vec![
            Published {
                series: "on",
                x: None,
                value: 4.75,
                unit: "Gb/s",
                place: "section VII of the long version, VI of the short: \"finally stabilizes \
                        around 4.75Gbps\""
                    .to_owned(),
            },
            Published {
                series: "off",
                x: None,
                value: 0.9133,
                unit: "Gb/s",
                place: "section VI of the short version: \"approximately 913.3Mbps and irrelevant \
                        to the number of TCP connections\""
                    .to_owned(),
            },
        ],
        code: Code::Runs(Box::new(lro::throughput(wire))),
    }
}
