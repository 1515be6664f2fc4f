//! The out-of-order queue: blocks of consecutive segments with a hole in front of each (the blocks that
//! SACK reports, RFC 2018 section 3).
//!
//! The paper keeps a flow's packets in one list (section IV.C, algorithm 2) and walks it for each
//! new one. Here packets that touch are one block with a start and an end, and only blocks are
//! walked, from the last: a segment that extends one at either end finds its place at once, however
//! long the block is.

use alloc::boxed::Box;
use alloc::vec;

use wire::{Flags, Seq};

use crate::Nanos;
use crate::arena::{Arena, Chain};
use crate::filter::{Carried, Segment};
use crate::list::{Links, List, NONE};

/// Segments without a hole between them; the hole is in front. What the first and the last carried is told
/// by their nodes. One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    /// First sequence number.
    pub(crate) start: Seq,
    /// The one after the last.
    pub(crate) end: Seq,
    /// When the first of them arrived.
    pub(crate) since: Nanos,
    /// The hole is waited for until then.
    until: Nanos,
    /// The latest arrival among them, as a count of arrivals: many have one time.
    latest: u64,
    /// Of the segments: the largest payload, all flags.
    pub(crate) largest: u16,
    pub(crate) flags: Flags,
    /// Each follows the one before as in a flow that was not reordered, and nothing is special about
    /// any: they may join a run all at once.
    pub(crate) plain: bool,
    /// All have one IPv4 ID.
    pub(crate) fixed_id: bool,
    chain: Chain,
    links: Links,
}

const NOWHERE: Block = Block::of(Seq(0), 0, &Carried::NOTHING, (0, 0));

const _: () = assert!(size_of::<Block>() == 64);

impl Block {
    /// One segment.
    #[inline(always)]
    const fn of(start: Seq, len: u32, carried: &Carried, times: (Nanos, Nanos)) -> Block {
        Block {
            start,
            end: Seq(start.0.wrapping_add(len)),
            since: times.0,
            until: times.1,
            latest: 0,
            largest: len as u16,
            flags: carried.flags,
            plain: carried.is_plain(),
            fixed_id: true,
            chain: Chain::EMPTY,
            links: Links::ALONE,
        }
    }

    /// Takes over what is known of those behind its own. `last` and `first` are what stands on either side
    /// of where they meet.
    fn extend(&mut self, last: &Carried, behind: &Block, first: &Carried) {
        self.end = behind.end;
        self.plain &= behind.plain && first.follows(last);
        self.fixed_id &= behind.fixed_id && first.id == last.id;
        self.since = self.since.min(behind.since);
        self.until = self.until.min(behind.until);
        self.latest = self.latest.max(behind.latest);
        self.largest = self.largest.max(behind.largest);
        self.flags = self.flags.with(behind.flags);
    }

    /// One more segment behind `last`.
    #[inline(always)]
    fn push_back(&mut self, last: &Carried, len: u32, carried: &Carried) {
        self.end += len;
        self.fixed_id &= carried.id == last.id;
        self.plain &= carried.is_plain() & carried.follows(last);
        self.push(len, carried);
    }

    /// One more in front of `first`.
    #[inline(always)]
    fn push_front(&mut self, first: &Carried, len: u32, carried: &Carried) {
        self.start = Seq(self.start.0.wrapping_sub(len));
        self.fixed_id &= carried.id == first.id;
        self.plain &= carried.is_plain() & first.follows(carried);
        self.push(len, carried);
    }

    #[inline(always)]
    fn push(&mut self, len: u32, carried: &Carried) {
        self.largest = self.largest.max(len as u16);
        self.flags = self.flags.with(carried.flags);
    }

    /// Bytes of payload.
    pub(crate) fn bytes(&self) -> u32 {
        self.end - self.start
    }

    /// Segments.
    pub(crate) fn len(&self) -> u32 {
        self.chain.len()
    }
}

/// Where a segment belongs among the blocks of its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The last block that does not start after the segment, or `NONE`.
    pub(crate) left: u32,
    /// The block after that, or `NONE`.
    pub(crate) right: u32,
    /// The node in the arena that it would have if nothing were missing, or `NONE`: what fills the hole
    /// then has room in front of it, and what is held of a flow lies in few cache lines.
    node: u32,
}

