//! Opening the two interfaces of a bridge, with one frame memory for both.

use sys::frames::FramePool;
use sys::interface::Interface;
use sys::packet::{Filter, Membership};

use super::held::Held;
use super::{packet, xdp};
use crate::config::{GsoHardware, WireMode};
use crate::error::Error;
use crate::features::Suited;
use crate::port::packet::PacketWire;
use crate::port::xdp::XdpWire;
use crate::port::{Limits, Wire};
use crate::queues::Served;

/// Ports, one for each queue of each interface.
pub(crate) enum Wires {
    Xdp([Vec<XdpWire>; 2]),
    Packet([Vec<PacketWire>; 2]),
}

impl Wires {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Wires::Xdp(_) => "AF_XDP",
            Wires::Packet(_) => "AF_PACKET",
        }
    }
}

/// Both interfaces, open.
pub(crate) struct Ends {
    pub(crate) wires: Wires,
    pub(crate) pool: FramePool,
    pub(crate) held: Vec<Held>,
}

impl Ends {
    /// By AF_XDP where both interfaces are cards and it works, else by AF_PACKET, unless `mode` chooses. On a
    /// veth AF_XDP does not see the VLAN tags that the peer leaves to its card.
    pub(crate) fn open(
        interfaces: &[Interface; 2],
        frames: u32,
        mode: WireMode,
        notices: &mut Vec<String>,
    ) -> Result<Ends, Error> {
        let [one, other] = interfaces;
        if one.mtu != other.mtu {
            notices.push(format!(
                "frames that are longer than the smaller MTU are lost: {} has {} bytes, {} has {}",
                one.name, one.mtu, other.name, other.mtu
            ));
        }
        let cards = interfaces.iter().all(|info| info.kind.is_none());
        match mode {
            WireMode::Xdp => Ends::by_xdp(interfaces, frames, notices),
            WireMode::Auto if cards => Ends::by_xdp(interfaces, frames, notices).or_else(|error| {
                notices.push(match error {
                    Error::Xdp { name, why } => {
                        format!("no AF_XDP on {name}: {why}; using AF_PACKET")
                    }
                    other => format!("{other}; using AF_PACKET"),
                });
                Ends::by_packet(interfaces, frames, notices)
            }),
            _ => Ends::by_packet(interfaces, frames, notices),
        }
    }

    fn by_xdp(
        [one, other]: &[Interface; 2],
        frames: u32,
        notices: &mut Vec<String>,
    ) -> Result<Ends, Error> {
        let chunk = xdp::chunk(one)?.max(xdp::chunk(other)?);
        // Queues that start late would have no memory to receive into.
        let least = xdp::least_frames([one, other]);
        if frames < least {
            notices.push(format!(
                "{frames} frames are too few for all queues of {} and {}; there are {least}",
                one.name, other.name
            ));
        }
        let frames = frames.max(least);
        let mut pool = memory(frames, chunk)?;
        let mut held = Vec::new();
        let mut open = |info: &Interface| {
            let (mut wires, redirect) = xdp::open_stamping(info, &mut pool, frames)?;
            let limits = Limits { mtu: info.mtu as usize, hardware: GsoHardware::Off };
            wires.iter_mut().for_each(|wire| wire.configure(limits));
            held.push(Held {
                _membership: Some(promiscuous(info)?),
                _suited: Suited::to_xdp(info, notices),
                quiet: None,
                _redirect: Some(redirect),
                served: Some(Served::by(info, wires.len())),
            });
            Ok::<_, Error>(wires)
        };
        let wires = Wires::Xdp([open(one)?, open(other)?]);
        Ok(Ends { wires, pool, held })
    }

    fn by_packet(
        [one, other]: &[Interface; 2],
        frames: u32,
        notices: &mut Vec<String>,
    ) -> Result<Ends, Error> {
        let chunk = packet::chunk(one.mtu.max(other.mtu));
        let pool = memory(frames, chunk)?;
        let mut held = Vec::new();
        let mut open = |info: &Interface| {
            let quiet = packet::quiet(info, notices);
            let config = sys::packet::Config { stamps: true, ..Default::default() };
            let wire = packet::port(info, config, Default::default())?;
            held.push(Held {
                _membership: Some(promiscuous(info)?),
                _suited: Suited::to_packet(info, notices),
                quiet,
                _redirect: None,
                served: None,
            });
            Ok::<_, Error>(vec![wire])
        };
        let wires = Wires::Packet([open(one)?, open(other)?]);
        Ok(Ends { wires, pool, held })
    }
}

fn memory(frames: u32, chunk: u32) -> Result<FramePool, Error> {
    let bytes = u64::from(frames) * u64::from(chunk);
    FramePool::new(frames, chunk).map_err(|cause| Error::Memory { frames, bytes, cause })
}

/// Receives frames for other stations as well.
fn promiscuous(info: &Interface) -> Result<Membership, Error> {
    Membership::hold(info.index, Filter::Promiscuous)
        .map_err(|cause| Error::Packet { name: info.name.clone(), cause })
}
