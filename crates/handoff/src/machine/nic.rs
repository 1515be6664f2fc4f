//! The NIC side.

use alloc::vec::Vec;

use super::controls::Controls;
use super::held::Held;
use super::{SideCounts, ToNic, ToOs};
use crate::command::{NicControl, OsControl};
use crate::{Epoch, Refusal, RestoreReason};

/// What happens to a connection at the NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NicEvent<P, S> {
    /// `ch_nic_handoff` without state, and whether there is room for the connection.
    Offer(Epoch, Result<(), Refusal>),
    /// The OS says something else, in the epoch of this tag. An offer is ignored here.
    Told(u16, ToNic<P, S>),
    /// A packet of the connection has come from the wire.
    Packet(P),
    /// [`NicOutput::Thaw`] is done: the engine runs the connection.
    Thawed,
    /// [`NicOutput::Thaw`] was not possible.
    NotThawed(Refusal),
    /// [`NicOutput::Freeze`] is done: the engine runs the connection no longer, and calls of the application's
    /// lose.
    Frozen(S),
    /// The connection is to go back.
    GiveBack(RestoreReason),
    /// The connection has ended in the engine; this may be found when it is to be [frozen](NicOutput::Freeze).
    Ended,
}

/// What is to be done at the NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NicOutput<P, S> {
    /// Tell the OS, in the epoch of this tag.
    Tell(u16, ToOs<S>),
    /// Have the engine go on from a state: answered by [`NicEvent::Thawed`] or [`NicEvent::NotThawed`].
    Thaw(S),
    /// Take the connection out of the engine, and flip the epoch of its rings first: answered by
    /// [`NicEvent::Frozen`].
    Freeze,
    /// Have the engine process a packet.
    Input(P),
    /// Pass a packet to the OS.
    Pass(P),
    /// Have the engine do a control operation.
    Apply(NicControl),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// Waits for the state.
    Allocated,
    /// `back` if it is to go back as soon as it is there.
    Thawing {
        back: Option<RestoreReason>,
    },
    /// The engine runs it, with what the OS forwards alone until that says that no more follow.
    Forwarding,
    Running,
    Freezing {
        reason: RestoreReason,
    },
    /// Waits for the OS to run it.
    Restoring,
}

/// The NIC side of one connection.
#[derive(Debug)]
pub struct NicSide<P> {
    epoch: Epoch,
    state: State,
    /// What the OS has forwarded, which is older than what is held.
    forwarded: Held<P>,
    forward_ended: bool,
    held: Held<P>,
    controls: Controls,
}

impl<P> Default for NicSide<P> {
    fn default() -> Self {
        NicSide {
            epoch: Epoch::default(),
            state: State::Free,
            forwarded: Held::default(),
            forward_ended: false,
            held: Held::default(),
            controls: Controls::default(),
        }
    }
}

impl<P> NicSide<P> {
    /// Whether the NIC has nothing of the connection: packets go to the OS.
    pub fn is_free(&self) -> bool {
        self.state == State::Free
    }

