//! LRO over a capture, and the round trip through GSO that must undo it.

use std::rc::Rc;

use ::lro::{Aggregate, Discard, Lro, Nanos, Pass, Profile, RxChecksum, Sink};
use gso::Segmenter;
use wire::VirtioNetHdr;

use super::{CaptureError, Counted, Output, Packet, Statistics, complete};
use crate::config::Config;
use crate::counters::Entry;

/// Joins what LRO, configured by `config`, would join. A packet that was held is written with
/// the time at which it was flushed, every other with its own; after the last packet everything
/// goes.
///
/// Aggregates are written with complete checksums. Packets whose checksum is wrong are left out,
/// as LRO discards them, and counted.
///
/// # Errors
/// Those of `packets` and `out`.
pub fn lro(
    packets: impl IntoIterator<Item = Result<Packet, CaptureError>>,
    config: &Config,
    out: &mut impl Output,
) -> Result<Statistics, CaptureError> {
    run(packets, config.lro(), ToCapture::new(out, None))
}

/// Joins by the lossless profile and cuts each aggregate again by its own `gso_size`, which must
/// give the packets back: how many came back bit for bit is counted as `restored`, the others
/// (Ethernet padding is not restored) as `changed`.
///
/// # Errors
/// Those of `packets` and `out`.
pub fn roundtrip(
    packets: impl IntoIterator<Item = Result<Packet, CaptureError>>,
    config: &Config,
    out: &mut impl Output,
) -> Result<Statistics, CaptureError> {
    let config = ::lro::Config { profile: Profile::Lossless, ..config.lro() };
    run(packets, config, ToCapture::new(out, Some(Restored::default())))
}

/// Feeds the packets to an [`Lro`] in virtual time.
fn run<O: Output>(
    packets: impl IntoIterator<Item = Result<Packet, CaptureError>>,
    config: ::lro::Config,
    mut sink: ToCapture<'_, O>,
) -> Result<Statistics, CaptureError> {
    let mut lro = Lro::new(config);
    let mut statistics = Statistics::default();
    let (mut cut_short, mut completed) = (0, 0);
    for packet in packets {
        let mut packet = packet?;
        completed += u64::from(complete(&mut packet));
        let packet = Rc::new(packet);
        statistics.packets_in += 1;
        statistics.bytes_in += packet.data.len() as u64;
        // Captures of several queues may be out of order; time does not go back.
        let now = sink.now.max(packet.time);
        if now > sink.now {
            // The next packet had not come yet: nothing was waiting on the wire.
            lro.burst_ends(&mut sink);
        }
        while let Some(deadline) = lro.next_deadline().filter(|deadline| *deadline <= now) {
            sink.now = deadline;
            lro.expire(deadline, &mut sink);
        }
        sink.now = now;
        if packet.is_cut_short() {
            cut_short += 1;
            // Which flow it belongs to may be unknown, and it must not overtake its own.
            lro.interrupt(&mut sink);
            sink.write_as_it_came(&packet);
        } else {
            // It is one that its flow's host receives, and one that another's sends.
            lro.observe(&packet.data);
            let bytes = Rc::clone(&packet);
            lro.receive(packet, &bytes.data, RxChecksum::Unverified, now, &mut sink);
        }
        sink.check()?;
    }
    lro.flush_all(&mut sink);
    sink.check()?;

    statistics.packets_out = sink.out.packets;
    statistics.bytes_out = sink.out.bytes;
    let own = [("pcap", "cut_short", cut_short), ("pcap", "completed", completed)];
    let restored =
        sink.restored.map(|r| [("pcap", "restored", r.same), ("pcap", "changed", r.changed)]);
    statistics.counters = own
        .into_iter()
        .chain(restored.into_iter().flatten())
        .chain(lro.counters().entries())
        .map(|(group, name, value)| Entry { group, name, value })
        .collect();
    Ok(statistics)
}

