//! A running NIC: its ports, its workers, and the requests that it serves.

mod captures;
mod connections;
mod follow;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use handoff::RestoreReason;
use iface::Duplicate;
use sys::interface;
use sys::tap::Offloads;

use crate::config::Config;
use crate::counters::{Entry, Published};
use crate::degen;
use crate::engines::{Engines, Own};
use crate::error::Error;
use crate::handle::Wake;
use crate::handoff::agent::Agent;
use crate::handoff::{Handoffs, Listener, guard};
use crate::lane::handoff::AgentCounts;
use crate::open::{self, Held, HostEnd, HostInterface, Hosts, OpenWire, Purpose};
use crate::port::shared::Scheduler;
use crate::running::{Start, Wan, Workers};
use crate::worker::Handle;

pub use captures::Capturing;
use captures::Registry;
use follow::Followed;

/// The software NIC between one wire and one host interface.
#[derive(Debug)]
pub struct Nic {
    config: Mutex<Config>,
    workers: Workers,
    /// Schedulers of host queues that several workers share; dropped after the workers.
    schedulers: Vec<Scheduler>,
    wan: Option<Arc<degen::Handle>>,
    /// Receives whether the own addresses are in use.
    own_addresses: Option<Mutex<Receiver<Result<(), Duplicate>>>>,
    host: HostInterface,
    wire: String,
    wire_index: u32,
    wire_is_gone: AtomicBool,
    followed: Followed,
    host_is_gone: AtomicBool,
    ports: Ports,
    notices: Vec<String>,
    /// Connections of the host's that the NIC runs, or may.
    handoffs: Mutex<Option<Handoffs>>,
    agent: Mutex<Option<Agent>>,
    /// Where processes begin sessions, if they can.
    sessions: OnceLock<String>,
    captures: Registry,
    /// Dropped after the workers: then the kernel's stack has the wire again.
    held: Mutex<Held>,
}

/// The ports in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// `AF_XDP native, copy`, `AF_PACKET`, ...
    pub wire: String,
    /// `TAP` or `veth`.
    pub host: &'static str,
    /// Number of workers, each with a queue of the wire.
    pub workers: usize,
    /// Number of queues of the host's interface: one for each worker, or fewer.
    pub host_queues: usize,
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.workers == 1 { "" } else { "s" };
        write!(f, "{}, {}, {} worker{s}", self.wire, self.host, self.workers)?;
        if self.host_queues < self.workers {
            let s = if self.host_queues == 1 { "" } else { "s" };
            write!(f, ", {} host queue{s}", self.host_queues)?;
        }
        Ok(())
    }
}

impl Nic {
    /// Opens `wire`, makes the interface `host`, and starts the workers, all in the network
    /// namespace of the calling thread. The host interface is up and has the wire's MAC address
    /// and MTU when this returns.
    ///
    /// # Errors
    /// See [`Error`]; nothing is left behind.
    pub fn start(wire: &str, host: &str, config: Config) -> Result<Nic, Error> {
        Nic::start_with(wire, host, config, None, None)
    }

