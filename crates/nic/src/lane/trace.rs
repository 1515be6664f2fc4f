//! The trace of one connection on its way from the engine to what writes it.

use std::net::SocketAddr;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};

use tcp::Stack;
use tcp::trace::Record;

pub use tcp::FourTuple;

/// Which connection is to be traced, and where its records go.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its ends; port 0 and the unspecified address stand for any, and the first connection that fits is the
    /// one. See [`tcp::Stack::trace`].
    path: FourTuple,
    /// Bounded: what the reader is too slow for is dropped, and counted, in the engine.
    records: SyncSender<Record>,
    /// The connection, once one of the workers has it.
    found: Arc<OnceLock<FourTuple>>,
}

impl Trace {
    /// A trace of the connection between these ends.
    pub fn new(path: FourTuple, records: SyncSender<Record>) -> Self {
        Trace { path, records, found: Arc::default() }
    }

    /// Switches it on in the engine of one worker.
    pub(crate) fn of_worker(&self, stack: &mut Stack) -> Tracer {
        stack.trace(Some(self.path));
        Tracer { trace: self.clone(), waits: None }
    }
}

/// That of one worker's engine.
#[derive(Debug)]
pub(crate) struct Tracer {
    trace: Trace,
    /// There was no room for it.
    waits: Option<Record>,
}

impl Tracer {
    /// Hands on what the engine has recorded, as far as there is room.
    pub(super) fn hand_on(&mut self, stack: &mut Stack) {
        let found = &self.trace.found;
        while let Some(record) = self.waits.take().or_else(|| stack.next_trace()) {
            if *found.get_or_init(|| record.path) != record.path {
                // Another worker's was the first that fits.
                return stack.trace(None);
            }
            match self.trace.records.try_send(record) {
                Ok(()) => {}
                Err(TrySendError::Full(record)) => {
                    self.waits = Some(record);
                    return;
                }
                // It is not read any more.
                Err(TrySendError::Disconnected(_)) => return stack.trace(None),
            }
        }
    }
}

/// Both ends of a connection in words: `LOCAL-REMOTE`, each an address and a port.
///
/// # Errors
/// What they should be.
pub fn ends(words: &str) -> Result<FourTuple, String> {
    let form = || {
        format!(
            "{words:?} is not LOCAL-REMOTE, such as 10.0.0.2:7-10.0.0.1:40000 or \
             [fd00::2]:7-[fd00::1]:0; port 0 and the address 0.0.0.0 or [::] stand for any"
        )
    };
    let (local, remote) = words.split_once('-').ok_or_else(form)?;
    let end = |words: &str| words.parse::<SocketAddr>().map_err(|_| form());
    Ok(FourTuple { local: end(local)?, remote: end(remote)? })
}
