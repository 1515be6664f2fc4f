//! As many connections as the worker has time for (OSDI'06): it refuses more when it is saturated, and gives some back.

use std::sync::Arc;

use handoff::command::{OsCommand, os};
use handoff::machine::NicEvent;
use handoff::policy::{LoadControl, LoadSettings};
use handoff::{Cid, Epoch, Refusal, RestoreReason};
use lro::Nanos;
use sys::frames::FramePool;

use super::hear::MESSAGES;
use super::resources::{Left, Resources};
use super::{HandoffLane, HostLane};
use crate::port::Host;

/// Connections that are given back in a turn.
const BACK: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Load {
    /// Most connections, whatever the load.
    most: u32,
    /// `None` if the load is not looked at.
    control: Option<LoadControl>,
    settings: Option<LoadSettings>,
    /// How many more may come, and how many are to go, until the next look.
    room: u32,
    to_go: u32,
    resources: Arc<Resources>,
}

impl Load {
    pub(super) fn new(
        most: u32,
        settings: Option<LoadSettings>,
        resources: Arc<Resources>,
    ) -> Self {
        let mut load =
            Load { most, control: None, settings: None, room: u32::MAX, to_go: 0, resources };
        load.set(settings, 0);
        load
    }

    /// Goes by these settings from now on; by none if the load is not to be looked at.
    pub(super) fn set(&mut self, settings: Option<LoadSettings>, now: Nanos) {
        let settings = settings.map(|settings| LoadSettings { max: self.most, ..settings });
        if settings != self.settings {
            self.control = settings.map(|settings| LoadControl::new(settings, now));
            (self.settings, self.room, self.to_go) = (settings, u32::MAX, 0);
        }
    }

    /// Takes the place of one more connection, if it may come.
    pub(super) fn admit(&mut self) -> Result<(), Refusal> {
        self.room = self.room.checked_sub(1).ok_or(Refusal::Load)?;
        Ok(())
    }

    /// Most connections now, and whether that are fewer than there might be.
    pub(super) fn limit(&self) -> (u32, bool) {
        match &self.control {
            Some(control) if !control.is_unlimited() => (control.limit(), true),
            _ => (self.most, false),
        }
    }
}

impl HandoffLane {
    /// The worker ends a turn that began at `now`, in which it did something or not, and so many packets still wait.
    pub(crate) fn look_at_load(&mut self, now: Nanos, worked: bool, waiting: impl FnOnce() -> u32) {
        if self.lane.app().sessions.is_empty() {
            // Nobody asks.
            return;
        }
        let is_over = |control: &mut LoadControl| control.turn(now, worked, waiting());
        if self.load.control.as_mut().is_some_and(is_over) {
            self.decide();
        }
        self.advertise();
    }

    fn decide(&mut self) {
        let running = self.lane.app().all.running();
        let Some(control) = &mut self.load.control else { return };
        control.decide(running);
        let unlimited = control.is_unlimited();
        self.load.room = if unlimited { u32::MAX } else { control.room(running) };
        self.load.to_go = if unlimited { 0 } else { control.excess(running) };
    }

    /// Tells the OS side what is left, where that has changed.
    fn advertise(&mut self) {
        let (most, is_limited) = self.load.limit();
        let memory = self.lane.stack().memory();
        let there = self.lane.app().all.len() as u32;
        let room = most.saturating_sub(there).min(self.load.room);
        let queue = self.heard.room() as u32;
        let left = Left {
            connections: (room, most, is_limited),
            memory: (memory.free(), memory.limit),
            queue: (queue, MESSAGES as u32),
        };
        let events = &mut self.lane.parts().1.events;
        for kind in self.load.resources.advertise(&left) {
            // Of no connection: it is counted as what it is.
            let command = os::Resource { kind, ..os::Resource::new(Cid(0), Epoch::default()) };
            events.add(OsCommand::from(command).kind());
        }
    }

    /// Gives some of those back for which there is no time.
    pub(super) fn shed<H: Host>(
        &mut self,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) {
        for _ in 0..BACK.min(self.load.to_go as usize) {
            let Some(number) = self.app().all.spare(now) else {
                self.load.to_go = 0;
                return;
            };
            self.load.to_go -= 1;
            self.handle(number, NicEvent::GiveBack(RestoreReason::Load), pool, host, now);
        }
    }
}
