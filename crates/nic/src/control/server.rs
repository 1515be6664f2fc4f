//! The server of the control socket.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::tcp::FourTuple;
use serde_json::{Map, Value, json};
use sys::foreign::Foreign;
use sys::poll::{Interest, PollSet};
use sys::process::{self, Owner, PeerCredentials};

use super::clients::Clients;
use super::directory::{Directory, Taken};
use super::feed;
use super::line::{LINE_MAX, Lines};
use super::place::{self, DIRECTORY, PREFIX};
use crate::capture::Wanted;
use crate::config::{self, AccessMode};
use crate::handoff::Selection;
use crate::nic::Capturing;

/// How long a client may take to send a request, or to read its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an array that go into one line: what is around them has room there, too.
const PART_MAX: usize = LINE_MAX - 64;

/// Answers the requests of clients.
pub trait Handler {
    /// An object with what runs (`host`, `wire`, ... as plain values) and, under `counters`, the result of
    /// [`counters_json`](super::counters_json).
    fn stats(&self) -> Value;

    /// The result of [`settings_json`](super::settings_json) for the configuration in force.
    ///
    /// # Errors
    /// A message about an unknown key.
    fn get(&self, key: Option<&str>) -> Result<Value, String>;

    /// Connections of programs, as an array of objects.
    ///
    /// # Errors
    /// A message that there can be none.
    fn connections(&self) -> Result<Value, String> {
        Err("this wharf runs no connections of programs".to_owned())
    }

    /// Programs that may offer connections, as an array of objects.
    fn programs(&self) -> Value {
        Value::Array(Vec::new())
    }

    /// Moves these connections. The client is entitled to do so. Returns an object that says how many.
    ///
    /// # Errors
    /// A message that gives the reason why nothing moves.
    fn hand_off(&self, to_nic: bool, which: Selection) -> Result<Value, String> {
        let _ = (to_nic, which);
        Err("this wharf runs no connections of programs".to_owned())
    }

    /// Captures what passes the wire. The client is entitled to do so.
    ///
    /// # Errors
    /// A message that gives the reason why not.
    fn capture(&self, wanted: Wanted) -> Result<Capturing, String> {
        let _ = wanted;
        Err("this wharf captures no packets: one of wharf up does".to_owned())
    }

    /// Changes one setting while wharf runs. The client is entitled to do so.
    ///
    /// # Errors
    /// A message that gives the reason why the setting stays as it is.
    fn set(&self, key: &str, value: &str) -> Result<(), String>;
}

/// A control socket that is not served yet. Its name is taken.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    /// The socket's file; `None` for an abstract name, which vanishes with the listener.
    taken: Option<Taken>,
    /// Users that may connect to an abstract name, which has no mode of its own.
    gate: Gate,
    notice: Option<String>,
}

impl Control {
    /// Takes the name of the host interface `host`, in the network namespace of the calling thread: a file in
    /// `/run/wharf` where that is root's and this process is root, else an abstract name. `access` decides
    /// which users may connect.
    ///
    /// # Errors
    /// `AddrInUse` if a wharf with this host interface runs here already.
    pub fn bind(host: &str, access: &config::Access) -> io::Result<Control> {
        match Directory::lock() {
            Ok(directory) => Control::bind_file(&directory, host, access),
            Err(why) => {
                let address = UnixAddress::from_abstract_name(format!("{PREFIX}{host}"))?;
                let listener = UnixListener::bind_addr(&address).map_err(|error| {
                    match process::has_all_of_root() {
                        // Not "a wharf runs already": any process may take that name.
                        true => io::Error::new(
                            why.kind(),
                            format!("no control socket in {DIRECTORY}: {why}; and {error}"),
                        ),
                        false => error,
                    }
                })?;
                let notice = process::has_all_of_root().then(|| {
                    format!("no control socket in {DIRECTORY} ({why}): it is an abstract one")
                });
                Ok(Control { listener, taken: None, gate: Gate::of(access), notice })
            }
        }
    }

