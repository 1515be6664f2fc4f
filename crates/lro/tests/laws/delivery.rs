//! What the host is given is what was sent: bit for bit and in the same order in the lossless profile;
//! in both, all bytes that came, and of those for one place the ones that came first.

use std::collections::HashMap;

use gso::Segmenter;
use lro::{Config, Profile, RxChecksum};
use proptest::prelude::*;

use super::aggregate::parts;
use super::naive::{FIN, Key, PSH, Tcp};
use super::run::{Joined, Out, Run, Step, run};
use super::trace::{configs, traces};

/// Cuts an aggregate by its own header, and its fixed ID if it has one.
pub(crate) fn cut(joined: &Joined) -> Vec<Vec<u8>> {
    let mut segmenter = Segmenter::new(&joined.bytes, &joined.vnet).unwrap();
    if joined.fixed_id {
        segmenter = segmenter.fixed_id();
    }
    let mut out = vec![0; segmenter.max_segment_len()];
    std::iter::from_fn(|| {
        let len = segmenter.next_into(&mut out).unwrap()?;
        Some(out[..len].to_vec())
    })
    .collect()
}

/// A frame of which the port said that its checksum may be partial, or need not be looked at,
/// comes back with a complete one.
fn vouched_by_port(steps: &[Step], at: usize) -> bool {
    matches!(&steps[at], Step::Frame(frame) if frame.checksum != RxChecksum::Unverified)
}

/// What a connection's host sees, one entry per byte or event, with where it lies.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Byte(u32, u8),
    /// A packet that carries no data, or more than data: everything of its header.
    Event(Vec<u8>),
    Fin(u32),
}

fn see(stream: &mut Vec<Seen>, packet: &Tcp) {
    let seq = packet.seq();
    if packet.payload.is_empty() || packet.flags() & !(FIN | PSH) != super::naive::ACK {
        stream.push(Seen::Event([&packet.ip[..], &packet.tcp].concat()));
    }
    let bytes = packet.payload.iter().zip(0u32..);
    stream.extend(bytes.map(|(byte, at)| Seen::Byte(seq.wrapping_add(at), *byte)));
    if packet.has(FIN) {
        stream.push(Seen::Fin(seq.wrapping_add(packet.payload.len() as u32)));
    }
}

/// Per connection, what the host would have seen without LRO and what it sees with it. Segments
/// whose flags are more than ACK, PSH and FIN are compared with those of their own aggregate in
/// [`super::aggregate`], so here aggregates are compared by their bytes.
fn streams(run: &Run, steps: &[Step]) -> [HashMap<Key, Vec<Seen>>; 2] {
    let mut streams: [HashMap<Key, Vec<Seen>>; 2] = Default::default();
    for event in &run.events {
        match &event.out {
            Out::Discarded(..) => {}
            Out::Passed(at, _) => {
                let Step::Frame(frame) = &steps[*at] else { unreachable!() };
                let Some(packet) = Tcp::read(&frame.bytes) else { continue };
                for stream in &mut streams {
                    see(stream.entry(packet.key()).or_default(), &packet);
                }
            }
            Out::Joined(joined) => {
                let [without, with] = &mut streams;
                for mut part in parts(joined, steps) {
                    part.tcp[13] &= FIN | PSH | super::naive::ACK;
                    see(without.entry(part.key()).or_default(), &part);
                }
                let mut whole = Tcp::read(&joined.bytes).unwrap();
                whole.tcp[13] &= FIN | PSH | super::naive::ACK;
                see(with.entry(whole.key()).or_default(), &whole);
            }
        }
    }
    streams
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    /// segment(coalesce(x)) = x, Ethernet padding left out.
    #[test]
    fn lossless_aggregates_cut_to_their_packets(config in configs(), steps in traces(4, 120)) {
        let config = Config { profile: Profile::Lossless, ..config };
        let run = run(&config, &steps);
        for joined in run.joined() {
            let cut = cut(joined);
            prop_assert_eq!(cut.len(), joined.frames.len());
            for ((at, part), is) in joined.frames.iter().zip(parts(joined, &steps)).zip(cut) {
                prop_assert!(part.tcp_checksum_ok() || vouched_by_port(&steps, *at));
                let mut part = part;
                if vouched_by_port(&steps, *at) {
                    part.tcp[16..18].copy_from_slice(&Tcp::read(&is).unwrap().tcp[16..18]);
                }
                prop_assert!(part.bytes() == is, "{:?}\nis not\n{:?}", part, Tcp::read(&is));
                prop_assert_eq!(testkit::verify::checksums(&is), Ok(()));
            }
        }
    }

    /// Byte streams, FINs and everything without data are as if there were no LRO, with every
    /// duplicate and overlap where it was.
    #[test]
    fn lossless_streams_are_as_they_were(config in configs(), steps in traces(4, 120)) {
        let config = Config { profile: Profile::Lossless, ..config };
        let [without, with] = streams(&run(&config, &steps), &steps);
        prop_assert!(without == with);
    }

    /// Whatever arrives, and with little memory: that of two segments for one place the first
    /// counts is what a host does by itself, in the order in which it gets them.
    #[test]
    fn the_host_gets_every_byte_of_the_segment_that_came_first(
        config in configs(),
        memory in prop_oneof![Just((4096, 4096)), (1usize..6, 1usize..40)],
        steps in traces(3, 120),
    ) {
        let config = Config { flows: memory.0, held_frames: memory.1, ..config };
        let run = run(&config, &steps);
        let [came, given] = [arrivals(&run, &steps), departures(&run, &steps)];
        for (key, came) in &came {
            check_stream(came, &given[key]);
        }
    }
}

