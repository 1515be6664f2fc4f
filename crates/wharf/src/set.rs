//! `wharf set`: the settings of a wharf that runs.

use clap::Args;
use degen::keys::{Key, is_same};
use nic::config::{Config, ConfigError, KEYS};
use nic::control::Client;
use nic::degen::{Direction, SettingError};

use crate::error::Error;
use crate::print;
use crate::settings::WAN;
use crate::table::{Align, Table};
use crate::text::escaped;

/// Show or change the settings of a wharf that runs here
///
/// Without KEY it lists all settings, with KEY it prints one, with VALUE it changes one.
#[derive(Debug, Args)]
#[command(after_help = "Example: hold segments back for at most 50 microseconds:\n  \
                        wharf set lro.max_timeout 50us\n\n\
                        Example: a degen loses one packet in a hundred on the way back:\n  \
                        wharf set reverse.loss 1%")]
pub(crate) struct SetArgs {
    /// Which wharf, if several run here: its host interface, or the two interfaces of a degen (eth1:eth2)
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// List all keys with their defaults, or KEY with its own; no wharf needs to run
    #[arg(long, conflicts_with_all = ["value", "host"])]
    pub(crate) defaults: bool,
    /// The setting, such as lro.enable
    pub(crate) key: Option<String>,
    /// Its new value
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: Option<String>,
}

pub(crate) fn run(args: &SetArgs) -> Result<(), Error> {
    if let Some(key) = &args.key {
        check(key)?;
    }
    if args.defaults {
        return print(match &args.key {
            None => format!("{}\n{}", list(None, None), list_degen(None, None)),
            Some(key) => default_of(key),
        });
    }
    let mut client = Client::connect(args.host.as_deref())?;
    match (&args.key, &args.value) {
        (Some(key), Some(value)) => Ok(client.set(key, value)?),
        (Some(key), None) => {
            let entries = client.get(Some(key))?;
            let line = |(key, value): &(String, String)| match entries.len() {
                1 => format!("{}\n", escaped(value)),
                _ => format!("{} {}\n", escaped(key), escaped(value)),
            };
            print(entries.iter().map(line).collect::<String>())
        }
        (None, _) => print(lists(&client.get(None)?)),
    }
}

/// What `--defaults` lists of one key, which is known; a degen's goes by several names.
fn default_of(key: &str) -> String {
    if let Some(known) = KEYS.iter().find(|known| is_same(known.name, key)) {
        return list(None, Some(known.name));
    }
    let of_degen = nic::degen::find(key.strip_prefix(WAN).unwrap_or(key));
    of_degen.map_or_else(|_| String::new(), |(_, known)| list_degen(None, Some(known.name)))
}

/// Tells a misspelt key even where no wharf runs.
fn check(key: &str) -> Result<(), Error> {
    let (prefix, rest) = match key.strip_prefix(WAN) {
        Some(rest) => (WAN, rest),
        None => ("", key),
    };
    match (Config::default().get(key), nic::degen::find(rest)) {
        (Ok(_), _) | (_, Ok(_)) => Ok(()),
        // The table that has a key like it.
        (Err(ConfigError::UnknownKey { closest: None, .. }), Err(error))
            if !matches!(error, SettingError::UnknownKey { closest: None, .. }) =>
        {
            Err(error.under(prefix).into())
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// The settings of a wharf, of a degen, or of a wharf with a degen in front of it.
fn lists(values: &[(String, String)]) -> String {
    let of_wharf = |(key, _): &&(String, String)| KEYS.iter().any(|known| known.name == key);
    let mut text = String::new();
    if values.iter().any(|entry| of_wharf(&entry)) {
        text.push_str(&list(Some(values), None));
    }
    if !values.iter().all(|entry| of_wharf(&entry)) {
        text.push_str(&list_degen(Some(values), None));
    }
    text
}

/// degen's keys, or `only` one, with the values in force in both directions, if given.
fn list_degen(values: Option<&[(String, String)]>, only: Option<&str>) -> String {
    let mut table = Table::new(&[Align::Left; 5]);
    let value = |key: &Key, direction: Direction| {
        let name = format!("{}.{}", direction.name(), key.name);
        let is_it = |known: &str| known.strip_prefix(WAN).unwrap_or(known) == name;
        let found = values?.iter().find(|(known, _)| is_it(known));
        Some(found.map_or("?", |(_, value)| value).to_owned())
    };
    let directions: &[&str] = if values.is_some() { &["FORWARD", "REVERSE"] } else { &[] };
    table.row([&["DEGEN"], directions, &["DEFAULT", "TAKES"]].concat());
    for key in degen::keys::KEYS.iter().filter(|key| only.is_none_or(|only| only == key.name)) {
        let values = Direction::BOTH.into_iter().filter_map(|direction| value(key, direction));
        let rest = [key.default_text(), key.takes()];
        table.row([key.name.to_owned()].into_iter().chain(values).chain(rest));
        table.line(format!("    {}", key.help));
    }
    table.to_string()
}

/// All keys, or `only` one, each with its help on a line of its own; with the values in force, if
/// given.
fn list(values: Option<&[(String, String)]>, only: Option<&str>) -> String {
    let value = |name: &str| {
        let known = values?.iter().find(|(key, _)| key == name);
        Some(known.map_or("?", |(_, value)| value).to_owned())
    };
    let heading = ["KEY", "VALUE", "DEFAULT", "CHANGES", "TAKES"].map(str::to_owned);
    let mut table = Table::new(&[Align::Left; 5]);
    table.row(heading.into_iter().filter(|title| values.is_some() || title != "VALUE"));
    for key in KEYS.iter().filter(|key| only.is_none_or(|only| only == key.name)) {
        let changes = if key.run_time { "any time" } else { "at start" };
        let rest = [key.default_text(), changes.to_owned(), key.range()];
        table.row([key.name.to_owned()].into_iter().chain(value(key.name)).chain(rest));
        table.line(format!("    {}", key.help));
    }
    table.to_string()
}
