//! What happens, at random.

use handoff::command::NicControl;
use handoff::machine::{NicEvent, OsEvent, ToNic, Where};
use handoff::{Named, Refusal, RestoreReason};

use super::model::{Kind, Model, Pending, ToOsItem};

/// Steps of a run before it comes to rest.
const STEPS: u64 = 1_500;

impl Model {
    pub(crate) fn run(&mut self) {
        let dies = matches!(self.kind, Kind::NicDies | Kind::NicDiesWithoutMirror);
        let death = if dies { self.random.below(STEPS) } else { u64::MAX };
        let end = if self.kind == Kind::Ends { self.random.below(STEPS) } else { u64::MAX };
        for step in 0..STEPS {
            if step == death {
                self.nic_dies();
            }
            if step >= end && self.nic.as_ref().is_some_and(|nic| nic.is_running()) {
                self.engine = None;
                self.nic_event(NicEvent::Ended);
            }
            self.step();
        }
        self.rest();
        match self.kind {
            Kind::Ends if self.os.place() == Where::Closed => (),
            _ if self.os.place() == Where::Lost => assert!(self.kernel.is_none()),
            _ => self.law(),
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0 if self.nic.is_some() => self.os_event(OsEvent::Pick),
            1 if self.random.one_in(3) => {
                let reason = *RestoreReason::ALL.first().expect("there are reasons");
                self.os_event(OsEvent::WantBack(reason));
            }
            2 if self.random.one_in(4) => {
                self.nic_event(NicEvent::GiveBack(RestoreReason::Memory));
            }
            3 => self.control(),
            4 | 5 => self.packet(),
            6 | 7 => self.begin_call(),
            8 | 9 => self.finish_call(),
            10 | 11 => self.deliver_to_nic(),
            12 | 13 => self.deliver_to_os(),
            14 => self.deliver_packet(),
            _ => self.do_pending(false),
        }
    }

    /// Everything that is on its way arrives, and what was begun is finished.
    fn rest(&mut self) {
        self.quiet = true;
        for round in 0..800 {
            self.deliver_to_nic();
            self.deliver_to_os();
            self.deliver_packet();
            self.do_pending(true);
            self.finish_call();
            if round % 100 == 99 {
                self.os_event(OsEvent::WantBack(RestoreReason::Stopping));
            }
        }
    }

    fn law(&self) {
        assert_eq!(self.os.place(), Where::Os, "it comes to rest at the OS");
        assert!(self.engine.is_none() && self.pending.is_none() && self.ring.calls.is_empty());
        assert!(self.nic.as_ref().is_none_or(|nic| nic.is_free()));
        let tcp = self.kernel.as_ref().expect("the kernel has it");
        let mut received = tcp.received.clone();
        match self.kind {
            // What a NIC held when it died is lost, as on a wire.
            Kind::NicDies | Kind::NicDiesWithoutMirror => {
                assert!(received.is_sorted_by(|a, b| a < b), "{received:?}");
            }
            Kind::PacketsApart => {
                received.sort_unstable();
                assert_eq!(received, Vec::from_iter(0..self.packets));
            }
            Kind::OneQueue | Kind::Ends => {
                assert_eq!(received, Vec::from_iter(0..self.packets));
            }
        }
        assert_eq!(tcp.written, Vec::from_iter(0..self.calls));
        assert_eq!(tcp.set, self.controls);
    }

    fn nic_dies(&mut self) {
        self.to_nic.clear();
        self.nic = None;
        // Its rings are there still: what it said, and what calls have put there.
        while !self.to_os.is_empty() {
            self.deliver_to_os();
        }
        if self.engine.is_some() {
            self.ring.epoch = self.ring.epoch.next();
            self.take_calls();
        }
        let mirror = self.engine.take().filter(|_| self.kind == Kind::NicDies);
        self.os_event(OsEvent::NicGone(mirror));
    }

    fn packet(&mut self) {
        let packet = self.packets;
        self.packets += 1;
        match self.nic {
            Some(_) => self.nic_event(NicEvent::Packet(packet)),
            None => self.os_event(OsEvent::Packet(packet)),
        }
    }

    fn control(&mut self) {
        let on = self.random.one_in(2);
        let control = match self.random.below(4) {
            0 => NicControl::NoDelay(on),
            1 => NicControl::Cork(on),
            2 => NicControl::UserTimeout(self.random.below(100) as u32),
            _ => NicControl::ShutdownWrite,
        };
        self.controls.insert(control.code(), control);
        self.os_event(OsEvent::Control(control));
    }

    /// A call reads the epoch of the ring, and writes its bytes behind what is there.
    fn begin_call(&mut self) {
        if self.call.is_none() && self.waiting.is_none() {
            self.waiting = Some(self.calls);
            self.calls += 1;
        }
        if self.ring.epoch.is_nic()
            && let Some(number) = self.waiting.take()
        {
            self.call = Some((self.ring.epoch, number));
        }
    }

    /// It takes effect by comparing and swapping index and epoch, or is repeated in the kernel.
    fn finish_call(&mut self) {
        match self.call.take() {
            Some((epoch, number)) if epoch == self.ring.epoch => self.ring.calls.push(number),
            Some((_, number)) => self.waiting = Some(number),
            None => (),
        }
        if let Some(number) = self.waiting
            && let Some(kernel) = &mut self.kernel
        {
            kernel.written.push(number);
            self.waiting = None;
        }
        if self.waiting.is_some() && self.ring.epoch.is_nic() {
            self.begin_call();
        }
    }

    fn deliver_to_nic(&mut self) {
        if self.engine.is_some() && self.random.one_in(2) {
            self.take_calls();
        }
        match self.to_nic.pop_front() {
            Some((_, ToNic::Offer(epoch))) => {
                let full = self.quiet || self.random.one_in(4);
                let verdict = if full { Err(Refusal::Connections) } else { Ok(()) };
                self.nic_event(NicEvent::Offer(epoch, verdict));
            }
            Some((tag, message)) => self.nic_event(NicEvent::Told(tag, message)),
            None => (),
        }
    }

    fn deliver_to_os(&mut self) {
        match self.to_os.pop_front() {
            Some(ToOsItem::Told(tag, message)) => self.os_event(OsEvent::Told(tag, message)),
            Some(ToOsItem::Packet(packet)) => {
                // A kernel that does not run the connection would answer with RST.
                assert!(self.kind != Kind::OneQueue || self.kernel.is_some(), "packet {packet}");
                self.os_event(OsEvent::Packet(packet));
            }
            None => (),
        }
    }

    fn deliver_packet(&mut self) {
        if let Some(packet) = self.packets_to_os.pop_front() {
            self.os_event(OsEvent::Packet(packet));
        }
    }

    fn do_pending(&mut self, surely: bool) {
        match self.pending.take() {
            Some(Pending::Freeze) if !surely && self.random.one_in(5) => {
                self.os_event(OsEvent::NotFrozen(Refusal::Urgent));
            }
            Some(Pending::Freeze) => {
                let state = self.kernel.take().expect("the kernel has it");
                self.os_event(OsEvent::Frozen(state));
            }
            Some(Pending::Thaw(state)) => {
                assert!(self.kernel.is_none() && self.engine.is_none(), "two of one connection");
                self.kernel = Some(state);
                self.os_event(OsEvent::Thawed);
            }
            None => (),
        }
    }
}
