//! Sending frames that are longer than sendmsg(2) takes: those with two VLAN tags and a full MTU.
//!
//! `packet_snd` in Linux refuses a complete packet that is longer than the MTU, the Ethernet header and one tag. For
//! packets with a virtio_net_hdr in a transmit ring (`PACKET_TX_RING`) `tpacket_snd` has no such bound. The kernel
//! copies each packet as a whole, as the header says that all of it is headers, so the ring's memory is free again when
//! the packet has left.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::VNET_HDR_LEN;
use crate::error::check;
use crate::mapping::Mapping;
use crate::sockopt;

/// Packets in the ring.
const SLOTS: usize = 64;
const PAGE: usize = 4096;
/// Offset of a packet's virtio_net_hdr in its slot: behind `struct tpacket2_hdr`.
const DATA: usize = 32;
/// Offset of `tp_len` there; `tp_status` is at its beginning.
const LEN: usize = 4;
/// Values of `tp_status` (linux/if_packet.h).
const AVAILABLE: u32 = 0;
const SEND_REQUEST: u32 = 1;
/// `TPACKET_V2`.
const VERSION: libc::c_int = 1;

/// `struct tpacket_req`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    block_size: libc::c_uint,
    blocks: libc::c_uint,
    frame_size: libc::c_uint,
    frames: libc::c_uint,
}

/// A packet socket that sends by a transmit ring.
#[derive(Debug)]
pub(super) struct LongSender {
    fd: OwnedFd,
    /// `None` before the first frame.
    ring: Option<Ring>,
}

/// The packets of a socket, in memory that the kernel reads.
#[derive(Debug)]
struct Ring {
    memory: Mapping,
    /// Bytes of a slot.
    slot: usize,
    next: usize,
}

impl LongSender {
    /// Opens one on the interface `ifindex`. Its memory is taken by the first frame.
    ///
    /// # Errors
    /// As socket(2), setsockopt(2) and bind(2); `EPERM` without `CAP_NET_RAW`.
    pub(super) fn open(ifindex: u32, qdisc_bypass: bool) -> io::Result<Self> {
        let fd = super::socket(libc::SOCK_NONBLOCK)?;
        let packet =
            |option, value: libc::c_int| sockopt::set(fd.as_fd(), libc::SOL_PACKET, option, &value);
        packet(libc::PACKET_VERSION, VERSION)?;
        packet(libc::PACKET_VNET_HDR, 1)?;
        // A packet that the kernel refuses is skipped.
        packet(libc::PACKET_LOSS, 1)?;
        packet(libc::PACKET_QDISC_BYPASS, qdisc_bypass.into())?;
        // Bound to no protocol, it receives nothing.
        super::bind(fd.as_fd(), ifindex, 0)?;
        Ok(LongSender { fd, ring: None })
    }

    /// Sends a complete frame, which lies in two pieces.
    ///
    /// # Errors
    /// `WouldBlock` if all slots are in use; `ENOMEM` if there is no memory for the ring; `EBUSY` if it is too small
    /// and still in use; else as sendmsg(2).
    pub(super) fn send(&mut self, pieces: [&[u8]; 2]) -> io::Result<()> {
        let len = pieces[0].len() + pieces[1].len();
        let ring = match self.ring.take() {
            Some(ring) if ring.holds(len) => ring,
            // The MTU has grown, or this is the first frame. A ring that is mapped cannot be replaced.
            old => {
                drop(old);
                Ring::map(self.fd.as_fd(), len)?
            }
        };
        self.ring.insert(ring).send(self.fd.as_fd(), pieces)
    }
}

impl Ring {
    /// Replaces the ring of a socket by one for frames of `longest` bytes at most.
    fn map(fd: BorrowedFd<'_>, longest: usize) -> io::Result<Self> {
        let set = |request| sockopt::set(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, &request);
        set(Request { block_size: 0, blocks: 0, frame_size: 0, frames: 0 })?;
        let slot = (longest + DATA + VNET_HDR_LEN).next_power_of_two().max(PAGE);
        set(Request {
            block_size: slot as libc::c_uint,
            blocks: SLOTS as libc::c_uint,
            frame_size: slot as libc::c_uint,
            frames: SLOTS as libc::c_uint,
        })?;
        let memory = Mapping::shared(fd, 0, SLOTS * slot)?;
        Ok(Ring { memory, slot, next: 0 })
    }

    /// Returns true if a frame of `len` bytes fits a slot.
    fn holds(&self, len: usize) -> bool {
        DATA + VNET_HDR_LEN + len <= self.slot
    }

    /// Sends a complete frame, which lies in two pieces and [fits](Self::holds).
    fn send(&mut self, fd: BorrowedFd<'_>, pieces: [&[u8]; 2]) -> io::Result<()> {
        if self.status().load(Ordering::Acquire) != AVAILABLE {
            // The interface still has it.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = pieces[0].len() + pieces[1].len();
        debug_assert!(self.holds(len), "{len} bytes in a slot of {}", self.slot);
        let mut vnet = [0; VNET_HDR_LEN];
        // `hdr_len`: the kernel copies so many bytes, and takes the others from the ring.
        vnet[2..4].copy_from_slice(&(len as u16).to_ne_bytes());
        let tp_len = ((VNET_HDR_LEN + len) as u32).to_ne_bytes();
        let mut at = DATA;
        self.write(LEN, &tp_len);
        for piece in [&vnet[..], pieces[0], pieces[1]] {
            self.write(at, piece);
            at += piece.len();
        }
        self.status().store(SEND_REQUEST, Ordering::Release);
        let sent = kick(fd);
        if self.status().load(Ordering::Acquire) == SEND_REQUEST {
            // The kernel would send it with the next one (`tpacket_snd`), though the caller is told that it was not sent.
            self.status().store(AVAILABLE, Ordering::Release);
            return sent.and(Err(io::ErrorKind::WouldBlock.into()));
        }
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: `next` is less than SLOTS, and the ring has so many slots.
        unsafe { self.memory.start().add(self.next * self.slot) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the slot begins with `tp_status`, at a multiple of the page's size; it lives as long as `self`, and
        // this process accesses it as an atomic number alone.
        unsafe { AtomicU32::from_ptr(self.start().as_ptr().cast()) }
    }

    /// Writes to the next slot, which is available.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at >= LEN && at + bytes.len() <= self.slot, "a frame that does not fit");
        // SAFETY: within the slot, behind its status. While it is available the kernel does not access it.
        unsafe {
            let to = self.start().as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}

/// Has the kernel send what is in the socket's ring.
fn kick(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: there is no buffer; the kernel reads the ring.
    let sent = unsafe { libc::send(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
    check(sent as libc::c_int).map(drop)
}
