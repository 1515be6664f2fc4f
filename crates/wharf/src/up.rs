//! `wharf up`: wharf between a wire and this machine.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ::handoff::session::VERSION;
use clap::Args;

use nic::Nic;
use nic::capture::Wanted;
use nic::config::{Access, Config};
use nic::control::{Control, Handler, counters_json, settings_json};
use nic::degen;
use nic::handoff::{Listener, Selection};
use nic::mirror::{Followed, Mirror};
use nic::nic::Capturing;
use nic::tcp::Own;
use serde_json::{Value, json};
use sys::interface::Interface;
use sys::poll::{Interest, PollSet, Signals};
use sys::process::Signal;

use crate::args::Settings;
use crate::error::Error;
use crate::guard::{Before, Guard, Keeping, put_back_earlier};
use crate::lateness::Lateness;
use crate::log::tell;
use crate::serve::ServeArgs;
use crate::serving::{LOOK_EVERY, claim, give_up_rights, still_held};
use crate::settings::WAN;
use crate::text::escaped;
use crate::{connections, handoff, print, settings};

/// Put wharf between an interface and this machine
///
/// The kernel then uses the host interface that wharf makes instead of the wire. wharf runs
/// until it is stopped (Ctrl-C), and then removes what it made.
#[derive(Debug, Args)]
#[command(after_help = "Example: take over eth0, its addresses and routes included:\n  \
                        wharf up --wire eth0 --host nic0 --take-addresses\n\n\
                        Example: no LRO, and a file for the rest:\n  \
                        wharf up --wire eth0 --host nic0 --take-addresses --config wharf.toml \\\n    \
                        --set lro.enable=false\n\n\
                        Example: an address of wharf's own beside this machine's, which echoes:\n  \
                        wharf up --wire eth0 --host nic0 --take-addresses \\\n    \
                        --address 192.0.2.9/24 --service echo --port 7")]
