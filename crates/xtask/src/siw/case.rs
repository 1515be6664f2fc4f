//! A case: a server and a client, one of them in the guest. The host decides when it is over, and looks at both sides before
//! either is ended.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::device::Device;
use super::guest::Guest;
use super::pair::{Pair, Side};
use super::program::Program;
use super::sockets;
use super::symptoms::{Symptoms, Unread};
use super::trace::Trace;
use super::wait::{TO_LISTEN, TURN, becomes};

/// How long a client may take.
const CASE: Duration = Duration::from_secs(40);
/// Until a server ends whose client has ended.
const TO_END: Duration = Duration::from_secs(20);
/// Bytes that have come and are not read from one look to the next will not be.
const LOOK: Duration = Duration::from_secs(5);
/// Failures that are not wharf's, by what programs say.
const EXCUSES: [(&str, &str); 3] = [
    // The server listens once for what the two say to each other, and once more for the test.
    ("EVENT_REJECTED", "the program's server did not listen yet for its second connection"),
    ("Event rejected", "the program's server did not listen yet for its second connection"),
    ("Failed to close connection", "perftest's other side had closed before it had said so"),
];

/// See the file's documentation.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) device: &'a Device,
    pub(super) guest: &'a mut Guest,
    pub(super) pair: &'a Pair,
    /// Where the client runs.
    pub(super) client: Side,
}

/// What can be said of one that has failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) why: String,
    /// Why it may not be wharf's failure.
    pub(super) excuse: Option<&'static str>,
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Failed { why, excuse: None }
    }
}

impl Case<'_> {
    /// The client succeeds; the server tells of no error, says what it is to say, and ends.
    pub(super) fn run(&mut self, trace: Trace, trace_name: &str) -> Result<(), Failed> {
        // What its kernel has said by now is not of this.
        self.guest.run("dmesg -c > /dev/null")?;
        let mut server = self.begin(self.client.other(), "server", &self.pair.server)?;
        let mut client = None;
        let outcome = self.both(&mut server, &mut client);
        // Of one that fails.
        let symptoms = outcome.as_ref().err().map(|_| Symptoms::take(self.device, self.guest));
        let said = client.as_ref().map_or(Ok(String::new()), |client| client.said(self.guest));
        let served = server.said(self.guest);
        let ended = client.map_or(Ok(()), |client| client.end(self.guest));
        let ended = ended.and(server.end(self.guest));
        if matches!(&symptoms, Some(Ok(symptoms)) if symptoms.is_broken()) {
            self.guest.give_up();
        }
        let Err(why) = outcome.and(ended.and_then(|()| self.is_over())) else { return Ok(()) };
        let sent = trace.streams()?;
        let (excuse, text) = match symptoms {
            Some(Ok(symptoms)) => (symptoms.excuse(&sent), symptoms.text()),
            Some(Err(why)) => (None, why),
            None => (None, String::new()),
        };
        let (said, served) = (said.unwrap_or_else(|why| why), served.unwrap_or_else(|why| why));
        let by_words = EXCUSES.iter().find(|(says, _)| said.contains(says));
        let excuse = by_words.map(|(_, excuse)| *excuse).or(excuse);
        let wire = trace.keep(trace_name)?;
        let why = format!(
            "{why}\nthe client: {}\nthe server: {}\n{text}\nsent: {sent:?}\nthe wire: {}",
            last(&said),
            last(&served),
            wire.display()
        );
        Err(Failed { why, excuse })
    }

    fn begin(&mut self, side: Side, name: &'static str, line: &str) -> Result<Program, String> {
        match side {
            Side::Here => Ok(Program::Here(self.device.program(name, line)?)),
            Side::Guest => self.guest.start(name, line).map(|()| Program::Guest(name)),
        }
    }

    fn both(&mut self, server: &mut Program, client: &mut Option<Program>) -> Result<(), String> {
        let mut has_ended = false;
        let listens = becomes(TO_LISTEN, || {
            has_ended = server.ended(self.guest)?.is_some();
            Ok(has_ended || self.listens()?)
        })?;
        if has_ended || !listens {
            return Err("the server does not listen".to_owned());
        }
        let line = self.pair.client(self.client);
        let client = client.insert(self.begin(self.client, "client", &line)?);
        self.watch(client)?;
        self.served(server)
    }

    /// Whether something listens where the server runs.
    fn listens(&mut self) -> Result<bool, String> {
        let sockets = match self.client.other() {
            Side::Here => sockets::here(),
            Side::Guest => self.guest.sockets()?,
        };
        Ok(sockets::listen(&sockets, self.pair.port))
    }

    /// Waits for the client to succeed.
    fn watch(&mut self, client: &mut Program) -> Result<(), String> {
        let begun = Instant::now();
        let (mut looked, mut unread) = (begun, Unread::default());
        loop {
            match client.ended(self.guest)? {
                Some(true) => return Ok(()),
                Some(false) => return Err("the client fails".to_owned()),
                None => {}
            }
            if begun.elapsed() > CASE {
                return Err(format!("the client does not end in {} s", CASE.as_secs()));
            }
            if looked.elapsed() > LOOK {
                let now = Unread::look(self.guest)?;
                if let Some(same) = now.since(&unread) {
                    return Err(format!("it hangs: {same}"));
                }
                (looked, unread) = (Instant::now(), now);
            }
            sleep(TURN);
        }
    }

    /// Waits for the end of the server whose client has succeeded.
    fn served(&mut self, server: &mut Program) -> Result<(), String> {
        let (ends, says) = (self.pair.ends(self.client), self.pair.says(self.client));
        let mut is_over = || {
            let ended = server.ended(self.guest)?.is_some();
            Ok(ended || (!ends && server.said(self.guest)?.contains(says.unwrap_or_default())))
        };
        if !becomes(TO_END, &mut is_over)? {
            return Err("the server does not end".to_owned());
        }
        let said = server.said(self.guest)?;
        match says {
            Some(what) if !said.contains(what) => Err(format!("the server does not say `{what}`")),
            None if tells_of_an_error(&said) => Err("the server tells of an error".to_owned()),
            _ => Ok(()),
        }
    }

    /// Waits until the server's port is free for the next.
    fn is_over(&mut self) -> Result<(), String> {
        if self.guest.is_lost() || becomes(TO_LISTEN, || Ok(!self.listens()?))? {
            return Ok(());
        }
        // No other that listens there is to be had in it.
        self.guest.give_up();
        Err("the server was ended, and still something listens at its port".to_owned())
    }
}

/// Whether a server that is to have no errors has one.
fn tells_of_an_error(said: &str) -> bool {
    let said = said.to_lowercase();
    ["error", "failed status"].iter().any(|words| said.contains(words))
}

/// The last lines of it.
fn last(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
