//! The table of settings: names, accepted values, and how values are written.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use crate::hint;
use crate::value::Unit;
use crate::{Config, Discipline, Distribution, Nanos, Probability, ValueError};

/// One setting of a direction.
#[derive(Debug)]
pub struct Key {
    /// The key's name, as in a configuration.
    pub name: &'static str,
    /// What it sets, in one line.
    pub help: &'static str,
    takes: Takes,
    get: fn(&Config) -> u64,
    set: fn(&mut Config, u64),
}

/// What values a key takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// A number within bounds.
    Number { unit: Unit, min: u64, max: u64, zero: Option<&'static str> },
    /// `true` or `false`.
    Bool,
    /// An index into these names.
    Choice(&'static [&'static str]),
}

impl Takes {
    /// Returns true if a number is in range, or is 0 where that has a meaning of its own.
    fn allows(&self, value: u64) -> bool {
        match self {
            Takes::Number { min, max, zero, .. } => {
                (*min..=*max).contains(&value) || (value == 0 && zero.is_some())
            }
            Takes::Bool | Takes::Choice(_) => false,
        }
    }
}

impl Key {
    /// Reads a value. 0 is allowed where it has a meaning of its own.
    ///
    /// # Errors
    /// Why the text is no value of this key; [`takes`](Self::takes) describes those that are.
    pub fn parse(&self, text: &str) -> Result<u64, ValueError> {
        match self.takes {
            Takes::Number { unit, .. } => {
                let value = unit.parse(text)?;
                if self.takes.allows(value) { Ok(value) } else { Err(ValueError::OutOfRange) }
            }
            Takes::Bool => match text.trim() {
                "true" | "on" => Ok(1),
                "false" | "off" => Ok(0),
                _ => Err(ValueError::Unreadable),
            },
            Takes::Choice(names) => {
                let at = names.iter().position(|name| is_same(name, text.trim()));
                at.map(|at| at as u64).ok_or(ValueError::Unreadable)
            }
        }
    }

    /// Asks for the value that was probably meant by a text that is none: `; did you mean `100ms`?`. Empty if nothing suggests
    /// itself.
    pub fn hint(&self, text: &str) -> String {
        match self.takes {
            Takes::Number { unit, .. } => {
                hint::question(unit, text, |value| self.takes.allows(value))
            }
            Takes::Bool => hint::switch(text),
            Takes::Choice(_) => String::new(),
        }
    }

    /// Writes a value as [`parse`](Self::parse) reads it.
    pub fn format(&self, value: u64) -> String {
        match self.takes {
            Takes::Number { unit, .. } => unit.format(value),
            Takes::Bool => if value != 0 { "true" } else { "false" }.to_owned(),
            Takes::Choice(names) => {
                let at = usize::try_from(value).unwrap_or(usize::MAX);
                names.get(at).copied().unwrap_or_default().to_owned()
            }
        }
    }

    /// The value in force, as text.
    pub fn get(&self, config: &Config) -> String {
        self.format((self.get)(config))
    }

    /// The value where nothing is set, as text.
    pub fn default_text(&self) -> String {
        self.get(&Config::default())
    }

    /// Sets a value that was [read](Self::parse).
    pub fn set(&self, config: &mut Config, value: u64) {
        (self.set)(config, value);
    }

    /// The values that it takes, in words: `a time such as 5ms, 100us or 1.5s, up to 3600s`.
    pub fn takes(&self) -> String {
        match self.takes {
            Takes::Number { unit: Unit::Probability, .. } => {
                format!("{}, from 0 to 100%", Unit::Probability.form())
            }
            Takes::Number { unit, min, max, zero } => {
                let (form, max) = (unit.form(), unit.format(max));
                match zero {
                    Some(zero) => format!("{form}, up to {max}; 0: {zero}"),
                    None if min == 0 => format!("{form}, up to {max}"),
                    None => format!("{form}, from {} to {max}", unit.format(min)),
                }
            }
            Takes::Bool => "true or false".to_owned(),
            Takes::Choice(names) => match names.split_last() {
                Some((last, rest @ [_, ..])) => format!("{} or {last}", rest.join(", ")),
                _ => names.concat(),
            },
        }
    }

    /// Whether it takes `true` or `false`.
    pub fn is_bool(&self) -> bool {
        matches!(self.takes, Takes::Bool)
    }
}

/// The form of times, in words.
pub const TIME_FORM: &str = Unit::Time.form();

/// Reads a time in the form of the keys, in nanoseconds.
///
/// # Errors
/// Why the text is no time.
pub fn time(text: &str) -> Result<Nanos, ValueError> {
    Unit::Time.parse(text)
}

/// Writes a time, in nanoseconds, in the form of the keys.
pub fn time_text(time: Nanos) -> String {
    Unit::Time.format(time)
}

/// Asks for the time that was probably meant by a text that is none, as [`Key::hint`] does; `allowed` says which times may be.
pub fn time_hint(text: &str, allowed: impl Fn(Nanos) -> bool) -> String {
    hint::question(Unit::Time, text, allowed)
}

/// The time that was probably meant by a text that is none.
pub fn meant_time(text: &str) -> Option<Nanos> {
    hint::readings(Unit::Time, text).into_iter().flatten().next()
}

