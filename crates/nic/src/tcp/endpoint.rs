//! A running endpoint: its port opened, its thread started, and what may be asked of it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use iface::{Addresses, Duplicate};
use lro::Nanos;
use sys::frames::FramePool;
use tcp::{Stack, StackConfig};

use super::open::{self, Held, LinkPort, Opened, Place};
use super::secret;
use crate::app::{Report, Role, Service, Services, Share, Work};
use crate::capabilities;
use crate::config::Config;
use crate::counters::{Entry, Lanes};
use crate::degen;
use crate::error::Error;
use crate::lane::engine::EngineLane;
use crate::lane::node::Node;
use crate::port::Wire;
use crate::running::Wan;
use crate::worker::{self, Handle, Worker};

/// What an endpoint is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it is.
    pub place: Place,
    /// Its addresses.
    pub addresses: Addresses,
    /// Probes for each of them before it is used, on a wire: see [`iface::Config::probes`]. An interface that
    /// is made for the endpoint has no other hosts.
    pub probes: u8,
    /// Whom it speaks with.
    pub role: Role,
    /// What it does.
    pub work: Work,
    /// For how long, in nanoseconds; `None` for ever.
    pub run: Option<Nanos>,
    /// `tcp.*`, and how it waits; `lro.*` and `wire.*` on a wire, `host.*` behind an interface.
    pub config: Config,
    /// A WAN in front of it, whose forward direction is that of what the endpoint sends.
    pub wan: Option<degen::Settings>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Endpoint {
    name: String,
    port: String,
    handle: Arc<Handle>,
    thread: Option<JoinHandle<io::Result<()>>>,
    reports: Receiver<Report>,
    wan: Option<Arc<degen::Handle>>,
    notices: Vec<String>,
    /// Dropped after the thread has ended.
    held: Option<Held>,
}

impl Endpoint {
    /// Opens the port, in the network namespace of the calling thread, and starts the worker. Its addresses
    /// are in use when this returns: on a wire that takes as many seconds as there are probes.
    ///
    /// # Errors
    /// See [`Error`]; nothing is left behind.
    pub fn start(mut plan: Plan) -> Result<Endpoint, Error> {
        let mut notices = Vec::new();
        let Opened { link, held } =
            open::open(&plan.place, &plan.config, plan.wan.is_some(), &mut notices)?;
        let wan = plan.wan.as_ref().map(Wan::new).transpose().map_err(Error::Worker)?;
        let (sender, reports) = mpsc::channel();
        let reports_to = (plan.work.service != Service::Discard).then_some(sender);
        // A kernel sends what it has whole.
        let kernel_joins = matches!(plan.place, Place::Host { .. }) && wan.is_none();
        plan.config.lro.enable &= !kernel_joins;
        let handle = worker::handle_of(Lanes::Engine, plan.config.clone(), link.mtu);
        let handle = Arc::new(handle.map_err(Error::Worker)?);
        let (ready, is_ready) = mpsc::channel();
        let parts = Parts { handle: Arc::clone(&handle), reports: reports_to, ready, plan };
        let (name, port) = (parts.plan.place.name().to_owned(), link.describe());
        let thread = parts.start(link, wan.as_ref())?;
        let endpoint = Endpoint {
            name,
            port,
            handle,
            thread: Some(thread),
            reports,
            wan: wan.map(|wan| wan.handle),
            notices,
            held: Some(held),
        };
        match is_ready.recv() {
            Ok(Err(duplicate)) => Err(Error::Duplicate { name: endpoint.name.clone(), duplicate }),
            // If it ended before it could tell, `stop` tells why.
            Ok(Ok(())) | Err(_) => Ok(endpoint),
        }
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is reached by: `TAP`, `AF_XDP native, copy`, ...
    pub fn port(&self) -> &str {
        &self.port
    }

    /// What did not go as well as it might have, and why; one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// All counters.
    pub fn counters(&self) -> Vec<Entry> {
        let mut all = self.handle.published().entries();
        if let Some(wan) = &self.wan {
            all.extend(wan.snapshot().entries(["degen.forward", "degen.reverse"]));
        }
        all
    }

    /// The WAN in front of it, if there is one.
    pub fn wan(&self) -> Option<&degen::Handle> {
        self.wan.as_deref()
    }

    /// The connections that have ended since this was last asked; none of those of
    /// [`Service::Discard`].
    pub fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.reports.try_iter()
    }

