//! Frames that leave a degen late.

use nic::degen::{Snapshot, Tally};

use crate::log::tell;

/// Says that frames leave late: once when many begin to, and at the end of all that did.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    told: bool,
    /// From when on packets are judged.
    before: Tally,
}

impl Lateness {
    pub(crate) fn look(&mut self, snapshot: &Snapshot) {
        if self.told {
            return;
        }
        let now = snapshot.tally();
        if !now.is_late_since(self.before) {
            // A slow flow is judged over several looks.
            if now.is_enough_since(self.before) {
                self.before = now;
            }
            return;
        }
        if let Some(words) = snapshot.lateness() {
            self.told = true;
            tell(&format!(
                "degen does not keep its times: {words}; this machine is too slow or busy"
            ));
        }
    }

    pub(crate) fn sum_up(&mut self, snapshot: &Snapshot) {
        self.look(snapshot);
        if let Some(words) = snapshot.lateness() {
            tell(&format!("degen, in all: {words}"));
        }
    }
}
