//! Policies as text: `none`, `by_hand`, `learned`, `at_accept`, `after=64KB`, `after=2s`, `after=64KB,2s`, and behind any
//! of the last five `ports=80,443,8000-8100`, which alone means at accept.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::{PORT_RANGES_MAX, Policy, Ports, When};

/// Why a text is no policy: one line that says what to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyError {
    /// A word that is no policy.
    Word(String),
    /// Not a number of bytes or a time, or the second of its kind.
    After(String),
    /// Not a list of ports: this of it is neither a port nor a range.
    Ports(String),
    /// A number that no port has.
    NoPort(String),
    /// A range whose first port is greater than its last.
    TurnedRange(u16, u16),
    /// More ports and ranges than a policy has.
    TooManyPorts(usize),
    /// Two words where one can be.
    Two(String),
    /// `ports` with a policy that picks nothing.
    NothingToLimit,
}

/// Characters of a wrong word that are repeated.
const SHOWN: usize = 40;

fn shown(word: &str) -> String {
    word.chars().take(SHOWN).collect()
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Word(word) => write!(
                f,
                "no policy is called `{}`: there are none, by_hand, learned, at_accept, \
                 after=64KB, after=2s and ports=80,443",
                word.escape_debug()
            ),
            PolicyError::After(word) => write!(
                f,
                "after={}: write bytes, a time or both, as in after=64KB,2s",
                word.escape_debug()
            ),
            PolicyError::Ports(word) => write!(
                f,
                "ports=: `{}` is neither a port nor a range: write them as in ports=80,443,8000-8100",
                word.escape_debug()
            ),
            PolicyError::NoPort(number) => {
                write!(f, "ports=: there is no port {number}: ports are 1 to 65535")
            }
            PolicyError::TurnedRange(first, last) => {
                write!(f, "ports=: {first}-{last} is turned round: write {last}-{first}")
            }
            PolicyError::TooManyPorts(count) => write!(
                f,
                "ports=: {count} ports and ranges are too many: write at most {PORT_RANGES_MAX}, neighbours as one range"
            ),
            PolicyError::Two(word) => {
                write!(f, "`{}` is one word too many: a policy has one", word.escape_debug())
            }
            PolicyError::NothingToLimit => {
                f.write_str("ports= has no meaning with none or by_hand: leave one of them out")
            }
        }
    }
}

impl core::error::Error for PolicyError {}

const BYTES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("", 1),
];
const TIMES: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A whole number of one of the units.
fn number(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (_, size) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    digits.parse::<u64>().ok()?.checked_mul(*size)
}

fn after(text: &str) -> Result<When, PolicyError> {
    let wrong = || PolicyError::After(shown(text));
    let (mut bytes, mut time) = (None, None);
    for part in text.split(',') {
        let (value, place) = match (number(part, &BYTES), number(part, &TIMES)) {
            (Some(value), _) => (value, &mut bytes),
            (None, Some(value)) => (value, &mut time),
            (None, None) => return Err(wrong()),
        };
        if place.replace(value).is_some() {
            return Err(wrong());
        }
    }
    Ok(When::After { bytes, time })
}

fn ports(text: &str) -> Result<Ports, PolicyError> {
    let count = text.split(',').count();
    if count > PORT_RANGES_MAX {
        return Err(PolicyError::TooManyPorts(count));
    }
    let mut ranges = [(0, 0); PORT_RANGES_MAX];
    for (range, part) in ranges.iter_mut().zip(text.split(',')) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let port = |text: &str| {
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(PolicyError::Ports(shown(part)));
            }
            let port = text.parse().ok().filter(|port: &u16| *port != 0);
            port.ok_or_else(|| PolicyError::NoPort(shown(text)))
        };
        *range = (port(first)?, port(last)?);
        if range.0 > range.1 {
            return Err(PolicyError::TurnedRange(range.0, range.1));
        }
    }
    Ports::new(&ranges[..count]).ok_or_else(|| PolicyError::Ports(shown(text)))
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let (mut when, mut limit) = (None, None);
        for word in text.split_whitespace() {
            let again = match word.split_once('=') {
                Some(("ports", list)) => limit.replace(ports(list)?).is_some(),
                Some(("after", values)) => when.replace(after(values)?).is_some(),
                _ => when.replace(plain(word)?).is_some(),
            };
            if again {
                return Err(PolicyError::Two(shown(word)));
            }
        }
        let when = match (when, &limit) {
            (Some(When::Never | When::ByHand), Some(_)) => return Err(PolicyError::NothingToLimit),
            (Some(when), _) => when,
            (None, Some(_)) => When::AtAccept,
            (None, None) => return Err(PolicyError::Word(String::new())),
        };
        Ok(Policy { when, ports: limit })
    }
}

fn plain(word: &str) -> Result<When, PolicyError> {
    match word {
        "none" => Ok(When::Never),
        "by_hand" | "by-hand" => Ok(When::ByHand),
        "learned" => Ok(When::Learned),
        "at_accept" | "at-accept" => Ok(When::AtAccept),
        other => Err(PolicyError::Word(shown(other))),
    }
}

/// In the largest unit in which it is whole. 0 bytes are written `0`, and no time `0s`.
fn written(value: u64, units: &[(&str, u64)]) -> String {
    let whole = units.iter().find(|(_, size)| value.is_multiple_of(*size) && value != 0);
    match whole {
        Some((name, size)) => (value / size).to_string() + name,
        None => {
            "0".to_string() + units.last().filter(|(name, _)| !name.is_empty()).map_or("", |_| "s")
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::Never => f.write_str("none")?,
            When::ByHand => f.write_str("by_hand")?,
            When::Learned => f.write_str("learned")?,
            When::AtAccept => f.write_str("at_accept")?,
            When::After { bytes, time } => {
                let bytes = bytes.map(|bytes| written(bytes, &BYTES));
                let time = time.map(|time| written(time, &TIMES));
                let both: Vec<_> = bytes.into_iter().chain(time).collect();
                write!(f, "after={}", both.join(","))?;
            }
        }
        match &self.ports {
            Some(ports) => write!(f, " ports={ports}"),
            None => Ok(()),
        }
    }
}
