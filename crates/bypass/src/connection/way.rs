//! Which NIC a connection goes to, where there are several: the one that its route leads through.

use std::sync::atomic::Ordering;

use super::Connection;
use super::asked::Again;
use crate::session::{self, Session};
use crate::{names, os};

/// Where a connection can go now that a NIC is to have it.
pub(super) enum Way {
    /// To this one.
    To(&'static Session),
    /// To one that takes no more now: it has enough to answer, or does not answer.
    Later(Again),
    /// To none.
    None,
}

impl Connection {
    /// The way to the NIC that its route leads through, if it is one that `wants` it. The route is not asked if none does,
    /// or if there is one NIC: that refuses what is not its.
    pub(super) fn way(&self, mut wants: impl FnMut(&Session) -> bool) -> Way {
        let mut later = Again::WOKEN;
        let mut can = |session: &Session| {
            if session.is_leaving() || !wants(session) {
                return false;
            }
            let until = takes_no_more(session);
            later = later.or(until.unwrap_or(Again::WOKEN));
            until.is_none()
        };
        let Some(first) = session::all().find(|session| can(session)) else {
            return if later.is_timed() { Way::Later(later) } else { Way::None };
        };
        session::look_for_more();
        if !session::are_several() {
            return Way::To(first);
        }
        let Some(found) = self.find_nic() else {
            // One after the other: those that it does not lead through refuse it.
            let (turn, count) = (self.returns.load(Ordering::Relaxed), session::all().count());
            let mut in_turn = session::all().cycle().skip(turn as usize % count).take(count);
            return in_turn.find(|session| can(session)).map_or(Way::Later(Again::SOON), Way::To);
        };
        match found {
            Some(session) if session.is_leaving() || !wants(session) => Way::None,
            Some(session) => takes_no_more(session).map_or(Way::To(session), Way::Later),
            None if !session::look_alive() || session::lacks_any() => {
                self.rest_for_lack();
                Way::None
            }
            // That one says that it is not its.
            None => Way::To(first),
        }
    }

    /// The NIC that its route leads through, which is found once; `None` inside if there is none. `None` if the routes
    /// cannot be asked.
    fn find_nic(&self) -> Option<Option<&'static Session>> {
        let known = self.nic.load(Ordering::Relaxed);
        let is_known = |session: &&Session| session.number == known && !session.is_dead();
        if let Some(session) = session::all().find(is_known) {
            return Some(Some(session));
        }
        let interface = match names::scope_of_peer(self.fd()) {
            Some(interface) => interface,
            None => os::leaves_by(names::ends(self.fd())?)?,
        };
        let is_its = |session: &&Session| session.interface == interface && !session.is_dead();
        let found = session::all().find(is_its);
        self.nic.store(found.map_or(0, |session| session.number), Ordering::Relaxed);
        Some(found)
    }
}

/// When it may be offered one again, if it takes none now.
fn takes_no_more(session: &Session) -> Option<Again> {
    if session.is_silent() {
        return Some(Again::LATER);
    }
    session.has_waiting_offers().then_some(Again::SOON)
}
