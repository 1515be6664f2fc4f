//! `fairness`: whether new connections get through to a host port that others saturate.
//!
//! The paper on LRO, section V.B: with all requests in one stack, the first few connections to be
//! established kept the DMA engine busy, and the SYNs of the others did not reach the host's kernel
//! before they timed out. With a queue for each worker, served in turn, they do.
//!
//! Here a few connections send all they can over wires in memory, one for each worker, to a TAP with
//! one queue and the kernel's TCP behind it, in a network namespace of its own; then others try to
//! open. Writing to the TAP costs more than making and receiving a frame, so the workers' queues
//! stay full without help, and nothing is dropped on purpose: in either order every
//! request is written, sooner or later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nic::config::{Choice, Config, Order};
use nic::port::shared::{Scheduler, SharedHost};
use nic::port::tap::TapHost;
use serde_json::Value;
use sys::frames::FramePool;
use sys::netns::Namespace;
use sys::tap::Tap;

use crate::case::Case;
use crate::memory::{self, CHUNK};
use crate::sender::{Crowd, CrowdPlan, MOST, Progress, SYN_TIMEOUT, SYN_TRIES};
use crate::sink::{Listening, Sink, SinkMode, io};
use crate::throughput::median;
use crate::worker::RunningWorker;
use crate::{Error, Figure, Report};

/// How long the heavy connections send before others try to open.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long a handshake may take after the last SYN has timed out, for those that are in progress.
const GRACE: u64 = 100_000_000;
/// How often it is looked whether a connection has been opened.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// Receive buffers (`tcp_rmem`: least, at first, most): large from the start, so that the windows
/// of a few connections are more than all queues hold.
const BUFFERS: &str = "4096 16777216 33554432";
/// Most workers: the most that `workers` takes.
const WORKERS_MAX: usize = 64;

/// The parameters of the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the heavy connections are measured at least while others try to open.
    pub duration: Duration,
    /// Workers that share the host port, each with a wire.
    pub workers: usize,
    /// Packets of each worker that may wait for it (`host.requests`). The more, the less often do
    /// requests run out while a worker waits for a CPU; in a stack that never runs out, those at
    /// the bottom stay there.
    pub requests: u32,
    /// Connections that saturate it.
    pub heavy: usize,
    /// Connections that try to open meanwhile.
    pub openers: usize,
    /// With and without LRO, one round each.
    pub lro: Vec<bool>,
    /// In which order the port is served, one round each.
    pub orders: Vec<Order>,
    /// Rounds of which the median counts; the orders take turns.
    pub repetitions: usize,
    /// wharf's settings.
    pub config: Config,
}

/// `fairness` with each order, with and without LRO.
///
/// # Errors
/// What the kernel says, or a number of connections or workers that cannot be.
pub fn fairness(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    options.check()?;
    let total = options.lro.len() * options.orders.len() * options.repetitions;
    let mut done = 0;
    for &lro in &options.lro {
        let on = if lro { "on" } else { "off" };
        let mut outcomes: Vec<Vec<Outcome>> = options.orders.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.repetitions {
            for (&order, outcomes) in options.orders.iter().zip(&mut outcomes) {
                done += 1;
                report.progress(done, total, &format!("{}, LRO {on}", order.name()));
                outcomes.push(SharedReceiver::new(options, order, lro)?.measure(options.duration)?);
            }
        }
        for (&order, outcomes) in options.orders.iter().zip(&outcomes) {
            report_order(outcomes, options, order, on, report);
        }
    }
    Ok(())
}

impl Options {
    fn check(&self) -> Result<(), Error> {
        if !(2..=WORKERS_MAX).contains(&self.workers) {
            let what = format!("2 to {WORKERS_MAX} workers can share a port");
            return Err(Error::Usage(what));
        }
        if self.heavy == 0 || self.openers == 0 || self.heavy + self.openers > MOST {
            let what = format!("there can be one connection of each kind to {MOST} together");
            return Err(Error::Usage(what));
        }
        if self.repetitions == 0 {
            return Err(Error::Usage("there must be one repetition at least".to_owned()));
        }
        Ok(())
    }
}

/// The outcome of a round.
#[derive(Debug)]
struct Outcome {
    /// How long each handshake took that was completed, in nanoseconds: from the first SYN to the
    /// listener's `accept`.
    handshakes: Vec<u64>,
    /// Payload of the heavy connections, in bits per second.
    throughput: f64,
}

impl Outcome {
    fn milliseconds(&self) -> impl Iterator<Item = f64> + Clone {
        self.handshakes.iter().map(|ns| *ns as f64 / 1e6)
    }
}

