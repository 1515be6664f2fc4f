//! The guard: a small process that puts the wire back as it was, however wharf ends.
//!
//! `wharf up` starts it before it changes anything and keeps the only writing end of its standard
//! input. That pipe closes when wharf ends, by itself or by `kill -9`; the guard then waits until
//! the kernel has taken the host interface away and restores the wire. It has a process group and
//! a name of its own, so that what is meant for wharf (Ctrl-C, `pkill -9 wharf`) does not end it.
//! Should it die, wharf starts another.

use std::io::{self, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nic::features::Features;
use nic::quiet::Switches;
use serde_json::{Value, json};
use sys::interface::{self, Interface};
use sys::netlink::saved::Saved;

use crate::error::Error;

/// The guard's name among processes.
const NAME: &str = "nic-guard";
/// What a pipe takes before somebody reads: 64 KB (pipe(7)), and some room for what follows.
const PIPE_HOLDS: usize = 60_000;
/// How long the kernel may take to remove the interface of a process that has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// The wire as it was before wharf, and what wharf makes.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    host: String,
    wire: String,
    saved: Saved,
    switches: Switches,
    features: Features,
    /// wharf sets the wire up.
    was_up: bool,
    /// Whether addresses and routes are to move to the host interface.
    take_addresses: bool,
    /// The far end that a veth as the host interface will have, unless that name is taken.
    far_end: Option<String>,
}

impl Before {
    /// Looks at the wire.
    pub(crate) fn look(wire: &str, host: &str, take_addresses: bool) -> sys::Result<Before> {
        let far_end = nic::far_end_of(host);
        let info = Interface::by_name(wire)?;
        Ok(Before {
            far_end: interface::index(&far_end).is_err().then_some(far_end),
            host: host.to_owned(),
            wire: wire.to_owned(),
            saved: Saved::save(info.index)?,
            switches: Switches::read(wire),
            features: Features::read(wire),
            was_up: info.up,
            take_addresses,
        })
    }

    /// Looks at a wire that no host interface is made for.
    pub(crate) fn look_at(wire: &str) -> sys::Result<Before> {
        Ok(Before { far_end: None, ..Before::look(wire, wire, false)? })
    }

    /// Moves addresses and routes to the host interface.
    pub(crate) fn move_to(&self, host_index: u32) -> sys::Result<()> {
        self.saved.remove()?;
        self.saved.apply(host_index)
    }

    /// Puts the wire back. What is there already is left; a wire that is gone needs nothing.
    fn restore(&self) -> sys::Result<()> {
        // By index: it may have another name by now, and another interface may have the old one.
        let index = self.saved.index;
        let Ok(Interface { name, .. }) = Interface::by_index(index) else {
            return Ok(());
        };
        let switches = Switches::from_values(&name, self.switches.values());
        // Turning IPv6 off took addresses away, so turning it on asks for them as well.
        let was_quiet = Switches::read(&name) != switches;
        switches.restore();
        Features::from_values(&name, self.features.values()).restore();
        if self.take_addresses || was_quiet {
            self.saved.apply(index)?;
        }
        if self.was_up { Ok(()) } else { interface::set_down(&name) }
    }

    fn to_json(&self) -> Value {
        json!({
            "host": self.host, "wire": self.wire, "take_addresses": self.take_addresses,
            "saved": self.saved.to_bytes(), "switches": self.switches.values(),
            "features": self.features.values(), "was_up": self.was_up, "far_end": self.far_end,
        })
    }

    fn from_json(value: &Value) -> Option<Before> {
        let text = |key| value[key].as_str().map(str::to_owned);
        let bytes: Vec<u8> = value["saved"]
            .as_array()?
            .iter()
            .map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
            .collect::<Option<_>>()?;
        let switches: Vec<Option<String>> =
            value["switches"].as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect();
        let features: Vec<bool> =
            value["features"].as_array()?.iter().map(Value::as_bool).collect::<Option<_>>()?;
        Some(Before {
            features: Features::from_values(&text("wire")?, features.try_into().ok()?),
            was_up: value["was_up"].as_bool()?,
            host: text("host")?,
            wire: text("wire")?,
            take_addresses: value["take_addresses"].as_bool()?,
            far_end: text("far_end"),
            saved: Saved::from_bytes(&bytes).ok()?,
            switches: Switches::from_values(&text("wire")?, switches.try_into().ok()?),
        })
    }
}

