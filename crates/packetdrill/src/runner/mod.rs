//! Runs a script against the engine, in virtual time, as packetdrill runs one against a kernel.
//!
//! A script is about one connection at a time, with sequence numbers that begin at 0 and ports of its own;
//! module `peer` maps them to those of the stack. Packets that are sent are compared when an event expects
//! one; packets that were sent before the script's end and were not expected are a failure.

mod calls;
mod check;
mod code;
mod evaluate;
mod packets;
mod peer;
mod seen;
mod settings;
mod shell;
mod streams;

use std::net::IpAddr;

use tcp::Nanos;

use crate::script::{Action, Direction, Event, Script, Time, parse};
use crate::sockets::{Call, Fd, Host, Outcome, Settings, Stop};

use calls::Waiting;
use code::Variables;
use peer::Peer;
use settings::Options;
use streams::Streams;

/// Why a script failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Line of the script, from 1.
    pub line: u32,
    /// What was expected and what happened.
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}

impl std::error::Error for Failure {}

/// Runs a script from its text.
///
/// # Errors
/// A script that cannot be parsed or uses what is not supported, or an engine that did something else.
pub fn run(text: &str) -> Result<(), Failure> {
    let script =
        parse(text).map_err(|error| Failure { line: error.line, message: error.message })?;
    run_script(&script)
}

/// Runs a script.
///
/// # Errors
/// As [`run`].
pub fn run_script(script: &Script) -> Result<(), Failure> {
    let at_top = |message| Failure { line: 1, message };
    let options = Options::read(&script.options).map_err(at_top)?;
    let mut settings = Settings::default();
    options.apply(&mut settings);
    let mut runner = Runner::new(options, settings);
    if let Some(commands) = &script.init {
        runner.command(commands).map_err(at_top)?;
    }
    for event in &script.events {
        runner.event(event).map_err(|message| Failure { line: event.line, message })?;
    }
    let line = script.events.last().map_or(1, |event| event.line);
    runner.finish().map_err(|message| Failure { line, message })
}

/// A script that is being run.
struct Runner {
    host: Host,
    options: Options,
    local: IpAddr,
    remote: IpAddr,
    /// Descriptors of the script and of the host.
    fds: Vec<(i64, Fd)>,
    /// The connection of the script's packets (packetdrill's socket under test).
    peer: Option<Peer>,
    next_remote_port: u16,
    waiting: Option<Waiting>,
    streams: Streams,
    variables: Variables,
    /// Whether payload is compared with its place in the stream: not once urgent bytes have been taken out of
    /// it.
    checks_payload: bool,
    /// Time of the event before, for tolerances.
    last_event: Nanos,
    /// Line of this event.
    line: u32,
}

/// When an event must happen: not before the first time, not after the second, with some tolerance.
#[derive(Clone, Copy)]
struct When {
    from: Nanos,
    to: Nanos,
    any: bool,
    tolerance: Nanos,
    /// The origin of the event's times.
    base: Nanos,
}

impl Runner {
    fn new(options: Options, settings: Settings) -> Self {
        let (local, remote) = options.addresses();
        Runner {
            host: Host::new(local, settings),
            options,
            local,
            remote,
            fds: Vec::new(),
            peer: None,
            next_remote_port: 40_000,
            waiting: None,
            streams: Streams::default(),
            variables: Variables::default(),
            checks_payload: true,
            last_event: 0,
            line: 1,
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let when = self.when(event.time);
        self.line = event.line;
        match &event.action {
            // Whether a packet was sent too early can be checked only now.
            Action::Packet(packet) if packet.direction == Direction::Out => {
                self.expect(packet, when)?;
            }
            action => {
                self.wait_until(when.from)?;
                match action {
                    Action::Packet(packet) => self.inject(packet)?,
                    Action::Call(call) => self.call(call, when)?,
                    Action::Command(text) => self.command(text)?,
                    Action::Code(text) => self.code(text)?,
                }
            }
        }
        self.last_event = if when.any { self.host.now() } else { when.from };
        self.go_on()
    }

    fn when(&self, time: Time) -> When {
        let now = self.host.now();
        let (from, to, any) = match time {
            Time::Absolute(at) => (at, at, false),
            Time::Relative(after) => (now + after, now + after, false),
            Time::AbsoluteRange(from, to) => (from, to, false),
            Time::RelativeRange(from, to) => (now + from, now + to, false),
            Time::Any => (now, Nanos::MAX, true),
        };
        let tolerance = self.options.tolerance(from.saturating_sub(self.last_event));
        let relative = matches!(time, Time::Relative(_) | Time::RelativeRange(..));
        When { from, to, any, tolerance, base: if relative { now } else { 0 } }
    }

    /// Lets time pass.
    fn wait_until(&mut self, until: Nanos) -> Result<(), String> {
        while self.host.now() < until {
            self.step(until)?;
        }
        Ok(())
    }

    /// Lets time pass until something happens, but not beyond `until`.
    fn step(&mut self, until: Nanos) -> Result<(), String> {
        let deadline = self.waiting.as_ref().and_then(|waiting| waiting.call.deadline());
        let deadline = deadline.filter(|deadline| *deadline > self.host.now());
        self.host.advance(deadline.map_or(until, |deadline| deadline.min(until)));
        self.go_on()
    }

    /// Tries the call that is blocked again.
    fn go_on(&mut self) -> Result<(), String> {
        let Some(mut waiting) = self.waiting.take() else { return Ok(()) };
        match waiting.call.attempt(&mut self.host) {
            Err(Stop::Block) => {
                self.waiting = Some(waiting);
                Ok(())
            }
            done => self.returned(&waiting, done),
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        const PATIENCE: Nanos = 1_000_000_000;
        let last = self.host.now();
        let until = last + PATIENCE;
        while self.waiting.is_some() && self.host.now() < until {
            self.step(until)?;
        }
        if let Some(waiting) = &self.waiting {
            return Err(format!(
                "{}() of line {} has not returned",
                waiting.name(),
                waiting.line()
            ));
        }
        self.nothing_left(last)
    }

    /// Repeats a call until it returns: in the script it does not block.
    fn at_once(&mut self, mut call: Call) -> Result<Result<Outcome, Stop>, String> {
        const PATIENCE: Nanos = 60_000_000_000;
        let until = self.host.now() + PATIENCE;
        loop {
            match call.attempt(&mut self.host) {
                Err(Stop::Block) if self.host.now() < until => {
                    let deadline = call.deadline().unwrap_or(until).min(until);
                    self.host.advance(deadline);
                }
                Err(Stop::Block) => return Err("the call blocks for more than a minute".to_owned()),
                done => return Ok(done),
            }
        }
    }
}
