//! What can be configured: one [table of keys](KEYS) that the TOML file, `--set` and `wharf set`
//! all read, and the typed values that the rest of wharf works with.
//!
//! A key's name, default, range and help stand in the table and nowhere else.
//!
//! ```
//! use nic::config::Config;
//! let mut config = Config::from_toml("wharf.toml", "lro.max_timeout = \"50us\"")?;
//! assert_eq!(config.lro.max_timeout, 50_000);
//! config.set_at_run_time("lro.enable", "false")?;
//! assert_eq!(config.get("lro.enable")?, "false");
//! # Ok::<(), nic::config::ConfigError>(())
//! ```

mod error;
#[macro_use]
mod fields;
mod file;
mod keys;
mod table;
mod tcp;
mod value;

use ::handoff::policy::{LoadSettings, Policy};

use crate::entropy;

pub use error::ConfigError;
pub(crate) use error::closest;
pub(crate) use file::position;
pub use keys::{Key, Kind, Unit};
pub use table::KEYS;
pub use tcp::Tcp;
pub use value::{
    AccessMode, Choice, GsoHardware, HostKind, LroProfile, Order, WireMode, XdpMode, ZeroCopy,
};

/// All settings, typed; the fields are grouped and named as the [keys](KEYS) are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `workers`: threads that move packets; 0 for one per wire queue.
    pub workers: u32,
    /// `wire.*`
    pub wire: Wire,
    /// `host.*`
    pub host: Host,
    /// `lro.*`
    pub lro: Lro,
    /// `gso.*`
    pub gso: Gso,
    /// `tcp.*`
    pub tcp: Tcp,
    /// Connections of the host's that the NIC runs.
    pub handoff: Handoff,
    /// `poll.*`
    pub poll: Poll,
    /// `control.*`
    pub control: Access,
}

/// The port to the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// `wire.mode`: which kernel interface moves the frames.
    pub mode: WireMode,
    /// `wire.transmit`: which one sends them, where AF_XDP receives.
    pub transmit: WireMode,
    /// `wire.xdp`: where the XDP program runs.
    pub xdp: XdpMode,
    /// `wire.zero_copy`: whether the driver may use wharf's memory itself.
    pub zero_copy: ZeroCopy,
    /// `wire.frames`: frames of memory per worker; see [`frames_of_each`](Self::frames_of_each).
    pub frames: u32,
    /// `wire.ring`: descriptors in each AF_XDP ring; see [`ring_within`](Self::ring_within).
    pub ring: u32,
    /// No key: whether what configures the wire (DHCP to a client, router advertisements) is left to
    /// its own stack, as it must be where the wire's owner goes on renewing addresses that the
    /// [`mirror`](crate::mirror) then moves.
    pub leave_configuration: bool,
}

/// The port to the host's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// `host.kind`: what the host's interface is made of.
    pub kind: HostKind,
    /// `host.mtu` in bytes; 0 for the wire's.
    pub mtu: u32,
    /// `host.queues`: queues of the host's interface; 0 for one per worker.
    pub queues: u32,
    /// No key: which worker's packet is next where several share a queue. [`Order::Lifo`] is for
    /// `wharf bench fairness`, which shows what it does to connections.
    pub scheduler: Order,
    /// `host.requests`: packets of a worker that may wait for a shared queue before the worker
    /// leaves the wire alone.
    pub requests: u32,
}

/// Large receive offload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lro {
    /// `lro.enable`
    pub enable: bool,
    /// `lro.profile`: which segments may become one.
    pub profile: LroProfile,
    /// `lro.max_aggregate`: bytes of IP packet.
    pub max_aggregate: u32,
    /// `lro.max_segments`
    pub max_segments: u32,
    /// `lro.timeout_factor`
    pub timeout_factor: u32,
    /// `lro.min_timeout` in nanoseconds.
    pub min_timeout: u64,
    /// `lro.max_timeout` in nanoseconds.
    pub max_timeout: u64,
    /// `lro.hole_timeout` in nanoseconds.
    pub hole_timeout: u64,
    /// `lro.flush_on_psh`
    pub flush_on_psh: bool,
    /// `lro.active_ack`: acknowledge what is held, or do not.
    pub active_ack: lro::ActiveAck,
    /// No key: acknowledge what is held as the paper does, whatever `active_ack` says. It is for
    /// benches that show the paper's design: with its window of 0xFFFF a host loses data for which it
    /// has no room.
    pub paper_ack: bool,
    /// `lro.udp`: join datagrams, too.
    pub udp: bool,
    /// `lro.flows`: connections remembered per worker.
    pub flows: u32,
}

