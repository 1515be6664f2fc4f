//! What the demo measures, and how it shows it.

use bench::BYTES;
use bench::hosts::Hosts;
use bench::snmp::Snmp;
use serde_json::json;

use super::traffic::Moved;
use crate::error::Error;

/// One way of running the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    /// wharf with these offloads.
    Wharf { gso: bool, lro: bool },
    /// The bare kernel, with GRO.
    Kernel,
}

impl Case {
    /// The name of the command line.
    pub(crate) fn parse(name: &str) -> Result<Case, String> {
        match name {
            "none" => Ok(Case::Wharf { gso: false, lro: false }),
            "gso" => Ok(Case::Wharf { gso: true, lro: false }),
            "lro" => Ok(Case::Wharf { gso: false, lro: true }),
            "gso_lro" => Ok(Case::Wharf { gso: true, lro: true }),
            "kernel" => Ok(Case::Kernel),
            _ => Err("the cases are none, gso, lro, gso_lro and kernel".to_owned()),
        }
    }

    /// GSO and LRO; `None` without wharf.
    pub(crate) fn offloads(self) -> Option<(bool, bool)> {
        match self {
            Case::Wharf { gso, lro } => Some((gso, lro)),
            Case::Kernel => None,
        }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self.offloads() {
            None => "bare kernel, GRO",
            Some((false, false)) => "wharf, no offload",
            Some((true, false)) => "wharf, GSO",
            Some((false, true)) => "wharf, LRO",
            Some((true, true)) => "wharf, GSO and LRO",
        }
    }

    /// For programs: `case` and `system`.
    fn names(self) -> (&'static str, &'static str) {
        match self.offloads() {
            None => ("none", "kernel"),
            Some((false, false)) => ("none", "wharf"),
            Some((true, false)) => ("gso", "wharf"),
            Some((false, true)) => ("lro", "wharf"),
            Some((true, true)) => ("gso_lro", "wharf"),
        }
    }
}

/// What one direction of a run gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneWay {
    /// Payload bits per second, received and verified.
    pub(crate) throughput: f64,
    /// CPU seconds of client, server and wharf together, per 10^9 payload bytes.
    pub(crate) cpu_per_gigabyte: f64,
    /// IP packets per second that the server's stack was given, by its own count.
    pub(crate) host_packets_per_second: f64,
    /// Payload bytes for each of those packets.
    pub(crate) mean_aggregate: f64,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) connections: usize,
    /// Client to server.
    pub(crate) receive: OneWay,
    /// Server to client.
    pub(crate) send: OneWay,
}

/// Readings of the counters that a run is the difference of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    cpu: u64,
    packets: u64,
}

impl Meter {
    /// Reads CPU time (this process, which is client, server and wharf, and the kernel's threads that receive)
    /// and the server's `InReceives`, which counts what GRO or wharf merged as one.
    pub(crate) fn read(hosts: &Hosts) -> Result<Meter, Error> {
        let ksoftirqd = sys::process::ksoftirqd_cpu().unwrap_or(0);
        let packets = Snmp::read(&hosts.server)?.get("Ip.InReceives");
        Ok(Meter { cpu: sys::clock::process_cpu() + ksoftirqd, packets })
    }

    /// What happened since `before`, in which `moved` was moved.
    pub(crate) fn since(&self, before: &Meter, moved: Moved) -> OneWay {
        let seconds = moved.elapsed.as_secs_f64();
        let packets = (self.packets - before.packets) as f64;
        let bytes = moved.bytes as f64;
        OneWay {
            throughput: bytes * 8.0 / seconds,
            cpu_per_gigabyte: (self.cpu - before.cpu) as f64 / bytes.max(1.0),
            host_packets_per_second: packets / seconds,
            mean_aggregate: bytes / packets.max(1.0),
        }
    }
}

/// A JSON line for each figure.
pub(crate) fn json(rows: &[Row]) -> String {
    let mut lines = String::new();
    for row in rows {
        let (case, system) = row.case.names();
        let figures = [
            ("throughput", "bit/s", row.receive.throughput),
            ("host_packets_per_second", "1/s", row.receive.host_packets_per_second),
            ("mean_aggregate", BYTES, row.receive.mean_aggregate),
            ("cpu_per_gigabyte", "s/GB", row.receive.cpu_per_gigabyte),
            ("send_throughput", "bit/s", row.send.throughput),
            ("send_cpu_per_gigabyte", "s/GB", row.send.cpu_per_gigabyte),
        ];
        for (metric, unit, value) in figures {
            let line = json!({
                "bench": "demo", "case": case, "connections": row.connections, "system": system,
                "metric": metric, "unit": unit, "value": value,
            });
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
    }
    lines
}

/// The table, for people; `ports` are those that the cases had.
pub(crate) fn table(rows: &[Row], ports: &[String]) -> String {
    let wharf = match ports.join("; ") {
        none if none.is_empty() => "without wharf".to_owned(),
        ports => format!("wharf is in front of the server\n({ports})"),
    };
    let mut out = format!(
        "Real TCP between two kernels; {wharf}.\n\
         Every byte was compared by hash.\n\n\
         {:>11}  {:<18}  {:>9}  {:>12}  {:>9}  {:>8}  {:>9}  {:>8}\n\
         {:>11}  {:<18}  {:>9}  {:>12}  {:>9}  {:>8}  {:>9}  {:>8}\n",
        "connections",
        "server",
        "receive",
        "host sees",
        "mean",
        "CPU",
        "send",
        "CPU",
        "",
        "",
        "Gb/s",
        "packets/s",
        "aggregate",
        "s/GB",
        "Gb/s",
        "s/GB",
    );
    let mut last = None;
    for row in rows {
        if last.is_some_and(|connections| connections != row.connections) {
            out.push('\n');
        }
        last = Some(row.connections);
        out.push_str(&format!(
            "{:>11}  {:<18}  {:>9.2}  {:>12}  {:>9}  {:>8.2}  {:>9.2}  {:>8.2}\n",
            row.connections,
            row.case.title(),
            row.receive.throughput / 1e9,
            format!("{:.0}", row.receive.host_packets_per_second),
            bytes(row.receive.mean_aggregate),
            row.receive.cpu_per_gigabyte,
            row.send.throughput / 1e9,
            row.send.cpu_per_gigabyte,
        ));
    }
    out.push_str(&verdict(rows));
    out
}

/// The two ratios that the table is about, at the largest number of connections.
fn verdict(rows: &[Row]) -> String {
    let Some(connections) = rows.iter().map(|row| row.connections).max() else {
        return String::new();
    };
    let find = |gso, lro| {
        rows.iter()
            .find(|row| row.connections == connections && row.case == Case::Wharf { gso, lro })
    };
    let (Some(none), Some(gso), Some(lro)) =
        (find(false, false), find(true, false), find(false, true))
    else {
        return String::new();
    };
    let s = if connections == 1 { "" } else { "s" };
    format!(
        "\nAt {connections} connection{s} LRO receives {:.1} x as much as no LRO, \
         and GSO sends {:.1} x as much as no GSO.\n",
        lro.receive.throughput / none.receive.throughput,
        gso.send.throughput / none.send.throughput,
    )
}

/// Bytes as people read them.
fn bytes(n: f64) -> String {
    if n >= 10_000.0 { format!("{:.1} KB", n / 1000.0) } else { format!("{n:.0} B") }
}
