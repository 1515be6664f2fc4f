//! What a key is, and how it reads and writes its value; the [table](super::KEYS) has them all.

use handoff::policy::{Policy, PolicyError};

use super::value::{format_duration, parse_duration, parse_group};
use super::{Config, ConfigError};

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
    pub(super) field: Field,
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
        /// The names, in the order of the type's [`Choice::VALUES`](super::Choice::VALUES).
        names: &'static [&'static str],
    },
    /// A policy of connection handoff.
    Policy {
        /// The default.
        default: &'static str,
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
    /// A group of users, written as its name or its number.
    Group,
}

/// How to reach the key's field.
#[derive(Debug)]
pub(super) enum Field {
    /// A number: booleans are 0 and 1, choices their place among the names.
    Number {
        /// Reads it.
        get: fn(&Config) -> u64,
        /// Writes it.
        set: fn(&mut Config, u64),
    },
    /// A policy.
    Policy {
        /// Reads it.
        get: fn(&Config) -> &Policy,
        /// Writes it.
        set: fn(&mut Config, Policy),
    },
}

impl Key {
    /// The value in `config`, as text.
    pub(super) fn get(&self, config: &Config) -> String {
        match &self.field {
            Field::Number { get, .. } => self.format(get(config)),
            Field::Policy { get, .. } => get(config).to_string(),
        }
    }

    /// Reads `text` and puts it into `config`.
    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), ConfigError> {
        match &self.field {
            Field::Number { set, .. } => set(config, self.parse(text)?),
            Field::Policy { set, .. } => {
                let policy = text.parse().map_err(|cause: PolicyError| ConfigError::Policy {
                    key: self.name,
                    cause: cause.to_string(),
                });
                set(config, policy?);
            }
        }
        Ok(())
    }

    pub(super) fn set_default(&self, config: &mut Config) {
        match (&self.field, self.kind) {
            (Field::Number { set, .. }, _) => set(config, self.default_value()),
            (Field::Policy { set, .. }, Kind::Policy { default }) => {
                // A test reads all defaults.
                set(config, default.parse().unwrap_or_default());
            }
            (Field::Policy { .. }, _) => {}
        }
    }

    /// The default, as text.
    pub fn default_text(&self) -> String {
        match self.kind {
            Kind::Policy { default } => default.to_owned(),
            _ => self.format(self.default_value()),
        }
    }

    /// What the key takes, in words: "1500 to 65535 bytes".
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Bool { .. } => "true or false".to_owned(),
            Kind::Choice { names: [rest @ .., last], .. } if !rest.is_empty() => {
                format!("{} or {last}", rest.join(", "))
            }
            Kind::Choice { names, .. } => names.join(""),
            Kind::Policy { .. } => "none, by_hand, learned, at_accept, after=SIZE, after=TIME or \
                                    after=SIZE,TIME; the last five also with ports=80,8000-8100"
                .to_owned(),
            Kind::Number { min, max, unit, power_of_two, zero, .. } => {
                if unit == Unit::Group {
                    return "the name or the number of a group".to_owned();
                }
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
            Kind::Policy { .. } => 0,
        }
    }

    fn format(&self, value: u64) -> String {
        match self.kind {
            Kind::Bool { .. } => (value != 0).to_string(),
            Kind::Choice { names, .. } => names[value as usize].to_owned(),
            Kind::Number { unit: Unit::Nanoseconds, .. } => format_duration(value),
            Kind::Number { .. } | Kind::Policy { .. } => value.to_string(),
        }
    }

    fn parse(&self, text: &str) -> Result<u64, ConfigError> {
        match self.kind {
            Kind::Bool { .. } => match text {
                "true" => Ok(1),
                "false" => Ok(0),
                _ => Err(self.wrong_type(text)),
            },
            Kind::Choice { names, .. } => {
                match names.iter().position(|name| degen::keys::is_same(name, text)) {
                    Some(at) => Ok(at as u64),
                    None => Err(self.wrong_type(text)),
                }
            }
            Kind::Number { unit, .. } => {
                let value = match unit {
                    Unit::Nanoseconds => parse_duration(text),
                    Unit::Count | Unit::Bytes => text.parse().ok(),
                    Unit::Group => text.parse().ok().or_else(|| parse_group(text)),
                };
                self.in_range(value.ok_or_else(|| self.wrong_type(text))?, text)
            }
            Kind::Policy { .. } => Err(self.wrong_type(text)),
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

    /// The question for the value that was probably meant, or nothing.
    fn hint(&self, text: &str) -> String {
        let is_right = |value: u64| self.in_range(value, text).is_ok();
        let text = text.trim_matches('"');
        match self.kind {
            // Durations here are whole numbers of a unit.
            Kind::Number { unit: Unit::Nanoseconds, .. } => degen::keys::time_hint(text, is_right),
            Kind::Number { unit: Unit::Bytes, .. } => degen::keys::bytes_hint(text, is_right),
            _ => String::new(),
        }
    }

    /// A value of another kind than the key's.
    pub(super) fn wrong_type(&self, value: &str) -> ConfigError {
        let expected = match self.kind {
            Kind::Number { unit: Unit::Nanoseconds, .. } => {
                format!("a time with its unit (ns, us, ms or s), {}", self.range())
            }
            Kind::Number { unit: Unit::Group, .. } => self.range(),
            Kind::Number { .. } => format!("a whole number, {}", self.range()),
            Kind::Bool { .. } | Kind::Choice { .. } | Kind::Policy { .. } => self.range(),
        };
        let expected = expected + &self.hint(value);
        let value = if value.is_empty() { "empty".to_owned() } else { format!("`{value}`") };
        ConfigError::WrongType { key: self.name, value, expected }
    }
}
