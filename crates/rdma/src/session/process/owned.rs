//! Which objects were made in which context, and in which order they end with it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Objects;

/// Kinds of objects, in the order in which they can end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Qp,
    Srq,
    Cq,
    Window,
    Region,
    Pd,
}

#[derive(Debug, Default)]
pub(super) struct Owned {
    all: BTreeSet<(u32, Kind, u32)>,
    /// The context of each, and what it counts for.
    of: BTreeMap<(Kind, u32), (u32, u64)>,
    count: Objects,
}

/// A region or window by what stays of its STag when its key changes.
pub(super) fn index(stag: u32) -> u32 {
    stag >> 8
}

impl Owned {
    /// An object of so many bytes.
    pub(super) fn add(&mut self, context: u32, kind: Kind, name: u32, bytes: u64) {
        self.remove(kind, name);
        self.all.insert((context, kind, name));
        self.of.insert((kind, name), (context, bytes));
        *self.number(kind) += 1;
        self.count.registered += bytes;
    }

    pub(super) fn remove(&mut self, kind: Kind, name: u32) {
        if let Some((context, bytes)) = self.of.remove(&(kind, name)) {
            self.all.remove(&(context, kind, name));
            *self.number(kind) -= 1;
            self.count.registered -= bytes;
        }
    }

    pub(super) fn context(&self, kind: Kind, name: u32) -> Option<u32> {
        self.of.get(&(kind, name)).map(|(context, _)| *context)
    }

    /// All of a context's, in the order in which they can end.
    pub(super) fn of_context(&self, context: u32) -> Vec<(Kind, u32)> {
        let range = (context, Kind::Qp, 0)..=(context, Kind::Pd, u32::MAX);
        self.all.range(range).map(|(_, kind, name)| (*kind, *name)).collect()
    }

    pub(super) fn count(&self) -> Objects {
        self.count
    }

    fn number(&mut self, of: Kind) -> &mut usize {
        match of {
            Kind::Qp => &mut self.count.qps,
            Kind::Srq => &mut self.count.srqs,
            Kind::Cq => &mut self.count.cqs,
            Kind::Window => &mut self.count.windows,
            Kind::Region => &mut self.count.regions,
            Kind::Pd => &mut self.count.pds,
        }
    }
}
