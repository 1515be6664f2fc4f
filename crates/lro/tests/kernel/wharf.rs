//! The lossless profile, with no time passing.

use lro::{Aggregate, Config, Discard, Lro, Pass, Profile, RxChecksum, Sink};
use wire::VirtioNetHdr;

use super::model::Out;

/// Writes down what comes out. What wharf discards for its checksum the kernel would drop one
/// layer up, so it is a packet as it came.
struct Recorder<'a> {
    frames: &'a [Vec<u8>],
    out: Vec<Out>,
}

impl Recorder<'_> {
    fn alone(&mut self, n: usize) {
        let bytes = self.frames[n].clone();
        self.out.push(Out { vnet: None, bytes, frames: vec![n], fixed_id: false });
    }
}

impl Sink<usize> for Recorder<'_> {
    fn pass(&mut self, frame: usize, _: Pass) {
        self.alone(frame);
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, usize>) {
        let vnet = Some(VirtioNetHdr { hdr_len: 0, ..aggregate.vnet() });
        let fixed_id = aggregate.fixed_id();
        let mut bytes = aggregate.header().to_vec();
        let mut frames = Vec::with_capacity(aggregate.segments());
        while let Some(slice) = aggregate.next_slice() {
            bytes.extend(&self.frames[slice.frame][slice.start..slice.start + slice.len]);
            frames.push(slice.frame);
        }
        self.out.push(Out { vnet, bytes, frames, fixed_id });
    }

    fn discard(&mut self, frame: usize, _: Discard) {
        self.alone(frame);
    }
}

/// What wharf makes of frames, everything held being flushed after the last.
pub(crate) fn run(frames: &[Vec<u8>]) -> Vec<Out> {
    let config = Config {
        profile: Profile::Lossless,
        max_segments: 1 << 16,
        flows: 64,
        held_frames: 256,
        ..Config::default()
    };
    run_with(config, frames)
}

/// The same of another configuration.
pub(crate) fn run_with(config: Config, frames: &[Vec<u8>]) -> Vec<Out> {
    let mut lro: Lro<usize> = Lro::new(config);
    let mut out = Recorder { frames, out: Vec::with_capacity(frames.len()) };
    for (n, frame) in frames.iter().enumerate() {
        lro.receive(n, frame, RxChecksum::Unverified, 0, &mut out);
    }
    lro.flush_all(&mut out);
    out.out
}