/// Bytes and their place, in one packet.
struct Piece {
    seq: u32,
    bytes: Vec<u8>,
}

impl Piece {
    fn of(packet: Tcp) -> Piece {
        Piece { seq: packet.seq(), bytes: packet.payload }
    }
}

fn frame(steps: &[Step], at: usize) -> Option<Tcp> {
    match &steps[at] {
        Step::Frame(frame) => Tcp::read(&frame.bytes),
        step => panic!("{step:?} is no frame"),
    }
}

/// What came in and was not discarded, by connection.
fn arrivals(run: &Run, steps: &[Step]) -> HashMap<Key, Vec<Piece>> {
    let mut frames: Vec<usize> = run.groups().into_iter().flatten().collect();
    frames.sort_unstable();
    let mut came: HashMap<Key, Vec<Piece>> = HashMap::new();
    for packet in frames.into_iter().filter_map(|at| frame(steps, at)) {
        came.entry(packet.key()).or_default().push(Piece::of(packet));
    }
    came
}

/// What came out.
fn departures(run: &Run, steps: &[Step]) -> HashMap<Key, Vec<Piece>> {
    let mut given: HashMap<Key, Vec<Piece>> = HashMap::new();
    for event in &run.events {
        let packet = match &event.out {
            Out::Discarded(..) => None,
            Out::Passed(at, _) => frame(steps, *at),
            Out::Joined(joined) => Tcp::read(&joined.bytes),
        };
        if let Some(packet) = packet {
            given.entry(packet.key()).or_default().push(Piece::of(packet));
        }
    }
    given
}

/// Between any two places where a segment begins or ends, the first segment's bytes are the same.
fn check_stream(came: &[Piece], given: &[Piece]) {
    let ends = |p: &Piece| [p.seq, p.seq.wrapping_add(p.bytes.len() as u32)];
    let mut cuts: Vec<u32> = came.iter().chain(given).flat_map(ends).collect();
    cuts.sort_unstable();
    cuts.dedup();
    for (from, to) in cuts.iter().zip(cuts.iter().cycle().skip(1)) {
        let first = |pieces: &[Piece]| {
            let covers = |p: &&Piece| (from.wrapping_sub(p.seq) as usize) < p.bytes.len();
            let piece = pieces.iter().find(covers)?;
            let start = from.wrapping_sub(piece.seq) as usize;
            Some(piece.bytes[start..start + to.wrapping_sub(*from) as usize].to_vec())
        };
        assert!(first(came) == first(given), "bytes {from} to {to}");
    }
}
