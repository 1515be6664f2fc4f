//! What a kernel counts of its IP and TCP (`/proc/net/snmp` and `netstat`, RFC 1213's names and
//! Linux's own).

use std::collections::HashMap;
use std::fs;
use std::io;

use sys::netns::Namespace;

use crate::Error;

/// The counters of one network namespace, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snmp(HashMap<String, u64>);

impl Snmp {
    /// Reads them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(namespace: &Namespace) -> Result<Snmp, Error> {
        let read = || -> io::Result<String> {
            // /proc/net is that of the process's first thread.
            let of = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            Ok(of("snmp")? + &of("netstat")?)
        };
        let text = namespace
            .run(read)?
            .map_err(|cause| Error::Io { what: "read the kernel's counters", cause })?;
        Ok(Snmp::parse(&text))
    }

    /// Pairs of lines, names and values, each with the name of the table in front.
    fn parse(text: &str) -> Snmp {
        let lines: Vec<&str> = text.lines().collect();
        let mut counters = HashMap::new();
        for pair in lines.chunks_exact(2) {
            let (Some((table, names)), Some((_, values))) =
                (pair[0].split_once(':'), pair[1].split_once(':'))
            else {
                continue;
            };
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                // Some are no counters, and negative.
                if let Ok(value) = value.parse() {
                    counters.insert(format!("{table}.{name}"), value);
                }
            }
        }
        Snmp(counters)
    }

    /// The counter `TABLE.NAME`, such as `Ip.InReceives`; 0 where this kernel has none of that name.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// By how much a counter has grown since `before`.
    pub fn since(&self, before: &Snmp, name: &str) -> u64 {
        self.get(name).saturating_sub(before.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_table_and_name() {
        let text = "Ip: Forwarding DefaultTTL InReceives\nIp: 2 64 1234\n\
                    Tcp: MaxConn RetransSegs\nTcp: -1 7\nTcpExt: TCPTimeouts\nTcpExt: 3\n";
        let now = Snmp::parse(text);
        let before = Snmp::parse("TcpExt: TCPTimeouts\nTcpExt: 1\n");
        assert_eq!(now.get("Ip.InReceives"), 1234);
        assert_eq!(now.get("Tcp.RetransSegs"), 7);
        assert_eq!(now.get("Tcp.MaxConn"), 0);
        assert_eq!(now.since(&before, "TcpExt.TCPTimeouts"), 2);
    }

    #[test]
    fn this_kernel_has_the_counters_that_figures_need() {
        let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let here = Snmp::parse(&text);
        for name in ["Ip.InReceives", "Tcp.RetransSegs", "Tcp.OutSegs"] {
            assert!(here.0.contains_key(name), "{name}");
        }
    }
}
