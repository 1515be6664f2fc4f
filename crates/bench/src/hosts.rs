//! Two hosts joined by a wire, as two anonymous network namespaces and a veth pair. Nothing is
//! left of them when the process ends, however it ends.

use std::net::Ipv4Addr;

use nic::Nic;
use nic::config::{Config, WireMode};
use nic::degen::Settings;
use nic::degen::bridge::{Bridge, Carriage};
use sys::ethtool::{Ethtool, Offload};
use sys::interface;
use sys::netlink::{address, qdisc};
use sys::netns::Namespace;

use crate::{Error, link};

/// The client's end of the wire.
pub(crate) const PEER: &str = "peer0";
/// The server's end of the wire.
pub(crate) const WIRE: &str = "wire0";
/// The ends of the wires that degen joins.
const BETWEEN: [&str; 2] = ["peer1", "wire1"];
/// Frames in flight or in degen's queue.
const FRAMES: u32 = 16_384;
/// The interface that wharf makes for the server.
const HOST: &str = "host0";
/// Where the client is.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Where the server listens.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const PREFIX_LEN: u8 = 24;

/// A wire between the hosts, by what is at its ends.
#[derive(Debug)]
struct Wire {
    peer: &'static str,
    wire: &'static str,
    /// The interface that a wharf in front of it makes for the server.
    host: &'static str,
    client: Ipv4Addr,
    server: Ipv4Addr,
}

/// As many as hosts may be joined by; by the first alone where nothing else is said.
const WIRES: [Wire; 2] = [
    Wire { peer: PEER, wire: WIRE, host: HOST, client: CLIENT, server: SERVER },
    Wire {
        peer: "peer2",
        wire: "wire2",
        host: "host2",
        client: Ipv4Addr::new(10, 77, 1, 1),
        server: Ipv4Addr::new(10, 77, 1, 2),
    },
];

/// A client and a server.
#[derive(Debug)]
pub struct Hosts {
    /// Who sends to the server.
    pub client: Namespace,
    /// Who listens at [`SERVER`].
    pub server: Namespace,
    /// How many wires join them.
    wires: usize,
    /// What is between them, if not one wire.
    _path: Option<Bridge>,
}

impl Hosts {
    /// Lets up to `packets` packets wait at the client's end until the wire has room for them, as at a card. Without
    /// it the wire drops them, as a veth does.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_transmit_queue(&self, packets: u32) -> Result<(), Error> {
        Ok(self.client.run(|| qdisc::set_fifo(PEER, packets))??)
    }

    /// Two namespaces and a wire that carries frames of its MTU with complete checksums, as a
    /// real one does: the client's end does neither TSO nor checksum offload.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> Result<Hosts, Error> {
        Hosts::by_wires(1)
    }

    /// The same, joined by one wire or two, whose addresses are of networks of their own.
    pub(crate) fn by_wires(wires: usize) -> Result<Hosts, Error> {
        let hosts = Hosts { wires, ..Hosts::apart()? };
        for wire in hosts.wires() {
            link::veth((&hosts.client, wire.peer), (&hosts.server, wire.wire))?;
        }
        hosts.set_up()?;
        Ok(hosts)
    }

    fn wires(&self) -> impl Iterator<Item = &'static Wire> {
        WIRES.iter().take(self.wires)
    }

    /// The server's address by each wire.
    pub(crate) fn servers(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.wires().map(|wire| wire.server)
    }

    /// The same with degen between them, in a namespace of its own; what the client sends goes forward.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn through(path: &Settings, mode: WireMode) -> Result<Hosts, Error> {
        let mut hosts = Hosts::apart()?;
        let middle = Namespace::new()?;
        link::veth((&hosts.client, PEER), (&middle, BETWEEN[0]))?;
        link::veth((&hosts.server, WIRE), (&middle, BETWEEN[1]))?;
        hosts.set_up()?;
        let carriage = Carriage { frames: FRAMES, mode, real_time: true, awake: false };
        hosts._path = Some(link::degen(&middle, BETWEEN, path, carriage)?);
        Ok(hosts)
    }

    /// The server's kernel computes checksums itself, also in front of wharf.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn without_checksum_offload(&self) -> Result<(), Error> {
        Ok(self.server.run(|| link::without(HOST, &[Offload::TxChecksum]))??)
    }

    fn apart() -> Result<Hosts, Error> {
        Ok(Hosts { client: Namespace::new()?, server: Namespace::new()?, wires: 1, _path: None })
    }

    fn set_up(&self) -> Result<(), Error> {
        for wire in self.wires() {
            self.client.run(|| -> sys::Result<()> {
                let peer = wire.peer;
                plain_wire(peer)?;
                // As any card's driver does; without it the client acknowledges every second frame.
                Ethtool::open(peer)?.set_offload(Offload::Gro, true)?;
                address::add(interface::index(peer)?, wire.client.into(), PREFIX_LEN, true)?;
                interface::set_up(peer)?;
                Ok(())
            })??;
            self.server.run(|| interface::set_up(wire.wire))??;
        }
        Ok(())
    }

    /// The server's kernel on the bare wire, with GRO.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bare_kernel(&self) -> Result<(), Error> {
        self.server.run(|| -> sys::Result<()> {
            plain_wire(WIRE)?;
            Ethtool::open(WIRE)?.set_offload(Offload::Gro, true)?;
            address::add(interface::index(WIRE)?, SERVER.into(), PREFIX_LEN, true)
        })??;
        Ok(())
    }

    /// The server's kernel behind wharf. `lro.profile=auto` is `endpoint`, even where a new network
    /// namespace forwards because this machine does (`net.core.devconf_inherit_init_net`).
    ///
    /// # Errors
    /// As [`Nic::start`].
    pub fn wharf(&self, config: Config) -> Result<Nic, Error> {
        self.wharf_at(&WIRES[0], config)
    }

    /// The same, a wharf in front of each wire.
    pub(crate) fn wharfs(&self, config: &Config) -> Result<Vec<Nic>, Error> {
        self.wires().map(|wire| self.wharf_at(wire, config.clone())).collect()
    }

    fn wharf_at(&self, wire: &Wire, config: Config) -> Result<Nic, Error> {
        let config = config.for_a_host(false);
        self.server.run(move || -> Result<Nic, Error> {
            let nic = Nic::start(wire.wire, wire.host, config)?;
            address::add(nic.host().1, wire.server.into(), PREFIX_LEN, true)?;
            Ok(nic)
        })?
    }
}

/// Frames leave `end` cut to the MTU and with complete checksums. Generic segmentation, which
/// happens in front of the wire, stays on.
fn plain_wire(end: &str) -> sys::Result<()> {
    link::without(end, &[Offload::Tso, Offload::TxChecksum])
}
