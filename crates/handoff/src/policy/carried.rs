//! What connections of a service carry, by which a policy that learns knows whether one is to move, and when.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes below which connections are not told apart.
const LEAST: u64 = 1_000;
/// Classes of connections by what they have carried: each ends at twice as much as the one before it, and the last has
/// no end.
const CLASSES: usize = 28;
/// Connections that ended, in a class, from which on all classes forget half: services change.
const MANY: u32 = 1024;
/// So few tell nothing of others.
const FEW: u32 = 8;
/// What it costs to move a connection: the CPU time that so many bytes save at the NIC. A web server had 30 to 60 KB
/// (bench/results).
const COST: u64 = 48_000;
/// When a connection moves of whose kind nothing is known.
const UNKNOWN: u64 = 64_000;

/// The connections of a service that have ended. Threads may share it: what two of them change at once, one of them may
/// not have changed.
#[derive(Debug, Default)]
pub struct Carried {
    classes: [Class; CLASSES],
}

#[derive(Debug, Default)]
struct Class {
    ended: AtomicU32,
    /// That they carried.
    bytes: AtomicU64,
}

impl Class {
    const fn new() -> Self {
        Class { ended: AtomicU32::new(0), bytes: AtomicU64::new(0) }
    }

    fn read(&self) -> (u32, u64) {
        (self.ended.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn write(&self, (ended, bytes): (u32, u64)) {
        self.ended.store(ended, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

fn class(bytes: u64) -> usize {
    ((bytes / LEAST).max(1).ilog2() as usize).min(CLASSES - 1)
}

/// How many bytes a connection has carried when it is to be looked at again, after these.
pub fn look_again(bytes: u64) -> u64 {
    match class(bytes) + 1 {
        CLASSES.. => u64::MAX,
        next => LEAST << next,
    }
}

impl Carried {
    /// Of a service of which nothing is known.
    pub const fn new() -> Self {
        Carried { classes: [const { Class::new() }; CLASSES] }
    }

    /// A connection has ended that carried so many bytes, sent or received, whichever are more.
    pub fn ended(&self, bytes: u64) {
        let class = &self.classes[class(bytes)];
        let (ended, sum) = class.read();
        class.write((ended + 1, sum.saturating_add(bytes)));
        if ended + 1 >= MANY {
            for class in &self.classes {
                let (ended, sum) = class.read();
                let mean = sum.checked_div(ended.into()).unwrap_or(0);
                class.write((ended / 2, mean * u64::from(ended / 2)));
            }
        }
    }

    /// Whether a connection that has carried so many bytes is to move now: to move all that come so far saves more than it
    /// costs, and no less than to wait for those that carry more. Where few have ended that carried as much, it moves
    /// after 64 KB.
    pub fn is_worth(&self, bytes: u64) -> bool {
        let first = class(bytes);
        // From the end: all that come so far, how many they are and what they carry.
        let (mut ended, mut sum, mut later) = (0, 0_u64, 0);
        for (number, class) in self.classes.iter().enumerate().skip(first).rev() {
            let (count, bytes) = class.read();
            (ended, sum) = (ended + u64::from(count), sum.saturating_add(bytes));
            if number > first {
                later = later.max(saved(sum, ended, LEAST << number));
            }
        }
        if ended < FEW.into() {
            return bytes >= UNKNOWN;
        }
        let now = saved(sum, ended, bytes);
        now >= 0 && now >= later
    }
}

/// What it saves to move so many connections, in bytes, which carry this sum when they end and have carried so much each.
fn saved(sum: u64, ended: u64, each: u64) -> i128 {
    i128::from(sum) - i128::from(ended) * i128::from(each + COST)
}
