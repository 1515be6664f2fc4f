//! ConnectionTable (the paper, section IV.A): from a packet's four-tuple to its descriptor, in
//! memory that is allocated once. Free descriptors wait in a queue.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use wire::flow::bucket;
use wire::{FlowHash, FlowKey};

use crate::Nanos;
use crate::descriptor::{Descriptor, HOT, UNARMED};
use crate::list::{List, NONE};
use crate::timeout::Wheel;

/// Eight bytes a bucket, so that a probe of several costs one cache line.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    hash: u32,
    index: u32,
}

const EMPTY: Bucket = Bucket { hash: 0, index: NONE };

/// With fewer flows than these, all that is needed stays in the cache by itself.
const MANY_FLOWS: usize = 512;

/// Frames by which each step of loading what a frame will need is ahead of the next.
const STEP: usize = 4;

/// Frames that were announced: the hashes of those whose buckets are being loaded, and the flows of
/// those whose descriptors are.
#[derive(Debug)]
struct Ahead {
    hashes: [u32; STEP],
    flows: [u32; STEP],
    at: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead { hashes: [0; STEP], flows: [NONE; STEP], at: 0 }
    }
}

/// Open addressing with linear probing, at most half full.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    buckets: Box<[Bucket]>,
    descriptors: Vec<Descriptor>,
    free: VecDeque<u32>,
    /// Flows that hold frames, by when to look at them.
    wheel: Wheel,
    /// Flows whose run a PSH has completed, the first of them first.
    pushed: List,
    /// Where the search for a descriptor to recycle goes on.
    hand: u32,
    /// The flow that was found last, or `NONE`.
    last_found: u32,
    ahead: Ahead,
    hash: FlowHash,
}

impl ConnectionTable {
    /// Memory for `flows` descriptors.
    pub(crate) fn new(flows: usize, hash: FlowHash, max_timeout: Nanos) -> Self {
        let flows = flows.clamp(1, 1 << 24);
        ConnectionTable {
            buckets: vec![EMPTY; (flows * 2).next_power_of_two()].into_boxed_slice(),
            descriptors: vec![Descriptor::default(); flows],
            free: (0..flows as u32).collect(),
            wheel: Wheel::new(max_timeout),
            pushed: List::EMPTY,
            hand: 0,
            last_found: NONE,
            ahead: Ahead::default(),
            hash,
        }
    }

    /// How many flows there is memory for.
    pub(crate) fn flows(&self) -> usize {
        self.descriptors.len()
    }

    /// The flow that [`find`](Self::find) found last.
    #[inline(always)]
    pub(crate) fn last_found(&mut self) -> Option<(u32, &mut Descriptor)> {
        let last = self.last_found;
        self.descriptors.get_mut(last as usize).map(|descriptor| (last, descriptor))
    }

    /// SearchDescriptor of the paper's algorithm 1. Packets come in trains, so the flow of the last
    /// one is looked at first.
    #[inline]
    pub(crate) fn find(&mut self, key: &FlowKey) -> Option<u32> {
        if let Some(last) = self.descriptors.get_mut(self.last_found as usize)
            && last.key == *key
        {
            last.recently_used = true;
            return Some(self.last_found);
        }
        self.search(key)
    }

    /// A packet of the flow `key` will come. Starts loading what [`find`](Self::find) will need, in
    /// steps that each wait for the one before: the bucket now, the descriptor four announcements
    /// later. Names the descriptor that should be there by now, four later again.
    #[inline]
    pub(crate) fn announce(&mut self, key: &FlowKey) -> Option<&Descriptor> {
        let at = self.ahead.at;
        self.ahead.at = (at + 1) % STEP;
        let hash = self.hash.of(key);
        wire::cache::prefetch(&self.buckets[self.home(hash)]);
        let earlier = core::mem::replace(&mut self.ahead.hashes[at], hash);
        let index = self.index_of(earlier);
        if let Some(descriptor) = self.descriptors.get(index as usize) {
            wire::cache::prefetch_first(descriptor, HOT);
        }
        let loaded = core::mem::replace(&mut self.ahead.flows[at], index);
        self.descriptors.get(loaded as usize)
    }

