//! What the application has asked for while the kernel did not run the connection.

use alloc::vec::Vec;

use crate::command::NicControl;

/// The last operation of each kind, options first, close last: what is done in this order has the effect of all
/// that came.
#[derive(Debug, Default)]
pub(super) struct Controls(Vec<NicControl>);

impl Controls {
    pub(super) fn record(&mut self, control: NicControl) {
        match self.0.binary_search_by_key(&control.code(), NicControl::code) {
            Ok(at) => self.0[at] = control,
            Err(at) => self.0.insert(at, control),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NicControl> {
        self.0.iter().copied()
    }

    /// Takes all of them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = NicControl> {
        self.0.drain(..)
    }
}
