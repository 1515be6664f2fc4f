//! Where packets of a run were dropped: in wharf, at the interfaces on either side of it, in the
//! kernels' backlogs and at their sockets.

use std::collections::BTreeMap;
use std::fs;

use bench::hosts::Hosts;
use nic::Nic;
use nic::counters::Entry;
use sys::netns::Namespace;

/// Of wharf's counters those of drops: rings and UMEM (`rx_dropped`), what the wire would not take
/// (`tx_lost`), and what neither side took.
const OF_WHARF: [(&str, &str); 3] =
    [("wire", "rx_dropped"), ("wire", "tx_lost"), ("host", "unreadable")];
/// And whole groups, whose counters are reasons.
const GROUPS_OF_WHARF: [&str; 3] = ["host_drop", "gso_refused", "lro_discard"];
/// Columns of an interface in `/proc/net/dev` (`dev_seq_printf_stats`). A TAP's `tx_drop` is its
/// queue, a veth's `rx_drop` that of its NAPI.
const COLUMNS: [(usize, &str); 4] =
    [(2, "rx_errors"), (3, "rx_dropped"), (10, "tx_errors"), (11, "tx_dropped")];
/// What a kernel's IP and TCP count of packets that did not reach a socket, by `nstat`'s names.
const OF_SOCKETS: [&str; 11] = [
    "IpInDiscards",
    "IpOutDiscards",
    "TcpInErrs",
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtTCPBacklogDrop",
    "TcpExtTCPRcvQDrop",
    "TcpExtPruneCalled",
    "TcpExtRcvPruned",
    "TcpExtOfoPruned",
    "TcpExtTCPZeroWindowDrop",
];

/// Counters of drops by where they are, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Drops(BTreeMap<String, u64>);

impl Drops {
    /// Reads all that can be read; what cannot is left out.
    pub(super) fn read(hosts: &Hosts, nic: Option<&Nic>) -> Drops {
        let mut all = BTreeMap::new();
        if let Some(nic) = nic {
            all.extend(of_wharf(&nic.counters()));
        }
        for (host, namespace) in [("client", &hosts.client), ("server", &hosts.server)] {
            let files = of_kernel(namespace);
            all.extend(interfaces(host, &files[0]));
            all.extend([&files[1], &files[2]].into_iter().flat_map(|text| sockets(host, text)));
        }
        // The backlogs are those of the CPUs, whichever packets they drop.
        let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        all.insert("CPU backlog dropped".to_owned(), backlog(&softnet));
        Drops(all)
    }

    /// What was dropped since `before`, in words.
    pub(super) fn since(&self, before: &Drops) -> String {
        let grown = self.0.iter().filter_map(|(place, now)| {
            let then = before.0.get(place).copied().unwrap_or_default();
            let more = now.saturating_sub(then);
            (more > 0).then(|| format!("{place} {more}"))
        });
        match grown.collect::<Vec<_>>() {
            places if places.is_empty() => "nothing was counted as dropped".to_owned(),
            places => format!("dropped meanwhile: {}", places.join(", ")),
        }
    }
}

fn of_wharf(counters: &[Entry]) -> impl Iterator<Item = (String, u64)> + '_ {
    let is_drop = |entry: &&Entry| {
        OF_WHARF.contains(&(entry.group, entry.name)) || GROUPS_OF_WHARF.contains(&entry.group)
    };
    let named = |entry: &Entry| (format!("wharf {}.{}", entry.group, entry.name), entry.value);
    counters.iter().filter(is_drop).map(named)
}

/// `dev`, `snmp` and `netstat` of a host's namespace.
fn of_kernel(namespace: &Namespace) -> [String; 3] {
    // /proc/net is that of the process's first thread.
    let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let files = || ["dev", "snmp", "netstat"].map(|name| read(name).unwrap_or_default());
    namespace.run(files).unwrap_or_default()
}

/// `NAME: rx_bytes rx_packets ...`, behind two lines of headings.
fn interfaces<'a>(host: &'a str, dev: &'a str) -> impl Iterator<Item = (String, u64)> + 'a {
    dev.lines().filter_map(|line| line.split_once(':')).flat_map(move |(name, values)| {
        let values: Vec<u64> = values.split_whitespace().filter_map(|v| v.parse().ok()).collect();
        COLUMNS.into_iter().filter_map(move |(column, what)| {
            Some((format!("{host} {} {what}", name.trim()), *values.get(column)?))
        })
    })
}

/// Pairs of lines, the names and the values, with the table's name in front.
fn sockets<'a>(host: &'a str, text: &'a str) -> Vec<(String, u64)> {
    let lines: Vec<&str> = text.lines().collect();
    let of_pair = |pair: &[&str]| {
        let (mut names, values) = (pair[0].split_whitespace(), pair[1].split_whitespace().skip(1));
        let table = names.next().unwrap_or_default().trim_end_matches(':').to_owned();
        let known = names.zip(values).filter_map(|(name, value)| {
            let name = format!("{table}{name}");
            let is_drop = OF_SOCKETS.contains(&&*name);
            Some((format!("{host} {name}"), value.parse().ok().filter(|_| is_drop)?))
        });
        known.collect::<Vec<_>>()
    };
    lines.chunks_exact(2).flat_map(of_pair).collect()
}

/// The second column of each CPU's line (`softnet_seq_show`), in hexadecimal.
fn backlog(softnet: &str) -> u64 {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(dropped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
 host0:    9000      10    0    2    0     0          0         0     8000       9    0   31    0     0       0          0
";
    const NETSTAT: &str = "\
TcpExt: SyncookiesSent TCPBacklogDrop TCPRcvQDrop TCPTimeouts
TcpExt: 0 4 0 9
IpExt: InNoRoutes InTruncatedPkts
IpExt: 1 1
";

    #[test]
    fn what_has_grown_is_told_by_its_place() {
        let at = |tail, queue: &str| {
            let dev = DEV.replace("   31", queue);
            let entries = [
                Entry { group: "wire", name: "rx_dropped", value: tail },
                Entry { group: "wire", name: "rx_packets", value: 10 * tail },
                Entry { group: "host_drop", name: "host_full", value: 5 },
            ];
            let mut all: BTreeMap<_, _> = of_wharf(&entries).collect();
            all.extend(interfaces("server", &dev));
            all.extend(sockets("server", NETSTAT));
            Drops(all)
        };
        assert_eq!(
            at(12, "   31").since(&at(2, "   11")),
            "dropped meanwhile: server host0 tx_dropped 20, wharf wire.rx_dropped 10"
        );
        assert_eq!(at(2, "   31").since(&at(2, "   31")), "nothing was counted as dropped");
        assert_eq!(
            at(0, "   31").since(&Drops::default()),
            "dropped meanwhile: server TcpExtTCPBacklogDrop 4, server host0 rx_dropped 2, \
             server host0 tx_dropped 31, wharf host_drop.host_full 5"
        );
        assert_eq!(backlog("00000a 0000000c 0\n00000a 00000001 0\n"), 13);
    }
}
