//! One run: so many workers, each on a thread and a CPU of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nic::config::Config;
use nic::tcp::{self as endpoint, Address, Addresses, Own, Role, Service, Work};
use sys::frames::FramePool;

use super::board::{Board, Reading};
use super::flow::{LOCAL, NIC, ROUTER};
use super::wire::{Discarding, Plan, Senders};
use crate::Error;
use crate::memory::CHUNK;
use crate::sink::io;
use crate::worker::RunningWorker;

/// Frames of each worker: no more than stay in its cache, so that memory is not what limits.
const FRAMES: u32 = 1024;
/// Of the wires, in bytes.
const MTU: u32 = 1_500;
/// How long something may take that takes milliseconds, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is there.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What the workers did.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Packets a second of each worker.
    pub(super) workers: Vec<f64>,
    /// CPU time of all workers for each packet of all, in nanoseconds.
    pub(super) cpu: f64,
    /// Per cent of the packets that came by another worker's queue.
    pub(super) strays: f64,
    /// Times that a flow found something lost.
    pub(super) repeated: u64,
    /// Strays that found no room.
    pub(super) dropped: u64,
}

impl Outcome {
    /// Packets a second of all workers.
    pub(super) fn total(&self) -> f64 {
        self.workers.iter().sum()
    }

    fn between(before: &[Reading], after: &[Reading], dropped: u64) -> Outcome {
        let each = || before.iter().zip(after);
        let rate = |(before, after): (&Reading, &Reading)| {
            (after.packets - before.packets) as f64 / ((after.at - before.at).max(1) as f64 / 1e9)
        };
        let sum = |of: fn(&Reading) -> u64| -> u64 { each().map(|(b, a)| of(a) - of(b)).sum() };
        let packets = sum(|reading| reading.packets).max(1) as f64;
        Outcome {
            workers: each().map(rate).collect(),
            cpu: sum(|reading| reading.cpu) as f64 / packets,
            strays: sum(|reading| reading.strays) as f64 * 100.0 / packets,
            repeated: sum(|reading| reading.repeated),
            dropped,
        }
    }
}

/// Lets the workers receive, and measures after `warm_up` for so long.
pub(super) fn run(
    plan: Plan,
    cpus: &[usize],
    config: &Config,
    (warm_up, duration): (Duration, Duration),
) -> Result<Outcome, Error> {
    let board = Arc::new(plan.board());
    let mut workers = start(plan, cpus, config, &board)?;
    wait("connections", || (board.ready() == plan.workers).then_some(()))?;
    board.go();
    std::thread::sleep(warm_up);
    let reading = |number| {
        board.mark();
        wait("workers", || board.readings(number))
    };
    let before = reading(0)?;
    std::thread::sleep(duration);
    let after = reading(1)?;
    let resets = board.resets();
    let dropped = workers.iter().map(|worker| worker.counted("strays", "dropped")).sum();
    workers.iter().for_each(RunningWorker::ask_to_end);
    workers.iter_mut().try_for_each(RunningWorker::end)?;
    let outcome = Outcome::between(&before, &after, dropped);
    let least = outcome.workers.iter().copied().fold(f64::INFINITY, f64::min);
    if resets > 0 || least == 0.0 {
        let why = format!("{resets} connections were reset, and the slowest worker did {least}");
        return Err(Error::Failed { system: "wharf", why });
    }
    Ok(outcome)
}

/// The workers, each of which opens its connections.
fn start(
    plan: Plan,
    cpus: &[usize],
    config: &Config,
    board: &Arc<Board>,
) -> Result<Vec<RunningWorker>, Error> {
    let wire = |me| {
        let pool = FramePool::new(FRAMES, CHUNK).map_err(io("allocate frames"))?;
        Ok((Senders::new(plan, me, Arc::clone(board)), pool))
    };
    let wires: Vec<_> = (0..plan.workers).map(wire).collect::<Result<_, Error>>()?;
    let cpu = |number: usize| cpus.get(number % cpus.len().max(1)).copied();
    if !plan.engine {
        let all = wires.into_iter().enumerate().map(|(number, (wire, pool))| {
            let ports = (wire, Discarding, pool);
            RunningWorker::start(number, config.clone(), ports, cpu(number))
        });
        return all.collect();
    }
    let workers = endpoint::workers_on(wires, own()?, config, (NIC, MTU));
    let all = workers.map_err(io("make the workers"))?.into_iter().enumerate();
    all.map(|(number, (handle, worker))| RunningWorker::run(number, handle, worker, cpu(number)))
        .collect()
}

/// A host that reads what comes.
fn own() -> Result<Own, Error> {
    let own = vec![Address { ip: LOCAL.0.into(), prefix_len: 24 }];
    let addresses = Addresses::new(own, vec![ROUTER.1.into()]);
    let addresses = addresses.map_err(|error| failed(error.to_string()))?;
    let work = Work { service: Service::Discard, bytes: None, verify: false };
    Ok(Own { addresses, probes: 0, role: Role::Listen { port: LOCAL.1 }, work, run: None })
}

fn failed(why: String) -> Error {
    Error::Failed { system: "wharf", why }
}

/// Waits until there is something.
fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Error> {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if since.elapsed() > PATIENCE {
            return Err(failed(format!("the {what} did not answer in {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
