//! "TCP Offload through Connection Handoff" (Kim, Rixner).

use super::{Citation, Code, Entry, Paper, Published};

pub(super) const WITHOUT_RESULTS: [(&str, &str); 6] = [
    ("Figure 2", "the network stack with handoff"),
    ("Figure 3", "what exists for a connection on the card and in the host"),
    ("Figure 4", "the commands that the card takes"),
    ("Figure 5", "the commands that the operating system takes"),
    ("Figure 6", "an example of commands in order"),
    ("Table 1", "the simulator's configuration"),
];

const HANDOFF: &str =
    "needs a measurement that is not written yet; `wharf bench handoff` has others of handoff";

pub(super) fn entries() -> Vec<Entry> {
    vec![stack(), prototype(), messages(), firmware(), simulated(), web()]
}

fn place(section: &'static str, caption: Option<&'static str>) -> Vec<Citation> {
    vec![Citation { paper: Paper::Handoff, section, caption }]
}

fn published(series: &'static str, value: f64, unit: &'static str, place: &str) -> Published {
    Published { series, x: None, value, unit, place: place.to_owned() }
}

fn stack() -> Entry {
    let intro = "section 1";
    Entry {
        name: "handoff-stack",
        places: place("section 2", Some("Figure 1")),
        title: "Where the cycles of a packet go in a host's stack without handoff",
        varied: "zero-copy and checksum offload, 1 and 1,024 connections, delay, SPECweb99",
        measured: "cycles, instructions and data memory accesses a TCP packet, by layer",
        claim: "Zero-copy and checksum offload bring a packet from 10,358 to 4,295 cycles; with \
                1,024 connections it takes 54 % more, with a longer network delay another 12 %: \
                memory accesses to connections' state are what is left.",
        published: vec![
            published("no offload, 1 connection", 10_358.0, "cycles/packet", intro),
            published(
                "zero-copy and checksum offload, 1 connection",
                4_295.0,
                "cycles/packet",
                intro,
            ),
            published(
                "zero-copy and checksum offload, 1,024 connections",
                7_374.0,
                "cycles/packet",
                intro,
            ),
            published("1,024 connections over 1", 1.54, "x", "section 2, C and D"),
            published("with network delay over without", 1.12, "x", "section 2, D and E"),
        ],
        code: Code::Lacks(
            "needs hardware counters by layer of the host's stack, without which handoff has \
             nothing to be compared with",
        ),
    }
}

fn prototype() -> Entry {
    let at = "section 5.1";
    Entry {
        name: "handoff-prototype",
        places: place("section 5.1", Some("Figure 7")),
        title: "What a packet costs the host with its connection on the card",
        varied: "1 to 1,024 connections, of which up to 256 are on the card; one card and two; \
                 SPECweb99",
        measured: "cycles, instructions and cache misses of the host a TCP packet, by layer",
        claim: "Handoff takes 16 to 84 % of the host's cycles off a packet: 76 % with one \
                connection and 84 % with 256, all on the card; 36 % with 256 of 512 there, 16 % with \
                256 of 1,024; 54 % under SPECweb99.",
        published: vec![
            published("cycles saved, 1 of 1 connections on the card", 76.0, "%", at),
            published("cycles saved, 256 of 256", 84.0, "%", at),
            published("cycles saved, 256 of 512", 36.0, "%", at),
            published("cycles saved, 256 of 1,024", 16.0, "%", at),
            published("cycles saved, SPECweb99 with 64 clients", 54.0, "%", at),
            published("most instructions of the bypass layer", 140.0, "instructions", at),
        ],
        code: Code::Lacks(HANDOFF),
    }
}

fn messages() -> Entry {
    let at = "section 5.1, on Figure 8";
    Entry {
        name: "handoff-messages",
        places: place("section 5.1", Some("Figure 8")),
        title: "Messages between host and card for each packet",
        varied: "with and without handoff; TCP send on 256 connections, SPECweb99 with 64 clients",
        measured: "messages a TCP packet, by kind",
        claim: "Handoff exchanges far fewer messages, each as small as a descriptor or smaller: it \
                reduces message traffic.",
        published: vec![
            published("transmit descriptors without handoff, TCP send", 1.0, "a packet", at),
            published("receive descriptors without handoff, TCP send", 0.5, "a packet", at),
        ],
        code: Code::Lacks(HANDOFF),
    }
}

fn firmware() -> Entry {
    let at = "Table 2";
    Entry {
        name: "handoff-firmware",
        places: place("section 5.1", Some("Table 2")),
        title: "What a packet costs the card",
        varied: "the part of the card's program",
        measured: "cycles and instructions of the card a packet",
        claim: "The card executes about 3,100 instructions a packet, close to what the host's stack \
                does without handoff.",
        published: vec![
            published("handoff interface", 413.0, "instructions/packet", at),
            published("TCP", 1_402.0, "instructions/packet", at),
            published("IP and Ethernet", 169.0, "instructions/packet", at),
            published("other", 1_130.0, "instructions/packet", at),
            published("total", 3_144.0, "instructions/packet", at),
            published("total", 6_773.0, "cycles/packet", at),
        ],
        code: Code::Lacks(HANDOFF),
    }
}

fn simulated() -> Entry {
    let at = "section 5.2";
    Entry {
        name: "handoff-simulated",
        places: place("section 5.2", Some("Figure 9")),
        title: "What a packet costs a web server with a card that is fast enough",
        varied: "with and without handoff; all of SPECweb99 and its static content alone, 1,024 \
                 connections",
        measured: "cycles, instructions and cache misses of the host a TCP packet, by layer",
        claim: "With handoff the host spends about 17 % fewer cycles a packet, 31 % fewer with \
                static content alone.",
        published: vec![
            published("cycles saved, dynamic and static content", 17.0, "%", at),
            published("cycles saved, static content", 31.0, "%", at),
        ],
        code: Code::Lacks(HANDOFF),
    }
}

fn web() -> Entry {
    let at = "section 5.2";
    Entry {
        name: "handoff-web",
        places: place("section 5.2", None),
        title: "What a web server delivers with handoff",
        varied: "with and without handoff; all of SPECweb99 and its static content alone, 1,024 \
                 connections",
        measured: "HTTP throughput",
        claim: "Handoff improves HTTP throughput by about 15 %, from 192 to 222 Mb/s, and by 27 %, \
                from 307 to 391 Mb/s, with static content alone.",
        published: vec![
            published("without handoff, dynamic and static content", 192.0, "Mb/s", at),
            published("with handoff, dynamic and static content", 222.0, "Mb/s", at),
            published("without handoff, static content", 307.0, "Mb/s", at),
            published("with handoff, static content", 391.0, "Mb/s", at),
        ],
        code: Code::Lacks(HANDOFF),
    }
}