    /// Whether there is more than the cache keeps by itself.
    #[inline]
    pub(crate) fn has_many_flows(&self) -> bool {
        self.descriptors.len() - self.free.len() > MANY_FLOWS
    }

    /// A flow with the hash of this key, most likely the one that is meant. Nothing but its headers tells.
    #[inline(never)]
    pub(crate) fn likely(&self, key: &FlowKey) -> Option<u32> {
        let index = self.index_of(self.hash.of(key));
        (index != NONE).then_some(index)
    }

    /// A segment of this flow has come.
    #[inline(always)]
    pub(crate) fn found(&mut self, index: u32) {
        self.last_found = index;
        self.descriptors[index as usize].recently_used = true;
    }

    /// A flow with this hash, most likely the one that is meant.
    #[inline]
    fn index_of(&self, hash: u32) -> u32 {
        let mut at = self.home(hash);
        while self.buckets[at].index != NONE && self.buckets[at].hash != hash {
            at = self.next_bucket(at);
        }
        self.buckets[at].index
    }

    /// The same of a packet that does not show its flow to be in use, as a SYN does not.
    pub(crate) fn peek(&self, key: &FlowKey) -> Option<u32> {
        let index = self.index_of(self.hash.of(key));
        self.descriptors.get(index as usize).filter(|flow| flow.key == *key).map(|_| index)
    }

    fn search(&mut self, key: &FlowKey) -> Option<u32> {
        let hash = self.hash.of(key);
        let mut at = self.home(hash);
        loop {
            let bucket = self.buckets[at];
            if bucket.index == NONE {
                return None;
            }
            if bucket.hash == hash {
                let descriptor = &mut self.descriptors[bucket.index as usize];
                if descriptor.key == *key {
                    descriptor.recently_used = true;
                    self.last_found = bucket.index;
                    return Some(bucket.index);
                }
            }
            at = self.next_bucket(at);
        }
    }

