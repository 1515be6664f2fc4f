//! Values in their written form: `5ms`, `0.1%`, `10mbit`, `64KB`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Time,
    /// Parts of 10^9.
    Probability,
    /// Bits per second.
    Rate,
    /// Bytes.
    Bytes,
    /// A plain number.
    Count,
}

/// Why a text is no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueError {
    /// It is below zero.
    Negative,
    /// It has no number, or an unknown unit.
    Unreadable,
    /// It has more digits than the unit can represent.
    TooFine,
    /// It exceeds the largest number that can be stored.
    TooLarge,
    /// It is outside of the range of the setting.
    OutOfRange,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueError::Negative => "it cannot be negative",
            ValueError::Unreadable => "it is not to be understood",
            ValueError::TooFine => "it is too fine",
            ValueError::TooLarge | ValueError::OutOfRange => "it is out of range",
        })
    }
}

impl core::error::Error for ValueError {}

impl Unit {
    /// Names and sizes, the largest first. Capital letters are accepted, too.
    const fn names(self) -> &'static [(&'static str, u64)] {
        match self {
            Unit::Time => &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)],
            Unit::Probability => &[("%", 10_000_000)],
            Unit::Rate => {
                &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)]
            }
            Unit::Bytes => &[
                ("gib", 1 << 30),
                ("gb", 1_000_000_000),
                ("mib", 1 << 20),
                ("mb", 1_000_000),
                ("kib", 1 << 10),
                ("kb", 1_000),
                ("b", 1),
            ],
            Unit::Count => &[("", 1)],
        }
    }

    /// The size of the unit called `name`.
    fn size(self, name: &str) -> Option<u64> {
        let name = name.trim();
        let name = match self {
            Unit::Rate => {
                let without = |end| name.strip_suffix(end);
                without("/s").or_else(|| without("ps")).unwrap_or(name)
            }
            _ => name,
        };
        if self == Unit::Bytes && name.is_empty() {
            return Some(1);
        }
        let named = |known: &str| known.eq_ignore_ascii_case(name);
        self.names().iter().find(|(known, _)| named(known)).map(|(_, size)| *size)
    }

    /// The form of values in words, with examples.
    pub(crate) const fn form(self) -> &'static str {
        match self {
            Unit::Time => "a time such as 5ms, 100us or 1.5s",
            Unit::Probability => "a percentage such as 1% or 0.01%",
            Unit::Rate => "a rate such as 10mbit, 2.5gbit or 64kbit",
            Unit::Bytes => "a number of bytes such as 1500, 64KB or 1MiB",
            Unit::Count => "a whole number",
        }
    }

    /// Reads a number with its unit; 0 needs none.
    pub(crate) fn parse(self, text: &str) -> Result<u64, ValueError> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix('-') {
            let number = rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            return Err(if number { ValueError::Negative } else { ValueError::Unreadable });
        }
        if text == "0" {
            return Ok(0);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let size = self.size(unit).ok_or(ValueError::Unreadable)?;
        decimal(number, size)
    }

    /// Writes a number so that it reads back the same.
    pub(crate) fn format(self, value: u64) -> String {
        if value == 0 {
            return "0".to_owned();
        }
        match self {
            Unit::Count => value.to_string(),
            Unit::Probability => format!("{}%", fraction(value, 10_000_000)),
            // Bytes are written in decimal units, if they are whole in one of them.
            Unit::Time | Unit::Rate | Unit::Bytes => {
                let whole = self.names().iter().find(|(_, size)| value.is_multiple_of(*size));
                let (name, size) = whole.copied().unwrap_or(("", 1));
                let name = match (self, name) {
                    (Unit::Bytes, "b") => "",
                    (_, name) => name,
                };
                format!("{}{name}", value / size)
            }
        }
    }
}

/// `value` parts of `whole`, a power of ten, as a decimal number.
fn fraction(value: u64, whole: u64) -> String {
    let digits = whole.ilog10() as usize;
    let text = format!("{}.{:0digits$}", value / whole, value % whole);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A decimal number times `size`, exactly.
pub(crate) fn decimal(number: &str, size: u64) -> Result<u64, ValueError> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return Err(ValueError::Unreadable);
    }
    let part = part.trim_end_matches('0');
    let digits = |text: &str| match text {
        "" => Ok(0),
        // All are digits, so there are too many.
        _ => text.parse::<u128>().map_err(|_| ValueError::TooLarge),
    };
    let scale = u32::try_from(part.len()).ok().and_then(|len| 10_u128.checked_pow(len));
    let scale = scale.filter(|scale| *scale <= 1_000_000_000_000).ok_or(ValueError::TooFine)?;
    let part = digits(part)? * u128::from(size);
    if !part.is_multiple_of(scale) {
        return Err(ValueError::TooFine);
    }
    let whole = digits(whole)?.checked_mul(size.into()).ok_or(ValueError::TooLarge)?;
    let sum = whole.checked_add(part / scale).ok_or(ValueError::TooLarge)?;
    u64::try_from(sum).map_err(|_| ValueError::TooLarge)
}
