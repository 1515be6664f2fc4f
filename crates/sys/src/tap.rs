//! The host port: a TAP with `virtio_net_hdr` in front of every frame, one queue per worker.
//!
//! It is not persistent: the interface vanishes when its last descriptor is closed, so also when the process
//! is killed.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::check;
use crate::interface;

const DEVICE: &str = "/dev/net/tun";

/// Bytes of `virtio_net_hdr` in front of every frame read or written: those of
/// `virtio_net_hdr_v1_hash_tunnel` (virtio 1.4, 5.1.6). A kernel with shorter ones neither writes nor reads
/// the rest.
pub const VNET_HDR_LEN: usize = 24;

/// linux/if_tun.h since 6.17.
const TUN_F_UDP_TUNNEL_GSO: u32 = 0x80;
const TUN_F_UDP_TUNNEL_GSO_CSUM: u32 = 0x100;

/// The most slices that one [`TapQueue::writev`] takes (`UIO_MAXIOV`).
pub const MAX_SLICES: usize = 1024;

/// Why a TAP cannot be made. Each message tells what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// There is no `/dev/net/tun`.
    #[error(
        "{DEVICE} does not exist: load the module (modprobe tun), or pass the device into the \
         container (--device {DEVICE})"
    )]
    NoDevice,
    /// The device exists but may not be opened.
    #[error("no permission to open {DEVICE}: run as root, or chmod 0666 {DEVICE} as root")]
    DevicePermission,
    /// The device may be opened but not used to make an interface.
    #[error(
        "making the interface {name} needs CAP_NET_ADMIN: run as root, or in a user namespace of \
         your own (unshare --user --map-root-user --net)"
    )]
    NoNetAdmin {
        /// The interface that was to be made.
        name: String,
    },
    /// An interface of this name exists.
    #[error(
        "an interface called {name} exists already: choose another name, or delete it (ip link del {name})"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// An interface cannot have this name.
    #[error("{name:?} cannot be an interface's name: {fault}")]
    InvalidName {
        /// The name.
        name: String,
        /// Why it cannot be a name.
        fault: &'static str,
    },
    /// The kernel refused another operation.
    #[error("cannot {operation} the TAP {name}: {cause}")]
    Os {
        /// The operation.
        operation: &'static str,
        /// The interface.
        name: String,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// Work that the host's kernel may leave to the reader of the TAP (`TUNSETOFFLOAD`), by the names of
/// linux/if_tun.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// `TUN_F_CSUM`: TCP and UDP checksums. All others need it.
    pub csum: bool,
    /// `TUN_F_TSO4`: cutting TCP over IPv4.
    pub tso4: bool,
    /// `TUN_F_TSO6`: cutting TCP over IPv6.
    pub tso6: bool,
    /// `TUN_F_TSO_ECN`: cutting TCP segments with CWR set. Needs TSO4 or TSO6.
    pub tso_ecn: bool,
    /// `TUN_F_UFO`: fragmenting UDP. Accepted without an effect since Linux 4.14.
    pub ufo: bool,
    /// `TUN_F_USO4`: cutting UDP over IPv4, each segment with its own UDP header. Linux 6.2 and
    /// later, and only together with USO6.
    pub uso4: bool,
    /// `TUN_F_USO6`: the same over IPv6.
    pub uso6: bool,
    /// `TUN_F_UDP_TUNNEL_GSO`: cutting packets in a UDP tunnel. Linux 6.17 and later.
    pub udp_tunnel: bool,
    /// `TUN_F_UDP_TUNNEL_GSO_CSUM`: the same with a checksum of the outer UDP. Needs the former.
    pub udp_tunnel_csum: bool,
}

impl Offloads {
    /// None: the host sends frames of the MTU's size with complete checksums.
    pub const NONE: Self = Self {
        csum: false,
        tso4: false,
        tso6: false,
        tso_ecn: false,
        ufo: false,
        uso4: false,
        uso6: false,
        udp_tunnel: false,
        udp_tunnel_csum: false,
    };

    /// All that have an effect: checksums, TSO with ECN, USO, and packets in UDP tunnels.
    pub const ALL: Self = Self {
        csum: true,
        tso4: true,
        tso6: true,
        tso_ecn: true,
        ufo: false,
        uso4: true,
        uso6: true,
        udp_tunnel: true,
        udp_tunnel_csum: true,
    };

