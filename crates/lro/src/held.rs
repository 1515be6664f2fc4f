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
    pub(crate) fn first(&self) -> u32 {
        self.first
    }
}

/// A place for a frame. Those without one are the free list: `next` leads on in it, and `start` back.
#[derive(Debug)]
struct Node<F> {
    frame: Option<F>,
    start: u32,
    len: u32,
    next: u32,
}

/// The arena. A chain's next frame goes beside its last one if that place is free, so that a chain
/// of many lies in few cache lines, however many flows take turns.
#[derive(Debug)]
pub(crate) struct Held<F> {
    nodes: Vec<Node<F>>,
    free: u32,
    /// The place that was given back last.
    freed: u32,
}

/// Places between those that are free first at the beginning: what most chains grow to.
const APART: u32 = 64;

impl<F> Held<F> {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, NONE as usize - 1) as u32;
        let node = |_| Node { frame: None, start: NONE, len: 0, next: NONE };
        let mut held = Held { nodes: (0..capacity).map(node).collect(), free: NONE, freed: NONE };
        for start in (0..APART.min(capacity)).rev() {
            for index in (start..capacity).step_by(APART as usize).rev() {
                held.freed = NONE;
                held.give_back(index);
            }
        }
        held
    }

    pub(crate) fn capacity(&self) -> usize {
        self.nodes.len()
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Appends at the end, in constant time. There is room: [`is_full`](Self::is_full) was asked.
    #[inline]
    pub(crate) fn push_back(&mut self, chain: &mut Chain, frame: F, start: usize, len: u32) -> u32 {
        let beside = chain.last.wrapping_add(1);
        let index = self.fill(beside, frame, start, len);
        self.link_back(chain, index);
        index
    }

    /// Puts in front, in constant time; there is room.
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
        let (start, len) = (node.start as usize, node.len as usize);
        let frame = node.frame.take()?;
        self.give_back(index);
        Some(Slice { frame, start, len })
    }

    /// Moves the first frame of one chain to the end of another.
    pub(crate) fn move_first(&mut self, from: &mut Chain, to: &mut Chain) {
        if let Some(index) = self.unlink_front(from) {
            self.link_back(to, index);
        }
    }

    /// Puts all of `right` behind `left`, in constant time.
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

    /// Takes the place `wish` if it is there and free, or else any.
    #[inline]
    fn fill(&mut self, wish: u32, frame: F, start: usize, len: u32) -> u32 {
        let granted = self.nodes.get(wish as usize).is_some_and(|node| node.frame.is_none());
        let index = if granted { wish } else { self.free };
        let Node { start: previous, next, .. } = self.nodes[index as usize];
        match previous {
            NONE => self.free = next,
            previous => self.nodes[previous as usize].next = next,
        }
        if next != NONE {
            self.nodes[next as usize].start = previous;
        }
        self.nodes[index as usize] =
            Node { frame: Some(frame), start: start as u32, len, next: NONE };
        index
    }

    /// Frees a place: behind the one that was freed last if it lies beside that, so that a chain's
    /// places are free in the order in which the next one will want them, or else in front.
    #[inline]
    fn give_back(&mut self, index: u32) {
        let beside = index.wrapping_sub(1);
        let follows = beside == core::mem::replace(&mut self.freed, index)
            && self.nodes.get(beside as usize).is_some_and(|node| node.frame.is_none());
        let (previous, next) = match follows {
            true => (beside, core::mem::replace(&mut self.nodes[beside as usize].next, index)),
            false => (NONE, core::mem::replace(&mut self.free, index)),
        };
        if next != NONE {
            self.nodes[next as usize].start = index;
        }
        let node = &mut self.nodes[index as usize];
        (node.start, node.next) = (previous, next);
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
