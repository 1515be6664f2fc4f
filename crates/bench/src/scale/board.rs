//! What the threads of a run share that is no part of wharf: when to begin and to measure, and what the engine has
//! answered to each flow. Each of these has cache lines of its own, so that no sharing is measured but wharf's.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use wire::Seq;

/// See the module's documentation. CPUs fetch lines in pairs.
#[derive(Debug)]
pub(super) struct Board {
    signals: Signals,
    flows: Vec<Answers>,
    readings: Vec<Readings>,
}

/// What is told to all; read for each batch, written a few times.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Signals {
    go: AtomicBool,
    /// How often all have been asked to read their counts.
    marks: AtomicUsize,
    /// Wires whose flows are all open.
    open: AtomicUsize,
    /// Connections that the engine has reset.
    resets: AtomicUsize,
}

/// What the engine has sent to a flow.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Answers {
    is_open: AtomicBool,
    /// Of the SYN-ACK: its sequence number, and its timestamp.
    syn_ack: AtomicU64,
    /// The acknowledgment number of the last segment.
    ack: AtomicU32,
}

/// What a worker has read at each mark.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Readings(Mutex<Vec<Reading>>);

/// Counts of a worker at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// In nanoseconds, as are all.
    pub(super) at: u64,
    /// CPU time of its thread.
    pub(super) cpu: u64,
    /// Packets that it has received, and those of them that are another's.
    pub(super) packets: u64,
    pub(super) strays: u64,
    /// Times that a flow found something lost.
    pub(super) repeated: u64,
}

impl Board {
    pub(super) fn new(workers: usize, flows: usize) -> Self {
        Board {
            signals: Signals::default(),
            flows: (0..flows).map(|_| Answers::default()).collect(),
            readings: (0..workers).map(|_| Readings::default()).collect(),
        }
    }

    pub(super) fn go(&self) {
        self.signals.go.store(true, Ordering::Release);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.signals.go.load(Ordering::Acquire)
    }

    /// A wire has opened its flows.
    pub(super) fn is_ready(&self) {
        self.signals.open.fetch_add(1, Ordering::Release);
    }

    pub(super) fn ready(&self) -> usize {
        self.signals.open.load(Ordering::Acquire)
    }

    /// Asks all workers to read their counts.
    pub(super) fn mark(&self) {
        self.signals.marks.fetch_add(1, Ordering::Release);
    }

    pub(super) fn marks(&self) -> usize {
        self.signals.marks.load(Ordering::Relaxed)
    }

    pub(super) fn read(&self, worker: usize, reading: Reading) {
        let all = &self.readings[worker].0;
        all.lock().unwrap_or_else(PoisonError::into_inner).push(reading);
    }

    /// What each worker has read at mark `number`, once all of them have.
    pub(super) fn readings(&self, number: usize) -> Option<Vec<Reading>> {
        let of = |all: &Readings| {
            all.0.lock().unwrap_or_else(PoisonError::into_inner).get(number).copied()
        };
        self.readings.iter().map(of).collect()
    }

    /// The engine has accepted a flow.
    pub(super) fn accept(&self, flow: usize, seq: Seq, stamp: Seq) {
        let Some(answers) = self.flows.get(flow) else { return };
        answers.syn_ack.store((u64::from(seq.0) << 32) | u64::from(stamp.0), Ordering::Relaxed);
        answers.is_open.store(true, Ordering::Release);
    }

    /// Sequence number and timestamp of its SYN-ACK.
    pub(super) fn accepted(&self, flow: usize) -> Option<(Seq, Seq)> {
        let answers = &self.flows[flow];
        let syn_ack = || answers.syn_ack.load(Ordering::Relaxed);
        answers
            .is_open
            .load(Ordering::Acquire)
            .then(|| (Seq((syn_ack() >> 32) as u32), Seq(syn_ack() as u32)))
    }

    pub(super) fn acknowledge(&self, flow: usize, ack: Seq) {
        if let Some(answers) = self.flows.get(flow) {
            answers.ack.store(ack.0, Ordering::Relaxed);
        }
    }

    pub(super) fn acknowledged(&self, flow: usize) -> Seq {
        Seq(self.flows[flow].ack.load(Ordering::Relaxed))
    }

    pub(super) fn count_reset(&self) {
        self.signals.resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn resets(&self) -> usize {
        self.signals.resets.load(Ordering::Relaxed)
    }
}
