//! `wharf set`: the settings of a wharf that runs.

use nic::config::{Config, KEYS, Key};
use nic::control::Client;

use crate::cli::SetArgs;
use crate::error::Error;
use crate::print;
use crate::table::{Align, Table};

pub(crate) fn run(args: &SetArgs) -> Result<(), Error> {
    if args.defaults {
        let defaults = Config::default();
        return print(list(|key| defaults.get(key.name).unwrap_or_default()));
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
        (None, _) => {
            let values = client.get(None)?;
            print(list(|key| {
                let value = values.iter().find(|(name, _)| name == key.name);
                value.map_or_else(|| "?".to_owned(), |(_, value)| value.clone())
            }))
        }
    }
}

/// All keys, each with its value and, on a line of its own, its help.
fn list(value: impl Fn(&Key) -> String) -> String {
    let mut table = Table::new(&[Align::Left; 5]);
    table.row(["KEY", "VALUE", "DEFAULT", "CHANGES", "TAKES"]);
    for key in KEYS {
        let changes = if key.run_time { "any time" } else { "at start" };
        table.row([
            key.name.to_owned(),
            value(key),
            key.default_text(),
            changes.to_owned(),
            key.range(),
        ]);
        table.line(format!("    {}", key.help));
    }
    table.to_string()
}
