//! What the device tells of itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rdma::Counters;
use rdma::session::process::Objects;
use serde_json::{Map, Value, json};

/// A connection, as it is listed.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The queue pair's number.
    pub qp: u32,
    /// The own address.
    pub local: String,
    /// The peer's.
    pub remote: String,
}

/// Calls by which a process was served, and what they have moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// Bytes received and sent by TCP.
    pub bytes: (u64, u64),
    /// Those of them that the NIC's TCP has carried.
    pub nic_bytes: (u64, u64),
    /// Calls that read and wrote them.
    pub streams: (u64, u64),
    /// Those of them that were of memory which the NIC shares: no calls of the system's.
    pub nic_streams: (u64, u64),
    /// Bytes that were received and sent without a copy: their FPDUs were read where the NIC had put them, and laid out where it
    /// sends them from.
    pub in_place_bytes: (u64, u64),
    /// Looks for what is ready, with and without a wait.
    pub waits: u64,
    /// How often the device has said that it sleeps: whoever posts then wakes it.
    pub sleeps: u64,
    /// Calls that read or wrote the memory of the process.
    pub memory_calls: u64,
    /// Those of them that were of files.
    pub file_calls: u64,
    /// Atomic operations that have not waited for others to their end.
    pub atomics_passed: u64,
    /// Bytes that were copied once more than the way of a byte needs: of what had come in part, or had no room, or whose
    /// connection has left the NIC before it was sent.
    pub held_bytes: u64,
}

impl Calls {
    /// A call has read so many bytes; `nic` if of the NIC's memory.
    pub(crate) fn has_read(&mut self, bytes: usize, nic: bool) {
        let bytes = bytes as u64;
        (self.bytes.0, self.streams.0) = (self.bytes.0 + bytes, self.streams.0 + 1);
        if nic {
            (self.nic_bytes.0, self.nic_streams.0) =
                (self.nic_bytes.0 + bytes, self.nic_streams.0 + 1);
        }
    }

    /// The same of writing.
    pub(crate) fn has_written(&mut self, bytes: usize, nic: bool) {
        let bytes = bytes as u64;
        (self.bytes.1, self.streams.1) = (self.bytes.1 + bytes, self.streams.1 + 1);
        if nic {
            (self.nic_bytes.1, self.nic_streams.1) =
                (self.nic_bytes.1 + bytes, self.nic_streams.1 + 1);
        }
    }
}

/// What the thread of a process has published last.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// What it has done.
    pub counters: Counters,
    /// How many objects it has.
    pub objects: Objects,
    /// Regions whose memory is reached by a file.
    pub file_regions: usize,
    /// Its connections.
    pub connections: Vec<Connection>,
    /// How many streams it had then, and the number of the last.
    pub(crate) of_streams: (usize, u64),
    /// What that has cost.
    pub calls: Calls,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Served {
    /// Its id, as the device sees it; 0 if it does not.
    pub(crate) pid: i32,
    pub(crate) snapshot: Mutex<Snapshot>,
    ended: Arc<Mutex<Totals>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let snapshot = self.snapshot.get_mut().unwrap_or_else(PoisonError::into_inner);
        add(&mut lock(&self.ended), &counters(snapshot));
    }
}

/// Counters of several processes together, by their names.
type Totals = Map<String, Value>;

