//! The receiver for measuring the receiver alone: senders in memory, a real worker, a TAP, and behind it
//! the kernel's TCP in a network namespace of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nic::config::Config;
use nic::port::tap::TapHost;
use sys::frames::FramePool;
use sys::interface;
use sys::netlink::address;
use sys::netns::Namespace;
use sys::sysfs::Sysfs;
use sys::tap::{Offloads, Tap};

use crate::case::Case;
use crate::sender::{self, Plan, RECEIVER, RECEIVER_MAC, Senders};
use crate::sink::{Listening, Sink, SinkMode, io};
use crate::worker::RunningWorker;
use crate::{Error, meter::Measured, meter::Meter};

const HOST: &str = "host0";
const PREFIX_LEN: u8 = 24;
/// Bytes of a chunk: a frame of an MTU of 1,500.
pub(crate) const CHUNK: u32 = 2048;
/// How long the kernel's GRO holds a packet that could grow, in nanoseconds, and how often it does
/// so without an interrupt: what makes it merge packets that come one by one. As long as wharf's
/// own longest hold.
const GRO_FLUSH_TIMEOUT: &str = "500000";
const GRO_DEFER: &str = "1000";
/// What each connection of a check carries: many aggregates, and a short segment at the end.
const CHECKED: u64 = (3 << 20) + 1001;
/// Most connections of a check.
const CHECKED_CONNECTIONS: usize = 16;

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) case: Case,
    pub(crate) connections: usize,
    /// Of 100 segments, those that the wire displaces.
    pub(crate) reordered: u32,
    /// What the lengths of bursts are drawn from.
    pub(crate) seed: u64,
}

/// Measures one run for so long.
pub(crate) fn measure(run: Run, config: &Config, nanoseconds: u64) -> Result<Measured, Error> {
    let mut receiver = MemoryReceiver::new(run, None, config)?;
    let sink = receiver.sink(SinkMode::Discard)?;
    receiver.go();
    let measured =
        Meter::measure(&receiver.namespace, &sink, nanoseconds, Some(&receiver.senders.cpu))?;
    sink.stop()?;
    let repeated = receiver.senders.repeated.load(Ordering::Relaxed);
    receiver.stop()?;
    Ok(Measured { repeated, ..measured })
}

/// Lets every connection carry a few megabytes and compares each byte.
pub(crate) fn check(run: Run, config: &Config) -> Result<(), Error> {
    let run = Run { connections: run.connections.min(CHECKED_CONNECTIONS), ..run };
    let mut receiver = MemoryReceiver::new(run, Some(CHECKED), config)?;
    let sink = receiver.sink(SinkMode::Check)?;
    receiver.go();
    let arrived = sink.wait()?;
    receiver.stop()?;
    let sent = CHECKED * run.connections as u64;
    if arrived == sent {
        return Ok(());
    }
    let cause = io::Error::other(format!("{arrived} of {sent} bytes arrived"));
    Err(Error::Io { what: "receive", cause })
}

/// See the module's documentation.
struct MemoryReceiver {
    namespace: Namespace,
    listening: Listening,
    run: Run,
    senders: Arc<sender::Shared>,
    worker: RunningWorker,
    /// CPUs for the threads that read what arrives: all but the worker's.
    cpus: Vec<usize>,
    _tap: Tap,
}

impl MemoryReceiver {
    /// The worker runs and the connections are being opened.
    fn new(run: Run, checked: Option<u64>, config: &Config) -> Result<MemoryReceiver, Error> {
        let mut config = config.clone();
        config.lro.enable = run.case == Case::On;
        let namespace = Namespace::new()?;
        let mut tap = namespace.run(|| host(run.case))??;
        let listening = Listening::new(&namespace)?;
        let plan = Plan {
            connections: run.connections,
            port: listening.port,
            reordered: run.reordered,
            seed: run.seed,
            checked,
        };
        let senders = Arc::new(sender::Shared::default());
        let wire = Senders::new(plan, Arc::clone(&senders));
        let port = TapHost::new(tap.queues.remove(0));
        let pool =
            FramePool::new(config.wire.frames_of_each(1), CHUNK).map_err(io("allocate frames"))?;
        let mut cpus = sys::affinity::cpus().map_err(io("list the CPUs"))?;
        // On a machine with one CPU the kernel schedules all.
        let own = (cpus.len() > 1).then(|| cpus.remove(0));
        let worker = RunningWorker::start(0, config, (wire, port, pool), own)?;
        Ok(MemoryReceiver { namespace, listening, run, senders, worker, cpus, _tap: tap })
    }

    /// The receiver, once all connections are open.
    fn sink(&self, mode: SinkMode) -> Result<Sink, Error> {
        let connections = self.listening.accept(self.run.connections)?;
        Sink::start(connections, mode, &self.cpus)
    }

    /// The senders begin.
    fn go(&mut self) {
        self.senders.go.store(true, Ordering::Relaxed);
    }

    fn stop(mut self) -> Result<(), Error> {
        self.worker.end()
    }
}

/// The receiver's interface, in the calling thread's network namespace.
pub(crate) fn host(case: Case) -> Result<Tap, Error> {
    let tap = match case {
        Case::KernelGro => Tap::create_napi(HOST),
        Case::On | Case::Off => Tap::create(HOST, 1),
    };
    let tap = tap.map_err(nic::Error::from)?;
    tap.set_offload(Offloads::ALL).map_err(nic::Error::from)?;
    if case == Case::KernelGro {
        let sysfs = Sysfs::mount()?;
        for (setting, value) in
            [("gro_flush_timeout", GRO_FLUSH_TIMEOUT), ("napi_defer_hard_irqs", GRO_DEFER)]
        {
            let setting = sysfs.setting(HOST, setting)?;
            setting.set(value).map_err(io("let the kernel's GRO hold packets"))?;
        }
    }
    // IPv6 is not used here; a kernel without it has nothing to turn off.
    let _ = sys::sysctl::set_ipv6_conf(HOST, "disable_ipv6", "1");
    interface::set_mac(HOST, RECEIVER_MAC)?;
    interface::set_up(HOST)?;
    address::add(interface::index(HOST)?, RECEIVER.into(), PREFIX_LEN, true)?;
    Ok(tap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::tap::TapError;

    /// Whether this is the error of a machine that does not let this process try.
    fn is_closed(error: &Error) -> bool {
        match error {
            Error::Sys(error) => error.is_permission(),
            Error::Nic(nic::Error::Tap(error)) => {
                matches!(error, TapError::NoDevice | TapError::DevicePermission)
            }
            _ => false,
        }
    }

    #[test]
    fn a_kernel_receives_every_byte_that_the_senders_in_memory_send() {
        for case in Case::ALL {
            for (connections, reordered) in [(1, 0), (3, 0), (2, 30)] {
                match check(Run { case, connections, reordered, seed: 1 }, &Config::default()) {
                    Ok(()) => {}
                    Err(error) if is_closed(&error) => testkit::missing::lacks(error),
                    Err(error) => panic!("{case:?}, {connections}, {reordered} %: {error}"),
                }
            }
        }
    }
}
