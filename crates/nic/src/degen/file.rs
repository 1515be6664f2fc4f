//! The settings file: TOML.

use std::ops::Range;

use degen::{Change, Schedule, Step};
use toml::de::{DeTable, DeValue};

use super::settings::{self, Direction, LEAST_REPEAT, SettingError, Settings};

/// The array of steps.
const SCHEDULE: &str = "schedule";

/// Where something stands.
type Span = Range<usize>;
/// What is wrong, and where.
type Fault = (Span, SettingError);

impl Settings {
    /// Reads a file's `text`: keys of both directions at the top, those of one in `[forward]` and
    /// `[reverse]`, and `[[schedule]]` entries with a time `at`, which begin again after `repeat`.
    /// Keys not named keep their defaults.
    ///
    /// # Errors
    /// With `file`, line and column.
    pub fn from_toml(file: &str, text: &str) -> Result<Settings, SettingError> {
        read(file, text)
    }
}

fn read(file: &str, text: &str) -> Result<Settings, SettingError> {
    let at = |(span, cause): Fault| {
        let (line, column) = crate::config::position(text, span.start);
        SettingError::At { file: file.to_owned(), line, column, cause: Box::new(cause) }
    };
    let document = DeTable::parse(text).map_err(|error| {
        // The parser's words come with a drawing of several lines; the first is the message.
        let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
        at((error.span().unwrap_or_default(), SettingError::Malformed(message)))
    })?;
    settings(document.get_ref()).map_err(at)
}

/// One key with its value, and where both stand.
struct Entry<'a> {
    key: String,
    key_at: Span,
    value: &'a DeValue<'a>,
    value_at: Span,
}

/// The entries of a table and of those within it: those of both directions, then those of one, in the
/// order in which they are written.
fn entries<'a>(table: &'a DeTable<'a>) -> Vec<Entry<'a>> {
    fn flatten<'a>(table: &'a DeTable<'a>, group: Option<&str>, into: &mut Vec<Entry<'a>>) {
        for (name, value) in table {
            let key = match group {
                None => name.get_ref().to_string(),
                Some(group) => format!("{group}.{}", name.get_ref()),
            };
            let (key_at, value_at) = (name.span(), value.span());
            match value.get_ref() {
                // An empty table says nothing; it must still be one that there is.
                DeValue::Table(inner) if is_group(&key, inner) => flatten(inner, Some(&key), into),
                value => into.push(Entry { key, key_at, value, value_at }),
            }
        }
    }
    fn is_group(key: &str, table: &DeTable<'_>) -> bool {
        let of_direction = Direction::BOTH.iter().any(|direction| direction.name() == key);
        of_direction || (!table.is_empty() && key != SCHEDULE)
    }
    let mut entries = Vec::new();
    flatten(table, None, &mut entries);
    // What is said of one direction goes over what is said of both, wherever it stands.
    entries.sort_by_key(|entry| (entry.key.contains('.'), entry.key_at.start));
    entries
}

fn settings(document: &DeTable<'_>) -> Result<Settings, Fault> {
    let mut settings = Settings::default();
    let all = entries(document);
    let (mut steps, mut repeat) = (None, None);
    for entry in &all {
        match entry.key.as_str() {
            SCHEDULE => steps = Some(entry),
            "repeat" => repeat = Some(entry),
            key => {
                let text = text(entry.value);
                set(&mut settings, entry, key, &text)?;
            }
        }
    }
    let repeat_at = repeat.map_or(0..0, |entry| entry.value_at.clone());
    let repeat = repeat.map_or(Ok(0), time)?;
    if (1..LEAST_REPEAT).contains(&repeat) {
        return Err((repeat_at, SettingError::RepeatsTooOften));
    }
    if let Some(entry) = steps {
        settings.schedules = schedules(entry, (repeat > 0).then_some(repeat), repeat_at.clone())?;
    }
    if repeat > 0 && settings.schedules.iter().all(|schedule| schedule.steps().is_empty()) {
        return Err((repeat_at, SettingError::NothingToRepeat));
    }
    Ok(settings)
}

fn set(settings: &mut Settings, entry: &Entry<'_>, key: &str, text: &str) -> Result<(), Fault> {
    settings.set(key, text).map_err(|cause| (place(entry, &cause), cause))
}

/// A key that is none here is wrong where it stands, a value there.
fn place(entry: &Entry<'_>, cause: &SettingError) -> Span {
    match cause {
        SettingError::UnknownKey { .. } | SettingError::SeedIsFixed => entry.key_at.clone(),
        _ => entry.value_at.clone(),
    }
}

/// The schedules of both directions.
fn schedules(
    entry: &Entry<'_>,
    repeat: Option<u64>,
    repeat_at: Span,
) -> Result<[Schedule; 2], Fault> {
    let wrong = || SettingError::Other {
        key: SCHEDULE,
        value: text(entry.value),
        takes: "entries that begin with [[schedule]]",
    };
    let DeValue::Array(array) = entry.value else { return Err((entry.key_at.clone(), wrong())) };
    let mut steps: [Vec<Step>; 2] = Default::default();
    let mut last = 0;
    for step in array.iter() {
        let DeValue::Table(table) = step.get_ref() else { return Err((step.span(), wrong())) };
        let (at, at_span, changes) = one(table, step.span())?;
        if at < last {
            return Err((at_span, SettingError::GoesBack));
        }
        last = at;
        // Both have each step, even without changes, so that both end at the same time.
        for (steps, changes) in steps.iter_mut().zip(changes) {
            steps.push(Step { at, changes });
        }
    }
    let make = |steps| Schedule::new(steps, repeat).map_err(|why| (repeat_at.clone(), why.into()));
    let [forward, reverse] = steps;
    Ok([make(forward)?, make(reverse)?])
}

/// The time of one step, where it stands, and what changes in each direction.
fn one(table: &DeTable<'_>, span: Span) -> Result<(u64, Span, [Vec<Change>; 2]), Fault> {
    let all = entries(table);
    let when = all.iter().find(|entry| entry.key == "at").ok_or((span, SettingError::NoTime))?;
    let at = time(when)?;
    let mut changes: [Vec<Change>; 2] = Default::default();
    for entry in all.iter().filter(|entry| entry.key != "at") {
        let (directions, change) = settings::change(&entry.key, &text(entry.value))
            .map_err(|cause| (place(entry, &cause), cause))?;
        for direction in directions {
            changes[*direction as usize].push(change);
        }
    }
    debug_assert_eq!(Direction::BOTH.len(), changes.len());
    Ok((at, when.value_at.clone(), changes))
}

/// A time, as every key of that kind reads it.
fn time(entry: &Entry<'_>) -> Result<u64, Fault> {
    let text = text(entry.value);
    degen::keys::time(&text).map_err(|why| {
        let key = if entry.key == "at" { "at" } else { "repeat" };
        let takes = degen::keys::TIME_FORM.to_owned();
        let hint = degen::keys::time_hint(&text, |_| true);
        (entry.value_at.clone(), SettingError::Value { key, value: text, why, takes, hint })
    })
}

/// A value as it is written on a command line.
fn text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.to_string(),
            Err(_) => number.as_str().to_owned(),
        },
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Array(_) => "[...]".to_owned(),
        DeValue::Table(_) => "{...}".to_owned(),
    }
}
