//! Receiving through AF_PACKET: recvmmsg into frames of the pool.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::send::empty_message;
use super::{BATCH, Statistics, VNET_HDR_LEN};
use crate::clock::{self, nanoseconds};
use crate::frames::{Frame, FramePool};
use crate::mapping::Mapping;
use crate::sockopt::Plain;

/// Bytes of each chunk left in front of a received frame, at least (a VLAN tag put back takes four
/// of them).
pub const HEADROOM: usize = 64;

/// Bytes of a packet beyond its frame: with the chunk, room for the largest GSO packet of 64 KB.
const OVERFLOW: usize = 64 << 10;

/// Bytes of the two MAC addresses, after which a VLAN tag stands (IEEE 802.1Q).
const MACS: usize = 12;
const VLAN_TAG: usize = 4;

/// Per slot: the virtio_net_hdr, then the control messages: `struct tpacket_auxdata` and a time.
const SMALL: usize = 128;
const CONTROL: usize = 16;
const CONTROL_LEN: usize = SMALL - CONTROL;

/// virtio_net_hdr, frame, overflow.
const PARTS: usize = 3;

/// A packet that arrived.
#[derive(Debug)]
pub struct Received {
    /// Its first bytes, all of them if `overflow` is 0.
    pub frame: Frame,
    /// The kernel's metadata. Offsets count from the start of the frame, a VLAN tag put back included.
    pub vnet: [u8; VNET_HDR_LEN],
    /// How many bytes of it did not fit the frame; see
    /// [`PacketSocket::overflow`](super::PacketSocket::overflow).
    pub overflow: u32,
    /// Which of the batch's buffers has the overflow.
    pub slot: u8,
    /// When the kernel received it, in nanoseconds of [`clock::now`](crate::clock::now); `None` unless
    /// the socket was opened with [`stamps`](super::Config::stamps).
    pub stamp: Option<u64>,
}

/// Contents of a packet's control messages.
#[derive(Default)]
struct Control {
    /// The VLAN tag that the kernel took out of it: TPID and TCI.
    tag: Option<[u8; VLAN_TAG]>,
    /// When it was received, in nanoseconds of `CLOCK_REALTIME`.
    stamp: Option<u64>,
}

/// The buffers of a batch: one slot per packet.
#[derive(Debug)]
pub(super) struct Receiver {
    messages: Box<[libc::mmsghdr]>,
    parts: Box<[[libc::iovec; PARTS]]>,
    /// Frames to receive into, in the first `ready` slots, save those of the first `used` whose
    /// frames were handed out.
    frames: [Option<Frame>; BATCH],
    ready: usize,
    /// Slots that the last call filled, to be prepared again by the next. Not at once: frames that the caller
    /// frees meanwhile are still in the cache.
    used: usize,
    /// The pool that the frames are of, if `ready` is not 0.
    pool_id: u32,
    /// Nanoseconds by which `CLOCK_REALTIME`, the clock of the stamps, is ahead of `CLOCK_MONOTONIC`; read
    /// for each batch, as it may be set.
    ahead: u64,
    stamps: bool,
    /// The small buffers of all slots, then their overflow buffers. Accessed by raw pointer only:
    /// the kernel writes there during recvmmsg, and nothing borrows it then.
    buffers: Mapping,
}

// SAFETY: the pointers in `messages` and `parts` are written before each system call and used by it
// alone; between calls nothing reads through them, on whichever thread.
unsafe impl Send for Receiver {}
// SAFETY: as above; `&Receiver` gives access to overflow bytes, which only `&mut` changes.
unsafe impl Sync for Receiver {}