    /// The same with a WAN between the wire and wharf, whose forward direction is the host's transmit
    /// direction; and with addresses of its `own` beside the host's, which are in use some seconds later (see
    /// [`follow`](Self::follow)).
    ///
    /// # Errors
    /// As [`start`](Self::start); and if the wire has several queues, each with a worker, as each would have
    /// a WAN of its own.
    pub fn start_with(
        wire: &str,
        host: &str,
        config: Config,
        wan: Option<&degen::Settings>,
        own: Option<Own>,
    ) -> Result<Nic, Error> {
        let mut notices = Vec::new();
        // Dropped after the ports, whatever fails.
        let OpenWire { held, info, wires, room, name: port } =
            open::open(wire, &config, Purpose::Host { wan: wan.is_some() }, &mut notices)?;
        let workers = wires.len();
        if wan.is_some() && workers > 1 {
            return Err(Error::SeveralWans { name: wire.to_owned(), workers });
        }
        let (interface, hosts) =
            open::host::make_host(host, &info, &config, workers, &mut notices)?;
        let ports = Ports {
            wire: port,
            host: if matches!(hosts, Hosts::Tap(_)) { "TAP" } else { "veth" },
            workers,
            host_queues: hosts.queues(),
        };
        let wan = wan.map(Wan::new).transpose().map_err(Error::Worker)?;
        let followed = Followed::new(&info, room, interface.index)?;
        notices.extend(followed.notice(&config));
        let start = &config.for_a_host(followed.forwards());
        let engines = match own {
            Some(own) => {
                let mac = info.mac.ok_or(Error::NotEthernet { name: wire.to_owned() })?;
                Some(Engines::new(own, start, (mac, info.mtu), workers))
            }
            None => None,
        };
        let (engines, reports) = engines.unzip();
        let (wan_of, engines) = (wan.as_ref(), engines.as_ref());
        let is_tap = matches!(hosts, Hosts::Tap(_));
        let handoffs = match info.mac.filter(|_| start.handoff.connections > 0) {
            Some(mac) => {
                let handoffs = Handoffs::new(start, (mac, info.mtu), workers as u32, is_tap);
                Some(handoffs.map_err(Error::Worker)?)
            }
            None => None,
        };
        let (handoffs, handoff) = handoffs.unzip();
        let handoff = handoff.unwrap_or_default();
        let running = Start { config: start, mtu: info.mtu, wan: wan_of, engines, handoff };
        let running = running.between(wires, hosts)?;
        let handles = running.workers.iter().map(|(handle, _)| Arc::clone(handle)).collect();
        let nic = Nic {
            config: Mutex::new(config),
            workers: running.workers,
            schedulers: running.schedulers,
            wan: wan.map(|wan| wan.handle),
            own_addresses: reports.map(|reports| Mutex::new(reports.ready)),
            host: interface,
            wire: wire.to_owned(),
            wire_index: info.index,
            wire_is_gone: AtomicBool::new(false),
            followed,
            host_is_gone: AtomicBool::new(false),
            ports,
            notices,
            handoffs: Mutex::new(handoffs),
            agent: Mutex::new(None),
            sessions: OnceLock::new(),
            captures: Registry::new(handles),
            held: Mutex::new(held),
        };
        nic.apply_offloads(&nic.lock())?;
        Ok(nic)
    }

    /// The ports in use.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Problems that were found at the start, and why; one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Name of the wire interface.
    pub fn wire(&self) -> &str {
        &self.wire
    }

    /// Name and index of the host interface.
    pub fn host(&self) -> (&str, u32) {
        (&self.host.name, self.host.index)
    }

    /// Lets processes that connect to `listener` hand their connections to the NIC. To be called once, in the network
    /// namespace that the NIC was started in. Returns whether it can.
    ///
    /// # Errors
    /// What epoll and thread creation say.
    pub fn begin_handoffs(&self, listener: Listener) -> io::Result<bool> {
        let handoffs = self.handoffs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(handoffs) = handoffs else { return Ok(false) };
        let address = listener.address().to_owned();
        let host = self.host.hold()?;
        let wake = |(handle, _): &(Arc<Handle>, _)| -> Arc<dyn Wake> { handle.clone() };
        let workers = self.workers.iter().map(wake).collect();
        let agent = handoffs.begin(listener, workers, self.host.index, host)?;
        *self.agent() = Some(agent);
        // It is done once.
        let _ = self.sessions.set(address);
        Ok(true)
    }

    /// There is a guard, which is to know what it needs to put the host's connections back, should this process be
    /// killed.
    pub fn guard_with(&self, guard: guard::NicEnd) {
        if let Some(agent) = self.agent().as_ref() {
            agent.guard(guard.0);
        }
    }

    /// A service manager is to keep what a guard knows of the host's connections, for the case that both are killed.
    pub fn keep_with(&self, store: guard::store::ToStore) {
        if let Some(agent) = self.agent().as_ref() {
            agent.keep(store);
        }
    }

