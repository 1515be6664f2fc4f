//! A worker on a thread of its own, behind a wire in memory.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use nic::config::Config;
use nic::port::{Host, Wire};
use nic::worker::{self, Handle, Worker};
use sys::frames::FramePool;

use crate::Error;
use crate::sink::io;

/// Of the wires in memory, in bytes.
const MTU: u32 = 1_500;

/// It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningWorker {
    handle: Arc<Handle>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RunningWorker {
    /// Starts worker `number`, on `cpu` if there is one for it.
    pub(crate) fn start<W: Wire + Send + 'static, H: Host + Send + 'static>(
        number: usize,
        config: Config,
        (wire, host, pool): (W, H, FramePool),
        cpu: Option<usize>,
    ) -> Result<RunningWorker, Error> {
        let handle = Arc::new(worker::handle(config.clone(), MTU).map_err(io("make a worker"))?);
        let worker = Worker::new(Arc::clone(&handle), config, wire, host, pool);
        Self::run(number, handle, worker, cpu)
    }

    /// The same of a worker that was made already.
    pub(crate) fn run<W: Wire + Send + 'static, H: Host + Send + 'static>(
        number: usize,
        handle: Arc<Handle>,
        worker: Worker<W, H>,
        cpu: Option<usize>,
    ) -> Result<RunningWorker, Error> {
        let work = move || {
            if let Some(cpu) = cpu {
                sys::affinity::pin(cpu)?;
            }
            worker.run()
        };
        let thread = std::thread::Builder::new()
            .name(format!("wharf-{number}"))
            .spawn(work)
            .map_err(io("start a worker"))?;
        Ok(RunningWorker { handle, thread: Some(thread) })
    }

    /// Tells it to end.
    pub(crate) fn ask_to_end(&self) {
        self.handle.stop();
    }

    /// What it has last published of these counters.
    pub(crate) fn counted(&self, group: &str, name: &str) -> u64 {
        let all = self.handle.published().entries();
        all.iter().find(|entry| (entry.group, entry.name) == (group, name)).map_or(0, |e| e.value)
    }

    /// Ends it.
    ///
    /// # Errors
    /// Why it could not work; once.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        self.ask_to_end();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
        ended.map_err(io("work"))
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        // `end` returns the error.
        let _ = self.end();
    }
}
