//! AF_PACKET: frames by system call, each with the virtio_net_hdr of its metadata. Needs no BPF, and works in
//! an unprivileged user namespace.
//!
//! The header is `struct virtio_net_hdr` of ten bytes (virtio 1.2, 5.1.6, without `num_buffers`)
//! in the machine's byte order, as `PACKET_VNET_HDR` has it. It lets packets pass that are larger
//! than the MTU (with a `gso_size`) or have a checksum still to be completed.

mod filter;
mod long;
mod membership;
mod receive;
mod send;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use membership::{Filter, Membership};
pub use receive::{HEADROOM, Received};
pub use send::Message;

use self::long::LongSender;
use self::receive::Receiver;
use self::send::{Sender, part};
use crate::frames::FramePool;
use crate::sockopt;

/// Bytes of the virtio_net_hdr on an AF_PACKET socket.
pub const VNET_HDR_LEN: usize = 10;

/// Most packets moved by one system call.
pub const BATCH: usize = 64;

/// Several sockets that share an interface's packets (`PACKET_FANOUT_HASH`): the packets of a flow
/// go to the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// Id of the group, unique in the network namespace.
    pub group: u16,
    /// How many sockets the group may have.
    pub members: u32,
}

/// How a [`PacketSocket`] is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The group of sockets to join, if the interface's packets are shared.
    pub fanout: Option<Fanout>,
    /// Memory for packets that wait to be received, in bytes, by the kernel's own accounting. An
    /// unprivileged process gets `net.core.rmem_max` of it at most.
    pub receive_buffer: usize,
    /// The same for packets being sent, with `net.core.wmem_max`.
    pub send_buffer: usize,
    /// Sends past the interface's queueing discipline (`PACKET_QDISC_BYPASS`): cheaper, but what
    /// the device does not take at once is dropped.
    pub qdisc_bypass: bool,
    /// Only sends: nothing that arrives is received. Leaves `fanout` and `receive_buffer` without
    /// effect.
    pub send_only: bool,
    /// Whether each packet has the time at which the kernel received it (`SO_TIMESTAMPNS`), which then stamps
    /// all packets that it receives on any interface.
    pub stamps: bool,
    /// Whether packets that configure the interface (DHCP to a client, router advertisements) are not
    /// received, but left to the kernel's own stack: see
    /// [`IngressDrop::but_configuration`](crate::ingress::IngressDrop::but_configuration).
    pub leave_configuration: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fanout: None,
            receive_buffer: 16 << 20,
            send_buffer: 4 << 20,
            qdisc_bypass: false,
            send_only: false,
            stamps: false,
            leave_configuration: false,
        }
    }
}

/// Counters of packets since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that arrived for the socket, those dropped included (`PACKET_STATISTICS`).
    pub packets: u64,
    /// Packets dropped because the receive buffer was full (`PACKET_STATISTICS`).
    pub dropped: u64,
    /// Packets dropped because they were larger than a chunk and the overflow buffer together.
    pub truncated: u64,
    /// Packets dropped because a virtio_net_hdr cannot describe them.
    pub unreadable: u64,
}

/// A packet socket bound to one interface; receives what arrives there and sends through it.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    receiver: Receiver,
    sender: Sender,
    /// Sends the frames that `sender` cannot send.
    long: LongSender,
    statistics: Statistics,
}

impl PacketSocket {
    /// Binds a socket to the interface `ifindex`. It does not receive what this machine sends
    /// through the interface (`PACKET_IGNORE_OUTGOING`).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` if there is no such interface; `EINVAL` if the
    /// fanout group exists with other properties, `ENOSPC` if it is full.
    pub fn open(ifindex: u32, config: Config) -> io::Result<Self> {
        // Protocol 0: nothing is received before `bind` names one, when all options are set.
        let fd = socket(libc::SOCK_NONBLOCK)?;
        let packet =
            |option, value: libc::c_int| sockopt::set(fd.as_fd(), libc::SOL_PACKET, option, &value);
        packet(libc::PACKET_VNET_HDR, 1)?;
        packet(libc::PACKET_AUXDATA, 1)?;
        packet(libc::PACKET_IGNORE_OUTGOING, 1)?;
        packet(libc::PACKET_QDISC_BYPASS, config.qdisc_bypass.into())?;
        if config.stamps {
            sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
        }
        let (receive, send) = (config.receive_buffer, config.send_buffer);
        set_buffer(fd.as_fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive)?;
        set_buffer(fd.as_fd(), libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send)?;
        if config.leave_configuration {
            filter::keep_configuration_out(fd.as_fd())?;
        }
        match config.fanout {
            // Bound to no protocol, a socket receives nothing.
            _ if config.send_only => bind(fd.as_fd(), ifindex, 0)?,
            None => bind(fd.as_fd(), ifindex, libc::ETH_P_ALL)?,
            Some(fanout) => {
                bind_to_group(fd.as_fd(), ifindex, fanout, config.leave_configuration)?;
            }
        }
        Ok(Self {
            fd,
            receiver: Receiver::new(config.stamps)?,
            sender: Sender::new(),
            long: LongSender::open(ifindex, config.qdisc_bypass)?,
            statistics: Statistics::default(),
        })
    }

    /// Appends the packets that wait, at most `max` and at most [`BATCH`], to `out`, in frames of
    /// the pool. Returns how many; 0 if none waits or the pool is empty.
    ///
    /// A VLAN tag that the kernel has taken out of the frame is put back. `out` does not allocate
    /// if it has spare capacity for [`BATCH`]. The overflow of what was received before is gone.
    ///
    /// # Errors
    /// `ENETDOWN` (once) if the interface went down.
    ///
    /// # Panics
    /// If the pool is not the one that was passed before.
    pub fn receive(
        &mut self,
        pool: &mut FramePool,
        out: &mut Vec<Received>,
        max: usize,
    ) -> io::Result<usize> {
        self.receiver.receive(self.fd.as_fd(), &mut self.statistics, pool, out, max)
    }

