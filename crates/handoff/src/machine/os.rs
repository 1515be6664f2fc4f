//! The OS side.

use alloc::vec::Vec;
use core::mem::replace;

use super::controls::Controls;
use super::held::Held;
use super::{SideCounts, ToNic, ToOs, Where};
use crate::command::{NicControl, OsControl};
use crate::{Epoch, Refusal, RestoreReason};

/// What happens to a connection at the OS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OsEvent<P, S> {
    /// Policy picks the connection for the NIC.
    Pick,
    /// The connection is to go back, or not to leave.
    WantBack(RestoreReason),
    /// [`OsOutput::Freeze`] is done: the kernel runs the connection no longer.
    Frozen(S),
    /// [`OsOutput::Freeze`] was not possible: the kernel goes on.
    NotFrozen(Refusal),
    /// [`OsOutput::Thaw`] is done: the kernel runs the connection.
    Thawed,
    /// [`OsOutput::Thaw`] was not possible.
    NotThawed,
    /// A packet of the connection has reached the OS.
    Packet(P),
    /// A control operation of the application's.
    Control(NicControl),
    /// The NIC says something, in the epoch of this tag.
    Told(u16, ToOs<S>),
    /// The NIC has died; what its mirror has of the connection.
    NicGone(Option<S>),
}

/// What is to be done at the OS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OsOutput<P, S> {
    /// Tell the NIC, in the epoch of this tag.
    Tell(u16, ToNic<P, S>),
    /// Take the connection out of the kernel: answered by [`OsEvent::Frozen`] or [`OsEvent::NotFrozen`].
    Freeze,
    /// Put the connection into the kernel: answered by [`OsEvent::Thawed`] or [`OsEvent::NotThawed`].
    Thaw(S),
    /// Have the kernel process a packet.
    Input(P),
    /// Have the kernel do a control operation.
    Apply(NicControl),
    /// Tell the application.
    Notify(OsControl),
    /// Calls that waited go on: with the rings of the NIC, or in the kernel.
    Resume(Where),
    /// The connection is lost: its descriptor gives `ECONNRESET` from now on.
    Destroy,
}

#[derive(Debug)]
enum State<S> {
    AtOs,
    Offered {
        back: Option<RestoreReason>,
    },
    /// The NIC was told that nothing comes. The kernel runs the connection.
    CallingOff,
    Freezing {
        back: Option<RestoreReason>,
        gone: bool,
    },
    /// The state was sent and is kept. `back` if it was asked for at once.
    Sent {
        state: S,
        back: bool,
    },
    OnNic,
    Asked,
    Thawing,
    Closed,
    Lost,
}

/// The OS side of one connection.
#[derive(Debug)]
pub struct OsSide<P, S> {
    epoch: Epoch,
    state: State<S>,
    refused: Option<Refusal>,
    held: Held<P>,
    controls: Controls,
}

impl<P, S> Default for OsSide<P, S> {
    fn default() -> Self {
        OsSide {
            epoch: Epoch::default(),
            state: State::AtOs,
            refused: None,
            held: Held::default(),
            controls: Controls::default(),
        }
    }
}

impl<P, S: Clone> OsSide<P, S> {
    /// A connection under a name whose last connection was of this epoch: what was begun with that one takes no
    /// effect on this.
    pub fn after(epoch: Epoch) -> Self {
        let epoch = if epoch.is_nic() { epoch.next() } else { epoch };
        OsSide { epoch, ..OsSide::default() }
    }

    /// Where the connection is.
    pub fn place(&self) -> Where {
        match self.state {
            State::AtOs | State::CallingOff => Where::Os,
            State::Offered { .. } => Where::Offered,
            State::Freezing { .. } | State::Sent { .. } => Where::HandingOff,
            State::OnNic => Where::Nic,
            State::Asked | State::Thawing => Where::Restoring,
            State::Closed => Where::Closed,
            State::Lost => Where::Lost,
        }
    }

