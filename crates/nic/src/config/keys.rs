//! The table of keys.

use super::value::{Choice, format_duration, parse_duration};
use super::{Config, ConfigError, GsoHardware, HostKind, Order, WireMode, XdpMode, ZeroCopy};

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// Its name, group first: `lro.max_timeout`.
    pub name: &'static str,
    /// What it takes, and its default.
    pub kind: Kind,
    /// It may change while wharf runs.
    pub run_time: bool,
    /// What it is for, in one line, with its source where it has one.
    pub help: &'static str,
    field: Field,
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool {
        /// The default.
        default: bool,
    },
    /// A whole number.
    Number {
        /// The default.
        default: u64,
        /// The smallest allowed, but for a 0 that means something of its own.
        min: u64,
        /// The largest allowed.
        max: u64,
        /// What it counts.
        unit: Unit,
        /// Only powers of two.
        power_of_two: bool,
        /// What 0 means, where it is outside the range.
        zero: Option<&'static str>,
    },
    /// One of a few names.
    Choice {
        /// Place of the default in `names`.
        default: usize,
        /// The names, in the order of the type's [`Choice::VALUES`].
        names: &'static [&'static str],
    },
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds, written with a unit: `100us`.
    Nanoseconds,
}

/// How to reach the key's field: booleans are 0 and 1, choices their place among the names.
#[derive(Debug)]
struct Field {
    get: fn(&Config) -> u64,
    set: fn(&mut Config, u64),
}

/// A field that holds a number. What is set has been found in range, so the cast keeps it.
macro_rules! number {
    ($($field:ident).+) => {
        Field { get: |c| c.$($field).+ as u64, set: |c, value| c.$($field).+ = value as _ }
    };
}

/// A field that holds a boolean.
macro_rules! boolean {
    ($($field:ident).+) => {
        Field { get: |c| u64::from(c.$($field).+), set: |c, value| c.$($field).+ = value != 0 }
    };
}

/// A field that holds a [`Choice`].
macro_rules! choice {
    ($($field:ident).+) => {
        Field {
            get: |c| c.$($field).+.index() as u64,
            set: |c, value| c.$($field).+ = Choice::VALUES[value as usize],
        }
    };
}

const fn number(default: u64, min: u64, max: u64, unit: Unit) -> Kind {
    Kind::Number { default, min, max, unit, power_of_two: false, zero: None }
}

const fn power_of_two(default: u64, min: u64, max: u64) -> Kind {
    Kind::Number { default, min, max, unit: Unit::Count, power_of_two: true, zero: None }
}

const fn zero_or(zero: &'static str, min: u64, max: u64, unit: Unit) -> Kind {
    Kind::Number { default: 0, min, max, unit, power_of_two: false, zero: Some(zero) }
}

