//! Opening ports: the wire's by AF_XDP where it works and AF_PACKET where it does not, and the
//! host interface with a port for each worker.

use std::io;
use std::time::{Duration, Instant};

use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::packet::PacketSocket;
use sys::tap::{Tap, TapError};
use sys::xdp::{Redirect, XdpSocket};

use crate::config::{Config, GsoHardware, HostKind, WireMode, XdpMode, ZeroCopy};
use crate::error::Error;
use crate::port::hardware::Hardware;
use crate::port::packet::PacketWire;
use crate::port::tap::TapHost;
use crate::port::veth::VethHost;
use crate::port::xdp::XdpWire;
use crate::queues;
use crate::quiet::Quiet;
use crate::selftest;

/// Ethernet header and two VLAN tags, around an IP packet of the MTU.
const LINK_OVERHEAD: u32 = 14 + 8;
/// What the kernel keeps free in front of a frame in a UMEM chunk (`XDP_PACKET_HEADROOM`).
const XDP_HEADROOM: u32 = 256;
/// The largest chunk that a UMEM takes on all kernels.
const PAGE: u32 = 4096;
/// The least frames that a queue read by AF_XDP is lent where others share the memory.
const LEAST_RING: u32 = 64;
/// Frames that may wait to be sent by AF_XDP: a few super-packets. The host waits when it is full,
/// so more would only be a longer queue.
const TX_RING: u32 = 2048;
/// The AF_PACKET fanout group: any number that others in this namespace are unlikely to use.
const FANOUT_GROUP: u16 = 0x5748;

/// How long the kernel may take to activate a veth; it does so within a second.
const LINK_PATIENCE: Duration = Duration::from_secs(2);

/// The interface that the host's kernel sees.
#[derive(Debug)]
pub(crate) struct HostInterface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) kind: HostEnd,
}

#[derive(Debug)]
pub(crate) enum HostEnd {
    Tap(Tap),
    Veth {
        /// Index of the far end. The host's end may be moved to another namespace.
        far: u32,
        /// What keeps the stack behind the far end silent.
        _quiet: Option<Quiet>,
    },
}

/// The wire's ports, one a worker.
pub(crate) enum Wires {
    Xdp(Vec<(XdpWire, FramePool)>, Redirect),
    /// With what keeps the stack behind the wire silent, dropped after the sockets.
    Packet(Vec<(PacketWire, FramePool)>, Option<Quiet>),
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

impl Wires {
    pub(crate) fn describe(&self) -> String {
        match self {
            Wires::Xdp(wires, redirect) => {
                let mode = match redirect.mode() {
                    sys::xdp::Mode::Native => "native",
                    _ => "generic",
                };
                let zero_copy = wires.iter().all(|(wire, _)| wire.zero_copy());
                format!("AF_XDP {mode}, {}", if zero_copy { "zero-copy" } else { "copy" })
            }
            Wires::Packet(..) => "AF_PACKET".to_owned(),
        }
    }

