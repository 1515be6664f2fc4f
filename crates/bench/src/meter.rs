//! How fast the receiver was, and what it received.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sys::netns::Namespace;

use crate::Error;
use crate::sink::Sink;
use crate::snmp::Snmp;

/// How long a run goes before it is measured: windows and buffers have found their sizes by then.
const WARM_UP: Duration = Duration::from_millis(300);

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Payload, in bits per second.
    pub(crate) throughput: f64,
    /// Payload bytes for each IP packet that the receiver's stack got.
    pub(crate) mean_aggregate: f64,
    /// CPU seconds of this process (receiver, wharf and senders) and of the kernel's threads that
    /// receive, for 10^9 bytes of payload.
    pub(crate) cpu_per_gigabyte: f64,
    /// The same for the worker alone, which is what limits where the senders cost nothing; `None`
    /// where that is not known. It is how fast the worker would be with a CPU to itself, whatever else
    /// the machine does.
    pub(crate) worker_cpu_per_gigabyte: Option<f64>,
    /// Times that a sender found something lost.
    pub(crate) repeated: u64,
}

/// Readings of the counters that a run is the difference of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    at: Instant,
    bytes: u64,
    cpu: u64,
    worker: Option<u64>,
    packets: u64,
}

impl Meter {
    /// Measures what `sink`, in `namespace`, receives in the time to come. `worker` returns the CPU
    /// time of what feeds it.
    pub(crate) fn measure(
        namespace: &Namespace,
        sink: &Sink,
        nanoseconds: u64,
        worker: Option<&AtomicU64>,
    ) -> Result<Measured, Error> {
        std::thread::sleep(WARM_UP);
        let before = Meter::read(namespace, sink, worker)?;
        std::thread::sleep(Duration::from_nanos(nanoseconds));
        let after = Meter::read(namespace, sink, worker)?;
        Ok(after.since(&before))
    }

    fn read(
        namespace: &Namespace,
        sink: &Sink,
        worker: Option<&AtomicU64>,
    ) -> Result<Meter, Error> {
        // What GRO or wharf merged counts as one.
        let packets = Snmp::read(namespace)?.get("Ip.InReceives");
        let ksoftirqd = sys::process::ksoftirqd_cpu().unwrap_or(0);
        let cpu = sys::clock::process_cpu() + ksoftirqd;
        let worker = worker.map(|cpu| cpu.load(Ordering::Relaxed));
        Ok(Meter { at: Instant::now(), bytes: sink.bytes(), cpu, worker, packets })
    }

    fn since(&self, before: &Meter) -> Measured {
        let seconds = (self.at - before.at).as_secs_f64();
        let bytes = (self.bytes - before.bytes) as f64;
        let packets = (self.packets - before.packets) as f64;
        let worker = self.worker.zip(before.worker).map(|(after, before)| after - before);
        Measured {
            throughput: bytes * 8.0 / seconds,
            mean_aggregate: bytes / packets.max(1.0),
            cpu_per_gigabyte: (self.cpu - before.cpu) as f64 / bytes.max(1.0),
            worker_cpu_per_gigabyte: worker.map(|cpu| cpu as f64 / bytes.max(1.0)),
            repeated: 0,
        }
    }
}