/// wharf's hold on its guard.
#[derive(Debug)]
pub(crate) struct Guard {
    before: Before,
    child: Child,
    pipe: Option<PipeWriter>,
    /// Said once wharf has made the host interface, whose end the guard then waits for.
    made: Option<u32>,
}

impl Guard {
    /// Starts a guard for a wire that looked like `before`.
    pub(crate) fn start(before: Before) -> Result<Guard, Error> {
        Guard::start_knowing(before, None)
    }

    /// The guard finds in its pipe, from its first moment, all that there is to know; were it
    /// written later, a `kill -9` of wharf in between would leave a guard that knows nothing.
    fn start_knowing(before: Before, made: Option<u32>) -> Result<Guard, Error> {
        let (reader, mut pipe) = io::pipe().map_err(Error::Guard)?;
        let mut text = format!("{}\n", before.to_json());
        if let Some(index) = made {
            text.push_str(&format!("{}\n", json!({ "made": index })));
        }
        let fits = text.len() <= PIPE_HOLDS;
        if fits {
            pipe.write_all(text.as_bytes()).map_err(Error::Guard)?;
        }
        let child = Command::new("/proc/self/exe")
            .arg0(NAME)
            // So that a list of processes tells guards apart.
            .arg(&before.host)
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .spawn()
            .map_err(Error::Guard)?;
        if !fits {
            pipe.write_all(text.as_bytes()).map_err(Error::Guard)?;
        }
        Ok(Guard { before, child, pipe: Some(pipe), made })
    }

    /// Tells the guard that the interface of this index is wharf's.
    pub(crate) fn host_made(&mut self, index: u32) -> Result<(), Error> {
        self.made = Some(index);
        self.say(&json!({ "made": index }))
    }

    /// Starts another guard if this one has died.
    pub(crate) fn watch(&mut self) -> Result<(), Error> {
        if self.child.try_wait().map_err(Error::Guard)?.is_none() {
            return Ok(());
        }
        *self = Guard::start_knowing(self.before.clone(), self.made)?;
        Ok(())
    }

    fn say(&mut self, value: &Value) -> Result<(), Error> {
        match &mut self.pipe {
            Some(pipe) => writeln!(pipe, "{value}").map_err(Error::Guard),
            None => Ok(()),
        }
    }

    /// Lets the guard restore the wire, and waits until it has. If it cannot, or has been killed
    /// just now, it is done from here.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.pipe = None;
        if self.child.wait().is_ok_and(|ended| ended.success()) {
            return Ok(());
        }
        Ok(self.before.restore()?)
    }
}

/// Whether this process was started as a guard.
pub(crate) fn is_this() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// The guard's own life.
pub(crate) fn run() -> Result<(), Error> {
    // What ends wharf is not for the guard; the signals stay blocked and unread.
    let _signals = sys::poll::Signals::block().map_err(Error::Io)?;
    let _ = sys::process::set_name(NAME);
    // All that it puts back is of the network; and it is to be put back in any case.
    let _ = crate::up::give_up_rights();
    let mut said = String::new();
    io::stdin().read_to_string(&mut said).map_err(Error::Io)?;
    let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let before = lines.next().and_then(|value| Before::from_json(&value));
    let before = before.ok_or_else(|| {
        Error::Usage("guard is not for calling by hand: wharf up starts it".to_owned())
    })?;
    let made = lines.find_map(|value| u32::try_from(value["made"].as_u64()?).ok());
    if let Some(far_end) = &before.far_end {
        delete_veth(far_end);
    }
    if let Some(index) = made {
        wait_for_end(&before.host, index);
    }
    Ok(before.restore()?)
}

/// Deletes a host interface that is a veth, by its far end, which nobody else has a use for: wharf
/// may have died before it could say that it had made it.
fn delete_veth(far_end: &str) {
    let found = Interface::by_name(far_end);
    if found.is_ok_and(|found| found.kind.as_deref() == Some("veth")) {
        let _ = sys::netlink::link::delete(far_end);
    }
}

/// Waits until the host interface is gone, as a TAP is with its process.
fn wait_for_end(name: &str, index: u32) {
    let since = Instant::now();
    while Interface::by_index(index).is_ok_and(|host| host.name == name) {
        if since.elapsed() > PATIENCE {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