    fn bind_file(
        directory: &Directory,
        host: &str,
        access: &config::Access,
    ) -> io::Result<Control> {
        directory.sweep();
        let namespace = place::namespace()?;
        let path = place::path(namespace, host);
        let path = Path::new(&path);
        let taken = directory.take(&format!("{namespace}-{}", place::escape(host)))?;
        let bind = || {
            // The process that had the lock has ended.
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = sys::unix::listen(path)?;
            chown(path, None, Some(access.group))?;
            fs::set_permissions(path, Permissions::from_mode(access.mode.bits()))?;
            Ok(listener)
        };
        match bind() {
            Ok(listener) => {
                let taken = Some(taken.with(path));
                Ok(Control { listener, taken, gate: Gate::Open, notice: None })
            }
            Err(error) => {
                // The next process removes the lock's file: the directory is locked here.
                taken.leave();
                let words = format!("cannot make the control socket {}: {error}", path.display());
                Err(io::Error::new(error.kind(), words))
            }
        }
    }

    /// A problem of the socket, in one line, if there is one.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// A listener for the sessions of processes whose connections this NIC may run, at a name beside this one.
    ///
    /// # Errors
    /// What bind and chown say.
    pub fn listen_for_handoffs(
        &self,
        host: &str,
        access: &config::Access,
    ) -> io::Result<crate::handoff::Listener> {
        let address = place::handoffs(host, self.taken.is_some())?;
        crate::handoff::Listener::bind(&address, access)
    }

    /// Serves clients from a thread of its own until the result is dropped.
    ///
    /// # Errors
    /// No thread or no descriptor is available.
    pub fn serve(self, handler: impl Handler + Send + Sync + 'static) -> io::Result<Serving> {
        let (stop, stopped) = UnixStream::pair()?;
        let handler = Arc::new(handler);
        let thread = thread::Builder::new().name("control".to_owned()).spawn(move || {
            accept_until(&self.listener, &stopped, self.gate, &handler);
            drop(self.taken);
        })?;
        Ok(Serving { stop: Some(stop), thread: Some(thread) })
    }
}

