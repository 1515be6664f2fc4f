//! Doubly linked lists through a slice of nodes: order without allocation.

/// No neighbour.
pub(crate) const NONE: u32 = u32::MAX;

/// A node's neighbours in one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    pub(crate) const ALONE: Links = Links { previous: NONE, next: NONE };

    pub(crate) fn previous(&self) -> u32 {
        self.previous
    }

    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// For nodes that are in no list: another of them.
    #[inline]
    pub(crate) fn set_next(&mut self, next: u32) {
        self.next = next;
    }
}

/// First and last of a list whose links live in the nodes; `links` finds them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { first: NONE, last: NONE, len: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    /// The last, or `NONE`.
    #[inline]
    pub(crate) fn last_or_none(&self) -> u32 {
        self.last
    }

    #[inline]
    pub(crate) fn push_back<N>(
        &mut self,
        nodes: &mut [N],
        index: u32,
        links: fn(&mut N) -> &mut Links,
    ) {
        self.insert_after(nodes, self.last, index, links);
    }

    /// Enters a node behind `left`, or as the first if that is `NONE`.
    #[inline]
    pub(crate) fn insert_after<N>(
        &mut self,
        nodes: &mut [N],
        left: u32,
        index: u32,
        links: fn(&mut N) -> &mut Links,
    ) {
        self.len += 1;
        let right = match left {
            NONE => core::mem::replace(&mut self.first, index),
            left => core::mem::replace(&mut links(&mut nodes[left as usize]).next, index),
        };
        match right {
            NONE => self.last = index,
            right => links(&mut nodes[right as usize]).previous = index,
        }
        *links(&mut nodes[index as usize]) = Links { previous: left, next: right };
    }

    /// Takes the first out.
    #[inline]
    pub(crate) fn pop_front<N>(
        &mut self,
        nodes: &mut [N],
        links: fn(&mut N) -> &mut Links,
    ) -> Option<u32> {
        let index = self.first()?;
        self.len -= 1;
        self.first = core::mem::replace(links(&mut nodes[index as usize]), Links::ALONE).next;
        match self.first {
            NONE => self.last = NONE,
            first => links(&mut nodes[first as usize]).previous = NONE,
        }
        Some(index)
    }

    #[inline]
    pub(crate) fn remove<N>(
        &mut self,
        nodes: &mut [N],
        index: u32,
        links: fn(&mut N) -> &mut Links,
    ) {
        self.len -= 1;
        let Links { previous, next } =
            core::mem::replace(links(&mut nodes[index as usize]), Links::ALONE);
        match previous {
            NONE => self.first = next,
            previous => links(&mut nodes[previous as usize]).next = next,
        }
        match next {
            NONE => self.last = previous,
            next => links(&mut nodes[next as usize]).previous = previous,
        }
    }
}