    /// The bits of `TUNSETOFFLOAD`.
    pub fn bits(self) -> u32 {
        [
            (self.csum, libc::TUN_F_CSUM),
            (self.tso4, libc::TUN_F_TSO4),
            (self.tso6, libc::TUN_F_TSO6),
            (self.tso_ecn, libc::TUN_F_TSO_ECN),
            (self.ufo, libc::TUN_F_UFO),
            (self.uso4, libc::TUN_F_USO4),
            (self.uso6, libc::TUN_F_USO6),
            (self.udp_tunnel, TUN_F_UDP_TUNNEL_GSO),
            (self.udp_tunnel_csum, TUN_F_UDP_TUNNEL_GSO_CSUM),
        ]
        .into_iter()
        .fold(0, |bits, (on, bit)| if on { bits | bit } else { bits })
    }

    /// Without those whose condition is not met: the kernel refuses the whole set because of one.
    fn consistent(self) -> Self {
        if !self.csum {
            return Self::NONE;
        }
        let uso = self.uso4 && self.uso6;
        let tso_ecn = self.tso_ecn && (self.tso4 || self.tso6);
        let udp_tunnel_csum = self.udp_tunnel && self.udp_tunnel_csum;
        Self { tso_ecn, uso4: uso, uso6: uso, udp_tunnel_csum, ..self }
    }
}

/// A TAP interface, as its maker has it.
#[derive(Debug)]
pub struct Tap {
    /// The interface's name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// Its queues, one for each worker; they may be taken out. The interface lives as long as any
    /// of them or the `Tap`.
    pub queues: Vec<TapQueue>,
    /// Another descriptor of the first queue, for settings.
    control: File,
}

impl Tap {
    /// Makes a TAP of this name (a `%d` in it becomes a free number) with so many queues, one at
    /// least: down, with no offloads, in the calling thread's network namespace.
    pub fn create(name: &str, queues: u16) -> Result<Self, TapError> {
        let multi_queue = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        Self::make(name, queues, libc::IFF_TAP | multi_queue)
    }

    /// As [`create`](Self::create), but a TUN, with one queue: IP packets, without Ethernet.
    pub fn create_tun(name: &str) -> Result<Self, TapError> {
        Self::make(name, 1, libc::IFF_TUN)
    }

    /// As [`create`](Self::create), with one queue whose frames go through the kernel's GRO
    /// (`IFF_NAPI`), as a network card's do.
    pub fn create_napi(name: &str) -> Result<Self, TapError> {
        Self::make(name, 1, libc::IFF_TAP | libc::IFF_NAPI)
    }

    fn make(name: &str, queues: u16, kind: libc::c_int) -> Result<Self, TapError> {
        if let Some(fault) = interface::name_fault(name) {
            return Err(TapError::InvalidName { name: name.to_owned(), fault });
        }
        let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let first = open()?;
        let name = attach(&first, name, flags | libc::IFF_TUN_EXCL)?;
        let os = |operation| {
            let name = name.clone();
            move |cause| TapError::Os { operation, name, cause }
        };
        set_int(&first, libc::TUNSETVNETHDRSZ, VNET_HDR_LEN as libc::c_int)
            .map_err(os("set the virtio_net_hdr size of"))?;
        let control = first.try_clone().map_err(os("open"))?;
        let mut files = vec![first];
        for _ in 1..queues {
            let file = open()?;
            attach(&file, &name, flags)?;
            files.push(file);
        }
        let ifindex = interface::index(&name).map_err(|error| os("find")(error.into()))?;
        let queues = files.into_iter().map(TapQueue).collect();
        Ok(Self { name, ifindex, queues, control })
    }

    /// Sets which work the host's kernel may leave to the reader, at any time, also while traffic flows.
    /// Returns those that are now on: without those whose condition is not met, and without USO and UDP
    /// tunnels where the kernel lacks them.
    pub fn set_offload(&self, offloads: Offloads) -> Result<Offloads, TapError> {
        let wanted = offloads.consistent();
        // Offloads that only younger kernels have, the youngest first.
        let without_tunnels = Offloads { udp_tunnel: false, udp_tunnel_csum: false, ..wanted };
        let without_uso = Offloads { uso4: false, uso6: false, ..without_tunnels };
        let try_set = |offloads: Offloads| {
            set_offload_bits(&self.control, offloads.bits()).map(|()| offloads)
        };
        let or_else = |error: io::Error, fewer: Offloads| match error.raw_os_error() {
            Some(libc::EINVAL) => try_set(fewer),
            _ => Err(error),
        };
        try_set(wanted)
            .or_else(|error| or_else(error, without_tunnels))
            .or_else(|error| or_else(error, without_uso))
            .map_err(|cause| self.error("set the offloads of", cause))
    }

    /// Sets the carrier that the host sees, as when a cable is pulled or plugged in.
    pub fn set_carrier(&self, on: bool) -> Result<(), TapError> {
        set_int(&self.control, libc::TUNSETCARRIER, on.into())
            .map_err(|cause| self.error("set the carrier of", cause))
    }