/// Generic segmentation offload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gso {
    /// `gso.enable`
    pub enable: bool,
    /// `gso.tcp`
    pub tcp: bool,
    /// `gso.udp`
    pub udp: bool,
    /// `gso.max_burst`: bytes of super-packet.
    pub max_burst: u32,
    /// `gso.hardware`: who cuts what the wire's interface could.
    pub hardware: GsoHardware,
}

/// Connections of the host's that the NIC runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// `handoff.policy`: what applies to programs that have none of their own.
    pub policy: Policy,
    /// `handoff.connections`; 0 for none.
    pub connections: u32,
    /// `handoff.connections_per_uid`; 0 for no bound.
    pub connections_per_uid: u32,
    /// `handoff.sessions_per_uid`; 0 for no bound.
    pub sessions_per_uid: u32,
    /// `handoff.buffer` in bytes.
    pub buffer: u32,
    /// `handoff.bypass_firewall`
    pub bypass_firewall: bool,
    /// `handoff.load`: how many there are follows the load.
    pub load: bool,
    /// `handoff.load_low` and `handoff.load_high`, in frames that wait.
    pub load_low: u32,
    /// See `load_low`.
    pub load_high: u32,
    /// `handoff.load_busy` in percent.
    pub load_busy: u32,
}

/// How workers wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    /// `poll.spin` in nanoseconds: how long to look before sleeping.
    pub spin: u64,
    /// `poll.batch`: frames per turn.
    pub batch: usize,
}

/// Who may ask a wharf that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `control.mode`: the mode of the socket's file.
    pub mode: AccessMode,
    /// `control.group`: the number of the file's group.
    pub group: u32,
}

/// Frames of all workers, where `wire.frames` does not say how many: a few tens for each of a thousand connections.
const FRAMES: u32 = 65_536;
/// Frames of one worker at least, where it does not say.
const LEAST_FRAMES: u32 = 16_384;
/// The largest ring that AF_XDP is asked for.
const LARGEST_RING: u32 = 32_768;

impl Handoff {
    /// By what the number of connections follows the load; `None` if it does not. A low mark that is above the high one
    /// is as that.
    pub(crate) fn load(&self) -> Option<LoadSettings> {
        let (low, high, busy) = (self.load_low.min(self.load_high), self.load_high, self.load_busy);
        self.load.then(|| LoadSettings { low, high, busy, ..LoadSettings::default() })
    }
}

impl Wire {
    /// Frames of memory that each of so many workers has, a power of two.
    pub fn frames_of_each(&self, workers: u32) -> u32 {
        match self.frames {
            0 => (FRAMES >> workers.max(1).ilog2()).max(LEAST_FRAMES),
            frames => frames,
        }
    }

    /// Descriptors in the ring of a worker that has so many frames. Some are left to send from, and for LRO to hold.
    pub fn ring_within(&self, frames: u32) -> u32 {
        match self.ring {
            0 => (frames / 2).min(LARGEST_RING),
            ring => ring.min(frames / 2),
        }
    }
}

impl Default for Config {
    /// Every key at the default that the [table](KEYS) gives.
    fn default() -> Self {
        let mut config = Config {
            workers: 0,
            wire: Wire {
                mode: WireMode::Auto,
                transmit: WireMode::Auto,
                xdp: XdpMode::Auto,
                zero_copy: ZeroCopy::Auto,
                frames: 0,
                ring: 0,
                leave_configuration: false,
            },
            host: Host {
                kind: HostKind::Auto,
                mtu: 0,
                queues: 0,
                scheduler: Order::RoundRobin,
                requests: 0,
            },
            lro: Lro {
                enable: false,
                profile: LroProfile::Auto,
                max_aggregate: 0,
                max_segments: 0,
                timeout_factor: 0,
                min_timeout: 0,
                max_timeout: 0,
                hole_timeout: 0,
                active_ack: lro::ActiveAck::Off,
                paper_ack: false,
                udp: false,
                flush_on_psh: false,
                flows: 0,
            },
            gso: Gso {
                enable: false,
                tcp: false,
                udp: false,
                max_burst: 0,
                hardware: GsoHardware::Auto,
            },
            tcp: Tcp::blank(),
            handoff: Handoff {
                policy: Policy::default(),
                connections: 0,
                connections_per_uid: 0,
                sessions_per_uid: 0,
                buffer: 0,
                bypass_firewall: false,
                load: false,
                load_low: 0,
                load_high: 0,
                load_busy: 0,
            },
            poll: Poll { spin: 0, batch: 0 },
            control: Access { mode: AccessMode::All, group: 0 },
        };
        for key in KEYS {
            key.set_default(&mut config);
        }
        config
    }
}