    /// The bytes of a packet that did not fit its frame and come after it: `slot` and `len` are
    /// its [`Received::slot`] and [`Received::overflow`], from the last call of
    /// [`PacketSocket::receive`].
    pub fn overflow(&self, slot: u8, len: u32) -> &[u8] {
        self.receiver.overflow(slot, len)
    }

    /// Sends packets in order and returns how many the kernel took, which is fewer than all if it
    /// has no room (wait until the socket is writable) or refuses one.
    ///
    /// # Errors
    /// If the first packet is refused, such as `EMSGSIZE` (longer than the MTU, without a
    /// `gso_size`), `EINVAL` (a virtio_net_hdr that does not fit the packet) or `ENETDOWN`.
    /// `ENOBUFS` means that it was dropped behind the socket (`NET_XMIT_DROP`): by a full queue, which may
    /// have room at the next try, or by a filter or a veth's far end, which will drop it again. The socket is
    /// writable all the while.
    pub fn send(&mut self, messages: &[Message<'_>]) -> io::Result<usize> {
        self.sender.send(self.fd.as_fd(), messages)
    }

    /// Sends one packet made of slices.
    ///
    /// # Errors
    /// `WouldBlock` if the kernel has no room; `InvalidInput` for more than 1,023 slices; else as
    /// in [`PacketSocket::send`].
    pub fn send_slices(
        &mut self,
        vnet: &[u8; VNET_HDR_LEN],
        slices: &[io::IoSlice<'_>],
    ) -> io::Result<()> {
        let parts = slices.iter().map(|slice| part(slice));
        // SAFETY: slices can be read.
        unsafe { self.sender.send_parts(self.fd.as_fd(), vnet, parts) }
    }

    /// The same of bytes that others may change meanwhile: what is sent is what the kernel copies.
    ///
    /// # Errors
    /// As [`send_slices`](Self::send_slices).
    pub fn send_bytes(
        &mut self,
        vnet: &[u8; VNET_HDR_LEN],
        pieces: &[wire::Bytes<'_>],
    ) -> io::Result<()> {
        let parts = pieces.iter().map(|bytes| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
        // SAFETY: bytes can be read.
        unsafe { self.sender.send_parts(self.fd.as_fd(), vnet, parts) }
    }

    /// Sends a complete frame that [`send`](Self::send) refuses with `EMSGSIZE`, in two pieces: one with two VLAN tags
    /// and a full MTU. The first call takes 64 pages of memory, or more if frames are longer than a page.
    ///
    /// # Errors
    /// `WouldBlock` if the kernel has no room; `ENOMEM`, or `EBUSY` if the frame is longer than those before, which the
    /// interface still has; else as in [`PacketSocket::send`].
    pub fn send_long(&mut self, pieces: [&[u8]; 2]) -> io::Result<()> {
        self.long.send(pieces)
    }

    /// Counters of packets since the socket was opened.
    ///
    /// # Errors
    /// The error of `getsockopt`.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        let option = libc::PACKET_STATISTICS;
        // The kernel's counters are cleared by each read.
        let new: libc::tpacket_stats = sockopt::get(self.fd.as_fd(), libc::SOL_PACKET, option)?;
        self.statistics.packets += u64::from(new.tp_packets);
        self.statistics.dropped += u64::from(new.tp_drops);
        Ok(self.statistics)
    }

    /// Closes the socket and returns the frames it held ready to receive into to the pool.
    ///
    /// # Panics
    /// If the pool is not the one that was passed to [`PacketSocket::receive`].
    pub fn close(self, pool: &mut FramePool) {
        self.receiver.close(pool);
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A packet socket that receives nothing yet.
fn socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a buffer's size, past the system's limit if the process may (`CAP_NET_ADMIN`).
fn set_buffer(fd: BorrowedFd<'_>, force: i32, plain: i32, bytes: usize) -> io::Result<()> {
    // The kernel doubles the value, for its own overhead.
    let value = libc::c_int::try_from(bytes / 2).unwrap_or(libc::c_int::MAX / 2);
    sockopt::set(fd, libc::SOL_SOCKET, force, &value)
        .or_else(|_| sockopt::set(fd, libc::SOL_SOCKET, plain, &value))
}

fn bind(fd: BorrowedFd<'_>, ifindex: u32, protocol: libc::c_int) -> io::Result<()> {
    let index =
        libc::c_int::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is a live sockaddr_ll of the length given.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds and joins the group. The kernel lets only a bound socket join, and until it has joined it would
/// receive the other members' packets, too, so a filter keeps all packets out meanwhile.
fn bind_to_group(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    fanout: Fanout,
    leave_configuration: bool,
) -> io::Result<()> {
    filter::keep_all_out(fd)?;
    bind(fd, ifindex, libc::ETH_P_ALL)?;
    // The group has a hook of its own, which ignores PACKET_IGNORE_OUTGOING of its members.
    let kind = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    let id_and_kind = u32::from(fanout.group) | kind << 16;
    // struct fanout_args: id and type as one word in this byte order, then max_num_members.
    #[cfg(target_endian = "big")]
    let id_and_kind = id_and_kind.rotate_left(16);
    sockopt::set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &[id_and_kind, fanout.members])?;
    if leave_configuration {
        return filter::keep_configuration_out(fd);
    }
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}
