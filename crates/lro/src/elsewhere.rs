//! Packets that do not come by here: merged elsewhere already, or not seen at all.

use wire::FirstFlow;

use crate::link::Link;
use crate::{Flush, Lro, Sink};

impl<F, L: Link> Lro<F, L> {
    /// Packets are about to come, or have come, that this LRO does not see: what is held goes, and
    /// each flow is picked up anew by its next packet.
    pub fn interrupt(&mut self, sink: &mut impl Sink<F>) {
        self.flush_all(sink);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// One packet is about to be handed on that this LRO does not take, such as a super-packet, which
    /// was merged elsewhere: it must not overtake what is held of its flow, and moves that on by bytes
    /// that are not seen. So what is held of this flow goes, and its next packet picks it up anew;
    /// others notice nothing.
    ///
    /// `bytes` are the packet's first, from its Ethernet header on; the headers are enough. A packet
    /// whose headers do not tell the flow may be of any, and interrupts [all](Self::interrupt).
    pub fn interrupt_flow(&mut self, bytes: &[u8], sink: &mut impl Sink<F>) {
        match L::first(bytes) {
            FirstFlow::Of(key) => {
                if let Some(index) = self.table.find(&key) {
                    self.pick_up_anew(index, sink);
                }
            }
            FirstFlow::None => {}
            FirstFlow::Unknown => self.interrupt(sink),
        }
    }

    /// What is held of a flow goes, and where it is will be learnt from its next packet.
    pub(crate) fn pick_up_anew(&mut self, index: u32, sink: &mut impl Sink<F>) {
        self.flush(index, Flush::Order, sink);
        let flow = &mut self.table[index];
        flow.begun = false;
        flow.send.lose_sight();
    }
}
