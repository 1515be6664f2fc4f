//! What has arrived before its turn: runs of consecutive segments with a hole in front of each.
//!
//! The paper keeps a flow's packets in one list (section IV.C, algorithm 2) and walks it for each
//! new one. Here packets that touch are one island with a start and an end, and only islands are
//! walked, from the last: a segment that extends one at either end finds its place at once, however
//! long the island is.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use wire::Seq;

use crate::Nanos;
use crate::filter::Carried;
use crate::held::{Chain, Held};
use crate::list::{Links, List, NONE};

/// Segments without a hole between them; the hole is in front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Island {
    /// First sequence number.
    pub(crate) start: Seq,
    /// The one after the last.
    pub(crate) end: Seq,
    /// When the first of them arrived.
    pub(crate) since: Nanos,
    /// When the last of them arrived.
    latest: Nanos,
    chain: Chain,
    links: Links,
}

const NOWHERE: Island = Island {
    start: Seq(0),
    end: Seq(0),
    since: 0,
    latest: 0,
    chain: Chain::EMPTY,
    links: Links::ALONE,
};

/// Where a segment belongs among the islands of its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The last island that does not start after the segment, or `NONE`.
    pub(crate) left: u32,
    /// The island after that, or `NONE`.
    pub(crate) right: u32,
}

/// The segment whose turn is next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) len: u32,
    pub(crate) carried: Carried,
    /// It is held since then, or for less long.
    pub(crate) since: Nanos,
}

/// The islands of all flows, in memory that is allocated once: no more than there are frames.
#[derive(Debug)]
pub(crate) struct Islands {
    islands: Vec<Island>,
    /// Those not in use; `links.next` leads from one to the next.
    free: List,
    /// What each held frame carried, by its node; valid for frames on islands.
    carried: Box<[Carried]>,
}

impl Islands {
    pub(crate) fn new(frames: usize) -> Self {
        let mut islands = vec![NOWHERE; frames];
        let mut free = List::EMPTY;
        for index in 0..frames as u32 {
            free.push_back(&mut islands, index, links);
        }
        Islands { islands, free, carried: vec![Carried::NOTHING; frames].into_boxed_slice() }
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Island> {
        self.islands.get(index as usize)
    }

    /// The island with the lowest sequence numbers.
    #[inline]
    pub(crate) fn first(&self, of: &List) -> Option<&Island> {
        self.islands.get(of.first()? as usize)
    }

    /// All islands, that of the segment that came last before the others (RFC 2018 section 4).
    pub(crate) fn latest_first(&self, of: &List) -> impl Iterator<Item = &Island> {
        let all = || {
            let mut at = of.first().unwrap_or(NONE);
            core::iter::from_fn(move || {
                let (index, island) = (at, self.get(at)?);
                at = island.links.next();
                Some((index, island))
            })
        };
        let latest = all().max_by_key(|(_, island)| island.latest).map(|(index, _)| index);
        let first = latest.and_then(|index| self.get(index));
        first.into_iter().chain(all().filter(move |(i, _)| Some(*i) != latest).map(|(_, i)| i))
    }

    /// When the oldest island's first segment arrived.
    pub(crate) fn oldest(&self, of: &List) -> Option<Nanos> {
        let mut oldest = self.first(of)?.since;
        let mut at = of.first()?;
        while let Some(island) = self.get(at) {
            oldest = oldest.min(island.since);
            at = island.links.next();
        }
        Some(oldest)
    }

    /// Searches from the tail, where nearly all segments belong.
    pub(crate) fn find(&self, of: &List, seq: Seq) -> Place {
        let (mut left, mut right) = (of.last().unwrap_or(NONE), NONE);
        while let Some(island) = self.get(left)
            && seq.before(island.start)
        {
            right = left;
            left = island.links.previous();
        }
        Place { left, right }
    }

    /// The paper's Insert: enters a segment between two islands that it does not overlap. It
    /// extends those that it touches; if it touches both, they become one.
    #[expect(clippy::too_many_arguments, reason = "one call, from one place")]
    pub(crate) fn insert<F>(
        &mut self,
        of: &mut List,
        place: Place,
        held: &mut Held<F>,
        frame: F,
        (start, seq, len): (usize, Seq, u32),
        carried: Carried,
        now: Nanos,
    ) {
        let end = seq + len;
        let node;
        if let Some(left) = self.islands.get_mut(place.left as usize)
            && left.end == seq
        {
            node = held.push_back(&mut left.chain, frame, start, len);
            left.end = end;
            left.latest = now;
            self.join_if_they_touch(of, place, held);
        } else if let Some(right) = self.islands.get_mut(place.right as usize)
            && right.start == end
        {
            node = held.push_front(&mut right.chain, frame, start, len);
            right.start = seq;
            right.latest = now;
        } else {
            let mut chain = Chain::EMPTY;
            node = held.push_back(&mut chain, frame, start, len);
            let island =
                Island { start: seq, end, since: now, latest: now, chain, links: Links::ALONE };
            self.open(of, place, island);
        }
        self.carried[node as usize] = carried;
    }

    fn open(&mut self, of: &mut List, place: Place, island: Island) {
        // There is one for each frame, and this frame was not held until now.
        let Some(index) = self.free.first() else { return };
        self.free.remove(&mut self.islands, index, links);
        self.islands[index as usize] = island;
        of.insert_after(&mut self.islands, place.left, index, links);
    }

    fn join_if_they_touch<F>(&mut self, of: &mut List, place: Place, held: &mut Held<F>) {
        let Some(&right) = self.get(place.right) else { return };
        let left = &mut self.islands[place.left as usize];
        if left.end != right.start {
            return;
        }
        held.join(&mut left.chain, right.chain);
        left.end = right.end;
        left.since = left.since.min(right.since);
        left.latest = left.latest.max(right.latest);
        self.close(of, place.right);
    }

    /// The first segment of the first island, if the island starts at `next_seq`.
    pub(crate) fn next<F>(&self, of: &List, next_seq: Seq, held: &Held<F>) -> Option<Next> {
        let island = self.first(of).filter(|island| island.start == next_seq)?;
        let node = island.chain.first();
        let (len, carried) = (held.payload_len(node), self.carried[node as usize]);
        Some(Next { len, carried, since: island.since })
    }

    /// Moves the first segment of the first island to the end of `run`.
    pub(crate) fn take_next<F>(&mut self, of: &mut List, held: &mut Held<F>, run: &mut Chain) {
        let Some(index) = of.first() else { return };
        let island = &mut self.islands[index as usize];
        island.start += held.payload_len(island.chain.first());
        held.move_first(&mut island.chain, run);
        if island.chain.len() == 0 {
            self.close(of, index);
        }
    }

    fn close(&mut self, of: &mut List, index: u32) {
        of.remove(&mut self.islands, index, links);
        self.free.push_back(&mut self.islands, index, links);
    }
}

fn links(island: &mut Island) -> &mut Links {
    &mut island.links
}