impl Config {
    /// Sets `key` to what `value` says, before wharf runs.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        find(key)?.set(self, value)
    }

    /// Sets `key` while wharf runs; refuses those that are fixed from the start.
    pub fn set_at_run_time(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let key = find(key)?;
        if !key.run_time {
            return Err(ConfigError::Fixed { key: key.name });
        }
        key.set(self, value)
    }

    /// The value of `key`, written as [`set`](Self::set) reads it.
    pub fn get(&self, key: &str) -> Result<String, ConfigError> {
        Ok(find(key)?.get(self))
    }

    /// Reads a configuration file's `text`; keys may be dotted (`lro.enable = true`) or in tables
    /// (`[lro]`), those not named keep their defaults. Errors name `file`, line and column.
    pub fn from_toml(file: &str, text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        file::read(&mut config, file, text)?;
        Ok(config)
    }

    /// Every key with its value, in the order of the [table](KEYS).
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, String)> + '_ {
        KEYS.iter().map(|key| (key, key.get(self)))
    }

    /// What the LRO core of one worker is to do. It may hold a quarter of the worker's frames,
    /// so that both rings of the wire never run dry. Each call draws keys for the flow hash that
    /// outsiders cannot know; captures need them as live traffic does. Where `wire.frames` does not say
    /// how many there are, they are those of one of many workers. The profile `auto` is
    /// `endpoint` here, as for captures and benches; a NIC that runs says which it is
    /// ([`for_a_host`](Self::for_a_host)).
    pub fn lro(&self) -> lro::Config {
        lro::Config {
            profile: match self.lro.profile {
                LroProfile::Auto | LroProfile::Endpoint => lro::Profile::Endpoint,
                LroProfile::Lossless => lro::Profile::Lossless,
            },
            max_aggregate: self.lro.max_aggregate,
            max_segments: self.lro.max_segments,
            timeout_factor: self.lro.timeout_factor,
            min_timeout: self.lro.min_timeout,
            max_timeout: self.lro.max_timeout,
            hole_timeout: self.lro.hole_timeout,
            min_hole_timeout: 0,
            flush_on_psh: self.lro.flush_on_psh,
            // What goes by unseen, its SYNs among it, is not to be spoken for.
            active_ack: match (self.lro.enable, self.lro.paper_ack) {
                (false, _) => lro::ActiveAck::Off,
                (true, true) => lro::ActiveAck::Paper,
                (true, false) => self.lro.active_ack,
            },
            udp: self.lro.udp,
            flows: self.lro.flows as usize,
            held_frames: self.wire.frames_of_each(u32::MAX) as usize / 4,
            flow_hash: entropy::flow_hash(),
        }
    }

    /// The same where the profile `auto` has become what it is on a host that forwards the packets
    /// of others, or does not. What is forwarded is to leave as it came, so nothing is acknowledged
    /// in the name of those who wait for it either. Another profile stays as it is.
    pub fn for_a_host(&self, forwards: bool) -> Config {
        let mut config = self.clone();
        match (self.lro.profile, forwards) {
            (LroProfile::Auto, true) => {
                config.lro.profile = LroProfile::Lossless;
                config.lro.active_ack = lro::ActiveAck::Off;
                config.lro.paper_ack = false;
            }
            (LroProfile::Auto, false) => config.lro.profile = LroProfile::Endpoint,
            (LroProfile::Endpoint | LroProfile::Lossless, _) => {}
        }
        config
    }
}

