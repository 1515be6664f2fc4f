//! Time-outs (the paper, section IV.E): when what a flow holds must be flushed.
//!
//! The paper's timeout checking thread goes round all descriptors. Here a wheel of slots holds the
//! flows that hold something, so that idle flows cost nothing and each turn looks only at the slots
//! whose time has come. A flow stands in its slot until then even if it has got more time since; it
//! is asked again, and moves on.

use crate::descriptor::{Descriptor, UNARMED};
use crate::list::{Links, List};
use crate::{Config, Nanos};

const SLOTS: u64 = 256;

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
    #[inline(never)]
    pub(crate) fn arm(&mut self, flows: &mut [Descriptor], index: u32, deadline: Nanos) {
        let armed = flows[index as usize].armed;
        let deadline = deadline.min(UNARMED - 1); // one that never comes is one all the same
        if armed <= deadline {
            return;
        }
        if armed != UNARMED {
            self.disarm(flows, index);
        }
        if self.occupied == [0; 4] {
            // An LRO that holds nothing for a while does not turn the wheel. No time-out reaches over
            // more than half of it, so this is not ahead of the time.
            self.tick = self.tick.max((deadline >> self.shift).saturating_sub(SLOTS / 2 + 1));
        }
        // Past the last slot it is looked at early, and moves on.
        let tick = (deadline >> self.shift).clamp(self.tick, self.tick + SLOTS - 1);
        flows[index as usize].armed = deadline.min(self.end_of(tick));
        self.enter(flows, index, (tick % SLOTS) as usize);
    }

    /// The last time that belongs to a tick.
    fn end_of(&self, tick: u64) -> Nanos {
        (tick << self.shift) | ((1 << self.shift) - 1)
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

    /// Flows that stand on the wheel.
    pub(crate) fn flows(&self) -> usize {
        self.occupied().map(|slot| self.slots[slot].len() as usize).sum()
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

    /// Panics in a debug build if a flow would be looked at too late, or stands where it is not found.
    pub(crate) fn debug_check(&self, flows: &[Descriptor]) {
        if cfg!(debug_assertions) {
            for (slot, list) in self.slots.iter().enumerate() {
                let occupied = self.occupied[slot / 64] >> (slot % 64) & 1 == 1;
                debug_assert_eq!(occupied, !list.is_empty(), "slot {slot}");
                let ahead = (slot as u64 + SLOTS - self.tick % SLOTS) % SLOTS;
                let end = self.end_of(self.tick + ahead);
                let (mut at, mut count) = (list.first(), 0);
                while let Some(flow) = at.and_then(|index| flows.get(index as usize)) {
                    debug_assert_eq!(usize::from(flow.slot), slot);
                    let armed = flow.armed;
                    debug_assert!(armed <= end && armed != UNARMED, "{armed} is after {end}");
                    (at, count) = (Some(flow.links.next()), count + 1);
                }
                debug_assert_eq!(count, list.len(), "flows in slot {slot}");
            }
        }
    }
}

fn links(flow: &mut Descriptor) -> &mut Links {
    &mut flow.links
}

/// How long a flow may be idle before it counts as timed out. The paper: "larger than ten times
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const FLOWS: usize = 6;

    #[derive(Clone, Debug)]
    enum Operation {
        /// A flow is to be looked at after so long, or by a deadline that was so long ago.
        Arm(u32, i64),
        Disarm(u32),
        /// Time passes without a look.
        Pass(Nanos),
        /// A look goes on until there is nothing left; those with time left go back.
        Look,
    }

    fn times() -> impl Strategy<Value = Nanos> {
        prop_oneof![1u64..100, 1u64..1_000_000, 1u64..=100_000_000]
    }

    fn operations(max_timeout: Nanos) -> impl Strategy<Value = Vec<Operation>> {
        let flow = 0..FLOWS as u32;
        let after = prop_oneof![
            6 => (0..=max_timeout).prop_map(|after| after as i64),
            1 => (0..=max_timeout).prop_map(|ago| -(ago as i64)),
        ];
        // From less than a slot to many times round.
        let pass = prop_oneof![0..=max_timeout / 50 + 1, 0..=max_timeout, 0..=max_timeout * 300,];
        let operation = prop_oneof![
            4 => (flow.clone(), after).prop_map(|(flow, after)| Operation::Arm(flow, after)),
            1 => flow.prop_map(Operation::Disarm),
            3 => pass.prop_map(Operation::Pass),
            2 => Just(Operation::Look),
        ];
        proptest::collection::vec(operation, 0..120)
    }

    /// The wheel and, by flow, the earliest deadline that it was armed for.
    struct Both {
        wheel: Wheel,
        flows: Vec<Descriptor>,
        deadlines: [Option<Nanos>; FLOWS],
        now: Nanos,
    }

    impl Both {
        fn arm(&mut self, flow: u32, deadline: Nanos) {
            self.wheel.arm(&mut self.flows, flow, deadline);
            let known = &mut self.deadlines[flow as usize];
            *known = Some(known.map_or(deadline, |known| known.min(deadline)));
        }

        fn apply(&mut self, operation: &Operation, max_timeout: Nanos) {
            match *operation {
                Operation::Arm(flow, after) => {
                    self.arm(flow, self.now.saturating_add_signed(after));
                }
                Operation::Disarm(flow) => {
                    self.wheel.disarm(&mut self.flows, flow);
                    self.deadlines[flow as usize] = None;
                }
                Operation::Pass(time) => self.now += time,
                Operation::Look => self.look(max_timeout),
            }
        }

        /// Every flow whose deadline has come is named, once.
        fn look(&mut self, max_timeout: Nanos) {
            let mut named = [false; FLOWS];
            while let Some(flow) = self.wheel.next_due(&mut self.flows, self.now) {
                assert!(!core::mem::replace(&mut named[flow as usize], true), "{flow} twice");
                let deadline = self.deadlines[flow as usize].take();
                let deadline = deadline.expect("a flow that is not armed was named");
                if deadline > self.now {
                    assert!(deadline - self.now <= max_timeout);
                    self.arm(flow, deadline);
                }
            }
            let late = self.deadlines.iter().flatten().find(|deadline| **deadline <= self.now);
            assert_eq!(late, None, "at {}", self.now);
        }

        fn check(&self) {
            let next = self.wheel.next(&self.flows);
            let expected = self.deadlines.iter().flatten().min().copied();
            assert_eq!(next.is_some(), expected.is_some());
            assert!(next <= expected, "{next:?} is after {expected:?}");
            let mut armed: Vec<u32> = Vec::new();
            for slot in self.wheel.occupied() {
                let mut at = self.wheel.first_in(slot);
                while let Some(flow) = at.filter(|flow| (*flow as usize) < FLOWS) {
                    armed.push(flow);
                    at = Some(self.flows[flow as usize].links.next());
                }
            }
            armed.sort_unstable();
            let is_armed = |flow: &u32| self.deadlines[*flow as usize].is_some();
            assert!((0..FLOWS as u32).filter(is_armed).eq(armed.iter().copied()), "{armed:?}");
            assert!(self.wheel.first().is_none_or(|flow| armed.contains(&flow)));
            assert_eq!(self.wheel.first().is_none(), armed.is_empty());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        /// Against a deadline for each flow: each flow whose time has come is named, and the time to look
        /// next is never after the first of them.
        #[test]
        fn a_wheel_names_flows_in_time(
            (max_timeout, operations) in times()
                .prop_flat_map(|max_timeout| (Just(max_timeout), operations(max_timeout))),
            start in prop_oneof![Just(0), 0..u64::MAX / 2],
        ) {
            let flows = vec![Descriptor::default(); FLOWS];
            let wheel = Wheel::new(max_timeout);
            let mut both = Both { wheel, flows, deadlines: [None; FLOWS], now: start };
            for operation in operations {
                both.apply(&operation, max_timeout);
                both.check();
            }
        }

        /// A caller that wakes when told to comes to the deadline exactly, and soon.
        #[test]
        fn waking_when_told_to_leads_to_the_deadline(
            max_timeout in times(),
            steps in proptest::collection::vec((0..=1000u64, 0..=1000u64), 1..20),
        ) {
            let mut flows = vec![Descriptor::default(); 1];
            let mut wheel = Wheel::new(max_timeout);
            let mut now = 5;
            for (idle, after) in steps {
                now += max_timeout * idle / 10;
                let deadline = now + max_timeout * after / 1000;
                wheel.arm(&mut flows, 0, deadline);
                for round in 0.. {
                    prop_assert!(round < 4, "looked at over and over");
                    now = now.max(wheel.next(&flows).expect("armed"));
                    prop_assert!(now <= deadline);
                    prop_assert_eq!(wheel.next_due(&mut flows, now), Some(0));
                    if now == deadline {
                        break;
                    }
                    wheel.arm(&mut flows, 0, deadline);
                }
                prop_assert_eq!(wheel.next(&flows), None);
            }
        }
    }

    /// A time-out so long that the clock ends first is one that never comes, not one that is lost.
    #[test]
    fn a_flow_may_wait_for_ever() {
        for max_timeout in [u64::MAX, u64::MAX / 2, u64::MAX - 1] {
            let mut flows = vec![Descriptor::default(); 2];
            let mut wheel = Wheel::new(max_timeout);
            wheel.arm(&mut flows, 0, u64::MAX);
            wheel.arm(&mut flows, 1, 7);
            assert_eq!(wheel.next(&flows), Some(7));
            assert_eq!(wheel.next_due(&mut flows, 7), Some(1));
            assert_eq!(wheel.next_due(&mut flows, 7), None);
            assert_eq!(wheel.first(), Some(0));
            wheel.disarm(&mut flows, 0);
            assert_eq!(wheel.next(&flows), None);
        }
    }

    /// The paper, section IV.E: "larger than ten times of the ConnectionDescriptor's
    /// average_interval", with a floor and a ceiling.
    #[test]
    fn the_idle_limit_is_the_factor_times_the_average_within_its_bounds() {
        let limit = |timeout_factor, average_interval, min_timeout, max_timeout| {
            let config = Config { timeout_factor, min_timeout, max_timeout, ..Config::default() };
            let mut flow = Descriptor::default();
            flow.average_interval = average_interval;
            idle_limit(&config, &flow)
        };
        assert_eq!(limit(10, 700, 0, 500_000), 7_000);
        assert_eq!(limit(100, 700, 0, 500_000), 70_000);
        assert_eq!(limit(10, 700, 20_000, 500_000), 20_000);
        assert_eq!(limit(10, 70_000, 20_000, 500_000), 500_000);
        assert_eq!(limit(0, 700, 0, 500_000), 0);
        assert_eq!(limit(10, 700, 600_000, 500_000), 500_000);
        assert_eq!(limit(u32::MAX, u64::MAX, 0, u64::MAX), u64::MAX);
    }
}
