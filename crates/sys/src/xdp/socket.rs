//! An AF_XDP socket whose UMEM is a frame pool.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::ledger::{Ledger, Lent, Place};
use super::umem::{self, Rings, Sizes};
use crate::frames::{Frame, FramePool};
use crate::mapping::Mapping;

/// Whether a driver may put frames into the pool itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Where the driver can (`XDP_ZEROCOPY`), else the kernel copies.
    #[default]
    Auto,
    /// The kernel copies (`XDP_COPY`).
    Copy,
}

/// Sizes and modes of an [`XdpSocket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Entries of the RX ring, a power of two.
    pub rx_size: u32,
    /// Entries of the TX ring, a power of two.
    pub tx_size: u32,
    /// Entries of the FILL ring, a power of two: frames that [`XdpSocket::refill`] keeps with the
    /// kernel to receive into. A pool that also sends needs more chunks than this.
    pub fill_size: u32,
    /// Entries of the COMPLETION ring, a power of two; at least `tx_size`, or sending stalls.
    pub completion_size: u32,
    /// Zero-copy or copy.
    pub zero_copy: ZeroCopy,
    /// Bytes to leave in front of a received frame, beside the 256 (`XDP_PACKET_HEADROOM`) that
    /// the kernel always leaves. They come off the longest frame a chunk can hold.
    pub headroom: u32,
    /// Lets packets that are longer than a chunk come and go as several frames, marked by
    /// [`Frame::continues`] (`XDP_USE_SG`, Linux 6.6). Without it such packets are dropped and
    /// counted in [`Statistics::rx_dropped`].
    pub multi_buffer: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rx_size: 2048,
            tx_size: 2048,
            fill_size: 2048,
            completion_size: 2048,
            zero_copy: ZeroCopy::Auto,
            headroom: 0,
            multi_buffer: false,
        }
    }
}

/// The kernel's counters since the socket was opened (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames dropped because they did not fit a chunk, or for other reasons.
    pub rx_dropped: u64,
    /// FILL entries the kernel refused; their chunks are lost until the socket is closed.
    pub rx_invalid_descriptors: u64,
    /// TX entries the kernel refused; their chunks are lost until the socket is closed.
    pub tx_invalid_descriptors: u64,
    /// Frames dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Times the kernel wanted an entry of the FILL ring and there was none. In copy mode that is a
    /// frame, which is among [`rx_dropped`](Self::rx_dropped) as well (`__xsk_rcv`); in zero-copy mode
    /// it is none, but a driver that looked, and frames are lost when its own ring is empty, too.
    pub rx_fill_ring_empty: u64,
    /// Times the kernel looked for an entry to send and found none.
    pub tx_ring_empty: u64,
    /// Entries that the kernel returned without having had them; refused. A value other than 0 is a kernel
    /// bug.
    pub foreign: u64,
}

/// Frames that the kernel took to send and then dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One AF_XDP socket on one queue of one interface.
///
/// A chunk has one owner at any time: the pool's free list, a [`Frame`] token, or the kernel. A ledger
/// records the chunks of the kernel, and a token is made again only for a chunk found in it. Dropping the
/// socket leaves the chunks that the kernel still had out of the pool;
/// [`XdpSocket::close`] brings them back.
#[derive(Debug)]
pub struct XdpSocket {
    rings: Rings,
    ledger: Ledger,
    fd: OwnedFd,
    /// Bound in `close`, to check that the queue is free. Made at the start, so that it belongs to the
    /// queue's network namespace, whatever that of the closing thread is.
    probe: OwnedFd,
    ifindex: u32,
    queue: u32,
    pool_id: u32,
    zero_copy: bool,
    multi_buffer: bool,
    foreign: u64,
    refused: Refused,
    /// Frames that are with the kernel to receive into, or wait to be received.
    receiving: usize,
    /// As many as these may be.
    receive_limit: usize,
    /// The UMEM outlives the socket, whether or not the pool does.
    _memory: Arc<Mapping>,
}

