//! A client, which is a kernel, and a server, joined by a link.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use nic::config::WireMode;
use nic::degen::Settings;
use nic::degen::bridge::{Bridge, Carriage};
use sys::ethtool::{Ethtool, Offload};
use sys::interface;
use sys::netlink::address;
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::Namespace;

use super::cores::Cores;
use super::system::Link;
use crate::Error;
use crate::sink::io;

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
/// The thread that degen runs in.
const DEGEN: &str = "wharf-degen";
/// Frames in flight or in degen's queue.
const FRAMES: u32 = 16_384;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Lab {
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    pub(super) link: Link,
    /// The server's end of the link, if it is a veth. Threads of the kernel are named after interfaces, and
    /// no namespace tells them apart.
    pub(super) far: String,
    /// A CPU for each, if they have their own.
    pub(super) cores: Option<Cores>,
    _degen: Option<Bridge>,
}

impl Lab {
    /// Two hosts, with a CPU each if `own_cpus` says so; a TAP is made by the server.
    pub(super) fn new(link: Link, own_cpus: bool) -> Result<Lab, Error> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let far = format!("s{:x}.{:x}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let cores = Cores::choose().filter(|_| own_cpus);
        let lab = Lab { client, server, link, far, cores, _degen: None };
        lab.client.run(|| -> sys::Result<()> {
            // Thousands of connections a second use a port again while it is in TIME-WAIT.
            sys::sysctl::write(&["ipv4", "ip_local_port_range"], "1024 65535")?;
            sys::sysctl::write(&["ipv4", "tcp_tw_reuse"], "1")
        })??;
        if matches!(link, Link::Veth | Link::VethOffloads) {
            lab.veth()?;
        }
        Ok(lab)
    }

    /// Two hosts and a WAN, whose forward direction is that of what the server sends.
    pub(super) fn wan(settings: &Settings) -> Result<Lab, Error> {
        let mut lab = Lab::new(Link::Wan, false)?;
        let middle = Namespace::new()?;
        for (host, near, far) in
            [(&lab.server, lab.far.clone(), BETWEEN[0]), (&lab.client, NEAR.to_owned(), BETWEEN[1])]
        {
            let to = middle.as_fd().try_clone_to_owned().map_err(io("keep a network namespace"))?;
            host.run(move || -> sys::Result<()> {
                let far = VethEnd { namespace: Some(to.as_fd()), ..VethEnd::new(far) };
                create_veth(&VethEnd::new(&near), &far)
            })??;
        }
        lab.set_up(true)?;
        let mode = if sys::process::has_bpf() { WireMode::Xdp } else { WireMode::Packet };
        let carriage = Carriage { frames: FRAMES, mode, real_time: true };
        let bridge = middle.run(|| Bridge::start(BETWEEN, settings, carriage))??;
        // degen has a CPU of its own as far as it needs it.
        if let Some(thread) = sys::process::thread(DEGEN) {
            let cpus = sys::affinity::cpus().unwrap_or_default();
            let _ = cpus.last().map(|cpu| sys::affinity::pin_thread(thread, *cpu));
        }
        lab._degen = Some(bridge);
        Ok(lab)
    }

    fn veth(&self) -> Result<(), Error> {
        let plain = !self.link.has_offloads();
        let server =
            self.server.as_fd().try_clone_to_owned().map_err(io("keep a network namespace"))?;
        let name = self.far.clone();
        self.client.run(move || -> sys::Result<()> {
            let far = VethEnd { namespace: Some(server.as_fd()), ..VethEnd::new(&name) };
            create_veth(&VethEnd::new(NEAR), &far)
        })??;
        self.set_up(plain)
    }

    /// Sets up both ends, which are there.
    fn set_up(&self, plain: bool) -> Result<(), Error> {
        let far = self.far.clone();
        self.server.run(move || -> sys::Result<()> {
            quiet(&far);
            if plain { without_offloads(&far) } else { Ok(()) }?;
            interface::set_up(&far)
        })??;
        self.client.run(move || near(plain))??;
        Ok(())
    }
}

/// Sets up the client's end, which is there.
pub(super) fn near(plain: bool) -> sys::Result<()> {
    quiet(NEAR);
    if plain {
        without_offloads(NEAR)?;
    }
    let index = interface::index(NEAR)?;
    address::add(index, CLIENT.into(), PREFIX_LEN, true)?;
    interface::set_up(NEAR)
}

/// Nothing but what is measured: no router is looked for.
pub(super) fn quiet(name: &str) {
    let _ = sys::sysctl::set_ipv6_conf(name, "disable_ipv6", "1");
}

/// Turns all off, as `ethtool -K` does. What an interface does not know is off.
pub(super) fn without_offloads(name: &str) -> sys::Result<()> {
    let features = Ethtool::open(name)?;
    for offload in OFFLOADS {
        match features.set_offload(offload, false) {
            Err(_) if features.offload(offload).is_ok_and(|on| !on) => {}
            other => other?,
        }
    }
    Ok(())
}