/// Reports the rounds of one order. The time of handshakes is reported of rounds in which
/// there were any.
fn report_order(
    outcomes: &[Outcome],
    options: &Options,
    order: Order,
    lro: &str,
    report: &mut dyn Report,
) {
    let varied: Vec<(&'static str, Value)> = vec![
        ("lro", lro.into()),
        ("workers", options.workers.into()),
        ("requests", options.requests.into()),
        ("heavy", options.heavy.into()),
        ("openers", options.openers.into()),
    ];
    let mut figure = |metric, unit, samples: Vec<f64>| {
        if samples.is_empty() {
            return;
        }
        report.figure(Figure {
            bench: "fairness",
            case: order.name().to_owned(),
            system: "wharf".to_owned(),
            varied: varied.clone(),
            metric,
            unit,
            value: median(samples.iter().copied()),
            samples,
        });
    };
    let opened: Vec<&Outcome> =
        outcomes.iter().filter(|round| !round.handshakes.is_empty()).collect();
    let completed = outcomes.iter().map(|round| round.handshakes.len() as f64).collect();
    let longest = |round: &&Outcome| round.milliseconds().reduce(f64::max);
    let medians = opened.iter().map(|round| median(round.milliseconds())).collect();
    figure("handshakes_completed", "connections", completed);
    figure("handshake_median", "ms", medians);
    figure("handshake_max", "ms", opened.iter().filter_map(longest).collect());
    figure("throughput", "bit/s", outcomes.iter().map(|round| round.throughput).collect());
}

/// The crowd, the workers, the scheduler and the kernel that they feed.
struct SharedReceiver {
    _namespace: Namespace,
    listening: Listening,
    plan: CrowdPlan,
    progress: Arc<Progress>,
    workers: Vec<RunningWorker>,
    /// Dropped after the workers have ended.
    scheduler: Option<Scheduler>,
    _tap: Tap,
}

impl SharedReceiver {
    fn new(options: &Options, order: Order, lro: bool) -> Result<SharedReceiver, Error> {
        let mut config = options.config.clone();
        config.lro.enable = lro;
        config.host.scheduler = order;
        config.host.requests = options.requests;
        let namespace = Namespace::new()?;
        let mut tap = namespace.run(|| memory::host(Case::Off))??;
        let listening = Listening::with_buffers(&namespace, BUFFERS)?;
        let reads = TapHost::new(tap.queues.remove(0));
        let writes = reads.try_clone().map_err(io("open the TAP"))?;
        let Options { workers, heavy, openers, .. } = *options;
        let plan = CrowdPlan { workers, heavy, openers, port: listening.port };
        let (wires, progress) = Crowd::gather(plan);
        let pool = |_| FramePool::new(config.wire.frames_of_each(workers as u32), CHUNK);
        let pools: Vec<FramePool> =
            (0..workers).map(pool).collect::<Result<_, _>>().map_err(io("allocate frames"))?;
        let (scheduler, requests) =
            Scheduler::start(writes, &pools.iter().collect::<Vec<_>>(), &config)
                .map_err(io("start the scheduler"))?;
        let mut receiver = SharedReceiver {
            _namespace: namespace,
            listening,
            plan,
            progress,
            workers: Vec::new(),
            scheduler: Some(scheduler),
            _tap: tap,
        };
        let mut reads = Some(reads);
        for (number, ((wire, pool), requests)) in
            wires.into_iter().zip(pools).zip(requests).enumerate()
        {
            let host = SharedHost::new(requests, reads.take());
            let ports = (wire, host, pool);
            receiver.workers.push(RunningWorker::start(number, config.clone(), ports, None)?);
        }
        Ok(receiver)
    }

    /// Lets the heavy connections send, then the others open until all are open or have given up,
    /// and the time is over.
    fn measure(mut self, duration: Duration) -> Result<Outcome, Error> {
        let heavy = self.listening.accept(self.plan.heavy)?;
        let sink = Sink::start(heavy, SinkMode::Discard, &[])?;
        self.progress.send.store(true, Ordering::Relaxed);
        std::thread::sleep(WARM_UP);

        let (since, bytes) = (sys::clock::now(), sink.bytes());
        self.progress.open.store(true, Ordering::Relaxed);
        let at_least = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // SYN_TIMEOUT, twice that, and so on, until the last has timed out.
        let at_most = (SYN_TIMEOUT << SYN_TRIES) - SYN_TIMEOUT + GRACE;
        let mut opened = Vec::new();
        let elapsed = loop {
            let now = sys::clock::now();
            while let Some(connection) = self.listening.try_accept()? {
                opened.push((connection, sys::clock::now()));
            }
            let elapsed = now - since;
            let decided = opened.len() + self.progress.timed_out.load(Ordering::Relaxed);
            let over = decided >= self.plan.openers || elapsed > at_most;
            if over && elapsed >= at_least {
                break elapsed;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let bytes = sink.bytes() - bytes;
        let handshakes = opened.iter().filter_map(|((_, port), at)| {
            let number = self.plan.opener(*port)?;
            Some(at.saturating_sub(self.progress.first_syn.get(number)?.load(Ordering::Relaxed)))
        });
        let outcomes = Outcome {
            handshakes: handshakes.collect(),
            throughput: bytes as f64 * 8e9 / elapsed as f64,
        };
        self.end()?;
        sink.stop()?;
        Ok(outcomes)
    }

    fn end(&mut self) -> Result<(), Error> {
        self.workers.iter().for_each(RunningWorker::ask_to_end);
        let mut result = Ok(());
        for mut worker in self.workers.drain(..) {
            result = result.and(worker.end());
        }
        if let Some(scheduler) = self.scheduler.take() {
            result = result.and(scheduler.stop().map_err(io("work")));
        }
        result
    }
}

impl Drop for SharedReceiver {
    fn drop(&mut self) {
        // `end` returns the error.
        let _ = self.end();
    }
}