/// Asks for the number of bytes that was probably meant, written without a unit.
pub fn bytes_hint(text: &str, allowed: impl Fn(u64) -> bool) -> String {
    let read = Unit::Bytes.parse(text).ok();
    let meant = read.or_else(|| hint::readings(Unit::Bytes, text).into_iter().flatten().next());
    let meant = meant.filter(|bytes| allowed(*bytes)).map(|bytes| bytes.to_string());
    hint::ask(meant.as_slice())
}

/// The key with this name, whose words are joined by `_`, or by `-` as on a command line.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| is_same(key.name, name))
}

/// Returns true if a name is written as it is known, or with `-` in place of `_`.
pub fn is_same(known: &str, written: &str) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
    known.bytes().eq(written.bytes().map(plain))
}

const fn number(unit: Unit, min: u64, max: u64) -> Takes {
    Takes::Number { unit, min, max, zero: None }
}

const fn zero_or(unit: Unit, zero: &'static str, min: u64, max: u64) -> Takes {
    Takes::Number { unit, min, max, zero: Some(zero) }
}

const PERCENT: Takes = number(Unit::Probability, 0, Probability::WHOLE as u64);
const TIME: Takes = number(Unit::Time, 0, HOUR);
const HOUR: u64 = 3_600_000_000_000;

/// A key whose field is a number. Values are checked to be in range, so the cast keeps them.
macro_rules! number {
    ($name:ident, $takes:expr, $help:expr) => {
        Key {
            name: stringify!($name),
            help: $help,
            takes: $takes,
            get: |config| config.$name as u64,
            set: |config, value| config.$name = value as _,
        }
    };
}

/// A key whose field is a [`Probability`].
macro_rules! percent {
    ($name:ident, $help:expr) => {
        Key {
            name: stringify!($name),
            help: $help,
            takes: PERCENT,
            get: |config| config.$name.parts().into(),
            set: |config, value| {
                config.$name = Probability::from_parts(value).unwrap_or(Probability::ALWAYS);
            },
        }
    };
}

/// A key whose field is a switch.
macro_rules! switch {
    ($name:ident, $help:expr) => {
        Key {
            name: stringify!($name),
            help: $help,
            takes: Takes::Bool,
            get: |config| config.$name.into(),
            set: |config, value| config.$name = value != 0,
        }
    };
}

/// A key whose field is one of a few.
macro_rules! choice {
    ($name:ident: $($text:literal = $value:path),+; $help:expr) => {
        Key {
            name: stringify!($name),
            help: $help,
            takes: Takes::Choice(&[$($text),+]),
            get: |config| {
                [$($value),+].iter().position(|one| *one == config.$name).unwrap_or(0) as u64
            },
            set: |config, value| {
                if let Some(one) = [$($value),+].get(value as usize) {
                    config.$name = *one;
                }
            },
        }
    };
}

/// Every setting of a direction.
pub static KEYS: &[Key] = &[
    number!(delay, TIME, "how long a packet is delayed"),
    number!(jitter, TIME, "how much the delay varies, as jitter_distribution says"),
    choice!(
        jitter_distribution: "uniform" = Distribution::Uniform, "normal" = Distribution::Normal,
        "pareto" = Distribution::Pareto;
        "how the delay varies: by jitter at most (uniform), or with it as standard deviation"
    ),
    switch!(jitter_reorders, "whether a packet with a shorter delay passes those before it"),
    percent!(loss, "how many packets are lost, each by a chance of its own"),
    percent!(
        gilbert_p,
        "bursts of losses (Gilbert-Elliott): chance at each packet that the channel turns bad"
    ),
    percent!(gilbert_r, "chance at each packet that the bad channel turns good again"),
    percent!(gilbert_h, "how many packets the bad channel lets through"),
    percent!(gilbert_k, "how many packets the good channel lets through, where gilbert_p is not 0"),
    percent!(duplicate, "how many packets arrive twice"),
    percent!(corrupt, "how many packets have one bit turned"),
    percent!(reorder, "how many packets are held back until reorder_distance others have passed"),
    number!(
        reorder_distance,
        number(Unit::Count, 1, 65_535),
        "how many pass one that is held back"
    ),
    number!(reorder_wait, TIME, "how long a packet is held back at most"),
    percent!(mark, "how many packets are marked with congestion (CE), of those that may be (ECT)"),
    switch!(
        ecn,
        "mark packets (CE) where loss, gilbert_* or codel would lose them, if they may be (ECT)"
    ),
    number!(
        rate,
        zero_or(Unit::Rate, "as fast as they come", 1, 1_000_000_000_000),
        "how fast packets leave; 0 is as fast as they come. One that has begun to leave goes on as it began"
    ),
    number!(
        overhead,
        number(Unit::Bytes, 0, 1_500),
        "bytes that a packet takes beside its own, at this rate; on Ethernet they are 24"
    ),
    choice!(
        queue: "tail_drop" = Discipline::TailDrop, "codel" = Discipline::CoDel;
        "which packets the rate loses: those that find the queue full, and by codel those that wait long"
    ),
    number!(
        queue_packets,
        number(Unit::Count, 0, 1_000_000),
        "how many packets may wait for the rate"
    ),
    number!(
        queue_bytes,
        zero_or(Unit::Bytes, "no bound but queue_packets", 1, 4_000_000_000),
        "how many bytes may wait for the rate"
    ),
    number!(
        codel_target,
        number(Unit::Time, 1_000, HOUR),
        "how long packets may wait before CoDel takes it for too long"
    ),
    number!(
        codel_interval,
        number(Unit::Time, 1_000, HOUR),
        "how long all of them must have waited too long before CoDel acts"
    ),
];
