//! An engine's workers without what opens ports and starts threads: for measurements, and for loops of one's own.

use std::io;
use std::sync::Arc;

use sys::frames::FramePool;
use wire::Mac;

use crate::config::Config;
use crate::engines::{Engines, Own};
use crate::peers::Peers;
use crate::port::{NoHost, Wire};
use crate::worker::{self, Handle, Lanes, Worker};

/// A worker with an engine alone, on a wire with the memory of its frames, this Ethernet address and MTU in
/// bytes. Its addresses are in use from its first [turn](Worker::turn) on, unless there are probes.
///
/// # Errors
/// What `eventfd` says.
pub fn worker_on<W: Wire>(
    wire: (W, FramePool),
    own: Own,
    config: &Config,
    (mac, mtu): (Mac, u32),
) -> io::Result<Worker<W, NoHost>> {
    // That none is there to be told is no error.
    let (engines, _) = Engines::new(own, config, (mac, mtu), 1);
    let handle = Arc::new(worker::handle_of(Lanes::Engine, config.clone(), mtu)?);
    let mut worker = Worker::with_engine(handle, wire, None, engines.of_worker(0, false, None));
    worker.start(0);
    Ok(worker)
}

/// A worker, and how the rest of the process reaches it once it [runs](Worker::run).
pub type Reached<W> = (Arc<Handle>, Worker<W, NoHost>);

/// Workers that share an engine's addresses, one on each of these wires, as a NIC starts them. Each is to run on a
/// thread of its own.
///
/// # Errors
/// What `eventfd` says.
pub fn workers_on<W: Wire>(
    wires: Vec<(W, FramePool)>,
    own: Own,
    config: &Config,
    (mac, mtu): (Mac, u32),
) -> io::Result<Vec<Reached<W>>> {
    // That none is there to be told is no error.
    let (engines, _) = Engines::new(own, config, (mac, mtu), wires.len());
    let handle = |_| worker::handle_of(Lanes::Engine, config.clone(), mtu).map(Arc::new);
    let handles: Vec<Arc<Handle>> = wires.iter().map(handle).collect::<Result<_, _>>()?;
    let mut peers = Peers::of(&wires, &handles, engines.connections()).into_iter();
    let all = (0..).zip(wires).zip(handles).map(|((number, wire), handle)| {
        let engine = engines.of_worker(number, false, peers.next());
        (Arc::clone(&handle), Worker::with_engine(handle, wire, None, engine))
    });
    Ok(all.collect())
}
