//! What the descriptors mean that a service manager keeps for the next wharf: the messages with which a guard was given
//! the same, in memory that it keeps as well.
//!
//! ```text
//!   what it is, version, whether all is put back | Mirror | Host | Session, as all are | for each place: Take
//! ```

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use handoff::mirror::RECORD_VERSION;
use handoff::session::VERSION;
use sys::shared::SharedMemory;

use super::message::{LEN, Message};

const MAGIC: u64 = u64::from_le_bytes(*b"wharfdsc");
/// Of the layout of this memory, and of what records and sessions are.
const BUILD: u64 = 1 << 32 | (RECORD_VERSION as u64) << 16 | VERSION as u64;
/// Words of a message, and of what is before all messages.
const WORDS: usize = LEN / size_of::<u64>();
const MIRROR: usize = 1;
const HOST: usize = 2;
const SESSION: usize = 3;
const PLACES: usize = 4;
/// How long another process may take that is about to put connections back.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// See the module's documentation.
#[derive(Debug)]
pub struct Inventory(SharedMemory);

impl Inventory {
    /// Of nothing yet, for so many connections.
    ///
    /// # Errors
    /// What memfd_create and mmap say.
    pub fn new(places: u32) -> io::Result<Self> {
        let bytes = (PLACES + places as usize) * LEN;
        let memory = SharedMemory::new(c"wharf-inventory", bytes)?;
        memory.words()[1].store(BUILD, Ordering::Relaxed);
        memory.words()[0].store(MAGIC, Ordering::Release);
        Ok(Inventory(memory))
    }

    /// One of another process's.
    ///
    /// # Errors
    /// `InvalidData` if it is none, `Unsupported` if it is of another version.
    pub(super) fn open(memory: OwnedFd) -> io::Result<Self> {
        let memory = SharedMemory::open(memory)?;
        let [magic, build, ..] = memory.words() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match (magic.load(Ordering::Acquire), build.load(Ordering::Relaxed)) {
            (MAGIC, BUILD) if memory.words().len() >= PLACES * WORDS => Ok(Inventory(memory)),
            (MAGIC, _) => Err(io::ErrorKind::Unsupported.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn slot(&self, number: usize) -> Option<&[AtomicU64]> {
        self.0.words().get(number * WORDS..)?.get(..WORDS)
    }

    fn slot_of(&self, message: Message) -> Option<&[AtomicU64]> {
        match message {
            Message::Mirror { .. } => self.slot(MIRROR),
            Message::Host { .. } => self.slot(HOST),
            Message::Session { .. } => self.slot(SESSION),
            Message::Take { place, .. } => self.slot(PLACES + place as usize),
            Message::Inventory | Message::SessionEnd { .. } | Message::Gone { .. } => None,
        }
    }

    /// Writes down what came with descriptors that are about to be kept.
    pub(super) fn write(&self, message: Message) {
        let Some([first, rest @ ..]) = self.slot_of(message) else { return };
        let bytes = message.encode();
        let mut words = bytes.chunks_exact(size_of::<u64>()).map(|bytes| {
            u64::from_le_bytes(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or_default()))
        });
        let begins = words.next().unwrap_or_default();
        first.store(0, Ordering::Relaxed);
        rest.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Release));
        // Last: without its kind it is none, however early this process ends.
        first.store(begins, Ordering::Release);
    }

    fn read(&self, number: usize) -> Option<Message> {
        let mut bytes = [0; LEN];
        let words = self.slot(number)?;
        for (bytes, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
        }
        Message::decode(&bytes)
    }

    pub(super) fn mirror(&self) -> Option<Message> {
        self.read(MIRROR)
    }

    pub(super) fn host(&self) -> Option<Message> {
        self.read(HOST)
    }

    pub(super) fn session(&self, number: u32) -> Option<Message> {
        match self.read(SESSION)? {
            Message::Session { layout, .. } => Some(Message::Session { number, layout }),
            _ => None,
        }
    }

    pub(super) fn taken(&self, place: u32) -> Option<Message> {
        self.read(PLACES + place as usize)
    }

    /// Nobody is to put back the connection at this place.
    pub(super) fn erase(&self, place: u32) {
        if let Some([first, ..]) = self.slot(PLACES + place as usize) {
            first.store(0, Ordering::Release);
        }
    }

    /// All is put back: what is kept is of no use any more.
    pub fn finish(&self) {
        self.0.words()[2].store(1, Ordering::Release);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.0.words()[2].load(Ordering::Acquire) != 0
    }

    /// Keeps other processes from putting the same back, until this is dropped or the process ends. One that is at it is
    /// waited for, for a while.
    pub(super) fn lock(&self) -> io::Result<File> {
        // Locks are of open files: this is one of its own.
        let file = File::open(format!("/proc/self/fd/{}", self.0.as_fd().as_raw_fd()))?;
        let since = Instant::now();
        while file.try_lock().is_err() {
            if since.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(file)
    }
}

impl AsFd for Inventory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoff::Cid;
    use handoff::session::Layout;

    fn copy(inventory: &Inventory) -> Inventory {
        Inventory::open(inventory.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn another_process_reads_what_was_written() {
        let inventory = Inventory::new(8).unwrap();
        let other = copy(&inventory);
        assert_eq!((other.mirror(), other.taken(7), other.is_finished()), (None, None, false));
        let layout =
            Layout { workers: 1, commands: 256, connections: 64, send: 4096, receive: 8192 };
        let mirror = Message::Mirror { places: 8 };
        let host = Message::Host { mac: [1, 2, 3, 4, 5, 6] };
        let session = |number| Message::Session { number, layout };
        let take = Message::Take { place: 7, session: 3, cid: Cid(9), reuse_address: true };
        for message in [mirror, host, session(3), session(4), take] {
            inventory.write(message);
        }
        // Of no connection that there may be.
        inventory.write(Message::Take { place: 8, session: 3, cid: Cid(9), reuse_address: true });
        assert_eq!((other.mirror(), other.host()), (Some(mirror), Some(host)));
        assert_eq!((other.session(3), other.session(9)), (Some(session(3)), Some(session(9))));
        assert_eq!((other.taken(7), other.taken(8)), (Some(take), None));
        inventory.erase(7);
        inventory.finish();
        assert_eq!((other.taken(7), other.is_finished()), (None, true));
    }

    #[test]
    fn what_is_of_another_version_is_told_from_what_is_none() {
        let memory = SharedMemory::new(c"wharf-test", 4096).unwrap();
        let open = || Inventory::open(memory.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(open().unwrap_err().kind(), io::ErrorKind::InvalidData);
        memory.words()[0].store(MAGIC, Ordering::Relaxed);
        assert_eq!(open().unwrap_err().kind(), io::ErrorKind::Unsupported);
        memory.words()[1].store(BUILD, Ordering::Relaxed);
        assert!(open().is_ok());
    }

    #[test]
    fn one_at_a_time_puts_back() {
        let inventory = Inventory::new(1).unwrap();
        let held = inventory.lock().unwrap();
        let other = File::open(format!("/proc/self/fd/{}", inventory.as_fd().as_raw_fd()));
        let other = other.unwrap();
        assert!(other.try_lock().is_err());
        drop(held);
        assert!(other.try_lock().is_ok());
    }
}
