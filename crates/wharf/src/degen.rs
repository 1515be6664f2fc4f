//! `wharf degen`: a WAN between two interfaces.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use ::degen::keys::{KEYS, Key};
use clap::error::Error as ClapError;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use nic::config::{Choice, Config, WireMode};
use nic::control::{Control, Handler, counters_json};
use nic::degen::bridge::{Bridge, Carriage};
use nic::degen::{Settings, entries};
use serde_json::{Value, json};
use sys::interface::Interface;
use sys::poll::{Interest, PollSet, Signals};
use sys::process::Signal;

use crate::error::Error;
use crate::guard::{Before, Guard};
use crate::lateness::Lateness;
use crate::log::tell;
use crate::serving::{LOOK_EVERY, claim, give_up_rights, still_held};
use crate::{print, settings};

/// Put a WAN between two interfaces
///
/// Frames that arrive at one leave at the other, in both directions, with the delay, jitter, loss,
/// duplication, damage, reordering, rate and marks that are asked for; nothing else passes between
/// them. Frames are stamped when they arrive and delayed from then on. Options are for both directions,
/// unless --forward (from IF_A to IF_B) or --reverse says otherwise. All may change while it runs, by
/// `wharf set`; `wharf stats` shows what it did. It runs until it is stopped (Ctrl-C).
#[derive(Debug, Args)]
#[command(after_help = "Example: a satellite, seen from both sides:\n  \
                        wharf degen --between eth1 eth2 --delay 300ms --jitter 5ms --loss 0.1%\n\n\
                        Example: a line that is faster one way, with a queue of 100 ms:\n  \
                        wharf degen --between eth1 eth2 --delay 10ms \\\n    \
                        --forward rate=50mbit --forward queue_bytes=625KB \\\n    \
                        --reverse rate=10mbit --reverse queue_bytes=125KB\n\n\
                        Example: ten lossy seconds in each minute, by --file with a file of:\n  \
                        delay = \"20ms\"\n  repeat = \"60s\"\n  \
                        [[schedule]]\n  at = \"0s\"\n  loss = \"0\"\n  \
                        [[schedule]]\n  at = \"50s\"\n  forward.loss = \"5%\"")]
pub(crate) struct DegenArgs {
    /// The two Ethernet interfaces
    #[arg(long, value_names = ["IF_A", "IF_B"], num_args = 2, required = true)]
    between: Vec<String>,
    /// Settings file (TOML): the options' names with `_`, tables `[forward]` and `[reverse]`,
    /// and `[[schedule]]` entries with a time `at`, which begin again after `repeat`
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// One setting for the direction from IF_A to IF_B
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    forward: Vec<(String, String)>,
    /// One setting for the direction from IF_B to IF_A
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    reverse: Vec<(String, String)>,
    /// Seed of the random numbers: with the same seed the same packets are lost. Without it, another each time
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seed: Option<String>,
    /// Frames that may be in flight or wait, in both directions together
    #[arg(long, value_name = "N", default_value_t = 131_072,
          value_parser = clap::value_parser!(u32).range(1_024..=4_194_304))]
    frames: u32,
    /// Kernel interface to both: auto, xdp or packet. auto takes AF_XDP between cards; between veths it
    /// costs less as well, but VLAN tags that a peer leaves to its card are lost
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = mode)]
    mode: WireMode,
    /// Do not run in real time (SCHED_FIFO). Frames leave late while other programs use the CPU
    #[arg(long)]
    no_real_time: bool,
    /// Do not sleep between frames. It takes a whole CPU at all times; where idle CPUs are slow to wake, as those of
    /// virtual machines, delays are kept to some 50 us instead of 100 to 1,000
    #[arg(long)]
    awake: bool,
    #[command(flatten)]
    both: Both,
}

fn mode(text: &str) -> Result<WireMode, String> {
    let found = WireMode::VALUES.iter().find(|mode| mode.name() == text);
    found.copied().ok_or_else(|| format!("it is one of {}", WireMode::NAMES.join(", ")))
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err("a setting is KEY=VALUE, such as rate=10mbit".to_owned()),
    }
}