/// The table's entry for `key`, whose words are joined by `_`, or by `-` as on a command line.
fn find(key: &str) -> Result<&'static Key, ConfigError> {
    KEYS.iter().find(|known| degen::keys::is_same(known.name, key)).ok_or_else(|| {
        ConfigError::UnknownKey {
            key: key.to_owned(),
            closest: closest(key, KEYS.iter().map(|known| known.name)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_what_it_writes() {
        let mut config = Config::default();
        for key in KEYS {
            let value = config.get(key.name).unwrap();
            assert_eq!(value, key.default_text());
            config.set(key.name, &value).unwrap();
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn every_key_has_its_own_name_and_field() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[at + 1..].iter().all(|other| other.name != key.name));
            let other = match key.kind {
                Kind::Bool { default } => (!default).to_string(),
                Kind::Choice { names, .. } => names[names.len() - 1].to_owned(),
                Kind::Policy { .. } => "at_accept ports=80".to_owned(),
                Kind::Number { max, default, min, .. } if max == default => min.to_string(),
                Kind::Number { max, unit: Unit::Nanoseconds, .. } => format!("{max}ns"),
                Kind::Number { max, .. } => max.to_string(),
            };
            let mut config = Config::default();
            config.set(key.name, &other).unwrap();
            let changed: Vec<_> = config
                .entries()
                .filter(|(key, value)| *value != key.default_text())
                .map(|(key, _)| key.name)
                .collect();
            assert_eq!(changed, [key.name], "set to {other}");
        }
    }

    #[test]
    fn what_the_lro_core_gets_are_the_defaults_it_has_itself() {
        let ours = Config::default().lro();
        let theirs = lro::Config::default();
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn a_fixed_key_does_not_change_at_run_time() {
        let mut config = Config::default();
        let error = config.set_at_run_time("wire.frames", "2048").unwrap_err();
        assert_eq!(error, ConfigError::Fixed { key: "wire.frames" });
        config.set_at_run_time("poll.spin", "5us").unwrap();
        assert_eq!(config.poll.spin, 5_000);
    }

    #[test]
    fn a_misspelt_key_is_told_the_closest() {
        let closest = |key: &str| match Config::default().get(key) {
            Err(ConfigError::UnknownKey { closest, .. }) => closest,
            other => panic!("{other:?}"),
        };
        assert_eq!(closest("lro.enabel"), Some("lro.enable"));
        assert_eq!(closest("max_timeout"), Some("lro.max_timeout"));
        assert_eq!(closest("LRO.Flush_On_PSH"), Some("lro.flush_on_psh"));
        assert_eq!(closest("wire.zerocopy"), Some("wire.zero_copy"));
        assert_eq!(closest("colour"), None);
    }

    #[test]
    fn values_outside_the_range_are_told_the_range() {
        let refused =
            |key: &str, value: &str| Config::default().set(key, value).unwrap_err().to_string();
        let says = |key: &str, value: &str, part: &str| {
            let words = refused(key, value);
            assert!(words.contains(part) && words.contains(key), "{words}");
        };
        says("lro.max_aggregate", "70000", "1500 to 65535");
        says("lro.max_timeout", "1s", "1us to 100ms");
        says("wire.frames", "3000", "power of two");
        says("host.mtu", "500", "0 (the wire's) or 576 to 65535");
        says("workers", "-1", "whole number");
        says("workers", "99999999999999999999", "whole number");
        says("lro.max_timeout", "100", "unit");
        says("lro.enable", "yes", "true or false");
        says("lro.profile", "router", "auto, endpoint or lossless");
    }

    /// The designs that the papers compare theirs with, or that lose data, are for benches.
    #[test]
    fn what_only_shows_the_papers_is_no_setting() {
        let refused = Config::default().set("host.scheduler", "lifo").unwrap_err();
        assert!(matches!(refused, ConfigError::UnknownKey { .. }), "{refused}");
        let refused = Config::default().set("lro.active_ack", "paper").unwrap_err().to_string();
        assert!(refused.ends_with("it is off or safe"), "{refused}");
        for text in ["host.scheduler = \"lifo\"", "lro.active_ack = \"paper\""] {
            Config::from_toml("wharf.toml", text).unwrap_err();
        }
        let mut config = Config::default();
        config.lro.paper_ack = true;
        assert_eq!(config.lro().active_ack, lro::ActiveAck::Paper);
        assert_eq!(config.for_a_host(true).lro().active_ack, lro::ActiveAck::Off);
        config.set("lro.enable", "false").unwrap();
        assert_eq!(config.lro().active_ack, lro::ActiveAck::Off);
    }

    #[test]
    fn zero_is_allowed_where_it_means_something() {
        let mut config = Config::default();
        config.set("host.mtu", "9000").unwrap();
        config.set("host.mtu", "0").unwrap();
        config.set("poll.spin", "0").unwrap();
        assert_eq!((config.host.mtu, config.poll.spin), (0, 0));
        assert_eq!(config.lro().hole_timeout, 2_000_000);
        config.set_at_run_time("lro.hole_timeout", "0").unwrap();
        assert_eq!(config.lro().hole_timeout, 0);
    }

    #[test]
    fn only_auto_goes_by_whether_the_host_forwards() {
        let mut config = Config::default();
        config.set("lro.active_ack", "safe").unwrap();
        let as_on = |config: &Config, forwards| {
            let lro = config.for_a_host(forwards).lro();
            (lro.profile, lro.active_ack)
        };
        let (off, safe) = (lro::ActiveAck::Off, lro::ActiveAck::Safe);
        assert_eq!(as_on(&config, true), (lro::Profile::Lossless, off));
        assert_eq!(as_on(&config, false), (lro::Profile::Endpoint, safe));
        for (name, profile) in
            [("endpoint", lro::Profile::Endpoint), ("lossless", lro::Profile::Lossless)]
        {
            config.set("lro.profile", name).unwrap();
            assert_eq!([true, false].map(|on| as_on(&config, on)), [(profile, safe); 2]);
        }
    }
}
