//! The engines of a NIC's workers: one host on the network, with one service, in as many parts as there are
//! workers.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use iface::{Addresses, Duplicate, Interface};
use lro::Nanos;
use tcp::{Stack, StackConfig};
use wire::Mac;

use crate::app::{Report, Role, Service, Services, Share, Work};
use crate::config::Config;
use crate::lane::engine::EngineLane;
use crate::lane::node::Node;
use crate::lane::trace::Trace;
use crate::peers::Peers;
use crate::steer::Steer;
use crate::worker::Engine;

/// A host on the network of the engine's own.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its addresses.
    pub addresses: Addresses,
    /// Probes for each of them before it is used, on a wire: see [`iface::Config::probes`].
    pub probes: u8,
    /// Whom it speaks with.
    pub role: Role,
    /// What it does.
    pub work: Work,
    /// For how long, in nanoseconds; `None` for ever.
    pub run: Option<Nanos>,
}

/// See the module's documentation.
pub(crate) struct Engines {
    own: Own,
    mac: Mac,
    stack: StackConfig,
    /// Bytes that the connections of one worker may take.
    memory: u64,
    config: Arc<tcp::Config>,
    secret: [u8; 16],
    /// How many there are.
    of: u32,
    reports: Option<Sender<Report>>,
    ready: Sender<Result<(), Duplicate>>,
    trace: Option<Trace>,
}

/// What engines tell: when the addresses are in use, and connections that have ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) ready: Receiver<Result<(), Duplicate>>,
    pub(crate) reports: Receiver<Report>,
}

impl Told {
    /// Waits until the addresses of so many workers are in use.
    ///
    /// # Errors
    /// One of them is another host's.
    pub(crate) fn wait(&self, workers: usize) -> Result<(), Duplicate> {
        // A worker that ended before it could tell tells why when it is joined.
        self.ready.iter().take(workers).find(Result::is_err).unwrap_or(Ok(()))
    }
}

impl Engines {
    /// Of so many workers, on a wire with this Ethernet address and MTU in bytes.
    pub(crate) fn new(
        own: Own,
        config: &Config,
        (mac, mtu): (Mac, u32),
        of: usize,
    ) -> (Self, Told) {
        let (ready, is_ready) = mpsc::channel();
        let (sender, reports) = mpsc::channel();
        let of = of as u32;
        let engines = Engines {
            reports: (own.work.service != Service::Discard).then_some(sender),
            own,
            mac,
            // Sequence numbers are those of one host, whichever worker has a connection.
            stack: StackConfig {
                secret: sys::entropy::secret(),
                half_open: config.tcp.half_open.div_ceil(of),
                connections: config.tcp.connections.div_ceil(of),
            },
            memory: config.tcp_memory() / u64::from(of),
            config: Arc::new(config.tcp(mtu)),
            secret: sys::entropy::secret(),
            of,
            ready,
            trace: None,
        };
        (engines, Told { ready: is_ready, reports })
    }

    /// The same with a trace of one of their connections.
    pub(crate) fn with_trace(self, trace: Option<Trace>) -> Self {
        Engines { trace, ..self }
    }

    /// Connections that all of them together may have.
    pub(crate) fn connections(&self) -> u32 {
        self.stack.connections.saturating_mul(self.of)
    }

    /// That of one worker, which may be `beside_host` and among `peers`. The first probes for the addresses and
    /// announces them.
    pub(crate) fn of_worker(
        &self,
        number: u32,
        beside_host: bool,
        peers: Option<Peers>,
    ) -> Engine<impl FnOnce(Option<lro::Config>) -> EngineLane<Services>> {
        let Own { addresses, probes, role, work, run } = self.own.clone();
        let own = addresses.own().iter().map(|address| address.ip);
        let steer = beside_host.then(|| Steer::new(self.mac, own));
        let stack = Stack::new(self.stack).with_memory(self.memory);
        let stack = if peers.is_some() { stack.with_changes() } else { stack };
        let config = iface::Config { mac: self.mac, addresses, secret: self.secret, probes };
        let interface = Interface::new(config);
        let interface = if number == 0 { interface } else { interface.unannounced() };
        let share = Share { number, of: self.of };
        let config = Arc::clone(&self.config);
        let app = Services::new((work, role, run), share, config, self.reports.clone());
        let (node, ready) = (Node::new(interface, stack), self.ready.clone());
        let trace = self.trace.clone();
        let lane = move |lro| EngineLane::new(lro, node, app, ready).with_trace(trace.as_ref());
        Engine { lane, steer, peers }
    }
}
