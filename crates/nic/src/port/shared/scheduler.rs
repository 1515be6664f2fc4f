//! The thread that writes the requests of several workers to a host port.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{JoinHandle, Thread};

use lro::Nanos;
use sys::frames::{FramePool, FrameReader};
use sys::spin::Spin;

use crate::config::Config;
use crate::port::{CuttingHost, Host, Served};

use super::Requests;
use super::order::{Inlet, Outlet, channel};
use super::request::{Bell, Request};

/// Writes requests until it is stopped or dropped, and those that were made by then. The workers are to be
/// stopped first.
#[derive(Debug)]
pub struct Scheduler {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

/// Settings of the thread that may change while it runs.
#[derive(Debug)]
struct Orders {
    stop: AtomicBool,
    /// How long to look for requests before sleeping, in nanoseconds.
    spin: AtomicU64,
}

impl Scheduler {
    /// Starts the thread, in front of `port`, for the workers that have these pools. Returns each worker's
    /// [`Requests`], in the same order. `host.scheduler`, `host.requests` and `poll.spin` are those of
    /// `config`.
    ///
    /// # Errors
    /// No thread or no descriptor is available.
    pub fn start<H: Host + Send + 'static>(
        port: H,
        pools: &[&FramePool],
        config: &Config,
    ) -> io::Result<(Scheduler, Vec<Requests>)> {
        let (engine, ends) = Engine::new(port, pools, config)?;
        let orders = Arc::clone(&engine.orders);
        let thread = std::thread::Builder::new().name("wharf-dma".to_owned()).spawn(move || {
            crate::capabilities::drop_all();
            engine.run();
        })?;
        let requests = ends.into_iter().map(|end| end.served_by(thread.thread())).collect();
        Ok((Scheduler { orders, thread: Some(thread) }, requests))
    }

    /// Changes how long it looks for requests before it sleeps, in nanoseconds.
    pub fn set_spin(&self, spin: Nanos) {
        self.orders.spin.store(spin, Ordering::Relaxed);
    }

    /// Whether it has ended by itself, after a panic.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it, after the requests that were made.
    ///
    /// # Errors
    /// The thread had panicked.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.orders.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        thread.join().map_err(|_| io::Error::other("the scheduler of the host port panicked"))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // `stop` reports why it ended.
        let _ = self.end();
    }
}

/// A worker's end of its queue, before there is a thread that serves it.
struct End {
    worker: usize,
    depth: usize,
    frames: usize,
    inlet: Inlet<Request>,
    done: Receiver<Request>,
    bell: Arc<Bell>,
}

impl End {
    fn served_by(self, thread: &Thread) -> Requests {
        let End { worker, depth, frames, inlet, done, bell } = self;
        Requests::new(worker, depth, frames, inlet, done, bell, thread.clone())
    }
}

/// What is needed to complete a worker's requests.
#[derive(Debug)]
struct ToWorker {
    memory: FrameReader,
    completions: SyncSender<Request>,
    bell: Arc<Bell>,
}

/// The state of the thread: the paper's DMA engine, and the queues in front of it.
#[derive(Debug)]
struct Engine<H> {
    port: CuttingHost<H>,
    outlet: Outlet<Request>,
    workers: Vec<ToWorker>,
    orders: Arc<Orders>,
}

impl<H: Host> Engine<H> {
    fn new(port: H, pools: &[&FramePool], config: &Config) -> io::Result<(Self, Vec<End>)> {
        // A request holds at least one frame, so there are never more requests than frames.
        let capacities: Vec<usize> = pools.iter().map(|pool| pool.capacity()).collect();
        let (inlets, outlet) = channel(config.host.scheduler, &capacities);
        let mut workers = Vec::new();
        let mut ends = Vec::new();
        let depth = config.host.requests as usize;
        for (worker, (pool, inlet)) in pools.iter().zip(inlets).enumerate() {
            let (completions, done) = sync_channel(pool.capacity());
            let bell = Arc::new(Bell::new()?);
            let memory = pool.reader().clone();
            workers.push(ToWorker { memory, completions, bell: Arc::clone(&bell) });
            ends.push(End { worker, depth, frames: pool.capacity(), inlet, done, bell });
        }
        let orders = Arc::new(Orders {
            stop: AtomicBool::new(false),
            spin: AtomicU64::new(config.poll.spin),
        });
        let port = CuttingHost::new(port);
        Ok((Engine { port, outlet, workers, orders }, ends))
    }

    fn run(mut self) {
        let mut spin = Spin::default();
        loop {
            // Read before the queues: requests made before the stop are seen after it.
            let stop = self.orders.stop.load(Ordering::Acquire);
            if let Some(request) = self.outlet.take() {
                self.serve(request);
                while let Some(request) = self.outlet.take() {
                    self.serve(request);
                }
                spin.worked(sys::clock::now(), self.orders.spin.load(Ordering::Relaxed));
            } else if stop {
                return;
            } else if spin.goes_on(sys::clock::now()) {
                std::thread::yield_now();
            } else {
                // Returns at once if a request came, or the stop, since the queues were seen empty.
                std::thread::park();
            }
        }
    }

    /// Writes one request, and completes it.
    fn serve(&mut self, mut request: Request) {
        let worker = &self.workers[request.worker()];
        let packet = request.packet();
        let bytes = packet.bytes();
        let written = self.port.deliver(&worker.memory, packet);
        request.complete(Served::of(written, bytes));
        // There is a place for each request. A worker that has ended does not need it.
        let _ = worker.completions.try_send(request);
        worker.bell.ring();
    }
}

/// A scheduler without a thread: a test says when it writes.
#[cfg(test)]
pub(crate) struct ByHand<H>(Engine<H>);

#[cfg(test)]
impl<H: Host> ByHand<H> {
    /// As [`Scheduler::start`].
    pub(crate) fn new(port: H, pools: &[&FramePool], config: &Config) -> (Self, Vec<Requests>) {
        let (engine, ends) = Engine::new(port, pools, config).unwrap();
        let thread = std::thread::current();
        (ByHand(engine), ends.into_iter().map(|end| end.served_by(&thread)).collect())
    }

    /// Writes so many requests at most.
    pub(crate) fn serve(&mut self, most: usize) {
        for _ in 0..most {
            let Some(request) = self.0.outlet.take() else { break };
            self.0.serve(request);
        }
    }
}
