//! The memory that a process and wharf share.
//!
//! ```text
//!   for each worker:      8 lines   its doorbell; pushed and popped of each of the two rings of commands;
//!                                   of the first, how many of the application's threads sleep,
//!                                   how often all were picked, and how many offers were answered
//!                         the slots of commands to the NIC, and of those to the application
//!   for the process:      what wharf says to all of it (the module `said`)
//!   for each connection:  8 lines   the application's of its send ring | of its receive ring | wharf's | waiting
//!                                   | its figures (the module `info`)
//!   for each connection:  its send ring, its receive ring: twice as many bytes as they hold
//! ```
//!
//! A line is 64 bytes, so that no word that one side writes shares one with a word of the other.

use core::fmt;

use super::info::{self, Info};
use super::requests::Requests;
use super::said::{ASKS, Ends, SAID_WORDS, Said};
use crate::ring::atomic::{AtomicU64, Ordering, fence};
use crate::ring::command::{CommandRing, SLOT_WORDS};
use crate::ring::splice::Notes;
use crate::ring::{BadSize, Ring};
use crate::{Cid, Epoch};

/// Words of a line.
const LINE: usize = 8;
const WORD: usize = 8;
/// Lines of a worker, before the slots.
const WORKER_LINES: usize = 8;
/// Words of a connection: 8 lines.
const CONNECTION_WORDS: usize = 8 * LINE;

/// Sizes of the memory that a process and wharf share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Workers: each has rings of commands of its own.
    pub workers: u32,
    /// Commands that each of these rings holds: a power of two.
    pub commands: u32,
    /// Connections at a time: [`Cid`]s are less than that.
    pub connections: u32,
    /// Bytes of a send ring: a power of two.
    pub send: u32,
    /// Bytes of a receive ring: a power of two.
    pub receive: u32,
}

/// Sizes that no memory has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadLayout;

impl fmt::Display for BadLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sizes that the memory of a session does not have")
    }
}

impl core::error::Error for BadLayout {}

impl Layout {
    const WORKERS_MAX: u32 = 256;
    const CONNECTIONS_MAX: u32 = 1 << 20;
    /// Bytes of a ring, from a page to 64 MB.
    const RING: core::ops::RangeInclusive<u32> = 4096..=64 << 20;
    const COMMANDS: core::ops::RangeInclusive<u32> = 2..=1 << 16;

    /// Whether there can be such memory.
    ///
    /// # Errors
    /// If not.
    pub fn validate(&self) -> Result<(), BadLayout> {
        let ring = |bytes: u32| bytes.is_power_of_two() && Self::RING.contains(&bytes);
        let sensible = (1..=Self::WORKERS_MAX).contains(&self.workers)
            && (1..=Self::CONNECTIONS_MAX).contains(&self.connections)
            && self.commands.is_power_of_two()
            && Self::COMMANDS.contains(&self.commands)
            && ring(self.send)
            && ring(self.receive);
        if sensible { Ok(()) } else { Err(BadLayout) }
    }

    /// Where the parts of such memory lie.
    ///
    /// # Errors
    /// If there can be none.
    pub fn offsets(self) -> Result<Offsets, BadLayout> {
        self.validate()?;
        Ok(Offsets {
            layout: self,
            worker: self.worker_words(),
            said: self.said_at(),
            connections: self.connections_at(),
            data: self.data_at(),
            rings: self.ring_words(),
            all: self.words(),
        })
    }

    fn slots(&self) -> usize {
        self.commands as usize * SLOT_WORDS
    }

    fn worker_words(&self) -> usize {
        WORKER_LINES * LINE + 2 * self.slots()
    }

    fn said_at(&self) -> usize {
        self.workers as usize * self.worker_words()
    }

    fn connections_at(&self) -> usize {
        self.said_at() + SAID_WORDS
    }

    /// Where data begins: at a page, so that its memory can be given back.
    fn data_at(&self) -> usize {
        const PAGE: usize = 4096 / WORD;
        let end = self.connections_at() + self.connections as usize * CONNECTION_WORDS;
        end.next_multiple_of(PAGE)
    }

    fn ring_words(&self) -> usize {
        2 * (self.send as usize + self.receive as usize) / WORD
    }

    /// Words of all of it.
    pub fn words(&self) -> usize {
        self.data_at() + self.connections as usize * self.ring_words()
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        self.words() * WORD
    }

    /// Where the data of a connection lies, in bytes from the beginning, and how long it is: whole pages.
    pub fn data_of(&self, cid: Cid) -> (usize, usize) {
        let words = self.ring_words();
        ((self.data_at() + cid.0 as usize * words) * WORD, words * WORD)
    }
}

