//! TCP connection handoff (`connection-handoff`, EuroSys'06): the host's connections that the NIC runs.
//!
//! ```text
//!   application ── session ──> agent  ── link ──> worker: lane::handoff
//!      |                         |                          ^
//!      |                         v                          |
//!      |                       kernel (TCP_REPAIR)          |
//!      +───────────── rings in shared memory ───────────────+
//! ```
//!
//! The agent is the OS side of `handoff::machine`: it takes connections out of the kernel and puts them back. The NIC
//! side is a lane of each worker's. Both speak by `lane::handoff::link`, in the paper's commands.

pub(crate) mod agent;
pub mod guard;
mod process;

pub use crate::lane::handoff::figures::Figures;
pub use agent::{Listed, Selection, of_processes};

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use ::handoff::session::Layout;
use ::tcp::StackConfig;
use sys::packets::PacketListener;
use sys::tap::TapQueue;
use wire::Mac;

use self::agent::ways::Ways;
use self::agent::{Agent, Host, Link, PerUser};
use crate::config::{self, Access, Config};
use crate::entropy::flow_hash;
use crate::handle::Wake;
use crate::lane::handoff::link::{ToAgent, ToWorker, Way};
use crate::lane::handoff::records::{Beginnings, Mirror};
use crate::lane::handoff::resources::Resources;
use crate::lane::handoff::told::ToKernel;
use crate::lane::handoff::{HandoffLane, Settings};
use crate::steer::{Claims, Lookup};

/// Where processes connect for their sessions. Its file goes with it.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: PacketListener,
    path: Option<PathBuf>,
    /// As `WHARF_HANDOFF` has it: a path, or `@` and an abstract name.
    address: String,
}

impl Listener {
    /// Where it listens, as `libwharf.so` is told: a path, or `@` and an abstract name.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Listens under an abstract name, which any process in the network namespace may connect to. A NIC that serves
    /// control clients has a listener of its own with its claim.
    ///
    /// # Errors
    /// What bind says.
    pub fn named(name: &str) -> io::Result<Listener> {
        Listener::at(&SocketAddr::from_abstract_name(name)?)
    }

    fn at(address: &SocketAddr) -> io::Result<Listener> {
        let path = address.as_pathname().map(PathBuf::from);
        let name = address.as_abstract_name().unwrap_or_default();
        let text = match &path {
            Some(path) => path.display().to_string(),
            None => format!("@{}", String::from_utf8_lossy(name)),
        };
        Ok(Listener { socket: PacketListener::bind(address)?, path, address: text })
    }

    /// Listens at a path, to which the users may connect that `access` lets, or under an abstract name.
    ///
    /// # Errors
    /// What bind and chown say.
    pub(crate) fn bind(address: &SocketAddr, access: &Access) -> io::Result<Listener> {
        if let Some(path) = address.as_pathname() {
            match std::fs::remove_file(path) {
                // Left by a process that was killed; this one has its name's lock.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let listener = Listener::at(address)?;
        if let Some(path) = &listener.path {
            chown(path, None, Some(access.group))?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(access.mode.bits()))?;
        }
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The next one replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Commands that a ring holds for each connection: data each way, and what becomes of it.
const COMMANDS_EACH: u32 = 4;
/// Numbers that a process has beyond those of all connections: it goes on to offer when the NIC has no place, which
/// then gives back what is idle longest.
const NUMBERS_SPARE: u32 = 64;

/// Memory of one process.
fn layout(config: &Config, workers: u32) -> Layout {
    let connections = config.handoff.connections;
    Layout {
        workers,
        commands: (connections * COMMANDS_EACH).next_power_of_two().clamp(256, 1 << 16),
        connections: connections + NUMBERS_SPARE,
        send: config.handoff.buffer,
        receive: config.handoff.buffer,
    }
}

/// What a worker is given for the host's connections.
pub(crate) struct WorkerEnd {
    settings: Settings,
    inbox: Receiver<ToWorker>,
    agent: Way<ToAgent>,
}

impl WorkerEnd {
    /// Its lane.
    ///
    /// # Errors
    /// What epoll says.
    pub(crate) fn lane(self, lro: Option<lro::Config>) -> io::Result<HandoffLane> {
        HandoffLane::new(self.settings, lro, self.inbox, self.agent)
    }
}

/// Handoffs of one NIC, before processes may begin sessions and after.
#[derive(Debug)]
pub(crate) struct Handoffs {
    link: Link,
    /// The ways to the workers, and what each has left.
    workers: Vec<(mpsc::Sender<ToWorker>, Arc<Resources>)>,
    claims: Claims,
    layout: Layout,
    mirror: Mirror,
    mac: Mac,
    config: config::Handoff,
}

impl Handoffs {
    /// For so many workers on a wire with this Ethernet address and MTU in bytes; and what each of them is given.
    ///
    /// # Errors
    /// What eventfd and memfd_create say.
    pub(crate) fn new(
        config: &Config,
        (mac, mtu): (Mac, u32),
        workers: u32,
        host_is_tap: bool,
    ) -> io::Result<(Self, Vec<WorkerEnd>)> {
        let (link, agent) = Link::new()?;
        let connections = config.handoff.connections;
        let mirror = Mirror::new(connections)?;
        let (lookup, claims) = Lookup::new(flow_hash(), connections as usize);
        let (flow_label, tcp) = (sys::entropy::secret(), Arc::new(config.tcp(mtu)));
        let end = |worker: u32| {
            let resources = Arc::new(Resources::default());
            let settings = Settings {
                worker,
                has_peers: workers > 1,
                mac,
                // Nothing listens there. The agent has as many places as there may be connections, whoever has them.
                stack: StackConfig { secret: sys::entropy::secret(), half_open: 0, connections },
                memory: config.tcp_memory() / u64::from(workers),
                config: Arc::clone(&tcp),
                secret: flow_label,
                connections: connections as usize,
                mirror: mirror.clone(),
                lookup: Arc::clone(&lookup),
                load: config.handoff.load(),
                resources: Arc::clone(&resources),
                tells_kernel: !host_is_tap,
            };
            let (sender, inbox) = mpsc::channel();
            ((sender, resources), WorkerEnd { settings, inbox, agent: agent.clone() })
        };
        let (all, ends) = (0..workers).map(end).unzip();
        let (layout, own) = (layout(config, workers), config.handoff.clone());
        let handoffs = Handoffs { link, workers: all, claims, layout, mirror, mac, config: own };
        Ok((handoffs, ends))
    }

    /// Lets processes begin.
    ///
    /// # Errors
    /// What epoll and thread creation say.
    pub(crate) fn begin(
        self,
        listener: Listener,
        workers: Vec<Arc<dyn Wake>>,
        interface: u32,
        host: Option<TapQueue>,
    ) -> io::Result<Agent> {
        let ways = self.workers.into_iter().zip(workers);
        let ways = ways.map(|((sender, left), worker)| (Way::new(sender, worker), left)).collect();
        let config::Handoff { bypass_firewall, policy, .. } = self.config;
        let (connections, sessions) =
            (self.config.connections_per_uid, self.config.sessions_per_uid);
        let mirror = self.mirror.clone();
        let to_kernel = host.map(|tap| ToKernel::new(tap, self.mac));
        let beginnings = Beginnings::new(self.mirror);
        Agent::start(
            listener,
            self.layout,
            self.link,
            (Ways::new(ways, self.claims), beginnings),
            (mirror, to_kernel),
            (Host::new(interface, bypass_firewall)?, PerUser { connections, sessions }, &policy),
        )
    }
}
