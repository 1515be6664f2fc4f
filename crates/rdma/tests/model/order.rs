//! The order in which work of one queue pair takes effect at its responder, by the table of the specifications.
//!
//! - InfiniBand Architecture Specification, volume 1, section 9.5: a responder executes Sends, RDMA Writes and atomic operations
//!   in the order in which their messages are received; section 9.4.5: an atomic operation may be executed before an RDMA Read
//!   that was posted before it has read its data, unless it is posted with a fence; section 10.8.3.3: the table, in which `F`
//!   stands for an order that is kept only where the second request has the fence.
//! - RFC 5040, section 5.5: the table of RDMAP, in which the payload of an RDMA Read may be captured behind later Writes and
//!   Sends, while requests of reads are answered in their order.
//! - RFC 7306, section 5.4: the responder processes Atomic Requests in their order. Atomic Responses may be generated after
//!   later Writes and Sends are placed or delivered, so that an atomic operation may take effect behind these. Section 7: the
//!   table of RDMAP with atomic operations and immediate data.
//!
//! The device keeps three orders more than these ask for:
//!
//! - A read behind which an atomic operation is posted, with or without a fence, shows the value from before it, as with rxe and
//!   cards.
//! - An atomic operation takes effect before Writes and before Sends that are posted behind it. The InfiniBand specification asks
//!   for that, and RFC 7306 does not.

use std::collections::{BTreeMap, BTreeSet};

/// Work that reads or writes memory of the responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Write,
    Send,
    Read,
    Atomic,
}

/// Order in which work of two kinds takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Always,
    /// With a fence; else the second may come first.
    Fence,
    /// Kept by this device, where at least one of the specifications asks for a fence.
    Device,
}

/// Rows are the first, columns the second: Write, Send, Read, Atomic.
const TABLE: [[Order; 4]; 4] = {
    use Order::{Always, Device, Fence};
    [
        /* Write  */ [Always, Always, Always, Always],
        /* Send   */ [Always, Always, Always, Always],
        /* Read   */ [Fence, Fence, Always, Device],
        /* Atomic */ [Device, Device, Always, Always],
    ]
};

/// Returns true if the first of two takes effect before the second, without a fence.
pub(crate) fn is_kept(first: Kind, second: Kind) -> bool {
    TABLE[first as usize][second as usize] != Order::Fence
}

/// The bytes that a read may show whose response is not sent yet, where these are not those of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// Bytes from before work that may come first, which the read may show as well.
    also: BTreeMap<(u64, u64), BTreeSet<u8>>,
    /// Bytes that it must show.
    fixed: BTreeMap<(u64, u64), BTreeSet<u8>>,
}

impl Shown {
    /// Other work of the queue pair, whose request came behind the read's, is about to change a byte.
    pub(crate) fn precedes(&mut self, by: Kind, place: (u64, u64), before: u8) {
        if self.fixed.contains_key(&place) {
            return;
        }
        if is_kept(Kind::Read, by) {
            let mut shown = self.also.remove(&place).unwrap_or_default();
            shown.insert(before);
            self.fixed.insert(place, shown);
        } else {
            self.also.entry(place).or_default().insert(before);
        }
    }

    /// Returns true if the read may show this byte, where memory has the other.
    pub(crate) fn allows(&self, place: (u64, u64), byte: u8, now: u8) -> bool {
        match self.fixed.get(&place) {
            Some(fixed) => fixed.contains(&byte),
            None => byte == now || self.also.get(&place).is_some_and(|of| of.contains(&byte)),
        }
    }
}

/// The model does all other work in its order.
#[test]
fn reads_alone_may_be_overtaken() {
    let all = [Kind::Write, Kind::Send, Kind::Read, Kind::Atomic];
    for first in all {
        for second in all {
            let may = first == Kind::Read && matches!(second, Kind::Write | Kind::Send);
            assert_eq!(is_kept(first, second), !may, "{first:?} before {second:?}");
        }
    }
}