    /// The descriptor to give up before [`open`](Self::open) has a free one, if there is none
    /// now: the first that was not used since the hand last passed it (second chance).
    pub(crate) fn pick_for_recycling(&mut self) -> Option<u32> {
        if !self.free.is_empty() {
            return None;
        }
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.descriptors.len() as u32;
            if !core::mem::take(&mut self.descriptors[at as usize].recently_used) {
                return Some(at);
            }
        }
    }

    /// A descriptor for a flow that [`find`](Self::find) does not know. There is a free one:
    /// the caller has closed what [`pick_for_recycling`](Self::pick_for_recycling) named.
    ///
    /// One that is not `recently_used` is the next to be given up, should it not be found again
    /// until then.
    pub(crate) fn open(&mut self, key: FlowKey, recently_used: bool) -> u32 {
        let index = self.free.pop_front().unwrap_or_default();
        let descriptor = &mut self.descriptors[index as usize];
        descriptor.open(key);
        descriptor.recently_used = recently_used;
        let hash = self.hash.of(&key);
        let mut at = self.home(hash);
        while self.buckets[at].index != NONE {
            at = self.next_bucket(at);
        }
        self.buckets[at] = Bucket { hash, index };
        index
    }

    /// Forgets a flow that holds nothing.
    pub(crate) fn close(&mut self, index: u32) {
        if self.last_found == index {
            self.last_found = NONE;
        }
        let key = core::mem::replace(&mut self.descriptors[index as usize].key, FlowKey::NONE);
        let mut at = self.home(self.hash.of(&key));
        while self.buckets[at].index != index {
            if self.buckets[at].index == NONE {
                return; // was not open
            }
            at = self.next_bucket(at);
        }
        self.fill_gap(at);
        self.free.push_back(index);
    }

    /// Moves later entries of a probe sequence back over the one removed at `gap`.
    fn fill_gap(&mut self, mut gap: usize) {
        let mut at = gap;
        loop {
            at = self.next_bucket(at);
            let bucket = self.buckets[at];
            if bucket.index == NONE {
                self.buckets[gap] = EMPTY;
                return;
            }
            // How far each stands from where it would like to be, around the ring.
            let mask = self.buckets.len() - 1;
            let from_home = at.wrapping_sub(self.home(bucket.hash)) & mask;
            if from_home >= at.wrapping_sub(gap) & mask {
                self.buckets[gap] = bucket;
                gap = at;
            }
        }
    }

    /// A PSH has completed the flow's run.
    pub(crate) fn push(&mut self, index: u32) {
        let flow = &mut self.descriptors[index as usize];
        if !core::mem::replace(&mut flow.pushed, true) {
            self.pushed.push_back(&mut self.descriptors, index, |flow| &mut flow.pushed_links);
        }
    }

    /// The flow's run has gone.
    #[inline]
    pub(crate) fn unpush(&mut self, index: u32) {
        let flow = &mut self.descriptors[index as usize];
        if core::mem::take(&mut flow.pushed) {
            self.pushed.remove(&mut self.descriptors, index, |flow| &mut flow.pushed_links);
        }
    }

    /// The flow whose run a PSH completed first.
    pub(crate) fn first_pushed(&self) -> Option<u32> {
        self.pushed.first()
    }

    /// Makes sure that a flow is looked at when `deadline` has come.
    #[inline(always)]
    pub(crate) fn arm(&mut self, index: u32, deadline: Nanos) {
        if self.descriptors[index as usize].armed <= deadline.min(UNARMED - 1) {
            return; // as nearly always, with a segment that joins what is held
        }
        self.wheel.arm(&mut self.descriptors, index, deadline);
    }

    /// A flow holds nothing any more.
    #[inline]
    pub(crate) fn disarm(&mut self, index: u32) {
        self.wheel.disarm(&mut self.descriptors, index);
    }

    /// A flow whose time may have come, no longer armed.
    pub(crate) fn next_due(&mut self, now: Nanos) -> Option<u32> {
        self.wheel.next_due(&mut self.descriptors, now)
    }

    /// The time at which a flow must be looked at.
    pub(crate) fn next_armed(&self) -> Option<Nanos> {
        self.wheel.next(&self.descriptors)
    }

    /// A flow of those that must be looked at first, in constant time.
    pub(crate) fn first_armed(&self) -> Option<u32> {
        self.wheel.first()
    }

    /// Slots of the wheel with armed flows in them.
    pub(crate) fn occupied(&self) -> impl Iterator<Item = usize> + use<> {
        self.wheel.occupied()
    }

    /// The first armed flow in a slot.
    pub(crate) fn first_in(&self, slot: usize) -> Option<u32> {
        self.wheel.first_in(slot)
    }

    /// The armed flow after this one in its slot.
    pub(crate) fn after(&self, index: u32) -> Option<u32> {
        let next = self.descriptors[index as usize].links.next();
        (next != NONE).then_some(next)
    }

    /// Panics in a debug build if a flow is in no bucket or in two, or stands wrong on the wheel.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let taken = self.buckets.iter().filter(|bucket| bucket.index != NONE);
            let open = self.descriptors.len() - self.free.len();
            debug_assert_eq!(taken.clone().count(), open, "buckets and open flows");
            for bucket in taken {
                let key = self.descriptors[bucket.index as usize].key;
                debug_assert_eq!(bucket.hash, self.hash.of(&key), "flow {}", bucket.index);
                let mut at = self.home(bucket.hash);
                while self.buckets[at].index != bucket.index {
                    debug_assert_ne!(self.buckets[at].index, NONE, "a flow that is not found");
                    at = self.next_bucket(at);
                }
            }
            self.wheel.debug_check(&self.descriptors);
        }
    }

    /// Flows that wait for a time-out, which those that hold something do.
    pub(crate) fn timed_flows(&self) -> usize {
        self.wheel.flows()
    }

    /// Another time-out from here on; nothing is held.
    pub(crate) fn set_max_timeout(&mut self, max_timeout: Nanos) {
        self.wheel = Wheel::new(max_timeout);
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        bucket(hash, self.buckets.len())
    }

    #[inline]
    fn next_bucket(&self, at: usize) -> usize {
        (at + 1) & (self.buckets.len() - 1)
    }
}

