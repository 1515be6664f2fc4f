//! Runs a trace through an [`Lro`] in virtual time and keeps all that comes out.

use lro::{Aggregate, Config, Discard, Lro, Nanos, Pass, RxChecksum, Sink};
use testkit::packet::PacketBuilder;
use wire::{Flags, VirtioNetHdr};

/// When a run begins.
pub(crate) const START: Nanos = 1_000;

/// A configuration in which what is missing is waited for from the start, as the paper has it.
pub(crate) fn waiting() -> Config {
    Config { min_hole_timeout: Nanos::MAX, ..Config::default() }
}

/// One thing that happens to an LRO.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A frame arrives.
    Frame(Frame),
    /// The host sends a packet.
    Host(Frame),
    /// Time passes; deadlines that fall into it are kept.
    Wait(Nanos),
    /// The caller has caught up with the wire.
    BurstEnds,
    /// The caller will sleep.
    Idle,
    FlushAll,
    /// Packets went by unseen.
    Interrupt,
    /// A packet goes by that is not taken.
    InterruptFlow(Vec<u8>),
    /// Another configuration.
    Reconfigure(Config),
}

/// A frame with what the port knows of its checksum.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksum: RxChecksum,
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Self {
        Frame { bytes, checksum: RxChecksum::Unverified }
    }
}

/// The headers in words, as the payload is a pattern.
impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let len = self.bytes.len();
        match super::naive::Tcp::read(&self.bytes) {
            Some(p) => write!(
                f,
                "{:?} seq {} + {} ack {} flags {:?} window {} id {:?}, {len} bytes: {:x?} {:x?} {:x?}",
                self.checksum,
                p.seq(),
                p.payload.len(),
                p.ack(),
                wire::Flags(p.flags()),
                p.window(),
                p.id(),
                p.link,
                p.ip,
                p.tcp
            ),
            None => write!(f, "{:?} {len} bytes: {:x?}", self.checksum, self.bytes),
        }
    }
}

/// The host of `PacketBuilder::tcp4`'s connection sends all from `from` to `to`, as LRO sees it.
pub(crate) fn host_sends(from: u32, to: u32) -> [Step; 2] {
    let packet = PacketBuilder::tcp4().addresses4([10, 0, 0, 2], [10, 0, 0, 1]).ports(5201, 40_000);
    let syn = packet.clone().seq(from.wrapping_sub(1)).flags(Flags::ACK.with(Flags::SYN));
    let data = packet.seq(from).payload_pattern(to.wrapping_sub(from) as usize);
    [syn, data].map(|packet| Step::Host(packet.build().into()))
}

/// What came out, and during which step; frames are named by the step that brought them.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) step: usize,
    pub(crate) now: Nanos,
    pub(crate) out: Out,
}

#[derive(Clone, Debug)]
pub(crate) enum Out {
    Passed(usize, Pass),
    Joined(Joined),
    Discarded(usize, Discard),
}

/// An aggregate, as a host port would write it.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) vnet: VirtioNetHdr,
    pub(crate) fixed_id: bool,
    pub(crate) header_len: usize,
    /// Header and payload.
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: Vec<usize>,
    /// The part of each frame that counts: its first byte and how many.
    pub(crate) slices: Vec<(usize, usize)>,
}

impl Out {
    /// The frames that this was.
    pub(crate) fn frames(&self) -> &[usize] {
        match self {
            Out::Passed(frame, _) | Out::Discarded(frame, _) => std::slice::from_ref(frame),
            Out::Joined(joined) => &joined.frames,
        }
    }
}

/// A finished run.
pub(crate) struct Run {
    pub(crate) events: Vec<Event>,
    /// When each step's frame arrived.
    pub(crate) arrivals: Vec<Nanos>,
    pub(crate) counters: lro::Counters,
}

impl Run {
    /// Which frames came out together, in the order of coming out; discarded ones left out.
    pub(crate) fn groups(&self) -> Vec<Vec<usize>> {
        let kept = self.events.iter().filter(|e| !matches!(e.out, Out::Discarded(..)));
        kept.map(|e| e.out.frames().to_vec()).collect()
    }

    pub(crate) fn joined(&self) -> impl Iterator<Item = &Joined> {
        self.events.iter().filter_map(|e| match &e.out {
            Out::Joined(joined) => Some(joined),
            _ => None,
        })
    }
}

/// The sink: writes down what it is given.
struct Recorder<'a> {
    steps: &'a [Step],
    step: usize,
    now: Nanos,
    events: Vec<Event>,
}

impl Recorder<'_> {
    fn record(&mut self, out: Out) {
        self.events.push(Event { step: self.step, now: self.now, out });
    }
}