pub(crate) struct UpArgs {
    /// Ethernet interface that faces the network
    #[arg(long, value_name = "IF")]
    pub(crate) wire: String,
    /// Name of the interface to make for this machine
    #[arg(long, value_name = "NAME")]
    pub(crate) host: String,
    /// Move addresses and routes from the wire to the host interface while wharf runs
    #[arg(long)]
    pub(crate) take_addresses: bool,
    /// A WAN between the wire and wharf: a settings file of `wharf degen`, whose forward direction is
    /// that of what this machine sends
    #[arg(long, value_name = "FILE")]
    pub(crate) degen: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Checks everything that can be checked before anything is made.
pub(crate) fn load_config(args: &UpArgs) -> Result<Config, Error> {
    settings::load(&args.settings)
}

/// Runs until a signal, or until the wire or the host interface is gone.
pub(crate) fn run(args: &UpArgs) -> Result<(), Error> {
    put_back_earlier()?;
    let mut config = load_config(args)?;
    config.wire.leave_configuration = args.take_addresses;
    let wan = args.degen.as_deref().map(settings::load_degen).transpose()?;
    check_names(args)?;
    let own = args.serve.own()?;
    let wire = nic::find_wire(&args.wire)?;
    own.as_ref().map_or(Ok(()), |own| are_free(&wire, own))?;
    if !args.take_addresses {
        has_no_addresses(&wire, &args.host)?;
    }
    // Both are taken first: two wharfs for one interface would undo each other's work.
    let control = bind(&args.host, &config.control)?;
    let _claim = claim(&args.wire, wire.index, "choose another --wire")?;
    let signals = Signals::block().map_err(Error::Io)?;
    let before = Before::look(&args.wire, &args.host, args.take_addresses)?;
    let keeping = Keeping::new(config.handoff.connections).map_err(Error::Io)?;
    let mut guard = Guard::start(before.clone(), keeping)?;
    // While its file can be given to a group.
    let sessions = match config.handoff.connections {
        0 => None,
        _ => Some(control.listen_for_handoffs(&args.host, &config.control).map_err(Error::Io)?),
    };
    let what = What { config, wan, own, control, sessions };
    let result = serve(args, what, &signals, &before, &mut guard);
    // The host interface is gone by now, so the guard has only the wire to put back.
    result.and(guard.finish())
}

/// What is to run, and the name that it is known by.
struct What {
    config: Config,
    wan: Option<degen::Settings>,
    /// Addresses beside the host's.
    own: Option<Own>,
    control: Control,
    /// Where programs begin that hand off connections.
    sessions: Option<Listener>,
}

/// Brings the NIC up and keeps it up; it is down again when this returns.
fn serve(
    args: &UpArgs,
    what: What,
    signals: &Signals,
    before: &Before,
    guard: &mut Guard,
) -> Result<(), Error> {
    let What { config, mut wan, own, control, sessions } = what;
    let serves = if own.is_some() { args.serve.describe() } else { String::new() };
    let seed = wan.as_mut().map(degen::Settings::fix_seed);
    let nic = Arc::new(Nic::start_with(&args.wire, &args.host, config, wan.as_ref(), own)?);
    let (host, host_index) = nic.host();
    guard.host_made(host_index);
    let mut mirror = before.move_to(host_index)?;
    give_up_rights()?;
    nic.notices().iter().map(String::as_str).chain(control.notice()).for_each(tell);
    if args.take_addresses && before.has_no_addresses() {
        tell(&format!(
            "{} has no addresses to take: {host} has none, until they are added to either",
            args.wire
        ));
    }
    if let Some(sessions) = sessions {
        nic.begin_handoffs(sessions).map_err(Error::Io)?;
        guard.keeping().and_then(Keeping::for_nic).into_iter().for_each(|to| nic.keep_with(to));
        guard.handoffs().into_iter().for_each(|end| nic.guard_with(end));
    }
    let serving = control.serve(Answers(Arc::clone(&nic))).map_err(Error::Io)?;
    // That it is not read is no error: a NIC does not end because a terminal did.
    let seed = seed.map(|seed| format!(", degen with seed {seed}")).unwrap_or_default();
    let line = format!("up: {} -> {host} ({}{seed})", args.wire, nic.ports()) + &serves;
    let _ = print(format!("{}\n", escaped(&line)));
    guard.keeping().into_iter().for_each(Keeping::is_up);
    let mut lateness = Lateness::default();
    let result = wait(&nic, signals, guard, &mut lateness, mirror.as_mut());
    if let Some(mirror) = &mut mirror {
        // While the host interface is still there.
        let followed = mirror.finish();
        pass_on(mirror, followed, guard);
    }
    if let Some(wan) = nic.wan() {
        lateness.sum_up(&wan.snapshot());
    }
    drop(serving);
    // The control socket has ended with all its clients, so that this one has the NIC alone.
    let ended = Arc::try_unwrap(nic).map_err(|_| still_held()).and_then(Nic::stop);
    result.and(ended.map_err(Error::Io))
}

/// Tells the guard what the host interface has now, and the user what it could not be given.
fn pass_on(mirror: &mut Mirror, followed: Followed, guard: &mut Guard) {
    if followed.changed {
        guard.learn(mirror.latest());
    }
    mirror.settle();
    if let Some(notice) = followed.notice {
        tell(&notice);
    }
}

/// Until there is a reason to end.
fn wait(
    nic: &Nic,
    signals: &Signals,
    guard: &mut Guard,
    lateness: &mut Lateness,
    mut mirror: Option<&mut Mirror>,
) -> Result<(), Error> {
    use std::os::fd::AsFd;
    loop {
        if let Some(wan) = nic.wan() {
            lateness.look(&wan.snapshot());
        }
        let mut set = PollSet::new();
        let mut add = |socket, interest| {
            set.add(socket, interest).map(drop).map_err(|full| Error::Io(full.into()))
        };
        add(signals.as_fd(), Interest::Read)?;
        add(nic.changes(), Interest::Read)?;
        let mut timeout = LOOK_EVERY;
        if let Some(mirror) = mirror.as_deref() {
            add(mirror.as_fd(), Interest::Read)?;
            timeout = timeout.min(mirror.timeout());
        }
        if let Some(socket) = guard.waits_for() {
            add(socket, Interest::Write)?;
        }
        set.wait(Some(timeout)).map_err(Error::Io)?;
        while let Some(signal) = signals.read().map_err(Error::Io)? {
            match signal {
                Signal::Child => {}
                _ => return Ok(()),
            }
        }
        guard.flush();
        guard.watch();
        guard.handoffs().into_iter().for_each(|end| nic.guard_with(end));
        if let Some(mirror) = mirror.as_deref_mut() {
            let followed = mirror.follow();
            pass_on(mirror, followed, guard);
        }
        nic.follow()?.iter().for_each(|notice| tell(notice));
        if nic.has_failed() {
            let (host, index) = nic.host();
            return match sys::interface::Interface::by_index(index) {
                Err(error) if error.is_missing() => Err(Error::HostGone(host.to_owned())),
                // `stop` tells why.
                _ => Ok(()),
            };
        }
    }
}

/// Refuses addresses that are this machine's: wharf would take what is for it.
fn are_free(wire: &Interface, own: &Own) -> Result<(), Error> {
    let taken = sys::netlink::address::list(wire.index)?;
    match taken.iter().find(|address| own.addresses.is_own(address.ip())) {
        Some(address) => Err(Error::Usage(format!(
            "--address {}: it is this machine's, on {}; choose another, or remove it there",
            address.ip(),
            wire.name
        ))),
        None => Ok(()),
    }
}

/// Refuses a wire whose addresses would stay on it. Frames for them come by the host interface, where the kernel drops them
/// (`rp_filter`), or answers with addresses of the wire's, by which it sends past wharf. Link-local IPv6 addresses do not
/// count: the kernel makes some for every interface.
fn has_no_addresses(wire: &Interface, host: &str) -> Result<(), Error> {
    let name = &wire.name;
    let addresses = sys::netlink::address::list(wire.index)?;
    match addresses.iter().find(|address| !address.is_ipv6_link_local()) {
        Some(address) => Err(Error::Usage(format!(
            "{name} has addresses ({}), which could not be reached any more: add --take-addresses, which moves them to {host} \
             while wharf runs, or remove them first (ip address flush dev {name})",
            address.ip()
        ))),
        None => Ok(()),
    }
}

/// Refuses names that no interface can have, and for the host those that stand for several.
fn check_names(args: &UpArgs) -> Result<(), Error> {
    let refuse = |option, name, fault| {
        Err(Error::Usage(format!("--{option} {name:?} cannot be an interface's name: {fault}")))
    };
    for (option, name) in [("wire", &args.wire), ("host", &args.host)] {
        if let Some(fault) = sys::interface::name_fault(name) {
            return refuse(option, name, fault);
        }
    }
    match args.host.as_str() {
        // In /proc/sys/net the two are the settings of all interfaces.
        "all" | "default" => refuse("host", &args.host, "the kernel keeps it for itself"),
        host if host.contains('%') => refuse("host", &args.host, "it contains '%'"),
        _ => Ok(()),
    }
}

fn bind(host: &str, access: &Access) -> Result<Control, Error> {
    Control::bind(host, access).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => Error::Usage(format!(
            "a wharf with the host interface {host} runs here already: choose another --host, or \
             stop it"
        )),
        _ => Error::Io(cause),
    })
}

