//! Counters of a host's kernel for the packets that it received: those of `nstat`.

use std::collections::BTreeMap;
use std::fs;

use crate::lab::Host;

/// Counters of packets that did not reach their socket as they were sent: a wrong checksum, a malformed
/// header, fragments that cannot be reassembled, a full socket.
const TROUBLE: [&str; 13] = [
    "IpInHdrErrors",
    "IpReasmFails",
    "IpExtInCsumErrors",
    "TcpInCsumErrors",
    "TcpInErrs",
    "UdpInCsumErrors",
    "UdpInErrors",
    "UdpRcvbufErrors",
    "Ip6InHdrErrors",
    "Ip6ReasmFails",
    "Udp6InCsumErrors",
    "Udp6InErrors",
    "Udp6RcvbufErrors",
];

/// Every counter of the host's IP, ICMP, TCP and UDP, by its name in `nstat`.
///
/// # Panics
/// If the kernel's counters cannot be read.
pub fn counters(host: &Host) -> BTreeMap<String, u64> {
    // /proc/net would be that of the process's main thread.
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let files = host.run(|| ["snmp", "netstat", "snmp6"].map(read));
    let [snmp, netstat, snmp6] = files.map(|text| text.unwrap_or_else(|error| panic!("{error}")));
    tables(&snmp).into_iter().chain(tables(&netstat)).chain(lines(&snmp6)).collect()
}

/// Errors that the host's kernel has counted, by `nstat`'s names; empty if there are none.
///
/// # Panics
/// If the kernel's counters cannot be read.
pub fn trouble(host: &Host) -> BTreeMap<&'static str, u64> {
    let all = counters(host);
    let value = |name: &'static str| {
        let value = all.get(name).copied();
        value.unwrap_or_else(|| panic!("this kernel does not count {name}"))
    };
    let trouble = |name| match name {
        // TcpInErrs counts SYNs on open connections as well, such as a repeated SYN-ACK after the last packet
        // of a handshake was lost (tcp_validate_incoming).
        "TcpInErrs" => (name, value(name).saturating_sub(value("TcpExtTCPSYNChallenge"))),
        _ => (name, value(name)),
    };
    TROUBLE.into_iter().map(trouble).filter(|(_, value)| *value > 0).collect()
}

/// Pairs of lines, names and values, each with the table's name in front.
fn tables(text: &str) -> Vec<(String, u64)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = Vec::new();
    for pair in lines.chunks_exact(2) {
        let mut names = pair[0].split_whitespace();
        let table = names.next().unwrap_or_default().trim_end_matches(':');
        let values = pair[1].split_whitespace().skip(1);
        // A few are settings, not counters, and may be negative.
        let pairs = names.zip(values).filter_map(|(name, value)| {
            value.parse().ok().map(|value| (format!("{table}{name}"), value))
        });
        all.extend(pairs);
    }
    all
}

/// One name and value in each line.
fn lines(text: &str) -> impl Iterator<Item = (String, u64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    })
}