/// Where the parts of memory lie, by a [`Layout`] that was validated: computed once, as each packet needs it.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    layout: Layout,
    /// Words of a worker.
    worker: usize,
    /// Where the other parts begin, in words.
    said: usize,
    connections: usize,
    data: usize,
    /// Words of a connection's rings.
    rings: usize,
    all: usize,
}

impl Offsets {
    /// The sizes.
    pub fn layout(&self) -> Layout {
        self.layout
    }
}

/// The memory, by its parts.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    offsets: Offsets,
    words: &'a [AtomicU64],
}

impl<'a> Shared<'a> {
    /// In this memory.
    ///
    /// # Errors
    /// If there can be no such layout, or it is longer than the memory.
    pub fn new(layout: Layout, words: &'a [AtomicU64]) -> Result<Self, BadLayout> {
        Self::at(&layout.offsets()?, words)
    }

    /// The same by offsets that are known.
    ///
    /// # Errors
    /// If the layout is longer than the memory.
    #[inline]
    pub fn at(offsets: &Offsets, words: &'a [AtomicU64]) -> Result<Self, BadLayout> {
        let words = words.get(..offsets.all).ok_or(BadLayout)?;
        Ok(Shared { offsets: *offsets, words })
    }

    /// The sizes.
    pub fn layout(&self) -> Layout {
        self.offsets.layout
    }

    /// The words of a worker; `None` if there is no such worker.
    fn worker(&self, worker: u32) -> Option<&'a [AtomicU64]> {
        let len = self.offsets.worker;
        let at = worker as usize * len;
        (worker < self.offsets.layout.workers).then(|| &self.words[at..at + len])
    }

    /// The word of a worker's [`Doorbell`](crate::ring::Doorbell): it sleeps, and the application rings.
    pub fn nic_doorbell(&self, worker: u32) -> Option<&'a AtomicU64> {
        self.worker(worker).map(|words| &words[0])
    }

    /// How many of the application's threads sleep that a worker is to wake by the eventfd, whichever worker it is: see
    /// [`Sleepers`](crate::ring::Sleepers).
    pub fn app_sleepers(&self) -> &'a AtomicU64 {
        &self.words[LINE]
    }

    /// How often the application has noted [`Requests`] for which there was no room in the queue of messages. The
    /// application's.
    pub fn unheard(&self) -> &'a AtomicU64 {
        &self.words[LINE + 1]
    }

    /// The reason for which the application wants all connections back, a code that found no room in the queue of messages;
    /// 0 for none. The application's.
    pub fn wants_all_back(&self) -> &'a AtomicU64 {
        &self.words[LINE + 2]
    }

    /// How often wharf has asked the application to offer what it has (`wharf handoff --to nic`): see [`ask`](Self::ask).
    pub fn picks(&self) -> &'a AtomicU64 {
        &self.words[6 * LINE]
    }

    /// What wharf says to the whole process.
    pub fn said(&self) -> Said<'a> {
        let at = self.offsets.said;
        Said(&self.words[at..at + SAID_WORDS])
    }

    /// Asks the application to offer the connection with these ends, or all that it has. One part of wharf does.
    pub fn ask(&self, which: Option<Ends>) {
        let number = self.picks().load(Ordering::Relaxed).wrapping_add(1);
        self.said().set_ask(number, which);
        self.picks().store(number, Ordering::Release);
    }

    /// Whether wharf has asked for a connection after the time of number `before`, up to that of number `now`. What the
    /// ends of the connection are is asked at most once. Only the last [`ASKS`] times are known, less one.
    pub fn is_asked_for(
        &self,
        (before, now): (u64, u64),
        ends: impl FnOnce() -> Option<Ends>,
    ) -> bool {
        // The one that is written next may be half written.
        const KNOWN: u64 = ASKS as u64 - 1;
        let times = now.wrapping_sub(before).min(KNOWN);
        let asked = |ago: u64| {
            let which = self.said().asked(now.wrapping_sub(ago));
            // Behind the words: they were not written over if the count is near still.
            fence(Ordering::Acquire);
            let latest = self.picks().load(Ordering::Relaxed);
            let is_over = latest.wrapping_sub(now).wrapping_add(ago) >= KNOWN;
            (!is_over).then_some(which)
        };
        let mut ends = Some(ends);
        let mut own = None;
        (0..times).filter_map(asked).any(|which| match which {
            None => true,
            Some(which) => {
                if let Some(ends) = ends.take() {
                    own = ends();
                }
                own == Some(which)
            }
        })
    }

    /// How many of the application's offers wharf has answered: the connection is the NIC's, or was refused. It offers no
    /// more than a few at a time, as a connection stands still while it moves.
    pub fn answered(&self) -> &'a AtomicU64 {
        &self.words[6 * LINE + 1]
    }

    /// The ring of commands from the application to a worker.
    ///
    /// # Errors
    /// If there is no such worker.
    pub fn to_nic(&self, worker: u32) -> Result<CommandRing<'a>, BadSize> {
        self.commands(worker, 2, 0)
    }

    /// The ring of commands from a worker to the application.
    ///
    /// # Errors
    /// If there is no such worker.
    pub fn to_app(&self, worker: u32) -> Result<CommandRing<'a>, BadSize> {
        self.commands(worker, 4, 1)
    }

    fn commands(&self, worker: u32, line: usize, which: usize) -> Result<CommandRing<'a>, BadSize> {
        let words = self.worker(worker).ok_or(BadSize)?;
        let slots = self.offsets.layout.slots();
        let at = WORKER_LINES * LINE + which * slots;
        CommandRing::new(&words[line * LINE], &words[(line + 1) * LINE], &words[at..at + slots])
    }

    /// What a connection has; `None` if its number is none of this memory's.
    #[inline]
    pub fn area(&self, cid: Cid) -> Option<Area<'a>> {
        let Offsets { layout, connections, data, rings, .. } = self.offsets;
        if cid.0 >= layout.connections {
            return None;
        }
        let at = connections + cid.0 as usize * CONNECTION_WORDS;
        let words = self.words[at..].first_chunk()?;
        let at = data + cid.0 as usize * rings;
        let (send, receive) = self.words[at..at + rings].split_at(2 * layout.send as usize / WORD);
        Some(Area { words, send, receive })
    }
}

