//! Finding and opening a wire: by AF_XDP where it works, and AF_PACKET where it does not.

use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::packet::{Filter, Membership};
use sys::xdp::Redirect;

use super::held::Held;
use super::{LINK_OVERHEAD, packet, xdp};
use crate::config::{Choice, Config, WireMode};
use crate::error::Error;
use crate::features::Suited;
use crate::queues::Served;
use crate::quiet::Quiet;

/// The wire's ports, one a worker.
pub(crate) enum Wires {
    Xdp(Vec<xdp::Port>),
    Packet(Vec<packet::Port>),
}

impl Wires {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Wires::Xdp(wires) => wires.len(),
            Wires::Packet(wires) => wires.len(),
        }
    }
}

/// What the memory of a wire's frames was made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The largest MTU whose frames it holds.
    pub(crate) mtu: u32,
    /// Longer frames are lost; else they pass by themselves.
    pub(crate) loses: bool,
}

impl Room {
    /// That of these ports.
    fn of(wires: &Wires) -> Self {
        let chunk = |pool: Option<&FramePool>| pool.map_or(0, FramePool::chunk_size) as u32;
        match wires {
            Wires::Xdp(wires) => {
                let chunk = chunk(wires.first().map(|(_, pool)| pool));
                Room { mtu: chunk.saturating_sub(LINK_OVERHEAD + xdp::XDP_HEADROOM), loses: true }
            }
            Wires::Packet(wires) => {
                let chunk = chunk(wires.first().map(|(_, pool)| pool));
                let headroom = sys::packet::HEADROOM as u32;
                Room { mtu: chunk.saturating_sub(LINK_OVERHEAD + headroom), loses: false }
            }
        }
    }

    /// What to say of a wire whose MTU has changed: nothing, unless it is too large.
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

/// What a wire is for, and so by what it is read and sent. This is the one rule:
///
/// - `wire.mode` decides, unless it is `auto`.
/// - For a host, alone or with an engine beside it: AF_XDP where it works, else AF_PACKET.
/// - For an engine alone: AF_XDP where it copies nothing, else AF_PACKET. Where it copies, the kernel makes a
///   packet of each frame, one by one, and AF_PACKET takes the engine's super-packets whole (on a veth a half
///   faster one way and a quarter the other). A host's kernel gains more by AF_XDP's batches.
///
/// All packets of a flow leave by the one port of their worker, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A host.
    Host,
    /// An engine alone.
    Engine,
}

/// A wire that is open.
pub(crate) struct OpenWire {
    /// The interface.
    pub(crate) info: Interface,
    /// Its ports.
    pub(crate) wires: Wires,
    /// What their memory was made for.
    pub(crate) room: Room,
    /// `AF_XDP native, copy`, `AF_PACKET`, ...
    pub(crate) name: String,
    /// Dropped after the ports.
    pub(crate) held: Held,
}

/// Opens a wire, which is set up, for packets of all multicast groups as well.
///
/// # Errors
/// What stands in the way; nothing is left behind.
pub(crate) fn open(
    name: &str,
    config: &Config,
    purpose: Purpose,
    notices: &mut Vec<String>,
) -> Result<OpenWire, Error> {
    let info = find_wire(name)?;
    set_up(name)?;
    let Ports { wires, redirect, quiet } = match purpose {
        Purpose::Host => by_mode(&info, config, notices)?,
        Purpose::Engine => by_mode_for_engine(&info, config, notices)?,
    };
    let membership = Membership::hold(info.index, Filter::AllMulticast).ok();
    let suited = match &wires {
        Wires::Xdp(_) => Suited::to_xdp(&info, notices),
        Wires::Packet(_) => Suited::to_packet(&info, notices),
    };
    let served = redirect.is_some().then(|| Served::by(&info, wires.len()));
    let (room, name) = (Room::of(&wires), describe(&wires, redirect.as_ref()));
    tracing::info!(
        "{} is open by {name}: wire.mode={}, ports {}, MTU {}",
        info.name,
        config.wire.mode.name(),
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
/// What the kernel says.
pub(crate) fn set_up(name: &str) -> Result<(), Error> {
    interface::set_up(name).map_err(|error| match error.is_permission() {
        true => Error::Permission { name: name.to_owned() },
        false => Error::Sys(error),
    })
}

fn describe(wires: &Wires, redirect: Option<&Redirect>) -> String {
    let (Wires::Xdp(wires), Some(redirect)) = (wires, redirect) else {
        return "AF_PACKET".to_owned();
    };
    let mode = match redirect.mode() {
        sys::xdp::Mode::Native => "native",
        _ => "generic",
    };
    let zero_copy = wires.iter().all(|(wire, _)| wire.zero_copy());
    format!("AF_XDP {mode}, {}", if zero_copy { "zero-copy" } else { "copy" })
}

/// Looks whether `name` can be a wire.
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

/// Ports, and what they need behind them.
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

    /// AF_XDP has each frame copied.
    fn are_copied(&self) -> bool {
        match &self.wires {
            Wires::Xdp(wires) => wires.iter().any(|(wire, _)| !wire.zero_copy()),
            Wires::Packet(_) => false,
        }
    }
}

/// AF_XDP where it works, AF_PACKET where it does not, unless the configuration insists.
fn by_mode(info: &Interface, config: &Config, notices: &mut Vec<String>) -> Result<Ports, Error> {
    if config.wire.mode == WireMode::Packet {
        return packet::open(info, config, notices).map(Ports::packet);
    }
    match xdp::open(info, config) {
        Ok(ports) => Ok(Ports::xdp(ports)),
        Err(error) if config.wire.mode == WireMode::Xdp => Err(error),
        Err(Error::Xdp { why, .. }) => {
            notices.push(format!("no AF_XDP on {}: {why}; using AF_PACKET", info.name));
            packet::open(info, config, notices).map(Ports::packet)
        }
        Err(error) => Err(error),
    }
}

/// The same for an engine alone; see [`Purpose`].
fn by_mode_for_engine(
    info: &Interface,
    config: &Config,
    notices: &mut Vec<String>,
) -> Result<Ports, Error> {
    match by_mode(info, config, notices) {
        Err(Error::Workers { queues, .. }) if config.wire.mode == WireMode::Auto => {
            let (name, workers) = (&info.name, config.workers);
            notices.push(format!(
                "{name} has {queues} receive queues, and this is for {workers} of them; using \
                 AF_PACKET"
            ));
            packet::open(info, config, notices).map(Ports::packet)
        }
        Ok(ports) if config.wire.mode == WireMode::Auto && ports.are_copied() => {
            tracing::info!("AF_XDP copies each frame on {}: using AF_PACKET", info.name);
            drop(ports);
            packet::open(info, config, notices).map(Ports::packet)
        }
        opened => opened,
    }
}
