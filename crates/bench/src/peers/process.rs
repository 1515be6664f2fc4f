//! A peer's process, and how it is spoken to.
//!
//! A line `BENCH MILLISECONDS BYTES` (BENCH as the workload names it) and then the workload, so many
//! bytes, go in; a line with a JSON object comes out: `ns_per_packet`, `packets` and `large`, or
//! `error`. It ends with its input.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::LeftOut;
use crate::side_by_side::{Runner, Sample, Workload};
use crate::{Error, System};

/// Runs until it is dropped.
pub(super) struct Peer<W> {
    system: System,
    left_out: LeftOut<W>,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl<W: Workload> Peer<W> {
    pub(super) fn start(
        system: System,
        program: &Path,
        arguments: &[&str],
        left_out: LeftOut<W>,
    ) -> Result<Peer<W>, String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/");
        // DPDK prints a line for every huge page that it does not find; what matters comes as `error`.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok(Peer { system, left_out, child, input, output: BufReader::new(output) })
            }
            _ => Err("it has no pipes".to_owned()),
        }
    }

    fn ask(&mut self, workload: &W, time: Duration) -> Result<Sample, String> {
        let bytes = workload.to_bytes();
        let line = format!("{} {} {}\n", W::BENCH, time.as_millis(), bytes.len());
        let sent =
            self.input.write_all(line.as_bytes()).and_then(|()| self.input.write_all(&bytes));
        sent.and_then(|()| self.input.flush()).map_err(|_| self.ended())?;
        let answer = self.answer()?;
        let number = |name| answer.get(name).and_then(Value::as_f64);
        match (number("ns_per_packet"), number("packets"), number("large")) {
            (Some(ns_per_packet), Some(packets), Some(large)) if large > 0.0 => {
                Ok(Sample { ns_per_packet, packets: packets as u64, large: large as u64 })
            }
            _ => Err(match answer.get("error").and_then(Value::as_str) {
                Some(error) => error.to_owned(),
                None => format!("it answered {answer}"),
            }),
        }
    }

    /// The next line that is an object; libraries may print other lines.
    fn answer(&mut self) -> Result<Value, String> {
        loop {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(0) => return Err(self.ended()),
                Ok(_) if line.starts_with('{') => {
                    return serde_json::from_str(&line).map_err(|error| error.to_string());
                }
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn ended(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("it ended ({status})"),
            Err(error) => format!("it is lost: {error}"),
        }
    }
}

impl<W> Drop for Peer<W> {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<W: Workload> Runner<W> for Peer<W> {
    fn system(&self) -> System {
        self.system
    }

    fn left_out(&self, workload: &W) -> Option<&'static str> {
        (self.left_out)(workload)
    }

    fn slice(&mut self, workload: &W, time: Duration) -> Result<Sample, Error> {
        let system = self.system.name();
        self.ask(workload, time).map_err(|why| Error::Failed { system, why })
    }
}