/// What one connection has of the shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    words: &'a [AtomicU64; CONNECTION_WORDS],
    send: &'a [AtomicU64],
    receive: &'a [AtomicU64],
}

impl<'a> Area<'a> {
    /// The send ring.
    ///
    /// # Errors
    /// None, of a [`Layout`] that was validated.
    #[inline]
    pub fn send(&self) -> Result<Ring<'a>, BadSize> {
        let places = self.words[1..].first_chunk().ok_or(BadSize)?;
        Ring::new(&self.words[0], &self.words[2 * LINE], places, self.send)
    }

    /// The receive ring.
    ///
    /// # Errors
    /// None, of a [`Layout`] that was validated.
    pub fn receive(&self) -> Result<Ring<'a>, BadSize> {
        let places = self.words[2 * LINE + 4..].first_chunk().ok_or(BadSize)?;
        Ring::new(&self.words[LINE], &self.words[2 * LINE + 1], places, self.receive)
    }

    /// The epoch of the rings, for what is said about them.
    pub fn epoch(&self) -> Epoch {
        Epoch((self.words[0].load(Ordering::Acquire) >> 32) as u32)
    }

    /// The [status](super::status): wharf's.
    pub fn status(&self) -> &'a AtomicU64 {
        &self.words[2 * LINE + 2]
    }

    /// The worker that has the connection: wharf's, written before the status says that the NIC has it.
    pub fn worker(&self) -> &'a AtomicU64 {
        &self.words[2 * LINE + 3]
    }

    /// What is written down of its receive ring when that is [lent](crate::ring::splice).
    pub fn notes(&self) -> Notes<'a> {
        Notes { lent_to: &self.words[LINE + 1], moving: &self.words[2 * LINE + 6] }
    }

    /// Its figures: wharf's.
    pub fn info(&self) -> Info<'a> {
        Info(&self.words[4 * LINE..][..info::WORDS])
    }

    /// Not 0 while the application reads bytes of the receive ring where they lie, or writes bytes of the send ring there. It says
    /// so before it looks whether they are the ring's still: whoever has ended the ring's epoch and finds 0 may take the
    /// memory away, and else leaves it as it is.
    pub fn readers(&self) -> &'a AtomicU64 {
        &self.words[LINE + 2]
    }

    /// `TCP_NOTSENT_LOWAT`: how many bytes may wait to be sent first; 0 for any number. The application's, written before the
    /// connection is offered.
    pub fn unsent_most(&self) -> &'a AtomicU64 {
        &self.words[LINE + 3]
    }

    /// What the application wants of the connection, where the queue of messages had no room for it.
    pub fn requests(&self) -> Requests<'a> {
        Requests(&self.words[LINE + 4])
    }

    /// Index behind the last byte of the send ring that was sent, in the low 32 bits; and in the others, behind the last that
    /// wharf has tried to send. wharf's: as it was when the figures were asked for, and at any time where there is a limit by
    /// [`unsent_most`](Self::unsent_most).
    pub fn sent(&self) -> &'a AtomicU64 {
        &self.words[2 * LINE + 7]
    }

    /// How many of the application's threads wait at [`wake`](Self::wake).
    pub fn waiters(&self) -> &'a AtomicU64 {
        &self.words[3 * LINE]
    }

    /// A count whose low 32 bits are a futex. wharf adds one, and wakes all, when something has changed for
    /// those that wait.
    pub fn wake(&self) -> &'a AtomicU64 {
        &self.words[3 * LINE + 1]
    }
}