/// Packets that the round trip gave back.
#[derive(Default)]
struct Restored {
    same: u64,
    changed: u64,
}

/// Takes what leaves LRO at the virtual time `now`.
struct ToCapture<'a, O> {
    out: Counted<'a, O>,
    now: Nanos,
    /// The first error; nothing is written after it.
    failed: Option<CaptureError>,
    /// Aggregates are to be cut again, and compared with what they were made of.
    restored: Option<Restored>,
    /// The aggregate at hand.
    bytes: Vec<u8>,
    /// The segment at hand.
    segment: Vec<u8>,
    /// The frames of the aggregate at hand.
    frames: Vec<Rc<Packet>>,
}

impl<'a, O: Output> ToCapture<'a, O> {
    fn new(out: &'a mut O, restored: Option<Restored>) -> Self {
        ToCapture {
            out: Counted::new(out),
            now: 0,
            failed: None,
            restored,
            bytes: Vec::new(),
            segment: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn check(&mut self) -> Result<(), CaptureError> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn attempt(&mut self, what: impl FnOnce(&mut Self) -> Result<(), CaptureError>) {
        if self.failed.is_none() {
            self.failed = what(self).err();
        }
    }

    fn write_as_it_came(&mut self, packet: &Packet) {
        self.write_at(packet.time, packet);
    }

    fn write_at(&mut self, time: Nanos, packet: &Packet) {
        self.attempt(|sink| sink.out.write(time, packet.original_len, &packet.data));
    }

    /// Writes the aggregate in `bytes` as one packet.
    fn write_joined(&mut self, vnet: &VirtioNetHdr) -> Result<(), CaptureError> {
        gso::complete_checksum(&mut self.bytes, vnet).map_err(refused)?;
        self.out.write_whole(self.now, &self.bytes)
    }

    /// Cuts the aggregate in `bytes` and compares the segments with `frames`.
    fn write_cut(&mut self, vnet: &VirtioNetHdr, fixed_id: bool) -> Result<(), CaptureError> {
        let mut segmenter = Segmenter::new(&self.bytes, vnet).map_err(refused)?;
        if fixed_id {
            segmenter = segmenter.fixed_id();
        }
        self.segment.resize(segmenter.max_segment_len(), 0);
        let mut frames = self.frames.iter();
        let mut restored = Restored::default();
        while let Some(len) = segmenter.next_into(&mut self.segment).map_err(refused)? {
            let segment = &self.segment[..len];
            match frames.next() {
                Some(frame) if frame.data == segment => restored.same += 1,
                _ => restored.changed += 1,
            }
            self.out.write_whole(self.now, segment)?;
        }
        if let Some(total) = &mut self.restored {
            total.same += restored.same;
            total.changed += restored.changed;
        }
        Ok(())
    }
}

impl<O: Output> Sink<Rc<Packet>> for ToCapture<'_, O> {
    fn pass(&mut self, frame: Rc<Packet>, why: Pass) {
        let time = if why == Pass::Alone { self.now } else { frame.time };
        self.write_at(time, &frame);
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, Rc<Packet>>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(aggregate.header());
        self.frames.clear();
        while let Some(slice) = aggregate.next_slice() {
            self.bytes.extend_from_slice(&slice.frame.data[slice.start..slice.start + slice.len]);
            self.frames.push(slice.frame);
        }
        let (vnet, fixed_id) = (aggregate.vnet(), aggregate.fixed_id());
        self.attempt(|sink| match sink.restored {
            None => sink.write_joined(&vnet),
            Some(_) => sink.write_cut(&vnet, fixed_id),
        });
    }

    fn discard(&mut self, _: Rc<Packet>, _: Discard) {}
}

/// LRO's own aggregates can be cut; should one not be, the run says so instead of losing it.
fn refused(why: gso::Refusal) -> CaptureError {
    CaptureError::Io(std::io::Error::other(format!("an aggregate cannot be cut: {why}")))
}
