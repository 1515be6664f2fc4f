//! Nanoseconds per segment: 44 segments of 1,448 bytes, hot, one core. `cargo bench -p gso`.
#![allow(missing_docs, clippy::unwrap_used)] // a bench may stop where a test may

use std::hint::black_box;
use std::time::{Duration, Instant};

use gso::{MAX_HEADER_LEN, Segmenter};
use testkit::packet::PacketBuilder;
use wire::VirtioNetHdr;

const SEGMENTS: usize = 44;
const GSO_SIZE: u16 = 1448;

/// The best of many short runs, so that a busy machine counts little.
fn ns_per_segment(mut cut: impl FnMut() -> usize) -> f64 {
    const REPEATS: u32 = 50;
    let end = Instant::now() + Duration::from_millis(300);
    let mut best = f64::MAX;
    while Instant::now() < end {
        let start = Instant::now();
        let segments: usize = (0..REPEATS).map(|_| black_box(cut())).sum();
        best = best.min(start.elapsed().as_nanos() as f64 / segments as f64);
    }
    best
}

fn header_only(packet: &[u8], hdr: &VirtioNetHdr) -> usize {
    let mut segmenter = Segmenter::new(black_box(packet), hdr).unwrap();
    let mut header = [0; MAX_HEADER_LEN];
    while let Some(segment) = segmenter.next_segment(&mut header) {
        black_box((&header, segment));
    }
    segmenter.gso_segs()
}

fn into_frames(packet: &[u8], hdr: &VirtioNetHdr, out: &mut [u8]) -> usize {
    let mut segmenter = Segmenter::new(black_box(packet), hdr).unwrap();
    let mut frames = out.chunks_exact_mut(2048);
    while let Some(frame) = frames.next()
        && let Some(len) = segmenter.next_into(frame).unwrap()
    {
        black_box(len);
    }
    segmenter.gso_segs()
}

fn main() {
    let payload = SEGMENTS * usize::from(GSO_SIZE);
    let timestamps = |p: PacketBuilder| p.timestamps(1, 2).payload_pattern(payload);
    let cases = [
        ("tcp4", timestamps(PacketBuilder::tcp4())),
        ("tcp6", timestamps(PacketBuilder::tcp6())),
        ("uso4", PacketBuilder::udp4().payload_pattern(payload)),
        ("uso6", PacketBuilder::udp6().payload_pattern(payload)),
    ];
    let mut frames = vec![0; (SEGMENTS + 1) * 2048];
    for (name, builder) in cases {
        let (packet, hdr) = builder.super_packet(GSO_SIZE);
        let header = ns_per_segment(|| header_only(&packet, &hdr));
        let whole = ns_per_segment(|| into_frames(&packet, &hdr, &mut frames));
        println!("{name}: next_segment {header:.1} ns, next_into {whole:.1} ns");
    }
}
