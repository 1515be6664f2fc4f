//! The wharf side.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Map, Value, json};
use sys::poll::{Interest, PollSet};
use sys::process;

use super::PREFIX;
use super::clients::Clients;
use super::line::{LINE_MAX, Lines};

/// How long a client may take over a request, or to read its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers what clients ask.
pub trait Handler {
    /// An object: what runs (`host`, `wire`, ... as plain values) and, under `counters`, what
    /// [`counters_json`](super::counters_json) gives.
    fn stats(&self) -> Value;

    /// What [`settings_json`](super::settings_json) gives for the configuration in force.
    ///
    /// # Errors
    /// An unknown key, in words.
    fn get(&self, key: Option<&str>) -> Result<Value, String>;

    /// Changes one setting while wharf runs. The peer has been found entitled to.
    ///
    /// # Errors
    /// Why the setting stays as it is, in words.
    fn set(&self, key: &str, value: &str) -> Result<(), String>;
}

/// A control socket that nobody serves yet. It holds the name of this wharf.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
}

impl Control {
    /// Takes the name of the host interface `host`, in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// `AddrInUse` when a wharf with this host interface runs here already.
    pub fn bind(host: &str) -> io::Result<Control> {
        let address = SocketAddr::from_abstract_name(format!("{PREFIX}{host}"))?;
        Ok(Control { listener: UnixListener::bind_addr(&address)? })
    }

    /// Serves clients from a thread of its own until the result is dropped.
    ///
    /// # Errors
    /// No thread or no descriptor left.
    pub fn serve(self, handler: impl Handler + Send + Sync + 'static) -> io::Result<Serving> {
        let (stop, stopped) = UnixStream::pair()?;
        let handler = Arc::new(handler);
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept_until(&self.listener, &stopped, &handler))?;
        Ok(Serving { stop: Some(stop), thread: Some(thread) })
    }
}

/// A control socket at work. Dropping it closes the socket and every connection; a client in the
/// middle of a request gets its answer yet. Nothing has the handler then.
#[derive(Debug)]
pub struct Serving {
    /// Closing it wakes the thread.
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

/// Gives each client a thread, so that a stuck one holds up nobody else. When this returns no
/// client has the handler any more.
fn accept_until<H>(listener: &UnixListener, stopped: &UnixStream, handler: &Arc<H>)
where
    H: Handler + Send + Sync + 'static,
{
    let mut clients = Clients::default();
    loop {
        let mut set = PollSet::new();
        let stop = set.add(stopped.as_fd(), Interest::Read);
        let arrival = set.add(listener.as_fd(), Interest::Read);
        if set.wait(None).is_err() || set.readable(stop) {
            return clients.end();
        }
        if !set.readable(arrival) {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, handler, &mut clients),
            // Out of descriptors: the client stays in the queue, so do not spin on it.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn admit<H>(stream: UnixStream, handler: &Arc<H>, clients: &mut Clients)
where
    H: Handler + Send + Sync + 'static,
{
    if !clients.have_room() {
        let full = json!({"error": "too many clients at once; try again"});
        // Whoever does not read the refusal is refused all the same.
        let _ = Lines::new(Arc::new(stream)).write(&full, Duration::from_millis(10));
        return;
    }
    let handler = Arc::clone(handler);
    clients.serve(stream, move |stream, ending| converse(stream, ending, &*handler));
}

/// Answers requests until the client leaves, takes too long or sends what is no line.
fn converse(stream: Arc<UnixStream>, ending: &AtomicBool, handler: &impl Handler) {
    let entitled = may_set(&stream);
    let mut lines = Lines::new(stream);
    while !ending.load(Ordering::Acquire) {
        let answer = match lines.read(PATIENCE) {
            Ok(Some(line)) => answer(&line, entitled, handler),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let words = format!("a request is one line of at most {LINE_MAX} bytes");
                let _ = lines.write(&json!({"error": words}), PATIENCE); // it is over either way
                return;
            }
            _ => return,
        };
        if lines.write(&answer, PATIENCE).is_err() {
            return;
        }
    }
}

/// Only root and the user that runs this wharf.
fn may_set(stream: &UnixStream) -> bool {
    process::peer_credentials(stream).is_ok_and(|peer| peer.uid == 0 || peer.uid == process::uid())
}

fn answer(line: &[u8], entitled: bool, handler: &impl Handler) -> Value {
    match request(line, entitled, handler) {
        Ok(value) => json!({"ok": value}),
        Err(words) => json!({"error": words}),
    }
}

const REQUESTS: &str = r#"a request is {"stats":true}, {"get":KEY} or {"set":{KEY:VALUE}}"#;

fn request(line: &[u8], entitled: bool, handler: &impl Handler) -> Result<Value, String> {
    let parsed: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("{REQUESTS}, not this: {error}"))?;
    match single(&parsed) {
        Some(("stats", Value::Bool(true))) => Ok(handler.stats()),
        Some(("get", Value::Null)) => handler.get(None),
        Some(("get", Value::String(key))) => handler.get(Some(key)),
        Some(("set", Value::Object(setting))) => {
            let (key, value) = single(setting).ok_or(REQUESTS)?;
            let value = text(value).ok_or(REQUESTS)?;
            if !entitled {
                return Err("only root and the user that runs wharf may change settings".to_owned());
            }
            handler.set(key, &value).map(|()| Value::Bool(true))
        }
        _ => Err(REQUESTS.to_owned()),
    }
}

/// The only entry.
fn single(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut entries = object.iter();
    match (entries.next(), entries.next()) {
        (Some((key, value)), None) => Some((key, value)),
        _ => None,
    }
}

/// A setting's value as the configuration reads it.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
