//! The host interface, with a port for each worker.

use std::io;
use std::time::{Duration, Instant};

use sys::interface::{self, Interface};
use sys::packet::PacketSocket;
use sys::tap::{Tap, TapError, TapQueue};

use super::FANOUT_GROUP;
use crate::config::{Config, HostKind};
use crate::error::Error;
use crate::port::tap::TapHost;
use crate::port::veth::VethHost;
use crate::port::{AggregateKinds, Host};
use crate::quiet::Quiet;
use crate::selftest;

/// How long the kernel may take to activate a veth; usually less than a second.
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
        /// Keeps the stack behind the far end silent.
        _quiet: Option<Quiet>,
    },
}

impl HostInterface {
    /// What keeps it there, whatever becomes of this; `None` for a veth, which stays until it is deleted.
    pub(crate) fn hold(&self) -> std::io::Result<Option<TapQueue>> {
        match &self.kind {
            HostEnd::Tap(tap) => tap.hold().map(Some),
            HostEnd::Veth { .. } => Ok(None),
        }
    }
}

impl Drop for HostInterface {
    /// Dropped after its ports are closed: a TAP vanishes with them, a veth is deleted here.
    fn drop(&mut self) {
        if let HostEnd::Veth { .. } = self.kind {
            let _ = sys::netlink::link::delete(&far_end_of(&self.name));
        }
    }
}

/// The host's ports.
pub(crate) enum Hosts {
    Tap(Queues<TapHost>),
    Veth(Queues<VethHost>),
}

impl Hosts {
    /// Number of queues.
    pub(crate) fn queues(&self) -> usize {
        match self {
            Hosts::Tap(queues) => queues.len(),
            Hosts::Veth(queues) => queues.len(),
        }
    }
}

impl Hosts {
    /// Finds out which aggregates the kernel refuses, so that they are not made.
    fn try_aggregates(&mut self, notices: &mut Vec<String>) {
        match self {
            Hosts::Tap(queues) => {
                let kinds = queues.refused_kinds(notices);
                queues.each(|host| host.set_refuses(kinds));
            }
            Hosts::Veth(queues) => {
                let kinds = queues.refused_kinds(notices);
                queues.each(|host| host.set_refuses(kinds));
            }
        }
    }
}

/// Distribution of the host's queues over the workers.
pub(crate) enum Queues<H> {
    /// Each worker has its own.
    Own(Vec<H>),
    /// Several workers share each: one of them reads by the first port, a scheduler writes by the
    /// second.
    Shared(Vec<(H, H)>),
}

impl<H: Host> Queues<H> {
    fn refused_kinds(&mut self, notices: &mut Vec<String>) -> AggregateKinds {
        let first = match self {
            Queues::Own(hosts) => hosts.first_mut(),
            Queues::Shared(ports) => ports.first_mut().map(|(_, writes)| writes),
        };
        first.map_or(AggregateKinds::NONE, |host| selftest::refused_kinds(host, notices))
    }
}

impl<H> Queues<H> {
    fn each(&mut self, mut work: impl FnMut(&mut H)) {
        match self {
            Queues::Own(hosts) => hosts.iter_mut().for_each(work),
            Queues::Shared(ports) => ports.iter_mut().for_each(|(reads, writes)| {
                work(reads);
                work(writes);
            }),
        }
    }

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
    let (mut host, mut hosts) =
        make(name, config, far_mtu, queues, shared, "the host port", notices)?;
    let mut ready = || -> sys::Result<u32> {
        if let Some(mac) = wire.mac {
            interface::set_mac(name, mac)?;
        }
        interface::set_mtu(name, at_most(mtu, &Interface::by_name(name)?, notices))?;
        // An error counts only if the setting is not the kernel's default.
        if config.gso.max_burst != Config::default().gso.max_burst {
            interface::set_gso_max_size(name, config.gso.max_burst + 1)?;
        }
        interface::set_up(name)?;
        if let HostEnd::Veth { .. } = host.kind {
            wait_for_veth(name)?;
        }
        interface::index(name)
    };
    host.index = ready()?;
    hosts.try_aggregates(notices);
    Ok((host, hosts))
}

/// An interface by `host.kind`, which is not up yet; a veth's far end takes packets of `mtu` bytes.
/// `role` is what a notice calls it.
pub(crate) fn make(
    name: &str,
    config: &Config,
    mtu: u32,
    queues: usize,
    shared: bool,
    role: &str,
    notices: &mut Vec<String>,
) -> Result<(HostInterface, Hosts), Error> {
    match config.host.kind {
        HostKind::Veth => make_veth(name, mtu, queues, shared),
        kind => match Tap::create(name, queues as u16) {
            Ok(tap) => from_tap(tap, shared),
            Err(error @ (TapError::NoDevice | TapError::DevicePermission))
                if kind == HostKind::Auto =>
            {
                notices.push(format!("no TAP ({error}); {role} is a veth"));
                make_veth(name, mtu, queues, shared)
            }
            Err(error) => Err(error.into()),
        },
    }
}

/// The host's MTU in bytes. An MTU over the wire's lets the host hand over datagrams that become fragments;
/// with that turned off, its own IP makes them. IPv6 is disabled by the kernel on an interface with an MTU
/// under 1,280.
pub(crate) fn host_mtu(config: &Config, wire_mtu: u32) -> u32 {
    let wanted = if config.host.mtu == 0 { wire_mtu } else { config.host.mtu };
    let most = match config.gso.enable && config.gso.udp {
        true => config.gso.max_burst,
        false => IPV6_LEAST_MTU,
    };
    wanted.min(most.max(wire_mtu))
}

/// The MTU that the host's interface gets when `mtu` is asked for: a TAP's IP packet and its Ethernet header
/// together are at most 65,535 bytes (`tun_net_initialize`).
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

/// Waits until both ends of a veth pair are operational. A kernel thread gives them their queueing
/// disciplines some time after they are up, and until then packets are lost silently.
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

fn from_tap(mut tap: Tap, shared: bool) -> Result<(HostInterface, Hosts), Error> {
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

/// The name of the far end of the veth that is the host interface `name`, if it is one.
pub fn far_end_of(name: &str) -> String {
    format!("{}~", name.chars().take(13).collect::<String>())
}

/// Makes a veth pair: `name` for the host, and a far end for wharf, which is deleted with `name` and takes
/// packets of `mtu` bytes.
fn make_veth(
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
        // Only wharf uses the far end: the host must not receive router solicitations of the kernel there.
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
