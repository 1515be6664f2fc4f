//! Frames held for all flows, in one fixed arena; each flow's are chains through it.

use alloc::vec::Vec;

use crate::list::NONE;

/// The payload of one held frame: `len` bytes from `start` on.
#[derive(Debug)]
pub struct Slice<F> {
    /// The frame, given back to its owner.
    pub frame: F,
    /// First payload byte that counts, from the start of the frame: what another segment brought
    /// before is left out.
    pub start: usize,
    /// Payload bytes that count, padding left out.
    pub len: usize,
}

/// Held frames with consecutive sequence numbers, lowest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    pub(crate) const EMPTY: Chain = Chain { first: NONE, last: NONE, len: 0 };

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The node of the first frame, or `NONE`.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// The node of the last frame, or `NONE`.
    #[inline]
    pub(crate) fn last(&self) -> u32 {
        self.last
    }
}

/// A place for a frame.
#[derive(Debug)]
struct Node<F> {
    frame: Option<F>,
    start: u32,
    len: u32,
    next: u32,
    /// It is in `Arena::places`.
    listed: bool,
}

/// The arena. A chain's next frame goes beside its last one if that place is free, so that a chain
/// of many lies in few cache lines, however many flows take turns.
#[derive(Debug)]
pub(crate) struct Arena<F> {
    nodes: Vec<Node<F>>,
    /// Where chains may begin, each place once; all that are free are here, and some that were taken
    /// from beside another.
    places: Vec<u32>,
    free: usize,
}

/// Distance of the places that are offered first at the beginning: what most chains grow to.
const APART: usize = 64;

impl<F> Arena<F> {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, NONE as usize - 1);
        let node = |_| Node { frame: None, start: 0, len: 0, next: NONE, listed: true };
        let starts = |first| (first..capacity).step_by(APART).rev().map(|place| place as u32);
        Arena {
            nodes: (0..capacity).map(node).collect(),
            places: (0..APART.min(capacity)).rev().flat_map(starts).collect(),
            free: capacity,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.nodes.len()
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Appends at the end, in constant time. There is room: [`is_full`](Self::is_full) was asked.
    #[inline]
    pub(crate) fn push_back(&mut self, chain: &mut Chain, frame: F, start: usize, len: u32) -> u32 {
        let beside = chain.last.wrapping_add(1);
        let index = self.fill(beside, frame, start, len);
        self.link_back(chain, index);
        index
    }

    /// The first of a chain, best at `wish`; there is room. The chain is empty.
    #[inline]
    pub(crate) fn begin(&mut self, wish: u32, frame: F, start: usize, len: u32) -> Chain {
        let index = self.fill(wish, frame, start, len);
        Chain { first: index, last: index, len: 1 }
    }

    /// Puts in front, in constant time; there is room.
    #[inline(always)]
    pub(crate) fn push_front(
        &mut self,
        chain: &mut Chain,
        frame: F,
        start: usize,
        len: u32,
    ) -> u32 {
        let beside = chain.first.wrapping_sub(1);
        let index = self.fill(beside, frame, start, len);
        self.nodes[index as usize].next = chain.first;
        if chain.first == NONE {
            chain.last = index;
        }
        chain.first = index;
        chain.len += 1;
        index
    }

    /// The chain will be appended to: starts loading what that touches.
    #[inline]
    pub(crate) fn prefetch(&self, chain: &Chain) {
        if let Some(last) = self.nodes.get(chain.last as usize) {
            wire::cache::prefetch(last);
        }
    }

    /// Takes the first frame off the chain.
    #[inline]
    pub(crate) fn pop(&mut self, chain: &mut Chain) -> Option<Slice<F>> {
        let index = self.unlink_front(chain)?;
        let node = &mut self.nodes[index as usize];
        let frame = node.frame.take()?;
        self.free += 1;
        if !core::mem::replace(&mut node.listed, true) {
            self.places.push(index);
        }
        Some(Slice { frame, start: node.start as usize, len: node.len as usize })
    }

    /// Moves the first frame of one chain to the end of another.
    pub(crate) fn move_first(&mut self, from: &mut Chain, to: &mut Chain) {
        if let Some(index) = self.unlink_front(from) {
            self.link_back(to, index);
        }
    }

    /// Puts all of `right` behind `left`, in constant time.
    #[inline]
    pub(crate) fn join(&mut self, left: &mut Chain, right: Chain) {
        match left.last {
            NONE => left.first = right.first,
            last => self.nodes[last as usize].next = right.first,
        }
        left.last = right.last;
        left.len += right.len;
    }

    /// Payload bytes of a node in use.
    pub(crate) fn payload_len(&self, index: u32) -> u32 {
        self.nodes[index as usize].len
    }

    /// Frames that are held.
    pub(crate) fn in_use(&self) -> usize {
        self.nodes.len() - self.free
    }

    /// Payload lengths of a chain's frames. Panics in a debug build if the chain is not what it says of
    /// itself, or names a place without a frame.
    pub(crate) fn debug_lens(&self, chain: &Chain) -> impl Iterator<Item = u32> {
        let (mut at, mut left, last) = (chain.first, chain.len, chain.last);
        core::iter::from_fn(move || {
            let Some(node) = self.nodes.get(at as usize) else {
                debug_assert_eq!(left, 0, "a chain is shorter than it says");
                return None;
            };
            debug_assert!(left > 0, "a chain is longer than it says");
            debug_assert!(node.frame.is_some(), "no frame at {at}");
            debug_assert_eq!(node.next == NONE, at == last, "the chain's last frame is {last}");
            (at, left) = (node.next, left.saturating_sub(1));
            Some(node.len)
        })
    }

    /// Panics in a debug build if places are lost: each is free or holds a frame, and all that are free
    /// can be found.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let taken = self.nodes.iter().filter(|node| node.frame.is_some()).count();
            debug_assert_eq!(taken, self.in_use(), "frames and what is counted of them");
            let listed = self.nodes.iter().filter(|node| node.listed).count();
            debug_assert_eq!(listed, self.places.len(), "places stand in the list once");
            let lost = self.nodes.iter().position(|node| node.frame.is_none() && !node.listed);
            debug_assert_eq!(lost, None, "a free place that is not in the list");
        }
    }

    /// Takes the place `wish` if it is there and free, or else any.
    #[inline]
    fn fill(&mut self, wish: u32, frame: F, start: usize, len: u32) -> u32 {
        let granted = self.nodes.get(wish as usize).is_some_and(|node| node.frame.is_none());
        let index = if granted { wish } else { self.any_place() };
        let node = &mut self.nodes[index as usize];
        node.frame = Some(frame);
        (node.start, node.len, node.next) = (start as u32, len, NONE);
        self.free -= 1;
        index
    }

    /// The free place that was given back last; there is one.
    fn any_place(&mut self) -> u32 {
        while let Some(index) = self.places.pop() {
            let node = &mut self.nodes[index as usize];
            node.listed = false;
            if node.frame.is_none() {
                return index;
            }
        }
        0
    }

    #[inline]
    fn link_back(&mut self, chain: &mut Chain, index: u32) {
        match chain.last {
            NONE => chain.first = index,
            last => self.nodes[last as usize].next = index,
        }
        chain.last = index;
        chain.len += 1;
    }

    #[inline]
    fn unlink_front(&mut self, chain: &mut Chain) -> Option<u32> {
        let index = chain.first;
        if index == NONE {
            return None;
        }
        chain.first = core::mem::replace(&mut self.nodes[index as usize].next, NONE);
        chain.len -= 1;
        if chain.first == NONE {
            chain.last = NONE;
        }
        Some(index)
    }
}
