//! The connection of a NIC that has died, of its record and its rings.

use std::fmt;

use handoff::mirror::{MirrorError, Record};
use handoff::ring::{Hostile, receive, send};
use handoff::session::Area;
use tcp::repair::Repair;
use wire::Nanos;

/// Why a connection cannot be put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unrecovered {
    /// Its application wrote into the rings what is not possible.
    Hostile,
    /// See [`MirrorError`].
    Record(MirrorError),
}

impl fmt::Display for Unrecovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unrecovered::Hostile => {
                f.write_str("its application wrote into its rings what is not possible")
            }
            Unrecovered::Record(error) => write!(f, "{error}"),
        }
    }
}

impl From<Hostile> for Unrecovered {
    fn from(_: Hostile) -> Self {
        Unrecovered::Hostile
    }
}

/// The connection of a record, with its rings, as the kernel takes it at this time of CLOCK_MONOTONIC. The epoch of its
/// rings ends.
///
/// # Errors
/// Why it cannot be put back.
pub(crate) fn recover(
    record: &Record,
    area: &Area<'_>,
    monotonic: Nanos,
) -> Result<Repair, Unrecovered> {
    let (epoch, moving) = (record.agreed.epoch, &record.moving);
    let (Ok(sent), Ok(received)) = (area.send(), area.receive()) else {
        return Err(Unrecovered::Hostile);
    };
    let sent = send::Nic::recover(sent, epoch, moving.sent_from().0)?;
    let received = receive::Nic::recover(received, epoch, moving.received_end().0)?;
    let mut send_queue = vec![0; sent.len() as usize];
    sent.peek(0, &mut send_queue);
    let mut recv_queue = vec![0; received.len() as usize];
    received.peek(&mut recv_queue);
    record.to_repair(send_queue, recv_queue, monotonic).map_err(Unrecovered::Record)
}
