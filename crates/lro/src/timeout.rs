//! Time-outs (the paper, section IV.E): when must what a flow holds be let go?
//!
//! The paper's timeout checking thread goes round all descriptors. Here a wheel of slots holds the
//! flows that hold something, so that idle flows cost nothing and each turn looks only at the slots
//! whose time has come. A flow stands in its slot until then even if it has got more time since; it
//! is asked again, and moves on.

use crate::descriptor::Descriptor;
use crate::list::{Links, List};
use crate::{Config, Nanos};

const SLOTS: u64 = 256;

/// A flow that is in no slot.
pub(crate) const UNARMED: Nanos = Nanos::MAX;

/// Flows by the time at which to look at them.
#[derive(Debug)]
pub(crate) struct Wheel {
    slots: [List; SLOTS as usize],
    occupied: [u64; SLOTS as usize / 64],
    /// A slot is 2^shift nanoseconds wide.
    shift: u32,
    /// All slots before this tick have been looked at.
    tick: u64,
}

impl Wheel {
    /// A wheel on which no time-out up to `max_timeout` is further than halfway round.
    pub(crate) fn new(max_timeout: Nanos) -> Self {
        let shift = (max_timeout / (SLOTS / 2)).max(1).ilog2() + 1;
        Wheel { slots: [List::EMPTY; SLOTS as usize], occupied: [0; 4], shift, tick: 0 }
    }

    /// Makes sure that a flow is looked at when `deadline` has come, or before.
    #[inline]
    pub(crate) fn arm(&mut self, flows: &mut [Descriptor], index: u32, deadline: Nanos) {
        let armed = flows[index as usize].armed;
        if armed <= deadline {
            return;
        }
        if armed != UNARMED {
            self.disarm(flows, index);
        }
        if self.occupied == [0; 4] {
            // Whoever holds nothing for a while does not turn the wheel. No time-out reaches over
            // more than half of it, so this is not ahead of the time.
            self.tick = self.tick.max((deadline >> self.shift).saturating_sub(SLOTS / 2 + 1));
        }
        // Past the last slot it is looked at early, and moves on.
        let tick = (deadline >> self.shift).clamp(self.tick, self.tick + SLOTS - 1);
        flows[index as usize].armed = deadline.min(((tick + 1) << self.shift) - 1);
        self.enter(flows, index, (tick % SLOTS) as usize);
    }

    /// Takes a flow out, if it is in.
    #[inline]
    pub(crate) fn disarm(&mut self, flows: &mut [Descriptor], index: u32) {
        if flows[index as usize].armed != UNARMED {
            flows[index as usize].armed = UNARMED;
            self.leave(flows, index);
        }
    }

    #[inline]
    fn enter(&mut self, flows: &mut [Descriptor], index: u32, slot: usize) {
        flows[index as usize].slot = slot as u8;
        self.slots[slot].push_back(flows, index, links);
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    #[inline]
    fn leave(&mut self, flows: &mut [Descriptor], index: u32) {
        let slot = usize::from(flows[index as usize].slot);
        self.slots[slot].remove(flows, index, links);
        if self.slots[slot].is_empty() {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// A flow whose time may have come at `now`, taken out; `None` when all have been named. One
    /// that has time left goes back by [`arm`](Self::arm).
    pub(crate) fn next_due(&mut self, flows: &mut [Descriptor], now: Nanos) -> Option<u32> {
        self.advance(flows, now >> self.shift);
        self.due_in(flows, (self.tick % SLOTS) as usize, now)
    }

    /// Turns the wheel; what stands in slots that are over moves to the running one.
    fn advance(&mut self, flows: &mut [Descriptor], to: u64) {
        let mut over = List::EMPTY;
        while let Some(tick) = self.next_occupied().filter(|tick| *tick < to) {
            while let Some(index) = self.slots[(tick % SLOTS) as usize].first() {
                self.leave(flows, index);
                over.push_back(flows, index, links);
            }
        }
        self.tick = self.tick.max(to);
        while let Some(index) = over.first() {
            over.remove(flows, index, links);
            self.enter(flows, index, (to % SLOTS) as usize);
        }
    }

    /// The first flow in the slot that is armed for `now` or before.
    fn due_in(&mut self, flows: &mut [Descriptor], slot: usize, now: Nanos) -> Option<u32> {
        let mut at = self.slots[slot].first();
        while let Some(index) = at {
            let flow = flows.get(index as usize)?;
            if flow.armed <= now {
                self.disarm(flows, index);
                return Some(index);
            }
            at = Some(flow.links.next());
        }
        None
    }

    /// The first slot, from the current one on, that is not empty, as a tick.
    fn next_occupied(&self) -> Option<u64> {
        let start = self.tick % SLOTS;
        // The word that the current slot is in comes twice: its upper part first, its lower last.
        let from_start = u64::MAX << (start % 64);
        (0..=4u64).find_map(|step| {
            let word = (start / 64 + step) % 4;
            let bits = self.occupied[word as usize]
                & match step {
                    0 => from_start,
                    4 => !from_start,
                    _ => u64::MAX,
                };
            let slot = word * 64 + u64::from(bits.trailing_zeros());
            (bits != 0).then(|| self.tick + (slot + SLOTS - start) % SLOTS)
        })
    }

    /// The time at which to look next.
    pub(crate) fn next(&self, flows: &[Descriptor]) -> Option<Nanos> {
        let mut at = self.first();
        let mut next = None;
        while let Some(flow) = at.and_then(|index| flows.get(index as usize)) {
            next = Some(flow.armed.min(next.unwrap_or(flow.armed)));
            at = Some(flow.links.next());
        }
        next
    }

    /// A flow of the first slot with any.
    pub(crate) fn first(&self) -> Option<u32> {
        self.first_in((self.next_occupied()? % SLOTS) as usize)
    }

    /// Slots with flows in them.
    pub(crate) fn occupied(&self) -> impl Iterator<Item = usize> + use<> {
        let occupied = self.occupied;
        (0..SLOTS as usize).filter(move |slot| occupied[slot / 64] >> (slot % 64) & 1 == 1)
    }

    /// The first flow in a slot; its links lead to the others.
    pub(crate) fn first_in(&self, slot: usize) -> Option<u32> {
        self.slots[slot].first()
    }
}

fn links(flow: &mut Descriptor) -> &mut Links {
    &mut flow.links
}

/// How long may a flow be idle before it counts as timed out? The paper: "larger than ten times
/// of the ConnectionDescriptor's average_interval".
#[inline]
pub(crate) fn idle_limit(config: &Config, flow: &Descriptor) -> Nanos {
    let limit = flow.average_interval.saturating_mul(u64::from(config.timeout_factor));
    limit.min(config.max_timeout).max(config.min_timeout.min(config.max_timeout))
}

/// When the run of a flow that holds one must go: when the flow has been idle for too long, or the
/// run has been held for too long.
#[inline]
pub(crate) fn run_deadline(config: &Config, flow: &Descriptor) -> Nanos {
    let idle = flow.last_arrival.saturating_add(idle_limit(config, flow));
    idle.min(flow.since.saturating_add(config.max_timeout))
}
