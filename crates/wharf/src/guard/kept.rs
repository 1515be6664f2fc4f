//! What the service manager keeps for the next wharf, should this one and its guard be killed at once, and what is done
//! with what an earlier one has left so.
//!
//! ```text
//!   t0 or t1    what a guard is told of the wire
//!   inventory   what the others mean, and whether all is put back
//!   others      connections: see `nic::handoff::guard::store`
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nic::handoff::guard::Inventory;
use nic::handoff::guard::store::{INVENTORY, Kept, ToStore};
use sys::notify::{self, Notify};
use sys::shared::SharedMemory;

use super::put_back;
use super::told::Told;
use crate::error::Error;
use crate::log::tell;
use crate::service_manager::{manager, patiently};

/// What a guard is told, under one of them; under the other is what goes for it.
const TOLD: [&str; 2] = ["t0", "t1"];
/// Words before the bytes: which of several is the latest, and how many bytes there are.
const HEADER: usize = 2;
const WORD: usize = size_of::<u64>();

/// The service manager, as this wharf has it.
#[derive(Debug)]
pub(crate) struct Keeping {
    notify: Notify,
    pub(super) inventory: Arc<Inventory>,
    sequence: u64,
    /// What is to be kept next.
    due: Option<SharedMemory>,
    /// Which of the names is in use, and which of them is to be free.
    current: Option<usize>,
    stale: Option<usize>,
}

impl Keeping {
    /// With a NIC that has so many connections at most; `None` if this wharf is nobody's service.
    ///
    /// # Errors
    /// What memfd_create and mmap say.
    pub(crate) fn new(connections: u32) -> io::Result<Option<Keeping>> {
        let Some(notify) = manager() else { return Ok(None) };
        let inventory = Arc::new(Inventory::new(connections)?);
        patiently(|| notify.store(INVENTORY, inventory.as_fd()));
        let (due, current, stale) = (None, None, None);
        Ok(Some(Keeping { notify, inventory, sequence: 0, due, current, stale }))
    }

    /// A way to it for the NIC.
    pub(crate) fn for_nic(&self) -> Option<ToStore> {
        Some(ToStore::new(manager()?, Arc::clone(&self.inventory)))
    }

    /// wharf is up.
    pub(crate) fn is_up(&self) {
        patiently(|| self.notify.ready());
    }

    /// Has it keep this instead of what it kept before.
    pub(super) fn keep(&mut self, told: &[u8]) {
        self.sequence += 1;
        match memory(self.sequence, told) {
            Ok(memory) => self.due = Some(memory),
            Err(error) => tracing::warn!("the service manager does not keep the latest: {error}"),
        }
        self.flush();
    }

    /// Tells it what it has not been told yet, as far as it reads.
    pub(super) fn flush(&mut self) {
        loop {
            let told = match (self.stale, &self.due) {
                (Some(stale), _) => self.notify.remove(TOLD[stale]),
                (None, Some(due)) => self.notify.store(TOLD[self.next()], due.as_fd()),
                (None, None) => return,
            };
            if told.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return;
            }
            // What else is the matter is not for long: what is to be kept later goes for it.
            if self.stale.take().is_none() {
                let next = self.next();
                (self.stale, self.current, self.due) = (self.current, Some(next), None);
            }
        }
    }

    fn next(&self) -> usize {
        self.current.map_or(0, |current| 1 - current)
    }

    /// All is as it was before this wharf.
    pub(super) fn finish(self) {
        self.inventory.finish();
        forget(&self.notify, TOLD.into_iter().chain([INVENTORY]));
    }
}

fn forget<'a>(notify: &Notify, names: impl IntoIterator<Item = &'a str>) {
    names.into_iter().for_each(|name| patiently(|| notify.remove(name)));
}

fn memory(sequence: u64, told: &[u8]) -> io::Result<SharedMemory> {
    let bytes = HEADER * WORD + told.len().next_multiple_of(WORD);
    let memory = SharedMemory::new(c"wharf-told", bytes)?;
    let words = memory.words();
    words[0].store(sequence, Ordering::Relaxed);
    words[1].store(told.len() as u64, Ordering::Relaxed);
    wire::bytes::store(words, HEADER * WORD, told);
    Ok(memory)
}

fn read(memory: &SharedMemory) -> Option<(u64, Vec<u8>)> {
    let words = memory.words();
    let [sequence, len] = [words.first()?, words.get(1)?].map(|word| word.load(Ordering::Relaxed));
    let room = (words.len() - HEADER) * WORD;
    let mut told = vec![0; usize::try_from(len).ok().filter(|len| *len <= room)?];
    wire::Bytes::of_words(words, HEADER * WORD, told.len()).copy_to(&mut told);
    Some((sequence, told))
}

/// The latest of what guards were told.
fn latest(passed: impl Iterator<Item = OwnedFd>) -> Told {
    let memories = passed.filter_map(|fd| read(&SharedMemory::open(fd).ok()?));
    let mut told = Told::default();
    if let Some((_, bytes)) = memories.max_by_key(|(sequence, _)| *sequence) {
        told.hear(&bytes);
    }
    told
}

/// Puts back what an earlier wharf has left that was killed with its guard, if the service manager has kept that. To be
/// called before anything is opened.
///
/// # Errors
/// If another process is at that, and does not end.
pub(crate) fn put_back_earlier() -> Result<(), Error> {
    let passed = notify::passed();
    let names: Vec<String> = passed.iter().map(|(name, _)| name.clone()).collect();
    let (told, rest): (Vec<_>, Vec<_>) =
        passed.into_iter().partition(|(name, _)| TOLD.contains(&name.as_str()));
    match Kept::of(rest) {
        Kept::Nothing | Kept::Finished => {}
        Kept::Useless(why) => tell(&format!("what an earlier wharf has left is of no use: {why}")),
        Kept::Survivors(survivors) => {
            let told = latest(told.into_iter().map(|(_, fd)| fd));
            match put_back(&told, survivors, None) {
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(Error::Io(error));
                }
                Err(error) => {
                    tell(&format!("not all is as it was before an earlier wharf: {error}"))
                }
                Ok(()) => {}
            }
        }
    }
    if let Some(notify) = manager() {
        forget(&notify, names.iter().map(String::as_str));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_read() {
        let fd = |memory: SharedMemory| memory.as_fd().try_clone_to_owned().unwrap();
        for len in [0, 1, 7, 8, 9, 1000] {
            let told: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let memory = memory(7, &told).unwrap();
            assert_eq!(read(&memory), Some((7, told)));
        }
        let said = |index| super::super::told::say_made(index);
        let all = [memory(1, &said(10)), memory(3, &said(30)), memory(2, &said(20))];
        let all = all.into_iter().map(|memory| fd(memory.unwrap()));
        assert_eq!(latest(all).made, Some(30));
        let small = SharedMemory::new(c"wharf-test", 16).unwrap();
        small.words()[1].store(1, Ordering::Relaxed);
        assert_eq!(read(&small), None, "fewer bytes than it says");
    }
}
