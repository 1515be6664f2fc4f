//! The client of the control socket: `wharf stats` and `wharf set`.

use std::fs;
use std::io;
use std::net;
use std::os::linux::fs::MetadataExt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sys::process::{self, Owner};

use super::feed::Feed;
use super::line::Lines;
use super::place::{self, DIRECTORY, Listener, PREFIX};

/// How long a wharf may take to answer a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a request to a wharf failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No wharf runs in this network namespace.
    #[error(
        "no wharf runs in this network namespace: start one with `wharf up`, or enter its \
         namespace with `ip netns exec`"
    )]
    NoneRunning,
    /// More than one, and none was chosen.
    #[error("several wharfs run here: choose one with --host ({})", .0.join(", "))]
    Several(Vec<String>),
    /// No wharf with this host interface runs, but others do.
    #[error("no wharf has the host interface {host} here; those that run have {}", .running.join(", "))]
    NoSuch {
        /// The host interface asked for.
        host: String,
        /// The host interfaces of those that run.
        running: Vec<String>,
    },
    /// Its socket's file is in another mount namespace.
    #[error(
        "the wharf of {host} listens in another mount namespace: enter that as well, with `nsenter \
         --mount --net --target PID`"
    )]
    OtherMounts {
        /// Its host interface.
        host: String,
    },
    /// The file's mode does not permit it.
    #[error(
        "you may not ask the wharf of {host}: become root, or one of the group of its control.group"
    )]
    Denied {
        /// Its host interface.
        host: String,
    },
    /// Another user listens at its name.
    #[error(
        "what listens as the wharf of {host} belongs to {owner}, neither to root nor to you, and is \
         not asked: if it is a wharf, ask as that user"
    )]
    Stranger {
        /// The host interface of the name.
        host: String,
        /// The user.
        owner: String,
    },
    /// The wharf refused the request, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The wharf ended or did not answer.
    #[error("the wharf of {host} does not answer: {cause}")]
    Lost {
        /// Its host interface.
        host: String,
        /// The error of the connection.
        cause: io::Error,
    },
    /// The answer is not valid.
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

