//! The threads of a NIC: workers on their ports, and schedulers of host queues that they share.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use sys::frames::FramePool;

use crate::capabilities;
use crate::config::Config;
use crate::degen::{self, wire::DegenWire};
use crate::error::Error;
use crate::open::{Hosts, Queues};
use crate::port::shared::{Scheduler, SharedHost};
use crate::port::{Host, Wire};
use crate::worker::{self, Handle, Worker};

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

impl Running {
    /// Workers on these ports, with a WAN in front of each wire if there is one.
    pub(crate) fn on<W: Wire + Send + 'static>(
        config: &Config,
        mtu: u32,
        wires: Vec<(W, FramePool)>,
        hosts: Hosts,
        wan: Option<&Wan>,
    ) -> Result<Self, Error> {
        let Some(wan) = wan else { return Self::between(config, mtu, wires, hosts) };
        let wires = wires.into_iter().map(|(wire, pool)| (wan.around(wire), pool)).collect();
        Self::between(config, mtu, wires, hosts)
    }

    fn between<W: Wire + Send + 'static>(
        config: &Config,
        mtu: u32,
        wires: Vec<(W, FramePool)>,
        hosts: Hosts,
    ) -> Result<Self, Error> {
        match hosts {
            Hosts::Tap(hosts) => Self::start(config, mtu, wires, hosts),
            Hosts::Veth(hosts) => Self::start(config, mtu, wires, hosts),
        }
    }

    fn start<W, H>(
        config: &Config,
        mtu: u32,
        wires: Vec<(W, FramePool)>,
        queues: Queues<H>,
    ) -> Result<Self, Error>
    where
        W: Wire + Send + 'static,
        H: Host + Send + 'static,
    {
        let (schedulers, workers) = match queues {
            Queues::Own(hosts) => (Vec::new(), spawn(config, mtu, wires, hosts)?),
            Queues::Shared(ports) => {
                let (schedulers, hosts) = share(config, &wires, ports).map_err(Error::Worker)?;
                (schedulers, spawn(config, mtu, wires, hosts)?)
            }
        };
        Ok(Running { workers, schedulers })
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
    for (queue, (reads, writes)) in queues.into_iter().enumerate() {
        let pools: Vec<&FramePool> =
            wires.iter().skip(queue).step_by(count).map(|(_, pool)| pool).collect();
        let (scheduler, requests) = Scheduler::start(writes, &pools, config)?;
        schedulers.push(scheduler);
        shares.push((requests.into_iter(), Some(reads)));
    }
    let share = |worker: usize| {
        let (requests, reads) = &mut shares[worker % count];
        requests.next().map(|requests| SharedHost::new(requests, reads.take()))
    };
    let hosts = (0..wires.len()).filter_map(share).collect();
    Ok((schedulers, hosts))
}

/// One thread a worker.
pub(crate) type Workers = Vec<(Arc<Handle>, JoinHandle<io::Result<()>>)>;

/// One thread a worker.
fn spawn<W, H>(
    config: &Config,
    mtu: u32,
    wires: Vec<(W, FramePool)>,
    hosts: Vec<H>,
) -> Result<Workers, Error>
where
    W: Wire + Send + 'static,
    H: Host + Send + 'static,
{
    let mut workers: Workers = Vec::new();
    for (number, ((wire, pool), host)) in wires.into_iter().zip(hosts).enumerate() {
        let handle = Arc::new(worker::handle(config.clone(), mtu).map_err(Error::Worker)?);
        let worker = Worker::new(Arc::clone(&handle), config.clone(), wire, host, pool);
        let thread = std::thread::Builder::new()
            .name(format!("wharf-{number}"))
            .spawn(move || {
                capabilities::drop_all();
                worker.run()
            })
            .map_err(Error::Worker)?;
        workers.push((handle, thread));
    }
    Ok(workers)
}
