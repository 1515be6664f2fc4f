//! What a worker goes by, and how the rest of the process changes it.

use std::io;

use sys::frames::FramePool;

use super::{Lanes, zero};
use crate::capture::live::Captures;
use crate::config::{Config, GsoHardware};
use crate::counters::Published;
use crate::port::Limits;

/// What a worker goes by.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) config: Config,
    /// Of the wire, in bytes of IP packet.
    pub(super) mtu: u32,
    /// What is copied of what passes the wire, for those who look.
    pub(super) captures: Captures,
}

impl Settings {
    pub(super) fn limits(&self, lanes: Lanes) -> Limits {
        let hardware = match (lanes, self.config.gso.hardware) {
            // What is the engine's own cannot be wrong, and the kernel cuts in one go what it sends in one go.
            (Lanes::Engine, GsoHardware::Auto) => GsoHardware::Kernel,
            (_, hardware) => hardware,
        };
        Limits { mtu: self.mtu as usize, hardware }
    }

    /// The host lane's. However much LRO holds, the wire must find memory to receive into.
    pub(super) fn host_lro(&self, lanes: Lanes, pool: &FramePool) -> lro::Config {
        lro::Config { held_frames: held_frames(lanes, pool), ..self.config.lro() }
    }

    /// The engine lane's; `None` if it is turned off. Nothing that the engine takes goes on to others.
    pub(super) fn engine_lro(&self, lanes: Lanes, pool: &FramePool) -> Option<lro::Config> {
        self.config.lro.enable.then(|| lro::Config {
            held_frames: held_frames(lanes, pool),
            profile: lro::Profile::Endpoint,
            active_ack: lro::ActiveAck::Off,
            udp: false,
            ..self.config.lro()
        })
    }
}

/// Frames that the LRO of one lane may hold: three eighths of the pool for all lanes. Half of it may wait on the wire
/// at most; the rest is to send from.
pub(super) fn held_frames(lanes: Lanes, pool: &FramePool) -> usize {
    let lanes = if lanes == Lanes::Both { 2 } else { 1 };
    pool.capacity() * 3 / 8 / lanes
}

/// What a worker shares with the rest of the process.
pub type Handle = crate::handle::Handle<Settings, Published>;

/// That of a worker with a host lane alone, which starts with `config` on a wire of this MTU in bytes.
///
/// # Errors
/// What `eventfd` says.
pub fn handle(config: Config, mtu: u32) -> io::Result<Handle> {
    handle_of(Lanes::Host, config, mtu)
}

/// The same of a worker with these lanes.
///
/// # Errors
/// What `eventfd` says.
pub(crate) fn handle_of(lanes: Lanes, config: Config, mtu: u32) -> io::Result<Handle> {
    Handle::new(
        Settings { config, mtu, captures: Captures::default() },
        Published::new(zero(lanes)),
    )
}

impl Handle {
    /// Gives the worker a new configuration, which it takes up before its next packet.
    pub fn reconfigure(&self, config: &Config) {
        self.change(|settings| settings.config = config.clone());
    }

    /// Tells the worker the wire's MTU in bytes, which it goes by from its next packet on.
    pub fn set_mtu(&self, mtu: u32) {
        self.change(|settings| settings.mtu = mtu);
    }

    /// Tells the worker what is to be captured from its next packet on.
    pub(crate) fn set_captures(&self, captures: &Captures) {
        self.change(|settings| settings.captures = captures.clone());
    }
}
