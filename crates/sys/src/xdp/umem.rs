//! The system calls that make an AF_XDP socket (Documentation/networking/af_xdp.rst).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::ring::{Consumer, Layout, Producer};
use crate::mapping::Mapping;
use crate::sockopt::{self, Plain};

/// How often and how far apart a bind is tried while the queue is busy: a socket that was closed
/// leaves its queue a little later, by deferred work in the kernel.
const BUSY_TRIES: u32 = 250;
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Entries of the four rings; each a power of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) rx: u32,
    pub(super) tx: u32,
    pub(super) fill: u32,
    pub(super) completion: u32,
}

/// The four rings, mapped.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) rx: Consumer<libc::xdp_desc>,
    pub(super) tx: Producer<libc::xdp_desc>,
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
}

/// A socket of the calling thread's network namespace, bound to nothing.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers `memory` as the socket's UMEM. The kernel pins the pages: it writes to them, not to
/// the addresses, even if the mapping is gone.
pub(super) fn register(
    fd: BorrowedFd<'_>,
    memory: &Mapping,
    chunk_size: u32,
    headroom: u32,
) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: memory.start().as_ptr() as u64,
        len: memory.len() as u64,
        chunk_size,
        headroom,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, libc::XDP_UMEM_REG, &registration)
}

/// Creates the four rings.
pub(super) fn create_rings(fd: BorrowedFd<'_>, sizes: &Sizes) -> io::Result<()> {
    set(fd, libc::XDP_UMEM_FILL_RING, &sizes.fill)?;
    set(fd, libc::XDP_UMEM_COMPLETION_RING, &sizes.completion)?;
    set(fd, libc::XDP_RX_RING, &sizes.rx)?;
    set(fd, libc::XDP_TX_RING, &sizes.tx)
}

/// Maps the four rings. To be called once per socket: it makes the only user-side ends.
pub(super) fn map_rings(fd: BorrowedFd<'_>, sizes: &Sizes) -> io::Result<Rings> {
    let offsets: libc::xdp_mmap_offsets = get(fd, libc::XDP_MMAP_OFFSETS)?;
    let fill_offset = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
    let completion_offset = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
    let rx = map_ring::<libc::xdp_desc>(fd, libc::XDP_PGOFF_RX_RING, &offsets.rx, sizes.rx)?;
    let tx = map_ring::<libc::xdp_desc>(fd, libc::XDP_PGOFF_TX_RING, &offsets.tx, sizes.tx)?;
    let fill = map_ring::<u64>(fd, fill_offset, &offsets.fr, sizes.fill)?;
    let completion = map_ring::<u64>(fd, completion_offset, &offsets.cr, sizes.completion)?;
    // SAFETY: the descriptor is of a new socket and this runs once for it, so these are the only
    // ends on this side; the other ends are the kernel's, which keeps the protocol. Descriptors
    // and addresses are integers.
    Ok(unsafe {
        Rings {
            rx: Consumer::new(rx.0, rx.1, sizes.rx),
            tx: Producer::new(tx.0, tx.1, sizes.tx),
            fill: Producer::new(fill.0, fill.1, sizes.fill),
            completion: Consumer::new(completion.0, completion.1, sizes.completion),
        }
    })
}

fn map_ring<T>(
    fd: BorrowedFd<'_>,
    page_offset: libc::off_t,
    offsets: &libc::xdp_ring_offset,
    size: u32,
) -> io::Result<(Arc<Mapping>, Layout)> {
    let layout = Layout {
        producer: offsets.producer as usize,
        consumer: offsets.consumer as usize,
        flags: offsets.flags as usize,
        entries: offsets.desc as usize,
    };
    let len = layout.entries + size as usize * size_of::<T>();
    Ok((Arc::new(Mapping::shared(fd, page_offset, len)?), layout))
}

/// Binds to a queue; waits up to half a second for one that another socket is leaving.
pub(super) fn bind(fd: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let mut tries = 0;
    loop {
        // SAFETY: the address is a live sockaddr_xdp of the length given.
        let result = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        tries += 1;
        if error.raw_os_error() != Some(libc::EBUSY) || tries == BUSY_TRIES {
            return Err(error);
        }
        std::thread::sleep(BUSY_PAUSE);
    }
}

/// Whether no socket is bound to the queue any more, found by binding `probe`, a socket made in the queue's
/// network namespace. Only `true` is certain.
pub(super) fn queue_is_free(probe: &OwnedFd, ifindex: u32, queue: u32) -> bool {
    let sizes = Sizes { rx: 1, tx: 1, fill: 1, completion: 1 };
    let bound = Mapping::anonymous(4096).and_then(|memory| {
        register(probe.as_fd(), &memory, 2048, 0)?;
        create_rings(probe.as_fd(), &sizes)?;
        bind(probe.as_fd(), ifindex, queue, libc::XDP_COPY)
    });
    match bound {
        Ok(()) => true,
        // The interface is gone, and the kernel unbinds its sockets before it goes.
        Err(error) => error.raw_os_error() == Some(libc::ENODEV),
    }
}

fn set<T: Copy>(fd: BorrowedFd<'_>, option: i32, value: &T) -> io::Result<()> {
    sockopt::set(fd, libc::SOL_XDP, option, value)
}

/// An option of the socket.
pub(super) fn get<T: Plain>(fd: BorrowedFd<'_>, option: i32) -> io::Result<T> {
    sockopt::get(fd, libc::SOL_XDP, option)
}
