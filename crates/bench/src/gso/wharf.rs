//! wharf's own GSO, in process, in its two ways.

use std::hint::black_box;
use std::time::{Duration, Instant};

use gso::{MAX_HEADER_LEN, Refusal, Segmenter};
use wire::ETHERNET_LEN;

use super::workload::Workload;
use crate::side_by_side::{Lap, Runner, Sample, laps};
use crate::{Error, System};

/// Headers that lie beside each other, as those of one `sendmmsg` of AF_PACKET do.
const BATCH: usize = 64;

/// What a worker would count up.
const FRAGMENT_ID: u32 = 0x7eaf_0001;

type Header = [u8; MAX_HEADER_LEN];

/// `Segmenter::next_segment`, as AF_PACKET uses it: headers are written, payload stays where it
/// lies.
pub(super) struct Slices {
    headers: Box<[Header; BATCH]>,
}

impl Default for Slices {
    fn default() -> Slices {
        Slices { headers: Box::new([[0; MAX_HEADER_LEN]; BATCH]) }
    }
}

impl Slices {
    /// One lap, for a profiler to look at too.
    pub(super) fn lap(&mut self, workload: &Workload) -> Result<Lap, Error> {
        timed(System::Wharf, workload, || cut_to_slices(workload, &mut self.headers))
    }

    fn check(&self, workload: &Workload) -> Result<(), Error> {
        let mut segmenter = segmenter(workload).map_err(|why| refused(System::Wharf, why))?;
        let mut header = [0; MAX_HEADER_LEN];
        let mut frames = Vec::new();
        while let Some(segment) = segmenter.next_segment(&mut header) {
            frames.push([&header[..segment.header_len], segment.payload].concat());
        }
        check(System::Wharf, workload, &frames)
    }
}

impl Runner<Workload> for Slices {
    fn system(&self) -> System {
        System::Wharf
    }

    fn slice(&mut self, workload: &Workload, time: Duration) -> Result<Sample, Error> {
        self.check(workload)?;
        laps(time, || self.lap(workload))
    }
}

/// `Segmenter::next_into`, as AF_XDP uses it: whole frames are written to memory of their own.
#[derive(Default)]
pub(super) struct Copies {
    frames: Vec<Vec<u8>>,
}

impl Copies {
    /// One lap, for a profiler to look at too.
    pub(super) fn lap(&mut self, workload: &Workload) -> Result<Lap, Error> {
        self.frames.resize_with(workload.segments, Vec::new);
        for frame in &mut self.frames {
            frame.resize(ETHERNET_LEN + workload.mtu, 0);
        }
        timed(System::WharfCopy, workload, || cut_to_frames(workload, &mut self.frames))
    }

    fn check(&self, workload: &Workload) -> Result<(), Error> {
        let refused = |why| refused(System::WharfCopy, why);
        let mut segmenter = segmenter(workload).map_err(refused)?;
        let mut frame = vec![0; ETHERNET_LEN + workload.mtu];
        let mut frames = Vec::new();
        while let Some(len) = segmenter.next_into(&mut frame).map_err(refused)? {
            frames.push(frame[..len].to_vec());
        }
        check(System::WharfCopy, workload, &frames)
    }
}

impl Runner<Workload> for Copies {
    fn system(&self) -> System {
        System::WharfCopy
    }

    fn slice(&mut self, workload: &Workload, time: Duration) -> Result<Sample, Error> {
        self.check(workload)?;
        laps(time, || self.lap(workload))
    }
}

/// Cuts the super-packet as often as makes a lap.
fn timed(
    system: System,
    workload: &Workload,
    mut cut: impl FnMut() -> Result<usize, Refusal>,
) -> Result<Lap, Error> {
    let begin = Instant::now();
    let mut segments = 0;
    for _ in 0..workload.lap() {
        segments += cut().map_err(|why| refused(system, why))?;
    }
    let time = begin.elapsed();
    Ok(Lap { time, packets: segments as u64, large: workload.lap() as u64 })
}

fn check(system: System, workload: &Workload, frames: &[Vec<u8>]) -> Result<(), Error> {
    let packets: Vec<&[u8]> = frames.iter().map(|frame| &frame[ETHERNET_LEN..]).collect();
    let checked = workload.check(&packets).and_then(|()| workload.check_sums(&packets));
    checked.map_err(|why| Error::Failed { system: system.name(), why })
}

fn refused(system: System, why: Refusal) -> Error {
    Error::Failed { system: system.name(), why: why.to_string() }
}

fn segmenter(workload: &Workload) -> Result<Segmenter<'_>, Refusal> {
    Segmenter::with_mtu(black_box(&workload.packet), &workload.hdr, workload.mtu, FRAGMENT_ID)
}

// What is timed, and what callgrind counts by these names: see `super::instructions`.

#[inline(never)]
fn cut_to_slices(workload: &Workload, headers: &mut [Header; BATCH]) -> Result<usize, Refusal> {
    let mut segmenter = segmenter(workload)?;
    let mut segments = 0;
    while let Some(segment) = segmenter.next_segment(&mut headers[segments % BATCH]) {
        black_box((&headers[segments % BATCH], segment));
        segments += 1;
    }
    Ok(segments)
}

#[inline(never)]
fn cut_to_frames(workload: &Workload, frames: &mut [Vec<u8>]) -> Result<usize, Refusal> {
    let mut segmenter = segmenter(workload)?;
    for frame in frames.iter_mut() {
        black_box(segmenter.next_into(frame)?);
        black_box(&frame);
    }
    Ok(frames.len())
}

#[cfg(test)]
mod tests {
    use super::super::Case;
    use super::*;

    /// Frames of all cases pass; one that lost a byte, and one with a bad checksum, do not.
    #[test]
    fn what_is_wrong_is_found() {
        for case in Case::ALL {
            let workload = Workload::new(case, 1448);
            Slices::default().check(&workload).unwrap();
            Copies::default().check(&workload).unwrap();
            let mut segmenter = segmenter(&workload).unwrap();
            let mut frame = vec![0; ETHERNET_LEN + workload.mtu];
            let mut frames = Vec::new();
            while let Some(len) = segmenter.next_into(&mut frame).unwrap() {
                frames.push(frame[..len].to_vec());
            }
            let is_right = |frames: &[Vec<u8>]| check(System::Wharf, &workload, frames).is_ok();
            assert!(is_right(&frames));
            assert!(!is_right(&frames[1..]));
            let Workload { mtu, size, cut_at, transport_at, .. } = workload;
            let transport_at = ETHERNET_LEN + mtu - size - (cut_at - transport_at);
            let checksum_at = transport_at + usize::from(workload.hdr.csum_offset);
            for at in [checksum_at, frames[0].len() - 1] {
                let mut wrong = frames.clone();
                wrong[0][at] ^= 1;
                assert!(!is_right(&wrong), "{case:?}: {at}");
            }
        }
    }
}
