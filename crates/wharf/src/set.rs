//! `wharf set`: the settings of a wharf that runs.

use nic::config::{Config, KEYS};
use nic::control::Client;

use crate::cli::SetArgs;
use crate::error::Error;
use crate::print;
use crate::table::{Align, Table};

pub(crate) fn run(args: &SetArgs) -> Result<(), Error> {
    if args.defaults {
        return print(list(None));
    }
    if let Some(key) = &args.key {
        // A misspelt key is told even where no wharf runs.
        let of_degen = nic::degen::find(key.strip_prefix("degen.").unwrap_or(key));
        if let (Err(error), Err(_)) = (Config::default().get(key), of_degen) {
            return Err(error.into());
        }
    }
    let mut client = Client::connect(args.host.as_deref())?;
    match (&args.key, &args.value) {
        (Some(key), Some(value)) => Ok(client.set(key, value)?),
        (Some(key), None) => {
            let entries = client.get(Some(key))?;
            let line = |(key, value): &(String, String)| match entries.len() {
                1 => format!("{value}\n"),
                _ => format!("{key} {value}\n"),
            };
            print(entries.iter().map(line).collect::<String>())
        }
        (None, _) => print(lists(&client.get(None)?)),
    }
}

/// The settings of a wharf, of a degen, or of a wharf with a degen in front of it.
fn lists(values: &[(String, String)]) -> String {
    let of_wharf = |(key, _): &&(String, String)| KEYS.iter().any(|known| known.name == key);
    let mut text = String::new();
    if values.iter().any(|entry| of_wharf(&entry)) {
        text.push_str(&list(Some(values)));
    }
    if !values.iter().all(|entry| of_wharf(&entry)) {
        text.push_str(&list_degen(values));
    }
    text
}

/// degen's keys with the values in force in both directions.
fn list_degen(values: &[(String, String)]) -> String {
    let mut table = Table::new(&[Align::Left; 4]);
    table.row(["DEGEN", "FORWARD", "REVERSE", "TAKES"].map(str::to_owned));
    for key in degen::keys::KEYS {
        let value = |direction: &str| {
            let name = format!("{direction}.{}", key.name);
            let is_it = |known: &str| known.strip_prefix("degen.").unwrap_or(known) == name;
            let found = values.iter().find(|(known, _)| is_it(known));
            found.map_or("?", |(_, value)| value).to_owned()
        };
        table.row([key.name.to_owned(), value("forward"), value("reverse"), key.takes()]);
        table.line(format!("    {}", key.help));
    }
    table.to_string()
}

/// All keys, each with its help on a line of its own; with the values in force, if given.
fn list(values: Option<&[(String, String)]>) -> String {
    let value = |name: &str| {
        let known = values?.iter().find(|(key, _)| key == name);
        Some(known.map_or("?", |(_, value)| value).to_owned())
    };
    let heading = ["KEY", "VALUE", "DEFAULT", "CHANGES", "TAKES"].map(str::to_owned);
    let mut table = Table::new(&[Align::Left; 5]);
    table.row(heading.into_iter().filter(|title| values.is_some() || title != "VALUE"));
    for key in KEYS {
        let changes = if key.run_time { "any time" } else { "at start" };
        let rest = [key.default_text(), changes.to_owned(), key.range()];
        table.row([key.name.to_owned()].into_iter().chain(value(key.name)).chain(rest));
        table.line(format!("    {}", key.help));
    }
    table.to_string()
}
