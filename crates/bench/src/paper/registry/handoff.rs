//! "TCP Offload through Connection Handoff" (Kim, Rixner).

use super::{Citation, Code, Entry, Paper, Published, instructions};
use crate::paper::scenario::SAVED;
use crate::paper::scenario::{handoff as scenario, web as web_server};

pub(super) const WITHOUT_RESULTS: [(&str, &str); 6] = [
    ("Figure 2", "the network stack with handoff"),
    ("Figure 3", "what exists for a connection on the card and in the host"),
    ("Figure 4", "the commands that the card takes"),
    ("Figure 5", "the commands that the operating system takes"),
    ("Figure 6", "an example of commands in order"),
    ("Table 1", "the simulator's configuration"),
];

pub(super) fn entries() -> Vec<Entry> {
    vec![
        stack(),
        prototype(),
        messages(),
        firmware(),
        instructions::entry(),
        simulated(),
        web(),
        policies(),
    ]
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
        measured: "CPU time of the host a TCP packet, by layer",
        claim: "Zero-copy and checksum offload bring a packet from 10,358 to 4,295 cycles; with \
                1,024 connections it takes 54 % more, with a longer network delay another 12 %: \
                memory accesses to connections' state are what is left. Under SPECweb99 with 256 \
                clients the stack behaves the same but for the system call layer.",
        published: vec![
            host_cycles(0, 10_358.0, intro),
            host_cycles(2, 4_295.0, intro),
            host_cycles(3, 7_374.0, intro),
            host_cycles(4, 7_374.0 * 1.12, "section 2, on D and E"),
        ],
        code: Code::Runs(Box::new(scenario::stack())),
    }
}

/// Cycles of the host's processor as nanoseconds: it runs at 2.1 GHz (section 2).
fn host_cycles(setup: u32, cycles: f64, place: &str) -> Published {
    const GHZ: f64 = 2.1;
    Published { x: Some(setup.into()), ..published("os", (cycles / GHZ).round(), "ns", place) }
}

fn prototype() -> Entry {
    let at = "section 5.1";
    Entry {
        name: "handoff-prototype",
        places: place("section 5.1", Some("Figure 7")),
        title: "What a packet costs the host with its connection on the card",
        varied: "1 to 1,024 connections, of which up to 256 are on the card; one card and two; \
                 SPECweb99",
        measured: "CPU time of the host a TCP packet, by layer",
        claim: "Handoff takes 16 to 84 % of the host's cycles off a packet: 76 % with one \
                connection and 84 % with 256, all on the card; 36 % with 256 of 512 there, 16 % with \
                256 of 1,024; 54 % under SPECweb99 with 64 clients.",
        published: [(0, 76.0), (1, 84.0), (2, 36.0), (3, 16.0), (7, 54.0)]
            .map(|(mix, percent)| saved(mix, percent, at))
            .to_vec(),
        code: Code::Runs(Box::new(scenario::host_time())),
    }
}

/// How much is saved with a mix of connections, in per cent.
fn saved(mix: u32, percent: f64, place: &str) -> Published {
    Published { x: Some(mix.into()), ..published(SAVED, percent, "%", place) }
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
            // 1.0 to send and 0.5 to receive.
            Published { x: Some(1.0), ..published("os", 1.5, "a packet", at) },
        ],
        code: Code::Runs(Box::new(scenario::messages())),
    }
}

fn firmware() -> Entry {
    let at = "Table 2";
    Entry {
        name: "handoff-firmware",
        places: place("section 5.1", Some("Table 2")),
        title: "What a packet costs the card",
        varied: "the part of the card's program",
        measured: "CPU time of the card's program a packet, by part",
        claim: "The card executes about 3,100 instructions a packet, close to what the host's stack \
                does without handoff, in 6,773 cycles.",
        published: vec![
            cycles("handoff", 794.0, at),
            cycles("tcp", 4_033.0, at),
            cycles("ip_ethernet", 529.0, at),
            cycles("other", 1_417.0, at),
            cycles("nic", 6_773.0, at),
        ],
        code: Code::Runs(Box::new(scenario::nic_time())),
    }
}

/// Cycles of the card's processor as nanoseconds: it runs at 88 MHz (section 5.1).
fn cycles(series: &'static str, cycles: f64, place: &str) -> Published {
    const MHZ: f64 = 88.0;
    published(series, (cycles * 1_000.0 / MHZ).round(), "ns", place)
}

fn simulated() -> Entry {
    let at = "section 5.2";
    Entry {
        name: "handoff-simulated",
        places: place("section 5.2", Some("Figure 9")),
        title: "What a packet costs a web server with a card that is fast enough",
        varied: "with and without handoff; connections with a bound of 400 Kb/s and without; static content \
                 and dynamic",
        measured: "CPU time of the host a TCP packet, by layer",
        claim: "With handoff the host spends about 17 % fewer cycles a packet, 31 % fewer with \
                static content alone.",
        published: vec![saved(4, 31.0, at), saved(6, 17.0, at)],
        code: Code::Runs(Box::new(web_server::host_time())),
    }
}

fn web() -> Entry {
    let at = "section 5.2";
    let rated = |x, series, value| Published { x: Some(x), ..published(series, value, "Mb/s", at) };
    Entry {
        name: "handoff-web",
        places: place("section 5.2", None),
        title: "What a web server delivers with handoff",
        varied: "with and without handoff; connections with a bound of 400 Kb/s and without; static content \
                 and dynamic",
        measured: "HTTP throughput",
        claim: "Handoff improves HTTP throughput by about 15 %, from 192 to 222 Mb/s, and by 27 %, \
                from 307 to 391 Mb/s, with static content alone.",
        published: vec![
            rated(4.0, "os", 307.0),
            rated(4.0, "nic", 391.0),
            rated(6.0, "os", 192.0),
            rated(6.0, "nic", 222.0),
        ],
        code: Code::Runs(Box::new(web_server::throughput())),
    }
}

fn policies() -> Entry {
    Entry {
        name: "handoff-policies",
        places: place("section 1", None),
        title: "A web server whose card is given more connections than it has time for",
        varied: "no connection on the card, all of them, and those that policies give it",
        measured: "HTTP throughput",
        claim: "Full offload may degrade the system's performance, as the card's processing and memory \
                are finite; with handoff the operating system controls how many connections the card \
                has, so as to use it fully without overloading it.",
        published: Vec::new(),
        code: Code::Runs(Box::new(web_server::policies())),
    }
}