    /// Whether the engine runs the connection.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running | State::Forwarding)
    }

    /// The epoch of the connection, or of the last that there was.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the NIC runs the connection, or is about to: what the kernel still says about it is not to leave.
    pub fn silences_kernel(&self) -> bool {
        !matches!(self.state, State::Free | State::Allocated | State::Restoring)
    }

    /// Whether packets of the connection are held, as it is on its way to the NIC or back.
    pub fn holds(&self) -> bool {
        !matches!(self.state, State::Free | State::Running)
    }

    /// Whether packets of the connection go to the engine at once, and need not be given to this.
    pub fn is_settled(&self) -> bool {
        self.state == State::Running
    }

    /// Whether a command that was given in the epoch of this tag, about data, is to be looked at.
    pub fn takes(&self, tag: u16) -> bool {
        self.is_running() && tag == self.epoch.tag()
    }

    /// One event.
    pub fn handle<S>(
        &mut self,
        event: NicEvent<P, S>,
        counts: &mut SideCounts,
        out: &mut Vec<NicOutput<P, S>>,
    ) {
        match event {
            NicEvent::Offer(epoch, verdict) => self.offer(epoch, verdict, counts, out),
            // A packet is a packet in any epoch.
            NicEvent::Told(_, ToNic::Forward(packet)) => self.forward(packet, counts, out),
            NicEvent::Told(tag, told) if tag == self.epoch.tag() && !self.is_free() => {
                self.told(told, counts, out);
            }
            NicEvent::Told(..) => counts.stale += 1,
            NicEvent::Packet(packet) => self.packet(packet, counts, out),
            NicEvent::Thawed => self.thawed(counts, out),
            NicEvent::NotThawed(reason) => self.not_thawed(reason, counts, out),
            NicEvent::Frozen(state) => self.frozen(state, counts, out),
            NicEvent::GiveBack(reason) => self.give_back(reason, out),
            NicEvent::Ended => self.ended(counts, out),
        }
    }

    fn tell<S>(&self, message: ToOs<S>, out: &mut Vec<NicOutput<P, S>>) {
        out.push(NicOutput::Tell(self.epoch.tag(), message));
    }

    fn offer<S>(
        &mut self,
        epoch: Epoch,
        verdict: Result<(), Refusal>,
        counts: &mut SideCounts,
        out: &mut Vec<NicOutput<P, S>>,
    ) {
        if !self.is_free() {
            counts.crossed += 1;
            return;
        }
        self.epoch = epoch;
        match verdict {
            Ok(()) => {
                self.state = State::Allocated;
                self.forward_ended = false;
                self.tell(ToOs::Control(OsControl::Allocated), out);
            }
            Err(reason) => {
                counts.refused.add(reason);
                self.tell(ToOs::Control(OsControl::Refused(reason)), out);
            }
        }
    }

    fn told<S>(
        &mut self,
        told: ToNic<P, S>,
        counts: &mut SideCounts,
        out: &mut Vec<NicOutput<P, S>>,
    ) {
        match told {
            ToNic::Handoff(state) if self.state == State::Allocated => {
                self.state = State::Thawing { back: None };
                out.push(NicOutput::Thaw(state));
            }
            ToNic::Restore(reason) => self.restore(reason, counts, out),
            ToNic::Control(control) => self.control(control, counts, out),
            ToNic::ForwardEnd => self.forward_end(out),
            ToNic::Handoff(_) | ToNic::Offer(_) | ToNic::Forward(_) => counts.crossed += 1,
        }
    }

    fn restore<S>(
        &mut self,
        reason: RestoreReason,
        counts: &mut SideCounts,
        out: &mut Vec<NicOutput<P, S>>,
    ) {
        match self.state {
            // The OS has never stopped running it.
            State::Allocated => {
                self.tell(ToOs::Restore(reason, None), out);
                self.pass_all(counts, out);
            }
            State::Freezing { .. } | State::Restoring => counts.crossed += 1,
            _ => self.give_back(reason, out),
        }
    }

    fn give_back<S>(&mut self, why: RestoreReason, out: &mut Vec<NicOutput<P, S>>) {
        match &mut self.state {
            State::Thawing { back } => *back = Some(why),
            State::Forwarding | State::Running => {
                self.state = State::Freezing { reason: why };
                out.push(NicOutput::Freeze);
            }
            // What waits for its state is refused, if it must be, when that comes.
            State::Free | State::Allocated | State::Freezing { .. } | State::Restoring => (),
        }
    }

    fn thawed<S>(&mut self, counts: &mut SideCounts, out: &mut Vec<NicOutput<P, S>>) {
        let State::Thawing { back } = self.state else {
            counts.crossed += 1;
            return;
        };
        counts.handoffs += 1;
        self.state = State::Forwarding;
        self.tell(ToOs::Control(OsControl::HandedOff), out);
        while let Some(packet) = self.forwarded.pop() {
            out.push(NicOutput::Input(packet));
        }
        out.extend(self.controls.drain().map(NicOutput::Apply));
        if self.forward_ended {
            self.forward_end(out);
        }
        if let Some(reason) = back {
            self.give_back(reason, out);
        }
    }

    fn not_thawed<S>(
        &mut self,
        reason: Refusal,
        counts: &mut SideCounts,
        out: &mut Vec<NicOutput<P, S>>,
    ) {
        let State::Thawing { .. } = self.state else {
            counts.crossed += 1;
            return;
        };
        counts.refused.add(reason);
        // The OS does them itself.
        self.controls.drain().for_each(drop);
        self.state = State::Restoring;
        self.tell(ToOs::Control(OsControl::Refused(reason)), out);
    }

    fn frozen<S>(&mut self, state: S, counts: &mut SideCounts, out: &mut Vec<NicOutput<P, S>>) {
        let State::Freezing { reason } = self.state else {
            counts.crossed += 1;
            return;
        };
        counts.restored.add(reason);
        self.state = State::Restoring;
        self.tell(ToOs::Restore(reason, Some(state)), out);
    }

    fn ended<S>(&mut self, counts: &mut SideCounts, out: &mut Vec<NicOutput<P, S>>) {
        // It may have ended when it was to be frozen.
        if !self.is_running() && !matches!(self.state, State::Freezing { .. }) {
            counts.crossed += 1;
            return;
        }
        self.forwarded.abandon(counts);
        self.held.abandon(counts);
        self.tell(ToOs::Control(OsControl::Deallocated), out);
        self.state = State::Free;
    }

    fn control<S>(
        &mut self,
        control: NicControl,
        counts: &mut SideCounts,
        out: &mut Vec<NicOutput<P, S>>,
    ) {
        match (self.state, control) {
            (State::Restoring, NicControl::Restored) => self.pass_all(counts, out),
            (State::Restoring, NicControl::Abandoned) => {
                self.forwarded.abandon(counts);
                self.held.abandon(counts);
                self.state = State::Free;
            }
            (_, NicControl::Restored | NicControl::Abandoned) => counts.crossed += 1,
            (State::Thawing { .. }, control) => self.controls.record(control),
            (State::Forwarding | State::Running, control) => out.push(NicOutput::Apply(control)),
            // The OS does it after the restore.
            _ => counts.crossed += 1,
        }
    }

    /// All that was held goes to the OS.
    fn pass_all<S>(&mut self, counts: &mut SideCounts, out: &mut Vec<NicOutput<P, S>>) {
        self.state = State::Free;
        while let Some(packet) = self.forwarded.pop().or_else(|| self.held.pop()) {
            counts.forwarded += 1;
            out.push(NicOutput::Pass(packet));
        }
    }

    fn forward<S>(&mut self, packet: P, counts: &mut SideCounts, out: &mut Vec<NicOutput<P, S>>) {
        match self.state {
            State::Free => out.push(NicOutput::Pass(packet)),
            State::Forwarding | State::Running => out.push(NicOutput::Input(packet)),
            State::Allocated
            | State::Thawing { .. }
            | State::Freezing { .. }
            | State::Restoring => self.forwarded.push(packet, counts),
        }
    }

    fn forward_end<S>(&mut self, out: &mut Vec<NicOutput<P, S>>) {
        self.forward_ended = true;
        if self.state == State::Forwarding {
            self.state = State::Running;
            while let Some(packet) = self.held.pop() {
                out.push(NicOutput::Input(packet));
            }
        }
    }

    fn packet<S>(&mut self, packet: P, counts: &mut SideCounts, out: &mut Vec<NicOutput<P, S>>) {
        match self.state {
            State::Free => out.push(NicOutput::Pass(packet)),
            State::Running => out.push(NicOutput::Input(packet)),
            _ => self.held.push(packet, counts),
        }
    }
}
