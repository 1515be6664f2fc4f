//! A kernel, an engine and an application around the two machines.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;

use handoff::command::NicControl;
use handoff::machine::{
    NicEvent, NicOutput, NicSide, OsEvent, OsOutput, OsSide, SideCounts, ToNic, ToOs, Where,
};
use handoff::{Epoch, Refusal};

use super::random::Random;

/// What is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    OneQueue,
    PacketsApart,
    NicDies,
    NicDiesWithoutMirror,
    Ends,
}

/// A connection, as far as this matters: what it has received, what was written to it, and what was set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tcp {
    pub(crate) received: Vec<u32>,
    pub(crate) written: Vec<u32>,
    pub(crate) set: BTreeMap<u8, NicControl>,
}

/// The send ring: calls by number, which take effect if the epoch is that in which they began.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pub(crate) epoch: Epoch,
    pub(crate) calls: Vec<u32>,
}

/// What the OS was asked to do and has not done.
#[derive(Debug)]
pub(crate) enum Pending {
    Freeze,
    Thaw(Tcp),
}

#[derive(Debug)]
pub(crate) enum ToOsItem {
    Told(u16, ToOs<Tcp>),
    Packet(u32),
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) kind: Kind,
    pub(crate) random: Random,
    pub(crate) os: OsSide<u32, Tcp>,
    pub(crate) nic: Option<NicSide<u32>>,
    pub(crate) os_counts: SideCounts,
    pub(crate) nic_counts: SideCounts,
    pub(crate) kernel: Option<Tcp>,
    pub(crate) engine: Option<Tcp>,
    pub(crate) ring: Ring,
    pub(crate) to_nic: VecDeque<(u16, ToNic<u32, Tcp>)>,
    pub(crate) to_os: VecDeque<ToOsItem>,
    /// Packets that go another way than messages.
    pub(crate) packets_to_os: VecDeque<u32>,
    pub(crate) pending: Option<Pending>,
    /// A call that has begun in an epoch of the NIC's and not taken effect.
    pub(crate) call: Option<(Epoch, u32)>,
    /// A call that waits for where to go.
    pub(crate) waiting: Option<u32>,
    pub(crate) packets: u32,
    pub(crate) calls: u32,
    pub(crate) controls: BTreeMap<u8, NicControl>,
    pub(crate) seen: Vec<&'static str>,
    /// The NIC takes no more, and gives back what it has.
    pub(crate) quiet: bool,
}

impl Model {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        Model {
            kind,
            random: Random::new(seed),
            os: OsSide::default(),
            nic: Some(NicSide::default()),
            os_counts: SideCounts::default(),
            nic_counts: SideCounts::default(),
            kernel: Some(Tcp::default()),
            engine: None,
            ring: Ring::default(),
            to_nic: VecDeque::new(),
            to_os: VecDeque::new(),
            packets_to_os: VecDeque::new(),
            pending: None,
            call: None,
            waiting: None,
            packets: 0,
            calls: 0,
            controls: BTreeMap::new(),
            seen: Vec::new(),
            quiet: false,
        }
    }

    pub(crate) fn os_event(&mut self, event: OsEvent<u32, Tcp>) {
        let mut out = Vec::new();
        self.os.handle(event, &mut self.os_counts, &mut out);
        for output in out {
            self.os_output(output);
        }
        let place = match self.os.place() {
            Where::Os => "Os",
            Where::Offered => "Offered",
            Where::HandingOff => "HandingOff",
            Where::Nic => "Nic",
            Where::Restoring => "Restoring",
            Where::Closed => "Closed",
            Where::Lost => "Lost",
        };
        if !self.seen.contains(&place) {
            self.seen.push(place);
        }
    }

    fn os_output(&mut self, output: OsOutput<u32, Tcp>) {
        match output {
            OsOutput::Tell(tag, message) if self.nic.is_some() => {
                self.to_nic.push_back((tag, message));
            }
            OsOutput::Tell(..) | OsOutput::Notify(_) | OsOutput::Resume(_) | OsOutput::Destroy => {}
            OsOutput::Freeze => self.pend(Pending::Freeze),
            OsOutput::Thaw(state) => self.pend(Pending::Thaw(state)),
            OsOutput::Input(packet) => self.kernel().received.push(packet),
            OsOutput::Apply(control) => {
                self.kernel().set.insert(control.code(), control);
            }
        }
    }

    fn pend(&mut self, pending: Pending) {
        assert!(self.pending.is_none(), "asked for {pending:?} before {:?} was done", self.pending);
        self.pending = Some(pending);
    }

    /// The kernel's connection: what is done to it while it is not there is a fault.
    pub(crate) fn kernel(&mut self) -> &mut Tcp {
        self.kernel.as_mut().expect("the kernel runs the connection")
    }

    fn engine(&mut self) -> &mut Tcp {
        self.engine.as_mut().expect("the engine runs the connection")
    }

    /// Takes from the send ring what calls have put there.
    pub(crate) fn take_calls(&mut self) {
        let calls = take(&mut self.ring.calls);
        self.engine().written.extend(calls);
    }

    /// Freezing and thawing are answered before anything else happens, as they are in a worker.
    pub(crate) fn nic_event(&mut self, event: NicEvent<u32, Tcp>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(nic) = &mut self.nic else { return };
            let mut out = Vec::new();
            nic.handle(event, &mut self.nic_counts, &mut out);
            for output in out {
                events.extend(self.nic_output(output));
            }
        }
    }

    fn nic_output(&mut self, output: NicOutput<u32, Tcp>) -> Option<NicEvent<u32, Tcp>> {
        match output {
            NicOutput::Tell(tag, message) => {
                self.to_os.push_back(ToOsItem::Told(tag, message));
                None
            }
            NicOutput::Pass(packet) => {
                match self.kind {
                    Kind::PacketsApart => self.packets_to_os.push_back(packet),
                    _ => self.to_os.push_back(ToOsItem::Packet(packet)),
                }
                None
            }
            NicOutput::Input(packet) => {
                self.engine().received.push(packet);
                None
            }
            NicOutput::Apply(control) => {
                self.engine().set.insert(control.code(), control);
                None
            }
            NicOutput::Thaw(_) if self.quiet || self.random.one_in(8) => {
                Some(NicEvent::NotThawed(Refusal::Memory))
            }
            NicOutput::Thaw(state) => {
                assert!(self.kernel.is_none() && self.engine.is_none(), "two of one connection");
                assert_eq!(self.ring.calls, []);
                self.engine = Some(state);
                self.ring.epoch = self.ring_epoch();
                Some(NicEvent::Thawed)
            }
            NicOutput::Freeze => {
                self.ring.epoch = self.ring.epoch.next();
                self.take_calls();
                Some(NicEvent::Frozen(self.engine.take().expect("the engine has it")))
            }
        }
    }

    /// The epoch that a ring of the NIC's is to have.
    fn ring_epoch(&self) -> Epoch {
        let epoch = self.os.epoch();
        assert!(epoch.is_nic());
        epoch
    }
}