    /// Why it is at the OS, if it was refused last.
    pub fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// One event.
    pub fn handle(
        &mut self,
        event: OsEvent<P, S>,
        counts: &mut SideCounts,
        out: &mut Vec<OsOutput<P, S>>,
    ) {
        match event {
            OsEvent::Pick => self.pick(out),
            OsEvent::WantBack(reason) => self.want_back(reason, out),
            OsEvent::Frozen(state) => self.frozen(state, counts, out),
            OsEvent::NotFrozen(reason) => self.not_frozen(reason, counts, out),
            OsEvent::Thawed => self.thawed(counts, out),
            OsEvent::NotThawed => self.not_thawed(counts, out),
            OsEvent::Packet(packet) => self.packet(packet, counts, out),
            OsEvent::Control(control) => self.control(control, out),
            OsEvent::Told(tag, told) if tag == self.epoch.tag() => self.told(told, counts, out),
            OsEvent::Told(..) => counts.stale += 1,
            OsEvent::NicGone(mirror) => self.nic_gone(mirror, counts, out),
        }
    }

    fn tell(&self, message: ToNic<P, S>, out: &mut Vec<OsOutput<P, S>>) {
        out.push(OsOutput::Tell(self.epoch.tag(), message));
    }

    fn pick(&mut self, out: &mut Vec<OsOutput<P, S>>) {
        if let State::AtOs = self.state {
            self.epoch = self.epoch.next();
            self.state = State::Offered { back: None };
            self.refused = None;
            self.tell(ToNic::Offer(self.epoch), out);
        }
    }

    fn want_back(&mut self, reason: RestoreReason, out: &mut Vec<OsOutput<P, S>>) {
        match &mut self.state {
            State::Offered { back } | State::Freezing { back, .. } => *back = Some(reason),
            State::Sent { back: true, .. } => (),
            State::Sent { back, .. } => {
                *back = true;
                self.tell(ToNic::Restore(reason), out);
            }
            State::OnNic => {
                self.state = State::Asked;
                self.tell(ToNic::Restore(reason), out);
            }
            State::AtOs
            | State::CallingOff
            | State::Asked
            | State::Thawing
            | State::Closed
            | State::Lost => (),
        }
    }

    fn frozen(&mut self, state: S, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        let State::Freezing { back, gone } = self.state else {
            counts.crossed += 1;
            return;
        };
        if gone {
            self.state = State::Thawing;
            return out.push(OsOutput::Thaw(state));
        }
        self.tell(ToNic::Handoff(state.clone()), out);
        while let Some(packet) = self.held.pop() {
            counts.forwarded += 1;
            self.tell(ToNic::Forward(packet), out);
        }
        self.tell(ToNic::ForwardEnd, out);
        for control in self.controls.iter() {
            self.tell(ToNic::Control(control), out);
        }
        self.state = State::Sent { state, back: back.is_some() };
        if let Some(reason) = back {
            self.tell(ToNic::Restore(reason), out);
        }
    }

    fn not_frozen(
        &mut self,
        reason: Refusal,
        counts: &mut SideCounts,
        out: &mut Vec<OsOutput<P, S>>,
    ) {
        let State::Freezing { gone, .. } = self.state else {
            counts.crossed += 1;
            return;
        };
        counts.refused.add(reason);
        self.refused = Some(reason);
        self.run(counts, out);
        if gone {
            return self.at_os();
        }
        self.state = State::CallingOff;
        self.tell(ToNic::Restore(RestoreReason::CalledOff), out);
    }

    /// The kernel runs the connection: it gets all that waited.
    fn run(&mut self, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        out.extend(self.controls.drain().map(OsOutput::Apply));
        while let Some(packet) = self.held.pop() {
            counts.forwarded += 1;
            out.push(OsOutput::Input(packet));
        }
        out.push(OsOutput::Resume(Where::Os));
    }

    fn at_os(&mut self) {
        self.state = State::AtOs;
        self.epoch = self.epoch.next();
    }

    fn thawed(&mut self, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        let State::Thawing = self.state else {
            counts.crossed += 1;
            return;
        };
        self.run(counts, out);
        self.tell(ToNic::Control(NicControl::Restored), out);
        self.at_os();
    }

    fn not_thawed(&mut self, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        let State::Thawing = self.state else {
            counts.crossed += 1;
            return;
        };
        self.tell(ToNic::Control(NicControl::Abandoned), out);
        self.lost(counts, out);
    }

    fn lost(&mut self, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        counts.lost += 1;
        self.state = State::Lost;
        self.held.abandon(counts);
        out.push(OsOutput::Destroy);
        out.push(OsOutput::Resume(Where::Lost));
    }

