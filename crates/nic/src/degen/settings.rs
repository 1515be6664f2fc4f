//! What can be set, for both directions or for one.

use std::hash::{BuildHasher, RandomState};

use degen::keys::{self, KEYS, Key};
use degen::{Change, Config, Nanos, Schedule, ScheduleError, ValueError};

/// Which way packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the first interface to the second; for a host, to the wire.
    Forward,
    /// Back.
    Reverse,
}

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::Forward, Direction::Reverse];

    /// Its name in settings and counters.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::Reverse => "reverse",
        }
    }
}

/// What is wrong with a setting, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such key.
    #[error("unknown key `{key}`{}", did_you_mean(closest.as_deref()))]
    UnknownKey {
        /// As written.
        key: String,
        /// The known key that looks most like it, in the same direction.
        closest: Option<String>,
    },
    /// The seed, where only what can change in a direction is known.
    #[error("the seed is one for both directions, and cannot change later: it is set at the start")]
    SeedIsFixed,
    /// A value that the key does not take.
    #[error("`{key}` cannot be {value:?}, {why}: it takes {takes}{hint}")]
    Value {
        /// The key.
        key: &'static str,
        /// As written.
        value: String,
        /// What is wrong.
        why: ValueError,
        /// What would be right.
        takes: String,
        /// The question for what was probably meant, or nothing.
        hint: String,
    },
    /// The value of something that is no key of a direction.
    #[error("`{key}` cannot be {value}: it is {takes}")]
    Other {
        /// What.
        key: &'static str,
        /// As written.
        value: String,
        /// What would be right.
        takes: &'static str,
    },
    /// A step without its time.
    #[error("a [[schedule]] entry needs the time of it, such as at = \"10s\"")]
    NoTime,
    /// A step before the one in front of it.
    #[error("the schedule goes back in time: this step comes before the one in front of it")]
    GoesBack,
    /// It is to begin again before it has ended.
    #[error("`repeat` must be longer than the time of the last step")]
    RepeatTooShort,
    /// It would do little else than begin again.
    #[error("`repeat` must be at least {}", keys::time_text(LEAST_REPEAT))]
    RepeatsTooOften,
    /// `repeat` without steps.
    #[error("`repeat` needs [[schedule]] entries to repeat")]
    NothingToRepeat,
    /// Any of the above, or a file that is not TOML, with its place.
    #[error("{file}:{line}:{column}: {cause}")]
    At {
        /// The file's name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        /// What is wrong there.
        cause: Box<SettingError>,
    },
    /// Not TOML.
    #[error("{0}")]
    Malformed(String),
}

impl SettingError {
    /// The same, where the key is known by a longer name that begins with `prefix`.
    pub fn under(self, prefix: &str) -> Self {
        match self {
            SettingError::UnknownKey { key, closest } => SettingError::UnknownKey {
                key: format!("{prefix}{key}"),
                closest: closest.map(|closest| format!("{prefix}{closest}")),
            },
            other => other,
        }
    }
}

/// The least time after which a schedule begins again.
pub(super) const LEAST_REPEAT: Nanos = 1_000_000;

fn did_you_mean(closest: Option<&str>) -> String {
    match closest {
        Some(key) => format!("; did you mean `{key}`?"),
        None => "; `wharf degen --help` lists all keys".to_owned(),
    }
}

/// What is no key of a direction.
const SEED: &str = "seed";

/// What is set before degen begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Of each [`Direction`].
    pub configs: [Config; 2],
    /// What changes later, in each.
    pub schedules: [Schedule; 2],
    /// Where chance begins; `None` for somewhere else each time.
    pub seed: Option<u64>,
}

impl Settings {
    /// Sets `key` (both directions), `forward.key` or `reverse.key`.
    ///
    /// # Errors
    /// What is wrong with the key or its value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        if key == SEED {
            let seed = value.trim().parse().map_err(|_| bad_seed(value))?;
            self.seed = Some(seed);
            return Ok(());
        }
        let (directions, change) = change(key, value)?;
        for direction in directions {
            change.apply(&mut self.configs[*direction as usize]);
        }
        Ok(())
    }

    /// The seed; one that was not set is chosen now.
    pub fn fix_seed(&mut self) -> u64 {
        *self.seed.get_or_insert_with(any_seed)
    }
}

/// A change as it is written, and the directions that it is for.
///
/// # Errors
/// What is wrong with the key or its value.
pub(super) fn change(
    key: &str,
    value: &str,
) -> Result<(&'static [Direction], Change), SettingError> {
    let (directions, known) = find(key)?;
    Ok((directions, Change { key: known, value: read(known, value)? }))
}

fn read(key: &'static Key, value: &str) -> Result<u64, SettingError> {
    key.parse(value).map_err(|why| SettingError::Value {
        key: key.name,
        value: value.to_owned(),
        why,
        takes: key.takes(),
        hint: key.hint(value),
    })
}

/// The directions and the key that a name stands for.
///
/// # Errors
/// An unknown one.
pub fn find(name: &str) -> Result<(&'static [Direction], &'static Key), SettingError> {
    let (directions, key): (&[Direction], _) = match name.split_once('.') {
        Some(("forward", key)) => (&[Direction::Forward], key),
        Some(("reverse", key)) => (&[Direction::Reverse], key),
        _ => (&Direction::BOTH, name),
    };
    match keys::find(key) {
        Some(known) => Ok((directions, known)),
        None if key == SEED => Err(SettingError::SeedIsFixed),
        None => {
            let last = key.rsplit('.').next().and_then(keys::find);
            let closest = crate::config::closest(key, KEYS.iter().map(|known| known.name))
                .or(last.map(|known| known.name));
            let direction = name.strip_suffix(key).unwrap_or_default();
            let closest = closest.map(|closest| format!("{direction}{closest}"));
            Err(SettingError::UnknownKey { key: name.to_owned(), closest })
        }
    }
}

/// Keys and values of both directions as `wharf set` shows them: of all keys or of one.
///
/// # Errors
/// An unknown key.
pub fn entries(
    configs: &[Config; 2],
    key: Option<&str>,
) -> Result<Vec<(String, String)>, SettingError> {
    let of = |directions: &[Direction], key: &Key| {
        let entry = |direction: &Direction| {
            let value = key.get(&configs[*direction as usize]);
            (format!("{}.{}", direction.name(), key.name), value)
        };
        directions.iter().map(entry).collect::<Vec<_>>()
    };
    match key {
        Some(name) => find(name).map(|(directions, key)| of(directions, key)),
        None => Ok(KEYS.iter().flat_map(|key| of(&Direction::BOTH, key)).collect()),
    }
}

/// Another one each time, short enough to be typed again.
pub(super) fn any_seed() -> u64 {
    RandomState::new().hash_one("degen") >> 40
}

fn bad_seed(value: &str) -> SettingError {
    let takes = "a whole number from 0 to 18446744073709551615";
    SettingError::Other { key: SEED, value: value.to_owned(), takes }
}

impl From<ScheduleError> for SettingError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::GoesBack { .. } => SettingError::GoesBack,
            ScheduleError::RepeatTooShort => SettingError::RepeatTooShort,
        }
    }
}
