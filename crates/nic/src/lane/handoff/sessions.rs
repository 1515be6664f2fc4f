//! The sessions of processes, as a worker has them: their rings of commands, and who is to be woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use handoff::Cid;
use handoff::command::{NicCommand, OsCommand};
use handoff::ring::command::{Consumer, Kept, Producer, PushError};
use handoff::ring::{Doorbell, Hostile, Sleepers};
use handoff::session::{Area, Shared};

use super::link::{Process, shared};

/// One process's.
#[derive(Debug)]
pub(super) struct Session {
    process: Arc<dyn Process>,
    worker: u32,
    commands: Kept,
    events: Kept,
    /// Something was told since it was last asked whether to wake.
    has_news: bool,
    /// Its process has ended.
    is_gone: bool,
    /// It broke the protocol of the rings of commands: nothing is read there any more.
    is_hostile: bool,
}

impl Session {
    pub(super) fn new(process: Arc<dyn Process>, worker: u32) -> Self {
        let (commands, events) = Default::default();
        Session {
            process,
            worker,
            commands,
            events,
            has_news: false,
            is_gone: false,
            is_hostile: false,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Its process has ended: nothing is read there any more.
    pub(super) fn end(&mut self) {
        self.is_gone = true;
    }

    pub(super) fn process(&self) -> &Arc<dyn Process> {
        &self.process
    }

    fn shared(&self) -> Option<Shared<'_>> {
        shared(&*self.process)
    }

    /// What a connection has of the memory.
    pub(super) fn area(&self, cid: Cid) -> Option<Area<'_>> {
        self.shared()?.area(cid)
    }

    /// Takes commands of the application's, so many at most. What is none is counted in `bad` and passed over.
    pub(super) fn pop(&mut self, most: usize, into: &mut Vec<NicCommand>, bad: &mut u64) {
        if self.is_hostile || self.is_gone {
            return;
        }
        let Some(ring) = shared(&*self.process).and_then(|all| all.to_nic(self.worker).ok()) else {
            return;
        };
        let mut ring = Consumer::resume(ring, self.commands);
        for _ in 0..most {
            match ring.pop() {
                Ok(Some(bytes)) => match NicCommand::decode(bytes) {
                    Ok(command) => into.push(command),
                    Err(_) => *bad += 1,
                },
                Ok(None) => break,
                Err(Hostile::Index | Hostile::Epoch) => {
                    self.is_hostile = true;
                    *bad += 1;
                    break;
                }
            }
        }
        self.commands = ring.keep();
    }

    /// Tells the application; returns the event's number, or `None` if the ring is full.
    pub(super) fn push(&mut self, event: OsCommand) -> Option<u32> {
        let shared = shared(&*self.process)?;
        let mut ring = Producer::resume(shared.to_app(self.worker).ok()?, self.events);
        let number = ring.pushed();
        let pushed = ring.push(event.encode());
        self.events = ring.keep();
        match pushed {
            Ok(()) => {
                self.has_news = true;
                Some(number)
            }
            Err(PushError::Full(_)) => None,
            // It hears nothing more by this ring. Its connections are as they are.
            Err(PushError::Hostile(_)) => {
                self.is_hostile = true;
                Some(number)
            }
        }
    }

    /// Whether the application has seen the event of this number.
    pub(super) fn has_seen(&mut self, number: u32) -> bool {
        let Some(ring) = shared(&*self.process).and_then(|all| all.to_app(self.worker).ok()) else {
            return true;
        };
        let mut ring = Producer::resume(ring, self.events);
        let seen = ring.was_popped(number);
        self.events = ring.keep();
        seen.unwrap_or(true)
    }

    /// Wakes the threads that wait for this connection, if any do.
    pub(super) fn wake_waiters(&self, cid: Cid) {
        let Some(area) = self.area(cid) else { return };
        wake_waiters(&*self.process, area.waiters(), area.wake());
    }

    /// After a turn: wakes the threads that wait for several, if there are any and something was told.
    pub(super) fn end_turn(&mut self) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let sleepers = shared(&*self.process).map(|shared| shared.app_sleepers());
        if sleepers.is_some_and(|word| Sleepers::new(word).must_wake()) {
            self.process.wake();
        }
    }

    /// The worker is about to sleep; returns whether it may, as no command waits.
    pub(super) fn falls_asleep(&self) -> bool {
        let Some(shared) = self.shared() else { return true };
        if let Some(word) = shared.nic_doorbell(self.worker) {
            Doorbell::new(word).sleep();
        }
        let ring = shared.to_nic(self.worker).ok();
        self.is_hostile
            || self.is_gone
            || ring.is_none_or(|ring| Consumer::resume(ring, self.commands).is_empty())
    }

    /// The worker is awake.
    pub(super) fn awakes(&self) {
        let word = self.shared().and_then(|shared| shared.nic_doorbell(self.worker));
        if let Some(word) = word {
            Doorbell::new(word).wake();
        }
    }
}

/// Wakes the threads that wait at `wake`, if `waiters` counts any. What they wait for was published before.
pub(crate) fn wake_waiters(process: &dyn Process, waiters: &AtomicU64, wake: &AtomicU64) {
    // Either this sees that one waits, or that one, which looks once more, sees what was published.
    fence(Ordering::SeqCst);
    if waiters.load(Ordering::Relaxed) != 0 {
        wake.fetch_add(1, Ordering::AcqRel);
        process.wake_waiters(wake);
    }
}
