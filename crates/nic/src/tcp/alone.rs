//! An engine's worker by itself: for measurements, and for loops of one's own.

use std::io;
use std::sync::Arc;

use sys::frames::FramePool;
use wire::Mac;

use crate::config::Config;
use crate::engines::{Engines, Own};
use crate::port::{NoHost, Wire};
use crate::worker::{self, Lanes, Worker};

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
