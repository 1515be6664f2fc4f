//! End to end: a host that is given what comes out ends up as it would have with what came in.
//!
//! To put segments in order is to change what a host sees, so what may differ is stated here, each
//! difference as narrowly as it can be:
//!
//! - *TS.Recent between the first and the last of an aggregate.* The aggregate carries the first's
//!   TSval (the paper, section IV.D), so the host may believe a TSval that the last of them would
//!   have ruled out; never one older than the first's. A host that delays its acknowledgment does the
//!   same (RFC 7323 section 4.3).
//! - *A connection that was just picked up*, after a FIN, say, or after packets that went another way.
//!   What TSval the host has seen is then not known, and an old duplicate may wait for a hole that
//!   younger data fills, and be taken for as young.
//! - *Two old duplicates in a row.* The first segment whose TSval is older than that of one in order
//!   before it goes alone; the next like it begins a run, and what joins that is refused with it.
//! - *TS.Recent in order.* A host updates TS.Recent only from what comes in order. So it may refuse a
//!   segment that comes later than one from before its place that was sent after it (again, then), if
//!   to put things in order made that count.
//! - *The acknowledgment of data that came before.* A segment outside the window tells a host nothing
//!   (RFC 9293 section 3.10.7.4). In an aggregate with new data it tells its acknowledgment; and it
//!   may be outside only since it waited.
//! - *The window of the newest acknowledgment.* By SND.WL1 the host takes the window of the highest
//!   sequence number, even if its acknowledgment is older. Put in order, it takes the one that came
//!   with the newest acknowledgment.
//! - *The window behind data sent again.* An aggregate that begins with data sent again has an old
//!   sequence number, by which the host does not take the window of the new data in it; nor does it
//!   take that of data with an acknowledgment older than that of data sent again which overtook it.
//!   (Linux does if the acknowledgment is new as well.) It takes the next packet's.

use std::collections::BTreeMap;

use lro::Config;
use proptest::prelude::*;

use super::honest::{endpoints, honest_traces};
use super::naive::{FIN, Key, RST, SYN, Tcp};
use super::receiver::{Fate, Receiver, Segment};
use super::rules::is_before;
use super::run::{Event, Out, Run, Step, run};

/// No sender sends more than its peer has room for.
const WINDOW: u32 = 1 << 20;

/// A host per connection, all in the same state.
type Hosts = BTreeMap<Key, Receiver>;

fn read(steps: &[Step], at: usize) -> Option<Tcp> {
    match &steps[at] {
        Step::Frame(frame) => Tcp::read(&frame.bytes),
        step => panic!("{step:?} is no frame"),
    }
}

fn whole(steps: &[Step], at: usize, step: usize) -> Option<Segment> {
    let packet = read(steps, at)?;
    Some(Segment { from: vec![(at, packet.payload.len())], packet, step })
}

/// What the hosts are given without LRO.
pub(crate) fn unmerged(steps: &[Step]) -> Vec<Segment> {
    let frames = (0..steps.len()).filter(|at| matches!(steps[*at], Step::Frame(_)));
    frames.filter_map(|at| whole(steps, at, at)).collect()
}

/// What they are given with it.
pub(crate) fn merged(run: &Run, steps: &[Step]) -> Vec<Segment> {
    let given = |event: &Event| match &event.out {
        Out::Discarded(..) => None,
        Out::Passed(at, _) => whole(steps, *at, event.step),
        Out::Joined(joined) => {
            let packet = Tcp::read(&joined.bytes)?;
            let lens = joined.slices.iter().map(|(_, len)| *len);
            let from = joined.frames.iter().copied().zip(lens).collect();
            Some(Segment { from, packet, step: event.step })
        }
    };
    run.events.iter().filter_map(given).collect()
}

fn hosts(steps: &[Step]) -> Hosts {
    let mut hosts = Hosts::new();
    for segment in unmerged(steps) {
        let key = segment.packet.key();
        hosts.entry(key).or_insert_with(|| Receiver::expecting(&segment.packet, WINDOW));
    }
    hosts
}

