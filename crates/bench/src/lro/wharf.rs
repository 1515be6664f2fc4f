//! wharf's own LRO, in process.

use std::hint::black_box;
use std::time::{Duration, Instant};

use lro::{Aggregate, Config, Discard, Lro, Pass, RxChecksum, Sink};

use super::Setting;
use super::case::SEGMENTS;
use super::workload::{BURST, LAP, Stream, Workload};
use crate::side_by_side::{Lap, Runner, Sample, laps};
use crate::{Error, System};

/// Frames by which those that come are announced, as a worker does.
const ANNOUNCE_AHEAD: usize = 12;

/// One `Lro` for as long as the setting stays, as on a worker: its flows stay known, and their
/// sequence numbers go on from case to case. A round ends with everything flushed.
///
/// Virtual time stands still, so nothing is flushed by time.
#[derive(Default)]
pub(super) struct Wharf {
    open: Option<Open>,
}

/// What belongs to one setting.
struct Open {
    setting: Setting,
    lro: Lro<u32>,
    stream: Stream,
    buffers: Vec<Vec<u8>>,
}

impl Open {
    fn new(workload: &Workload) -> Open {
        let flows = workload.setting.flows as usize;
        // Room for all of a round: how memory that runs out is treated is not the question here.
        let config = Config { flows, held_frames: flows * SEGMENTS + 1, ..Config::default() };
        Open {
            setting: workload.setting,
            lro: Lro::new(config),
            stream: Stream::default(),
            buffers: vec![workload.frame().to_vec(); BURST],
        }
    }

    /// Whole rounds.
    fn lap(&mut self, workload: &Workload) -> Result<Lap, Error> {
        let known = if self.setting.verify { RxChecksum::Unverified } else { RxChecksum::Verified };
        let mut count = Count::default();
        let mut time = Duration::ZERO;
        let mut packets = 0;
        while packets < LAP {
            for _ in 0..workload.round() / BURST {
                for frame in &mut self.buffers {
                    workload.write(frame, &mut self.stream);
                }
                let begin = Instant::now();
                receive_burst(&mut self.lro, &self.buffers, known, &mut count);
                time += begin.elapsed();
            }
            let begin = Instant::now();
            flush_lap(&mut self.lro, &mut count);
            time += begin.elapsed();
            packets += workload.round();
        }
        if (count.frames, count.discarded) != (packets as u64, 0) {
            let Count { frames, discarded, .. } = count;
            let why = format!("of {packets} packets {frames} came out and {discarded} were bad");
            return Err(Error::Failed { system: "wharf", why });
        }
        Ok(Lap { time, packets: packets as u64, large: count.outputs })
    }
}

impl Wharf {
    fn open(&mut self, workload: &Workload) -> &mut Open {
        self.open = self.open.take().filter(|open| open.setting == workload.setting);
        self.open.get_or_insert_with(|| Open::new(workload))
    }

    /// One lap, for a profiler to look at; returns its packets.
    pub(super) fn run_a_lap(&mut self, workload: &Workload) -> Result<u64, Error> {
        Ok(self.open(workload).lap(workload)?.packets)
    }
}

impl Runner<Workload> for Wharf {
    fn system(&self) -> System {
        System::Wharf
    }

    fn slice(&mut self, workload: &Workload, time: Duration) -> Result<Sample, Error> {
        let open = self.open(workload);
        laps(time, || open.lap(workload))
    }
}

/// Takes every slice, as a host port does, and counts.
#[derive(Default)]
pub(super) struct Count {
    outputs: u64,
    frames: u64,
    discarded: u64,
}

impl Sink<u32> for Count {
    fn pass(&mut self, frame: u32, _: Pass) {
        black_box(frame);
        self.outputs += 1;
        self.frames += 1;
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, u32>) {
        black_box(aggregate.header());
        self.outputs += 1;
        while let Some(slice) = aggregate.next_slice() {
            black_box(slice);
            self.frames += 1;
        }
    }

    fn discard(&mut self, frame: u32, _: Discard) {
        black_box(frame);
        self.discarded += 1;
    }
}

// What is timed, and what callgrind counts by these names: see `super::instructions`.

#[inline(never)]
fn receive_burst(lro: &mut Lro<u32>, frames: &[Vec<u8>], known: RxChecksum, count: &mut Count) {
    for (n, frame) in frames.iter().enumerate() {
        if let Some(ahead) = frames.get(n + ANNOUNCE_AHEAD) {
            lro.announce(ahead);
        }
        lro.receive(n as u32, black_box(frame), known, 0, count);
    }
}

#[inline(never)]
fn flush_lap(lro: &mut Lro<u32>, count: &mut Count) {
    lro.flush_all(count);
}
