//! What is behind the engine's connections: services, for now.

mod conversation;
mod counters;
mod pattern;
mod services;

use std::io;

use iface::Interface;
use lro::Nanos;
use tcp::{Due, FourTuple, Placement, Stack};
use wire::{Bytes, Mac, Seq};

pub(crate) use counters::ServiceCounters;
pub use pattern::{PERIOD, Pattern};
pub use services::{Report, Role, Service, Work};
pub(crate) use services::{Services, Share};

/// Who has the bytes of connections that are lent, and a say in each segment that leaves.
pub(crate) trait Lender {
    /// The Ethernet address to which a segment goes that is due on this path; `None` to ask the interface.
    #[inline]
    fn next_hop(&self, _stack: &Stack, _due: &Due, _path: &FourTuple) -> Option<Mac> {
        None
    }

    /// A segment is about to leave: what it reveals of its connection can be written down before.
    #[inline]
    fn sends(&mut self, _stack: &Stack, _due: &Due) {}

    /// Where bytes lie that are due, of a connection that is lent: so many from this sequence number on.
    fn lent(&mut self, _stack: &Stack, _due: &Due, _seq: Seq, _len: u32) -> [Bytes<'_>; 2] {
        debug_assert!(false, "nothing was lent");
        [Bytes::default(); 2]
    }

    /// Stores bytes of a segment's payload, of a connection that is lent.
    fn store(&mut self, _placement: Placement, _payload: &[&[u8]]) {
        debug_assert!(false, "nothing was lent");
    }
}

/// Nothing: the engine has all bytes, and the interface knows where segments go.
impl Lender for () {}

/// What an engine lane's connections are for. It is asked after each batch, by the thread of the worker.
pub(crate) trait App: Lender + Send {
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
