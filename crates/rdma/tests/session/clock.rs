//! Time as a value: completion events of two devices with random work, moderation and arming. Each queue that is armed
//! and has an entry for it gets one event, none comes later than the queue's period, and none is lost.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use rdma::session::Request;
use rdma::session::completions::{ANY, SOLICITED};
use rdma::session::process::Told;
use rdma::session::work::{Send, Shape};
use rdma::verbs::{Flags, Work};
use testkit::bytes::Bytes;

use super::side::Side;
use super::sides;
use crate::world::BASE;

/// What the application of one side knows of its completion queue.
#[derive(Debug, Default)]
struct Known {
    /// An event waits for so many entries, or so long.
    count: u64,
    period: u64,
    /// What was asked for and has not come.
    armed: Option<u64>,
    /// Entries that there were since then, and when the first of them came that it waits for.
    entries: u64,
    since: Option<u64>,
    /// Whether each message that comes is solicited, and receives that are posted.
    solicited: VecDeque<bool>,
    receives: usize,
}

/// An entry is a receive.
const RECEIVE: u8 = 128;

impl Known {
    /// An event is asked for. What is asked for more generally stays asked for, and what came before is not waited for.
    fn arm(&mut self, what: u64) {
        let before = self.armed.unwrap_or(0);
        if before & ANY == 0 {
            self.entries = 0;
        }
        self.armed = Some(before | what);
    }

    /// What a step has brought.
    fn step(&mut self, now: u64, side: &mut Side) {
        for entry in side.poll() {
            assert_eq!(entry.status, 0);
            let is_receive = entry.opcode >= RECEIVE;
            let is_solicited = is_receive && self.solicited.pop_front().unwrap();
            self.receives -= usize::from(is_receive);
            self.entries += 1;
            let counts = self.armed.is_some_and(|what| what & ANY != 0 || is_solicited);
            if counts {
                self.since = self.since.or(Some(now));
            }
        }
        let told = std::iter::from_fn(|| side.process.poll_told());
        let events = told.filter(|told| matches!(told, Told::Completion { .. })).count();
        assert!(events <= usize::from(self.armed.is_some()), "an event that was not asked for");
        if events > 0 {
            (self.armed, self.since) = (None, None);
        }
        // As many as are waited for are there: it is told at once. So it is without moderation.
        if let (Some(what), Some(_)) = (self.armed, self.since) {
            let is_enough = what & ANY != 0 && self.entries >= self.count;
            assert!(!is_enough && self.period > 0, "an event is lost: {self:?}");
        }
        // Who sleeps until the deadline is not late.
        if let Some(since) = self.since {
            let deadline = side.process.deadline().expect("nobody would wake for it");
            assert!(deadline <= since + self.period, "{deadline} for {self:?}");
        }
    }
}

/// A device sleeps until its deadline, and no longer.
fn sleep(side: &mut Side, known: &mut Known, until: u64) {
    while let Some(due) = side.process.deadline().filter(|due| *due <= until) {
        side.process.expire(side.memory, due);
        known.step(due, side);
    }
}

/// Posts a send of no bytes; whether there was room.
fn post(side: &mut Side, work: Work, flags: Flags) -> bool {
    let Some(entry) = side.sends.slot() else { return false };
    let send = Send { wr_id: 1, work, flags, shape: Shape::Sges(0) };
    for (word, value) in entry.iter().zip(send.encode()) {
        word.store(value, Ordering::Relaxed);
    }
    side.sends.push();
    side.sends.publish();
    side.control().post(side.qp.0 as usize & 0xfff);
    true
}

/// A turn of one device, and what its peer makes of it.
fn turn(side: &mut Side, peer: &mut Side, held: &mut Vec<u8>, now: u64) {
    let mut pairs = Vec::new();
    side.process.take_posts(side.memory, |qp| pairs.push(qp));
    for qp in pairs {
        side.process.pull(side.memory, now, qp).unwrap();
    }
    let mut buffer = vec![0; 4096];
    while side.process.wants_transmit(side.qp) {
        let Side { process, memory, ram, qp, .. } = side;
        let sent = process.transmit(memory, now, *qp, &mut buffer, ram).unwrap();
        held.extend_from_slice(&buffer[..sent.len]);
        if sent.len == 0 {
            break;
        }
    }
    let Side { process, memory, ram, qp, .. } = peer;
    let taken = process.receive(memory, now, *qp, &[held], ram).unwrap();
    held.drain(..taken);
}

/// A random run.
pub(crate) fn run(bytes: &mut Bytes<'_>) {
    let (a, b) = sides();
    let mut sides = [a, b];
    let mut known = [Known::default(), Known::default()];
    let mut held = [Vec::new(), Vec::new()];
    let mut now = 0;
    for (side, known) in sides.iter_mut().zip(&mut known) {
        let (count, period) = (1 + u16::from(bytes.next() % 6), u16::from(bytes.next() % 4) * 100);
        side.ask(&Request::Moderate { cq: side.cq, count, period }).unwrap();
        (known.count, known.period) = (count.into(), u64::from(period) * 1000);
    }
    while !bytes.is_empty() {
        let which = usize::from(bytes.next() & 1);
        let (side, peer) = two(&mut sides, which);
        match bytes.next() % 8 {
            0 | 1 => {
                let of = &mut known[1 - which];
                let is_send = bytes.next() & 1 == 0 && of.receives > of.solicited.len();
                let solicited = bytes.next() & 1 == 0;
                let work = match is_send {
                    true => Work::Send { invalidate: None },
                    false => Work::Write { stag: peer.stag, offset: BASE },
                };
                let signaled = bytes.next() & 3 == 0;
                let flags = Flags { signaled, solicited, ..Flags::default() };
                if post(side, work, flags) && is_send {
                    of.solicited.push_back(solicited);
                }
            }
            2 => known[which].receives += usize::from(side.receive(2, &[])),
            3 | 4 => turn(side, peer, &mut held[which], now),
            5 => {
                let what = if bytes.next() & 1 == 0 { ANY } else { SOLICITED };
                side.completions.arm(what);
                known[which].arm(what);
            }
            _ => {
                now += bytes.pick(&[1_000, 50_000, 100_000, 400_000]);
                for (side, known) in sides.iter_mut().zip(&mut known) {
                    sleep(side, known, now);
                }
            }
        }
        for (side, known) in sides.iter_mut().zip(&mut known) {
            known.step(now, side);
        }
    }
    // Nothing more happens but that time goes by.
    for (side, known) in sides.iter_mut().zip(&mut known) {
        sleep(side, known, u64::MAX);
        assert_eq!((known.since, side.process.deadline()), (None, None));
    }
}

fn two(sides: &mut [Side; 2], which: usize) -> (&mut Side, &mut Side) {
    let [a, b] = sides;
    if which == 0 { (a, b) } else { (b, a) }
}
