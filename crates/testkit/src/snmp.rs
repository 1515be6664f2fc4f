//! What a host's kernel counts of the packets that it received: the counters of `nstat`.

use std::collections::BTreeMap;
use std::fs;

use crate::lab::Host;

/// What a kernel counts when a packet does not reach its socket as it was sent: a wrong checksum,
/// a header that makes no sense, fragments that make no whole, a full socket.
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

/// Every counter of the host's IP, ICMP, TCP and UDP by the name that `nstat` gives it.
///
/// # Panics
/// If the kernel does not tell.
pub fn counters(host: &Host) -> BTreeMap<String, u64> {
    // /proc/net would be that of the process's first thread.
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let files = host.run(|| ["snmp", "netstat", "snmp6"].map(read));
    let [snmp, netstat, snmp6] = files.map(|text| text.unwrap_or_else(|error| panic!("{error}")));
    tables(&snmp).into_iter().chain(tables(&netstat)).chain(lines(&snmp6)).collect()
}

/// What went wrong on the host, by `nstat`'s names: nothing, where all is well.
///
/// # Panics
/// If the kernel does not tell.
pub fn trouble(host: &Host) -> BTreeMap<&'static str, u64> {
    let all = counters(host);
    let value = |name: &'static str| {
        let value = all.get(name).copied();
        value.unwrap_or_else(|| panic!("this kernel does not count {name}"))
    };
    let trouble = |name| match name {
        // Among them are SYNs on connections that are open, as where the last packet of a handshake was lost
        // and the SYN-ACK comes again (tcp_validate_incoming).
        "TcpInErrs" => (name, value(name).saturating_sub(value("TcpExtTCPSYNChallenge"))),
        _ => (name, value(name)),
    };
    TROUBLE.into_iter().map(trouble).filter(|(_, value)| *value > 0).collect()
}

/// Pairs of lines, the names and the values, each with the table's name in front.
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

/// A name and a value a line.
fn lines(text: &str) -> impl Iterator<Item = (String, u64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    })
}
