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

/// A JSON line for each figure of a row.
pub(crate) fn json(row: &Row) -> String {
    let (case, system) = row.case.names();
    let figures = [
        ("throughput", "bit/s", row.receive.throughput),
        ("host_packets_per_second", "1/s", row.receive.host_packets_per_second),
        ("mean_aggregate", BYTES, row.receive.mean_aggregate),
        ("cpu_per_gigabyte", "s/GB", row.receive.cpu_per_gigabyte),
        ("send_throughput", "bit/s", row.send.throughput),
        ("send_cpu_per_gigabyte", "s/GB", row.send.cpu_per_gigabyte),
    ];
    let line = |(metric, unit, value)| {
        let line = json!({
            "bench": "demo", "case": case, "connections": row.connections, "system": system,
            "metric": metric, "unit": unit, "value": value,
        });
        format!("{line}\n")
    };
    figures.into_iter().map(line).collect()
}

/// What stands above the rows.
pub(crate) fn heading(with_wharf: bool) -> String {
    let wharf = if with_wharf { "wharf is in front of the server" } else { "without wharf" };
    format!(
        "Real TCP between two kernels; {wharf}.\n\
         Every byte is compared by hash.\n\n\
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
    )
}

/// A row of the table; rows of another number of connections are apart from the `previous` one.
pub(crate) fn line(row: &Row, previous: Option<&Row>) -> String {
    let is_apart = previous.is_some_and(|previous| previous.connections != row.connections);
    format!(
        "{}{:>11}  {:<18}  {:>9.2}  {:>12}  {:>9}  {:>8.2}  {:>9.2}  {:>8.2}\n",
        if is_apart { "\n" } else { "" },
        row.connections,
        row.case.title(),
        row.receive.throughput / 1e9,
        format!("{:.0}", row.receive.host_packets_per_second),
        bytes(row.receive.mean_aggregate),
        row.receive.cpu_per_gigabyte,
        row.send.throughput / 1e9,
        row.send.cpu_per_gigabyte,
    )
}

/// What stands below the rows: the ports that wharf had, and the verdict.
pub(crate) fn end(rows: &[Row], ports: &[String]) -> String {
    let ports = match ports {
        [] => String::new(),
        ports => format!("\nwharf's ports: {}.\n", ports.join("; ")),
    };
    ports + &verdict(rows)
}

/// What wharf gives beside the bare kernel, in both directions, and what its offloads give beside none, at the largest number
/// of connections.
fn verdict(rows: &[Row]) -> String {
    let Some(connections) = rows.iter().map(|row| row.connections).max() else {
        return String::new();
    };
    let find = |case| rows.iter().find(|row| row.connections == connections && row.case == case);
    let wharf = |gso, lro| find(Case::Wharf { gso, lro });
    let receive = |row: &Row| row.receive.throughput;
    let send = |row: &Row| row.send.throughput;
    let s = if connections == 1 { "" } else { "s" };
    let at = format!("\nAt {connections} connection{s}, ");
    let mut text = String::new();
    if let (Some(kernel), Some(lro), Some(gso)) = (
        find(Case::Kernel),
        wharf(true, true).or(wharf(false, true)),
        wharf(true, true).or(wharf(true, false)),
    ) {
        text = format!(
            "{at}beside the bare kernel, wharf with LRO receives {}, and with GSO sends {}.\n",
            times(receive(lro), receive(kernel)),
            times(send(gso), send(kernel)),
        );
    }
    if let (Some(none), Some(lro), Some(gso)) =
        (wharf(false, false), wharf(false, true), wharf(true, false))
    {
        text.push_str(&format!(
            "{}eside wharf without them, LRO receives {}, and GSO sends {}.\n",
            if text.is_empty() { at + "b" } else { "B".to_owned() },
            times(receive(lro), receive(none)),
            times(send(gso), send(none)),
        ));
    }
    text
}

/// A ratio in words: which of the two is more is to be seen at once.
fn times(one: f64, other: f64) -> String {
    let ratio = one / other;
    match format!("{ratio:.2}").as_str() {
        "1.00" => "as much".to_owned(),
        shown if ratio < 1.0 => format!("only {shown} x as much"),
        _ => format!("{ratio:.1} x as much"),
    }
}

/// Bytes as people read them.
fn bytes(n: f64) -> String {
    if n >= 10_000.0 { format!("{:.1} KB", n / 1000.0) } else { format!("{n:.0} B") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose server receives and sends so many Gb/s.
    fn row(case: &str, connections: usize, receive: f64, send: f64) -> Row {
        let one_way = |throughput| OneWay {
            throughput: throughput * 1e9,
            cpu_per_gigabyte: 1.0,
            host_packets_per_second: 1.0,
            mean_aggregate: 1_448.0,
        };
        let case = Case::parse(case).unwrap();
        Row { case, connections, receive: one_way(receive), send: one_way(send) }
    }

    #[test]
    fn the_verdict_is_about_the_bare_kernel_both_ways() {
        let mut rows = vec![
            row("gso_lro", 1, 9.0, 9.0),
            row("kernel", 1, 1.0, 1.0),
            row("none", 64, 2.0, 3.0),
            row("gso", 64, 2.0, 21.0),
            row("lro", 64, 5.0, 3.0),
            row("gso_lro", 64, 4.9, 22.9),
            row("kernel", 64, 7.1, 7.0),
        ];
        let whole = "\nAt 64 connections, beside the bare kernel, wharf with LRO receives only 0.69 x as much, and with GSO \
                     sends 3.3 x as much.\n\
                     Beside wharf without them, LRO receives 2.5 x as much, and GSO sends 7.0 x as much.\n";
        assert_eq!(verdict(&rows), whole);
        // Without the kernel nothing is said of it.
        rows.retain(|row| row.case != Case::Kernel);
        let of_wharf = "\nAt 64 connections, beside wharf without them, LRO receives 2.5 x as much, and GSO sends 7.0 x as \
                        much.\n";
        assert_eq!(verdict(&rows), of_wharf);
        rows.retain(|row| row.case == Case::Wharf { gso: true, lro: true });
        assert_eq!(verdict(&rows), "");
        rows.extend([row("kernel", 64, 4.9, 30.0)]);
        let last = verdict(&rows);
        assert!(last.contains("LRO receives as much, "), "{last}");
        assert!(last.contains("sends only 0.76 x as much"), "{last}");
    }
}
