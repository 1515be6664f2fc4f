//! What the kernel is told of a connection that it has back, as if the peer had said it once more.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

use iface::{Addresses, Interface};
use sys::tap::TapQueue;
use tcp::options::Options;
use tcp::repair::Repair;
use tcp::{Block, FourTuple, SackBlocks, State, Transmit};
use wire::{Flags, Mac, Seq, Timestamps};

use super::link::HeldPacket;
use crate::lane::output::Output;

/// An Ethernet address that no interface has: what a segment comes from that the kernel is given.
const FROM: Mac = [2, 0, 0, 0, 0, 1];

/// The way to the kernel past the workers: a queue of the host's interface, if that is a TAP.
#[derive(Debug)]
pub(crate) struct ToKernel {
    tap: TapQueue,
    mac: Mac,
    interface: Interface,
}

impl ToKernel {
    /// By this queue, of the interface with this Ethernet address.
    pub(crate) fn new(tap: TapQueue, mac: Mac) -> Self {
        let addresses = Addresses::default();
        let interface =
            Interface::new(iface::Config { mac, addresses, secret: [0; 16], probes: 0 });
        ToKernel { tap, mac, interface }
    }

    /// What a guard is told of it: the queue, and the Ethernet address.
    pub(crate) fn parts(&self) -> (BorrowedFd<'_>, Mac) {
        (self.tap.as_fd(), self.mac)
    }

    /// What the kernel is to be told first of a connection: see [`segments`].
    pub(crate) fn segments(&self, repair: &Repair) -> Vec<HeldPacket> {
        segments(repair, &self.interface, (self.mac, FROM))
    }

    /// Tells it: the kernel has heard it when this returns. What it does not take, the application finds out as after a
    /// lost peer.
    pub(crate) fn tell(&self, packets: &[HeldPacket]) {
        for HeldPacket { vnet, bytes } in packets {
            let _ = self.tap.writev(&[IoSlice::new(&vnet.encode()), IoSlice::new(bytes)]);
        }
    }
}

/// Bytes of a segment that the kernel is given: a packet holds 65,535.
const PART: usize = 60 << 10;

/// Segments of the peer's that the kernel is to receive first. They have the peer's FIN, if that has come in order: no
/// kernel takes over a connection in CLOSE-WAIT. And what no socket option sets: the peer's timestamp, what it has
/// reported by SACK, and what has come behind holes, so that nothing is taken back that was reported (RFC 2018 section 8).
/// `mac` is the host's Ethernet address, `from` the next hop's.
pub(crate) fn segments(
    repair: &Repair,
    interface: &Interface,
    macs: (Mac, Mac),
) -> Vec<HeldPacket> {
    let has_fin = matches!(repair.state, State::CloseWait | State::Closing | State::LastAck);
    let (mut packets, mut output) = (Vec::new(), Output::new());
    let mut put = |seq, fin, sack: &[Block], payload| {
        let segment = segment(repair, (seq, fin), sack, payload);
        packets.extend(packet(&mut output, interface, &segment, macs));
    };
    let end = repair.rcv_nxt;
    // With timestamps there is room for three in the options (RFC 2018 section 3).
    let most = if repair.timestamps { 3 } else { 4 };
    let mut reports = repair.sacked.chunks(most);
    if has_fin || repair.timestamps || !repair.sacked.is_empty() {
        let seq = end + if has_fin { u32::MAX } else { 0 };
        put(seq, has_fin, reports.next().unwrap_or_default(), &[][..]);
    }
    reports.for_each(|blocks| put(end, false, blocks, &[][..]));
    for (start, bytes) in &repair.behind_hole {
        for (part, number) in bytes.chunks(PART).zip(0..) {
            put(*start + number * PART as u32, false, &[], part);
        }
    }
    packets
}

/// A segment from the peer, as that would send it now.
fn segment<'a>(
    repair: &Repair,
    (seq, fin): (Seq, bool),
    sack: &[Block],
    payload: &'a [u8],
) -> Transmit<'a> {
    let (snd_shift, _) = repair.window_scale.unwrap_or_default();
    let window = repair.window.snd_wnd >> snd_shift;
    let stamps = Timestamps {
        value: Seq(repair.ts_recent.unwrap_or_default()),
        echo: Seq(repair.timestamp),
    };
    let timestamps = (repair.timestamps && repair.ts_recent.is_some()).then_some(stamps);
    let mut blocks = SackBlocks::default();
    sack.iter().for_each(|block| blocks.push(*block));
    let mss = repair.path.rcv_mss;
    let is_long = payload.len() > mss as usize;
    Transmit {
        // The peer's.
        path: FourTuple { local: repair.remote, remote: repair.local },
        seq,
        ack: repair.write_seq + 0_u32.wrapping_sub(repair.unacknowledged),
        flags: if fin { Flags::ACK.with(Flags::FIN) } else { Flags::ACK },
        window: u16::try_from(window).unwrap_or(u16::MAX),
        urgent: 0,
        options: Options { timestamps, sack: blocks, ..Options::default() }.encode(),
        payload: [payload, &[]],
        lent: 0,
        gso_size: if is_long { u16::try_from(mss).unwrap_or(u16::MAX) } else { 0 },
        ect: false,
    }
}

fn packet(
    output: &mut Output,
    interface: &Interface,
    segment: &Transmit<'_>,
    (mac, from): (Mac, Mac),
) -> Option<HeldPacket> {
    let (vnet, header) = output.headers(interface, segment, mac)?;
    let mut bytes = [header, segment.payload[0]].concat();
    bytes[6..12].copy_from_slice(&from);
    Some(HeldPacket { vnet, bytes })
}
