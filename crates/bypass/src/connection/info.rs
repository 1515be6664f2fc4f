//! `TCP_INFO` of a connection at the NIC.

use std::time::{Duration, Instant};

use handoff::command::NicControl;
use handoff::session::info::INFO_LEN;
use handoff::session::status::Place;

use super::Connection;

/// `TCP_CLOSE` (include/net/tcp_states.h), where `struct tcp_info` has the state.
const CLOSED: u8 = 7;
/// How long the NIC may take. It does not answer while it is stopped.
const PATIENCE: Duration = Duration::from_millis(100);

impl Connection {
    /// What the NIC says of it, as `struct tcp_info`, or has said last if it does not answer; `None` if the kernel has it, or
    /// the NIC cannot be asked.
    pub(crate) fn info(&'static self) -> Option<[u8; INFO_LEN]> {
        loop {
            let at = self.away()?;
            if self.look(&at) == Place::Ended {
                let mut info = [0; INFO_LEN];
                info[0] = CLOSED;
                return Some(info);
            }
            let info = at.area.info();
            let before = info.count();
            if !self.control(&at, NicControl::Inform) {
                return None;
            }
            let begun = Instant::now();
            let is_late = || begun.elapsed() > PATIENCE;
            let is_at_nic = || self.is_at(&at) && self.look(&at) == Place::Nic;
            while info.count() == before && is_at_nic() && !is_late() {
                self.wait_as_long_as(&at, || info.count() == before && is_at_nic());
            }
            if (info.count() != before || is_at_nic())
                && let Some(info) = info.read()
            {
                return Some(info);
            }
        }
    }
}
