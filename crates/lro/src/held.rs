//! Frames held for all flows, in one fixed arena; each flow's are a chain through it.

use alloc::vec::Vec;

use crate::list::NONE;

/// The payload of one held frame: `len` bytes from `start` on.
#[derive(Debug)]
pub struct Slice<F> {
    /// The frame, given back to its owner.
    pub frame: F,
    /// First payload byte, from the start of the frame.
    pub start: usize,
    /// Payload bytes, padding left out.
    pub len: usize,
}

/// One flow's held frames, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    pub(crate) const EMPTY: Chain = Chain { first: NONE, last: NONE, len: 0 };

    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

#[derive(Debug)]
struct Node<F> {
    frame: Option<F>,
    start: u32,
    len: u32,
    next: u32,
}

/// The arena. Free nodes form a chain of their own.
#[derive(Debug)]
pub(crate) struct Held<F> {
    nodes: Vec<Node<F>>,
    free: u32,
}

impl<F> Held<F> {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, NONE as usize - 1) as u32;
        let node = |i| Node { frame: None, start: 0, len: 0, next: i };
        let mut nodes: Vec<Node<F>> = (1..capacity).map(node).collect();
        nodes.push(node(NONE));
        Held { nodes, free: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Appends in order, in constant time. There is room: [`is_full`](Self::is_full) was asked.
    #[inline]
    pub(crate) fn push(&mut self, chain: &mut Chain, frame: F, start: usize, len: u32) {
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        *node = Node { frame: Some(frame), start: start as u32, len, next: NONE };
        match chain.last {
            NONE => chain.first = index,
            last => self.nodes[last as usize].next = index,
        }
        chain.last = index;
        chain.len += 1;
    }

    /// Takes the oldest frame off the chain.
    #[inline]
    pub(crate) fn pop(&mut self, chain: &mut Chain) -> Option<Slice<F>> {
        let index = chain.first;
        if index == NONE {
            return None;
        }
        let node = &mut self.nodes[index as usize];
        chain.first = core::mem::replace(&mut node.next, self.free);
        self.free = index;
        chain.len -= 1;
        if chain.first == NONE {
            chain.last = NONE;
        }
        let frame = node.frame.take()?;
        Some(Slice { frame, start: node.start as usize, len: node.len as usize })
    }
}