impl XdpSocket {
    /// Binds a socket to `queue` of the interface `ifindex`, with the pool's memory as its UMEM.
    ///
    /// Several sockets may use one pool. Attach the program first: some drivers offer zero-copy
    /// only then. Nothing is received before [`XdpSocket::refill`] and
    /// [`Redirect::set`](super::Redirect::set).
    ///
    /// # Errors
    /// `InvalidInput` if a size is not a power of two or the chunks do not suit AF_XDP (at most a
    /// page each, more than the headroom); `EPERM` without `CAP_NET_RAW`; `EBUSY` if another
    /// socket has the queue; `EINVAL` if there is no such queue; `ENETDOWN` if the interface is
    /// down; `ENOBUFS` if `RLIMIT_MEMLOCK` does not cover the pool.
    pub fn open(ifindex: u32, queue: u32, pool: &FramePool, config: Config) -> io::Result<Self> {
        check(pool, &config)?;
        match config.zero_copy {
            ZeroCopy::Auto => Self::bound(ifindex, queue, pool, &config, libc::XDP_ZEROCOPY)
                .or_else(|error| match error.raw_os_error() {
                    Some(libc::EBUSY) => Err(error),
                    _ => Self::bound(ifindex, queue, pool, &config, libc::XDP_COPY),
                }),
            ZeroCopy::Copy => Self::bound(ifindex, queue, pool, &config, libc::XDP_COPY),
        }
    }

    fn bound(
        ifindex: u32,
        queue: u32,
        pool: &FramePool,
        config: &Config,
        mode: u16,
    ) -> io::Result<Self> {
        let sizes = Sizes {
            rx: config.rx_size,
            tx: config.tx_size,
            fill: config.fill_size,
            completion: config.completion_size,
        };
        let scatter = if config.multi_buffer { libc::XDP_USE_SG } else { 0 };
        let fd = umem::socket()?;
        umem::register(fd.as_fd(), pool.memory(), pool.chunk_size() as u32, config.headroom)?;
        umem::create_rings(fd.as_fd(), &sizes)?;
        let rings = umem::map_rings(fd.as_fd(), &sizes)?;
        umem::bind(fd.as_fd(), ifindex, queue, mode | libc::XDP_USE_NEED_WAKEUP | scatter)?;
        let options: libc::xdp_options = umem::get(fd.as_fd(), libc::XDP_OPTIONS)?;
        Ok(Self {
            rings,
            ledger: Ledger::new(pool.capacity(), pool.chunk_size()),
            fd,
            probe: umem::socket()?,
            ifindex,
            queue,
            pool_id: pool.id(),
            zero_copy: options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0,
            multi_buffer: config.multi_buffer,
            foreign: 0,
            refused: Refused::default(),
            receiving: 0,
            receive_limit: usize::MAX,
            _memory: Arc::clone(pool.memory()),
        })
    }