    /// The memory that received frames go to.
    pub(crate) fn room(&self) -> Room {
        let chunk = |pool: Option<&FramePool>| pool.map_or(0, FramePool::chunk_size) as u32;
        match self {
            Wires::Xdp(wires, _) => {
                let chunk = chunk(wires.first().map(|(_, pool)| pool));
                Room { mtu: chunk.saturating_sub(LINK_OVERHEAD + XDP_HEADROOM), loses: true }
            }
            Wires::Packet(wires, _) => {
                let chunk = chunk(wires.first().map(|(_, pool)| pool));
                let headroom = sys::packet::HEADROOM as u32;
                Room { mtu: chunk.saturating_sub(LINK_OVERHEAD + headroom), loses: false }
            }
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
pub(crate) fn open_wires(
    info: &Interface,
    config: &Config,
    notices: &mut Vec<String>,
) -> Result<Wires, Error> {
    if config.wire.mode == WireMode::Packet {
        return open_packet(info, config, notices);
    }
    match open_xdp(info, config) {
        Ok(wires) => Ok(wires),
        Err(error) if config.wire.mode == WireMode::Xdp => Err(error),
        Err(Error::Xdp { why, .. }) => {
            notices.push(format!("no AF_XDP on {}: {why}; using AF_PACKET", info.name));
            open_packet(info, config, notices)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn open_xdp(info: &Interface, config: &Config) -> Result<Wires, Error> {
    let chunk = xdp_chunk(info)?;
    let queues = queues::xdp(info);
    if config.workers != 0 && config.workers != queues {
        return Err(Error::Workers { name: info.name.clone(), queues });
    }
    let zero_copy = match config.wire.zero_copy {
        ZeroCopy::Auto => sys::xdp::ZeroCopy::Auto,
        ZeroCopy::Off => sys::xdp::ZeroCopy::Copy,
    };
    // A quarter of the memory may be held by LRO; some must be left to send from.
    let rx = config.wire.ring.min(config.wire.frames / 2);
    let rings = sys::xdp::Config { zero_copy, ..xdp_rings(rx) };
    let mode = xdp_mode(info, config);
    let redirect = match config.wire.leave_configuration {
        true => Redirect::attach_leaving_configuration(info.index, mode),
        false => Redirect::attach(info.index, mode),
    };
    let mut redirect = attached(info, redirect)?;
    let mut wires = Vec::new();
    for queue in 0..queues {
        let mut pool = FramePool::new(config.wire.frames, chunk).map_err(Error::Worker)?;
        wires.push((xdp_wire(info, queue, &mut redirect, &mut pool, rings)?, pool));
    }
    Ok(Wires::Xdp(wires, redirect))
}

/// The least frames of memory that AF_XDP on all queues of these interfaces wants, so that a quarter
/// of it at most is lent to the rings.
pub(crate) fn least_frames(interfaces: [&Interface; 2]) -> u32 {
    4 * LEAST_RING * interfaces.into_iter().map(queues::xdp).sum::<u32>()
}

/// AF_XDP on all queues of an interface, in memory of others, with stamps.
pub(crate) fn open_xdp_stamping(
    info: &Interface,
    pool: &mut FramePool,
    frames: u32,
) -> Result<(Vec<XdpWire>, Redirect), Error> {
    let mode = xdp_mode(info, &Config::default());
    let mut redirect = attached(info, Redirect::attach_stamping(info.index, mode))?;
    let queues = queues::xdp(info);
    // Two interfaces, and most of the memory is for what is in flight.
    let share = (frames / 8 / queues).max(LEAST_RING);
    let rings = xdp_rings((1 << share.ilog2()).min(Config::default().wire.ring));
    let wires = (0..queues).map(|queue| xdp_wire(info, queue, &mut redirect, pool, rings));
    Ok((wires.collect::<Result<_, _>>()?, redirect))
}

/// Bytes of a frame's memory that AF_XDP receives into.
///
/// # Errors
/// The interface's frames fit none.
pub(crate) fn xdp_chunk(info: &Interface) -> Result<u32, Error> {
    let needed = info.mtu + LINK_OVERHEAD + XDP_HEADROOM;
    if needed > PAGE {
        let most = PAGE - LINK_OVERHEAD - XDP_HEADROOM;
        let why = format!("its MTU of {} is over {most}, which is all that fits", info.mtu);
        return Err(Error::Xdp { name: info.name.clone(), why });
    }
    Ok(needed.next_power_of_two().max(sys::frames::MIN_CHUNK_SIZE))
}

fn xdp_mode(info: &Interface, config: &Config) -> sys::xdp::Mode {
    match config.wire.xdp {
        // In the stack of a virtual interface, generic XDP meets super-packets and what GRO has
        // merged, which no UMEM frame holds.
        XdpMode::Auto if info.kind.is_some() => sys::xdp::Mode::Native,
        XdpMode::Auto => sys::xdp::Mode::Auto,
        XdpMode::Native => sys::xdp::Mode::Native,
        XdpMode::Generic => sys::xdp::Mode::Generic,
    }
}

fn xdp_rings(rx: u32) -> sys::xdp::Config {
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

fn xdp_wire(
    info: &Interface,
    queue: u32,
    redirect: &mut Redirect,
    pool: &mut FramePool,
    rings: sys::xdp::Config,
) -> Result<XdpWire, Error> {
    let xdp = |why: String| Error::Xdp { name: info.name.clone(), why };
    let socket = XdpSocket::open(info.index, queue, pool, rings).map_err(|e| xdp(e.to_string()))?;
    redirect.set(&socket).map_err(|error| xdp(error.to_string()))?;
    // A veth's frames, or a bridge's, come from a kernel on this machine, partial checksums and
    // all; a card has no kind.
    Ok(XdpWire::new(socket, pool, info.kind.is_some()))
}

pub(crate) fn open_packet(
    info: &Interface,
    config: &Config,
    notices: &mut Vec<String>,
) -> Result<Wires, Error> {
    let workers = config.workers.max(1);
    let chunk = packet_chunk(info.mtu);
    let fanout = (workers > 1).then_some(sys::packet::Fanout {
        group: FANOUT_GROUP ^ info.index as u16,
        members: workers,
    });
    let hardware = match config.gso.hardware {
        GsoHardware::Auto => selftest::passed(info, Hardware::read(&info.name), notices),
        // It may be turned on later.
        GsoHardware::Kernel | GsoHardware::Off => Hardware::read(&info.name),
    };
    let pools: Vec<_> = (0..workers)
        .map(|_| FramePool::new(config.wire.frames, chunk))
        .collect::<Result<_, _>>()
        .map_err(Error::Worker)?;
    // First, or what arrives between the two is handed on twice. Now it is lost, as on a card that
    // is not up yet.
    let leave_configuration = config.wire.leave_configuration;
    let quiet =
        if leave_configuration { but_configuration(info, notices) } else { quiet(info, notices) };
    let config_of_socket =
        sys::packet::Config { fanout, leave_configuration, ..sys::packet::Config::default() };
    let wire = |pool| Ok((packet_wire(info, config_of_socket, hardware)?, pool));
    let wires = pools.into_iter().map(wire).collect::<Result<_, Error>>()?;
    Ok(Wires::Packet(wires, quiet))
}

/// Bytes of a frame's memory that AF_PACKET receives packets of this MTU into.
pub(crate) fn packet_chunk(mtu: u32) -> u32 {
    let needed = mtu + LINK_OVERHEAD + sys::packet::HEADROOM as u32;
    needed.next_power_of_two().clamp(sys::frames::MIN_CHUNK_SIZE, sys::frames::MAX_CHUNK_SIZE)
}

/// One AF_PACKET port.
pub(crate) fn packet_wire(
    info: &Interface,
    config: sys::packet::Config,
    hardware: Hardware,
) -> Result<PacketWire, Error> {
    let socket = PacketSocket::open(info.index, config).map_err(|cause| {
        let name = info.name.clone();
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Error::Permission { name },
            _ => Error::Packet { name, cause },
        }
    })?;
    Ok(PacketWire::new(socket, hardware))
}

/// Silences the stack behind an interface; before a packet socket hears it, or what arrives between
/// the two is handed on twice.
pub(crate) fn quiet(info: &Interface, notices: &mut Vec<String>) -> Option<Quiet> {
    silenced(info, Quiet::new(&info.name), notices)
}

/// The same, but for what the stack must hear to configure itself: DHCP and router advertisements.
fn but_configuration(info: &Interface, notices: &mut Vec<String>) -> Option<Quiet> {
    let quiet = silenced(info, Quiet::but_configuration(&info.name), notices);
    if matches!(quiet, Some(Quiet::Switches(_))) {
        notices.push(format!(
            "without nftables {} cannot be left what is for its own configuration: DHCP clients \
             with packet sockets go on, router advertisements are not heard",
            info.name
        ));
    }
    quiet
}

fn silenced(
    info: &Interface,
    quiet: sys::Result<Quiet>,
    notices: &mut Vec<String>,
) -> Option<Quiet> {
    let mut tell =
        |why| notices.push(format!("the kernel may answer on {} as well: {why}", info.name));
    match quiet {
        Ok(quiet) => {
            quiet.gap().into_iter().for_each(tell);
            Some(quiet)
        }
        Err(error) => {
            tell(error.to_string());
            None
        }
    }
}

/// The host's ports.
pub(crate) enum Hosts {
    Tap(Queues<TapHost>),
    Veth(Queues<VethHost>),
}

impl Hosts {
    /// How many queues there are.
    pub(crate) fn queues(&self) -> usize {
        match self {
            Hosts::Tap(queues) => queues.len(),
            Hosts::Veth(queues) => queues.len(),
        }
    }
}

/// How the workers reach the host's queues.
pub(crate) enum Queues<H> {
    /// Each worker has its own.
    Own(Vec<H>),
    /// Several workers share each: one of them reads by the first port, a scheduler writes by the
    /// second.
    Shared(Vec<(H, H)>),
}

impl<H> Queues<H> {
    fn len(&self) -> usize {
        match self {
            Queues::Own(hosts) => hosts.len(),
            Queues::Shared(ports) => ports.len(),
        }
    }
}

/// The host interface, up, with the wire's MAC address.
pub(crate) fn make_host(
    name: &str,
    wire: &Interface,
    config: &Config,
    workers: usize,
    notices: &mut Vec<String>,
) -> Result<(HostInterface, Hosts), Error> {
    let mtu = host_mtu(config, wire.mtu);
    let far_mtu = wire.mtu.max(config.host.mtu);
    let shared = (1..workers).contains(&(config.host.queues as usize));
    let queues = if shared { config.host.queues as usize } else { workers };
    let (mut host, hosts) = match config.host.kind {
        HostKind::Veth => make_veth(name, far_mtu, queues, shared)?,
        kind => match Tap::create(name, queues as u16) {
            Ok(tap) => from_tap(tap, shared)?,
            Err(error @ (TapError::NoDevice | TapError::DevicePermission))
                if kind == HostKind::Auto =>
            {
                notices.push(format!("no TAP ({error}); the host port is a veth"));
                make_veth(name, far_mtu, queues, shared)?
            }
            Err(error) => return Err(error.into()),
        },
    };
    let mut ready = || -> sys::Result<u32> {
        if let Some(mac) = wire.mac {
            interface::set_mac(name, mac)?;
        }
        interface::set_mtu(name, at_most(mtu, &Interface::by_name(name)?, notices))?;
        // As the default is the kernel's, one that cannot be told is no obstacle to it.
        if config.gso.max_burst != Config::default().gso.max_burst {
            interface::set_gso_max_size(name, config.gso.max_burst + 1)?;
        }
        interface::set_up(name)?;
        if let HostEnd::Veth { .. } = host.kind {
            wait_for_veth(name)?;
        }
        interface::index(name)
    };
    match ready() {
        Ok(index) => host.index = index,
        Err(error) => {
            if let HostEnd::Veth { .. } = host.kind {
                let _ = sys::netlink::link::delete(name);
            }
            return Err(error.into());
        }
    }
    Ok((host, hosts))
}

/// The host's MTU in bytes. Where it is over the wire's, that is for the host to hand over datagrams
/// that become fragments; with that turned off, its own IP makes them. IPv6 leaves an interface with
/// an MTU under its least.
pub(crate) fn host_mtu(config: &Config, wire_mtu: u32) -> u32 {
    let wanted = if config.host.mtu == 0 { wire_mtu } else { config.host.mtu };
    let most = match config.gso.enable && config.gso.udp {
        true => config.gso.max_burst,
        false => IPV6_LEAST_MTU,
    };
    wanted.min(most.max(wire_mtu))
}

/// The MTU that the host's interface gets of one that is asked for: a TAP's IP packet and its
/// Ethernet header together are 65,535 bytes at most (`tun_net_initialize`).
pub(crate) fn at_most(mtu: u32, host: &Interface, notices: &mut Vec<String>) -> u32 {
    let most = host.max_mtu;
    if mtu > most {
        notices.push(format!(
            "host.mtu={mtu} is over {most}, the most that {} takes; it has {most}",
            host.name
        ));
    }
    mtu.min(most)
}

/// RFC 8200 section 5.
const IPV6_LEAST_MTU: u32 = 1_280;

/// Until both ends of a veth pair are operational. They get their queueing disciplines some time
/// after they are up, from a kernel thread, and lose silently what is sent before.
pub(crate) fn wait_for_veth(name: &str) -> sys::Result<()> {
    let since = Instant::now();
    loop {
        let near = Interface::by_name(name)?;
        let far = near.link.map_or(Ok(near.clone()), Interface::by_index)?;
        if (near.operational && far.operational) || since.elapsed() > LINK_PATIENCE {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn from_tap(mut tap: Tap, shared: bool) -> Result<(HostInterface, Hosts), Error> {
    let hosts = tap.queues.drain(..).map(TapHost::new);
    let queues = if shared {
        let both = hosts.map(|host| host.try_clone().map(|clone| (host, clone)));
        Queues::Shared(both.collect::<io::Result<_>>().map_err(Error::Worker)?)
    } else {
        Queues::Own(hosts.collect())
    };
    let host =
        HostInterface { name: tap.name.clone(), index: tap.ifindex, kind: HostEnd::Tap(tap) };
    Ok((host, Hosts::Tap(queues)))
}

/// The name of the other end of the veth that is the host interface `name`, where it is one.
pub fn far_end_of(name: &str) -> String {
    format!("{}~", name.chars().take(13).collect::<String>())
}

/// A veth pair: `name` for the host, and a far end for wharf that goes when `name` does and takes
/// packets of `mtu` bytes.
pub(crate) fn make_veth(
    name: &str,
    mtu: u32,
    queues: usize,
    shared: bool,
) -> Result<(HostInterface, Hosts), Error> {
    use sys::netlink::link::{VethEnd, create_veth, delete};
    if interface::index(name).is_ok() {
        return Err(TapError::NameTaken { name: name.to_owned() }.into());
    }
    let far_name = far_end_of(name);
    let far = VethEnd { mtu: Some(mtu), ..VethEnd::new(&far_name) };
    create_veth(&VethEnd::new(name), &far)?;
    let open = || -> Result<(HostEnd, Queues<VethHost>), Error> {
        let far = interface::index(&far_name)?;
        // The far end is wharf's alone: the host is not to hear the kernel there look for routers.
        let _ = sys::sysctl::set_ipv6_conf(&far_name, "disable_ipv6", "1");
        let quiet = Quiet::new(&far_name).ok();
        interface::set_up(&far_name)?;
        let fanout = (queues > 1).then_some(sys::packet::Fanout {
            group: FANOUT_GROUP ^ far as u16,
            members: queues as u32,
        });
        let host = |send_only| -> Result<VethHost, Error> {
            let config =
                sys::packet::Config { fanout, send_only, ..sys::packet::Config::default() };
            let socket = PacketSocket::open(far, config)
                .map_err(|cause| Error::Packet { name: far_name.clone(), cause })?;
            VethHost::new(socket).map_err(Error::Worker)
        };
        let hosts = if shared {
            let both = (0..queues).map(|_| Ok((host(false)?, host(true)?)));
            Queues::Shared(both.collect::<Result<_, Error>>()?)
        } else {
            Queues::Own((0..queues).map(|_| host(false)).collect::<Result<_, Error>>()?)
        };
        Ok((HostEnd::Veth { far, _quiet: quiet }, hosts))
    };
    match open() {
        Ok((kind, hosts)) => {
            let host = HostInterface { name: name.to_owned(), index: 0, kind };
            Ok((host, Hosts::Veth(hosts)))
        }
        Err(error) => {
            let _ = delete(name);
            Err(error)
        }
    }
}
