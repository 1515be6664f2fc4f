//! The control socket: how `wharf stats` and `wharf set` talk to a wharf that runs.
//!
//! It is a Unix stream socket in the *abstract* namespace, named `wharf/` and the host
//! interface's name. Abstract names belong to the network namespace, as interfaces do, and vanish
//! with the process that holds them, so a killed wharf leaves nothing behind (unix(7)).
//!
//! One JSON object a line each way:
//!
//! | request | answer |
//! |---|---|
//! | `{"stats":true}` | `{"ok":`[`Handler::stats`]`}` |
//! | `{"get":null}` | `{"ok":[{"key":KEY,"value":VALUE},...]}` |
//! | `{"get":KEY}` | the same, with that key only |
//! | `{"set":{KEY:VALUE}}` | `{"ok":true}` |
//! | anything that cannot be done | `{"error":REASON}` |
//!
//! Anyone on the machine may ask; only root and the user that runs wharf may `set`.

mod client;
mod clients;
mod line;
mod server;

pub use client::{Client, ClientError, running};
pub use server::{Control, Handler, Serving};

use serde_json::{Value, json};

use crate::config::Config;
use crate::counters::Entry;

/// What every wharf's socket name begins with.
const PREFIX: &str = "wharf/";

/// Counters as [`Handler::stats`] shows them under `"counters"`: an array of objects with
/// `group`, `name` and `value`, in the order given.
pub fn counters_json(counters: impl IntoIterator<Item = Entry>) -> Value {
    let object =
        |Entry { group, name, value }| json!({"group": group, "name": name, "value": value});
    counters.into_iter().map(object).collect()
}

/// Settings as [`Handler::get`] shows them: an array of objects with `key` and `value`, of all
/// keys or of one.
///
/// # Errors
/// An unknown key, in words.
pub fn settings_json(config: &Config, key: Option<&str>) -> Result<Value, String> {
    let object = |key: &str, value: String| json!({"key": key, "value": value});
    match key {
        Some(key) => {
            let value = config.get(key).map_err(|error| error.to_string())?;
            Ok(json!([object(key, value)]))
        }
        None => Ok(config.entries().map(|(key, value)| object(key.name, value)).collect()),
    }
}

#[cfg(test)]
mod tests;