/// A control socket that is served. Dropping it closes the socket and every connection, after the answers to
/// requests that have begun. Afterwards no thread has the handler.
#[derive(Debug)]
pub struct Serving {
    /// To close it wakes the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has no result, and a panic of it was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Serves each client on a thread, so that one that hangs does not delay the others. When this returns no
/// client has the handler any more.
fn accept_until<H>(listener: &UnixListener, stopped: &UnixStream, gate: Gate, handler: &Arc<H>)
where
    H: Handler + Send + Sync + 'static,
{
    let mut clients = Clients::default();
    loop {
        let mut set = PollSet::new();
        let stop = set.add(stopped.as_fd(), Interest::Read);
        let arrival = set.add(listener.as_fd(), Interest::Read);
        // Two always fit.
        let (Ok(stop), Ok(arrival)) = (stop, arrival) else { return clients.end() };
        if set.wait(None).is_err() || set.readable(stop) {
            return clients.end();
        }
        if !set.readable(arrival) {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, gate, handler, &mut clients),
            // No descriptor is left: the client stays in the queue, and a loop without a pause would spin.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn admit<H>(stream: UnixStream, gate: Gate, handler: &Arc<H>, clients: &mut Clients)
where
    H: Handler + Send + Sync + 'static,
{
    let refuse = |stream, words: &str| {
        // A client that does not read the refusal is refused all the same.
        let _ =
            Lines::new(Arc::new(stream)).write(&json!({"error": words}), Duration::from_millis(10));
    };
    let Ok(peer) = process::peer_credentials(&stream) else { return };
    // The last of the stream's descriptors, as to close that may take long.
    let Ok(last) = stream.as_fd().try_clone_to_owned() else { return };
    let last = Foreign::new(last, peer.uid);
    let entitled = is_entitled(&peer);
    tracing::debug!("a control client: process {} of user {}", peer.pid, peer.uid);
    if !entitled && !gate.lets(&peer) {
        tracing::info!("user {} may not ask: control.mode, control.group", peer.uid);
        return refuse(stream, "you may not ask this wharf (control.mode, control.group)");
    }
    if !clients.have_room(entitled) {
        return refuse(stream, "too many clients at once; try again");
    }
    // A client that keeps its thread waiting does not keep the handler.
    let handler = Arc::downgrade(handler);
    clients.serve((stream, last), entitled, move |stream, ending| {
        converse(stream, &Client { peer, entitled }, ending, &handler);
    });
}

/// Users that may connect, where no file's mode decides.
#[derive(Clone, Copy, Debug)]
enum Gate {
    /// All that can connect.
    Open,
    /// The members of a group.
    Group(u32),
    /// Root and the user that runs this wharf.
    Closed,
}

impl Gate {
    fn of(access: &config::Access) -> Gate {
        match access.mode {
            AccessMode::All => Gate::Open,
            AccessMode::Group => Gate::Group(access.group),
            AccessMode::Owner => Gate::Closed,
        }
    }

    fn lets(self, peer: &PeerCredentials) -> bool {
        match self {
            Gate::Open => true,
            Gate::Group(group) => peer.gid == group,
            Gate::Closed => false,
        }
    }
}

/// The process at the other end of a connection.
struct Client {
    peer: PeerCredentials,
    /// Whether it may change settings.
    entitled: bool,
}

impl Client {
    /// Logs which client has moved what.
    fn log_hand_off(&self, to_nic: bool, which: Selection) {
        let PeerCredentials { pid, uid, .. } = self.peer;
        let to = if to_nic { "nic" } else { "os" };
        match which {
            Selection { path: Some(FourTuple { local, remote }), .. } => tracing::info!(
                "process {pid} of user {uid} moves the connection of {local} and {remote} to the {to}"
            ),
            Selection { pid: Some(of), .. } => tracing::info!(
                "process {pid} of user {uid} moves the connections of process {of} to the {to}"
            ),
            _ => tracing::info!("process {pid} of user {uid} moves all connections to the {to}"),
        }
    }

    /// Logs which client has changed what.
    fn log_set(&self, key: &str, value: &str, set: &Result<(), String>) {
        let PeerCredentials { pid, uid, .. } = self.peer;
        match set {
            Ok(()) => tracing::info!("{key} is {value} now: set by process {pid} of user {uid}"),
            Err(why) => tracing::info!("{key}={value} of process {pid} is refused: {why}"),
        }
    }
}

/// Whether a client may change settings, and take a reserved place: root, and the user that runs this wharf.
fn is_entitled(peer: &PeerCredentials) -> bool {
    matches!(process::owner(peer.uid), Owner::Root | Owner::Own)
}

/// Answers requests until the client disconnects, takes too long or sends an invalid line.
fn converse(
    stream: Arc<UnixStream>,
    client: &Client,
    ending: &AtomicBool,
    handler: &Weak<impl Handler>,
) {
    let mut lines = Lines::new(stream);
    while !ending.load(Ordering::Acquire) {
        let answer = match lines.read(PATIENCE) {
            Ok(Some(line)) => {
                let Some(handler) = handler.upgrade() else { return };
                request(&line, client, &*handler)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let words = format!("a request is one line of at most {LINE_MAX} bytes");
                let _ = lines.write(&json!({"error": words}), PATIENCE); // it is over either way
                return;
            }
            _ => return,
        };
        let (answer, capturing) = match answer {
            Ok(Answer::Value(Value::Array(all))) => (parts(all), None),
            Ok(Answer::Value(value)) => (vec![json!({"ok": value})], None),
            Ok(Answer::Capture(capturing)) => (vec![json!({"ok": true})], Some(capturing)),
            Err(words) => (vec![json!({"error": words})], None),
        };
        if answer.iter().any(|line| lines.write(line, PATIENCE).is_err()) {
            return;
        }
        if let Some(capturing) = capturing {
            // What is on the way now are no lines any more. That the client has gone is no error.
            let _ = feed::send(lines.stream(), &capturing, PATIENCE);
            return;
        }
    }
}

/// What answers a request.
enum Answer {
    Value(Value),
    /// Packets, until the client ends it.
    Capture(Capturing),
}

/// An array as an answer of several lines, if it is too long for one: all but the last say that more follow.
fn parts(all: Vec<Value>) -> Vec<Value> {
    let (mut lines, mut part, mut len) = (Vec::new(), Vec::new(), 0);
    for value in all {
        let more = value.to_string().len() + 1;
        if len + more > PART_MAX && !part.is_empty() {
            lines.push(json!({"ok": std::mem::take(&mut part), "more": true}));
            len = 0;
        }
        len += more;
        part.push(value);
    }
    lines.push(json!({"ok": part}));
    lines
}

const REQUESTS: &str = r#"a request is {"stats":true}, {"get":KEY}, {"set":{KEY:VALUE}}, {"connections":true}, {"programs":true}, {"handoff":{"to":"nic"}} or {"capture":{}}"#;

fn request(line: &[u8], client: &Client, handler: &impl Handler) -> Result<Answer, String> {
    let parsed: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("{REQUESTS}, not this: {error}"))?;
    if let Some(("capture", Value::Object(what))) = single(&parsed) {
        if !client.entitled {
            return Err("only root and the user that runs wharf may capture packets".to_owned());
        }
        let wanted = capture(what).ok_or(REQUESTS)?;
        let PeerCredentials { pid, uid, .. } = client.peer;
        tracing::info!("process {pid} of user {uid} captures packets");
        return handler.capture(wanted).map(Answer::Capture);
    }
    value_of(&parsed, client, handler).map(Answer::Value)
}

/// What answers a request by a value.
fn value_of(
    parsed: &Map<String, Value>,
    client: &Client,
    handler: &impl Handler,
) -> Result<Value, String> {
    match single(parsed) {
        Some(("stats", Value::Bool(true))) => Ok(handler.stats()),
        Some(("get", Value::Null)) => handler.get(None),
        Some(("get", Value::String(key))) => handler.get(Some(key)),
        Some(("connections", Value::Bool(true))) => handler.connections(),
        Some(("programs", Value::Bool(true))) => Ok(handler.programs()),
        Some(("handoff", Value::Object(what))) => {
            if !client.entitled {
                return Err(
                    "only root and the user that runs wharf may move connections".to_owned()
                );
            }
            let (to_nic, which) = hand_off(what).ok_or(REQUESTS)?;
            client.log_hand_off(to_nic, which);
            handler.hand_off(to_nic, which)
        }
        Some(("set", Value::Object(setting))) => {
            let (key, value) = single(setting).ok_or(REQUESTS)?;
            let value = text(value).ok_or(REQUESTS)?;
            if !client.entitled {
                return Err("only root and the user that runs wharf may change settings".to_owned());
            }
            let set = handler.set(key, &value);
            client.log_set(key, &value, &set);
            set.map(|()| Value::Bool(true))
        }
        _ => Err(REQUESTS.to_owned()),
    }
}

/// The connection that a request names, if it does.
fn path(what: &Map<String, Value>) -> Option<FourTuple> {
    let end = |name: &str| -> Option<SocketAddr> {
        let end: SocketAddr = what.get(name)?.as_str()?.parse().ok()?;
        Some(SocketAddr::new(end.ip().to_canonical(), end.port()))
    };
    Some(FourTuple { local: end("local")?, remote: end("remote")? })
}

/// What is to be captured.
fn capture(what: &Map<String, Value>) -> Option<Wanted> {
    let path = path(what);
    let snaplen = match what.get("snaplen") {
        Some(snaplen) => Some(u32::try_from(snaplen.as_u64()?).ok()?.min(feed::PACKET_MAX)),
        None => None,
    };
    let understood = if path.is_some() { 2 } else { 0 } + usize::from(snaplen.is_some());
    let snaplen = snaplen.unwrap_or(feed::PACKET_MAX);
    (what.len() == understood).then_some(Wanted { path, snaplen })
}

/// Where to, and which.
fn hand_off(what: &Map<String, Value>) -> Option<(bool, Selection)> {
    let to_nic = match what.get("to")?.as_str()? {
        "nic" => true,
        "os" => false,
        _ => return None,
    };
    let path = path(what);
    let pid = what.get("pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
    // What is there and was not understood must not mean more than was meant.
    let understood = 1 + if path.is_some() { 2 } else { 0 } + usize::from(pid.is_some());
    (what.len() == understood).then_some((to_nic, Selection { path, pid }))
}

/// The only entry of an object; `None` if there are more, or none.
fn single(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut entries = object.iter();
    match (entries.next(), entries.next()) {
        (Some((key, value)), None) => Some((key, value)),
        _ => None,
    }
}

/// A setting's value in the form that the configuration parses.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