impl Sink<usize> for Recorder<'_> {
    fn pass(&mut self, frame: usize, why: Pass) {
        self.record(Out::Passed(frame, why));
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, usize>) {
        let mut joined = Joined {
            vnet: aggregate.vnet(),
            fixed_id: aggregate.fixed_id(),
            header_len: aggregate.header().len(),
            bytes: aggregate.header().to_vec(),
            frames: Vec::with_capacity(aggregate.segments()),
            slices: Vec::with_capacity(aggregate.segments()),
        };
        while let Some(slice) = aggregate.next_slice() {
            let Step::Frame(frame) = &self.steps[slice.frame] else { unreachable!() };
            joined.bytes.extend(&frame.bytes[slice.start..slice.start + slice.len]);
            joined.frames.push(slice.frame);
            joined.slices.push((slice.start, slice.len));
        }
        self.record(Out::Joined(joined));
    }

    fn discard(&mut self, frame: usize, why: Discard) {
        self.record(Out::Discarded(frame, why));
    }
}

/// Runs all steps, then flushes the rest. Checks on the way that the LRO holds what has not
/// come out, that its counters say so, and that nothing held is past its deadline.
pub(crate) fn run(config: &Config, steps: &[Step]) -> Run {
    let mut lro: Lro<usize> = Lro::new(config.clone());
    let mut out = Recorder { steps, step: 0, now: START, events: Vec::new() };
    let mut arrivals = vec![0; steps.len()];
    let mut arrived = 0;
    for (step, what) in steps.iter().enumerate() {
        out.step = step;
        match what {
            Step::Frame(frame) => {
                arrived += 1;
                arrivals[step] = out.now;
                lro.receive(step, &frame.bytes, frame.checksum, out.now, &mut out);
            }
            Step::Host(frame) => lro.observe(&frame.bytes),
            Step::Wait(time) => wait(&mut lro, *time, &mut out),
            Step::BurstEnds => lro.burst_ends(&mut out),
            Step::Idle => lro.idle(&mut out),
            Step::FlushAll => {
                lro.flush_all(&mut out);
                assert_eq!(lro.next_deadline(), None);
            }
            Step::Interrupt => {
                lro.interrupt(&mut out);
                assert_eq!(lro.next_deadline(), None);
            }
            Step::InterruptFlow(bytes) => lro.interrupt_flow(bytes, &mut out),
            Step::Reconfigure(config) => lro.reconfigure(config.clone(), &mut out),
        }
        check_held(&lro, arrived, &arrivals, &out);
    }
    out.step = steps.len();
    lro.flush_all(&mut out);
    check_held(&lro, arrived, &arrivals, &out);
    assert_eq!(lro.next_deadline(), None);
    Run { events: out.events, arrivals, counters: lro.counters().clone() }
}

/// Time passes, as it would for a caller that always wakes at the deadline.
fn wait(lro: &mut Lro<usize>, time: Nanos, out: &mut Recorder<'_>) {
    let end = out.now + time;
    while let Some(deadline) = lro.next_deadline().filter(|d| *d <= end) {
        assert!(deadline >= out.now, "a deadline in the past was not kept");
        out.now = deadline;
        lro.expire(deadline, out);
        assert!(lro.next_deadline().is_none_or(|next| next > deadline));
    }
    out.now = end;
}

fn check_held(lro: &Lro<usize>, arrived: u64, arrivals: &[Nanos], out: &Recorder<'_>) {
    let gone: u64 = out.events.iter().map(|e| e.out.frames().len() as u64).sum();
    let held = arrived - gone;
    let counters = lro.counters();
    assert_eq!(counters.received, arrived);
    let counted = counters.passed.iter().sum::<u64>()
        + counters.discarded.iter().sum::<u64>()
        + counters.merged;
    assert_eq!(counted + held, arrived, "the counters do not add up");
    assert_eq!(held > 0, lro.next_deadline().is_some(), "held {held}");
    assert!(held <= lro.config().held_frames as u64, "held {held}");
    let timeout = lro.config().max_timeout;
    if let Some(deadline) = lro.next_deadline() {
        // Whatever is held is at least as old as what its deadline counts from.
        let mut is_out = vec![false; arrivals.len()];
        out.events.iter().flat_map(|e| e.out.frames()).for_each(|f| is_out[*f] = true);
        let oldest = (0..=out.step.min(arrivals.len() - 1))
            .filter(|s| !is_out[*s] && matches!(out.steps[*s], Step::Frame(_)))
            .map(|s| arrivals[s])
            .min()
            .unwrap();
        assert!(deadline <= oldest + timeout, "{deadline} for a frame of {oldest}");
    }
}
