//! A running NIC: ports opened, workers started, and what may be asked of it while it runs.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::packet::{Filter, Membership, PacketSocket};
use sys::tap::{Offloads, Tap, TapError};
use sys::xdp::{Redirect, XdpSocket};

use crate::config::{Config, HostKind, WireMode, XdpMode, ZeroCopy};
use crate::counters::{Entry, Published};
use crate::error::Error;
use crate::port::packet::PacketWire;
use crate::port::tap::TapHost;
use crate::port::veth::VethHost;
use crate::port::xdp::XdpWire;
use crate::port::{Host, Wire};
use crate::quiet::Switches;
use crate::worker::{Shared, Worker};

/// Ethernet header and two VLAN tags, around an IP packet of the MTU.
const LINK_OVERHEAD: u32 = 14 + 8;
/// What the kernel keeps free in front of a frame in a UMEM chunk (`XDP_PACKET_HEADROOM`).
const XDP_HEADROOM: u32 = 256;
/// The largest chunk that a UMEM takes on all kernels.
const PAGE: u32 = 4096;
/// The AF_PACKET fanout group: any number that others in this namespace are unlikely to use.
const FANOUT_GROUP: u16 = 0x5748;

/// The software NIC between one wire and one host interface.
#[derive(Debug)]
pub struct Nic {
    config: Mutex<Config>,
    workers: Vec<(Arc<Shared>, JoinHandle<io::Result<()>>)>,
    host: HostInterface,
    wire: String,
    ports: Ports,
    notices: Vec<String>,
    /// Dropped after the workers: the wire is the kernel's again when this is gone.
    _redirect: Option<Redirect>,
    _multicast: Option<Membership>,
    switches: Option<Switches>,
}

/// Which ports are in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// `AF_XDP native, copy`, `AF_PACKET`, ...
    pub wire: String,
    /// `TAP` or `veth`.
    pub host: &'static str,
    /// How many workers, each with a queue of both.
    pub workers: usize,
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.workers == 1 { "" } else { "s" };
        write!(f, "{}, {}, {} worker{s}", self.wire, self.host, self.workers)
    }
}

/// The interface that the host's kernel sees.
#[derive(Debug)]
struct HostInterface {
    name: String,
    index: u32,
    kind: HostEnd,
}

#[derive(Debug)]
enum HostEnd {
    Tap(Tap),
    Veth,
}

/// The wire's ports, one a worker.
enum Wires {
    Xdp(Vec<(XdpWire, FramePool)>, Redirect),
    Packet(Vec<(PacketWire, FramePool)>),
}

impl Nic {
    /// Opens `wire`, makes the interface `host`, and starts the workers, all in the network
    /// namespace of the calling thread. The host interface is up and has the wire's MAC address
    /// and MTU when this returns.
    ///
    /// # Errors
    /// See [`Error`]; nothing is left behind.
    pub fn start(wire: &str, host: &str, config: Config) -> Result<Nic, Error> {
        let info = find_wire(wire)?;
        interface::set_up(wire)?;
        let mut notices = Vec::new();
        let wires = open_wires(&info, &config, &mut notices)?;
        let workers = match &wires {
            Wires::Xdp(wires, _) => wires.len(),
            Wires::Packet(wires) => wires.len(),
        };
        let multicast = Membership::hold(info.index, Filter::AllMulticast).ok();
        let switches = quiet(&info, &wires, &mut notices);

        let (interface, hosts) = make_host(host, &info, &config, workers, &mut notices)?;
        let ports = Ports {
            wire: wires.describe(),
            host: if matches!(hosts, Hosts::Tap(_)) { "TAP" } else { "veth" },
            workers,
        };
        let (redirect, workers) = match (wires, hosts) {
            (Wires::Xdp(w, redirect), Hosts::Tap(h)) => (Some(redirect), spawn(&config, w, h)?),
            (Wires::Xdp(w, redirect), Hosts::Veth(h)) => (Some(redirect), spawn(&config, w, h)?),
            (Wires::Packet(w), Hosts::Tap(h)) => (None, spawn(&config, w, h)?),
            (Wires::Packet(w), Hosts::Veth(h)) => (None, spawn(&config, w, h)?),
        };
        let nic = Nic {
            config: Mutex::new(config),
            workers,
            host: interface,
            wire: wire.to_owned(),
            ports,
            notices,
            _redirect: redirect,
            _multicast: multicast,
            switches,
        };
        nic.apply_offloads(&nic.lock())?;
        Ok(nic)
    }

