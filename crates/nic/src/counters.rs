//! What a worker counts. Each worker owns its counters; readers see copies that it publishes.

use std::sync::atomic::{AtomicU64, Ordering};

use gso::{Kind, Refusal};

use crate::port::{
    AggregateKind, AggregateKinds, Cut, Delivered, Refused, Served, Traffic, Transmitted,
};

/// What a worker's host lane counts.
#[derive(Clone, Debug, Default)]
pub struct HostCounters {
    /// Packets and bytes that the host's stack was given.
    pub delivered: Traffic,
    /// Packets queued for the scheduler of a host port that several workers share. Those that it
    /// has served since are among [`delivered`](Self::delivered) or [`refused`](Self::refused).
    pub requests: u64,
    /// Times that queue was full and the wire was made to wait.
    pub requests_full: u64,
    /// Packets and bytes that the host handed over.
    pub taken: Traffic,
    /// Of those, super-packets, and what they were cut into.
    pub gso: Gso,
    /// Packets that the host's kernel did not take.
    pub refused: [u64; Refused::ALL.len()],
    /// Aggregates that the host's kernel did not take, and whose segments it was given.
    pub cut: [u64; AggregateKind::ALL.len()],
    /// The same, to find the kinds that are not to be merged.
    pub(crate) refusals: crate::port::Refusals,
    /// Packets from the host that could not be cut or completed, by [`Refusal::index`].
    pub gso_refused: Refusals,
    /// Packets from the host whose header made no sense.
    pub unreadable: u64,
}

/// Super-packets by [`Kind`], as the slides' gso-stats shows them.
#[derive(Clone, Debug, Default)]
pub struct Gso([Bursts; Kind::ALL.len()]);

/// Super-packets of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Bursts {
    /// Super-packets that are on the wire, whole.
    super_packets: u64,
    /// Of those, how many the interface was left to cut.
    hardware: u64,
    /// Frames that they became.
    segments: u64,
    /// Bytes of the super-packets.
    bytes: u64,
    /// Bytes of the largest.
    max_burst: u64,
}

/// The largest of several workers is not their sum.
const MAX_BURST: &str = "max_burst";
/// Bytes a super-packet, by the counters of its group in front of it.
const MEAN_BURST: &str = "mean_burst";

impl Gso {
    /// Counts what was put on the wire, and the super-packet once all of it is: `done` is then its
    /// length in bytes.
    pub fn count(&mut self, transmitted: &Transmitted, done: Option<usize>) {
        let Some(kind) = transmitted.kind else { return };
        let bursts = &mut self.0[kind as usize];
        bursts.segments += transmitted.sent.frames;
        if let Some(len) = done {
            bursts.super_packets += 1;
            bursts.hardware += u64::from(transmitted.hardware);
            bursts.bytes += len as u64;
            bursts.max_burst = bursts.max_burst.max(len as u64);
        }
    }

    /// All kinds together, then each, in a fixed order.
    fn entries(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let total = |count: fn(&Bursts) -> u64| self.0.iter().map(count).sum();
        let all = [
            ("gso", "super_packets", total(|bursts| bursts.super_packets)),
            ("gso", "segments", total(|bursts| bursts.segments)),
        ];
        let each = Kind::ALL.into_iter().zip(&self.0).flat_map(|(kind, bursts)| {
            [
                ("super_packets", bursts.super_packets),
                ("hardware", bursts.hardware),
                ("segments", bursts.segments),
                ("bytes", bursts.bytes),
                (MAX_BURST, bursts.max_burst),
                (MEAN_BURST, bursts.bytes.checked_div(bursts.super_packets).unwrap_or(0)),
            ]
            .map(|(name, value)| (group(kind), name, value))
        });
        all.into_iter().chain(each)
    }
}

/// The counters' group.
const fn group(kind: Kind) -> &'static str {
    match kind {
        Kind::Tcp4 => "gso_tcp4",
        Kind::Tcp6 => "gso_tcp6",
        Kind::Uso4 => "gso_uso4",
        Kind::Uso6 => "gso_uso6",
        Kind::Frag4 => "gso_frag4",
        Kind::Frag6 => "gso_frag6",
        Kind::Sctp4 => "gso_sctp4",
        Kind::Sctp6 => "gso_sctp6",
    }
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

impl HostCounters {
    /// At the beginning, in front of a kernel that was seen to refuse these.
    pub(crate) fn refusing(kinds: AggregateKinds) -> Self {
        HostCounters { refusals: crate::port::Refusals::of(kinds), ..HostCounters::default() }
    }

