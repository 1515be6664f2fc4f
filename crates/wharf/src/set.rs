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
        Config::default().get(key)?;
    }
    let mut client = Client::connect(args.host.as_deref())?;
    match (&args.key, &args.value) {
        (Some(key), Some(value)) => Ok(client.set(key, value)?),
        (Some(key), None) => {
            let values: Vec<String> =
                client.get(Some(key))?.into_iter().map(|(_, value)| value + "\n").collect();
            print(values.concat())
        }
        (None, _) => print(list(Some(&client.get(None)?))),
    }
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
