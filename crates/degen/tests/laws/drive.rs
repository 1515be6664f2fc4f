//! A run through degen, whose accounts are checked at every step. The fuzz target has it from here, too.

use degen::{Counters, Degen, Departure, Frames, Nanos};

use crate::given::Given;

/// A packet with its place among those that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    /// Its place among those that arrived.
    pub(crate) number: usize,
    pub(crate) copy: bool,
    pub(crate) bytes: Vec<u8>,
}

/// The memory they lie in.
#[derive(Debug, Default)]
struct Memory {
    scarce: bool,
    discarded: Vec<Packet>,
}

impl Frames<Packet> for Memory {
    fn bytes_mut<'a>(&'a mut self, packet: &'a mut Packet) -> &'a mut [u8] {
        &mut packet.bytes
    }

    fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        assert!(!packet.copy, "a copy is copied");
        let enough = !self.scarce || packet.number.is_multiple_of(2);
        enough.then(|| Packet { copy: true, ..packet.clone() })
    }

    fn discard(&mut self, packet: Packet) {
        self.discarded.push(packet);
    }
}

/// When departures are polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polling {
    /// When all has arrived.
    AtTheEnd,
    /// At `next_deadline`, and not before.
    AtDeadlines,
    /// One departure at a time, at `next_deadline`.
    OneByOne,
    /// Before and after every arrival, and thrice between two of them.
    Often,
}

/// A packet that is out, and when it was due.
pub(crate) type Out = Departure<Packet>;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) departures: Vec<Out>,
    pub(crate) discarded: Vec<Packet>,
    pub(crate) counters: Counters,
}

/// A run in progress.
#[derive(Debug)]
struct Run<'a> {
    given: &'a Given,
    way: Degen<Packet>,
    memory: Memory,
    departures: Vec<Out>,
    arrived: usize,
    /// The shortest delay of the run.
    least: Nanos,
}

impl Given {
    /// Everything arrives and leaves.
    pub(crate) fn run(&self, polling: Polling) -> Outcome {
        let mut run = Run::new(self);
        for arrival in &self.arrivals {
            run.poll(polling, arrival.at);
            run.arrive();
        }
        run.poll_to_the_end(polling);
        run.outcome()
    }

    /// So many packets arrive; what has not left is taken back, once and for all.
    pub(crate) fn break_off(&self, after: usize) {
        let mut run = Run::new(self);
        for arrival in &self.arrivals[..after] {
            run.poll(Polling::AtDeadlines, arrival.at);
            run.arrive();
        }
        let held = run.way.held();
        let taken: Vec<_> = std::iter::from_fn(|| run.way.take_back()).collect();
        assert_eq!((taken.len(), run.way.held()), (held, 0));
        taken.iter().for_each(|packet| run.looks_as_it_may(packet));
        let out = run.departures.iter().map(|out| &out.packet);
        let mut seen: Vec<_> = out.chain(&taken).chain(&run.memory.discarded).collect();
        seen.sort_by_key(|packet| (packet.number, packet.copy));
        let both = seen.windows(2).find(|two| key(two[0]) == key(two[1]));
        assert!(both.is_none(), "in two places: {both:?}");
        let counters = run.way.counters();
        assert_eq!(seen.len() as u64, counters.arrived + counters.duplicated);
    }

    /// Packets come with a stamp of `lag` ago, after departures were asked for.
    pub(crate) fn run_behind(&self, lag: Nanos) -> Outcome {
        let mut run = Run::new(self);
        for arrival in &self.arrivals {
            run.take_out(arrival.at + lag);
            run.arrive();
        }
        run.poll_to_the_end(Polling::AtTheEnd);
        run.outcome()
    }
}

fn key(packet: &Packet) -> (usize, bool) {
    (packet.number, packet.copy)
}

impl<'a> Run<'a> {
    fn new(given: &'a Given) -> Self {
        let mut way = Degen::new(given.config.clone(), given.seed);
        way.begin(given.schedule.clone(), given.began);
        let memory = Memory { scarce: given.scarce, ..Memory::default() };
        let has_jitter = given.all(|config| config.jitter).iter().any(|jitter| *jitter > 0);
        let delay = given.all(|config| config.delay).into_iter().min();
        let least = delay.filter(|_| !has_jitter).unwrap_or_default();
        Run { given, way, memory, departures: Vec::new(), arrived: 0, least }
    }

    /// The next packet arrives when it is to.
    fn arrive(&mut self) {
        let number = self.arrived;
        let arrival = &self.given.arrivals[number];
        self.arrived += 1;
        let packet = Packet { number, copy: false, bytes: arrival.bytes.clone() };
        self.way.arrive(packet, arrival.at, &mut self.memory);
        self.accounts();
    }

    /// Polls departures up to `until`.
    fn poll(&mut self, polling: Polling, until: Nanos) {
        match polling {
            Polling::AtTheEnd => {}
            Polling::AtDeadlines => {
                while let Some(at) = self.way.next_deadline().filter(|at| *at <= until) {
                    self.take_out_at_deadline(at);
                }
            }
            Polling::OneByOne => {
                while let Some(at) = self.way.next_deadline().filter(|at| *at <= until) {
                    if !self.take_one(at) {
                        let next = self.way.next_deadline();
                        assert!(next.is_none_or(|next| next > at), "{next:?} at {at}");
                    }
                }
            }
            Polling::Often => {
                let last = self.arrived.checked_sub(1).map_or(0, |at| self.given.arrivals[at].at);
                for quarter in 0..4 {
                    self.take_out(last + (until - last) / 4 * quarter);
                }
                self.take_out(until);
            }
        }
    }