    /// Another descriptor of the first queue: the interface lives as long as that, too.
    ///
    /// # Errors
    /// What fcntl says.
    pub fn hold(&self) -> io::Result<TapQueue> {
        self.control.try_clone().map(TapQueue)
    }

    fn error(&self, operation: &'static str, cause: io::Error) -> TapError {
        TapError::Os { operation, name: self.name.clone(), cause }
    }
}

/// One queue of a TAP. Reading and writing never block.
#[derive(Debug)]
pub struct TapQueue(File);

impl TapQueue {
    /// Reads one frame with its `virtio_net_hdr` in front; `None` if there is none now. A frame
    /// longer than `buffer` is cut off: give it 12 + 18 + 65,535 bytes.
    ///
    /// `EIO` or `EINVAL` means one frame that the kernel could not describe, `EBADFD` that the
    /// interface was deleted.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one frame, `virtio_net_hdr` first, gathered from up to [`MAX_SLICES`] slices.
    ///
    /// `EIO` while the interface is down, `EINVAL` for a header that does not fit the frame; the frame is
    /// then lost, and the queue stays usable.
    #[inline]
    pub fn writev(&self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        // std writes the first 1,024 of more, which would cut the frame short.
        if slices.len() > MAX_SLICES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // A TAP accepts a frame as a whole or not at all.
        (&self.0).write_vectored(slices).map(drop)
    }

    /// Another descriptor of the same queue, so that one thread can write while another reads.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

/// A queue that another process has made.
impl From<OwnedFd> for TapQueue {
    fn from(queue: OwnedFd) -> Self {
        TapQueue(File::from(queue))
    }
}

impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open() -> Result<File, TapError> {
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
    file.map_err(|cause| match cause.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TapError::NoDevice,
        Some(libc::EACCES | libc::EPERM) => TapError::DevicePermission,
        _ => TapError::Os { operation: "open /dev/net/tun for", name: String::new(), cause },
    })
}

/// Makes the interface, or joins a queue to it, and returns its name.
fn attach(file: &File, name: &str, flags: libc::c_int) -> Result<String, TapError> {
    let owned = || name.to_owned();
    let os = |cause| TapError::Os { operation: "make", name: owned(), cause };
    let mut request = interface::ifreq(name).map_err(|error| os(error.into()))?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `request` is.
    let result = check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) });
    match result.map_err(|cause| (cause.raw_os_error(), cause)) {
        Ok(_) => {
            let bytes: Vec<u8> = request.ifr_name.iter().map(|&byte| byte as u8).collect();
            Ok(crate::netlink::text(&bytes))
        }
        Err((Some(libc::EPERM), _)) => Err(TapError::NoNetAdmin { name: owned() }),
        // EBUSY for another TUN or TAP, EINVAL for an interface of another kind.
        Err((Some(libc::EBUSY | libc::EINVAL), _)) if interface::index(name).is_ok() => {
            Err(TapError::NameTaken { name: owned() })
        }
        Err((_, cause)) => Err(os(cause)),
    }
}

/// Sets a value that the kernel reads as an int behind a pointer.
fn set_int(file: &File, setting: libc::Ioctl, value: libc::c_int) -> io::Result<()> {
    debug_assert!([libc::TUNSETVNETHDRSZ, libc::TUNSETCARRIER].contains(&setting));
    // SAFETY: the settings given here (above) read one int, which `value` is.
    check(unsafe { libc::ioctl(file.as_raw_fd(), setting, &raw const value) }).map(drop)
}

fn set_offload_bits(file: &File, bits: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes the bits themselves and touches no memory of ours.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(bits)) };
    check(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_whose_condition_is_not_met_are_left_out() {
        let uso4 = Offloads { csum: true, uso4: true, ..Offloads::NONE };
        assert_eq!(uso4.consistent(), Offloads { csum: true, ..Offloads::NONE });
        assert_eq!(Offloads { csum: false, ..Offloads::ALL }.consistent(), Offloads::NONE);
        let ecn = Offloads { csum: true, tso_ecn: true, ..Offloads::NONE };
        assert!(!ecn.consistent().tso_ecn);
        assert_eq!(Offloads::ALL.consistent(), Offloads::ALL);
        assert_eq!(Offloads::ALL.bits(), 0x1ef);
    }

    #[test]
    fn a_name_that_cannot_be_is_refused_before_anything_is_opened() {
        for name in ["", "a-name-too-long-for-it", "a/b"] {
            assert!(matches!(Tap::create(name, 1), Err(TapError::InvalidName { .. })));
        }
    }
}