    /// Whether the driver uses the pool's memory itself.
    pub fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// The queue the socket is bound to.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Appends received frames to `out`, about `max` of them, and returns how many. A packet of several
    /// frames is delivered whole: the last of a call never [continues](Frame::continues).
    ///
    /// `out` does not allocate if its spare capacity is `max` plus the frames of one packet.
    ///
    /// # Panics
    /// If the pool is not the one the socket was opened with. So do the other methods.
    pub fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Frame>, max: usize) -> usize {
        self.assert_own(pool);
        let before = out.len();
        for _ in 0..self.whole_packets(max) {
            let Some(entry) = self.rings.rx.pop() else { break };
            let Some(place) = self.ledger.take_back(entry.addr, entry.len, Lent::Receive) else {
                self.foreign += 1;
                continue;
            };
            self.receiving -= 1;
            let continues = entry.options & libc::XDP_PKT_CONTD != 0;
            // SAFETY: the ledger had the chunk as lent for receiving, so its token was consumed by
            // `refill` and no other was made since; the entry shows that the kernel has filled it
            // and is done with it.
            out.push(unsafe { pool.adopt(place.chunk, place.offset, entry.len, continues) });
        }
        self.rings.rx.release();
        out.len() - before
    }

    /// How many entries to take for at most `max` frames, without cutting a packet in two; one packet is
    /// always taken.
    fn whole_packets(&mut self, max: usize) -> u32 {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        if !self.multi_buffer {
            return self.rings.rx.available(max).min(max);
        }
        let available = self.rings.rx.available(u32::MAX);
        let mut whole = 0;
        for ahead in 0..available {
            if whole > 0 && ahead >= max {
                break;
            }
            let last = |entry: libc::xdp_desc| entry.options & libc::XDP_PKT_CONTD == 0;
            if self.rings.rx.peek(ahead).is_some_and(last) {
                whole = ahead + 1;
            }
        }
        if max == 0 { 0 } else { whole }
    }

    /// How many frames wait to be received.
    pub fn waiting(&mut self) -> u32 {
        self.rings.rx.available(u32::MAX)
    }

    /// From now on [`XdpSocket::refill`] lends the kernel so many chunks at most, those with frames that wait to be
    /// received among them: the longest that the queue becomes. What it has more than that stays.
    pub fn limit_receive(&mut self, frames: usize) {
        self.receive_limit = frames;
    }

    /// Lends free chunks of the pool to the kernel to receive into, until the FILL ring is full, the
    /// [limit](XdpSocket::limit_receive) is reached or the pool is empty, and wakes the kernel if it waits for them.
    pub fn refill(&mut self, pool: &mut FramePool) {
        self.assert_own(pool);
        let room = (self.rings.fill.room() as usize)
            .min(self.receive_limit.saturating_sub(self.receiving));
        for _ in 0..room {
            let Some(frame) = pool.alloc() else { break };
            let place = Place { chunk: frame.chunk(), offset: 0 };
            let address = self.ledger.lend(place, Lent::Receive);
            self.receiving += 1;
            // The ring has room for it, as just asked. The token ends here: the kernel owns.
            let _ = self.rings.fill.push(address);
        }
        self.rings.fill.submit();
        if self.rings.fill.needs_wakeup() {
            // SAFETY: no buffer is passed, so nothing is written. What it returns does not matter:
            // the call is only to make the driver look at the FILL ring.
            unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    std::ptr::null_mut(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            };
        }
    }

    /// Queues a frame to be sent by the next [`XdpSocket::kick`].
    ///
    /// The frames of one packet (see [`Frame::set_continues`]) must follow one another; ask
    /// [`XdpSocket::tx_room`] first whether all of them fit.
    ///
    /// # Errors
    /// Gives the frame back if the TX ring is full. So it does with what cannot be sent: a frame
    /// without bytes, of another pool, or that continues while `multi_buffer` is off.
    pub fn transmit(&mut self, frame: Frame) -> Result<(), Frame> {
        let sendable = frame.pool_is(self.pool_id)
            && !frame.is_empty()
            && (self.multi_buffer || !frame.continues());
        if !sendable || self.rings.tx.is_full() {
            return Err(frame);
        }
        let place = Place { chunk: frame.chunk(), offset: frame.headroom() as u32 };
        let entry = libc::xdp_desc {
            addr: self.ledger.lend(place, Lent::Transmit),
            len: frame.len() as u32,
            options: if frame.continues() { libc::XDP_PKT_CONTD } else { 0 },
        };
        // The ring has room for it, as just asked. The token ends here: the kernel owns.
        let _ = self.rings.tx.push(entry);
        Ok(())
    }

    /// Has the kernel send the frames of [`XdpSocket::transmit`], as far as it can.
    ///
    /// In copy mode a system call takes 32 frames or so; this calls until all are taken or the
    /// kernel takes no more (`EAGAIN`, `EBUSY`, `ENOBUFS`: the COMPLETION ring is full, the device
    /// is). The rest stays queued for the next call.
    ///
    /// # Errors
    /// Other errors of `sendto`, such as `ENETDOWN`.
    pub fn kick(&mut self) -> io::Result<()> {
        self.rings.tx.submit();
        let mut queued = self.rings.tx.queued();
        while queued > 0 && self.rings.tx.needs_wakeup() {
            match self.wake_transmit() {
                // The error of __xsk_generic_xmit for a frame that it has taken and that was then dropped
                // (NET_XMIT_DROP), and for nothing else.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && !self.zero_copy => {
                    self.refused.frames += 1;
                    let bytes = self.rings.tx.taken_last().map_or(0, |entry| entry.len);
                    self.refused.bytes += u64::from(bytes);
                }
                Err(error) if !is_busy(&error) => return Err(error),
                _ => {}
            }
            let rest = self.rings.tx.queued();
            // In zero-copy mode the driver sends by itself once it has been woken.
            if rest == queued || self.zero_copy {
                break;
            }
            queued = rest;
        }
        Ok(())
    }

    fn wake_transmit(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address are passed.
        let result = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the chunks of frames that were sent to the pool. Returns how many.
    pub fn reap(&mut self, pool: &mut FramePool) -> usize {
        self.assert_own(pool);
        let mut reaped = 0;
        while let Some(address) = self.rings.completion.pop() {
            let Some(place) = self.ledger.take_back(address, 0, Lent::Transmit) else {
                self.foreign += 1;
                continue;
            };
            // SAFETY: the ledger had the chunk as lent for sending, so its token was consumed by
            // `transmit` and no other was made since; the entry shows that it has been sent.
            pool.free(unsafe { pool.adopt(place.chunk, 0, 0, false) });
            reaped += 1;
        }
        self.rings.completion.release();
        reaped
    }

    /// Frames that [`XdpSocket::transmit`] would take now.
    pub fn tx_room(&mut self) -> usize {
        self.rings.tx.room() as usize
    }

    /// Frames queued that the kernel has not taken yet.
    pub fn tx_queued(&mut self) -> usize {
        self.rings.tx.queued() as usize
    }

    /// Frames that the kernel took from the TX ring and that the interface then dropped, as far as the kernel
    /// reports it: in copy mode, where the interface has no carrier or its driver has no room (a veth whose
    /// far end is full). Drops of a driver are in its own counters.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// The kernel's counters.
    ///
    /// # Errors
    /// The error of `getsockopt`.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let counted: libc::xdp_statistics = umem::get(self.fd.as_fd(), libc::XDP_STATISTICS)?;
        Ok(Statistics {
            rx_dropped: counted.rx_dropped,
            rx_invalid_descriptors: counted.rx_invalid_descs,
            tx_invalid_descriptors: counted.tx_invalid_descs,
            rx_ring_full: counted.rx_ring_full,
            rx_fill_ring_empty: counted.rx_fill_ring_empty_descs,
            tx_ring_empty: counted.tx_ring_empty_descs,
            foreign: self.foreign,
        })
    }

    /// Leaves the queue and returns the chunks that the kernel had to the pool. Returns how many could not be
    /// returned. Frames received but not taken are discarded.
    ///
    /// The kernel may use the chunks until the socket is gone, which a duplicate of its descriptor
    /// (in another process, for instance) would delay. So they are returned only when the queue is
    /// seen to be free, which can take some milliseconds and is waited for up to half a second.
    /// What is not returned stays out of use for the life of the pool. It is also not returned if
    /// the interface is down, which hides the answer.
    pub fn close(self, pool: &mut FramePool) -> usize {
        self.assert_own(pool);
        let Self { rings, mut ledger, fd, probe, ifindex, queue, .. } = self;
        drop(rings);
        drop(fd);
        if ledger.lent() == 0 {
            return 0;
        }
        if !umem::queue_is_free(&probe, ifindex, queue) {
            return ledger.lent();
        }
        for chunk in ledger.take_back_all() {
            // SAFETY: the chunk was lent, so no token of it exists; and the kernel has released
            // it: a queue becomes free only after the pool of the socket that was bound to it has
            // been quiesced (synchronize_net in copy mode, the driver's own stop in zero-copy).
            pool.free(unsafe { pool.adopt(chunk, 0, 0, false) });
        }
        0
    }

    fn assert_own(&self, pool: &FramePool) {
        assert!(pool.id() == self.pool_id, "an AF_XDP socket was used with another pool");
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the kernel merely took fewer frames than there are.
fn is_busy(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR))
}

fn check(pool: &FramePool, config: &Config) -> io::Result<()> {
    let sizes = [config.rx_size, config.tx_size, config.fill_size, config.completion_size];
    let message = if !sizes.iter().all(|size| size.is_power_of_two()) {
        "AF_XDP ring sizes must be powers of two"
    } else if pool.chunk_size() > page_size() {
        "an AF_XDP UMEM takes chunks of at most a page"
    } else if config.headroom as usize >= pool.chunk_size() - 256 {
        "the headroom leaves no room for a frame in the chunk"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

fn page_size() -> usize {
    // SAFETY: no pointers; _SC_PAGESIZE is always known.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