/// Host interfaces of the wharfs in the calling thread's network namespace, in order, except for those of
/// other users.
///
/// # Errors
/// When `/proc/net/unix` cannot be read.
pub fn running() -> io::Result<Vec<String>> {
    let found = Found::look()?;
    let of_names = found.names.iter().filter(|host| connect_abstract(host).is_ok());
    // A name with a newline can forge a line of that table, such as one for a file that a killed wharf left.
    let is_left = |host: &&String| {
        matches!(connect_file(found.namespace, host),
            Err(ClientError::Lost { cause, .. }) if cause.kind() == io::ErrorKind::ConnectionRefused)
    };
    let of_files = found.files.iter().filter(|host| !is_left(host));
    let mut all: Vec<String> = of_files.chain(of_names).cloned().collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// Wharfs that may be asked, by host interface.
#[derive(Debug, Default)]
struct Found {
    namespace: u64,
    /// Those with a file in root's directory, where no other user can put one.
    files: Vec<String>,
    /// Those with an abstract name, which any process may take.
    names: Vec<String>,
    /// Those whose file is in a directory of another mount namespace.
    elsewhere: Vec<String>,
}

impl Found {
    fn look() -> io::Result<Found> {
        // /proc/net is that of the main thread's namespace.
        let table = fs::read("/proc/thread-self/net/unix")?;
        let mut found = Found { namespace: place::namespace()?, ..Found::default() };
        for listener in place::listening(&table, found.namespace) {
            match listener {
                // A killed wharf leaves its file, but is no listener.
                Listener::File(host) => match fs::exists(place::path(found.namespace, &host)) {
                    Ok(false) => found.elsewhere.push(host),
                    // A file without permission is kept: to connect gives the right error.
                    Ok(true) | Err(_) => found.files.push(host),
                },
                Listener::Abstract(host) => found.names.push(host),
            }
        }
        Ok(found)
    }

    /// Connects to the wharf of this host interface.
    fn open(&self, host: &str) -> Result<UnixStream, ClientError> {
        let has = |list: &[String]| list.iter().any(|known| known == host);
        if has(&self.files) {
            connect_file(self.namespace, host)
        } else if has(&self.names) {
            connect_abstract(host)
        } else if has(&self.elsewhere) {
            Err(ClientError::OtherMounts { host: host.to_owned() })
        } else {
            let running = running().map_err(ClientError::Proc)?;
            match running.is_empty() {
                true => Err(ClientError::NoneRunning),
                false => Err(ClientError::NoSuch { host: host.to_owned(), running }),
            }
        }
    }

    /// Connects to the only wharf. Returns its host interface, too.
    fn open_only(&self) -> Result<(String, UnixStream), ClientError> {
        match running().map_err(ClientError::Proc)?.as_slice() {
            [only] => Ok((only.clone(), self.open(only)?)),
            // Why the first of the others cannot be asked.
            [] => match self.elsewhere.first().or(self.names.first()) {
                Some(host) => Ok((host.clone(), self.open(host)?)),
                None => Err(ClientError::NoneRunning),
            },
            several => Err(ClientError::Several(several.to_vec())),
        }
    }
}

/// Connects to the socket in root's directory. Only root can have put it there; the listener's user is
/// checked all the same.
fn connect_file(namespace: u64, host: &str) -> Result<UnixStream, ClientError> {
    let address = SocketAddr::from_pathname(place::path(namespace, host));
    let (stream, owner) = connect(address, host)?;
    match owner {
        Owner::Root | Owner::Own => Ok(stream),
        // In a user namespace root's number is unknown, as any other is. Then it must be that of the owner of
        // /run, the only user who may write there.
        Owner::Unknown if is_of_the_owner_of_run() => Ok(stream),
        owner => Err(ClientError::Stranger { host: host.to_owned(), owner: owner.to_string() }),
    }
}

fn is_of_the_owner_of_run() -> bool {
    let of_unknown = |path| {
        let found = fs::symlink_metadata(path);
        found.is_ok_and(|found| {
            let owner = process::owner(found.st_uid());
            found.is_dir() && owner == Owner::Unknown && found.st_mode() & 0o022 == 0
        })
    };
    of_unknown("/run") && of_unknown(DIRECTORY)
}

fn connect_abstract(host: &str) -> Result<UnixStream, ClientError> {
    let address = SocketAddr::from_abstract_name(format!("{PREFIX}{host}"));
    let (stream, owner) = connect(address, host)?;
    match owner {
        Owner::Root | Owner::Own => Ok(stream),
        owner => Err(ClientError::Stranger { host: host.to_owned(), owner: owner.to_string() }),
    }
}

/// Connects, and returns the listener's owner. Nothing has been read from the connection.
fn connect(
    address: io::Result<SocketAddr>,
    host: &str,
) -> Result<(UnixStream, Owner), ClientError> {
    let host = || host.to_owned();
    let stream = address.and_then(|address| match address.as_pathname() {
        // Any user who may ask may also fill the queue of pending connections.
        Some(_) => sys::unix::connect_within(&address, PATIENCE),
        None => sys::unix::connect(&address),
    });
    let stream = stream.map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => ClientError::Denied { host: host() },
        _ => ClientError::Lost { host: host(), cause },
    })?;
    let peer = process::peer_credentials(&stream);
    let peer = peer.map_err(|cause| ClientError::Lost { host: host(), cause })?;
    Ok((stream, process::owner(peer.uid)))
}

impl Client {
    /// Connects to the wharf with host interface `host`, or to the only one there is. It must be
    /// root's, or this user's own.
    ///
    /// # Errors
    /// [`ClientError`], whose message tells what to do.
    pub fn connect(host: Option<&str>) -> Result<Client, ClientError> {
        let found = Found::look().map_err(ClientError::Proc)?;
        let (host, stream) = match host {
            Some(host) => (host.to_owned(), found.open(host)?),
            None => found.open_only()?,
        };
        Ok(Client { host, lines: Lines::new(Arc::new(stream)) })
    }

    /// Connects to the wharfs with these host interfaces, or to all that there are if none is named.
    ///
    /// # Errors
    /// [`ClientError`] of the first that cannot be asked.
    pub fn connect_each(hosts: &[String]) -> Result<Vec<Client>, ClientError> {
        let all =
            if hosts.is_empty() { running().map_err(ClientError::Proc)? } else { hosts.to_vec() };
        if all.is_empty() {
            // It says why.
            return Client::connect(None).map(|only| vec![only]);
        }
        all.iter().map(|host| Client::connect(Some(host))).collect()
    }

    /// The wharf's host interface.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The result of the wharf's [`Handler::stats`](super::Handler::stats).
    ///
    /// # Errors
    /// [`ClientError`], as for all requests.
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

