//! What the NIC has left for more connections (`ch_os_resource`, the paper's section 3.3): it advertises, and the OS side
//! honours that. An advertisement stands for those before it, so that it is a word and no message.

use std::sync::atomic::{AtomicU32, Ordering};

use handoff::command::Resource;
use handoff::{Named, Refusal};

/// As many as anybody can use: before anything was advertised.
const PLENTY: u32 = u32::MAX >> 1;
/// In the word of connections: there are fewer than there might be, as the NIC has no time.
const LIMITED: u32 = 1 << 31;
/// What is left is told in so many steps.
const STEPS: u32 = 16;
const PAGE: u64 = 4096;

/// What a worker has left, as it was advertised last.
#[derive(Debug)]
pub(crate) struct Resources([AtomicU32; Resource::ALL.len()]);

impl Default for Resources {
    fn default() -> Self {
        Resources(std::array::from_fn(|_| AtomicU32::new(PLENTY)))
    }
}

/// What is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Left {
    /// Connections, of how many, and whether that are fewer than there might be.
    pub(super) connections: (u32, u32, bool),
    /// Bytes of memory, of how many.
    pub(super) memory: (u64, u64),
    /// Places in the queue of commands, of how many.
    pub(super) queue: (u32, u32),
}

/// In steps, so that each that is taken is not told. What is nothing, and what is not, is told at once.
fn in_steps(left: u32, most: u32) -> u32 {
    let step = (most / STEPS).max(1);
    let whole = left - left % step;
    if whole == 0 { left.min(1) } else { whole }
}

impl Resources {
    /// Advertises what is left. Returns what of it has changed.
    pub(super) fn advertise(&self, left: &Left) -> impl Iterator<Item = Resource> {
        let pages = |bytes: u64| u32::try_from(bytes / PAGE).unwrap_or(PLENTY).min(PLENTY);
        let (connections, most, is_limited) = left.connections;
        let limited = if is_limited { LIMITED } else { 0 };
        let (memory, most_memory) = left.memory;
        let (queue, most_queue) = left.queue;
        let words = [
            (Resource::Connections, in_steps(connections, most) | limited),
            (Resource::Memory, in_steps(pages(memory), pages(most_memory))),
            (Resource::Queue, in_steps(queue, most_queue)),
        ];
        words.into_iter().filter_map(|(kind, word)| {
            let at = &self.0[kind.index()];
            // One part of wharf advertises.
            let changes = at.load(Ordering::Relaxed) != word;
            if changes {
                at.store(word, Ordering::Relaxed);
            }
            changes.then_some(kind)
        })
    }

    /// What the NIC has not enough of for another connection. A NIC that is full, though it has time, makes room by
    /// giving one back: it is asked.
    pub(crate) fn lacks(&self) -> Option<Refusal> {
        let word = |kind: Resource| self.0[kind.index()].load(Ordering::Relaxed);
        if word(Resource::Queue) == 0 {
            return Some(Refusal::Queue);
        }
        if word(Resource::Memory) == 0 {
            return Some(Refusal::Memory);
        }
        (word(Resource::Connections) == LIMITED).then_some(Refusal::Load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: Left =
        Left { connections: (100, 100, false), memory: (1 << 30, 1 << 30), queue: (256, 256) };

    #[test]
    fn what_is_lacking_is_known_and_little_is_told() {
        let resources = Resources::default();
        assert_eq!(resources.lacks(), None);
        assert_eq!(resources.advertise(&FULL).count(), 3);
        assert_eq!((resources.advertise(&FULL).count(), resources.lacks()), (0, None));
        let told = |left: Left| {
            let all: Vec<Resource> = resources.advertise(&left).collect();
            (all, resources.lacks())
        };
        let connections = |left, is_limited| Left { connections: (left, 100, is_limited), ..FULL };
        assert_eq!(told(connections(99, false)), (vec![], None));
        assert_eq!(told(connections(50, false)), (vec![Resource::Connections], None));
        assert_eq!(told(connections(0, false)), (vec![Resource::Connections], None));
        assert_eq!(told(connections(0, true)).1, Some(Refusal::Load));
        assert_eq!(told(connections(1, true)).1, None);
        assert_eq!(told(Left { memory: (4095, 1 << 30), ..FULL }).1, Some(Refusal::Memory));
        assert_eq!(told(Left { queue: (0, 256), ..FULL }).1, Some(Refusal::Queue));
        assert_eq!(told(FULL).1, None);
    }

    proptest! {
        #[test]
        fn steps_tell_no_more_than_there_is(left: u32, most: u32) {
            let told = in_steps(left, most);
            prop_assert!(told <= left && (told == 0) == (left == 0));
        }
    }
}