    /// What is in use.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// What did not go as well as it might have, and why; one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Name of the wire interface.
    pub fn wire(&self) -> &str {
        &self.wire
    }

    /// Name and index of the host interface.
    pub fn host(&self) -> (&str, u32) {
        (&self.host.name, self.host.index)
    }

    /// All counters, summed over the workers.
    pub fn counters(&self) -> Vec<Entry> {
        Published::total(self.workers.iter().map(|(shared, _)| shared.published()))
    }

    /// A copy of the configuration in force.
    pub fn config(&self) -> Config {
        self.lock().clone()
    }

    /// Changes one key while traffic flows.
    ///
    /// # Errors
    /// As [`Config::set_at_run_time`], or what the kernel says of the host interface's offloads.
    pub fn set(&self, key: &str, value: &str) -> Result<(), Box<dyn std::error::Error>> {
        let mut config = self.lock();
        let mut changed = config.clone();
        changed.set_at_run_time(key, value)?;
        if changed.gso.enable != config.gso.enable {
            self.apply_offloads(&changed)?;
        }
        *config = changed;
        for (shared, _) in &self.workers {
            shared.reconfigure(&config);
        }
        Ok(())
    }

    /// Has a worker ended by itself, because a port became useless?
    pub fn has_failed(&self) -> bool {
        self.workers.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Ends the workers, which hand on what they hold, then closes the ports; the host interface
    /// is gone afterwards.
    ///
    /// # Errors
    /// What made a worker end before it was told to.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for (shared, _) in &self.workers {
            shared.stop();
        }
        for (_, thread) in self.workers.drain(..) {
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        if let HostEnd::Veth = self.host.kind {
            // The workers' sockets are closed; a TAP vanishes with them, a veth must be told.
            let _ = sys::netlink::link::delete(&self.host.name);
        }
        if let Some(switches) = self.switches.take() {
            switches.restore();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the host's kernel hand over super-packets, or not.
    fn apply_offloads(&self, config: &Config) -> Result<(), Error> {
        match &self.host.kind {
            HostEnd::Tap(tap) => {
                let none = Offloads { csum: true, ..Offloads::NONE };
                tap.set_offload(if config.gso.enable { Offloads::ALL } else { none })?;
            }
            HostEnd::Veth => {
                let features = sys::ethtool::Ethtool::open(&self.host.name)?;
                features.set_offload(sys::ethtool::Offload::Tso, config.gso.enable)?;
                // Absent on old kernels; then there is no USO to turn on or off.
                let _ = features.set_feature("tx-udp-segmentation", config.gso.enable);
            }
        }
        Ok(())
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        // Whoever wants to know why a worker ended calls `stop`.
        let _ = self.end();
    }
}

impl Wires {
    fn describe(&self) -> String {
        match self {
            Wires::Xdp(wires, redirect) => {
                let mode = match redirect.mode() {
                    sys::xdp::Mode::Native => "native",
                    _ => "generic",
                };
                let zero_copy = wires.iter().all(|(wire, _)| wire.zero_copy());
                format!("AF_XDP {mode}, {}", if zero_copy { "zero-copy" } else { "copy" })
            }
            Wires::Packet(_) => "AF_PACKET".to_owned(),
        }
    }
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

/// AF_XDP where it works, AF_PACKET where it does not, unless the configuration insists.
fn open_wires(
    info: &Interface,
    config: &Config,
    notices: &mut Vec<String>,
) -> Result<Wires, Error> {
    if config.wire.mode == WireMode::Packet {
        return open_packet(info, config);
    }
    match open_xdp(info, config) {
        Ok(wires) => Ok(wires),
        Err(error) if config.wire.mode == WireMode::Xdp => Err(error),
        Err(Error::Xdp { why, .. }) => {
            notices.push(format!("no AF_XDP on {}: {why}; using AF_PACKET", info.name));
            open_packet(info, config)
        }
        Err(error) => Err(error),
    }
}

fn open_xdp(info: &Interface, config: &Config) -> Result<Wires, Error> {
    let xdp = |why: String| Error::Xdp { name: info.name.clone(), why };
    let needed = info.mtu + LINK_OVERHEAD + XDP_HEADROOM;
    if needed > PAGE {
        let most = PAGE - LINK_OVERHEAD - XDP_HEADROOM;
        return Err(xdp(format!("its MTU of {} is over {most}, which is all that fits", info.mtu)));
    }
    let chunk = needed.next_power_of_two().max(sys::frames::MIN_CHUNK_SIZE);
    let queues = sys::ethtool::Ethtool::open(&info.name)
        .and_then(|ethtool| ethtool.rx_queues())
        .unwrap_or(info.rx_queues)
        .clamp(1, sys::xdp::QUEUES);
    if config.workers != 0 && config.workers != queues {
        return Err(Error::Workers { name: info.name.clone(), queues });
    }
    let mode = match config.wire.xdp {
        XdpMode::Auto => sys::xdp::Mode::Auto,
        XdpMode::Native => sys::xdp::Mode::Native,
        XdpMode::Generic => sys::xdp::Mode::Generic,
    };
    let ring = config.wire.ring;
    let socket_config = sys::xdp::Config {
        rx_size: ring,
        tx_size: ring,
        fill_size: ring,
        completion_size: ring,
        zero_copy: match config.wire.zero_copy {
            ZeroCopy::Auto => sys::xdp::ZeroCopy::Auto,
            ZeroCopy::Off => sys::xdp::ZeroCopy::Copy,
        },
        ..sys::xdp::Config::default()
    };
    // A veth's frames come from a kernel on this machine, partial checksums and all.
    let virtual_wire = info.kind.as_deref() == Some("veth");
    let mut redirect =
        Redirect::attach(info.index, mode).map_err(|error| xdp(error.to_string()))?;
    let mut wires = Vec::new();
    for queue in 0..queues {
        let mut pool = FramePool::new(config.wire.frames, chunk).map_err(Error::Worker)?;
        let socket = XdpSocket::open(info.index, queue, &pool, socket_config)
            .map_err(|error| xdp(error.to_string()))?;
        redirect.set(&socket).map_err(|error| xdp(error.to_string()))?;
        wires.push((XdpWire::new(socket, &mut pool, virtual_wire), pool));
    }
    Ok(Wires::Xdp(wires, redirect))
}

fn open_packet(info: &Interface, config: &Config) -> Result<Wires, Error> {
    let workers = config.workers.max(1);
    let needed = info.mtu + LINK_OVERHEAD + sys::packet::HEADROOM as u32;
    let chunk =
        needed.next_power_of_two().clamp(sys::frames::MIN_CHUNK_SIZE, sys::frames::MAX_CHUNK_SIZE);
    let fanout = (workers > 1).then_some(sys::packet::Fanout {
        group: FANOUT_GROUP ^ info.index as u16,
        members: workers,
    });
    let mut wires = Vec::new();
    for _ in 0..workers {
        let config_of_socket = sys::packet::Config { fanout, ..sys::packet::Config::default() };
        let socket = PacketSocket::open(info.index, config_of_socket).map_err(|cause| {
            let name = info.name.clone();
            match cause.kind() {
                io::ErrorKind::PermissionDenied => Error::Permission { name },
                _ => Error::Packet { name, cause },
            }
        })?;
        let pool = FramePool::new(config.wire.frames, chunk).map_err(Error::Worker)?;
        wires.push((PacketWire::new(socket), pool));
    }
    Ok(Wires::Packet(wires))
}

/// With AF_PACKET, makes the stack behind the wire deaf.
fn quiet(info: &Interface, wires: &Wires, notices: &mut Vec<String>) -> Option<Switches> {
    if !matches!(wires, Wires::Packet(_)) {
        return None;
    }
    let switches = Switches::read(&info.name);
    if let Err(error) = switches.quiet() {
        notices.push(format!("the kernel may answer on {} as well: {error}", info.name));
    }
    Some(switches)
}

/// The host's ports, one a worker.
enum Hosts {
    Tap(Vec<TapHost>),
    Veth(Vec<VethHost>),
}

/// The host interface, up, with the wire's MAC address.
fn make_host(
    name: &str,
    wire: &Interface,
    config: &Config,
    workers: usize,
    notices: &mut Vec<String>,
) -> Result<(HostInterface, Hosts), Error> {
    let (mut host, hosts) = match config.host.kind {
        HostKind::Veth => make_veth(name, workers)?,
        kind => match Tap::create(name, workers as u16) {
            Ok(tap) => from_tap(tap),
            Err(error @ (TapError::NoDevice | TapError::DevicePermission))
                if kind == HostKind::Auto =>
            {
                notices.push(format!("no TAP ({error}); the host port is a veth"));
                make_veth(name, workers)?
            }
            Err(error) => return Err(error.into()),
        },
    };
    let ready = || -> sys::Result<u32> {
        if let Some(mac) = wire.mac {
            interface::set_mac(name, mac)?;
        }
        interface::set_mtu(name, if config.host.mtu == 0 { wire.mtu } else { config.host.mtu })?;
        interface::set_up(name)?;
        interface::index(name)
    };
    match ready() {
        Ok(index) => host.index = index,
        Err(error) => {
            if let HostEnd::Veth = host.kind {
                let _ = sys::netlink::link::delete(name);
            }
            return Err(error.into());
        }
    }
    Ok((host, hosts))
}

fn from_tap(mut tap: Tap) -> (HostInterface, Hosts) {
    let hosts = tap.queues.drain(..).map(TapHost::new).collect();
    let host =
        HostInterface { name: tap.name.clone(), index: tap.ifindex, kind: HostEnd::Tap(tap) };
    (host, Hosts::Tap(hosts))
}

/// A veth pair: `name` for the host, and a far end for wharf that goes when `name` does.
fn make_veth(name: &str, workers: usize) -> Result<(HostInterface, Hosts), Error> {
    use sys::netlink::link::{VethEnd, create_veth, delete};
    if interface::index(name).is_ok() {
        return Err(TapError::NameTaken { name: name.to_owned() }.into());
    }
    let far_name = format!("{}~", name.chars().take(13).collect::<String>());
    create_veth(&VethEnd::new(name), &VethEnd::new(&far_name))?;
    let open = || -> Result<(u32, Vec<VethHost>), Error> {
        let far = interface::index(&far_name)?;
        // The far end is wharf's alone: no addresses, no answers.
        let _ = Switches::read(&far_name).quiet();
        interface::set_up(&far_name)?;
        let fanout = (workers > 1).then_some(sys::packet::Fanout {
            group: FANOUT_GROUP ^ far as u16,
            members: workers as u32,
        });
        let mut hosts = Vec::new();
        for _ in 0..workers {
            let config = sys::packet::Config { fanout, ..sys::packet::Config::default() };
            let socket = PacketSocket::open(far, config)
                .map_err(|cause| Error::Packet { name: far_name.clone(), cause })?;
            hosts.push(VethHost::new(socket).map_err(Error::Worker)?);
        }
        Ok((far, hosts))
    };
    match open() {
        Ok((_, hosts)) => {
            let host = HostInterface { name: name.to_owned(), index: 0, kind: HostEnd::Veth };
            Ok((host, Hosts::Veth(hosts)))
        }
        Err(error) => {
            let _ = delete(name);
            Err(error)
        }
    }
}

type Running = Vec<(Arc<Shared>, JoinHandle<io::Result<()>>)>;

/// One thread a worker.
fn spawn<W, H>(config: &Config, wires: Vec<(W, FramePool)>, hosts: Vec<H>) -> Result<Running, Error>
where
    W: Wire + Send + 'static,
    H: Host + Send + 'static,
{
    let mut running: Running = Vec::new();
    for (number, ((wire, pool), host)) in wires.into_iter().zip(hosts).enumerate() {
        let shared = Arc::new(Shared::new(config.clone()).map_err(Error::Worker)?);
        let worker = Worker::new(Arc::clone(&shared), config.clone(), wire, host, pool);
        let thread = std::thread::Builder::new()
            .name(format!("wharf-{number}"))
            .spawn(move || worker.run())
            .map_err(Error::Worker)?;
        running.push((shared, thread));
    }
    Ok(running)
}
