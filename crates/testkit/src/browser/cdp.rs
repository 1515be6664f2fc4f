//! The Chrome DevTools Protocol over a pair of pipes: commands, answers, events. Messages are JSON, each
//! followed by a NUL (`--remote-debugging-pipe`).

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a browser may take for one answer or event.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser reads its descriptor 3 and writes its descriptor 4; the shell makes these of its
/// standard input and output.
const WITH_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

const ARGUMENTS: [&str; 13] = [
    "--remote-debugging-pipe",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A running browser with one page.
#[derive(Debug)]
pub(super) struct Connection {
    browser: Child,
    /// The browser's input; `None` once it is being closed.
    commands: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Events that `wait` has not taken yet, oldest first.
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
    profile: PathBuf,
}

impl Connection {
    /// Starts a browser with an empty profile in `profile`, a directory that is removed with it.
    pub(super) fn start(program: &Path, profile: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&profile)?;
        let mut browser = Command::new("sh")
            .args(["-c", WITH_PIPES])
            .arg(program)
            .args(ARGUMENTS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (sender, messages) = channel();
        if let Some(output) = browser.stdout.take() {
            std::thread::spawn(move || read_messages(output, &sender));
        }
        let commands = browser.stdin.take();
        let events = Vec::new();
        let mut this =
            Self { browser, commands, messages, events, session: None, last_id: 0, profile };
        let target = this.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = this.call("Target.attachToTarget", attach)?;
        this.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            this.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(this)
    }

    /// Sends a command and returns its answer.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> io::Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let closed = || io::Error::other("the browser is being closed");
        let commands = self.commands.as_mut().ok_or_else(closed)?;
        commands.write_all(&[command.to_string().as_bytes(), b"\0"].concat())?;
        commands.flush()?;
        let mut answer = self.first(method, |message| message["id"] == id)?;
        match answer.get("error") {
            Some(error) => Err(io::Error::other(format!("{method}: {error}"))),
            None => Ok(answer["result"].take()),
        }
    }

    /// Waits for an event of this name that was not taken before.
    pub(super) fn wait(&mut self, event: &str) -> io::Result<Value> {
        if let Some(at) = self.events.iter().position(|message| message["method"] == event) {
            return Ok(self.events.remove(at));
        }
        self.first(event, |message| message["method"] == event)
    }

    /// Takes all events that were not taken before.
    pub(super) fn take_events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.events)
    }

    /// The first message for which `is_it` holds; events before it are kept.
    fn first(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> io::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) if is_it(&message) => return Ok(message),
                Ok(message) if message.get("method").is_some() => self.events.push(message),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!("no {what} in {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other(format!("the browser ended before {what}")));
                }
            }
        }
    }
}

fn read_messages(output: ChildStdout, sender: &Sender<Value>) {
    let mut output = BufReader::new(output);
    loop {
        let mut message = Vec::new();
        match output.read_until(0, &mut message) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        message.pop_if(|last| *last == 0);
        let parsed = serde_json::from_slice(&message);
        if parsed.is_ok_and(|message| sender.send(message).is_err()) {
            return;
        }
    }
}

impl Drop for Connection {
    /// A browser whose pipe is closed ends with all its processes; one that does not end is killed.
    fn drop(&mut self) {
        self.commands = None;
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.browser.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // It has ended already, or cannot be killed.
                let _ = self.browser.kill();
                let _ = self.browser.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // A profile that cannot be removed is left in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