    /// Where programs that `wharf run` starts connect, if the NIC can run their connections.
    pub fn handoff_address(&self) -> Option<&str> {
        self.sessions.get().map(String::as_str)
    }

    fn agent(&self) -> MutexGuard<'_, Option<Agent>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that the NIC runs go back to the kernel, if there are any.
    fn give_back(&self, reason: RestoreReason) {
        if let Some(agent) = &*self.agent() {
            agent.want_back(reason);
        }
    }

    /// All counters, summed over the workers.
    pub fn counters(&self) -> Vec<Entry> {
        let mut all = Published::total(self.workers.iter().map(|(handle, _)| handle.published()));
        if let Some(agent) = &*self.agent() {
            // The agent knows of all, a worker of its own alone.
            let (refused, sessions) = (agent.refused(), agent.sessions());
            for entry in &mut all {
                let of_session = || sessions.entries().into_iter().find(|of| of.0 == entry.name);
                let by_reason = || refused.entries().find(|(name, _)| *name == entry.name);
                match entry.group {
                    "handoff_refused" => entry.value = by_reason().map_or(0, |(_, count)| count),
                    "handoff" if entry.name == "refused" => entry.value = refused.sum(),
                    AgentCounts::GROUP => entry.value = of_session().map_or(0, |(_, count)| count),
                    _ => {}
                }
            }
        }
        if let Some(wan) = &self.wan {
            all.extend(wan.snapshot().entries(["degen.forward", "degen.reverse"]));
        }
        all
    }

    /// The WAN between the wire and wharf, if there is one.
    pub fn wan(&self) -> Option<&degen::Handle> {
        self.wan.as_deref()
    }

    /// A copy of the configuration in force.
    pub fn config(&self) -> Config {
        self.lock().clone()
    }

    /// Changes one key while traffic flows.
    ///
    /// # Errors
    /// Those of [`Config::set_at_run_time`], or the kernel's for the offloads of the host interface.
    pub fn set(&self, key: &str, value: &str) -> Result<(), Box<dyn std::error::Error>> {
        let mut config = self.lock();
        let mut changed = config.clone();
        changed.set_at_run_time(key, value)?;
        if changed.gso != config.gso {
            self.resize_host(&config, &changed)?;
            if let Err(error) = self.apply_offloads(&changed) {
                // All or nothing; the first error is returned.
                let _ = self.resize_host(&changed, &config);
                return Err(error.into());
            }
        }
        if changed.handoff.policy != config.handoff.policy
            && let Some(agent) = &*self.agent()
        {
            agent.set_policy(changed.handoff.policy.clone());
        }
        *config = changed;
        self.configure_workers(&config);
        self.schedulers.iter().for_each(|scheduler| scheduler.set_spin(config.poll.spin));
        Ok(())
    }

    /// Whether a worker has ended by itself, because a port became useless, or the wire or the host interface
    /// is gone. To be called in the network namespace that the NIC was started in.
    pub fn has_failed(&self) -> bool {
        // An AF_PACKET socket is notified only that its interface went down, which may come up again.
        let look = |index, gone: &AtomicBool| {
            let found = interface::Interface::by_index(index);
            if found.is_err_and(|error| error.is_missing()) {
                gone.store(true, Ordering::Relaxed);
            }
            gone.load(Ordering::Relaxed)
        };
        let wire_is_gone = look(self.wire_index, &self.wire_is_gone);
        // A deleted TAP ends its worker.
        let host_is_gone = match self.host.kind {
            HostEnd::Veth { far, .. } => look(far, &self.host_is_gone),
            HostEnd::Tap(_) => false,
        };
        wire_is_gone
            || host_is_gone
            || self.workers.iter().any(|(_, thread)| thread.is_finished())
            || self.schedulers.iter().any(Scheduler::is_finished)
            || self.agent().as_ref().is_some_and(Agent::is_finished)
    }

