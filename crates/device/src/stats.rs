//! What the device tells of itself.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use rdma::Counters;
use rdma::session::process::Objects;
use serde_json::{Value, json};

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

/// What the thread of a process has published last.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// What it has done.
    pub counters: Counters,
    /// How many objects it has.
    pub objects: Objects,
    /// Its connections.
    pub connections: Vec<Connection>,
    /// Bytes received and sent by TCP.
    pub bytes: (u64, u64),
}

/// A process.
#[derive(Debug)]
pub(crate) struct Served {
    /// Its id, as the device sees it; 0 if it does not.
    pub(crate) pid: i32,
    pub(crate) snapshot: Mutex<Snapshot>,
}

/// All processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry(Arc<Mutex<Vec<Weak<Served>>>>);

impl Registry {
    /// Another process; `None` if there are as many as there may be.
    pub(crate) fn add(&self, pid: i32, most: usize) -> Option<Arc<Served>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|served| served.strong_count() > 0);
        if all.len() >= most {
            return None;
        }
        let served = Arc::new(Served { pid, snapshot: Mutex::default() });
        all.push(Arc::downgrade(&served));
        Some(served)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|served| served.strong_count() > 0).count()
    }

    /// What `wharf rdma stats --json` prints.
    pub(crate) fn json(&self) -> Value {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let processes: Vec<Value> = all.iter().filter_map(Weak::upgrade).map(process).collect();
        json!({ "device": crate::NAME, "processes": processes })
    }
}

fn process(served: Arc<Served>) -> Value {
    let snapshot = served.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let connections: Vec<Value> = snapshot
        .connections
        .iter()
        .map(|of| json!({ "qp": of.qp, "local": of.local, "remote": of.remote }))
        .collect();
    let Objects { pds, regions, windows, cqs, srqs, qps, registered } = snapshot.objects;
    json!({
        "pid": served.pid,
        "objects": {
            "pds": pds, "regions": regions, "windows": windows, "cqs": cqs, "srqs": srqs, "qps": qps,
            "registered_bytes": registered,
        },
        "connections": connections,
        "counters": counters(&snapshot),
    })
}

fn counters(of: &Snapshot) -> Value {
    let Snapshot { counters, bytes: (bytes_in, bytes_out), .. } = of;
    json!({
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
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
        "protection_errors": counters.protection_errors,
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
