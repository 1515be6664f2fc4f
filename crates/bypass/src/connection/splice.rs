//! Rings that the program's connections have lent the NIC ([`handoff::ring::splice`]). A program that `wharf run --splice` has
//! started, and that moves what one connection receives by a pipe to another one, again and again, does so when it asks for
//! more and its pipe is empty: the call says that there is nothing, and the NIC goes on. What the program does with either
//! connection takes them back.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use handoff::command::NicControl;
use handoff::ring::splice::TakenBack;
use handoff::ring::{receive, send};
use handoff::session::status::Place;

use super::place::AtNic;
use super::{AWAY, Connection, Patience, SHUT_READ, SHUT_WRITE, Waiting, epoll, of};
use crate::{os, session, timeout};

/// Bytes that a connection carries at least that is lent.
const MUCH: u64 = 1 << 30;
/// So often in a row all that went into a pipe has gone to the same connection.
const ROUNDS: u32 = 4;
/// A call that asks for so many bytes asks for all that comes: more than a pipe holds, and than what ends somewhere.
const ALL: usize = 1 << 30;
/// How often a thread yields that waits for the NIC, before it looks whether wharf is there.
const YIELDS: u32 = 1 << 10;

/// What the program does with what a connection receives.
pub(super) struct Splices {
    /// The connection that it is sent on, when that began, and by how much its index is more than this one's.
    to: AtomicPtr<u8>,
    since: AtomicU64,
    ahead: AtomicU32,
    /// How often that was so in a row.
    rounds: AtomicU32,
    /// A thread is about to lend the ring.
    is_lending: AtomicBool,
    /// The connection whose ring was lent last so that this one sends what comes there.
    from: AtomicPtr<u8>,
}

