//! Changes to an interface while it is a wire.

use sys::packet::Membership;
use sys::xdp::Redirect;

use crate::error::Error;
use crate::features::Suited;
use crate::queues::Served;
use crate::quiet::Quiet;

/// Undoes them when it is dropped, after the sockets are closed: then the kernel's stack has the interface
/// again.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) _redirect: Option<Redirect>,
    /// Membership for frames that the interface would not receive by itself.
    pub(super) _membership: Option<Membership>,
    /// Keeps the stack behind the wire silent.
    pub(super) quiet: Option<Quiet>,
    pub(super) _suited: Suited,
    /// The queues that are served by AF_XDP; `None` with AF_PACKET, which receives from all queues.
    pub(super) served: Option<Served>,
}

impl Held {
    /// See [`Served::look`].
    pub(crate) fn look_at_queues(&self) -> Result<(), Error> {
        self.served.as_ref().map_or(Ok(()), Served::look)
    }

    /// Follows a change of the wire's name, which is part of the rules that silence the wire's own stack.
    ///
    /// # Errors
    /// The kernel may answer on the wire as well.
    pub(crate) fn follow_name(&mut self, name: &str) -> sys::Result<()> {
        self.quiet.as_mut().map_or(Ok(()), |quiet| quiet.follow(name))
    }
}
