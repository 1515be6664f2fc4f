//! Finding and opening a wire: by AF_XDP where it works, and AF_PACKET where it does not.

use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::packet::{Filter, Membership};
use sys::xdp::Redirect;

use super::held::Held;
use super::{LINK_OVERHEAD, packet, xdp};
use crate::config::{Choice, Config, GsoHardware, WireMode};
use crate::error::Error;
use crate::features::Suited;
use crate::port::hardware::Hardware;
use crate::port::split::SplitWire;
use crate::queues::Served;
use crate::quiet::Quiet;

/// The wire's ports, one for each worker.
pub(crate) enum Wires {
    Xdp(Vec<xdp::Port>),
    /// In by AF_XDP, out by AF_PACKET.
    Split(Vec<(SplitWire, FramePool)>),
    Packet(Vec<packet::Port>),
}

impl Wires {
    /// Number of ports.
    pub(crate) fn len(&self) -> usize {
        match self {
            Wires::Xdp(wires) => wires.len(),
            Wires::Split(wires) => wires.len(),
            Wires::Packet(wires) => wires.len(),
        }
    }
}

/// Size of the frames in a wire's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The largest MTU whose frames fit.
    pub(crate) mtu: u32,
    /// Whether longer frames are lost; otherwise they pass without being merged.
    pub(crate) loses: bool,
}

impl Room {
    /// The size of these ports' frames.
    fn of(wires: &Wires) -> Self {
        let (pool, headroom, loses) = match wires {
            Wires::Xdp(wires) => (wires.first().map(|(_, pool)| pool), xdp::XDP_HEADROOM, true),
            Wires::Split(wires) => (wires.first().map(|(_, pool)| pool), xdp::XDP_HEADROOM, true),
            Wires::Packet(wires) => {
                (wires.first().map(|(_, pool)| pool), sys::packet::HEADROOM as u32, false)
            }
        };
        let chunk = pool.map_or(0, FramePool::chunk_size) as u32;
        Room { mtu: chunk.saturating_sub(LINK_OVERHEAD + headroom), loses }
    }

    /// A notice about a wire whose MTU has changed: none, unless it is too large.
    pub(crate) fn notice(self, wire: &Interface) -> Option<String> {
        let (name, mtu, most) = (&wire.name, wire.mtu, self.mtu);
        (mtu > most).then(|| match self.loses {
            true => format!(
                "the MTU of {name} is {mtu} now, and packets of more than {most} bytes are lost \
                 until wharf is started again"
            ),
            false => format!(
                "the MTU of {name} is {mtu} now, and LRO leaves packets of more than {most} bytes \
                 alone until wharf is started again"
            ),
        })
    }
}

/// The use of a wire, which chooses between AF_XDP and AF_PACKET by this rule:
///
/// - `wire.mode` decides, unless it is `auto`.
/// - For a host, alone or with an engine beside it: AF_XDP where it works, else AF_PACKET.
/// - For an engine alone: AF_XDP where it copies nothing, else AF_PACKET. Where it copies, the kernel makes a
///   packet of each frame, one by one, and AF_PACKET takes the engine's super-packets whole (on a veth a half
///   faster one way and a quarter the other). A host's kernel gains more by AF_XDP's batches.
///
/// A wire that is received from by AF_XDP is sent to by it as well, but by AF_PACKET
///
/// - where `wire.transmit` says so;
/// - where that is `auto`, AF_XDP copies, there are super-packets of TCP (no WAN stands before the wire, and
///   `gso.*` lets the host hand them over), and they may leave whole: the interface cuts them, or the kernel
///   does (`gso.hardware`; an engine's always). No descriptor of AF_XDP says how a packet is to be cut, so wharf
///   cuts, and the kernel makes a packet of each frame. Where there are frames alone, AF_XDP costs a little less
///   than AF_PACKET; and a driver that sends from wharf's memory itself copies nothing.
///
/// It is so from the start to the end: all packets of a worker leave by one socket, so those of a flow stay in
/// order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A host; behind a WAN, where all that leaves is frames.
    Host { wan: bool },
    /// An engine alone; behind a WAN as well.
    Engine { wan: bool },
}

