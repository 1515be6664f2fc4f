//! The two hosts of a run, with or without wharf in front of the server, and what they cost.

use nic::Nic;
use nic::config::{Config, WireMode};
use nic::degen::Settings;

use super::streams::Direction;
use super::{Options, Reading, System};
use crate::Error;
use crate::hosts::Hosts;
use crate::sink::io;
use crate::snmp::Snmp;

/// Threads of wharf's workers.
pub(super) const WORKERS: &str = "wharf-";

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Testbed {
    pub(super) hosts: Hosts,
    nic: Option<Nic>,
}

impl Testbed {
    /// Hosts that a wire joins.
    pub(super) fn new(system: System, options: &Options) -> Result<Testbed, Error> {
        let hosts = Hosts::new()?;
        if options.wire_queue > 0 {
            hosts.set_transmit_queue(options.wire_queue)?;
        }
        Testbed::behind(hosts, system, &options.config)
    }

    /// Hosts with degen between them.
    pub(super) fn through(
        path: &Settings,
        system: System,
        config: &Config,
    ) -> Result<Testbed, Error> {
        let mode =
            if config.wire.mode == WireMode::Packet { WireMode::Packet } else { WireMode::Xdp };
        Testbed::behind(Hosts::through(path, mode)?, system, config)
    }

    fn behind(hosts: Hosts, system: System, config: &Config) -> Result<Testbed, Error> {
        let nic = match system {
            System::Wharf => Some(hosts.wharf(config.clone())?),
            System::Kernel => {
                hosts.bare_kernel()?;
                None
            }
        };
        Ok(Testbed { hosts, nic })
    }

    /// Reads the counters of CPU time and packets.
    pub(super) fn read(&self) -> Result<Spent, Error> {
        Ok(Spent {
            at: sys::clock::now(),
            cpu: sys::clock::process_cpu() + sys::process::ksoftirqd_cpu().unwrap_or(0),
            workers: self.nic.as_ref().map(|_| sys::process::threads_cpu(WORKERS)),
            client: Snmp::read(&self.hosts.client)?,
            server: Snmp::read(&self.hosts.server)?,
        })
    }

    /// Ends wharf.
    pub(super) fn stop(self) -> Result<(), Error> {
        match self.nic {
            Some(nic) => nic.stop().map(drop).map_err(io("end wharf")),
            None => Ok(()),
        }
    }
}

/// Counters at one time.
#[derive(Clone, Debug)]
pub(super) struct Spent {
    pub(super) at: u64,
    cpu: u64,
    /// `None` without wharf.
    workers: Option<u64>,
    client: Snmp,
    server: Snmp,
}

impl Spent {
    /// Throughput, and CPU time a gigabyte, of `bytes` that arrived since `before`. All threads of this
    /// process count: client, server and wharf.
    pub(super) fn since(&self, before: &Spent, bytes: u64) -> Vec<Reading> {
        let seconds = (self.at - before.at) as f64 / 1e9;
        let bytes = bytes.max(1) as f64;
        let mut readings = vec![
            Reading::new("cpu_per_gigabyte", "s/GB", (self.cpu - before.cpu) as f64 / bytes),
            Reading::new("throughput", "bit/s", bytes * 8.0 / seconds),
        ];
        if let (Some(workers), Some(earlier)) = (self.workers, before.workers) {
            let each = workers.saturating_sub(earlier) as f64 / bytes;
            readings.push(Reading::new("worker_cpu_per_gigabyte", "s/GB", each));
        }
        readings
    }

    /// Payload bytes for each IP packet that the server's stack was given.
    pub(super) fn mean_aggregate(&self, before: &Spent, bytes: u64) -> Reading {
        let packets = self.server.since(&before.server, "Ip.InReceives").max(1) as f64;
        Reading::new("mean_aggregate", crate::BYTES, bytes as f64 / packets)
    }

    /// Of the segments that the sender sent, those that it sent again, and how often its timers expired.
    pub(super) fn repeated(&self, before: &Spent, sender: Direction) -> [Reading; 2] {
        let (now, then) = match sender {
            Direction::Receive => (&self.client, &before.client),
            Direction::Send => (&self.server, &before.server),
        };
        let sent = now.since(then, "Tcp.OutSegs").max(1) as f64;
        let again = now.since(then, "Tcp.RetransSegs") as f64;
        let seconds = (self.at - before.at) as f64 / 1e9;
        let timeouts = now.since(then, "TcpExt.TCPTimeouts") as f64;
        [
            Reading::new("retransmitted", "%", 100.0 * again / sent),
            Reading::new("timeouts", "1/s", timeouts / seconds),
        ]
    }
}
