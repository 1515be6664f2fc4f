//! The threads of a NIC: workers on their ports, and schedulers of host queues that they share.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use sys::frames::FramePool;

use crate::config::Config;
use crate::degen::{self, wire::DegenWire};
use crate::engines::Engines;
use crate::error::Error;
use crate::handoff::WorkerEnd;
use crate::open::{Hosts, Queues, Wires};
use crate::peers::Peers;
use crate::port::shared::{Scheduler, SharedHost};
use crate::port::{AggregateKinds, Host, NoHost, Wire};
use crate::threads;
use crate::worker::{self, Handle, Lanes, Worker};

/// What a [`DegenWire`] is made of.
pub(crate) struct Wan {
    settings: degen::Settings,
    pub(crate) handle: Arc<degen::Handle>,
}

impl Wan {
    pub(crate) fn new(settings: &degen::Settings) -> io::Result<Self> {
        let handle = Arc::new(degen::handle(settings.configs.clone())?);
        Ok(Wan { settings: settings.clone(), handle })
    }

    /// Puts a WAN in front of the wire.
    pub(crate) fn around<W: Wire>(&self, wire: W) -> DegenWire<W, fn() -> u64> {
        DegenWire::new(wire, &self.settings, Arc::clone(&self.handle), sys::clock::now)
    }
}

/// The threads of a NIC.
pub(crate) struct Running {
    pub(crate) workers: Workers,
    pub(crate) schedulers: Vec<Scheduler>,
}

/// What all workers of a NIC have in common.
pub(crate) struct Start<'a> {
    pub(crate) config: &'a Config,
    /// Of the wire, in bytes of IP packet.
    pub(crate) mtu: u32,
    /// In front of each wire.
    pub(crate) wan: Option<&'a Wan>,
    /// Engines in the workers.
    pub(crate) engines: Option<&'a Engines>,
    /// The host's connections in the workers: none, or one for each.
    pub(crate) handoff: Vec<WorkerEnd>,
}

