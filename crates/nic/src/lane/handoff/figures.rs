//! Figures of connections, for those who ask.

use tcp::repair::Repair;
use tcp::{FourTuple, Nanos, State};
use wire::Seq;

use super::records::first_of;

/// How a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// State.
    pub state: State,
    /// Bytes that the peer has acknowledged since the connection last moved.
    pub sent: Option<u64>,
    /// Bytes that have come in order since.
    pub received: Option<u64>,
    /// Smoothed round-trip time in nanoseconds; 0 before the first measurement.
    pub rtt: Nanos,
    /// Congestion window in bytes.
    pub cwnd: u64,
}

/// Those of a few connections.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) all: Vec<(FourTuple, Figures)>,
    /// Where to go on; `None` at the end.
    pub(crate) next: Option<u32>,
}

/// Where a connection began at the NIC, and about how far it has come: what is exact are sequence numbers, which wrap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    first_sent: Seq,
    first_received: Seq,
    sent: u64,
    received: u64,
}

impl Carried {
    /// Of a connection that begins in this state.
    pub(super) fn since(state: &Repair) -> Self {
        let (first_sent, first_unread) = first_of(state);
        let first_received = first_unread + state.recv_queue.len() as u32;
        Carried { first_sent, first_received, sent: 0, received: 0 }
    }

    /// So many bytes have left the send ring, and entered the receive ring.
    #[inline]
    pub(super) fn add(&mut self, sent: u32, received: u32) {
        self.sent += u64::from(sent);
        self.received += u64::from(received);
    }

    /// Bytes sent and received, where the engine has come to these sequence numbers.
    pub(super) fn at(&self, sent: Seq, received: Seq) -> (u64, u64) {
        let sent = widen(self.sent, sent - self.first_sent);
        (sent, widen(self.received, received - self.first_received))
    }
}

/// The number whose lowest bits are `low` that is nearest to another.
fn widen(near: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(ahead.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_near_is_found_by_its_lowest_bits(exact: u64, off in -(1_i64 << 30)..1 << 30) {
            let near = exact.saturating_add_signed(off);
            prop_assert_eq!(widen(near, exact as u32), exact);
        }
    }
}