/// An option for each of degen's keys.
#[derive(Debug)]
struct Both(Vec<(&'static str, String)>);

impl Args for Both {
    fn augment_args(command: Command) -> Command {
        command.next_help_heading("Settings of both directions").args(KEYS.iter().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Both::augment_args(command)
    }
}

fn option(key: &'static Key) -> Arg {
    let (help, default) = (capital(key.help), key.default_text());
    let arg = Arg::new(key.name)
        .long(key.name.replace('_', "-"))
        .alias(key.name)
        .help(format!("{help} [default: {default}]"))
        .long_help(format!("{help}\n[takes: {}] [default: {default}]", key.takes()))
        .value_name("VALUE");
    match key.is_bool() {
        true => arg.num_args(0..=1).default_missing_value("true"),
        // So that a user who asks for -5ms is told why not.
        false => arg.allow_hyphen_values(true),
    }
}

/// A help text as clap has its own: with a capital letter.
fn capital(help: &str) -> String {
    let mut letters = help.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

impl FromArgMatches for Both {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, ClapError> {
        let given = |key: &Key| Some((key.name, matches.get_one::<String>(key.name)?.clone()));
        Ok(Both(KEYS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), ClapError> {
        *self = Both::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The file first, then the options, then those of one direction.
fn load(args: &DegenArgs) -> Result<Settings, Error> {
    let mut settings = match &args.file {
        Some(path) => settings::load_degen(path)?,
        None => Settings::default(),
    };
    for (key, value) in &args.both.0 {
        settings.set(key, value)?;
    }
    for (direction, given) in [("forward", &args.forward), ("reverse", &args.reverse)] {
        for (key, value) in given {
            settings.set(&format!("{direction}.{key}"), value)?;
        }
    }
    if let Some(seed) = &args.seed {
        settings.set("seed", seed)?;
    }
    Ok(settings)
}

/// The two interfaces, if they can be two ends.
fn between(args: &DegenArgs) -> Result<[Interface; 2], Error> {
    let [one, other] = &args.between[..] else {
        return Err(Error::Usage("--between takes two interfaces".to_owned()));
    };
    for name in [one, other] {
        if let Some(fault) = sys::interface::name_fault(name) {
            let words = format!("--between {name:?} cannot be an interface's name: {fault}");
            return Err(Error::Usage(words));
        }
    }
    let are = |what| {
        Err(Error::Usage(format!(
            "--between wants two interfaces, and {one} and {other} are {what}"
        )))
    };
    if one == other {
        return are("one");
    }
    let ends = [nic::find_wire(one)?, nic::find_wire(other)?];
    let [first, second] = &ends;
    if first.index == second.index {
        return are("one");
    }
    // A veth's two ends, or a VLAN and what it lies on: every frame would come back for ever.
    let leads_to = |from: &Interface, to: &Interface| {
        from.link == Some(to.index) && from.link_netnsid.is_none()
    };
    if leads_to(first, second) || leads_to(second, first) {
        return are("joined to each other already");
    }
    Ok(ends)
}

/// Runs until a signal, or until an interface is gone.
pub(crate) fn run(args: &DegenArgs) -> Result<(), Error> {
    let mut settings = load(args)?;
    let ends = between(args)?;
    let mut claims = Vec::new();
    for end in &ends {
        claims.push(claim(&end.name, end.index, "choose other interfaces")?);
    }
    // Not as they were called: an interface may have other names, which few things know it by.
    let between = [&*ends[0].name, &*ends[1].name];
    let control = Control::bind(&between.join(":"), &Config::default().control);
    let control = control.map_err(Error::Io)?;
    let signals = Signals::block().map_err(Error::Io)?;
    let mut guards = Vec::new();
    for name in between {
        guards.push(Guard::start(Before::look_at(name)?, None)?);
    }
    let seed = settings.fix_seed();
    let carriage = Carriage {
        frames: args.frames,
        mode: args.mode,
        real_time: !args.no_real_time,
        awake: args.awake,
    };
    let result = Bridge::start(between, &settings, carriage)
        .map_err(|error| match error {
            nic::Error::Xdp { name, why } => Error::Usage(format!(
                "cannot use AF_XDP on {name}: {why}; with --mode auto it is AF_PACKET then"
            )),
            other => other.into(),
        })
        .and_then(|bridge| serve(bridge, between, seed, control, &signals, &mut guards));
    guards.into_iter().fold(result, |result, guard| result.and(guard.finish()))
}

fn serve(
    bridge: Bridge,
    between: [&str; 2],
    seed: u64,
    control: Control,
    signals: &Signals,
    guards: &mut [Guard],
) -> Result<(), Error> {
    give_up_rights()?;
    bridge.notices().iter().map(String::as_str).chain(control.notice()).for_each(tell);
    let bridge = Arc::new(bridge);
    let [one, other] = between;
    let answers = Answers { bridge: Arc::clone(&bridge), name: between.join(":") };
    let serving = control.serve(answers).map_err(Error::Io)?;
    // That it is not read is no error.
    let _ = print(format!("degen: {one} <-> {other} ({}, seed {seed})\n", bridge.port()));
    let mut lateness = Lateness::default();
    let result = wait(&bridge, signals, guards, &mut lateness);
    lateness.sum_up(&bridge.handle().snapshot());
    drop(serving);
    // As in `wharf up`, no client has it by now.
    let ended = Arc::try_unwrap(bridge).map_err(|_| still_held()).and_then(Bridge::stop);
    result.and(ended.map_err(Error::Io))
}

/// Until there is a reason to end.
fn wait(
    bridge: &Bridge,
    signals: &Signals,
    guards: &mut [Guard],
    lateness: &mut Lateness,
) -> Result<(), Error> {
    loop {
        lateness.look(&bridge.handle().snapshot());
        let mut set = PollSet::new();
        set.add(signals.as_fd(), Interest::Read).map_err(|full| Error::Io(full.into()))?;
        set.wait(Some(LOOK_EVERY)).map_err(Error::Io)?;
        while let Some(signal) = signals.read().map_err(Error::Io)? {
            match signal {
                Signal::Child => {}
                _ => return Ok(()),
            }
        }
        guards.iter_mut().for_each(Guard::watch);
        if bridge.has_failed() {
            // `stop` tells why.
            return Ok(());
        }
        bridge.look_at_queues()?;
    }
}

/// What the control socket answers.
#[derive(Debug)]
struct Answers {
    bridge: Arc<Bridge>,
    name: String,
}

impl Handler for Answers {
    fn stats(&self) -> Value {
        json!({"degen": self.name, "counters": counters_json(self.bridge.counters())})
    }

    fn get(&self, key: Option<&str>) -> Result<Value, String> {
        let configs = self.bridge.handle().snapshot().configs;
        let entries = entries(&configs, key).map_err(|error| error.to_string())?;
        let entry = |(key, value)| json!({"key": key, "value": value});
        Ok(entries.into_iter().map(entry).collect())
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        self.bridge.handle().set(key, value).map_err(|error| error.to_string())
    }
}
