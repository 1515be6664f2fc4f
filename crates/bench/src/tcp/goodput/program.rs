//! Peers that are programs: lwIP's and gVisor's TCP, in `bench/peers`.
//!
//! `PROGRAM TAP OWN SERVER PORT send|receive BYTES` makes a TAP and prints `ready`; after a line on its standard input
//! it connects, and prints a JSON object with the `seconds` that it took, or an `error`.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sys::poll::poll;

use super::peer::Peer;
use super::{LIMIT, Transfer};
use crate::Error;
use crate::peers;
use crate::tcp::server::PORT;
use crate::tcp::testbed::{CLIENT, SERVER};

/// How long a program may take to start.
const START: Duration = Duration::from_secs(30);

/// The programs that are here.
#[derive(Debug, Default)]
pub(super) struct Built(Vec<(Peer, peers::Program)>);

impl Built {
    /// Builds the programs of these peers, and reports why one is absent.
    pub(super) fn new(peers: &[Peer], mut absent: impl FnMut(Peer, String)) -> Built {
        let mut built = Vec::new();
        for &peer in peers {
            let program = match peer {
                Peer::Lwip => peers::lwip(),
                Peer::Gvisor => peers::gvisor_tcp(),
                _ => continue,
            };
            match program {
                Ok(program) => built.push((peer, program)),
                Err(why) => absent(peer, why),
            }
        }
        Built(built)
    }

    fn of(&self, peer: Peer) -> Result<&peers::Program, Error> {
        let program = self.0.iter().find(|(other, _)| *other == peer);
        program.map(|(_, program)| program).ok_or_else(|| failed(peer, "it was not built"))
    }
}

/// One at work, until it is dropped.
pub(super) struct Program {
    peer: Peer,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts one in the network namespace of the calling thread; it has made its TAP.
    pub(super) fn start(
        built: &Built,
        peer: Peer,
        tap: &str,
        transfer: Transfer,
    ) -> Result<Program, Error> {
        let mut command = Command::new(built.of(peer)?.path());
        let way = if transfer.way.is_send() { "send" } else { "receive" };
        command.args([tap, &CLIENT.to_string(), &SERVER.to_string(), &PORT.to_string(), way]);
        command.arg(transfer.bytes.to_string()).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed(peer, error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(peer, "it has no pipes"));
        };
        let mut program = Program { peer, child, input, output: BufReader::new(output) };
        match program.line(START)?.trim() {
            "ready" => Ok(program),
            other => Err(failed(peer, other)),
        }
    }

    /// Lets it connect, and waits for its answer.
    pub(super) fn run(&mut self) -> Result<Duration, Error> {
        self.input.write_all(b"go\n").map_err(|error| failed(self.peer, error))?;
        let line = self.line(LIMIT)?;
        let answer = serde_json::from_str::<Value>(&line).unwrap_or_default();
        match answer.get("seconds").and_then(Value::as_f64) {
            Some(seconds) if seconds > 0.0 && seconds.is_finite() => {
                Ok(Duration::from_secs_f64(seconds))
            }
            _ => {
                let error = answer.get("error").and_then(Value::as_str);
                Err(failed(self.peer, error.unwrap_or("it answered nothing")))
            }
        }
    }

    fn line(&mut self, limit: Duration) -> Result<String, Error> {
        let wait = || -> std::io::Result<bool> {
            let fd = self.output.get_ref().as_fd();
            Ok(poll(&[fd], Some(limit.as_nanos() as u64))?.contains(0))
        };
        if !wait().map_err(|error| failed(self.peer, error))? {
            return Err(failed(self.peer, format!("nothing in {} s", limit.as_secs())));
        }
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| failed(self.peer, error))?;
        Ok(line)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(peer: Peer, why: impl ToString) -> Error {
    Error::Failed { system: peer.name(), why: why.to_string() }
}
