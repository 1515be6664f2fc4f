//! What the kernel is told of a connection that it has back, as if the peer had said it once more.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

use iface::{Addresses, Interface};
use sys::tap::TapQueue;
use tcp::options::Options;
use tcp::repair::Repair;
use tcp::{FourTuple, State, Transmit};
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

    /// What the kernel is to be told first of a connection: see [`segment`].
    pub(crate) fn segment(&self, repair: &Repair) -> Option<HeldPacket> {
        segment(repair, &self.interface, (self.mac, FROM))
    }

    /// Tells it: the kernel has heard it when this returns. What it does not take, the application finds out as after a
    /// lost peer.
    pub(crate) fn tell(&self, packet: &HeldPacket) {
        let HeldPacket { vnet, bytes } = packet;
        let _ = self.tap.writev(&[IoSlice::new(&vnet.encode()), IoSlice::new(bytes)]);
    }
}

/// A segment of the peer's that the kernel is to receive first. It has the peer's FIN, if that has come: no kernel
/// takes over a connection in CLOSE-WAIT. And it has the peer's timestamp, which no socket option sets. `mac` is the
/// host's Ethernet address, `from` the next hop's.
pub(crate) fn segment(
    repair: &Repair,
    interface: &Interface,
    (mac, from): (Mac, Mac),
) -> Option<HeldPacket> {
    let has_fin = matches!(repair.state, State::CloseWait | State::Closing | State::LastAck);
    if !has_fin && !repair.timestamps {
        return None;
    }
    let (snd_shift, _) = repair.window_scale.unwrap_or_default();
    let window = repair.window.snd_wnd >> snd_shift;
    let stamps = Timestamps {
        value: Seq(repair.ts_recent.unwrap_or_default()),
        echo: Seq(repair.timestamp),
    };
    let stamps = (repair.timestamps && repair.ts_recent.is_some()).then_some(stamps);
    let flags = if has_fin { Flags::ACK.with(Flags::FIN) } else { Flags::ACK };
    let segment = Transmit {
        // The peer's.
        path: FourTuple { local: repair.remote, remote: repair.local },
        seq: repair.rcv_nxt + if has_fin { u32::MAX } else { 0 },
        ack: repair.write_seq + 0_u32.wrapping_sub(repair.unacknowledged),
        flags,
        window: u16::try_from(window).unwrap_or(u16::MAX),
        urgent: 0,
        options: Options { timestamps: stamps, ..Options::default() }.encode(),
        payload: [&[], &[]],
        lent: 0,
        gso_size: 0,
        ect: false,
    };
    let mut output = Output::new();
    let (vnet, header) = output.headers(interface, &segment, mac)?;
    let mut bytes = header.to_vec();
    bytes[6..12].copy_from_slice(&from);
    Some(HeldPacket { vnet, bytes })
}
