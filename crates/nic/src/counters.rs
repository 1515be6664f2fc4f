//! What a worker counts. Each worker owns its counters; readers see copies that it publishes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use gso::Refusal;

use crate::port::Sent;

/// Why the host's kernel did not take a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refused {
    /// The host interface is down.
    HostDown,
    /// The kernel had no memory or no room.
    HostFull,
    /// The kernel refused the packet itself.
    HostRefused,
}

impl Refused {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Refused; 3] = [Refused::HostDown, Refused::HostFull, Refused::HostRefused];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Refused::HostDown => "host_down",
            Refused::HostFull => "host_full",
            Refused::HostRefused => "host_refused",
        }
    }

    /// What a failed delivery means. A TAP that is down answers `EIO`.
    pub fn from_error(error: &io::Error) -> Refused {
        match error.raw_os_error() {
            Some(EIO | ENETDOWN) => Refused::HostDown,
            Some(EAGAIN | ENOMEM | ENOBUFS) => Refused::HostFull,
            _ => Refused::HostRefused,
        }
    }
}

const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENETDOWN: i32 = 100;
const ENOBUFS: i32 = 105;

/// Counters of one worker's two ways.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Frames and bytes from the wire.
    pub wire_in: Sent,
    /// Frames and bytes put on the wire.
    pub wire_out: Sent,
    /// Packets and bytes that the host's stack was given.
    pub host_in: Sent,
    /// Packets queued for the scheduler of a host port that several workers share. Those that it
    /// has served since are among [`host_in`](Self::host_in) or [`refused`](Self::refused).
    pub requests: u64,
    /// Times that queue was full and the wire was made to wait.
    pub requests_full: u64,
    /// Packets and bytes that the host handed over.
    pub host_out: Sent,
    /// Of those, super-packets.
    pub super_packets: u64,
    /// Frames that super-packets were cut into.
    pub segments: u64,
    /// Packets that the host's kernel did not take.
    pub refused: [u64; Refused::ALL.len()],
    /// Packets from the host that could not be cut or completed, by [`Refusal::index`].
    pub gso_refused: Refusals,
    /// Packets from the host whose header made no sense.
    pub host_unreadable: u64,
    /// Frames that the kernel dropped in front of the wire port.
    pub wire_dropped: u64,
    /// Frames that the wire's interface would not take.
    pub wire_lost: u64,
    /// Times the wire was full and the host was made to wait.
    pub wire_full: u64,
    /// Times the worker slept.
    pub sleeps: u64,
}

/// [`Refusal`]s, counted.
#[derive(Clone, Debug)]
pub struct Refusals(pub [u64; Refusal::COUNT]);

impl Default for Refusals {
    fn default() -> Self {
        Refusals([0; Refusal::COUNT])
    }
}

/// A counter with its name, and the group that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// `wire`, `host`, `gso`, `lro_pass`, ...
    pub group: &'static str,
    /// The counter.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}

impl Counters {
    /// Every counter, in a fixed order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let plain = [
            ("wire", "rx_packets", self.wire_in.frames),
            ("wire", "rx_bytes", self.wire_in.bytes),
            ("wire", "rx_dropped", self.wire_dropped),
            ("wire", "tx_packets", self.wire_out.frames),
            ("wire", "tx_bytes", self.wire_out.bytes),
            ("wire", "tx_full", self.wire_full),
            ("wire", "tx_lost", self.wire_lost),
            ("host", "delivered_packets", self.host_in.frames),
            ("host", "delivered_bytes", self.host_in.bytes),
            ("host", "requests", self.requests),
            ("host", "requests_full", self.requests_full),
            ("host", "taken_packets", self.host_out.frames),
            ("host", "taken_bytes", self.host_out.bytes),
            ("host", "unreadable", self.host_unreadable),
            ("gso", "super_packets", self.super_packets),
            ("gso", "segments", self.segments),
            ("worker", "sleeps", self.sleeps),
        ];
        let refused = Refused::ALL.into_iter().map(|r| ("host_drop", r.name(), r as usize));
        let gso = Refusal::ALL.into_iter().map(|r| ("gso_refused", r.name(), r.index()));
        plain
            .into_iter()
            .chain(refused.map(|(group, name, at)| (group, name, self.refused[at])))
            .chain(gso.map(|(group, name, at)| (group, name, self.gso_refused.0[at])))
            .map(|(group, name, value)| Entry { group, name, value })
    }
}

/// All counters of one worker, its LRO's included, where others may read them.
#[derive(Debug)]
pub struct Published(Box<[AtomicU64]>);

/// The worker's own and its LRO's counters, in the order in which they are published.
fn all<'a>(own: &'a Counters, lro: &'a lro::Counters) -> impl Iterator<Item = Entry> + 'a {
    own.entries().chain(lro.entries().map(|(group, name, value)| Entry { group, name, value }))
}

impl Default for Published {
    fn default() -> Self {
        let (own, lro) = Default::default();
        Published(all(&own, &lro).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Published {
    /// Copies the worker's counters to where readers look. Each is whole; together they may be
    /// a packet apart.
    pub fn publish(&self, own: &Counters, lro: &lro::Counters) {
        for (cell, entry) in self.0.iter().zip(all(own, lro)) {
            cell.store(entry.value, Ordering::Relaxed);
        }
    }

    /// The sum over all workers.
    pub fn total<'a>(workers: impl IntoIterator<Item = &'a Published>) -> Vec<Entry> {
        let (own, lro) = Default::default();
        let mut total: Vec<Entry> = all(&own, &lro).collect();
        for worker in workers {
            for (entry, cell) in total.iter_mut().zip(&worker.0) {
                entry.value += cell.load(Ordering::Relaxed);
            }
        }
        total
    }
}
