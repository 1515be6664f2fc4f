//! The connection of a NIC that has died, of its record, its rings and what was spilled.

use std::fmt;

use handoff::Epoch;
use handoff::mirror::{MirrorError, Record};
use handoff::ring::{Hostile, receive, send};
use handoff::session::Area;
use handoff::spill::{Direction, Owner, Piece, gather};
use tcp::repair::Repair;
use wire::{Nanos, Seq};

/// Why a connection cannot be put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unrecovered {
    /// Its application wrote into the rings what is not possible.
    Hostile,
    /// Bytes are missing that the record promises.
    Bytes,
    /// See [`MirrorError`].
    Record(MirrorError),
}

impl fmt::Display for Unrecovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unrecovered::Hostile => {
                f.write_str("its application wrote into its rings what is not possible")
            }
            Unrecovered::Bytes => f.write_str("bytes are missing"),
            Unrecovered::Record(error) => write!(f, "{error}"),
        }
    }
}

/// The connection of a record at this place, with its rings and what was spilled, as the kernel takes it at this time
/// of CLOCK_MONOTONIC. The epoch of its rings ends.
///
/// # Errors
/// Why it cannot be put back.
pub(crate) fn recover(
    record: &Record,
    place: u32,
    area: &Area<'_>,
    pieces: &[Piece<'_>],
    monotonic: Nanos,
) -> Result<Repair, Unrecovered> {
    let epoch = record.agreed.epoch;
    let spilled = |direction, from: Seq, to: Seq| {
        let owner = Owner { place, epoch, direction };
        let own: Vec<_> = pieces.iter().copied().filter(|piece| piece.owner == owner).collect();
        gather(&own, from, to).ok_or(Unrecovered::Bytes)
    };
    let moving = &record.moving;

    let (una, in_ring) = (moving.snd_una, Seq(moving.send_at));
    let elsewhere =
        if una.before(in_ring) { spilled(Direction::Sent, una, in_ring)? } else { Vec::new() };
    let acknowledged = if una.after(in_ring) { una - in_ring } else { 0 };
    let sent = [elsewhere, written(area, epoch, moving.send_at, acknowledged)?].concat();

    let end = moving.received_end();
    let elsewhere = spilled(Direction::Received, Seq(moving.receive_at), end)?;
    let unread = [unread(area, epoch, moving.receive_at)?, elsewhere].concat();
    record.to_repair(sent, unread, monotonic).map_err(Unrecovered::Record)
}

/// The bytes of the send ring behind the first `skip`.
fn written(area: &Area<'_>, epoch: Epoch, head: u32, skip: u32) -> Result<Vec<u8>, Unrecovered> {
    let Ok(ring) = area.send() else { return Ok(Vec::new()) };
    let ring = match send::Nic::recover(ring, epoch, head) {
        Ok(ring) => ring,
        Err(Hostile::Epoch) => return Ok(Vec::new()),
        Err(Hostile::Index) => return Err(Unrecovered::Hostile),
    };
    let mut bytes = vec![0; ring.len().saturating_sub(skip) as usize];
    ring.peek(skip, &mut bytes);
    Ok(bytes)
}

/// The bytes of the receive ring that were not read.
fn unread(area: &Area<'_>, epoch: Epoch, tail: u32) -> Result<Vec<u8>, Unrecovered> {
    let Ok(ring) = area.receive() else { return Ok(Vec::new()) };
    let ring = match receive::Nic::recover(ring, epoch, tail) {
        Ok(ring) => ring,
        // The NIC died before it opened the ring: all is where the OS side has spilled it.
        Err(Hostile::Epoch) => return Ok(Vec::new()),
        Err(Hostile::Index) => return Err(Unrecovered::Hostile),
    };
    let mut bytes = vec![0; ring.len() as usize];
    ring.peek(&mut bytes);
    Ok(bytes)
}
