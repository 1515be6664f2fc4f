//! The XDP program that redirects each queue's frames to its AF_XDP socket.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya::maps::{MapData, XskMap};
use aya::programs::Xdp;
use aya::{Ebpf, include_bytes_aligned};

use super::XdpSocket;
use crate::{Error, Result};

/// Queues the program knows: entries of its map (`xsks` in bpf/redirect.c).
pub const QUEUES: u32 = 256;

/// The compiled bpf/redirect.c; the source has the command that compiles it.
static OBJECT: &[u8] = include_bytes_aligned!("../../bpf/redirect.o");

/// The program for drivers that take frames of several buffers, and the one for all others.
const PROGRAMS: [&str; 2] = ["redirect_frags", "redirect"];
/// The same, except for packets that configure the interface (DHCP to a client, router advertisements).
const LEAVING: [&str; 2] = ["leave_frags", "leave"];
/// The same with a [`stamp`](crate::frames::FramePool::take_stamp) in front of each frame.
const STAMPING: [&str; 2] = ["stamp_frags", "stamp"];

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if it can, else in the kernel's stack.
    #[default]
    Auto,
    /// In the driver, before the kernel has made a packet of the frame (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// In the kernel's stack, on any interface (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

/// The redirect program attached to an interface.
///
/// The attachment is a `bpf_link`: it ends when this value is dropped, and when the process ends,
/// however it ends. Frames of queues without a socket go on to the kernel's own stack.
pub struct Redirect {
    _link: OwnedFd,
    sockets: XskMap<MapData>,
    mode: Mode,
}

impl std::fmt::Debug for Redirect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redirect").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Redirect {
    /// Attaches the program to the interface `ifindex`, with no socket set.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; `EBUSY` or `EEXIST` if the interface has an
    /// XDP program already; `ENODEV` if it does not exist; `EOPNOTSUPP` (and, depending on the
    /// driver, others) if its driver cannot run the program natively and `mode` asks for that;
    /// `EINVAL` also from kernels that have no bpf_link for XDP (before 5.9).
    pub fn attach(ifindex: u32, mode: Mode) -> Result<Self> {
        Self::attach_one_of(PROGRAMS, ifindex, mode)
    }

    /// The same with a program that stores in front of each frame when it arrived:
    /// [`FramePool::take_stamp`](crate::frames::FramePool::take_stamp).
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_stamping(ifindex: u32, mode: Mode) -> Result<Self> {
        Self::attach_one_of(STAMPING, ifindex, mode)
    }

    /// The same with a program that leaves packets that configure the interface (DHCP to a client, router
    /// advertisements) to the kernel's own stack.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_leaving_configuration(ifindex: u32, mode: Mode) -> Result<Self> {
        Self::attach_one_of(LEAVING, ifindex, mode)
    }

    fn attach_one_of(programs: [&str; 2], ifindex: u32, mode: Mode) -> Result<Self> {
        let tries: &[Mode] = match mode {
            Mode::Auto => &[Mode::Native, Mode::Generic],
            Mode::Native => &[Mode::Native],
            Mode::Generic => &[Mode::Generic],
        };
        let mut ebpf = Ebpf::load(OBJECT).map_err(|error| bpf_error("load the XDP map", error))?;
        let mut refusal = None;
        for &mode in tries {
            for program in programs {
                match link(&mut ebpf, program, ifindex, mode) {
                    Ok(link) => return Ok(Self { _link: link, sockets: sockets(ebpf)?, mode }),
                    Err(error) if is_final(&error) => return Err(error),
                    Err(error) => refusal = Some(error),
                }
            }
        }
        Err(refusal.unwrap_or_else(|| Error::new("attach XDP", io::ErrorKind::Other.into())))
    }

    /// Where the program runs: [`Mode::Native`] or [`Mode::Generic`].
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Redirects the frames of the socket's queue to the socket, until the socket is closed.
    ///
    /// # Errors
    /// If the queue is not below [`QUEUES`], and the kernel's error.
    pub fn set(&mut self, socket: &XdpSocket) -> Result<()> {
        self.sockets
            .set(socket.queue(), socket.as_fd().as_raw_fd(), 0)
            .map_err(|error| bpf_error("give the queue to the AF_XDP socket", error))
    }

    /// Leaves the frames of `queue` to the kernel's own stack again.
    ///
    /// # Errors
    /// If the queue is not below [`QUEUES`], and the kernel's error.
    pub fn unset(&mut self, queue: u32) -> Result<()> {
        self.sockets
            .unset(queue)
            .map_err(|error| bpf_error("take the queue from the AF_XDP socket", error))
    }
}