    /// Counts a packet of so many bytes that a port has taken.
    #[inline]
    pub(crate) fn count(&mut self, delivered: Delivered, bytes: usize) {
        match delivered {
            Delivered::Now => self.delivered.count(bytes),
            Delivered::Later => self.requests += 1,
            Delivered::Cut(cut) => {
                self.delivered.add(cut.taken);
                self.count_cut(&cut);
            }
        }
    }

    /// Counts what a shared port has done.
    pub(crate) fn count_served(&mut self, served: &Served) {
        self.delivered.add(served.taken);
        served.cut.iter().for_each(|cut| self.count_cut(cut));
    }

    #[cold]
    fn count_cut(&mut self, cut: &Cut) {
        self.cut[cut.kind as usize] += 1;
        self.refused[Refused::HostRefused as usize] += cut.refused;
        self.refusals.count(cut.kind, sys::clock::now());
    }

    /// Every counter, in a fixed order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let plain = [
            ("host", "delivered_packets", self.delivered.frames),
            ("host", "delivered_bytes", self.delivered.bytes),
            ("host", "requests", self.requests),
            ("host", "requests_full", self.requests_full),
            ("host", "taken_packets", self.taken.frames),
            ("host", "taken_bytes", self.taken.bytes),
            ("host", "unreadable", self.unreadable),
            ("host", "not_merged", self.refusals.stopped().count()),
        ];
        let cut = AggregateKind::ALL.into_iter().map(|k| ("host_cut", k.name(), k as usize));
        let refused = Refused::ALL.into_iter().map(|r| ("host_drop", r.name(), r as usize));
        let gso = Refusal::ALL.into_iter().map(|r| ("gso_refused", r.name(), r.index()));
        plain
            .into_iter()
            .chain(self.gso.entries())
            .chain(refused.map(|(group, name, at)| (group, name, self.refused[at])))
            .chain(gso.map(|(group, name, at)| (group, name, self.gso_refused.0[at])))
            .chain(cut.map(|(group, name, at)| (group, name, self.cut[at])))
            .map(|(group, name, value)| Entry { group, name, value })
    }
}

/// Counters where others may read them, as they were when they were last published.
#[derive(Debug)]
pub struct Published {
    names: Box<[Entry]>,
    values: Box<[AtomicU64]>,
}

impl Published {
    /// With these counters.
    pub fn new(entries: Vec<Entry>) -> Self {
        let values = entries.iter().map(|entry| AtomicU64::new(entry.value)).collect();
        Published { names: entries.into(), values }
    }

    /// Copies the counters to where readers look. Each is whole; together they may be a packet apart.
    pub fn publish(&self, entries: impl Iterator<Item = Entry>) {
        // By the iterator's own loop: it is a chain of many, of which each step from outside asks every one.
        let mut values = self.values.iter();
        entries.for_each(|entry| {
            if let Some(value) = values.next() {
                value.store(entry.value, Ordering::Relaxed);
            }
        });
    }

    /// All counters.
    pub fn entries(&self) -> Vec<Entry> {
        let now = |(entry, value): (&Entry, &AtomicU64)| Entry {
            value: value.load(Ordering::Relaxed),
            ..*entry
        };
        self.names.iter().zip(&self.values).map(now).collect()
    }

    /// The sum over all workers, whose lanes are the same; of maxima the largest, of means the mean.
    pub fn total<'a>(workers: impl IntoIterator<Item = &'a Published>) -> Vec<Entry> {
        let mut workers = workers.into_iter();
        let mut total = workers.next().map(Published::entries).unwrap_or_default();
        for worker in workers {
            for (entry, cell) in total.iter_mut().zip(&worker.values) {
                let value = cell.load(Ordering::Relaxed);
                entry.value = match entry.name {
                    MAX_BURST => entry.value.max(value),
                    _ => entry.value + value,
                };
            }
        }
        let of = |total: &[Entry], group, name| {
            total.iter().find(|e| (e.group, e.name) == (group, name)).map_or(0, |e| e.value)
        };
        for at in 0..total.len() {
            if total[at].name == MEAN_BURST {
                let group = total[at].group;
                let packets = of(&total, group, "super_packets");
                total[at].value = of(&total, group, "bytes").checked_div(packets).unwrap_or(0);
            }
        }
        total
    }
}
