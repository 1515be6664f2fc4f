//! The paper on connection handoff: a web server.

use std::time::Duration;

use super::{Headline, Judge, Run, Scale, Scenario, Series, XAxis, YAxis};

/// The loads by their index. Below a figure there is room for their first words; of those with dynamic content there are
/// 1,024 connections, too.
pub(in crate::paper) const LOADS: [&str; 7] = [
    "64 unbounded",
    "64 that last",
    "1,024 unbounded",
    "1,024, one CPU",
    "1,024 at 400 Kb/s",
    "dynamic, unbounded",
    "dynamic at 400 Kb/s",
];

const DIFFERS: &str = "nginx, one process, with SPECweb99's static files in 20 directories (100 MB) and five requests a \
                       connection, or 1,000 where they last. Where it is dynamic, 30 of 100 requests of 1,024 \
                       connections have the responder answer, a process of wharf's own that nginx asks by FastCGI and that shares its CPU: \
                       with a page of a file and an ad, the next one or one for the user, and to what is posted. \
                       SPECweb99 also has one page in 200 of these made by a program that is started for it, places ads \
                       within files, and looks at what was posted; here the responder makes all pages, with the ad before \
                       the file. The host's time includes the responder's. Clients that have a rate ask \
                       for a file when the one before it could have come at that rate, in the midst of which they are \
                       at first, over a path of 20 ms there and back by degen; the others have neither. The paper \
                       simulates a host and a card of 2 GHz and 450 MHz. Here wharf's worker has one CPU, and nginx, \
                       the clients and degen another; with one CPU, nginx is where the worker is. Without LRO and GSO, \
                       so that a segment is a packet. Every connection is handed off when it is accepted; with policies \
                       those are that have carried 64 KB one way, and a NIC that is saturated gives some back.";

/// Figure 9: the host's time.
pub(in crate::paper) fn host_time() -> Scenario {
    let all = vec![
        Series::new("os", "os", "host_time_per_packet", "without handoff"),
        Series::new("nic", "nic", "host_time_per_packet", "handoff"),
        Series::new("os_tcp", "os", "tcp_time_per_packet", "without handoff, TCP"),
        Series::new("nic_tcp", "nic", "tcp_time_per_packet", "handoff, TCP"),
        Series::new(
            "os_application",
            "os",
            "application_time_per_packet",
            "without handoff, programs",
        ),
        Series::new("nic_application", "nic", "application_time_per_packet", "handoff, programs"),
        Series::new("nic_bypass", "nic", "bypass_time_per_packet", "handoff, bypass"),
    ];
    loaded(
        all,
        YAxis { label: "Host's time a packet", unit: "ns", factor: 1.0, scale: Scale::Linear },
        Judge::Saved { subject: "nic", baseline: "os" },
    )
}

/// Throughput.
pub(in crate::paper) fn throughput() -> Scenario {
    loaded(
        vec![
            Series::of("os", "throughput", "without handoff"),
            Series::of("nic", "throughput", "handoff"),
        ],
        THROUGHPUT,
        Judge::Ratio { subject: "nic", baseline: "os", peer: None, headline: Headline::Last },
    )
}

/// Throughput with policies.
pub(in crate::paper) fn policies() -> Scenario {
    let all = vec![
        Series::of("os", "throughput", "without handoff"),
        Series::of("nic", "throughput", "handoff of all"),
        Series::of("policies", "throughput", "handoff by policies"),
    ];
    let judge = Judge::Ratio {
        subject: "policies",
        baseline: "os",
        peer: Some("nic"),
        headline: Headline::Worst,
    };
    Scenario { run: Run::Policies, ..loaded(all, THROUGHPUT, judge) }
}

const THROUGHPUT: YAxis =
    YAxis { label: "HTTP throughput", unit: "Mb/s", factor: 1e-6, scale: Scale::Linear };

fn loaded(series: Vec<Series>, y: YAxis, judge: Judge) -> Scenario {
    Scenario {
        x: XAxis {
            label: "connections and what each receives at most",
            unit: "",
            words: "",
            scale: Scale::Names(&LOADS),
        },
        y,
        series,
        points: (0..).take(LOADS.len()).collect(),
        quick: vec![0],
        run: Run::Web,
        // The namespaces, the files, until clients have their rate, and the time in which samples are taken.
        overhead: Duration::from_secs(8),
        at_least: Duration::ZERO,
        judge,
        differs: DIFFERS,
    }
}

#[cfg(test)]
mod tests {
    use super::LOADS;
    use crate::handoff::Load;

    #[test]
    fn loads_are_named_by_what_they_are() {
        let fits = |(name, load): (&str, Load)| {
            let connections = name.replace("dynamic", "1,024").replace(',', "");
            connections.starts_with(&load.connections.to_string())
                && name.contains("last") == (load.requests > 5)
                && name.contains("one CPU") == load.together
                && name.contains("400 Kb/s") == (load.rate == Some(400_000))
                && name.contains("dynamic") == load.dynamic
        };
        assert!(LOADS.into_iter().zip(Load::ALL).all(fits));
        assert_eq!(LOADS.len(), Load::ALL.len());
    }
}
