//! What is behind the engine's connections: services, for now.

mod conversation;
mod counters;
mod pattern;
mod services;

use std::io;

use iface::Interface;
use lro::Nanos;
use tcp::{Due, FourTuple, Stack};
use wire::Mac;

pub(crate) use counters::ServiceCounters;
pub use pattern::{PERIOD, Pattern};
pub use services::{Report, Role, Service, Work};
pub(crate) use services::{Services, Share};

/// What has a say in each segment that leaves.
pub(crate) trait Sending {
    /// The Ethernet address to which a connection's segments go; `None` to ask the interface.
    #[inline]
    fn next_hop(&self, _path: &FourTuple) -> Option<Mac> {
        None
    }

    /// A segment is about to leave: what it reveals of its connection can be written down before.
    #[inline]
    fn sends(&mut self, _stack: &Stack, _due: &Due) {}
}

/// Nothing: the interface knows where segments go.
impl Sending for () {}

/// What an engine lane's connections are for. It is asked after each batch, by the thread of the worker.
pub(crate) trait App: Sending + Send {
    /// The addresses are in use: listens, or opens connections, those that `may_open` lets it.
    ///
    /// # Errors
    /// Why it cannot.
    fn begin(
        &mut self,
        stack: &mut Stack,
        interface: &Interface,
        may_open: &mut dyn FnMut(&FourTuple) -> bool,
        now: Nanos,
    ) -> io::Result<()>;

    /// Goes on with connections to which something has happened, a bounded number of them; returns whether there were
    /// any. If so there may be more, and it is to be called again before the worker sleeps.
    fn serve(&mut self, stack: &mut Stack, now: Nanos) -> bool;

    /// Does what is due.
    fn on_time(&mut self, stack: &mut Stack, now: Nanos);

    /// When [`on_time`](Self::on_time) is to be called.
    fn next_deadline(&self) -> Option<Nanos>;

    /// Whether there is nothing more to do.
    fn is_done(&self) -> bool;

    /// Resets all connections that are left: their peers are not to wait for what is gone.
    fn abort(&mut self, stack: &mut Stack, now: Nanos);

    /// What it has counted.
    fn counters(&self) -> &ServiceCounters;
}