    /// Ends the workers, which pass on what they hold, then closes the ports; the host interface is deleted
    /// with them.
    ///
    /// # Errors
    /// Why a worker ended by itself, or that an interface was found gone.
    pub fn stop(mut self) -> io::Result<()> {
        let ended = self.end();
        if self.wire_is_gone.load(Ordering::Relaxed) {
            return Err(io::Error::other(format!("the wire {} is gone", self.wire)));
        }
        if self.host_is_gone.load(Ordering::Relaxed) {
            return Err(io::Error::other(format!("{} is gone", self.host.name)));
        }
        ended
    }

    fn end(&mut self) -> io::Result<()> {
        let agent = self.agent.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let has_ended = self.workers.iter().any(|(_, thread)| thread.is_finished());
        let mut result = agent.map_or(Ok(()), |mut agent| match has_ended {
            // Connections go back to the kernel while the workers are there to give them.
            false => agent.stop(),
            true => agent.abandon(),
        });
        for (handle, _) in &self.workers {
            handle.stop();
        }
        for (_, thread) in self.workers.drain(..) {
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        for scheduler in self.schedulers.drain(..) {
            result = result.and(scheduler.stop());
        }
        result
    }

    /// Passes a configuration to the workers, with `auto` resolved for this host.
    fn configure_workers(&self, config: &Config) {
        let config = config.for_a_host(self.followed.forwards());
        self.workers.iter().for_each(|(handle, _)| handle.reconfigure(&config));
    }

    fn lock(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets on the host's interface what its kernel may leave to wharf.
    fn apply_offloads(&self, config: &Config) -> Result<(), Error> {
        let gso = &config.gso;
        let (tcp, udp) = (gso.enable && gso.tcp, gso.enable && gso.udp);
        match &self.host.kind {
            HostEnd::Tap(tap) => {
                let offloads = Offloads {
                    csum: true,
                    tso4: tcp,
                    tso6: tcp,
                    tso_ecn: tcp,
                    uso4: udp,
                    uso6: udp,
                    udp_tunnel: tcp,
                    udp_tunnel_csum: tcp,
                    ..Offloads::NONE
                };
                tap.set_offload(offloads)?;
            }
            HostEnd::Veth { .. } => {
                let features = sys::ethtool::Ethtool::open(&self.host.name)?;
                features.set_offload(sys::ethtool::Offload::Tso, tcp)?;
                // Old kernels lack it; then there is no USO to turn on or off.
                let _ = features.set_feature("tx-udp-segmentation", udp);
                for feature in BEYOND_VIRTIO {
                    let _ = features.set_feature(feature, false);
                }
            }
        }
        Ok(())
    }

    /// Sets how large a host's packet may be, if that changes: values that another program has set stay.
    fn resize_host(&self, before: &Config, config: &Config) -> Result<(), Error> {
        if config.gso.max_burst != before.gso.max_burst {
            interface::set_gso_max_size(&self.host.name, config.gso.max_burst + 1)?;
        }
        let mtu = self.followed.host_mtu(config);
        if mtu != self.followed.host_mtu(before) {
            let host = interface::Interface::by_index(self.host.index)?;
            let mtu = mtu.min(host.max_mtu);
            self.set_host_mtu(&host.name, mtu)?;
            self.followed.host_mtu_is(mtu);
        }
        Ok(())
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        // `stop` reports why a worker ended.
        let _ = self.end();
    }
}

/// Features of a veth that a `virtio_net_hdr` cannot request of wharf, so the kernel does the work itself:
/// segmentation within tunnels, CRCs, CWR as part of AccECN's count, which is to be on all segments, and
/// fixed IPv4 IDs. Old kernels lack some of these.
const BEYOND_VIRTIO: [&str; 11] = [
    "tx-checksum-sctp",
    "tx-sctp-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gso-list",
    "tx-tcp-accecn-segmentation",
    "tx-tcp-mangleid-segmentation",
];