impl Place {
    /// There are no blocks.
    pub(crate) const NONE: Place = Place { left: NONE, right: NONE, node: NONE };

    /// In front of all blocks.
    pub(crate) fn before_all(of: &List) -> Place {
        Place { right: of.first().unwrap_or(NONE), ..Place::NONE }
    }

    /// The same for a segment of `len` bytes whose predecessors end with `node`, `missing` bytes before it.
    #[inline]
    fn behind(self, node: u32, missing: u32, len: u32) -> Place {
        let segments = if missing <= len { 1 } else { missing / len.max(1) };
        Place { node: node.saturating_add(1 + segments), ..self }
    }
}

/// The segment whose turn is next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) len: u32,
    pub(crate) carried: Carried,
    /// It is held since then, or for less long.
    pub(crate) since: Nanos,
}

/// The out-of-order queues of all flows, in memory that is allocated once: no more than there are frames.
#[derive(Debug)]
pub(crate) struct OutOfOrder {
    blocks: Box<[Block]>,
    /// The first of those not in use, or `NONE`; its `next` is another.
    free: u32,
    in_use: usize,
    /// What each held frame carried, by its node; valid for frames in blocks.
    carried: Box<[Carried]>,
    arrivals: u64,
}

impl OutOfOrder {
    pub(crate) fn new(frames: usize) -> Self {
        let mut blocks = vec![NOWHERE; frames].into_boxed_slice();
        for (next, block) in (1..frames as u32).zip(&mut blocks) {
            block.links.set_next(next);
        }
        OutOfOrder {
            blocks,
            free: if frames == 0 { NONE } else { 0 },
            in_use: 0,
            carried: vec![Carried::NOTHING; frames].into_boxed_slice(),
            arrivals: 0,
        }
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Block> {
        self.blocks.get(index as usize)
    }

    /// The block with the lowest sequence numbers.
    #[inline]
    pub(crate) fn first(&self, of: &List) -> Option<&Block> {
        self.blocks.get(of.first()? as usize)
    }

    /// All blocks, that of the segment that came last before the others (RFC 2018 section 4).
    pub(crate) fn latest_first(&self, of: &List) -> impl Iterator<Item = &Block> {
        let all = || {
            let mut at = of.first().unwrap_or(NONE);
            core::iter::from_fn(move || {
                let (index, block) = (at, self.get(at)?);
                at = block.links.next();
                Some((index, block))
            })
        };
        let latest = all().max_by_key(|(_, block)| block.latest).map(|(index, _)| index);
        let first = latest.and_then(|index| self.get(index));
        first.into_iter().chain(all().filter(move |(i, _)| Some(*i) != latest).map(|(_, i)| i))
    }

    /// When the oldest block's first segment arrived.
    pub(crate) fn oldest(&self, of: &List) -> Option<Nanos> {
        self.all(of).map(|block| block.since).min()
    }

    /// All blocks, by sequence number.
    fn all(&self, of: &List) -> impl Iterator<Item = &Block> {
        let mut at = of.first().unwrap_or(NONE);
        core::iter::from_fn(move || {
            let block = self.get(at)?;
            at = block.links.next();
            Some(block)
        })
    }

    /// The first time at which a hole has been waited for long enough.
    pub(crate) fn earliest(&self, of: &List) -> Option<Nanos> {
        self.all(of).map(|block| block.until).min()
    }

    /// How many blocks there are up to the last whose hole has been waited for long enough.
    pub(crate) fn due(&self, of: &List, now: Nanos) -> usize {
        let due = |(n, block): (usize, &Block)| (block.until <= now).then_some(n + 1);
        self.all(of).enumerate().filter_map(due).last().unwrap_or(0)
    }

    /// Searches from the tail, where nearly all segments belong.
    pub(crate) fn find(&self, of: &List, seq: Seq) -> Place {
        let (mut left, mut right) = (of.last().unwrap_or(NONE), NONE);
        while let Some(block) = self.get(left)
            && seq.before(block.start)
        {
            right = left;
            left = block.links.previous();
        }
        Place { left, right, node: NONE }
    }

    /// What the first and the last segment of a block carried.
    #[inline]
    pub(crate) fn ends(&self, block: &Block) -> (&Carried, &Carried) {
        (&self.carried[block.chain.first() as usize], &self.carried[block.chain.last() as usize])
    }

    /// The paper's Insert: enters a segment between two blocks that it does not overlap. It
    /// extends those that it touches; if it touches both, they become one. If it touches none, `times`
    /// are when it came and until when its hole is waited for.
    #[expect(clippy::too_many_arguments, reason = "one call, from one place")]
    #[inline(always)]
    pub(crate) fn insert<F>(
        &mut self,
        of: &mut List,
        place: Place,
        held: &mut Arena<F>,
        frame: F,
        (start, seq, len): (usize, Seq, u32),
        carried: Carried,
        times: (Nanos, Nanos),
    ) {
        let node;
        if let Some(left) = self.blocks.get_mut(place.left as usize)
            && left.end == seq
        {
            left.push_back(&self.carried[left.chain.last() as usize], len, &carried);
            self.arrivals += 1;
            left.latest = self.arrivals;
            node = held.push_back(&mut left.chain, frame, start, len);
            self.carried[node as usize] = carried;
            if let Some(right) = self.blocks.get(place.right as usize)
                && right.start == seq + len
            {
                self.join(of, place, held);
            }
            return;
        }
        if let Some(right) = self.blocks.get_mut(place.right as usize)
            && right.start == seq + len
        {
            right.push_front(&self.carried[right.chain.first() as usize], len, &carried);
            self.arrivals += 1;
            right.latest = self.arrivals;
            node = held.push_front(&mut right.chain, frame, start, len);
        } else {
            return self.open(of, place, held, frame, (start, seq, len), carried, times);
        }
        self.carried[node as usize] = carried;
    }

    /// The same of a segment that touches no block.
    #[expect(clippy::too_many_arguments, reason = "as insert")]
    #[inline(always)]
    pub(crate) fn open<F>(
        &mut self,
        of: &mut List,
        place: Place,
        held: &mut Arena<F>,
        frame: F,
        (start, seq, len): (usize, Seq, u32),
        carried: Carried,
        times: (Nanos, Nanos),
    ) {
        // There is one for each frame, and this frame was not held until now.
        let index = self.free;
        let Some(new) = self.blocks.get_mut(index as usize) else { return };
        self.free = new.links.next();
        self.in_use += 1;
        *new = Block::of(seq, len, &carried, times);
        self.arrivals += 1;
        new.latest = self.arrivals;
        new.chain = held.begin(place.node, frame, start, len);
        self.carried[new.chain.first() as usize] = carried;
        of.insert_after(&mut self.blocks, place.left, index, links);
    }

    /// Whether the segment extends a block, at its place among them.
    pub(crate) fn touches(&self, place: Place, segment: &Segment) -> bool {
        self.get(place.left).is_some_and(|left| left.end == segment.seq)
            || self.get(place.right).is_some_and(|right| right.start == segment.end())
    }

    /// The place of a segment that begins behind the frontier, `ahead` bytes behind what `run` holds, and
    /// whether it touches a block there; `None` if it overlaps one.
    #[inline(always)]
    pub(crate) fn free_place(
        &self,
        of: &List,
        (seq, len): (Seq, u32),
        (run, ahead): (&Chain, u32),
    ) -> Option<(Place, bool)> {
        let last_index = of.last_or_none();
        let Some(last) = self.get(last_index) else {
            return Some((Place::NONE.behind(run.last(), ahead, len), false));
        };
        // Nearly all belong behind the last.
        if !seq.before(last.end) {
            let place = Place { left: last_index, ..Place::NONE };
            let missing = seq - last.end;
            return match missing {
                0 => Some((place, true)),
                _ => Some((place.behind(last.chain.last(), missing, len), false)),
            };
        }
        // Or in front of the only one.
        if seq + len == last.start && of.first() == Some(last_index) {
            return Some((Place { right: last_index, ..Place::NONE }, true));
        }
        let place = self.find(of, seq);
        let (left, right) = (self.get(place.left), self.get(place.right));
        if left.is_some_and(|left| seq.before(left.end))
            || right.is_none_or(|right| (seq + len).after(right.start))
        {
            return None;
        }
        let touches = left.is_some_and(|left| left.end == seq)
            || right.is_some_and(|right| right.start == seq + len);
        Some((place, touches))
    }

    /// Two blocks have come to touch.
    fn join<F>(&mut self, of: &mut List, place: Place, held: &mut Arena<F>) {
        let right = self.blocks[place.right as usize];
        let first = self.carried[right.chain.first() as usize];
        let left = &mut self.blocks[place.left as usize];
        left.extend(&self.carried[left.chain.last() as usize], &right, &first);
        held.join(&mut left.chain, right.chain);
        self.close(of, place.right);
    }

    /// The first segment of the first block, if the block starts at `next_seq`.
    pub(crate) fn next<F>(&self, of: &List, next_seq: Seq, held: &Arena<F>) -> Option<Next> {
        let block = self.first(of).filter(|block| block.start == next_seq)?;
        let node = block.chain.first();
        let (len, carried) = (held.payload_len(node), self.carried[node as usize]);
        Some(Next { len, carried, since: block.since })
    }

    /// Moves all of the first block to the end of `run`.
    #[inline(always)]
    pub(crate) fn take_all<F>(&mut self, of: &mut List, held: &mut Arena<F>, run: &mut Chain) {
        let Some(index) = of.pop_front(&mut self.blocks, links) else { return };
        held.join(run, self.blocks[index as usize].chain);
        self.give_back(index);
    }

    /// Moves the first segment of the first block to the end of `run`.
    #[inline]
    pub(crate) fn take_next<F>(&mut self, of: &mut List, held: &mut Arena<F>, run: &mut Chain) {
        let Some(index) = of.first() else { return };
        let block = &mut self.blocks[index as usize];
        block.start += held.payload_len(block.chain.first());
        held.move_first(&mut block.chain, run);
        block.plain = false; // the rest is less than what is known of it
        if block.chain.len() == 0 {
            self.close(of, index);
        }
    }

    #[inline(always)]
    fn close(&mut self, of: &mut List, index: u32) {
        of.remove(&mut self.blocks, index, links);
        self.give_back(index);
    }

    #[inline(always)]
    fn give_back(&mut self, index: u32) {
        self.blocks[index as usize].links.set_next(self.free);
        self.free = index;
        self.in_use -= 1;
    }

    /// OutOfOrder of all flows.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Panics in a debug build if there is no hole in front of each block, beginning at `frontier`.
    pub(crate) fn debug_check(&self, of: &List, frontier: Seq) {
        if cfg!(debug_assertions) {
            let (mut end, mut count) = (frontier, 0);
            for block in self.all(of) {
                let Block { start, end: next, .. } = *block;
                debug_assert!(start.after(end), "no hole between {end:?} and {start:?}");
                debug_assert!(next.after(start), "a block of nothing at {start:?}");
                debug_assert!(block.len() > 0 && block.since <= block.until);
                (end, count) = (next, count + 1);
            }
            debug_assert_eq!(of.len(), count, "blocks of a flow");
        }
    }

    /// How many frames the blocks hold. Panics in a debug build if their bytes are not those of the
    /// frames.
    pub(crate) fn debug_frames<F>(&self, of: &List, held: &Arena<F>) -> usize {
        let frames = |block: &Block| {
            let bytes: u32 = held.debug_lens(&block.chain).sum();
            debug_assert_eq!(bytes, block.bytes(), "bytes of a block");
            block.len() as usize
        };
        self.all(of).map(frames).sum()
    }
}

fn links(block: &mut Block) -> &mut Links {
    &mut block.links
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// What is held of a flow, sorted: start, end, when it came.
    type Model = Vec<(u32, u32, Nanos)>;

    #[derive(Clone, Debug)]
    enum Operation {
        /// So many bytes arrive at this place, if nothing is there.
        Insert(u32, u32),
        /// The turn of what lies first has come, for so many segments.
        Take(usize),
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let operation = prop_oneof![
            8 => (0u32..60, 1u32..6).prop_map(|(at, len)| Operation::Insert(at, len)),
            1 => (1usize..8).prop_map(Operation::Take),
        ];
        proptest::collection::vec(operation, 0..150)
    }

    /// Start, end and age of what touches.
    fn blocks_of(model: &Model) -> Model {
        let mut blocks: Model = Vec::new();
        for (start, end, since) in model {
            match blocks.last_mut() {
                Some(last) if last.1 == *start => *last = (last.0, *end, last.2.min(*since)),
                _ => blocks.push((*start, *end, *since)),
            }
        }
        blocks
    }

    struct Flow {
        base: u32,
        out_of_order: OutOfOrder,
        held: Arena<u32>,
        list: List,
        model: Model,
    }

    impl Flow {
        fn new(base: u32) -> Flow {
            let (out_of_order, held) = (OutOfOrder::new(64), Arena::new(64));
            Flow { base, out_of_order, held, list: List::EMPTY, model: Vec::new() }
        }

        fn insert(&mut self, at: u32, len: u32, now: Nanos) {
            let (start, end) = (self.base.wrapping_add(at), at + len);
            let place = self.out_of_order.find(&self.list, Seq(start));
            let of =
                |index| self.out_of_order.get(index).map(|i| i.start.0.wrapping_sub(self.base));
            let blocks = blocks_of(&self.model);
            let left = blocks.iter().rev().find(|block| block.0 <= at).map(|block| block.0);
            let right = blocks.iter().find(|block| block.0 > at).map(|block| block.0);
            assert_eq!((of(place.left), of(place.right)), (left, right));
            if self.model.iter().any(|held| held.0 < end && at < held.1) || self.held.is_full() {
                return;
            }
            let carried = Carried { ack: Seq(at), ..Carried::NOTHING };
            let piece = (0, Seq(start), len);
            let (queue, list, held) = (&mut self.out_of_order, &mut self.list, &mut self.held);
            queue.insert(list, place, held, at, piece, carried, (now, now));
            self.model.push((at, end, now));
            self.model.sort_unstable();
            self.age();
        }

        /// What touches is as old as the oldest of it, also when some of that has gone.
        fn age(&mut self) {
            for block in blocks_of(&self.model) {
                let on = |held: &&mut (u32, u32, Nanos)| held.0 >= block.0 && held.1 <= block.1;
                self.model.iter_mut().filter(on).for_each(|held| held.2 = block.2);
            }
        }

        fn take(&mut self, segments: usize) {
            let mut run = Chain::EMPTY;
            for _ in 0..segments.min(self.model.len()) {
                let (start, end, since) = self.model.remove(0);
                let seq = Seq(self.base.wrapping_add(start));
                assert!(self.out_of_order.next(&self.list, seq + 1, &self.held).is_none());
                let next = self.out_of_order.next(&self.list, seq, &self.held).expect("a block");
                assert_eq!(
                    (next.len, next.carried.ack, next.since),
                    (end - start, Seq(start), since)
                );
                self.out_of_order.take_next(&mut self.list, &mut self.held, &mut run);
                let slice = self.held.pop(&mut run).expect("a frame");
                assert_eq!((slice.frame, slice.len), (start, (end - start) as usize));
            }
        }

        fn check(&self) {
            let expected = blocks_of(&self.model);
            let mut at = self.list.first();
            let mut previous = NONE;
            let mut is = Vec::new();
            while let Some(block) = at.and_then(|index| self.out_of_order.get(index)) {
                assert_eq!(block.links.previous(), previous);
                previous = at.unwrap_or(NONE);
                let [start, end] = [block.start, block.end].map(|s| s.0.wrapping_sub(self.base));
                is.push((start, end, block.since));
                at = Some(block.links.next());
            }
            assert_eq!(is, expected);
            assert_eq!(self.list.last().unwrap_or(NONE), previous);
            let oldest = expected.iter().map(|block| block.2).min();
            assert_eq!(self.out_of_order.oldest(&self.list), oldest);
            assert_eq!(self.out_of_order.first(&self.list).is_none(), expected.is_empty());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Against a sorted list of what was put in, also where sequence numbers wrap.
        #[test]
        fn blocks_are_what_touches(
            base in prop_oneof![any::<u32>(), u32::MAX - 60..=u32::MAX],
            operations in operations(),
        ) {
            let mut flow = Flow::new(base);
            for (now, operation) in (1..).zip(operations) {
                match operation {
                    Operation::Insert(at, len) => flow.insert(at, len, now),
                    Operation::Take(segments) => flow.take(segments),
                }
                flow.check();
            }
            flow.take(usize::MAX);
            flow.check();
            // Nothing is lost to those that come after.
            prop_assert_eq!((0..).map_while(|at| {
                (!flow.held.is_full()).then(|| flow.insert(at * 2, 1, 1))
            }).count(), 64);
            flow.check();
        }
    }
}
