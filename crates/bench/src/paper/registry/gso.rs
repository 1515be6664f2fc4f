//! "Software segmentation offloading for FreeBSD": four slides, each with a plot and its values.

use super::{Citation, Code, Entry, Paper, Published};
use crate::gso_throughput::Protocol;
use crate::paper::scenario::gso::{self, CPU_PERCENTS};

/// A row of a slide's table: the sender's frequency in GHz, then Mb/s with TSO, with GSO and with
/// none.
struct Row(&'static str, Option<f64>, f64, f64);

const TCP4: [Row; 6] = [
    Row("2.93", Some(9347.0), 9298.0, 8308.0),
    Row("2.53", Some(9266.0), 9401.0, 6771.0),
    Row("2.00", Some(9408.0), 9294.0, 5499.0),
    Row("1.46", Some(9408.0), 8087.0, 4075.0),
    Row("1.05", Some(9408.0), 5673.0, 2884.0),
    Row("0.45", Some(6760.0), 2206.0, 1244.0),
];

const TCP6: [Row; 6] = [
    Row("2.93", Some(9097.0), 8861.0, 4966.0),
    Row("2.53", Some(9113.0), 8290.0, 4008.0),
    Row("2.00", Some(9066.0), 6599.0, 3152.0),
    Row("1.46", Some(7357.0), 5180.0, 2348.0),
    Row("1.05", Some(6125.0), 3607.0, 1732.0),
    Row("0.45", Some(2005.0), 1505.0, 651.0),
];

const UDP4: [Row; 6] = [
    Row("2.93", None, 9440.0, 8084.0),
    Row("2.53", None, 7772.0, 6649.0),
    Row("2.00", None, 6336.0, 5338.0),
    Row("1.46", None, 4748.0, 4014.0),
    Row("1.05", None, 3359.0, 2831.0),
    Row("0.45", None, 1312.0, 1120.0),
];

const UDP6: [Row; 6] = [
    Row("2.93", None, 7281.0, 6197.0),
    Row("2.53", None, 5953.0, 5020.0),
    Row("2.00", None, 4804.0, 4048.0),
    Row("1.46", None, 3582.0, 3004.0),
    Row("1.05", None, 2512.0, 2092.0),
    Row("0.45", None, 998.0, 826.0),
];

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry {
            name: "gso-tcp4",
            places: vec![place("slide \"Results TCP/IPv4\"")],
            title: "TCP/IPv4 from a sender with little CPU time",
            claim: "GSO in software gains 12 to 98 % over none, most at half of the frequency.",
            ..slide(Protocol::Tcp4, &TCP4, "Results TCP/IPv4")
        },
        Entry {
            name: "gso-tcp6",
            places: vec![place("slide \"Results TCP/IPv6\"")],
            title: "TCP/IPv6 from a sender with little CPU time",
            claim: "GSO in software gains 78 to 131 % over none, most at the lowest frequency.",
            ..slide(Protocol::Tcp6, &TCP6, "Results TCP/IPv6")
        },
        Entry {
            name: "gso-udp4",
            places: vec![place("slide \"Results UDP/IPv4\"")],
            title: "UDP/IPv4, in fragments, from a sender with little CPU time",
            claim: "GSO in software gains 17 to 19 % over none.",
            ..slide(Protocol::Udp4, &UDP4, "Results UDP/IPv4")
        },
        Entry {
            name: "gso-udp6",
            places: vec![place("slide \"Results UDP/IPv6\"")],
            title: "UDP/IPv6, in fragments, from a sender with little CPU time",
            claim: "GSO in software gains 17 to 21 % over none.",
            ..slide(Protocol::Udp6, &UDP6, "Results UDP/IPv6")
        },
    ]
}

const fn place(section: &'static str) -> Citation {
    Citation { paper: Paper::Gso, section, caption: None }
}

/// What the four have in common.
fn slide(protocol: Protocol, rows: &[Row], title: &str) -> Entry {
    let mut published = Vec::new();
    for (Row(ghz, tso, gso, none), percent) in rows.iter().zip(CPU_PERCENTS) {
        for (series, value) in [("none", Some(*none)), ("gso", Some(*gso)), ("tso", *tso)] {
            let Some(value) = value else { continue };
            published.push(Published {
                series,
                x: Some(f64::from(percent)),
                value: value / 1000.0,
                unit: "Gb/s",
                place: format!("slide \"{title}\", row {ghz} GHz"),
            });
        }
    }
    Entry {
        name: "",
        places: Vec::new(),
        title: "",
        varied: "the sender's CPU time, from a whole core to 15 % of one, for the slides' \
                 frequencies of 2.93 to 0.45 GHz; and who cuts",
        measured: "payload that the receiver takes",
        claim: "",
        published,
        code: Code::Runs(Box::new(gso::throughput(protocol))),
    }
}
