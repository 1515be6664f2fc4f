//! One connection's way to the NIC and back, as the agent goes it: which worker gets it, and what all workers must have
//! done before it goes on.
//!
//! ```text
//!   offer    which worker do its packets come by?    Seek ──> all,  Seen <── all
//!            its packets go to that one from now on, who holds them
//!   freeze   behind a fence: all that came before, by any queue, is the kernel's
//!   handoff  behind a fence: all that the kernel has sent, by any queue, has left
//! ```
//!
//! With one worker nothing is asked and nothing waited for, as it does all in order.

use std::collections::VecDeque;

use ::tcp::FourTuple;
use handoff::command::OsControl;
use handoff::machine::{OsEvent, OsOutput, OsSide, SideCounts, ToNic, ToOs, Where};
use handoff::{Epoch, Refusal};
use lro::Nanos;
use wire::Mac;

use super::ways::{Fence, Ways};
use crate::lane::handoff::link::{HeldPacket, Key, State, ToWorker};

/// What happens to a connection.
#[derive(Debug)]
pub(crate) enum Event {
    /// At the OS.
    Os(OsEvent<HeldPacket, State>),
    /// A worker tells when packets of it came last by its queue.
    Seen { worker: u32, last: Option<Nanos> },
    /// All workers have come to a fence that it [waits](Ways::next_passed) for.
    Passed,
}

/// What is to be done. Workers have been told already.
pub(crate) type Output = OsOutput<HeldPacket, State>;