    /// Whether it has ended by itself: everything is done, or its port has become useless.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Looks whether what arrives still comes by the queues that are read. To be called now and then, in
    /// the network namespace that it was started in.
    ///
    /// # Errors
    /// It does not, and what to do about it.
    pub fn look_at_queues(&self) -> Result<(), Error> {
        self.held.as_ref().map_or(Ok(()), Held::look_at_queues)
    }

    /// Resets the connections that are left, and closes the port. The counters stay.
    ///
    /// # Errors
    /// What made it end before it was told to.
    pub fn stop(&mut self) -> io::Result<()> {
        self.handle.stop();
        let ended = self.thread.take().map_or(Ok(()), |thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the endpoint panicked")))
        });
        self.held = None;
        ended
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // `stop` tells why it ended.
        let _ = self.stop();
    }
}

/// What a worker is made of, but for its port.
struct Parts {
    handle: Arc<Handle>,
    reports: Option<mpsc::Sender<Report>>,
    ready: mpsc::Sender<Result<(), Duplicate>>,
    plan: Plan,
}

impl Parts {
    /// A worker on this link, with a WAN in front of it if there is one.
    fn start(
        self,
        link: open::Link,
        wan: Option<&Wan>,
    ) -> Result<JoinHandle<io::Result<()>>, Error> {
        let (of, pool) = ((link.mac, link.mtu), link.pool);
        match link.port {
            LinkPort::Tap(wire) => self.behind(wan, wire, pool, of),
            LinkPort::Veth(wire) => self.behind(wan, wire, pool, of),
            LinkPort::Xdp(wire) => self.behind(wan, wire, pool, of),
            LinkPort::Packet(wire) => self.behind(wan, wire, pool, of),
        }
    }

    fn behind<W: Wire + Send + 'static>(
        self,
        wan: Option<&Wan>,
        wire: W,
        pool: FramePool,
        of: (wire::Mac, u32),
    ) -> Result<JoinHandle<io::Result<()>>, Error> {
        match wan {
            Some(wan) => self.spawn((wan.around(wire), pool), of),
            None => self.spawn((wire, pool), of),
        }
    }

    fn spawn<W: Wire + Send + 'static>(
        self,
        wire: (W, FramePool),
        (mac, mtu): (wire::Mac, u32),
    ) -> Result<JoinHandle<io::Result<()>>, Error> {
        let Parts { handle, reports, ready, plan } = self;
        let probes = match plan.place {
            Place::Host { .. } => 0,
            Place::Wire { .. } => plan.probes,
        };
        let config = &plan.config;
        let stack = Stack::new(StackConfig {
            secret: secret(),
            half_open: config.tcp.half_open,
            connections: config.tcp.connections,
        });
        let stack = stack.with_memory(config.tcp_memory());
        let addresses = plan.addresses;
        let node = Node::new(iface::Config { mac, addresses, secret: secret(), probes }, stack);
        let what = (plan.work, plan.role, plan.run);
        let share = Share { number: 0, of: 1 };
        let app = Services::new(what, share, Arc::new(config.tcp(mtu)), reports);
        let worker =
            Worker::of_engine(handle, wire, |lro| EngineLane::new(lro, node, Box::new(app), ready));
        std::thread::Builder::new()
            .name("wharf-tcp".to_owned())
            .spawn(move || {
                capabilities::drop_all();
                worker.run()
            })
            .map_err(Error::Worker)
    }
}