/// A wire that is open.
pub(crate) struct OpenWire {
    /// The interface.
    pub(crate) info: Interface,
    /// Its ports.
    pub(crate) wires: Wires,
    /// The size of the frames in its memory.
    pub(crate) room: Room,
    /// `AF_XDP native, copy`, `AF_PACKET`, ...
    pub(crate) name: String,
    /// Dropped after the ports.
    pub(crate) held: Held,
}

/// Opens a wire, which must be up, for packets of all multicast groups as well.
///
/// # Errors
/// Why it cannot be opened; nothing is left behind.
pub(crate) fn open(
    name: &str,
    config: &Config,
    purpose: Purpose,
    notices: &mut Vec<String>,
) -> Result<OpenWire, Error> {
    let info = find_wire(name)?;
    set_up(name)?;
    // First: what its self-test sends is not to be received.
    let hardware = packet::hardware(&info, config, notices);
    let opening = Opening { info: &info, config, hardware };
    let ports = match purpose {
        Purpose::Host { .. } => opening.by_mode(notices)?,
        Purpose::Engine { .. } => opening.by_mode_for_engine(notices)?,
    };
    let Ports { wires, redirect, quiet } = match opening.leaves_by_packet(purpose, &ports) {
        true => opening.split(ports)?,
        false => ports,
    };
    let membership = Membership::hold(info.index, Filter::AllMulticast).ok();
    let suited = match &wires {
        Wires::Xdp(_) | Wires::Split(_) => Suited::to_xdp(&info, notices),
        Wires::Packet(_) => Suited::to_packet(&info, notices),
    };
    let served = redirect.is_some().then(|| Served::by(&info, wires.len()));
    let (room, name) = (Room::of(&wires), describe(&wires, redirect.as_ref()));
    tracing::info!(
        "{} is open by {name}: wire.mode={}, wire.transmit={}, ports {}, MTU {}",
        info.name,
        config.wire.mode.name(),
        config.wire.transmit.name(),
        wires.len(),
        info.mtu
    );
    let held =
        Held { _redirect: redirect, _membership: membership, quiet, _suited: suited, served };
    Ok(OpenWire { info, wires, room, name, held })
}

/// Sets an interface up.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_up(name: &str) -> Result<(), Error> {
    interface::set_up(name).map_err(|error| match error.is_permission() {
        true => Error::Permission { name: name.to_owned() },
        false => Error::Sys(error),
    })
}

fn describe(wires: &Wires, redirect: Option<&Redirect>) -> String {
    let (zero_copy, out) = match wires {
        Wires::Xdp(wires) => (wires.iter().all(|(wire, _)| wire.zero_copy()), ""),
        Wires::Split(wires) => {
            (wires.iter().all(|(wire, _)| wire.zero_copy()), ", out by AF_PACKET")
        }
        Wires::Packet(_) => return "AF_PACKET".to_owned(),
    };
    let mode = match redirect.map(Redirect::mode) {
        Some(sys::xdp::Mode::Native) => "native",
        _ => "generic",
    };
    format!("AF_XDP {mode}, {}{out}", if zero_copy { "zero-copy" } else { "copy" })
}

/// Checks whether `name` can be a wire.
///
/// # Errors
/// There is no such interface, or it does not carry Ethernet.
pub fn find_wire(name: &str) -> Result<Interface, Error> {
    let info = Interface::by_name(name).map_err(|error| {
        if !error.is_missing() {
            return Error::Sys(error);
        }
        let others = interface::list().unwrap_or_default();
        let names: Vec<String> = others.into_iter().map(|i| i.name).collect();
        Error::NoWire { name: name.to_owned(), others: names.join(", ") }
    })?;
    if !info.ethernet {
        return Err(Error::NotEthernet { name: name.to_owned() });
    }
    Ok(info)
}

/// Ports, and what has to live as long as they do.
struct Ports {
    wires: Wires,
    redirect: Option<Redirect>,
    quiet: Option<Quiet>,
}

impl Ports {
    fn xdp((wires, redirect): (Vec<xdp::Port>, Redirect)) -> Self {
        Ports { wires: Wires::Xdp(wires), redirect: Some(redirect), quiet: None }
    }

    fn packet((wires, quiet): (Vec<packet::Port>, Option<Quiet>)) -> Self {
        Ports { wires: Wires::Packet(wires), redirect: None, quiet }
    }

