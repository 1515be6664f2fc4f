//! The NIC: workers, each between a queue of the wire and one of the host's, and how it dies.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use sys::frames::{FramePool, FrameReader};
use tcp::StackConfig;
use wire::{FlowHash, Mac, VirtioNetHdr};

use super::super::link::{ToAgent, Way};
use super::super::records::Mirror;
use super::super::records::fault::Fault;
use super::super::resources::Resources;
use super::super::{HandoffLane, Settings};
use super::application::Memory;
use crate::config::Config;
use crate::handle::Wake;
use crate::handoff::agent::ways::Ways;
use crate::peers::Peers;
use crate::port::memory::{FarEnd, MemoryHost, MemoryWire, Packet};
use crate::port::shared::{ByHand, Requests, SharedHost};
use crate::port::{Delivered, Delivery, FromHost, Host, HostPacket};
use crate::steer::Lookup;
use crate::worker::{Worker, handle};

pub(super) const NIC: Mac = [2, 0, 0, 0, 0, 1];
pub(super) const CHUNKS: u32 = 1024;
const PLACES: u32 = 10;

pub(super) struct Deaf;

impl Wake for Deaf {
    fn wake(&self) {}
}

pub(super) struct Nic {
    pub(super) workers: Vec<Worker<MemoryWire, Port>>,
    /// Writes to the host port that all workers share, if they do.
    scheduler: Option<ByHand<MemoryHost>>,
    wires: Vec<FarEnd>,
    hosts: Vec<FarEnd>,
    /// The queues by which the peer's packets come and the kernel's leave, which change.
    inbound: usize,
    outbound: usize,
    pub(super) mirror: Mirror,
    pub(super) death: Arc<Mutex<Death>>,
}

/// A worker's host port, or its part in one that all share.
pub(super) enum Port {
    Own(MemoryHost),
    Shared(SharedHost<MemoryHost>),
}

macro_rules! port {
    ($self:ident, $port:ident => $call:expr) => {
        match $self {
            Port::Own($port) => $call,
            Port::Shared($port) => $call,
        }
    };
}

impl Host for Port {
    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
        port!(self, port => port.deliver(memory, packet))
    }

    fn requests(&self) -> Option<&Requests> {
        port!(self, port => port.requests())
    }

    fn requests_mut(&mut self) -> Option<&mut Requests> {
        port!(self, port => port.requests_mut())
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        port!(self, port => port.receive())
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        port!(self, port => port.again())
    }

    fn last(&self) -> &[u8] {
        port!(self, port => port.last())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        port!(self, port => port.fd())
    }
}

/// How the NIC dies, and what is left of it.
#[derive(Default)]
pub(super) struct Death {
    /// Looks at its records until then.
    pub(super) at: Option<u64>,
    pub(super) left: Option<Left>,
}

/// What there was at that instant.
pub(super) struct Left {
    pub(super) memory: Vec<u64>,
    pub(super) mirror: Vec<u64>,
    pub(super) out: Sent,
}

/// What the NIC has sent.
#[derive(Clone, Default)]
pub(super) struct Sent {
    pub(super) to_wire: Vec<Packet>,
    pub(super) to_host: Vec<Packet>,
}