/// What the control socket answers.
#[derive(Debug)]
struct Answers(Arc<Nic>);

impl Handler for Answers {
    fn stats(&self) -> Value {
        let ports = self.0.ports();
        let (lro_profile, why) = self.0.lro_profile();
        json!({
            "lro_profile": lro_profile, "lro_profile_because": why,
            "wire": self.0.wire(), "host": self.0.host().0, "wire_port": ports.wire,
            "host_port": ports.host, "workers": ports.workers,
            "handoff": self.0.handoff_address(), "handoff_version": VERSION,
            "counters": counters_json(self.0.counters()),
        })
    }

    fn get(&self, key: Option<&str>) -> Result<Value, String> {
        if let Some(key) = key.and_then(|key| key.strip_prefix(WAN)) {
            return Ok(Value::Array(self.get_of_wan(self.wan()?, Some(key))?));
        }
        let all = settings_json(&self.0.config(), key).map_err(|words| self.of_wan(key, words))?;
        let of_wan = self.0.wan().filter(|_| key.is_none());
        let of_wan = of_wan.map_or(Ok(Vec::new()), |wan| self.get_of_wan(wan, None))?;
        Ok(all.as_array().into_iter().flatten().cloned().chain(of_wan).collect())
    }

    fn connections(&self) -> Result<Value, String> {
        Ok(self.0.connections().iter().map(connections::object).collect())
    }

    fn programs(&self) -> Value {
        let all = self.0.programs();
        all.iter().map(|program| json!({"pid": program.pid, "uid": program.uid})).collect()
    }

    fn hand_off(&self, to_nic: bool, which: Selection) -> Result<Value, String> {
        handoff::hand_off(&self.0, to_nic, which)
    }

    fn capture(&self, wanted: Wanted) -> Result<Capturing, String> {
        self.0.capture(wanted).ok_or_else(|| "as many capture already as may: try later".to_owned())
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        if let Some(key) = key.strip_prefix(WAN) {
            return self.wan()?.set(key, value).map_err(|error| error.under(WAN).to_string());
        }
        self.0.set(key, value).map_err(|error| self.of_wan(Some(key), error.to_string()))
    }
}

impl Answers {
    /// The WAN, or that there is none.
    fn wan(&self) -> Result<&degen::Handle, String> {
        let none = || "this wharf has no WAN: it begins with `wharf up --degen FILE`".to_owned();
        self.0.wan().ok_or_else(none)
    }

    /// Settings of the WAN, of all keys or of one.
    fn get_of_wan(&self, wan: &degen::Handle, key: Option<&str>) -> Result<Vec<Value>, String> {
        let entries = degen::entries(&wan.snapshot().configs, key);
        let entries = entries.map_err(|error| error.under(WAN).to_string())?;
        let entry = |(key, value)| json!({"key": format!("{WAN}{key}"), "value": value});
        Ok(entries.into_iter().map(entry).collect())
    }

    /// What to say of a key that is not wharf's: perhaps it is the WAN's.
    fn of_wan(&self, key: Option<&str>, words: String) -> String {
        match key.filter(|key| self.0.wan().is_some() && degen::find(key).is_ok()) {
            Some(key) => format!("unknown key `{key}`; did you mean `{WAN}{key}`?"),
            None => words,
        }
    }
}
