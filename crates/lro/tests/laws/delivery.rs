//! What the host is given is what was sent: bit for bit in the lossless profile, byte streams and
//! events in both.

use std::collections::HashMap;

use gso::Segmenter;
use lro::{Config, Profile, RxChecksum};
use proptest::prelude::*;

use crate::aggregate::parts;
use crate::naive::{FIN, Key, PSH, Tcp};
use crate::run::{Joined, Out, Run, Step, run};
use crate::trace::{configs, traces};

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
    if packet.payload.is_empty() || packet.flags() & !(FIN | PSH) != crate::naive::ACK {
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
/// [`crate::aggregate`], so here aggregates are compared by their bytes.
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
                    part.tcp[13] &= FIN | PSH | crate::naive::ACK;
                    see(without.entry(part.key()).or_default(), &part);
                }
                let mut whole = Tcp::read(&joined.bytes).unwrap();
                whole.tcp[13] &= FIN | PSH | crate::naive::ACK;
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
    fn the_host_sees_the_same_stream(config in configs(), steps in traces(4, 120)) {
        let [without, with] = streams(&run(&config, &steps), &steps);
        prop_assert!(without == with);
    }
}