    /// Connections of programs, an object each.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn connections(&mut self) -> Result<Vec<Value>, ClientError> {
        match self.ask(&json!({"connections": true}))? {
            Value::Array(all) => Ok(all),
            _ => Err(ClientError::Nonsense { host: self.host.clone() }),
        }
    }

    /// Programs that may offer connections: their process and user. A wharf that does not know the request tells of none.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn programs(&mut self) -> Result<Vec<(i32, u32)>, ClientError> {
        let answer = match self.ask(&json!({"programs": true})) {
            Err(ClientError::Refused(_)) => return Ok(Vec::new()),
            answer => answer?,
        };
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let of = |one: &Value| Some((number(&one["pid"])?.try_into().ok()?, number(&one["uid"])?));
        let all = answer.as_array().and_then(|all| all.iter().map(of).collect());
        all.ok_or_else(|| ClientError::Nonsense { host: self.host.clone() })
    }

    /// Moves connections `to` the `nic` or the `os`: those of a process, or the one with these ends, or all. Returns the
    /// result of the wharf's [`Handler::hand_off`](super::Handler::hand_off).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn hand_off(
        &mut self,
        to: &str,
        pid: Option<u32>,
        one: Option<(net::SocketAddr, net::SocketAddr)>,
    ) -> Result<Value, ClientError> {
        let mut what = Map::new();
        what.insert("to".to_owned(), to.into());
        if let Some((local, remote)) = one {
            what.insert("local".to_owned(), local.to_string().into());
            what.insert("remote".to_owned(), remote.to_string().into());
        }
        if let Some(pid) = pid {
            what.insert("pid".to_owned(), pid.into());
        }
        self.ask(&json!({"handoff": what}))
    }

    /// Captures what passes the wharf's wire, of one connection or all, so many bytes of each packet at most.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn capture(
        mut self,
        one: Option<(net::SocketAddr, net::SocketAddr)>,
        snaplen: u32,
    ) -> Result<Feed, ClientError> {
        let mut what = Map::new();
        if let Some((local, remote)) = one {
            what.insert("local".to_owned(), local.to_string().into());
            what.insert("remote".to_owned(), remote.to_string().into());
        }
        what.insert("snaplen".to_owned(), snaplen.into());
        self.ask(&json!({"capture": what}))?;
        let (stream, buffer) = self.lines.into_parts();
        let host = self.host;
        stream.set_read_timeout(None).map_err(|cause| ClientError::Lost { host, cause })?;
        Ok(Feed::new(stream, buffer))
    }

    /// Changes one setting.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the wharf's reason.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ClientError> {
        self.ask(&json!({"set": {key: value}})).map(drop)
    }

    fn ask(&mut self, request: &Value) -> Result<Value, ClientError> {
        let (mut answer, mut more) = self.begin(request)?;
        while more {
            let next;
            (next, more) = self.next(Ok(()))?;
            let nonsense = || ClientError::Nonsense { host: self.host.clone() };
            let (Some(all), Value::Array(next)) = (answer.as_array_mut(), next) else {
                return Err(nonsense());
            };
            all.extend(next);
        }
        Ok(answer)
    }

    /// Asks, and returns the first line of the answer, and whether more follow.
    fn begin(&mut self, request: &Value) -> Result<(Value, bool), ClientError> {
        // A refusal may have been sent before the request was written; it is more useful than EPIPE.
        let written = self.lines.write(request, PATIENCE);
        self.next(written)
    }

    /// The next line of an answer to what was written so.
    fn next(&mut self, written: io::Result<()>) -> Result<(Value, bool), ClientError> {
        let lost = |cause| ClientError::Lost { host: self.host.clone(), cause };
        let line = match (self.lines.read(PATIENCE), written) {
            (Ok(Some(line)), _) => line,
            (Err(cause), _) | (Ok(None), Err(cause)) => return Err(lost(cause)),
            (Ok(None), Ok(())) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
        };
        let nonsense = || ClientError::Nonsense { host: self.host.clone() };
        let mut answer: Value = serde_json::from_slice(&line).map_err(|_| nonsense())?;
        let more = answer.get("more") == Some(&Value::Bool(true));
        if let Some(ok) = answer.get_mut("ok") {
            return Ok((ok.take(), more));
        }
        match answer.get("error") {
            Some(Value::String(words)) => Err(ClientError::Refused(words.clone())),
            _ => Err(nonsense()),
        }
    }
}
