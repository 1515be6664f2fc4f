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
}

/// First and last of a list whose links live in the nodes; `links` finds them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { first: NONE, last: NONE };

    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(crate) fn push_back<N>(
        &mut self,
        nodes: &mut [N],
        index: u32,
        links: fn(&mut N) -> &mut Links,
    ) {
        *links(&mut nodes[index as usize]) = Links { previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = index,
            last => links(&mut nodes[last as usize]).next = index,
        }
        self.last = index;
    }

    pub(crate) fn remove<N>(
        &mut self,
        nodes: &mut [N],
        index: u32,
        links: fn(&mut N) -> &mut Links,
    ) {
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