impl Start<'_> {
    /// Workers between these ports.
    pub(crate) fn between(self, wires: Wires, hosts: Hosts) -> Result<Running, Error> {
        match wires {
            Wires::Xdp(wires) => self.on(wires, hosts),
            Wires::Split(wires) => self.on(wires, hosts),
            Wires::Packet(wires) => self.on(wires, hosts),
        }
    }

    fn on<W: Wire + Send + 'static>(
        self,
        wires: Vec<(W, FramePool)>,
        hosts: Hosts,
    ) -> Result<Running, Error> {
        match hosts {
            Hosts::Tap(hosts) => self.with(wires, hosts),
            Hosts::Veth(hosts) => self.with(wires, hosts),
        }
    }

    fn with<W, H>(self, wires: Vec<(W, FramePool)>, queues: Queues<H>) -> Result<Running, Error>
    where
        W: Wire + Send + 'static,
        H: Host + Send + 'static,
    {
        let some = |hosts: Vec<H>| hosts.into_iter().map(Some).collect();
        let (schedulers, workers) = match queues {
            Queues::Own(hosts) => (Vec::new(), self.workers(wires, some(hosts))?),
            Queues::Shared(ports) => {
                let shared = share(self.config, &wires, ports).map_err(Error::Worker)?;
                let hosts = shared.1.into_iter().map(Some).collect();
                (shared.0, self.workers(wires, hosts)?)
            }
        };
        Ok(Running { workers, schedulers })
    }

    /// Workers with engines alone.
    pub(crate) fn without_host<W: Wire + Send + 'static>(
        self,
        wires: Vec<(W, FramePool)>,
    ) -> Result<Workers, Error> {
        let hosts = wires.iter().map(|_| None::<NoHost>).collect();
        self.workers(wires, hosts)
    }

    /// One thread a worker, behind the WAN if there is one.
    fn workers<W, H>(
        self,
        wires: Vec<(W, FramePool)>,
        hosts: Vec<Option<H>>,
    ) -> Result<Workers, Error>
    where
        W: Wire + Send + 'static,
        H: Host + Send + 'static,
    {
        match self.wan {
            None => self.spawn(wires, hosts),
            Some(wan) => {
                let wires = wires.into_iter().map(|(wire, pool)| (wan.around(wire), pool));
                self.spawn(wires.collect(), hosts)
            }
        }
    }

    fn spawn<W, H>(
        mut self,
        wires: Vec<(W, FramePool)>,
        hosts: Vec<Option<H>>,
    ) -> Result<Workers, Error>
    where
        W: Wire + Send + 'static,
        H: Host + Send + 'static,
    {
        let lanes = match (self.engines, hosts.first()) {
            (None, _) => Lanes::Host,
            (Some(_), Some(Some(_))) => Lanes::Both,
            (Some(_), _) => Lanes::Engine,
        };
        let mut handoff = std::mem::take(&mut self.handoff).into_iter();
        let handle = |_| worker::handle_of(lanes, self.config.clone(), self.mtu).map(Arc::new);
        let handles: Vec<Arc<Handle>> =
            wires.iter().map(handle).collect::<Result<_, _>>().map_err(Error::Worker)?;
        let peers = match self.engines.map(Engines::connections) {
            None if handoff.len() == 0 => Vec::new(),
            connections => Peers::of(&wires, &handles, connections.unwrap_or(0)),
        };
        let mut peers = peers.into_iter();
        let mut workers: Workers = Vec::new();
        let all = wires.into_iter().zip(hosts).zip(handles);
        for (number, (((wire, pool), host), handle)) in all.enumerate() {
            let own = Arc::clone(&handle);
            let worker = match (self.engines, host) {
                (Some(engines), host) => {
                    let engine = engines.of_worker(number as u32, host.is_some(), peers.next());
                    Worker::with_engine(own, (wire, pool), host, engine)
                }
                (None, Some(host)) => {
                    let worker = Worker::new(own, self.config.clone(), wire, host, pool);
                    worker.among(peers.next())
                }
                // Nothing is to be done there.
                (None, None) => continue,
            };
            let worker = match handoff.next() {
                Some(end) => worker.with_handoff(|lro| end.lane(lro)).map_err(Error::Worker)?,
                None => worker,
            };
            let thread = std::thread::Builder::new()
                .name(format!("wharf-{number}"))
                .spawn(move || threads::run(&format!("worker {number}"), || worker.run()));
            match thread {
                Ok(thread) => workers.push((handle, thread)),
                Err(error) => {
                    // Those that were started end with it, so that their ports are closed.
                    end(workers);
                    return Err(Error::Worker(error));
                }
            }
        }
        Ok(workers)
    }
}

/// Ends workers, and waits for them.
fn end(workers: Workers) {
    workers.iter().for_each(|(handle, _)| handle.stop());
    for (_, thread) in workers {
        // Why one ended is of no use to one that could not begin.
        let _ = thread.join();
    }
}

/// A scheduler for each queue of the host, and a share in one of them for each worker: worker `n`
/// of the queue `n` modulo their number, which the first of them reads.
fn share<W, H>(
    config: &Config,
    wires: &[(W, FramePool)],
    queues: Vec<(H, H)>,
) -> io::Result<(Vec<Scheduler>, Vec<SharedHost<H>>)>
where
    H: Host + Send + 'static,
{
    let count = queues.len();
    let mut schedulers = Vec::new();
    let mut shares = Vec::new();
    let refuses = queues.first().map_or(AggregateKinds::NONE, |(reads, _)| reads.refuses());
    for (queue, (reads, writes)) in queues.into_iter().enumerate() {
        let pools: Vec<&FramePool> =
            wires.iter().skip(queue).step_by(count).map(|(_, pool)| pool).collect();
        let (scheduler, requests) = Scheduler::start(writes, &pools, config)?;
        schedulers.push(scheduler);
        shares.push((requests.into_iter(), Some(reads)));
    }
    let share = |worker: usize| {
        let (requests, reads) = &mut shares[worker % count];
        let share = |requests| SharedHost::new(requests, reads.take()).refusing(refuses);
        requests.next().map(share)
    };
    let hosts = (0..wires.len()).filter_map(share).collect();
    Ok((schedulers, hosts))
}

/// One thread a worker.
pub(crate) type Workers = Vec<(Arc<Handle>, JoinHandle<io::Result<()>>)>;