/// What a connection waits for.
#[derive(Debug, Default)]
enum Waits {
    #[default]
    Nothing,
    /// For so many workers to tell when they have seen packets of it; and who has last.
    Seen { epoch: Epoch, left: usize, best: Option<(Nanos, usize)> },
    /// To be taken out of the kernel.
    Freeze(Fence),
    /// What its worker is told behind the fence.
    Tell(Fence, Vec<(u16, ToNic<HeldPacket, State>)>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Crossing {
    side: OsSide<HeldPacket, State>,
    key: Key,
    path: FourTuple,
    next_hop: Mac,
    place: u32,
    worker: Option<usize>,
    /// That it was offered before.
    offered: Option<Fence>,
    waits: Waits,
}

impl Crossing {
    /// Of a connection at the kernel, whose name had this epoch last. Its segments go to the next hop, and its record is
    /// at this place.
    pub(crate) fn new(
        (key, epoch): (Key, Epoch),
        path: FourTuple,
        next_hop: Mac,
        place: u32,
    ) -> Self {
        Crossing {
            side: OsSide::after(epoch),
            key,
            path,
            next_hop,
            place,
            worker: None,
            offered: None,
            waits: Waits::Nothing,
        }
    }

    /// Where it is.
    pub(crate) fn place(&self) -> Where {
        self.side.place()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.side.epoch()
    }

    /// Why it is at the kernel, if it was refused.
    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.side.refused()
    }

    /// Its worker, once that is known.
    pub(crate) fn worker(&self) -> Option<usize> {
        self.worker
    }

    /// Its segments go to this Ethernet address from now on.
    pub(super) fn set_next_hop(&mut self, next_hop: Mac, ways: &Ways) {
        self.next_hop = next_hop;
        if let Some(worker) = self.worker {
            ways.tell(worker, ToWorker::NextHop { key: self.key, next_hop });
        }
    }

    /// One event, and all that it leads to at the workers.
    pub(crate) fn handle(
        &mut self,
        event: Event,
        ways: &mut Ways,
        counts: &mut SideCounts,
        out: &mut Vec<Output>,
    ) {
        match event {
            Event::Os(event) => self.at_os(event, ways, counts, out),
            Event::Seen { worker, last } => {
                if let Some(event) = self.seen(worker as usize, last, ways) {
                    self.at_os(event, ways, counts, out);
                }
            }
            Event::Passed => self.passed(ways, out),
        }
    }

    fn at_os(
        &mut self,
        event: OsEvent<HeldPacket, State>,
        ways: &mut Ways,
        counts: &mut SideCounts,
        out: &mut Vec<Output>,
    ) {
        let (mut events, mut outputs) = (VecDeque::from([event]), Vec::new());
        while let Some(event) = events.pop_front() {
            self.side.handle(event, counts, &mut outputs);
            for output in outputs.drain(..) {
                match output {
                    OsOutput::Tell(_, ToNic::Offer(epoch)) => {
                        events.extend(self.offer(epoch, ways))
                    }
                    OsOutput::Tell(tag, told) => self.tell(tag, told, ways),
                    OsOutput::Freeze => self.freeze(ways, out),
                    other => out.push(other),
                }
            }
        }
    }

    /// Finds the worker by whose queue its packets come, so that few are strays.
    fn offer(&mut self, epoch: Epoch, ways: &mut Ways) -> Option<OsEvent<HeldPacket, State>> {
        if !ways.are_several() {
            return self.pick(epoch, 0, ways);
        }
        if let Some(worker) = ways.last_of(&self.path) {
            return self.pick(epoch, worker, ways);
        }
        self.waits = Waits::Seen { epoch, left: ways.len(), best: None };
        let (key, path) = (self.key, self.path);
        ways.tell_all(|| ToWorker::Seek { key, path });
        None
    }

    fn seen(
        &mut self,
        worker: usize,
        last: Option<Nanos>,
        ways: &mut Ways,
    ) -> Option<OsEvent<HeldPacket, State>> {
        let Waits::Seen { epoch, left, best } = &mut self.waits else { return None };
        *best = (*best).max(last.map(|last| (last, worker)));
        *left -= 1;
        if *left > 0 {
            return None;
        }
        let (epoch, best) = (*epoch, *best);
        self.waits = Waits::Nothing;
        let worker = best.map_or_else(|| ways.least(), |(_, worker)| worker);
        self.pick(epoch, worker, ways)
    }

    fn pick(
        &mut self,
        epoch: Epoch,
        worker: usize,
        ways: &mut Ways,
    ) -> Option<OsEvent<HeldPacket, State>> {
        let Crossing { key, path, next_hop, place, .. } = *self;
        if let Err(why) = ways.claim(place, &path, worker) {
            let refused = ToOs::Control(OsControl::Refused(why));
            return Some(OsEvent::Told(epoch.tag(), refused));
        }
        self.worker = Some(worker);
        ways.tell(worker, ToWorker::Offer { key, epoch, path, next_hop, place });
        self.offered = ways.are_several().then(|| ways.fence());
        None
    }

    /// Takes it out of the kernel, once that has got all that came before its worker held its packets.
    fn freeze(&mut self, ways: &mut Ways, out: &mut Vec<Output>) {
        match self.offered {
            Some(fence) if !ways.is_passed(fence) => {
                self.waits = Waits::Freeze(fence);
                ways.wait(fence, self.key);
            }
            _ => out.push(OsOutput::Freeze),
        }
    }

    /// Tells its worker. The state waits until all that the kernel has sent has left, and all else waits behind it.
    fn tell(&mut self, tag: u16, told: ToNic<HeldPacket, State>, ways: &mut Ways) {
        if let Waits::Tell(_, waiting) = &mut self.waits {
            return waiting.push((tag, told));
        }
        if matches!(told, ToNic::Handoff(_)) && ways.are_several() {
            let fence = ways.fence();
            ways.wait(fence, self.key);
            self.waits = Waits::Tell(fence, vec![(tag, told)]);
            return;
        }
        self.tell_now(tag, told, ways);
    }

    /// Offers it to this worker.
    #[cfg(test)]
    pub(crate) fn offer_to(&mut self, worker: usize, epoch: Epoch, ways: &mut Ways) {
        assert!(self.pick(epoch, worker, ways).is_none());
    }

    fn passed(&mut self, ways: &Ways, out: &mut Vec<Output>) {
        match std::mem::take(&mut self.waits) {
            Waits::Freeze(fence) if ways.is_passed(fence) => out.push(OsOutput::Freeze),
            Waits::Tell(fence, waiting) if ways.is_passed(fence) => {
                for (tag, told) in waiting {
                    self.tell_now(tag, told, ways);
                }
            }
            // Another connection of the same name has waited before.
            other => self.waits = other,
        }
    }

    fn tell_now(&self, tag: u16, told: ToNic<HeldPacket, State>, ways: &Ways) {
        if let Some(worker) = self.worker {
            ways.tell(worker, ToWorker::Told { key: self.key, tag, told });
        }
    }
}
