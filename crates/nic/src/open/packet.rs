//! A wire by AF_PACKET.

use std::io;

use sys::frames::FramePool;
use sys::interface::Interface;
use sys::packet::PacketSocket;

use super::{FANOUT_GROUP, LINK_OVERHEAD};
use crate::config::{Config, GsoHardware};
use crate::error::Error;
use crate::port::hardware::Hardware;
use crate::port::packet::PacketWire;
use crate::quiet::Quiet;
use crate::selftest;

/// A port, and the memory of its frames.
pub(super) type Port = (PacketWire, FramePool);

/// AF_PACKET ports, one for each worker, and the guard that keeps the stack behind the wire silent.
///
/// # Errors
/// Why the wire cannot be opened.
pub(super) fn open(
    info: &Interface,
    config: &Config,
    hardware: Hardware,
    notices: &mut Vec<String>,
) -> Result<(Vec<Port>, Option<Quiet>), Error> {
    let workers = config.workers.max(1);
    let chunk = chunk(info.mtu);
    let fanout = (workers > 1).then_some(sys::packet::Fanout {
        group: FANOUT_GROUP ^ info.index as u16,
        members: workers,
    });
    let pools: Vec<_> = (0..workers)
        .map(|_| FramePool::new(config.wire.frames_of_each(workers), chunk))
        .collect::<Result<_, _>>()
        .map_err(Error::Worker)?;
    // First, or packets that arrive in between are delivered twice. Now they are lost, as on a card that is
    // not up yet.
    let leave_configuration = config.wire.leave_configuration;
    let quiet =
        if leave_configuration { but_configuration(info, notices) } else { quiet(info, notices) };
    let config_of_socket =
        sys::packet::Config { fanout, leave_configuration, ..sys::packet::Config::default() };
    let wire = |pool| Ok((port(info, config_of_socket, hardware)?, pool));
    let wires = pools.into_iter().map(wire).collect::<Result<_, Error>>()?;
    Ok((wires, quiet))
}

/// What the interface cuts, and as it should. To be asked before the wire is received from, as the self-test sends.
pub(super) fn hardware(info: &Interface, config: &Config, notices: &mut Vec<String>) -> Hardware {
    let hardware = Hardware::read(&info.name);
    match config.gso.hardware {
        GsoHardware::Auto => selftest::passed(info, hardware, notices),
        // It may be turned on later.
        GsoHardware::Kernel | GsoHardware::Off => hardware,
    }
}

/// AF_PACKET ports that only send.
///
/// # Errors
/// What stands in the way.
pub(super) fn senders(
    info: &Interface,
    count: usize,
    hardware: Hardware,
) -> Result<Vec<PacketWire>, Error> {
    let config = sys::packet::Config { send_only: true, ..sys::packet::Config::default() };
    (0..count).map(|_| port(info, config, hardware)).collect()
}

/// Bytes of a frame's memory for packets of this MTU, with AF_PACKET.
pub(crate) fn chunk(mtu: u32) -> u32 {
    let needed = mtu + LINK_OVERHEAD + sys::packet::HEADROOM as u32;
    needed.next_power_of_two().clamp(sys::frames::MIN_CHUNK_SIZE, sys::frames::MAX_CHUNK_SIZE)
}

/// One AF_PACKET port.
pub(super) fn port(
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

/// Silences the stack behind an interface. To be called before a packet socket receives, or packets that
/// arrive in between are delivered twice.
pub(super) fn quiet(info: &Interface, notices: &mut Vec<String>) -> Option<Quiet> {
    silenced(info, Quiet::new(&info.name), notices)
}

/// The same, except for packets with which the stack configures itself: DHCP and router advertisements.
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
    let mut notify =
        |why| notices.push(format!("the kernel may answer on {} as well: {why}", info.name));
    match quiet {
        Ok(quiet) => {
            quiet.gap().into_iter().for_each(notify);
            Some(quiet)
        }
        Err(error) => {
            notify(error.to_string());
            None
        }
    }
}
