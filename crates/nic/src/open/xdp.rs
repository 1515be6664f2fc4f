//! A wire by AF_XDP.

use std::io;

use sys::frames::FramePool;
use sys::interface::Interface;
use sys::xdp::{Redirect, XdpSocket};

use super::LINK_OVERHEAD;
use super::local::has_local_senders;
use crate::config::{Config, XdpMode, ZeroCopy};
use crate::error::Error;
use crate::port::xdp::XdpWire;
use crate::queues;

/// Bytes that the kernel keeps free in front of a frame in a UMEM chunk (`XDP_PACKET_HEADROOM`).
pub(super) const XDP_HEADROOM: u32 = 256;
/// The largest chunk of a UMEM on all kernels, in bytes.
const PAGE: u32 = 4096;
/// Fewest frames for the rings of a queue read by AF_XDP, where queues share the memory.
const LEAST_RING: u32 = 64;
/// Frames that may wait to be sent by AF_XDP: a few super-packets. When it is full the host waits, so more
/// would only be a longer queue.
const TX_RING: u32 = 2048;

/// Frames that may wait for degen in each queue at most.
const STAMPING_RING: u32 = 8192;

/// A port, and the memory of its frames.
pub(super) type Port = (XdpWire, FramePool);

/// AF_XDP on all queues of an interface, each with memory of its own.
///
/// # Errors
/// Why AF_XDP cannot be used.
pub(super) fn open(info: &Interface, config: &Config) -> Result<(Vec<Port>, Redirect), Error> {
    let chunk = chunk(info)?;
    let queues = queues::xdp(info);
    if config.workers != 0 && config.workers != queues {
        return Err(Error::Workers { name: info.name.clone(), queues });
    }
    let zero_copy = match config.wire.zero_copy {
        ZeroCopy::Auto => sys::xdp::ZeroCopy::Auto,
        ZeroCopy::Off => sys::xdp::ZeroCopy::Copy,
    };
    let frames = config.wire.frames_of_each(queues);
    let rings = sys::xdp::Config { zero_copy, ..rings(config.wire.ring_within(frames)) };
    let mode = mode(info, config);
    let redirect = match config.wire.leave_configuration {
        true => Redirect::attach_leaving_configuration(info.index, mode),
        false => Redirect::attach(info.index, mode),
    };
    let mut redirect = attached(info, redirect)?;
    let mut wires = Vec::new();
    for queue in 0..queues {
        let mut pool = FramePool::new(frames, chunk).map_err(Error::Worker)?;
        wires.push((port(info, queue, &mut redirect, &mut pool, rings)?, pool));
    }
    Ok((wires, redirect))
}

/// Fewest frames of memory for AF_XDP on all queues of these interfaces, so that its rings have a quarter of
/// it at most.
pub(super) fn least_frames(interfaces: [&Interface; 2]) -> u32 {
    4 * LEAST_RING * interfaces.into_iter().map(queues::xdp).sum::<u32>()
}

/// AF_XDP on all queues of an interface, in memory shared with others, with time stamps.
pub(super) fn open_stamping(
    info: &Interface,
    pool: &mut FramePool,
    frames: u32,
) -> Result<(Vec<XdpWire>, Redirect), Error> {
    let mode = mode(info, &Config::default());
    let mut redirect = attached(info, Redirect::attach_stamping(info.index, mode))?;
    let queues = queues::xdp(info);
    // Two interfaces share the memory, and most of it is for packets in flight.
    let share = (frames / 8 / queues).max(LEAST_RING);
    let rings = rings((1 << share.ilog2()).min(STAMPING_RING));
    let wires = (0..queues).map(|queue| port(info, queue, &mut redirect, pool, rings));
    Ok((wires.collect::<Result<_, _>>()?, redirect))
}

/// Bytes of a frame's memory for AF_XDP.
///
/// # Errors
/// The interface's frames fit no chunk.
pub(super) fn chunk(info: &Interface) -> Result<u32, Error> {
    let needed = info.mtu + LINK_OVERHEAD + XDP_HEADROOM;
    if needed > PAGE {
        let most = PAGE - LINK_OVERHEAD - XDP_HEADROOM;
        let why = format!("its MTU of {} is over {most}, which is all that fits", info.mtu);
        return Err(Error::Xdp { name: info.name.clone(), why });
    }
    Ok(needed.next_power_of_two().max(sys::frames::MIN_CHUNK_SIZE))
}

fn mode(info: &Interface, config: &Config) -> sys::xdp::Mode {
    match config.wire.xdp {
        // In the stack of a virtual interface, generic XDP meets super-packets and what GRO has
        // merged, which no UMEM frame holds.
        XdpMode::Auto if info.kind.is_some() => sys::xdp::Mode::Native,
        XdpMode::Auto => sys::xdp::Mode::Auto,
        XdpMode::Native => sys::xdp::Mode::Native,
        XdpMode::Generic => sys::xdp::Mode::Generic,
    }
}

fn rings(rx: u32) -> sys::xdp::Config {
    let tx = rx.min(TX_RING);
    sys::xdp::Config {
        rx_size: rx,
        tx_size: tx,
        fill_size: rx,
        completion_size: tx,
        ..sys::xdp::Config::default()
    }
}

fn attached(info: &Interface, redirect: sys::Result<Redirect>) -> Result<Redirect, Error> {
    let name = || info.name.clone();
    redirect.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists => {
            Error::XdpBusy { name: name() }
        }
        _ => Error::Xdp { name: name(), why: error.to_string() },
    })
}

fn port(
    info: &Interface,
    queue: u32,
    redirect: &mut Redirect,
    pool: &mut FramePool,
    rings: sys::xdp::Config,
) -> Result<XdpWire, Error> {
    let xdp = |why: String| Error::Xdp { name: info.name.clone(), why };
    let socket = XdpSocket::open(info.index, queue, pool, rings).map_err(|e| xdp(e.to_string()))?;
    redirect.set(&socket).map_err(|error| xdp(error.to_string()))?;
    Ok(XdpWire::new(socket, pool, has_local_senders(info)))
}
