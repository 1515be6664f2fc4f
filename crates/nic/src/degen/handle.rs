//! What a degen shares with the rest of the process.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use degen::{Change, Config};

use super::settings::{self, Direction, SettingError};
use super::snapshot::Snapshot;

/// The way in and out of a degen at work: what is to change, and how it was a short while ago.
pub type Handle = crate::handle::Handle<Vec<(Direction, Change)>, Mutex<Snapshot>>;

/// That of a degen which begins with `configs`.
///
/// # Errors
/// What `eventfd` says.
pub fn handle(configs: [Config; 2]) -> io::Result<Handle> {
    Handle::new(Vec::new(), Mutex::new(Snapshot { configs, ..Snapshot::default() }))
}

impl Handle {
    /// Changes a setting while packets flow.
    ///
    /// # Errors
    /// What is wrong with the key or its value.
    pub fn set(&self, key: &str, value: &str) -> Result<(), SettingError> {
        let (directions, change) = settings::change(key, value)?;
        self.change(|changes| {
            let mut snapshot = lock(self.published());
            for direction in directions {
                changes.push((*direction, change));
                // The next question sees it, though it may not have been taken up yet.
                change.apply(&mut snapshot.configs[*direction as usize]);
            }
        });
        Ok(())
    }

    /// How it was a short while ago.
    pub fn snapshot(&self) -> Snapshot {
        lock(self.published()).clone()
    }

    /// What was changed since it was last asked.
    pub(super) fn take_changes(&self) -> Vec<(Direction, Change)> {
        std::mem::take(&mut *self.config())
    }

    pub(super) fn publish(&self, mut new: Snapshot) {
        let changes = self.config();
        let mut snapshot = lock(self.published());
        if !changes.is_empty() {
            // These are in the old one already.
            std::mem::swap(&mut new.configs, &mut snapshot.configs);
        }
        *snapshot = new;
    }
}

fn lock(snapshot: &Mutex<Snapshot>) -> MutexGuard<'_, Snapshot> {
    snapshot.lock().unwrap_or_else(PoisonError::into_inner)
}
