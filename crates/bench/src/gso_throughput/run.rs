//! One run: its outcome, and whether every byte arrives.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nic::Nic;
use nic::config::Config;
use sys::cgroup::CpuGroup;
use sys::netns::Namespace;

use super::case::{Case, Protocol};
use super::limited::{Cores, LimitedSender};
use super::{SENDER, SINK, WORKER, tcp, udp};
use crate::Error;
use crate::sink::{SinkMode, io};

/// How long a run goes before it is measured: windows and buffers have found their sizes by then.
const WARM_UP: Duration = Duration::from_millis(400);

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) case: Case,
    pub(super) protocol: Protocol,
    pub(super) cpu_percent: u32,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// Payload that was received, in bits per second.
    pub(super) throughput: f64,
    /// Bytes of each packet that the host handed to wharf, headers included.
    pub(super) mean_packet: f64,
    /// Time that the sender and the worker were on their core, in per cent.
    pub(super) sender_cpu: f64,
    /// The worker's share of that, in per cent.
    pub(super) worker_share: f64,
    /// Time that the kernel's receiving thread and the sink were on theirs. In the case `tso` the
    /// kernel receives outside of any thread, which is not in it.
    pub(super) receiver_cpu: f64,
    /// CPU seconds of sender and worker for 10^9 bytes received.
    pub(super) cpu_per_gigabyte: f64,
    /// TCP segments sent again.
    pub(super) repeated: u64,
    /// Datagrams lost, of all, in per cent.
    pub(super) lost: f64,
}

/// What goes over the wire.
enum Traffic {
    Tcp(tcp::Traffic),
    Udp(udp::Traffic),
}

impl Traffic {
    fn start(
        limited: &LimitedSender,
        protocol: Protocol,
        cores: Cores,
        group: Option<Arc<CpuGroup>>,
        mode: SinkMode,
    ) -> Result<Self, Error> {
        if protocol.is_tcp() {
            tcp::Traffic::start(limited, protocol, cores, group, mode).map(Traffic::Tcp)
        } else {
            udp::Traffic::start(limited, protocol, cores, group, mode).map(Traffic::Udp)
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Traffic::Tcp(traffic) => traffic.bytes(),
            Traffic::Udp(traffic) => traffic.bytes(),
        }
    }

    fn lost(&self) -> (u64, u64) {
        match self {
            Traffic::Tcp(_) => (0, 0),
            Traffic::Udp(traffic) => traffic.lost(),
        }
    }

    fn stop(self) -> Result<(), Error> {
        match self {
            Traffic::Tcp(traffic) => traffic.stop(),
            Traffic::Udp(traffic) => traffic.stop(),
        }
    }

    fn finish(self) -> Result<(), Error> {
        match self {
            Traffic::Tcp(traffic) => traffic.finish(),
            Traffic::Udp(traffic) => traffic.finish(),
        }
    }
}

/// Checks that every byte arrives as it was sent; wharf's notices, if so.
pub(super) fn check(
    case: Case,
    protocol: Protocol,
    config: &Config,
    cores: Cores,
) -> Result<Vec<String>, Error> {
    let limited = LimitedSender::new(case, protocol, config, cores, None)?;
    Traffic::start(&limited, protocol, cores, None, SinkMode::Check)?.finish()?;
    let notices = limited.nic.notices().to_vec();
    limited.stop()?;
    Ok(notices)
}

/// Measures for so long.
pub(super) fn measure(
    run: Run,
    config: &Config,
    cores: Cores,
    group: Option<&Arc<CpuGroup>>,
    duration: Duration,
) -> Result<Measured, Error> {
    if let Some(group) = group {
        group.limit(None)?;
    }
    let limited = LimitedSender::new(run.case, run.protocol, config, cores, group.cloned())?;
    let limit = (run.cpu_percent < 100).then_some(run.cpu_percent);
    if let Some(group) = group {
        group.limit(limit)?;
    }
    let traffic = Traffic::start(&limited, run.protocol, cores, group.cloned(), SinkMode::Discard)?;
    std::thread::sleep(WARM_UP);
    let before = Reading::take(&limited, &traffic)?;
    std::thread::sleep(duration);
    let measured = Reading::take(&limited, &traffic)?.since(&before);
    if let Some(group) = group {
        // The end need not wait.
        group.limit(None)?;
    }
    traffic.stop()?;
    limited.stop()?;
    Ok(measured)
}

/// The counters that a run is the difference of.
struct Reading {
    at: Instant,
    bytes: u64,
    sender: u64,
    worker: u64,
    receiver: u64,
    packets: u64,
    packet_bytes: u64,
    repeated: u64,
    lost: (u64, u64),
}

impl Reading {
    fn take(limited: &LimitedSender, traffic: &Traffic) -> Result<Self, Error> {
        let (packets, packet_bytes) = handed_over(&limited.nic);
        let napi = sys::process::process_cpu(limited.napi).unwrap_or(0);
        Ok(Reading {
            repeated: repeated(&limited.sender)?,
            packets,
            packet_bytes,
            receiver: napi + sys::process::threads_cpu(SINK),
            lost: traffic.lost(),
            at: Instant::now(),
            bytes: traffic.bytes(),
            sender: sys::process::threads_cpu(SENDER),
            worker: sys::process::threads_cpu(WORKER),
        })
    }

    fn since(&self, before: &Reading) -> Measured {
        let elapsed = (self.at - before.at).as_nanos() as f64;
        let percent = |part: u64, whole: f64| part as f64 * 100.0 / whole.max(1.0);
        let bytes = (self.bytes - before.bytes) as f64;
        let worker = self.worker - before.worker;
        let sender = self.sender - before.sender + worker;
        let (lost, passed) = (self.lost.0, self.lost.1);
        Measured {
            throughput: bytes * 8e9 / elapsed,
            mean_packet: (self.packet_bytes - before.packet_bytes) as f64
                / ((self.packets - before.packets) as f64).max(1.0),
            sender_cpu: percent(sender, elapsed),
            worker_share: percent(worker, sender as f64),
            receiver_cpu: percent(self.receiver - before.receiver, elapsed),
            cpu_per_gigabyte: sender as f64 / bytes.max(1.0),
            repeated: self.repeated - before.repeated,
            lost: percent(
                lost.saturating_sub(before.lost.0),
                passed.saturating_sub(before.lost.1) as f64,
            ),
        }
    }
}

/// Packets and bytes that the host has handed to wharf.
fn handed_over(nic: &Nic) -> (u64, u64) {
    let counters = nic.counters();
    let value = |name| {
        let found = counters.iter().find(|entry| entry.group == "host" && entry.name == name);
        found.map_or(0, |entry| entry.value)
    };
    (value("taken_packets"), value("taken_bytes"))
}

/// TCP segments sent again (RFC 4022, tcpRetransSegs), in a network namespace.
fn repeated(namespace: &Namespace) -> Result<u64, Error> {
    let snmp = namespace.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))?;
    Ok(retrans_segs(&snmp.map_err(io("read the kernel's counters"))?).unwrap_or(0))
}

/// The number below that name (proc(5)).
fn retrans_segs(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:"));
    let at = lines.next()?.split_whitespace().position(|name| name == "RetransSegs")?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::retrans_segs;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: RtoMin RetransSegs X\nTcp: 200 17 3\n";
        assert_eq!(retrans_segs(snmp), Some(17));
        assert_eq!(retrans_segs("Tcp: RtoMin\nTcp: 200\n"), None);
    }
}
