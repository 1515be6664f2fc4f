//! A worker gives the figures of its connections, of a few at a time, in its turn.

use std::sync::mpsc::Sender;

use tcp::{Stack, State};
use wire::Seq;

use super::connections::{Connection, Running};
use super::figures::{Figures, Page};
use super::rings::Rings;

/// Connections of which the figures are given at once.
const PAGE: usize = 64;
/// Numbers that are looked at for them.
const LOOKS: u32 = 16 * PAGE as u32;

/// Answers one who asks for those from this number on. That one does not wait any more is no error.
pub(super) fn answer(app: &Rings, stack: &Stack, from: u32, to: &Sender<Page>) {
    let _ = to.send(page(app, stack, from));
}

fn page(app: &Rings, stack: &Stack, from: u32) -> Page {
    let end = app.all.numbers();
    let mut all = Vec::with_capacity(PAGE);
    let mut number = from;
    while number < end && number - from < LOOKS && all.len() < PAGE {
        let found = app.all.get(number).and_then(|one| Some((one.path, of(one, stack)?)));
        all.extend(found);
        number += 1;
    }
    Page { all, next: (number < end).then_some(number) }
}

fn of(connection: &Connection, stack: &Stack) -> Option<Figures> {
    use State::{CloseWait, Closing, FinWait2, LastAck, TimeWait};
    let Running { id, carried, .. } = connection.engine.as_ref()?;
    let engine = stack.connection(*id)?;
    let (standing, info) = (engine.standing(), engine.info());
    // A FIN has a number, and is no byte.
    let our_fin = u32::from(matches!(standing.state, FinWait2 | TimeWait));
    let their_fin = u32::from(matches!(standing.state, CloseWait | Closing | LastAck | TimeWait));
    let back = |seq: Seq, by: u32| seq + by.wrapping_neg();
    let (sent, received) =
        carried.at(back(standing.snd_una, our_fin), back(standing.rcv_nxt, their_fin));
    let (state, rtt, cwnd) = (standing.state, info.rtt, info.snd_cwnd.into());
    Some(Figures { state, sent: Some(sent), received: Some(received), rtt, cwnd })
}