fn add(totals: &mut Totals, more: &Totals) {
    for (name, value) in more {
        let before = totals.get(name).and_then(Value::as_u64).unwrap_or(0);
        let sum = before.saturating_add(value.as_u64().unwrap_or(0));
        totals.insert(name.clone(), sum.into());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    all: Arc<Mutex<Vec<Weak<Served>>>>,
    /// What those have done that have ended.
    ended: Arc<Mutex<Totals>>,
}

impl Registry {
    /// Another process; `None` if there are as many as there may be.
    pub(crate) fn add(&self, pid: i32, most: usize) -> Option<Arc<Served>> {
        let mut all = lock(&self.all);
        all.retain(|served| served.strong_count() > 0);
        if all.len() >= most {
            return None;
        }
        let served =
            Arc::new(Served { pid, snapshot: Mutex::default(), ended: self.ended.clone() });
        all.push(Arc::downgrade(&served));
        Some(served)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let all = lock(&self.all);
        all.iter().filter(|served| served.strong_count() > 0).count()
    }

    /// What `wharf rdma stats --json` prints.
    pub(crate) fn json(&self) -> Value {
        let all: Vec<Arc<Served>> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        let mut total = counters(&Snapshot::default());
        add(&mut total, &lock(&self.ended));
        for served in &all {
            add(&mut total, &counters(&lock(&served.snapshot)));
        }
        let processes: Vec<Value> = all.iter().map(|served| process(served)).collect();
        json!({ "device": crate::NAME, "processes": processes, "total": total })
    }
}

fn process(served: &Served) -> Value {
    let snapshot = lock(&served.snapshot).clone();
    let connections: Vec<Value> = snapshot
        .connections
        .iter()
        .map(|of| json!({ "qp": of.qp, "local": of.local, "remote": of.remote }))
        .collect();
    let Objects { pds, regions, windows, cqs, srqs, qps, registered } = snapshot.objects;
    json!({
        "pid": served.pid,
        "objects": {
            "pds": pds, "regions": regions, "file_regions": snapshot.file_regions, "windows": windows,
            "cqs": cqs, "srqs": srqs, "qps": qps, "registered_bytes": registered,
        },
        "connections": connections,
        "counters": counters(&snapshot),
    })
}

fn counters(of: &Snapshot) -> Totals {
    let both = [of_calls(&of.calls), of_work(&of.counters)];
    let objects = both.into_iter().filter_map(|part| match part {
        Value::Object(part) => Some(part),
        _ => None,
    });
    objects.flatten().collect()
}

fn of_calls(calls: &Calls) -> Value {
    json!({
        "bytes_in": calls.bytes.0,
        "bytes_out": calls.bytes.1,
        "nic_bytes_in": calls.nic_bytes.0,
        "nic_bytes_out": calls.nic_bytes.1,
        "in_place_bytes": calls.in_place_bytes.0,
        "in_place_bytes_out": calls.in_place_bytes.1,
        "reads": calls.streams.0,
        "writes": calls.streams.1,
        "nic_reads": calls.nic_streams.0,
        "nic_writes": calls.nic_streams.1,
        "waits": calls.waits,
        "sleeps": calls.sleeps,
        "memory_calls": calls.memory_calls,
        "file_calls": calls.file_calls,
        "atomics_passed": calls.atomics_passed,
        "held_bytes": calls.held_bytes,
    })
}

fn of_work(counters: &Counters) -> Value {
    json!({
        "fpdus_in": counters.fpdus_in,
        "fpdus_out": counters.fpdus_out,
        "messages_in": counters.messages_in,
        "messages_out": counters.messages_out,
        "placed_bytes": counters.placed_bytes,
        "gathered_bytes": counters.gathered_bytes,
        "atomics": counters.atomics,
        "discarded_bytes": counters.discarded_bytes,
        "terminates_in": counters.terminates_in,
        "terminates_out": counters.terminates_out,
        "crc_errors": counters.crc_errors,
        "framing_errors": counters.framing_errors,
        "header_errors": counters.header_errors,
        "stag_errors": counters.stag_errors,
        "bounds_errors": counters.bounds_errors,
        "access_errors": counters.access_errors,
        "domain_errors": counters.domain_errors,
        "invalidate_errors": counters.invalidate_errors,
        "no_buffer_errors": counters.no_buffer_errors,
        "length_errors": counters.length_errors,
        "local_errors": counters.local_errors,
        "receive_waits": counters.receive_waits,
        "ord_waits": counters.ord_waits,
        "fence_waits": counters.fence_waits,
        "flushed": counters.flushed,
        "lost_completions": counters.lost_completions,
    })
}