/// What became of each frame's data.
fn play(hosts: &mut Hosts, segments: &[Segment]) -> BTreeMap<usize, Fate> {
    let mut fates = BTreeMap::new();
    for segment in segments {
        let host = hosts.get_mut(&segment.packet.key()).unwrap();
        let fate = host.receive(segment);
        fates.extend(segment.from.iter().map(|(frame, _)| (*frame, fate)));
    }
    fates
}

/// One connection's story, both ways.
struct Story<'a> {
    steps: &'a [Step],
    merged: &'a [Segment],
    without: &'a BTreeMap<usize, Fate>,
    with: &'a BTreeMap<usize, Fate>,
}

impl Story<'_> {
    fn value(&self, frame: usize) -> Option<u32> {
        Some(read(self.steps, frame)?.timestamps()?.0)
    }

    /// The aggregate that a frame came in.
    fn aggregate_of(&self, frame: usize) -> &Segment {
        self.merged.iter().find(|s| s.from.iter().any(|(from, _)| *from == frame)).unwrap()
    }

    /// Whether the host may refuse this frame's data, which it would have taken.
    fn may_refuse(&self, frame: usize) -> bool {
        let refused = self.aggregate_of(frame);
        let first = refused.from[0].0;
        let two_old = refused.from.len() > 1
            && first != frame
            && (self.without[&first] == Fate::Paws || self.goes_back(first));
        two_old || self.goes_back(frame)
    }

    /// Whether a frame's TSval is older than that of one that arrived earlier, though its place is behind.
    fn goes_back(&self, frame: usize) -> bool {
        let late = read(self.steps, frame).unwrap();
        let overtakes = |packet: &Tcp| {
            let values = packet.timestamps().zip(late.timestamps());
            packet.key() == late.key()
                && is_before(packet.seq(), late.seq())
                && values.is_some_and(|(newer, older)| is_before(older.0, newer.0))
        };
        (0..frame)
            .filter(|at| matches!(self.steps[*at], Step::Frame(_)))
            .any(|at| read(self.steps, at).is_some_and(|packet| overtakes(&packet)))
    }

    /// Whether nothing has come out, since its connection was picked up, that a frame's TSval could be
    /// compared with.
    fn is_picked_up(&self, frame: usize) -> bool {
        let late = read(self.steps, frame).unwrap();
        let mut known = false;
        for at in 0..frame {
            let packet = match &self.steps[at] {
                Step::Interrupt => {
                    known = false;
                    continue;
                }
                Step::InterruptFlow(bytes) => {
                    known &= Tcp::read(bytes).is_none_or(|packet| packet.key() != late.key());
                    continue;
                }
                Step::Frame(frame) => Tcp::read(&frame.bytes),
                _ => None,
            };
            let Some(packet) = packet.filter(|packet| packet.key() == late.key()) else { continue };
            let values = packet.timestamps().zip(late.timestamps());
            known &= !packet.has(SYN | FIN | RST);
            known |= !packet.payload.is_empty()
                && self.aggregate_of(at).step < frame
                && is_before(packet.seq(), late.seq())
                && values.is_some_and(|(newer, older)| is_before(older.0, newer.0));
        }
        !known
    }

    /// Whether the host may believe a frame's TSval that it would not have believed.
    fn may_believe(&self, frame: usize) -> bool {
        let value = self.value(frame).unwrap();
        let at = self.merged.iter().position(|s| s.from.iter().any(|(from, _)| *from == frame));
        self.merged[..at.unwrap()].iter().any(|aggregate| {
            let values: Vec<u32> =
                aggregate.from.iter().filter_map(|(from, _)| self.value(*from)).collect();
            let first = aggregate.packet.timestamps().map(|(value, _)| value);
            aggregate.packet.key() == read(self.steps, frame).unwrap().key()
                && first.is_some_and(|first| !is_before(value, first))
                && values.iter().any(|of_part| is_before(value, *of_part))
        })
    }

    fn check(&self, key: &Key, without: &Receiver, with: &Receiver) {
        let mut same = true;
        for at in 0..without.stream.len().max(with.stream.len()) {
            let byte = |host: &Receiver| host.stream.get(at).copied().flatten();
            match (byte(without), byte(with)) {
                (Some((_, frame)), None) => {
                    assert!(self.may_refuse(frame), "byte {at} of frame {frame} is refused");
                    same = false;
                }
                (was, Some((byte, frame))) => {
                    if self.without[&frame] == Fate::Paws {
                        let may = self.may_believe(frame) || self.is_picked_up(frame);
                        assert!(may, "byte {at} of old frame {frame} is taken");
                        same = false;
                    }
                    // Of several for its place, the first that is not refused counts.
                    if let Some((_, first)) = was.filter(|(was, _)| *was != byte) {
                        let may = !same || self.may_refuse(first);
                        assert!(may, "byte {at} is of frame {frame}, not {first}");
                        same = false;
                    }
                    same &= was.is_some();
                }
                (None, None) => {}
            }
        }
        if same {
            self.check_events(key, without, with);
        }
    }

    fn check_events(&self, key: &Key, without: &Receiver, with: &Receiver) {
        assert_eq!(without.finished, with.finished, "FIN");
        assert_eq!(without.reset, with.reset, "RST");
        assert_eq!(without.urgent, with.urgent, "URG");
        if without.finished || without.reset {
            return; // which acknowledgments come after is of no account
        }
        let (newer, ignored_by) = match is_before(with.snd_una, without.snd_una) {
            true => (without.snd_una, self.with),
            false => (with.snd_una, self.without),
        };
        let outside = ignored_by.iter().filter(|(_, fate)| **fate == Fate::Outside);
        let mut ignored = outside.filter_map(|(frame, _)| read(self.steps, *frame));
        assert!(
            with.snd_una == without.snd_una
                || ignored.any(|packet| packet.key() == *key && packet.ack() == newer),
            "acknowledgment {} for {}",
            with.snd_una,
            without.snd_una
        );
        let own = || self.merged.iter().filter(|segment| segment.packet.key() == *key);
        let newest = |segment: &&Segment| segment.packet.ack() == with.snd_una;
        let windows: Vec<usize> = own().filter(newest).map(|s| s.packet.window()).collect();
        let window = with.snd_wnd;
        let as_told = window == without.snd_wnd || windows.contains(&window);
        assert!(as_told || self.may_miss_a_window(key), "window {window} for {}", without.snd_wnd);
    }

    /// Whether there is an aggregate that begins before what was handed on before it, or data with an older
    /// acknowledgment.
    fn may_miss_a_window(&self, key: &Key) -> bool {
        let own: Vec<&Segment> = self.merged.iter().filter(|s| s.packet.key() == *key).collect();
        own.iter().enumerate().any(|(at, aggregate)| {
            let before = |s: &&Segment| is_before(aggregate.packet.seq(), s.packet.seq());
            let newer = |s: &&Segment| is_before(aggregate.packet.ack(), s.packet.ack());
            aggregate.from.len() > 1 && own[..at].iter().any(before) || own[..at].iter().any(newer)
        })
    }
}

/// Plays a trace both ways and compares.
fn check(config: &Config, steps: &[Step]) {
    let run = run(config, steps);
    let merged = merged(&run, steps);
    let (mut without, mut with) = (hosts(steps), hosts(steps));
    let fates_without = play(&mut without, &unmerged(steps));
    let fates_with = play(&mut with, &merged);
    let story = Story { steps, merged: &merged, without: &fates_without, with: &fates_with };
    for (key, host) in &without {
        story.check(key, host, &with[key]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_host_ends_up_as_it_would_have(
        config in endpoints(),
        steps in honest_traces(2, 120),
    ) {
        check(&config, &steps);
    }
}
