//! Doorbells: who sleeps says so, and only then is woken.

use super::atomic::{AtomicU64, Ordering, fence};

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;

/// A word that says whether one side sleeps.
///
/// Either the sleeper, who looks at the rings once more after it has said that it sleeps, sees what was pushed, or
/// the other side, who looks here after it has pushed, sees that it must ring. Both fences are needed for that: a
/// store and a load behind it may pass each other on any CPU. The word changes by swaps alone, so that its changes
/// by both sides have one order that both see.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'a>(&'a AtomicU64);

impl<'a> Doorbell<'a> {
    /// The doorbell in this word.
    pub fn new(word: &'a AtomicU64) -> Self {
        Doorbell(word)
    }

    /// Says that this side is about to sleep. It looks at its rings once more before it does, and if something is
    /// there says that it is [awake](Self::wake).
    pub fn sleep(&self) {
        self.0.swap(ASLEEP, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Says that this side is awake. It may have been rung for meanwhile, which costs a look.
    pub fn wake(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
    }

    /// Whether the other side is to be woken, after all pushes of a turn. It is for one of those who ask to ring.
    ///
    /// An application that says that it sleeps when it does not costs the NIC a system call a turn, and no more.
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == ASLEEP && self.0.swap(AWAKE, Ordering::AcqRel) == ASLEEP
    }
}

/// A word that counts threads that sleep, where several wait for the same side.
///
/// The same reasoning as for [`Doorbell`]; but who rings does not take the count back, as some may be awake
/// already and others not. An application that counts threads that do not sleep costs the NIC a system call a turn,
/// and no more.
#[derive(Clone, Copy, Debug)]
pub struct Sleepers<'a>(&'a AtomicU64);

impl<'a> Sleepers<'a> {
    /// The count in this word.
    pub fn new(word: &'a AtomicU64) -> Self {
        Sleepers(word)
    }

    /// A thread is about to sleep. It looks once more at what it waits for before it does.
    pub fn enter(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// A thread that was counted is awake.
    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether any sleeps, after all that a turn has published.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != 0
    }
}
