//! The way out of an engine beside a host: what is for the host, who has the same Ethernet address, goes there by the
//! short way; what is for all goes both ways.

use crate::lane::counters::ShortWay;
use crate::lane::host::HostLane;
use crate::port::{Host, Wire};
use crate::steer::Steer;
use crate::wire_queue::{Packet, TxQueue, WireQueue};

/// See the module's documentation.
pub(super) struct BesideHost<'a, W, H> {
    pub(super) steer: &'a Steer,
    pub(super) host: &'a mut HostLane<H>,
    pub(super) queue: &'a mut WireQueue<W>,
    pub(super) short_way: &'a mut ShortWay,
}

impl<W: Wire, H: Host> TxQueue for BesideHost<'_, W, H> {
    fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let (to_host, to_wire) = self.steer.outward(packet.header);
        if to_host && self.host.deliver(&self.queue.pool, packet) {
            self.short_way.to_host.count(packet.len());
        }
        if to_wire {
            self.queue.send(packet);
        }
    }
}
