//! The queues of a wire that AF_XDP serves, and whether it still serves all of them.

use sys::interface::Interface;

use crate::error::Error;

/// How many receive queues an interface has for AF_XDP.
pub(crate) fn xdp(info: &Interface) -> u32 {
    xdp_now(info).unwrap_or(info.rx_queues.clamp(1, sys::xdp::QUEUES))
}

/// The same of an interface that is in use, about which nothing is guessed.
fn xdp_now(info: &Interface) -> sys::Result<u32> {
    let queues = sys::ethtool::Ethtool::open(&info.name)?.rx_queues()?;
    Ok(queues.clamp(1, sys::xdp::QUEUES))
}

/// The queues of a wire that have a socket since the start. Frames of a queue without one go to the
/// wire's own stack.
#[derive(Debug)]
pub(crate) struct Served {
    index: u32,
    queues: u32,
}

impl Served {
    /// By so many sockets, one for each queue.
    pub(crate) fn by(wire: &Interface, sockets: usize) -> Self {
        Served { index: wire.index, queues: sockets as u32 }
    }

    /// To be called now and then, in the network namespace of the wire.
    ///
    /// # Errors
    /// The wire has other queues now, and what to do about it.
    pub(crate) fn look(&self) -> Result<(), Error> {
        // That a wire is gone is found elsewhere.
        let Ok(wire) = Interface::by_index(self.index) else { return Ok(()) };
        // Nor is it known where the kernel does not say now, as while a driver resets its device or
        // just after a change of name: the next look does.
        let Ok(now) = xdp_now(&wire) else { return Ok(()) };
        // ethtool goes by names: one that changes meanwhile gives the number of another interface.
        let is_of_wire = || Interface::by_name(&wire.name).is_ok_and(|it| it.index == self.index);
        match now == self.queues || !is_of_wire() {
            true => Ok(()),
            false => Err(Error::QueuesChanged { name: wire.name, served: self.queues, now }),
        }
    }
}