impl Receiver {
    pub(super) fn new(stamps: bool) -> io::Result<Self> {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            messages: vec![empty_message(); BATCH].into_boxed_slice(),
            parts: vec![[none; PARTS]; BATCH].into_boxed_slice(),
            frames: [const { None }; BATCH],
            ready: 0,
            used: 0,
            pool_id: 0,
            ahead: 0,
            stamps,
            // Pages of overflow that no packet ever needed are never backed by memory.
            buffers: Mapping::anonymous(BATCH * (SMALL + OVERFLOW))?,
        })
    }

    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        statistics: &mut Statistics,
        pool: &mut FramePool,
        out: &mut Vec<Received>,
        max: usize,
    ) -> io::Result<usize> {
        let slots = self.prepare(pool, max);
        if slots == 0 {
            return Ok(0);
        }
        let before = out.len();
        self.used = self.fill(fd, statistics, slots)?;
        if self.stamps && self.used > 0 {
            self.ahead = clock::real_ahead();
        }
        for slot in 0..self.used {
            match self.take(pool, slot) {
                Some(received) => out.push(received),
                None => statistics.truncated += 1,
            }
        }
        Ok(out.len() - before)
    }

    /// Prepares slots, as many as wanted while the pool has frames. Returns how many are ready. It touches
    /// only those that the last call used.
    fn prepare(&mut self, pool: &mut FramePool, max: usize) -> usize {
        if self.ready == 0 {
            self.pool_id = pool.id();
        }
        assert!(self.pool_id == pool.id(), "a packet socket was used with another pool");
        let wanted = max.min(BATCH);
        let mut slot = 0;
        while slot < self.used.min(self.ready) {
            if self.frames[slot].is_none() {
                self.frames[slot] = pool.alloc();
            }
            if self.frames[slot].is_none() {
                // The pool is empty: the last slot's frame fills the gap.
                self.ready -= 1;
                self.frames.swap(slot, self.ready);
                continue;
            }
            self.arm(pool, slot);
            slot += 1;
        }
        self.used = 0;
        while self.ready < wanted {
            let Some(frame) = pool.alloc() else { break };
            self.frames[self.ready] = Some(frame);
            self.arm(pool, self.ready);
            self.ready += 1;
        }
        self.ready.min(wanted)
    }

    /// Points the system call's arrays at the slot's buffers.
    fn arm(&mut self, pool: &FramePool, slot: usize) {
        let Some(frame) = &self.frames[slot] else { return };
        let chunk = pool.start_of(frame).wrapping_add(HEADROOM);
        let small = self.small(slot);
        self.parts[slot] = [
            iovec(small, VNET_HDR_LEN),
            iovec(chunk, pool.chunk_size() - HEADROOM),
            iovec(self.overflow_start(slot), OVERFLOW),
        ];
        let message = &mut self.messages[slot].msg_hdr;
        message.msg_iov = self.parts[slot].as_mut_ptr();
        message.msg_iovlen = PARTS;
        message.msg_control = small.wrapping_add(CONTROL).cast();
        message.msg_controllen = CONTROL_LEN;
        message.msg_flags = 0;
    }

    /// Calls recvmmsg once. Returns how many slots it filled.
    fn fill(
        &mut self,
        fd: BorrowedFd<'_>,
        statistics: &mut Statistics,
        slots: usize,
    ) -> io::Result<usize> {
        loop {
            // SAFETY: the first `slots` messages point to PARTS iovecs and a control buffer each,
            // set by `arm` since the slot was last filled, to memory that is alive and that nothing
            // else refers to: the slot's buffers in `buffers`, and the chunk of a frame whose token
            // is in `frames`, from HEADROOM to its end. `self` is borrowed exclusively, and so is
            // the pool, by the caller; `prepare` checked that it is the pool of these frames.
            let filled = unsafe {
                libc::recvmmsg(
                    fd.as_raw_fd(),
                    self.messages.as_mut_ptr(),
                    slots as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if let Ok(filled) = usize::try_from(filled) {
                return Ok(filled);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(0),
                Some(libc::EINTR) => {}
                // The packet is no longer in the queue: the kernel found no virtio_net_hdr for it.
                Some(libc::EINVAL) => statistics.unreadable += 1,
                _ => return Err(error),
            }
        }
    }

    /// The packet in `slot`, or `None` (and the frame stays) if it did not fit.
    fn take(&mut self, pool: &mut FramePool, slot: usize) -> Option<Received> {
        let message = &self.messages[slot];
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let Control { tag, stamp } = self.control(slot);
        // SAFETY: the slot's small buffer begins with these ten bytes, in memory that was zeroed by
        // mmap; the kernel is done with it.
        let mut vnet = unsafe { self.small(slot).cast::<[u8; VNET_HDR_LEN]>().read() };
        let len = (message.msg_len as usize).saturating_sub(VNET_HDR_LEN);
        let in_frame = len.min(pool.chunk_size() - HEADROOM);
        let mut frame = self.frames[slot].take()?;
        pool.set_range(&mut frame, HEADROOM, in_frame);
        if let Some(tag) = tag
            && put_tag_back(pool, &mut frame, tag)
        {
            shift_offsets(&mut vnet);
        }
        let stamp = stamp.map(|stamp| stamp.saturating_sub(self.ahead));
        Some(Received { frame, vnet, overflow: (len - in_frame) as u32, slot: slot as u8, stamp })
    }

    /// The control messages of a packet.
    fn control(&self, slot: usize) -> Control {
        let message = &self.messages[slot].msg_hdr;
        let mut control = Control::default();
        // SAFETY: the header is one that recvmmsg filled: its control buffer is alive, aligned (see
        // SMALL and CONTROL) and has msg_controllen bytes of control messages.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: the macros give a pointer to a whole header within the buffer, or null.
        while let Some(header) = unsafe { next.as_ref() } {
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    control.tag = data(header).and_then(vlan_tag);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    control.stamp = data(header).map(|time: libc::timespec| nanoseconds(&time));
                }
                _ => {}
            }
            // SAFETY: as for the first; `header` is the one that it gave.
            next = unsafe { libc::CMSG_NXTHDR(message, header) };
        }
        control
    }

    pub(super) fn overflow(&self, slot: u8, len: u32) -> &[u8] {
        let slot = usize::from(slot).min(BATCH - 1);
        let len = (len as usize).min(OVERFLOW);
        // SAFETY: the slot is below BATCH, so its overflow buffer of OVERFLOW bytes lies within
        // `buffers`, which was zeroed by mmap. Only `receive` has the kernel write there, and it
        // borrows `self` exclusively.
        unsafe { std::slice::from_raw_parts(self.overflow_start(slot), len) }
    }

    pub(super) fn close(self, pool: &mut FramePool) {
        self.frames.into_iter().flatten().for_each(|frame| pool.free(frame));
    }

    fn small(&self, slot: usize) -> *mut u8 {
        self.buffers.start().as_ptr().wrapping_add(slot * SMALL)
    }

    fn overflow_start(&self, slot: usize) -> *mut u8 {
        self.buffers.start().as_ptr().wrapping_add(BATCH * SMALL + slot * OVERFLOW)
    }
}

