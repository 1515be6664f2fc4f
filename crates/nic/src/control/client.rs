//! The side of `wharf stats` and `wharf set`.

use std::collections::BTreeSet;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::PREFIX;
use super::line::Lines;

/// How long a wharf may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a wharf could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No wharf in this network namespace.
    #[error(
        "no wharf runs in this network namespace: start one with `wharf up`, or enter its \
         namespace with `ip netns exec`"
    )]
    NoneRunning,
    /// More than one; which one is meant?
    #[error("several wharfs run here: choose one with --host ({})", .0.join(", "))]
    Several(Vec<String>),
    /// Others run, but not this one.
    #[error("no wharf has the host interface {host} here; those that run have {}", .running.join(", "))]
    NoSuch {
        /// The host interface asked for.
        host: String,
        /// Those there are.
        running: Vec<String>,
    },
    /// The wharf's own words.
    #[error("{0}")]
    Refused(String),
    /// The wharf went away or did not answer.
    #[error("the wharf of {host} does not answer: {cause}")]
    Lost {
        /// Its host interface.
        host: String,
        /// What happened.
        cause: io::Error,
    },
    /// Not what a wharf answers.
    #[error("the wharf of {host} gave an answer that makes no sense; is it another version?")]
    Nonsense {
        /// Its host interface.
        host: String,
    },
    /// `/proc` cannot be read.
    #[error("cannot read /proc/net/unix, which lists the wharfs that run: {0}")]
    Proc(io::Error),
}

/// A connection to a wharf that runs in the calling thread's network namespace.
#[derive(Debug)]
pub struct Client {
    host: String,
    lines: Lines,
}

/// Host interfaces of the wharfs in the calling thread's network namespace, in order.
///
/// # Errors
/// When `/proc/net/unix` cannot be read.
pub fn running() -> io::Result<Vec<String>> {
    // /proc/net is that of the main thread's namespace.
    Ok(listening(&std::fs::read_to_string("/proc/thread-self/net/unix")?))
}

/// Lines are `address: count protocol flags type state inode path`; an abstract path begins
/// with `@`. Accepted connections repeat the path, but only a listener has `__SO_ACCEPTCON`.
fn listening(table: &str) -> Vec<String> {
    const ACCEPTS: u32 = 1 << 16;
    let host = |line: &str| {
        let mut fields = line.split_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let path = fields.nth(3)?;
        (flags & ACCEPTS != 0)
            .then(|| path.strip_prefix('@')?.strip_prefix(PREFIX))?
            .map(str::to_owned)
    };
    let hosts: BTreeSet<String> = table.lines().filter_map(host).collect();
    hosts.into_iter().collect()
}

impl Client {
    /// Connects to the wharf with host interface `host`, or to the only one there is.
    ///
    /// # Errors
    /// [`ClientError`], whose words say what to do.
    pub fn connect(host: Option<&str>) -> Result<Client, ClientError> {
        let running = running().map_err(ClientError::Proc)?;
        let host = match (host, running.as_slice()) {
            (_, []) => return Err(ClientError::NoneRunning),
            (None, [only]) => only.clone(),
            (None, _) => return Err(ClientError::Several(running)),
            (Some(host), _) if running.iter().any(|known| known == host) => host.to_owned(),
            (Some(host), _) => return Err(ClientError::NoSuch { host: host.to_owned(), running }),
        };
        let stream = SocketAddr::from_abstract_name(format!("{PREFIX}{host}"))
            .and_then(|address| UnixStream::connect_addr(&address));
        match stream {
            Ok(stream) => Ok(Client { host, lines: Lines::new(Arc::new(stream)) }),
            Err(cause) => Err(ClientError::Lost { host, cause }),
        }
    }

    /// The wharf's host interface.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What [`Handler::stats`](super::Handler::stats) of the wharf gives.
    ///
    /// # Errors
    /// [`ClientError`], as of the other requests.
    pub fn stats(&mut self) -> Result<Value, ClientError> {
        self.ask(&json!({"stats": true}))
    }

    /// Settings in force, of all keys or of one, as pairs of key and value.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an unknown key.
    pub fn get(&mut self, key: Option<&str>) -> Result<Vec<(String, String)>, ClientError> {
        let answer = self.ask(&json!({"get": key}))?;
        let pair = |entry: &Value| {
            Some((entry["key"].as_str()?.to_owned(), entry["value"].as_str()?.to_owned()))
        };
        let entries = answer.as_array().and_then(|entries| entries.iter().map(pair).collect());
        entries.ok_or_else(|| ClientError::Nonsense { host: self.host.clone() })
    }

    /// Changes one setting.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the wharf's reason.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ClientError> {
        self.ask(&json!({"set": {key: value}})).map(drop)
    }

    fn ask(&mut self, request: &Value) -> Result<Value, ClientError> {
        let lost = |cause| ClientError::Lost { host: self.host.clone(), cause };
        // A refusal may be there before the request is written; it says more than EPIPE.
        let written = self.lines.write(request, PATIENCE);
        let line = match (self.lines.read(PATIENCE), written) {
            (Ok(Some(line)), _) => line,
            (Err(cause), _) | (Ok(None), Err(cause)) => return Err(lost(cause)),
            (Ok(None), Ok(())) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
        };
        let nonsense = || ClientError::Nonsense { host: self.host.clone() };
        let mut answer: Value = serde_json::from_slice(&line).map_err(|_| nonsense())?;
        if let Some(ok) = answer.get_mut("ok") {
            return Ok(ok.take());
        }
        match answer.get("error") {
            Some(Value::String(words)) => Err(ClientError::Refused(words.clone())),
            _ => Err(nonsense()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_from_their_connections() {
        let table = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 20351 @wharf/nic1
0000000000000000: 00000003 00000000 00000000 0001 03 20352 @wharf/nic0
0000000000000000: 00000002 00000000 00010000 0001 01 20353 @wharf/nic0
0000000000000000: 00000002 00000000 00010000 0001 01 20354 /run/wharf/nic2
0000000000000000: 00000002 00000000 00000000 0002 01 20355
garbage
";
        assert_eq!(listening(table), ["nic0", "nic1"]);
    }
}