/// A choice whose default is the first.
const fn first_of<T: Choice>() -> Kind {
    Kind::Choice { default: 0, names: T::NAMES }
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Every setting of wharf.
pub static KEYS: &[Key] = &[
    Key {
        name: "workers",
        kind: zero_or("one per wire queue", 1, 64, Unit::Count),
        run_time: false,
        help: "threads that move packets, each with one wire queue and one host queue (the \
               paper's multiple Rx rings)",
        field: number!(workers),
    },
    Key {
        name: "wire.mode",
        kind: first_of::<WireMode>(),
        run_time: false,
        help: "kernel interface to the wire: AF_XDP or AF_PACKET; auto takes AF_XDP where it \
               works",
        field: choice!(wire.mode),
    },
    Key {
        name: "wire.xdp",
        kind: first_of::<XdpMode>(),
        run_time: false,
        help: "where the XDP program runs: in the driver or in the kernel's generic path",
        field: choice!(wire.xdp),
    },
    Key {
        name: "wire.zero_copy",
        kind: first_of::<ZeroCopy>(),
        run_time: false,
        help: "whether the driver may use wharf's memory itself (XDP_ZEROCOPY)",
        field: choice!(wire.zero_copy),
    },
    Key {
        name: "wire.frames",
        kind: power_of_two(16_384, 1024, 131_072),
        run_time: false,
        help: "frames of memory per worker, of 2 KB for an MTU of 1500; LRO may hold a quarter",
        field: number!(wire.frames),
    },
    Key {
        name: "wire.ring",
        kind: power_of_two(8192, 64, 32_768),
        run_time: false,
        help: "frames that may wait to be received from an AF_XDP queue (ethtool -g calls it rx); \
               at most half of wire.frames",
        field: number!(wire.ring),
    },
    Key {
        name: "host.kind",
        kind: first_of::<HostKind>(),
        run_time: false,
        help: "what the host's interface is made of; auto takes a TAP where there is \
               /dev/net/tun",
        field: choice!(host.kind),
    },
    Key {
        name: "host.mtu",
        kind: zero_or("the wire's", 576, 65_535, Unit::Bytes),
        run_time: false,
        help: "MTU of the host's interface; over the wire's it lets the host hand over datagrams that \
               become fragments, and is not for hosts that forward the packets of others",
        field: number!(host.mtu),
    },
    Key {
        name: "host.queues",
        kind: zero_or("one per worker", 1, 64, Unit::Count),
        run_time: false,
        help: "queues of the host's interface; workers share them if there are fewer, and only \
               one worker a queue then takes what the host sends",
        field: number!(host.queues),
    },
    Key {
        name: "host.scheduler",
        kind: first_of::<Order>(),
        run_time: false,
        help: "whose packet is next for a shared host queue (the paper's DMA load balance, \
               section V.B); lifo is the stack that it replaced, which starves connections",
        field: choice!(host.scheduler),
    },
    Key {
        name: "host.requests",
        kind: number(64, 1, 16_384, Unit::Count),
        run_time: false,
        help: "packets of each worker that may wait for a shared host queue before the worker \
               leaves the wire alone",
        field: number!(host.requests),
    },
    Key {
        name: "lro.enable",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "join received TCP segments (large-receive-offload in ethtool -k)",
        field: boolean!(lro.enable),
    },
    Key {
        name: "lro.profile",
        kind: first_of::<lro::Profile>(),
        run_time: true,
        help: "endpoint: for a host that terminates TCP; lossless: what Linux GRO may merge, \
               for routers and bridges",
        field: choice!(lro.profile),
    },
    Key {
        name: "lro.max_aggregate",
        kind: number(65_535, 1_500, 65_535, Unit::Bytes),
        run_time: true,
        help: "largest IP packet that LRO makes (the paper's 64 KB threshold; gro_max_size in \
               ip link)",
        field: number!(lro.max_aggregate),
    },
    Key {
        name: "lro.max_segments",
        kind: number(512, 2, 1_000, Unit::Count),
        run_time: true,
        help: "most segments in one packet that LRO makes; a writev takes 1024 slices",
        field: number!(lro.max_segments),
    },
    Key {
        name: "lro.timeout_factor",
        kind: number(10, 1, 1_000, Unit::Count),
        run_time: true,
        help: "a connection that is idle for so many times its average interval between segments \
               has timed out: LRO lets go of what it holds (the paper, section IV.E)",
        field: number!(lro.timeout_factor),
    },
    Key {
        name: "lro.min_timeout",
        kind: number(20 * US, 0, 100 * MS, Unit::Nanoseconds),
        run_time: true,
        help: "no connection times out before this; over lro.max_timeout it counts as that",
        field: number!(lro.min_timeout),
    },
    Key {
        name: "lro.max_timeout",
        kind: number(2 * MS, US, 100 * MS, Unit::Nanoseconds),
        run_time: true,
        help: "longest time that LRO holds a segment back or waits for a missing one \
               (gro_flush_timeout in sysfs)",
        field: number!(lro.max_timeout),
    },
    Key {
        name: "lro.flush_on_psh",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "let go of what a PSH completes as soon as the wire has nothing more waiting",
        field: boolean!(lro.flush_on_psh),
    },
    Key {
        name: "lro.active_ack",
        kind: first_of::<lro::ActiveAck>(),
        run_time: true,
        help: "acknowledge data that LRO holds (the paper, section V.C): safe, only within the \
               window that the host has advertised; or as the paper does, with a window of 0xFFFF. \
               For connections that begin while it is on, where workers do not share a host queue. \
               Acknowledged data is lost if wharf is killed while it holds it",
        field: choice!(lro.active_ack),
    },
    Key {
        name: "lro.udp",
        kind: Kind::Bool { default: false },
        run_time: true,
        help: "join UDP datagrams of equal size, too (rx-udp-gro-forwarding in ethtool -k)",
        field: boolean!(lro.udp),
    },
    Key {
        name: "lro.flows",
        kind: number(4_096, 1, 1_048_576, Unit::Count),
        run_time: false,
        help: "connections that each worker remembers (the paper's ConnectionTable)",
        field: number!(lro.flows),
    },
    Key {
        name: "gso.enable",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "take super-packets from the host and cut them (the slides' \
               net.gso.dev.IF.enable_gso)",
        field: boolean!(gso.enable),
    },
    Key {
        name: "gso.tcp",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "those of TCP (net.inet.tcp.gso; tcp-segmentation-offload in ethtool -k)",
        field: boolean!(gso.tcp),
    },
    Key {
        name: "gso.udp",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "those of UDP (net.inet.udp.gso): datagrams of one size (tx-udp-segmentation), and, \
               where host.mtu is over the wire's, datagrams that become IP fragments",
        field: boolean!(gso.udp),
    },
    Key {
        name: "gso.max_burst",
        kind: number(65_535, 1_500, 65_535, Unit::Bytes),
        run_time: true,
        help: "largest packet that the host hands over, and so the longest burst on the wire (the \
               slides' net.gso.dev.IF.max_burst; gso_max_size in ip link)",
        field: number!(gso.max_burst),
    },
    Key {
        name: "gso.hardware",
        kind: first_of::<GsoHardware>(),
        run_time: true,
        help: "auto: leave super-packets that the wire's interface can cut to it, where \
               wire.mode=packet lets it; off: cut all in software",
        field: choice!(gso.hardware),
    },
    Key {
        name: "poll.spin",
        kind: number(20 * US, 0, 10 * MS, Unit::Nanoseconds),
        run_time: true,
        help: "how long an idle worker looks for packets before it sleeps (busy_poll in \
               net.core)",
        field: number!(poll.spin),
    },
    Key {
        name: "poll.batch",
        kind: number(64, 1, 256, Unit::Count),
        run_time: false,
        help: "most frames taken from a port in one turn (NAPI's weight)",
        field: number!(poll.batch),
    },
];

impl Key {
    /// The value in `config`, as text.
    pub(super) fn get(&self, config: &Config) -> String {
        self.format((self.field.get)(config))
    }

    /// Reads `text` and puts it into `config`.
    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), ConfigError> {
        let value = self.parse(text)?;
        (self.field.set)(config, value);
        Ok(())
    }

    pub(super) fn set_default(&self, config: &mut Config) {
        (self.field.set)(config, self.default_value());
    }

    /// The default, as text.
    pub fn default_text(&self) -> String {
        self.format(self.default_value())
    }

    /// What the key takes, in words: "1500 to 65535 bytes".
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Bool { .. } => "true or false".to_owned(),
            Kind::Choice { names: [rest @ .., last], .. } if !rest.is_empty() => {
                format!("{} or {last}", rest.join(", "))
            }
            Kind::Choice { names, .. } => names.join(""),
            Kind::Number { min, max, unit, power_of_two, zero, .. } => {
                let zero = zero.map(|means| format!("0 ({means}) or ")).unwrap_or_default();
                let power = if power_of_two { "a power of two, " } else { "" };
                let bytes = if unit == Unit::Bytes { " bytes" } else { "" };
                format!("{zero}{power}{} to {}{bytes}", self.format(min), self.format(max))
            }
        }
    }

    fn default_value(&self) -> u64 {
        match self.kind {
            Kind::Bool { default } => u64::from(default),
            Kind::Number { default, .. } => default,
            Kind::Choice { default, .. } => default as u64,
        }
    }

    fn format(&self, value: u64) -> String {
        match self.kind {
            Kind::Bool { .. } => (value != 0).to_string(),
            Kind::Choice { names, .. } => names[value as usize].to_owned(),
            Kind::Number { unit: Unit::Nanoseconds, .. } => format_duration(value),
            Kind::Number { .. } => value.to_string(),
        }
    }

    fn parse(&self, text: &str) -> Result<u64, ConfigError> {
        match self.kind {
            Kind::Bool { .. } => match text {
                "true" => Ok(1),
                "false" => Ok(0),
                _ => Err(self.wrong_type(text)),
            },
            Kind::Choice { names, .. } => match names.iter().position(|name| *name == text) {
                Some(at) => Ok(at as u64),
                None => Err(self.wrong_type(text)),
            },
            Kind::Number { unit, .. } => {
                let value = match unit {
                    Unit::Nanoseconds => parse_duration(text),
                    Unit::Count | Unit::Bytes => text.parse().ok(),
                };
                self.in_range(value.ok_or_else(|| self.wrong_type(text))?, text)
            }
        }
    }

    fn in_range(&self, value: u64, text: &str) -> Result<u64, ConfigError> {
        let Kind::Number { min, max, power_of_two, zero, .. } = self.kind else { return Ok(value) };
        let means_something = value == 0 && zero.is_some();
        let allowed = (min..=max).contains(&value) && (!power_of_two || value.is_power_of_two());
        if means_something || allowed {
            return Ok(value);
        }
        Err(ConfigError::OutOfRange { key: self.name, value: text.to_owned(), range: self.range() })
    }

    /// A value of another kind than the key's.
    pub(super) fn wrong_type(&self, value: &str) -> ConfigError {
        let expected = match self.kind {
            Kind::Number { unit: Unit::Nanoseconds, .. } => {
                format!("a time with its unit (ns, us, ms or s), {}", self.range())
            }
            Kind::Number { .. } => format!("a whole number, {}", self.range()),
            Kind::Bool { .. } | Kind::Choice { .. } => self.range(),
        };
        let value = if value.is_empty() { "empty".to_owned() } else { format!("`{value}`") };
        ConfigError::WrongType { key: self.name, value, expected }
    }
}
