//! Instructions in "TCP Offload through Connection Handoff" (Kim, Rixner).

use super::{Citation, Code, Entry, Paper, Published};
use crate::paper::scenario::instructions::instructions;

pub(super) fn entry() -> Entry {
    let place = |caption| Citation {
        paper: Paper::Handoff,
        section: "section 5.1",
        caption: Some(caption),
    };
    let published = |series, value, place: &str| Published {
        series,
        x: None,
        value,
        unit: "a packet",
        place: place.to_owned(),
    };
    let table = "Table 2";
    Entry {
        name: "handoff-instructions",
        places: vec![place("Figure 7"), place("Table 2")],
        title: "Instructions of the bypass layer and of the card a packet",
        varied: "connections on the card",
        measured: "instructions and cache misses a packet, by layer of the host and part of the card",
        claim: "The bypass layer introduces less than 140 instructions a packet and has negligible \
                impact on the memory footprint; the card executes about 3,100.",
        published: vec![
            published("bypass", 140.0, "section 5.1, on Figure 7"),
            published("handoff", 413.0, table),
            published("tcp", 1_402.0, table),
            published("ip_ethernet", 169.0, table),
            published("other", 1_130.0, table),
            published("nic", 3_144.0, table),
        ],
        code: Code::Runs(Box::new(instructions())),
    }
}
