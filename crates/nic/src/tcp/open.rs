//! Opening what an endpoint is reached by.

use std::hash::{BuildHasher, RandomState};

use iface::Address;
use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::netlink::address;
use sys::tap::Offloads;

use crate::config::Config;
use crate::error::Error;
use crate::open::{self, HostEnd, HostInterface, Hosts, OpenWire, Purpose, Queues, Wires, host};
use crate::port::tap::TapHost;
use crate::port::veth::VethHost;
use crate::port::{Host, HostWire};
use crate::running::{Start, Workers};

/// MTU of an interface that is made for the endpoint, unless it is set.
const MTU: u32 = 1500;

/// Where an endpoint is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Behind an interface that is made for it: what the kernel sends there, the endpoint receives.
    Host {
        /// Name of the interface.
        name: String,
        /// Addresses that the kernel is given on it.
        addresses: Vec<Address>,
    },
    /// On a wire, which is then the endpoint's alone.
    Wire {
        /// Name of the interface.
        name: String,
    },
}

impl Place {
    /// The interface's name.
    pub fn name(&self) -> &str {
        match self {
            Place::Host { name, .. } | Place::Wire { name } => name,
        }
    }
}

/// An endpoint's way to the network.
pub(super) struct Link {
    pub(super) port: Port,
    /// What must not go before it.
    pub(super) held: Held,
    /// The endpoint's Ethernet address.
    pub(super) mac: [u8; 6],
    /// Longest IP packet in bytes.
    pub(super) mtu: u32,
    /// `TAP`, `AF_XDP native, copy`, ...
    pub(super) name: String,
}

/// Its ports, one a worker.
pub(super) enum Port {
    Tap(Vec<(HostWire<TapHost>, FramePool)>),
    Veth(Vec<(HostWire<VethHost>, FramePool)>),
    Wire(Wires),
}

impl Port {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Port::Tap(wires) => wires.len(),
            Port::Veth(wires) => wires.len(),
            Port::Wire(wires) => wires.len(),
        }
    }

    /// Starts workers on them.
    pub(super) fn start(self, start: Start<'_>) -> Result<Workers, Error> {
        match self {
            Port::Tap(wires) => start.without_host(wires),
            Port::Veth(wires) => start.without_host(wires),
            Port::Wire(Wires::Xdp(wires)) => start.without_host(wires),
            Port::Wire(Wires::Split(wires)) => start.without_host(wires),
            Port::Wire(Wires::Packet(wires)) => start.without_host(wires),
        }
    }
}

/// What goes when the endpoint has ended.
#[derive(Debug)]
pub(super) enum Held {
    Host(HostInterface),
    Wire(open::Held),
}

impl Held {
    /// See [`Served::look`].
    pub(super) fn look_at_queues(&self) -> Result<(), Error> {
        match self {
            Held::Wire(wire) => wire.look_at_queues(),
            Held::Host(_) => Ok(()),
        }
    }
}

/// Opens it; with `plain`, for frames of the MTU's size only, both ways.
pub(super) fn open(
    place: &Place,
    config: &Config,
    plain: bool,
    notices: &mut Vec<String>,
) -> Result<Link, Error> {
    match place {
        Place::Host { name, addresses } => {
            let opened = open_host(name, config, plain, notices)?;
            let index = interface::index(name)?;
            for own in addresses {
                address::add(index, own.ip, own.prefix_len, true)?;
            }
            Ok(opened)
        }
        Place::Wire { name } => open_wire(name, config, plain, notices),
    }
}

/// The interface, up.
fn open_host(
    name: &str,
    config: &Config,
    plain: bool,
    notices: &mut Vec<String>,
) -> Result<Link, Error> {
    let mtu = if config.host.mtu == 0 { MTU } else { config.host.mtu };
    let (interface, hosts) = host::make(name, config, mtu, 1, false, "the interface", notices)?;
    // From here on, what was made goes if something fails.
    let held = Held::Host(interface);
    let Held::Host(interface) = &held else { unreachable!("it was made so just now") };
    interface::set_mtu(name, host::at_most(mtu, &Interface::by_name(name)?, notices))?;
    offload(interface, !plain)?;
    interface::set_up(name)?;
    if let HostEnd::Veth { .. } = interface.kind {
        host::wait_for_veth(name)?;
    }
    let mtu = Interface::by_name(name)?.mtu;
    let (port, described) = match hosts {
        Hosts::Tap(Queues::Own(hosts)) => (Port::Tap(wires(hosts, config, mtu, plain)?), "TAP"),
        Hosts::Veth(Queues::Own(hosts)) => (Port::Veth(wires(hosts, config, mtu, plain)?), "veth"),
        Hosts::Tap(Queues::Shared(_)) | Hosts::Veth(Queues::Shared(_)) => {
            unreachable!("one queue of its own was asked for")
        }
    };
    Ok(Link { port, held, mac: own_mac(), mtu, name: described.to_owned() })
}

/// What the kernel leaves to the endpoint of what it sends: checksums and cutting, or nothing.
fn offload(interface: &HostInterface, on: bool) -> Result<(), Error> {
    match &interface.kind {
        HostEnd::Tap(tap) => {
            let offloads = Offloads { csum: on, tso4: on, tso6: on, tso_ecn: on, ..Offloads::NONE };
            tap.set_offload(offloads)?;
        }
        HostEnd::Veth { .. } => {
            let features = sys::ethtool::Ethtool::open(&interface.name)?;
            features.set_offload(sys::ethtool::Offload::Tso, on)?;
        }
    }
    Ok(())
}

/// A locally administered Ethernet address that no other host is likely to have (IEEE 802).
fn own_mac() -> [u8; 6] {
    let [a, b, c, d, e, ..] = RandomState::new().hash_one(0).to_ne_bytes();
    [0x02, a, b, c, d, e]
}

/// A kernel's ports as the endpoint's wires, for `plain` frames of the MTU's size or for super-packets, with the
/// memory of their frames.
fn wires<H: Host>(
    hosts: Vec<H>,
    config: &Config,
    mtu: u32,
    plain: bool,
) -> Result<Vec<(HostWire<H>, FramePool)>, Error> {
    let frames = config.wire.frames_of_each(hosts.len() as u32);
    let wire = |host| {
        let pool = FramePool::new(frames, open::packet_chunk(mtu));
        let wire = if plain { HostWire::plain(host) } else { HostWire::new(host) };
        pool.map(|pool| (wire, pool)).map_err(Error::Worker)
    };
    hosts.into_iter().map(wire).collect()
}

fn open_wire(
    name: &str,
    config: &Config,
    wan: bool,
    notices: &mut Vec<String>,
) -> Result<Link, Error> {
    let OpenWire { held, info, wires, name: described, .. } =
        open::open(name, config, Purpose::Engine { wan }, notices)?;
    let Some(mac) = info.mac else { return Err(Error::NotEthernet { name: name.to_owned() }) };
    Ok(Link {
        port: Port::Wire(wires),
        held: Held::Wire(held),
        mac,
        mtu: info.mtu,
        name: described,
    })
}
