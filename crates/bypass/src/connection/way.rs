//! Which NIC a connection goes to, where there are several: the one that its route leads through.

use std::sync::atomic::Ordering;

use super::Connection;
use crate::session::{self, Session};
use crate::{names, os};

/// Where a connection can go now that a NIC is to have it.
pub(super) enum Way {
    /// To this one.
    To(&'static Session),
    /// To one that has so many to answer that it takes no more now.
    Later,
    /// To none.
    None,
}

impl Connection {
    /// The way to the NIC that its route leads through, if it is one that `wants` it. The route is not asked if none does,
    /// or if there is one NIC: that refuses what is not its.
    pub(super) fn way(&self, mut wants: impl FnMut(&Session) -> bool) -> Way {
        let mut is_wanted = false;
        let mut can = |session: &Session| {
            let wants = !session.is_leaving() && !session.is_silent() && wants(session);
            is_wanted |= wants;
            wants && !session.has_waiting_offers()
        };
        let Some(first) = session::all().find(|session| can(session)) else {
            return if is_wanted { Way::Later } else { Way::None };
        };
        session::look_for_more();
        if !session::are_several() {
            return Way::To(first);
        }
        let Some(found) = self.find_nic() else {
            // One after the other: those that it does not lead through refuse it.
            let (turn, count) = (self.returns.load(Ordering::Relaxed), session::all().count());
            let mut in_turn = session::all().cycle().skip(turn as usize % count).take(count);
            return in_turn.find(|session| can(session)).map_or(Way::Later, Way::To);
        };
        match found {
            Some(session) if session.is_leaving() || session.is_silent() || !wants(session) => {
                Way::None
            }
            Some(session) if session.has_waiting_offers() => Way::Later,
            Some(session) => Way::To(session),
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