fn copy(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

pub(super) fn put(words: &[AtomicU64], values: &[u64]) {
    words.iter().zip(values).for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
}

fn hash() -> FlowHash {
    FlowHash::from_seed(11)
}

impl Nic {
    /// So many workers, which may share their host port, the ways to them, and what they tell.
    pub(super) fn new(
        (count, shares_host): (usize, bool),
        memory: &Arc<Memory>,
    ) -> (Self, Ways, Receiver<ToAgent>) {
        let mut config = Config::default();
        // Few packets in a turn, so that strays wait.
        config.poll.batch = 1;
        let mirror = Mirror::new(PLACES).unwrap();
        let (lookup, claims) = Lookup::new(hash(), PLACES as usize);
        let (to_agent, inbox) = channel();
        let agent = Way::new(to_agent, Arc::new(Deaf));
        let death = Arc::new(Mutex::new(Death::default()));
        let handles = (0..count).map(|_| Arc::new(handle(config.clone(), 1500).unwrap()));
        let handles: Vec<_> = handles.collect();
        let ports: Vec<_> = (0..count).map(|_| (MemoryWire::new(), MemoryHost::new())).collect();
        let wires: Vec<FarEnd> = ports.iter().map(|(wire, _)| wire.1.clone()).collect();
        let mut hosts: Vec<FarEnd> = ports.iter().map(|(_, host)| host.1.clone()).collect();
        let pool = |_| FramePool::new(CHUNKS, 2048).unwrap();
        let pools: Vec<_> = (0..count).map(pool).collect();
        let shared = shares_host.then(|| {
            let (port, far) = MemoryHost::new();
            hosts.push(far);
            ByHand::new(port, &pools.iter().collect::<Vec<_>>(), &config)
        });
        let (scheduler, requests) = shared.unzip();
        let mut requests = requests.into_iter().flatten();
        let doors = pools.iter().zip(&handles).map(|(pool, handle)| {
            let wake: Arc<dyn Wake> = handle.clone();
            (pool, wake)
        });
        let mut peers = Peers::new(hash(), 0, doors.collect()).into_iter().filter(|_| count > 1);
        let (mut workers, mut ways) = (Vec::new(), Vec::new());
        for (number, (((near_wire, _), (near_host, _)), pool)) in
            ports.into_iter().zip(pools).enumerate()
        {
            let (sender, worker_inbox) = channel();
            let resources = Arc::new(Resources::default());
            ways.push((Way::new(sender, Arc::new(Deaf)), Arc::clone(&resources)));
            let settings = Settings {
                worker: number as u32,
                has_peers: count > 1,
                mac: NIC,
                stack: StackConfig { secret: [3; 16], half_open: 0, connections: PLACES },
                memory: 64 << 20,
                config: Arc::new(config.tcp(1500)),
                secret: [4; 16],
                connections: PLACES as usize,
                mirror: mirror.clone(),
                lookup: Arc::clone(&lookup),
                load: None,
                resources,
                tells_kernel: true,
            };
            let own = Arc::clone(&handles[number]);
            let host = match requests.next() {
                Some(requests) => Port::Shared(SharedHost::new(requests, Some(near_host))),
                None => Port::Own(near_host),
            };
            let worker = Worker::new(own, config.clone(), near_wire, host, pool);
            let fault = Nic::fault(&death, memory, &mirror, (wires.clone(), hosts.clone()));
            let lane = |lro| {
                let mut lane = HandoffLane::new(settings, lro, worker_inbox, agent.clone())?;
                lane.app().records.fault = Some(fault);
                Ok(lane)
            };
            workers.push(worker.with_handoff(lane).unwrap().among(peers.next()));
        }
        let (inbound, outbound) = (0, 0);
        let nic = Nic { workers, scheduler, wires, hosts, inbound, outbound, mirror, death };
        (nic, Ways::new(ways, claims), inbox)
    }

    /// What happens before and after each commit.
    fn fault(
        death: &Arc<Mutex<Death>>,
        memory: &Arc<Memory>,
        mirror: &Mirror,
        (wires, hosts): (Vec<FarEnd>, Vec<FarEnd>),
    ) -> Fault {
        let (death, memory, mirror) = (Arc::clone(death), Arc::clone(memory), mirror.clone());
        Fault(Box::new(move || {
            let Death { at, left } = &mut *death.lock().unwrap();
            match at {
                Some(0) if left.is_none() => {
                    *left = Some(Left {
                        memory: copy(&memory.words),
                        mirror: copy(mirror.words()),
                        out: Sent::take(&wires, &hosts),
                    });
                }
                Some(at) => *at = at.saturating_sub(1),
                None => {}
            }
        }))
    }

    /// A packet of the peer's.
    pub(super) fn arrives(&self, (vnet, bytes): Packet) {
        self.wires[self.inbound].send(vnet, bytes);
    }

    /// A packet of the kernel's.
    pub(super) fn leaves(&self, (vnet, bytes): Packet) {
        self.hosts[self.outbound].send(vnet, bytes);
    }

    /// What comes from now on comes by another queue.
    pub(super) fn move_inbound(&mut self, to: usize) {
        self.inbound = to % self.workers.len();
    }

    /// What the kernel sends from now on leaves by another queue: not before all that it has sent has left, as with the
    /// kernel's own (`ooo_okay` of `struct sk_buff`).
    pub(super) fn move_outbound(&mut self, to: usize) {
        if self.workers.iter_mut().all(Worker::has_sent_all)
            && self.hosts.iter().all(|host| host.waiting() == 0)
        {
            self.outbound = to % self.workers.len();
        }
    }

    /// Segments that came behind others to the engines, and packets that found no room to be held.
    pub(super) fn late_and_lost(&self) -> (u64, u64) {
        let all = self.workers.iter().map(|worker| worker.handoff().unwrap().late_and_lost());
        all.fold((0, 0), |(late, lost), one| (late + one.0, lost + one.1))
    }

    /// Events that applications were told of.
    pub(super) fn events(&self) -> u64 {
        self.workers.iter().map(|worker| worker.handoff().unwrap().events()).sum()
    }

    /// The wire of a worker takes so many frames in its next turn.
    pub(super) fn set_room(&self, worker: usize, frames: Option<usize>) {
        self.wires[worker].set_room(frames);
    }

    /// The host port that all share takes so many packets.
    pub(super) fn serve(&mut self, most: usize) {
        self.scheduler.iter_mut().for_each(|scheduler| scheduler.serve(most));
    }

    pub(super) fn shares_host(&self) -> bool {
        self.scheduler.is_some()
    }

    /// A turn of one worker: what it has sent, or, if the NIC has died, what is left.
    pub(super) fn turn(&mut self, worker: usize, now: u64) -> Result<Sent, Left> {
        self.workers[worker].turn(now).unwrap();
        match self.death.lock().unwrap().left.take() {
            Some(left) => Err(left),
            None => Ok(Sent::take(&self.wires, &self.hosts)),
        }
    }
}

impl Sent {
    fn take(wires: &[FarEnd], hosts: &[FarEnd]) -> Self {
        let all = |ends: &[FarEnd]| -> Vec<(VirtioNetHdr, Vec<u8>)> {
            ends.iter().flat_map(FarEnd::take).collect()
        };
        Sent { to_wire: all(wires), to_host: all(hosts) }
    }
}
