//! Which connections the NIC is to run, and how many.
//!
//! A [`Policy`] says which, from what is seen of a connection. [`LoadControl`] says how many, from the packets that
//! wait at the NIC.

pub mod carried;
mod load;
mod ports;
mod text;

use alloc::vec::Vec;

use wire::Nanos;

pub use load::{LoadControl, LoadSettings};
pub use ports::{PORT_RANGES_MAX, Ports};
pub use text::PolicyError;

/// When a connection goes to the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum When {
    /// Never, not by hand either.
    Never,
    /// When `wharf handoff` asks for it.
    ByHand,
    /// When it is accepted or connected.
    AtAccept,
    /// When it is likely to be worth it, by what others of the same service have [carried].
    Learned,
    /// When it has proved to be worth it, by what comes first. One of both is there.
    After {
        /// Bytes, sent or received, whichever are more.
        bytes: Option<u64>,
        /// Time since it was accepted or connected.
        time: Option<Nanos>,
    },
}

/// `handoff.policy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// When.
    pub when: When,
    /// Of which ports; `None` for all.
    pub ports: Option<Ports>,
}

/// When it is likely to be worth it.
impl Default for Policy {
    fn default() -> Self {
        Policy { when: When::Learned, ports: None }
    }
}

/// What is seen of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Port of this end.
    pub local_port: u16,
    /// Port of the peer.
    pub remote_port: u16,
    /// When it was accepted or connected.
    pub since: Nanos,
    /// Bytes sent so far.
    pub sent: u64,
    /// Bytes received so far.
    pub received: u64,
    /// It was at the NIC already, and is back because the NIC gave it back.
    pub given_back: bool,
}

impl Policy {
    /// Whether the connection is to go to the NIC now. A policy that learns asks whether one that has carried so many bytes
    /// is [worth](carried::Carried::is_worth) it.
    pub fn picks(&self, seen: &Seen, now: Nanos, is_worth: impl FnOnce(u64) -> bool) -> bool {
        self.admits(seen) && self.is_time(seen, now, is_worth)
    }

    /// When to look again if no more bytes come; `None` if only bytes can change the answer, or nothing can.
    pub fn next_deadline(&self, seen: &Seen) -> Option<Nanos> {
        match self.when {
            When::After { time: Some(time), .. } if self.admits(seen) => {
                Some(seen.since.saturating_add(time))
            }
            _ => None,
        }
    }

    /// Whether `wharf handoff` may ask for the connection.
    pub fn allows_by_hand(&self) -> bool {
        self.when != When::Never
    }

    fn admits(&self, seen: &Seen) -> bool {
        let named = |ports: &Ports| ports.has(seen.local_port) || ports.has(seen.remote_port);
        !seen.given_back && self.ports.as_ref().is_none_or(named)
    }

    fn is_time(&self, seen: &Seen, now: Nanos, is_worth: impl FnOnce(u64) -> bool) -> bool {
        let carried = seen.sent.max(seen.received);
        match self.when {
            When::Never | When::ByHand => false,
            When::AtAccept => true,
            When::Learned => is_worth(carried),
            When::After { bytes, time } => {
                bytes.is_some_and(|bytes| carried >= bytes)
                    || time.is_some_and(|time| now.saturating_sub(seen.since) >= time)
            }
        }
    }
}

/// Whom to give back when there are too many: those that have been idle longest. `last` has for each connection
/// when it last moved data; the first `count` places of the result are to go.
pub fn idle_longest<T: Copy>(last: &[(T, Nanos)], count: usize) -> Vec<T> {
    let mut order: Vec<_> = last.to_vec();
    let count = count.min(order.len());
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by_key(count - 1, |(_, at)| *at);
    }
    order.truncate(count);
    order.sort_by_key(|(_, at)| *at);
    order.into_iter().map(|(which, _)| which).collect()
}
