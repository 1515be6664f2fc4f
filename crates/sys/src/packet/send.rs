//! Sending through AF_PACKET: sendmmsg with header and payload where they lie.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{BATCH, VNET_HDR_LEN};

/// virtio_net_hdr, header, payload.
const PARTS: usize = 3;

/// Slices of one sendmsg (`UIO_MAXIOV`).
const MAX_PARTS: usize = 1024;

/// A packet to send, in two pieces so that neither is copied to join them.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The packet's metadata; zeros for a complete one within the MTU. Offsets count from the start of
    /// `header`.
    pub vnet: [u8; VNET_HDR_LEN],
    /// The first bytes, Ethernet header first.
    pub header: &'a [u8],
    /// The bytes after them; may be empty.
    pub payload: &'a [u8],
}

/// Arrays for a system call, allocated once.
#[derive(Debug)]
pub(super) struct Sender {
    messages: Box<[libc::mmsghdr]>,
    parts: Box<[libc::iovec]>,
}

// SAFETY: the pointers in the arrays are written before each system call and used by it alone;
// between calls nothing reads them, on whichever thread.
unsafe impl Send for Sender {}
// SAFETY: as above; and `&Sender` gives no access to them.
unsafe impl Sync for Sender {}

impl Sender {
    pub(super) fn new() -> Self {
        Self {
            messages: vec![empty_message(); BATCH].into_boxed_slice(),
            parts: vec![part(&[]); MAX_PARTS].into_boxed_slice(),
        }
    }

    pub(super) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        messages: &[Message<'_>],
    ) -> io::Result<usize> {
        let mut taken = 0;
        for batch in messages.chunks(BATCH) {
            match self.send_batch(fd, batch) {
                Ok(n) => {
                    taken += n;
                    if n < batch.len() {
                        break;
                    }
                }
                Err(error) if taken == 0 && !is_full(&error) => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// Calls sendmmsg once; `batch` has at most [`BATCH`] messages.
    fn send_batch(&mut self, fd: BorrowedFd<'_>, batch: &[Message<'_>]) -> io::Result<usize> {
        let parts = self.parts.chunks_exact_mut(PARTS);
        for ((message, parts), out) in batch.iter().zip(parts).zip(&mut self.messages) {
            parts.copy_from_slice(&[
                part(&message.vnet),
                part(message.header),
                part(message.payload),
            ]);
            out.msg_hdr.msg_iov = parts.as_mut_ptr();
            // Each part costs the kernel time.
            out.msg_hdr.msg_iovlen = PARTS - usize::from(message.payload.is_empty());
        }
        retry(|| {
            // SAFETY: the first batch.len() messages (at most BATCH, the array's length) each point
            // to PARTS live iovecs or fewer, which point to live slices of `batch`. The kernel only reads
            // those; it writes `msg_len` in the array, which is borrowed exclusively.
            unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    self.messages.as_mut_ptr(),
                    batch.len().min(BATCH) as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                ) as isize
            }
        })
    }

    /// Sends one packet made of parts.
    ///
    /// # Safety
    /// Each part names memory that can be read.
    pub(super) unsafe fn send_parts(
        &mut self,
        fd: BorrowedFd<'_>,
        vnet: &[u8; VNET_HDR_LEN],
        of: impl ExactSizeIterator<Item = libc::iovec>,
    ) -> io::Result<()> {
        let count = 1 + of.len();
        let Some(parts) = self.parts.get_mut(..count) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than 1023 slices"));
        };
        parts[0] = part(vnet);
        parts[1..].iter_mut().zip(of).for_each(|(out, part)| *out = part);
        let mut message = empty_message().msg_hdr;
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = count;
        // SAFETY: the header points to `count` live iovecs, which name memory that can be read, by the caller's promise;
        // the kernel only reads it.
        retry(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) })?;
        Ok(())
    }
}

/// Whether the socket's own send buffer is full, for which the caller can wait.
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

/// Repeats a call that a signal interrupts.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let result = call();
        if let Ok(result) = usize::try_from(result) {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A part that the kernel only reads, though the type does not show that.
pub(super) fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

pub(super) fn empty_message() -> libc::mmsghdr {
    // SAFETY: integers and pointers, for which zeros (null, no length) are valid.
    unsafe { std::mem::zeroed() }
}