    fn poll_to_the_end(&mut self, polling: Polling) {
        let latest = self.given.latest();
        match polling {
            Polling::AtTheEnd => self.take_out(Nanos::MAX),
            Polling::Often => {
                let last = self.given.arrivals.last().map_or(0, |last| last.at);
                for part in 0..=100 {
                    self.take_out(last + (latest - last) / 100 * part);
                }
                self.take_out(latest);
            }
            Polling::AtDeadlines | Polling::OneByOne => {
                while self.way.held() > 0 {
                    let at = self.way.next_deadline().expect("no deadline, but something is held");
                    assert!(at <= latest, "still there at {at}, after {latest}");
                    self.poll(polling, at);
                }
            }
        }
        assert_eq!(self.way.held(), 0);
    }

    /// Nothing happens before a deadline, and something at it.
    fn take_out_at_deadline(&mut self, at: Nanos) {
        if let Some(before) = at.checked_sub(1) {
            let counters = *self.way.counters();
            assert!(!self.take_one(before), "out before the deadline {at}");
            assert_eq!(*self.way.counters(), counters, "dropped before the deadline {at}");
            assert_eq!(self.way.next_deadline(), Some(at), "another deadline");
        }
        self.take_out(at);
        let next = self.way.next_deadline();
        assert!(next.is_none_or(|next| next > at), "{next:?} at {at}");
    }

    fn take_out(&mut self, now: Nanos) {
        while self.take_one(now) {}
    }

    fn take_one(&mut self, now: Nanos) -> bool {
        let out = self.way.depart(now, &mut self.memory);
        self.accounts();
        let Some(out) = out else { return false };
        assert!(out.due <= now, "due at {}, but out at {now}", out.due);
        let last = self.departures.last().map_or(0, |last| last.due);
        assert!(last <= out.due, "back from {last} to {}", out.due);
        let stamp = self.given.arrivals[out.packet.number].at;
        assert!(out.due >= stamp + self.least, "it came at {stamp} and left at {}", out.due);
        self.looks_as_it_may(&out.packet);
        self.departures.push(out);
        true
    }

    /// Every packet is accounted for.
    fn accounts(&self) {
        let counters = self.way.counters();
        let dropped = counters.lost + counters.queue_full + counters.codel_dropped;
        assert_eq!(
            counters.arrived + counters.duplicated,
            counters.departed + dropped + self.way.held() as u64,
            "{counters:?}, {} held",
            self.way.held()
        );
        assert_eq!(counters.arrived, self.arrived as u64);
        assert_eq!(counters.departed, self.departures_counted());
        assert_eq!(dropped, self.memory.discarded.len() as u64);
    }

    /// The one that has just departed is counted, but not recorded yet.
    fn departures_counted(&self) -> u64 {
        let kept = self.departures.len() as u64;
        kept + u64::from(self.way.counters().departed > kept)
    }

    /// Bytes are as they came, but for a mark and a bit.
    fn looks_as_it_may(&self, packet: &Packet) {
        let came = &self.given.arrivals[packet.number].bytes;
        assert_eq!(packet.bytes.len(), came.len());
        if packet.bytes == *came {
            return;
        }
        let bits = |from: &[u8]| -> u32 {
            let pairs = from.iter().zip(&packet.bytes);
            pairs.map(|(one, other)| (one ^ other).count_ones()).sum()
        };
        let counters = self.way.counters();
        let fine = match (counters.marked > 0, counters.corrupted > 0) {
            (false, false) => false,
            (false, true) => bits(came) == 1,
            (true, false) => {
                let mut marked = came.clone();
                degen::ecn::mark(&mut marked) && packet.bytes == marked
            }
            // CoDel may mark a packet with an inverted bit, and may be allowed to by that bit.
            (true, true) => {
                let at = match came.get(12..14) {
                    Some([0x08, 0x00]) => 15..26,
                    Some([0x86, 0xdd]) => 14..16,
                    _ => 0..0,
                };
                let mut otherwise = came.clone();
                otherwise[at.clone()].copy_from_slice(&packet.bytes[at]);
                bits(came) == 1 || bits(&otherwise) <= 1
            }
        };
        assert!(fine, "{packet:?} came as {came:?}");
    }

    fn outcome(self) -> Outcome {
        let counters = *self.way.counters();
        let bytes = |packets: &mut dyn Iterator<Item = usize>| packets.sum::<usize>() as u64;
        let arrived = bytes(&mut self.given.arrivals.iter().map(|arrival| arrival.bytes.len()));
        let departed = bytes(&mut self.departures.iter().map(|out| out.packet.bytes.len()));
        assert_eq!((counters.arrived_bytes, counters.departed_bytes), (arrived, departed));
        let copies = self.departures.iter().map(|out| &out.packet).chain(&self.memory.discarded);
        assert_eq!(copies.filter(|packet| packet.copy).count() as u64, counters.duplicated);
        Outcome { departures: self.departures, discarded: self.memory.discarded, counters }
    }
}
