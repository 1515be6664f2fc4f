//! What is done to an interface while it is a wire.

use sys::packet::Membership;
use sys::xdp::Redirect;

use crate::error::Error;
use crate::features::Suited;
use crate::queues::Served;
use crate::quiet::Quiet;

/// Undoes it when it is dropped, which is after the sockets are closed: the wire is then the kernel's
/// again.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) _redirect: Option<Redirect>,
    /// Frames that the interface would not take by itself.
    pub(super) _membership: Option<Membership>,
    /// What keeps the stack behind the wire silent.
    pub(super) quiet: Option<Quiet>,
    pub(super) _suited: Suited,
    /// By AF_XDP; `None` with AF_PACKET, which hears all queues.
    pub(super) served: Option<Served>,
}

impl Held {
    /// See [`Served::look`].
    pub(crate) fn look_at_queues(&self) -> Result<(), Error> {
        self.served.as_ref().map_or(Ok(()), Served::look)
    }

    /// What silences the wire's own stack goes by the wire's name, which is now this.
    ///
    /// # Errors
    /// The kernel may answer on the wire as well.
    pub(crate) fn follow_name(&mut self, name: &str) -> sys::Result<()> {
        self.quiet.as_mut().map_or(Ok(()), |quiet| quiet.follow(name))
    }
}
