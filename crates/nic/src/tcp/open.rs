//! Opening what an endpoint is reached by.

use std::hash::{BuildHasher, RandomState};

use iface::Address;
use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::netlink::address;
use sys::packet::{Filter, Membership};
use sys::tap::{Offloads, Tap, TapError};
use sys::xdp::Redirect;

use crate::config::{Config, HostKind, WireMode};
use crate::error::Error;
use crate::features::Suited;
use crate::open::{self, HostEnd, HostInterface, Hosts, Queues, Wires};
use crate::port::packet::PacketWire;
use crate::port::tap::TapHost;
use crate::port::veth::VethHost;
use crate::port::xdp::XdpWire;
use crate::queues::Served;
use crate::quiet::Quiet;

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

/// An endpoint's way to the network, and what must not go before it.
pub(super) struct Opened {
    pub(super) link: Link,
    pub(super) held: Held,
}

/// An endpoint's way to the network.
pub(super) struct Link {
    pub(super) port: LinkPort,
    /// The endpoint's Ethernet address.
    pub(super) mac: [u8; 6],
    /// Longest IP packet in bytes.
    pub(super) mtu: u32,
    name: String,
}

impl Link {
    /// `TAP`, `AF_XDP native, copy`, ...
    pub(super) fn describe(&self) -> String {
        self.name.clone()
    }
}

pub(super) enum LinkPort {
    Tap(TapHost),
    Veth(VethHost),
    Xdp(XdpWire, FramePool),
    Packet(PacketWire, FramePool),
}

/// What goes when the endpoint has ended.
#[derive(Debug)]
pub(super) enum Held {
    Host(HostInterface),
    Wire {
        _redirect: Option<Redirect>,
        _multicast: Option<Membership>,
        _quiet: Option<Quiet>,
        _suited: Suited,
        served: Option<Served>,
    },
}

impl Held {
    /// See [`Served::look`].
    pub(super) fn look_at_queues(&self) -> Result<(), Error> {
        match self {
            Held::Wire { served: Some(served), .. } => served.look(),
            _ => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Held::Host(HostInterface { name, kind: HostEnd::Veth { .. }, .. }) = self {
            // A TAP vanishes with its descriptors, a veth must be told.
            let _ = sys::netlink::link::delete(&open::far_end_of(name));
        }
    }
}

/// Opens it; with `plain`, for frames of the MTU's size only, both ways.
pub(super) fn open(
    place: &Place,
    config: &Config,
    plain: bool,
    notices: &mut Vec<String>,
) -> Result<Opened, Error> {
    match place {
        Place::Host { name, addresses } => {
            let opened = open_host(name, config, plain, notices)?;
            let index = interface::index(name)?;
            for own in addresses {
                address::add(index, own.ip, own.prefix_len, true)?;
            }
            Ok(opened)
        }
        Place::Wire { name } => open_wire(name, config, notices),
    }
}

/// The interface, up.
fn open_host(
    name: &str,
    config: &Config,
    plain: bool,
    notices: &mut Vec<String>,
) -> Result<Opened, Error> {
    let mtu = if config.host.mtu == 0 { MTU } else { config.host.mtu };
    let (interface, hosts) = match config.host.kind {
        HostKind::Veth => open::make_veth(name, mtu, 1, false)?,
        kind => match Tap::create(name, 1) {
            Ok(tap) => open::from_tap(tap, false)?,
            Err(error @ (TapError::NoDevice | TapError::DevicePermission))
                if kind == HostKind::Auto =>
            {
                notices.push(format!("no TAP ({error}); the interface is a veth"));
                open::make_veth(name, mtu, 1, false)?
            }
            Err(error) => return Err(error.into()),
        },
    };
    // From here on, what was made goes if something fails.
    let held = Held::Host(interface);
    let Held::Host(interface) = &held else { unreachable!("it was made so just now") };
    interface::set_mtu(name, open::at_most(mtu, &Interface::by_name(name)?, notices))?;
    offload(interface, !plain)?;
    interface::set_up(name)?;
    if let HostEnd::Veth { .. } = interface.kind {
        open::wait_for_veth(name)?;
    }
    let (port, described) = match hosts {
        Hosts::Tap(Queues::Own(hosts)) => (hosts.into_iter().next().map(LinkPort::Tap), "TAP"),
        Hosts::Veth(Queues::Own(hosts)) => (hosts.into_iter().next().map(LinkPort::Veth), "veth"),
        Hosts::Tap(Queues::Shared(_)) | Hosts::Veth(Queues::Shared(_)) => (None, ""),
    };
    let Some(port) = port else { unreachable!("one queue of its own was asked for") };
    let mtu = Interface::by_name(name)?.mtu;
    let link = Link { port, mac: own_mac(), mtu, name: described.to_owned() };
    Ok(Opened { link, held })
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

/// Memory for the frames of a host port that is used as a wire.
pub(super) fn plain_pool(config: &Config, mtu: u32) -> Result<FramePool, Error> {
    FramePool::new(config.wire.frames, open::packet_chunk(mtu)).map_err(Error::Worker)
}

fn open_wire(name: &str, config: &Config, notices: &mut Vec<String>) -> Result<Opened, Error> {
    let info = open::find_wire(name)?;
    interface::set_up(name).map_err(|error| match error.is_permission() {
        true => Error::Permission { name: name.to_owned() },
        false => Error::Sys(error),
    })?;
    let wires = open_one(&info, config, notices)?;
    let multicast = Membership::hold(info.index, Filter::AllMulticast).ok();
    let suited = match &wires {
        Wires::Xdp(..) => Suited::to_xdp(&info, notices),
        Wires::Packet(..) => Suited::to_packet(&info, notices),
    };
    let described = wires.describe();
    let (port, redirect, quiet) = match wires {
        Wires::Xdp(mut wires, redirect) => {
            (wires.pop().map(|(wire, pool)| LinkPort::Xdp(wire, pool)), Some(redirect), None)
        }
        Wires::Packet(mut wires, quiet) => {
            (wires.pop().map(|(wire, pool)| LinkPort::Packet(wire, pool)), None, quiet)
        }
    };
    let (Some(port), Some(mac)) = (port, info.mac) else {
        return Err(Error::NotEthernet { name: name.to_owned() });
    };
    let held = Held::Wire {
        served: redirect.is_some().then(|| Served::by_one(&info)),
        _redirect: redirect,
        _multicast: multicast,
        _quiet: quiet,
        _suited: suited,
    };
    Ok(Opened { link: Link { port, mac, mtu: info.mtu, name: described }, held })
}

/// One worker has one queue: a wire of several is read by AF_PACKET, unless the configuration insists. So is
/// one that AF_XDP would have to copy for: the kernel then makes a packet of each frame, one by one, where
/// AF_PACKET takes super-packets whole (on a veth a half faster one way and a quarter the other).
fn open_one(info: &Interface, config: &Config, notices: &mut Vec<String>) -> Result<Wires, Error> {
    let config = Config { workers: 1, ..config.clone() };
    match open::open_wires(info, &config, notices) {
        Err(Error::Workers { queues, .. }) if config.wire.mode == WireMode::Auto => {
            let name = &info.name;
            notices.push(format!(
                "{name} has {queues} receive queues, and an endpoint one worker; using AF_PACKET"
            ));
            open::open_packet(info, &config, notices)
        }
        Ok(Wires::Xdp(wires, redirect))
            if config.wire.mode == WireMode::Auto
                && wires.iter().any(|(wire, _)| !wire.zero_copy()) =>
        {
            drop((wires, redirect));
            open::open_packet(info, &config, notices)
        }
        opened => opened,
    }
}
