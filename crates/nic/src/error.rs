//! Why the NIC cannot start or change. Each text says what to do about it.

use std::io;

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wire interface does not exist here.
    #[error("there is no interface {name} here; there are: {others} (see: ip link)")]
    NoWire {
        /// What was asked for.
        name: String,
        /// What there is.
        others: String,
    },
    /// An address of an endpoint is another host's.
    #[error("{duplicate}, on {name}; choose another address, or take it from that host")]
    Duplicate {
        /// The interface.
        name: String,
        /// The address, and the host that has it.
        duplicate: iface::Duplicate,
    },
    /// The wire is not an Ethernet interface.
    #[error("{name} does not carry Ethernet frames; wharf needs an interface that does")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// No right to open sockets on the wire.
    #[error(
        "opening {name} needs CAP_NET_RAW and CAP_NET_ADMIN: run as root, or in a user namespace \
         of your own (unshare --user --map-root-user --net)"
    )]
    Permission {
        /// The interface.
        name: String,
    },
    /// AF_XDP was asked for by name and is not to be had.
    #[error("cannot use AF_XDP on {name}: {why}; the mode auto falls back to AF_PACKET")]
    Xdp {
        /// The interface.
        name: String,
        /// What stands in the way.
        why: String,
    },
    /// Another XDP program takes the wire's frames.
    #[error(
        "{name} has an XDP program already, perhaps that of another wharf: stop the program that \
         attached it (ip link show {name}; bpftool link)"
    )]
    XdpBusy {
        /// The interface.
        name: String,
    },
    /// AF_PACKET failed.
    #[error("cannot open {name} by AF_PACKET: {cause}")]
    Packet {
        /// The interface.
        name: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The host interface cannot be made.
    #[error(transparent)]
    Tap(#[from] sys::tap::TapError),
    /// Something else of the operating system's.
    #[error(transparent)]
    Sys(#[from] sys::Error),
    /// Too many frames were asked for.
    #[error("no memory for {frames} frames, which are {bytes} bytes: {cause}; ask for fewer")]
    Memory {
        /// How many.
        frames: u32,
        /// All of them.
        bytes: u64,
        /// The kernel's error.
        cause: io::Error,
    },
    /// A file descriptor, thread or memory could not be had.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
    /// A WAN on a wire of several queues would be several.
    #[error(
        "degen on {name} would be one for each of {workers} workers: use one queue (ethtool -L \
         {name} combined 1) or one worker (wire.mode=packet, workers=1)"
    )]
    SeveralWans {
        /// The interface.
        name: String,
        /// Its workers.
        workers: usize,
    },
    /// The number of workers does not fit the wire.
    #[error(
        "{name} has {queues} receive queues and AF_XDP wants a worker for each: set workers to 0 \
         or {queues}, or change the queues (ethtool -L {name} combined N)"
    )]
    Workers {
        /// The interface.
        name: String,
        /// Its queues.
        queues: u32,
    },
    /// A wire that is received from by AF_PACKET cannot be sent to by AF_XDP.
    #[error(
        "wire.transmit=xdp needs AF_XDP on {name}, and wire.mode=packet forbids it: set wire.mode to \
         auto or xdp, or wire.transmit to auto"
    )]
    TransmitAlone {
        /// The interface.
        name: String,
    },
    /// The wire's queues are others than those that have workers.
    #[error(
        "{name} has {now} receive queues now (ethtool -L), and wharf has served {served} since it \
         began: start it again, and it serves all of them"
    )]
    QueuesChanged {
        /// The interface.
        name: String,
        /// With a worker.
        served: u32,
        /// That there are.
        now: u32,
    },
}
