//! A client, which is a kernel, and a server, joined by a link.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use nic::config::WireMode;
use nic::degen::Settings;
use nic::degen::bridge::{Bridge, Carriage};
use sys::ethtool::Offload;
use sys::interface;
use sys::netlink::address;
use sys::netns::Namespace;

use super::cores::Cores;
use super::system::Link;
use crate::{Error, link};

/// The client's end of the link, a TAP or one of a veth.
pub(super) const NEAR: &str = "client0";
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
pub(super) const PREFIX_LEN: u8 = 24;
/// All that the kernel can leave to an interface, or to none.
const OFFLOADS: [Offload; 5] =
    [Offload::Tso, Offload::Gso, Offload::Gro, Offload::TxChecksum, Offload::RxChecksum];

/// The far ends of both, where degen is.
const BETWEEN: [&str; 2] = ["server1", "client1"];
/// Frames in flight or in degen's queue.
const FRAMES: u32 = 16_384;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Testbed {
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    pub(super) link: Link,
    /// The server's end of the link, if it is a veth. Threads of the kernel are named after interfaces, and
    /// namespaces do not matter for that.
    pub(super) far: String,
    /// A CPU for each, if they have their own.
    pub(super) cores: Option<Cores>,
    _degen: Option<Bridge>,
}

impl Testbed {
    /// Two hosts, with a CPU each if `own_cpus` says so; a TAP is made by the server.
    pub(super) fn new(link: Link, own_cpus: bool) -> Result<Testbed, Error> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let far = format!("s{:x}.{:x}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let cores = Cores::choose().filter(|_| own_cpus);
        let testbed = Testbed { client, server, link, far, cores, _degen: None };
        testbed.client.run(|| -> sys::Result<()> {
            // Thousands of connections a second use a port again while it is in TIME-WAIT.
            sys::sysctl::write(&["ipv4", "ip_local_port_range"], "1024 65535")?;
            sys::sysctl::write(&["ipv4", "tcp_tw_reuse"], "1")
        })??;
        if matches!(link, Link::Veth | Link::VethOffloads) {
            testbed.veth()?;
        }
        Ok(testbed)
    }

    /// Two hosts and a WAN, whose forward direction is that of what the server sends.
    pub(super) fn wan(settings: &Settings) -> Result<Testbed, Error> {
        let mut testbed = Testbed::new(Link::Wan, false)?;
        let middle = Namespace::new()?;
        for (host, near, far) in [
            (&testbed.server, testbed.far.clone(), BETWEEN[0]),
            (&testbed.client, NEAR.to_owned(), BETWEEN[1]),
        ] {
            link::veth((host, &near), (&middle, far))?;
        }
        testbed.set_up(true)?;
        let mode = if sys::process::has_bpf() { WireMode::Xdp } else { WireMode::Packet };
        let carriage = Carriage { frames: FRAMES, mode, real_time: true, awake: false };
        let bridge = link::degen(&middle, BETWEEN, settings, carriage)?;
        testbed._degen = Some(bridge);
        Ok(testbed)
    }

    fn veth(&self) -> Result<(), Error> {
        let plain = !self.link.has_offloads();
        link::veth((&self.client, NEAR), (&self.server, &self.far))?;
        self.set_up(plain)
    }

    /// Sets up both ends, which are there.
    fn set_up(&self, plain: bool) -> Result<(), Error> {
        let far = self.far.clone();
        self.server.run(move || -> sys::Result<()> {
            link::quiet(&far);
            if plain { without_offloads(&far) } else { Ok(()) }?;
            interface::set_up(&far)
        })??;
        self.client.run(move || near(plain))??;
        Ok(())
    }
}

/// Sets up the client's end, which is there.
pub(super) fn near(plain: bool) -> sys::Result<()> {
    link::quiet(NEAR);
    if plain {
        without_offloads(NEAR)?;
    }
    let index = interface::index(NEAR)?;
    address::add(index, CLIENT.into(), PREFIX_LEN, true)?;
    interface::set_up(NEAR)
}

/// Turns all off.
pub(super) fn without_offloads(name: &str) -> sys::Result<()> {
    link::without(name, &OFFLOADS)
}
