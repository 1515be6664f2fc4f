//! `TCP_INFO` of a connection at the NIC.

use handoff::command::NicControl;
use handoff::session::info::INFO_LEN;
use handoff::session::status::Place;

use super::Connection;
use super::place::moves;
use crate::{os, timeout};

/// `TCP_CLOSE` (include/net/tcp_states.h), where `struct tcp_info` has the state.
const CLOSED: u8 = 7;

impl Connection {
    /// What the NIC says of it, as `struct tcp_info`, or has said last if it does not answer; `None` if the kernel has it, or
    /// the NIC cannot be asked.
    pub(crate) fn info(&'static self) -> Option<[u8; INFO_LEN]> {
        loop {
            let (at, status) = self.settled_within(timeout::CONTROL)?;
            if moves(status) {
                // What the NIC has said of an earlier stay, or nothing: the socket stands for it.
                return None;
            }
            if status.place == Place::Ended {
                let mut info = [0; INFO_LEN];
                info[0] = CLOSED;
                return Some(info);
            }
            let info = at.area.info();
            let before = info.count();
            if !self.control(&at, NicControl::Inform) {
                return None;
            }
            let until = os::now() + timeout::CONTROL;
            let left = || until.saturating_sub(os::now());
            let is_at_nic = || self.is_at(&at) && self.look(&at) == Place::Nic;
            while info.count() == before && is_at_nic() && left() > 0 {
                self.wait_as_long_as(&at, left(), || info.count() == before && is_at_nic());
            }
            if (info.count() != before || is_at_nic())
                && let Some(info) = info.read()
            {
                return Some(info);
            }
        }
    }
}