    fn packet(&mut self, packet: P, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        match self.state {
            State::AtOs | State::Offered { .. } | State::CallingOff => {
                out.push(OsOutput::Input(packet));
            }
            State::Freezing { .. } | State::Asked | State::Thawing => {
                self.held.push(packet, counts);
            }
            State::Sent { .. } | State::OnNic => {
                counts.forwarded += 1;
                self.tell(ToNic::Forward(packet), out);
            }
            State::Closed | State::Lost => counts.abandoned += 1,
        }
    }

    fn control(&mut self, control: NicControl, out: &mut Vec<OsOutput<P, S>>) {
        if !control.is_of_application() {
            return;
        }
        match self.state {
            State::AtOs | State::Offered { .. } | State::CallingOff => {
                out.push(OsOutput::Apply(control));
            }
            State::Freezing { .. } | State::Asked | State::Thawing => {
                self.controls.record(control);
            }
            State::Sent { .. } | State::OnNic => {
                self.controls.record(control);
                self.tell(ToNic::Control(control), out);
            }
            State::Closed | State::Lost => (),
        }
    }

    fn told(&mut self, told: ToOs<S>, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        match told {
            ToOs::Control(OsControl::Allocated) => self.allocated(counts, out),
            ToOs::Control(OsControl::HandedOff) => self.handed_off(counts, out),
            ToOs::Control(OsControl::Refused(reason)) => self.refuse(reason, counts, out),
            ToOs::Control(OsControl::Deallocated) => self.deallocated(counts, out),
            ToOs::Control(news) => out.push(OsOutput::Notify(news)),
            ToOs::Restore(reason, Some(state)) => self.given_back(reason, state, counts, out),
            ToOs::Restore(_, None) => match self.state {
                State::CallingOff => self.at_os(),
                _ => counts.crossed += 1,
            },
        }
    }

    fn allocated(&mut self, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        match self.state {
            State::Offered { back: None } => {
                self.state = State::Freezing { back: None, gone: false };
                out.push(OsOutput::Freeze);
            }
            State::Offered { back: Some(reason) } => {
                self.state = State::CallingOff;
                self.tell(ToNic::Restore(reason), out);
            }
            _ => counts.crossed += 1,
        }
    }

    fn handed_off(&mut self, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        let State::Sent { back, .. } = self.state else {
            counts.crossed += 1;
            return;
        };
        counts.handoffs += 1;
        self.state = if back { State::Asked } else { State::OnNic };
        if !back {
            out.push(OsOutput::Resume(Where::Nic));
        }
    }

    fn refuse(&mut self, reason: Refusal, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        match replace(&mut self.state, State::Thawing) {
            State::Offered { .. } => self.at_os(),
            // It refuses what it has seen: the state that was sent is still the connection's.
            State::Sent { state, .. } => out.push(OsOutput::Thaw(state)),
            other => {
                self.state = other;
                counts.crossed += 1;
                return;
            }
        }
        counts.refused.add(reason);
        self.refused = Some(reason);
    }

    fn given_back(
        &mut self,
        reason: RestoreReason,
        state: S,
        counts: &mut SideCounts,
        out: &mut Vec<OsOutput<P, S>>,
    ) {
        let (State::OnNic | State::Asked) = self.state else {
            counts.crossed += 1;
            return;
        };
        counts.restored.add(reason);
        self.state = State::Thawing;
        out.push(OsOutput::Thaw(state));
    }

    fn deallocated(&mut self, counts: &mut SideCounts, out: &mut Vec<OsOutput<P, S>>) {
        let (State::OnNic | State::Asked) = self.state else {
            counts.crossed += 1;
            return;
        };
        self.state = State::Closed;
        self.held.abandon(counts);
        out.push(OsOutput::Notify(OsControl::Deallocated));
        out.push(OsOutput::Resume(Where::Closed));
    }

    fn nic_gone(
        &mut self,
        mirror: Option<S>,
        counts: &mut SideCounts,
        out: &mut Vec<OsOutput<P, S>>,
    ) {
        match replace(&mut self.state, State::Thawing) {
            State::Offered { .. } | State::CallingOff => self.at_os(),
            State::Freezing { back, .. } => self.state = State::Freezing { back, gone: true },
            // Without a mirror the NIC has not begun: it writes that before any packet leaves.
            State::Sent { state, .. } => out.push(OsOutput::Thaw(mirror.unwrap_or(state))),
            State::OnNic | State::Asked => match mirror {
                Some(state) => out.push(OsOutput::Thaw(state)),
                None => self.lost(counts, out),
            },
            other => self.state = other,
        }
    }
}
