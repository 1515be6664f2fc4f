//! The control socket: requests of `wharf stats` and `wharf set` to a running wharf.
//!
//! Root's is a Unix stream socket at `/run/wharf/INODE-HOST.sock`, with the network namespace's inode and the
//! host interface's name; `control.mode` and `control.group` decide who may connect. Where root does not own
//! `/run`, in a user namespace of an ordinary user, it has a name in the *abstract* namespace, `wharf/HOST`,
//! which belongs to the network namespace, as interfaces do, and vanishes with the process (unix(7)). Any
//! process may take such a name, so each side checks the other's credentials (`SO_PEERCRED`) before it sends
//! or trusts anything.
//!
//! One JSON object a line each way:
//!
//! | request | answer |
//! |---|---|
//! | `{"stats":true}` | `{"ok":`[`Handler::stats`]`}` |
//! | `{"get":null}` | `{"ok":[{"key":KEY,"value":VALUE},...]}` |
//! | `{"get":KEY}` | the same, with that key only |
//! | `{"set":{KEY:VALUE}}` | `{"ok":true}` |
//! | `{"connections":true}` | `{"ok":[`connections of programs, an object each`]}` |
//! | `{"programs":true}` | `{"ok":[{"pid":PID,"uid":UID},...]}`, those that may offer connections |
//! | `{"handoff":{"to":"nic"}}` or `"os"`, also with `"pid"`, or `"local"` and `"remote"` | `{"ok":`[`Handler::hand_off`]`}` |
//! | `{"capture":{}}`, also with `"local"` and `"remote"`, and `"snaplen"` | `{"ok":true}`, and then [records](Record) until the client closes its direction |
//! | anything that cannot be done | `{"error":REASON}` |
//!
//! An array that is too long for a line is answered by several, of which all but the last have `"more":true`.
//!
//! All that may connect may read; only root and the user that runs wharf may `set`, move connections and capture packets, and some places are
//! reserved for them.

mod claim;
mod client;
mod clients;
mod directory;
mod feed;
mod line;
mod place;
mod server;

pub use claim::Claim;
pub use client::{Client, ClientError, running};
pub use feed::{Feed, Record};
pub use place::all_handoffs;
pub use server::{Control, Handler, Serving};

use serde_json::{Value, json};

use crate::config::Config;
use crate::counters::Entry;

/// Counters in the form of [`Handler::stats`], under `"counters"`: an array of objects with `group`, `name`
/// and `value`, in the order given.
pub fn counters_json(counters: impl IntoIterator<Item = Entry>) -> Value {
    let object =
        |Entry { group, name, value }| json!({"group": group, "name": name, "value": value});
    counters.into_iter().map(object).collect()
}

/// Settings in the form of [`Handler::get`]: an array of objects with `key` and `value`, of all keys or of
/// one.
///
/// # Errors
/// A message about an unknown key.
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