/// Bytes that this thread has moved into a pipe, and not all of them out of it.
#[derive(Clone, Copy)]
struct Round {
    from: &'static Connection,
    pipe: u64,
    /// Indices of the first of them, and of what is behind them.
    begin: u32,
    end: u32,
    /// Bytes that are in the pipe still.
    left: u32,
    /// Where the others are, if there are any, from which index on, and up to which.
    to: Option<(&'static Connection, u32, u32)>,
}

thread_local! {
    static ROUND: Cell<Option<Round>> = const { Cell::new(None) };
}

fn set_round(round: Option<Round>) -> Option<Round> {
    ROUND.try_with(|last| last.replace(round)).ok().flatten()
}

impl Splices {
    pub(super) const fn new() -> Self {
        Splices {
            to: AtomicPtr::new(std::ptr::null_mut()),
            since: AtomicU64::new(0),
            ahead: AtomicU32::new(0),
            rounds: AtomicU32::new(0),
            is_lending: AtomicBool::new(false),
            from: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Of another connection.
    pub(super) fn clear(&self) {
        self.rounds.store(0, Ordering::Relaxed);
        self.is_lending.store(false, Ordering::Relaxed);
        self.to.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.from.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

fn word(connection: &'static Connection) -> *mut u8 {
    std::ptr::from_ref(connection).cast_mut().cast()
}

impl Connection {
    /// The program has moved so many bytes from here into this pipe.
    pub(crate) fn moved_into(&'static self, pipe: impl FnOnce() -> Option<u64>, count: isize) {
        let Ok(count) = u32::try_from(count) else { return };
        if count == 0 || !session::splices() {
            return;
        }
        let Some((pipe, at)) = pipe().zip(self.there()) else { return };
        let Ok(ring) = at.area.receive() else { return };
        let end = receive::App::new(ring).index();
        let begin = end.wrapping_sub(count);
        let last = set_round(None).filter(|last| {
            std::ptr::eq(last.from, self) && last.pipe == pipe && last.end == begin && last.left > 0
        });
        set_round(Some(match last {
            Some(last) => Round { end, left: last.left.saturating_add(count), ..last },
            None => Round { from: self, pipe, begin, end, left: count, to: None },
        }));
    }

    /// The program has moved so many bytes out of this pipe to here.
    pub(crate) fn moved_out(&'static self, pipe: impl FnOnce() -> Option<u64>, count: usize) {
        if count == 0 || !session::splices() {
            return;
        }
        let Some(mut round) = set_round(None) else { return };
        let Some((pipe, at)) = pipe().zip(self.there()) else { return };
        let (Ok(ring), Ok(count)) = (at.area.send(), u32::try_from(count)) else { return };
        let Ok(end) = send::App::new(ring).end() else { return };
        let begin = end.wrapping_sub(count);
        let first = match round.to {
            Some((to, first, last)) if std::ptr::eq(to, self) && last == begin => Some(first),
            Some(_) => None,
            None => Some(begin),
        };
        let Some(first) = first.filter(|_| round.pipe == pipe && count <= round.left) else {
            return;
        };
        round.to = Some((self, first, end));
        round.left -= count;
        if round.left > 0 {
            set_round(Some(round));
            return;
        }
        let (from, ahead) = (&round.from.splices, first.wrapping_sub(round.begin));
        let since = self.since.load(Ordering::Relaxed);
        let is_as_before = from.to.load(Ordering::Relaxed) == word(self)
            && from.since.load(Ordering::Relaxed) == since
            && from.ahead.load(Ordering::Relaxed) == ahead;
        if is_as_before {
            from.rounds.fetch_add(1, Ordering::Relaxed);
        } else {
            from.to.store(word(self), Ordering::Relaxed);
            from.since.store(since, Ordering::Relaxed);
            from.ahead.store(ahead, Ordering::Relaxed);
            from.rounds.store(1, Ordering::Relaxed);
        }
    }

    /// Lends the NIC what it needs to go on as the program has done, where that asks for so many bytes, which are to go into a
    /// pipe that `is_empty` says is empty. Returns whether it has.
    pub(crate) fn lends(
        &'static self,
        count: usize,
        waiting: &Waiting,
        is_empty: impl FnOnce() -> bool,
    ) -> bool {
        let splices = &self.splices;
        if splices.rounds.load(Ordering::Relaxed) < ROUNDS || count < ALL || !session::splices() {
            return false;
        }
        if waiting.patience() != Patience::None || !is_empty() {
            return false;
        }
        let Some(to) = of(splices.to.load(Ordering::Relaxed)) else { return false };
        let Some((at, other)) = self.there().zip(to.there()) else { return false };
        let worker = |at: &AtNic| at.area.worker().load(Ordering::Relaxed);
        let status = self.status(&at);
        let is_one_worker =
            std::ptr::eq(at.session, other.session) && worker(&at) == worker(&other);
        let is_shut = self.shut.load(Ordering::Acquire) & SHUT_READ != 0
            || to.shut.load(Ordering::Acquire) & SHUT_WRITE != 0;
        if !is_one_worker || is_shut || status.peer_closed || status.error != 0 {
            return false;
        }
        if splices.is_lending.swap(true, Ordering::Acquire) {
            return false;
        }
        let is_lent = self.lend(&at, to, &other);
        splices.is_lending.store(false, Ordering::Release);
        if !is_lent {
            return false;
        }
        // The program is to see some of it before the next time.
        splices.rounds.store(0, Ordering::Relaxed);
        if self.control(&at, NicControl::Splice(other.cid.0)) {
            // How much the NIC moves from now on is not known here.
            [&self.received, &to.sent].iter().for_each(|counter| super::count(counter, MUCH));
            return true;
        }
        self.take_back();
        false
    }

    fn lend(&'static self, at: &AtNic, to: &'static Connection, other: &AtNic) -> bool {
        let (Ok(from), Ok(ring)) = (at.area.receive(), other.area.send()) else { return false };
        // Nobody is in the middle of writing there, nor waits for room.
        let Some(_no_writer) = to.sending.take() else { return false };
        to.take_back_sent();
        if !to.is_at(other) || to.has_room(other) != Ok(true) {
            return false;
        }
        let splices = &self.splices;
        if to.since.load(Ordering::Relaxed) != splices.since.load(Ordering::Relaxed) {
            return false;
        }
        to.splices.from.store(word(self), Ordering::SeqCst);
        let ahead = splices.ahead.load(Ordering::Relaxed);
        let is_right = |index: u32| {
            let goes_on = send::App::new(ring).end() == Ok(index.wrapping_add(ahead));
            goes_on && self.is_at(at)
        };
        let lent = receive::App::new(from).lend((other.cid, at.area.notes()), is_right);
        lent == Ok(true)
    }

    /// Where it is, if the NIC has it for certain.
    fn there(&'static self) -> Option<AtNic> {
        let at = self.nic().filter(|_| self.state.load(Ordering::Acquire) == AWAY)?;
        (self.look(&at) == Place::Nic).then_some(at)
    }

    /// Whether it has lent its receive ring.
    fn has_lent(&'static self) -> bool {
        let at = self.nic().filter(|_| self.state.load(Ordering::Acquire) == AWAY);
        let ring = at.and_then(|at| at.area.receive().ok());
        ring.is_some_and(|ring| receive::App::new(ring).is_lent())
    }

    /// The connection that has lent its ring for this one to send what comes there.
    fn lender(&'static self) -> Option<&'static Connection> {
        of(self.splices.from.load(Ordering::SeqCst)).filter(|from| from.has_lent())
    }

    /// Whether the NIC sends what it has been lent: then the program does not wait for room here.
    pub(super) fn sends_lent(&'static self) -> bool {
        let to = |from: &Connection| from.splices.to.load(Ordering::Relaxed);
        self.lender().is_some_and(|from| to(from) == word(self))
    }

    /// Takes its receive ring back, if the NIC has been lent it. Who waits for the connection looks at it again.
    pub(super) fn take_back(&'static self) {
        let (mut yields, mut until) = (0_u32, None);
        while let Some(at) = self.nic().filter(|_| self.state.load(Ordering::Acquire) == AWAY) {
            let Ok(ring) = at.area.receive() else { return };
            match receive::App::new(ring).take_back() {
                TakenBack::NotLent => return,
                TakenBack::Done => {
                    let errno = os::errno();
                    at.wake();
                    epoll::changed(self, at.session);
                    os::set_errno(errno);
                    return;
                }
                TakenBack::Busy => {
                    yields = yields.wrapping_add(1);
                    if yields.is_multiple_of(YIELDS) {
                        at.session.looks_alive();
                        let now = os::now();
                        let is_late = now >= *until.get_or_insert(now + timeout::CALL);
                        if is_late || self.look(&at) == Place::Ended {
                            // Nobody copies any more, or the NIC is slow: the ring says nothing then.
                            return;
                        }
                    }
                    os::yield_now();
                }
            }
        }
    }

    /// Takes back what was lent so that this connection sends it.
    pub(super) fn take_back_sent(&'static self) {
        if let Some(from) = self.lender() {
            from.take_back();
        }
    }

    /// Takes back both.
    pub(super) fn take_all_back(&'static self) {
        self.take_back();
        self.take_back_sent();
    }
}