impl Index<u32> for ConnectionTable {
    type Output = Descriptor;
    #[inline]
    fn index(&self, index: u32) -> &Descriptor {
        &self.descriptors[index as usize]
    }
}

impl IndexMut<u32> for ConnectionTable {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Descriptor {
        &mut self.descriptors[index as usize]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// 0 is `FlowKey::NONE`, which any packet may claim to have.
    fn key(n: u16) -> FlowKey {
        FlowKey {
            addresses: [u64::from(n / 4), 0, 0, 0],
            ports: 0,
            ipv6: n % 2 == 1,
            udp: n / 2 % 2 == 1,
        }
    }

    impl ConnectionTable {
        /// Buckets that a lookup of the flow looks at.
        fn probes(&self, key: &FlowKey) -> usize {
            let home = self.home(self.hash.of(key));
            let at = |n: usize| self.buckets[(home + n) & (self.buckets.len() - 1)];
            let is = |index: u32| index == NONE || self.descriptors[index as usize].key == *key;
            1 + (0..self.buckets.len()).take_while(|n| !is(at(*n).index)).count()
        }
    }

    /// The first word of destination address that made the hash before this one forget source, ports
    /// and seed; every lookup then walked all flows.
    const AIMED: u64 = 0xa076_1d64_78bd_642f;

    /// Whatever 4,000 flows have in common, a lookup takes as many steps as among random ones: half as
    /// many flows as buckets, 1.5 on average (Knuth, volume 3, section 6.4).
    #[test]
    fn no_flows_meet_in_one_place() {
        const FLOWS: usize = 4000;
        let v6 = |addresses, ports| FlowKey { addresses, ports, ipv6: true, udp: false };
        let crowd = |kind, n: u64| match kind {
            0 => v6([n, n << 7, AIMED, 1], n as u32),
            1 => v6([1, 2, AIMED, 1], n as u32),
            2 => v6([1, 2, 3, 4], u32::from((n as u16).to_be())),
            _ => v6([1, n.to_be(), 3, 4], 80),
        };
        for (kind, seed) in (0..4).flat_map(|kind| (0..16).map(move |seed| (kind, seed))) {
            let keys: Vec<FlowKey> = (0..FLOWS as u64).map(|n| crowd(kind, n)).collect();
            let mut table = ConnectionTable::new(4096, FlowHash::from_seed(seed), 1);
            for key in &keys {
                table.open(*key, true);
            }
            let probes = keys.iter().map(|key| table.probes(key));
            let (most, all) = probes.fold((0, 0), |(most, all), n| (n.max(most), all + n));
            assert!(most < 100 && all < 2 * FLOWS, "{kind}: {all}, at most {most}");
        }
    }

    proptest! {
        /// Against a `HashMap`: what is open is found, what was closed or recycled is not.
        #[test]
        fn behaves_like_a_map(operations in proptest::collection::vec((0u16..40, 0u8..3), 0..400)) {
            let mut table = ConnectionTable::new(16, FlowHash::from_seed(1), 1);
            let mut model: HashMap<u16, u32> = HashMap::new();
            for (n, what) in operations {
                prop_assert_eq!(table.find(&key(n)), model.get(&n).copied());
                match (what, model.get(&n).copied()) {
                    (0, Some(index)) => {
                        table.close(index);
                        model.remove(&n);
                    }
                    (_, None) => {
                        if let Some(oldest) = table.pick_for_recycling() {
                            table.close(oldest);
                            model.retain(|_, index| *index != oldest);
                        }
                        model.insert(n, table.open(key(n), true));
                    }
                    _ => {}
                }
            }
        }
    }
}
