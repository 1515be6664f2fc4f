//! Frames that leave a degen late.

use nic::degen::{Snapshot, Tally};

use crate::log::tell;

/// Says that frames leave late: once when many do in two windows in a row, and at the end of all that did. One window is
/// a machine that was busy for a moment.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    is_told: bool,
    /// Whether the last window had many late frames.
    was_late: bool,
    /// Where the current window begins.
    window: Tally,
}

impl Lateness {
    pub(crate) fn look(&mut self, snapshot: &Snapshot) {
        if self.is_told {
            return;
        }
        let now = snapshot.tally();
        // A slow flow fills a window in several looks.
        let Some(is_late) = now.is_late_since(self.window) else { return };
        self.window = now;
        let was_late = std::mem::replace(&mut self.was_late, is_late);
        if is_late
            && was_late
            && let Some(words) = snapshot.lateness()
        {
            self.is_told = true;
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
