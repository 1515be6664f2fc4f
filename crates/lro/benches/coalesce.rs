//! Nanoseconds per packet: 44 segments of 1,448 bytes of each of so many flows, in order, the
//! flows taking turns packet by packet, one core. `cargo bench -p lro [-- FLOWS...]`.
//!
//! Frames are written batch by batch into the same few buffers, as a NIC's ring would have them
//! in the cache; only the time in `Lro` is counted.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use lro::{Aggregate, Config, Discard, Lro, Pass, RxChecksum, Sink};
use testkit::packet::PacketBuilder;

const SEGMENTS: usize = 44;
const SEGMENT_LEN: usize = 1448;
/// Frames handed over between two looks at the clock.
const BATCH: usize = 64;
const AHEAD: usize = 12;

/// Takes every slice, as a host port does, and counts.
#[derive(Default)]
struct Count {
    aggregates: usize,
    frames: usize,
    others: usize,
}

impl Sink<u32> for Count {
    fn pass(&mut self, frame: u32, _: Pass) {
        black_box(frame);
        self.others += 1;
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, u32>) {
        black_box(aggregate.header());
        self.aggregates += 1;
        while let Some(slice) = aggregate.next_slice() {
            black_box(slice);
            self.frames += 1;
        }
    }

    fn discard(&mut self, frame: u32, _: Discard) {
        black_box(frame);
        self.others += 1;
    }
}

/// Writes segments of any flow into one buffer after the other.
struct Wire {
    buffers: Vec<Vec<u8>>,
    transport_at: usize,
    /// The checksum of the segment with sequence number and source port 0, complemented.
    sum: u32,
}

impl Wire {
    fn new(builder: &PacketBuilder) -> Wire {
        let segment = builder.clone().ports(0, 80).seq(0).timestamps(1, 2);
        let frame = segment.payload_pattern(SEGMENT_LEN).build();
        let at = builder.transport_at();
        let sum = u32::from(!u16::from_be_bytes([frame[at + 16], frame[at + 17]]));
        Wire { buffers: vec![frame; BATCH], transport_at: at, sum }
    }

    /// RFC 1624: the checksum moves with the words that change.
    fn write(&mut self, buffer: usize, flow: u16, seq: u32) {
        let tcp = &mut self.buffers[buffer][self.transport_at..];
        tcp[..2].copy_from_slice(&flow.to_be_bytes());
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        let mut sum = self.sum + u32::from(flow) + (seq >> 16) + (seq & 0xffff);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        tcp[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}

/// Sends one round, 44 segments of each flow; gives the time in `Lro` for all.
fn round(
    lro: &mut Lro<u32>,
    wire: &mut Wire,
    flows: usize,
    start: u32,
    known: RxChecksum,
) -> (Duration, Count) {
    let mut count = Count::default();
    let mut time = Duration::ZERO;
    let total = flows * SEGMENTS;
    for first in (0..total).step_by(BATCH) {
        let frames = BATCH.min(total - first);
        for n in 0..frames {
            let (segment, flow) = ((first + n) / flows, (first + n) % flows);
            let seq = start.wrapping_add((segment * SEGMENT_LEN) as u32);
            wire.write(n, flow as u16, seq);
        }
        let begin = Instant::now();
        wire.buffers[..AHEAD.min(frames)].iter().for_each(|frame| lro.announce(frame));
        for (n, frame) in wire.buffers[..frames].iter().enumerate() {
            if let Some(ahead) = wire.buffers[..frames].get(n + AHEAD) {
                lro.announce(ahead);
            }
            lro.receive(n as u32, black_box(frame), known, 0, &mut count);
        }
        time += begin.elapsed();
    }
    let begin = Instant::now();
    lro.flush_all(&mut count);
    (time + begin.elapsed(), count)
}

/// The best of several rounds, so that a busy machine counts little.
fn ns_per_packet(wire: &mut Wire, flows: usize, known: RxChecksum) -> f64 {
    let held_frames = flows * SEGMENTS + 1;
    let mut lro = Lro::new(Config { flows, held_frames, ..Config::default() });
    let end = Instant::now() + Duration::from_millis(700);
    let (mut best, mut start, mut rounds) = (f64::MAX, 0u32, 0);
    while rounds < 4 || Instant::now() < end {
        let (time, count) = round(&mut lro, wire, flows, start, known);
        assert_eq!((count.aggregates, count.frames, count.others), (flows, flows * SEGMENTS, 0));
        best = best.min(time.as_nanos() as f64 / (flows * SEGMENTS) as f64);
        start = start.wrapping_add((SEGMENTS * SEGMENT_LEN) as u32);
        rounds += 1;
    }
    best
}

fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let flows = if given.is_empty() { vec![1, 64, 1024, 65_536] } else { given };
    for (name, builder) in [("tcp4", PacketBuilder::tcp4()), ("tcp6", PacketBuilder::tcp6())] {
        let mut wire = Wire::new(&builder);
        for &flows in &flows {
            let verified = ns_per_packet(&mut wire, flows, RxChecksum::Unverified);
            let vouched = ns_per_packet(&mut wire, flows, RxChecksum::Verified);
            println!(
                "{name}, {flows} flows: {verified:.1} ns with verification, {vouched:.1} ns without"
            );
        }
    }
}