/// Loads the program (once) and attaches it.
fn link(ebpf: &mut Ebpf, name: &str, ifindex: u32, mode: Mode) -> Result<OwnedFd> {
    let missing = || Error::new("find the XDP program", io::ErrorKind::NotFound.into());
    let program = ebpf.program_mut(name).ok_or_else(missing)?;
    let program: &mut Xdp = program.try_into().map_err(|e| bpf_error("use the XDP program", e))?;
    if program.fd().is_err() {
        program.load().map_err(|error| bpf_error("load the XDP program", error))?;
    }
    let fd = program.fd().map_err(|error| bpf_error("use the XDP program", error))?.as_fd();
    create_link(fd, ifindex, mode).map_err(|error| {
        let operation = match mode {
            Mode::Native => "attach XDP in native mode to",
            Mode::Generic | Mode::Auto => "attach XDP in generic mode to",
        };
        let name = name_of(ifindex).unwrap_or_else(|| format!("interface {ifindex}"));
        Error::new(operation, error).on(name)
    })
}

/// Whether another mode would be refused in the same way.
fn is_final(error: &Error) -> bool {
    matches!(
        error.errno(),
        Some(libc::EPERM | libc::EACCES | libc::EBUSY | libc::EEXIST | libc::ENODEV)
    )
}

fn sockets(mut ebpf: Ebpf) -> Result<XskMap<MapData>> {
    let missing = || Error::new("find the XDP map", io::ErrorKind::NotFound.into());
    let map = ebpf.take_map("xsks").ok_or_else(missing)?;
    XskMap::try_from(map).map_err(|error| bpf_error("use the XDP map", error))
}

/// `BPF_LINK_CREATE` for XDP (include/uapi/linux/bpf.h), without what follows `flags`.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// aya attaches by netlink where the kernel answers EINVAL here, and such an attachment outlives
/// the process. This only ever makes a link.
fn create_link(program: BorrowedFd<'_>, ifindex: u32, mode: Mode) -> io::Result<OwnedFd> {
    const BPF_LINK_CREATE: libc::c_int = 28;
    const BPF_XDP: u32 = 37;
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    let request = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: ifindex,
        attach_type: BPF_XDP,
        flags: if mode == Mode::Native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE },
    };
    // SAFETY: the kernel reads the bytes of a live struct of the size given and writes nothing.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE,
            &raw const request,
            size_of::<LinkCreate>() as libc::c_uint,
        )
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        let missing = error.raw_os_error() == Some(libc::EINVAL) && name_of(ifindex).is_none();
        return Err(if missing { io::Error::from_raw_os_error(libc::ENODEV) } else { error });
    }
    // SAFETY: the descriptor is new (close-on-exec, as all BPF descriptors) and has no owner yet.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// The interface's name, if there is such an interface.
fn name_of(ifindex: u32) -> Option<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has IF_NAMESIZE bytes, as the call requires.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) };
    let text = CStr::from_bytes_until_nul(&name).ok()?;
    (!found.is_null()).then(|| text.to_string_lossy().into_owned())
}

/// An error of aya's with the kernel's error number within it, if there is one, kept reachable.
fn bpf_error(
    operation: &'static str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        let errno = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if let Some(errno) = errno {
            return Error::new(operation, io::Error::from_raw_os_error(errno));
        }
        source = cause.source();
    }
    Error::new(operation, io::Error::other(error))
}