    /// Whether AF_XDP copies each frame.
    fn are_copied(&self) -> bool {
        match &self.wires {
            Wires::Xdp(wires) => wires.iter().any(|(wire, _)| !wire.zero_copy()),
            Wires::Split(_) | Wires::Packet(_) => false,
        }
    }
}

/// What a wire is opened by.
struct Opening<'a> {
    info: &'a Interface,
    config: &'a Config,
    /// What the interface cuts.
    hardware: Hardware,
}

impl Opening<'_> {
    /// AF_XDP where it works, AF_PACKET where it does not, unless the configuration insists.
    fn by_mode(&self, notices: &mut Vec<String>) -> Result<Ports, Error> {
        let Opening { info, config, .. } = self;
        if config.wire.mode == WireMode::Packet {
            return match config.wire.transmit {
                WireMode::Xdp => Err(Error::TransmitAlone { name: info.name.clone() }),
                _ => self.by_packet(notices),
            };
        }
        match xdp::open(info, config) {
            Ok(ports) => Ok(Ports::xdp(ports)),
            Err(error) if config.wire.mode == WireMode::Xdp => Err(error),
            Err(Error::Xdp { why, .. }) => {
                notices.push(format!("no AF_XDP on {}: {why}; using AF_PACKET", info.name));
                self.by_packet(notices)
            }
            Err(error) => Err(error),
        }
    }

    /// The same for an engine alone; see [`Purpose`].
    fn by_mode_for_engine(&self, notices: &mut Vec<String>) -> Result<Ports, Error> {
        let Opening { info, config, .. } = self;
        match self.by_mode(notices) {
            Err(Error::Workers { queues, .. }) if config.wire.mode == WireMode::Auto => {
                let (name, workers) = (&info.name, config.workers);
                notices.push(format!(
                    "{name} has {queues} receive queues, and this is for {workers} of them; using \
                     AF_PACKET"
                ));
                self.by_packet(notices)
            }
            Ok(ports) if self.may_choose() && ports.are_copied() => {
                tracing::info!("AF_XDP copies each frame on {}: using AF_PACKET", info.name);
                drop(ports);
                self.by_packet(notices)
            }
            opened => opened,
        }
    }

    /// The configuration insists on AF_XDP for neither direction.
    fn may_choose(&self) -> bool {
        self.config.wire.mode == WireMode::Auto && self.config.wire.transmit != WireMode::Xdp
    }

    fn by_packet(&self, notices: &mut Vec<String>) -> Result<Ports, Error> {
        let Opening { info, config, hardware } = self;
        packet::open(info, config, *hardware, notices).map(Ports::packet)
    }

    /// Whether AF_PACKET sends though AF_XDP receives; see [`Purpose`].
    fn leaves_by_packet(&self, purpose: Purpose, ports: &Ports) -> bool {
        match self.config.wire.transmit {
            WireMode::Auto => ports.are_copied() && self.leave_whole(purpose),
            WireMode::Xdp => false,
            WireMode::Packet => true,
        }
    }

    /// Whether there are super-packets of TCP, and the interface or the kernel cuts them.
    fn leave_whole(&self, purpose: Purpose) -> bool {
        let gso = &self.config.gso;
        let interface = self.hardware.tcp4 && self.hardware.tcp6;
        match (purpose, gso.hardware) {
            (Purpose::Host { wan: true } | Purpose::Engine { wan: true }, _) => false,
            (_, GsoHardware::Off) => false,
            (Purpose::Engine { .. }, _) => true,
            (Purpose::Host { .. }, _) if !(gso.enable && gso.tcp) => false,
            (Purpose::Host { .. }, GsoHardware::Kernel) => true,
            (Purpose::Host { .. }, GsoHardware::Auto) => interface,
        }
    }

    /// In by these ports, out by AF_PACKET.
    fn split(&self, ports: Ports) -> Result<Ports, Error> {
        let Wires::Xdp(wires) = ports.wires else { return Ok(ports) };
        let senders = packet::senders(self.info, wires.len(), self.hardware)?;
        let both = wires.into_iter().zip(senders);
        let split = both.map(|((wire, pool), sends)| (SplitWire::new(wire, sends), pool));
        Ok(Ports { wires: Wires::Split(split.collect()), ..ports })
    }
}