/// The data of a control message; `None` if it has less.
fn data<T: Plain>(header: &libc::cmsghdr) -> Option<T> {
    // SAFETY: no pointer is dereferenced; this computes a length.
    let enough = unsafe { libc::CMSG_LEN(size_of::<T>() as u32) } as usize;
    if header.cmsg_len < enough {
        return None;
    }
    // SAFETY: the message has at least that many bytes of data, as just checked, and `Plain` promises
    // that any bits are valid.
    Some(unsafe { libc::CMSG_DATA(header).cast::<T>().read_unaligned() })
}

/// The tag's TPID and TCI, if the packet had one.
fn vlan_tag(aux: libc::tpacket_auxdata) -> Option<[u8; VLAN_TAG]> {
    if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid_known = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let tpid = if tpid_known { aux.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let ([t0, t1], [c0, c1]) = (tpid.to_be_bytes(), aux.tp_vlan_tci.to_be_bytes());
    Some([t0, t1, c0, c1])
}

fn iovec(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

/// Puts the tag behind the MAC addresses, which move into the headroom.
fn put_tag_back(pool: &mut FramePool, frame: &mut Frame, tag: [u8; VLAN_TAG]) -> bool {
    if frame.len() < MACS || !frame.push_front(VLAN_TAG) {
        return false;
    }
    let bytes = pool.bytes_mut(frame);
    bytes.copy_within(VLAN_TAG..VLAN_TAG + MACS, 0);
    bytes[MACS..MACS + VLAN_TAG].copy_from_slice(&tag);
    true
}

/// Counts the tag in `hdr_len` and `csum_start`, where the header sets them: the kernel counted
/// from the start of a frame without the tag.
fn shift_offsets(vnet: &mut [u8; VNET_HDR_LEN]) {
    const NEEDS_CSUM: u8 = 1;
    let [flags, gso_type, ..] = *vnet;
    let mut add = |at: usize| {
        let field = u16::from_ne_bytes([vnet[at], vnet[at + 1]]).saturating_add(VLAN_TAG as u16);
        vnet[at..at + 2].copy_from_slice(&field.to_ne_bytes());
    };
    if gso_type != 0 {
        add(2);
    }
    if flags & NEEDS_CSUM != 0 {
        add(6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_between_the_addresses_and_the_ethertype() {
        let mut pool = FramePool::new(1, 2048).unwrap();
        let mut frame = pool.alloc().unwrap();
        pool.set_range(&mut frame, HEADROOM, 15);
        pool.bytes_mut(&mut frame).copy_from_slice(b"ddddddssssssEEp");
        assert!(put_tag_back(&mut pool, &mut frame, *b"TTCC"));
        assert_eq!(pool.bytes(&frame), b"ddddddssssssTTCCEEp");
        pool.free(frame);
    }

    #[test]
    fn offsets_move_by_the_tag_only_where_they_are_set() {
        let header = |flags: u8, gso: u8, hdr_len: u16, csum_start: u16| {
            let ([h0, h1], [c0, c1]) = (hdr_len.to_ne_bytes(), csum_start.to_ne_bytes());
            [flags, gso, h0, h1, 0, 0, c0, c1, 16, 0]
        };
        for (before, after) in [
            (header(0, 0, 0, 0), header(0, 0, 0, 0)),
            (header(2, 0, 0, 0), header(2, 0, 0, 0)),
            (header(1, 0, 0, 34), header(1, 0, 0, 38)),
            (header(1, 1, 66, 34), header(1, 1, 70, 38)),
        ] {
            let mut vnet = before;
            shift_offsets(&mut vnet);
            assert_eq!(vnet, after);
        }
    }
}
