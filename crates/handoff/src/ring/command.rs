//! Rings of commands, one for each direction.

use core::fmt;

use super::atomic::{AtomicU64, Ordering};
use super::{BadSize, Hostile};
use crate::command::COMMAND_LEN;

/// Words of a command.
pub const SLOT_WORDS: usize = COMMAND_LEN / 8;

/// Most commands of a ring.
pub const SLOTS_MAX: usize = 1 << 16;

/// The memory of a ring of commands: how many were pushed, how many were popped, and the slots.
#[derive(Clone, Copy, Debug)]
pub struct CommandRing<'a> {
    pushed: &'a AtomicU64,
    popped: &'a AtomicU64,
    slots: &'a [AtomicU64],
}

/// What one side knows of a ring, for one that does not keep the memory borrowed. That of an empty ring is the
/// default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    pushed: u32,
    popped: u32,
}

/// The ring is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring of commands is full: look again when the other side has read")
    }
}

impl core::error::Error for Full {}

/// Why a command was not pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushError {
    /// The ring is full.
    Full(Full),
    /// The other side wrote what is not possible.
    Hostile(Hostile),
}

impl<'a> CommandRing<'a> {
    /// A ring in this memory.
    ///
    /// # Errors
    /// If the slots are not a power of two, or more than 65,536.
    pub fn new(
        pushed: &'a AtomicU64,
        popped: &'a AtomicU64,
        slots: &'a [AtomicU64],
    ) -> Result<Self, BadSize> {
        let count = slots.len() / SLOT_WORDS;
        let whole = slots.len().is_multiple_of(SLOT_WORDS);
        let sensible = whole && count.is_power_of_two() && count <= SLOTS_MAX;
        if sensible { Ok(CommandRing { pushed, popped, slots }) } else { Err(BadSize) }
    }

    fn capacity(&self) -> u32 {
        (self.slots.len() / SLOT_WORDS) as u32
    }

    fn slot(&self, index: u32) -> &'a [AtomicU64] {
        let at = (index & (self.capacity() - 1)) as usize * SLOT_WORDS;
        &self.slots[at..at + SLOT_WORDS]
    }
}

/// The side that pushes.
#[derive(Debug)]
pub struct Producer<'a> {
    ring: CommandRing<'a>,
    pushed: u32,
    /// As it was last looked.
    popped: u32,
}

impl<'a> Producer<'a> {
    /// Of a ring that is empty.
    pub fn new(ring: CommandRing<'a>) -> Self {
        Self::resume(ring, Kept::default())
    }

    /// Goes on with the ring of which this was [kept](Self::keep).
    pub fn resume(ring: CommandRing<'a>, kept: Kept) -> Self {
        Producer { ring, pushed: kept.pushed, popped: kept.popped }
    }

    /// What is known, to go on with later.
    pub fn keep(&self) -> Kept {
        Kept { pushed: self.pushed, popped: self.popped }
    }

    /// Pushes a command. The other side's index is loaded only if the ring seems full.
    ///
    /// # Errors
    /// If the ring is full, or the other side's index is not possible.
    pub fn push(&mut self, command: [u8; COMMAND_LEN]) -> Result<(), PushError> {
        if self.pushed.wrapping_sub(self.popped) >= self.ring.capacity() {
            self.look().map_err(PushError::Hostile)?;
        }
        if self.pushed.wrapping_sub(self.popped) >= self.ring.capacity() {
            return Err(PushError::Full(Full));
        }
        let words = command.chunks_exact(8);
        for (word, bytes) in self.ring.slot(self.pushed).iter().zip(words) {
            let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            word.store(value, Ordering::Relaxed);
        }
        self.pushed = self.pushed.wrapping_add(1);
        self.ring.pushed.store(self.pushed.into(), Ordering::Release);
        Ok(())
    }

    /// How many were pushed so far, modulo 2^32.
    pub fn pushed(&self) -> u32 {
        self.pushed
    }

    /// Whether the command that was pushed as this one was popped since.
    ///
    /// # Errors
    /// If the other side's index is not possible.
    pub fn was_popped(&mut self, number: u32) -> Result<bool, Hostile> {
        let waits = |producer: &Self| {
            producer.pushed.wrapping_sub(number) <= producer.pushed.wrapping_sub(producer.popped)
        };
        if waits(self) {
            self.look()?;
        }
        Ok(!waits(self))
    }

    fn look(&mut self) -> Result<(), Hostile> {
        let popped = self.ring.popped.load(Ordering::Acquire) as u32;
        let waiting = self.pushed.wrapping_sub(self.popped);
        if popped.wrapping_sub(self.popped) > waiting {
            return Err(Hostile::Index);
        }
        self.popped = popped;
        Ok(())
    }
}

/// The side that pops.
#[derive(Debug)]
pub struct Consumer<'a> {
    ring: CommandRing<'a>,
    popped: u32,
    /// As it was last looked.
    pushed: u32,
}

impl<'a> Consumer<'a> {
    /// Of a ring that is empty.
    pub fn new(ring: CommandRing<'a>) -> Self {
        Self::resume(ring, Kept::default())
    }

    /// Goes on with the ring of which this was [kept](Self::keep).
    pub fn resume(ring: CommandRing<'a>, kept: Kept) -> Self {
        Consumer { ring, pushed: kept.pushed, popped: kept.popped }
    }

    /// What is known, to go on with later.
    pub fn keep(&self) -> Kept {
        Kept { pushed: self.pushed, popped: self.popped }
    }

    /// Pops a command, copied before it is judged. Who pops in a loop bounds it: the other side may push
    /// meanwhile.
    ///
    /// # Errors
    /// If the other side's index is not possible.
    pub fn pop(&mut self) -> Result<Option<[u8; COMMAND_LEN]>, Hostile> {
        if self.popped == self.pushed {
            self.look()?;
        }
        if self.popped == self.pushed {
            return Ok(None);
        }
        let mut command = [0; COMMAND_LEN];
        for (bytes, word) in command.chunks_exact_mut(8).zip(self.ring.slot(self.popped)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        self.popped = self.popped.wrapping_add(1);
        self.ring.popped.store(self.popped.into(), Ordering::Release);
        Ok(Some(command))
    }

    /// Whether no command waits, as one looks before it sleeps.
    pub fn is_empty(&self) -> bool {
        let pushed = self.ring.pushed.load(Ordering::Acquire) as u32;
        self.popped == pushed
    }

    fn look(&mut self) -> Result<(), Hostile> {
        let pushed = self.ring.pushed.load(Ordering::Acquire) as u32;
        if pushed.wrapping_sub(self.popped) > self.ring.capacity() {
            return Err(Hostile::Index);
        }
        self.pushed = pushed;
        Ok(())
    }
}
