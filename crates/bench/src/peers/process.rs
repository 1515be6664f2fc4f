//! A peer's process, and how it is spoken to.
//!
//! A line `run VERIFY MILLISECONDS BYTES` (VERIFY 0 or 1) and then the workload, so many bytes, go
//! in; a line with a JSON object comes out: `ns_per_packet`, `packets` and `outputs`, or `error`.
//! It ends with its input.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Error;
use crate::lro::Setting;
use crate::lro::workload::Workload;
use crate::side_by_side::{Runner, Sample, System};

/// Runs until it is dropped.
pub(super) struct Peer {
    system: System,
    left_out: fn(Setting) -> Option<&'static str>,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(super) fn start(
        system: System,
        program: &Path,
        arguments: &[&str],
        left_out: fn(Setting) -> Option<&'static str>,
    ) -> Result<Peer, String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/");
        // DPDK tells of every huge page that it does not find; what matters comes as `error`.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok(Peer { system, left_out, child, input, output: BufReader::new(output) })
            }
            _ => Err("it has no pipes".to_owned()),
        }
    }

    fn ask(&mut self, workload: &Workload, time: Duration) -> Result<Sample, String> {
        let bytes = workload.to_bytes();
        let verify = u8::from(workload.setting.verify);
        let line = format!("run {verify} {} {}\n", time.as_millis(), bytes.len());
        let sent =
            self.input.write_all(line.as_bytes()).and_then(|()| self.input.write_all(&bytes));
        sent.and_then(|()| self.input.flush()).map_err(|_| self.ended())?;
        let answer = self.answer()?;
        let number = |name| answer.get(name).and_then(Value::as_f64);
        match (number("ns_per_packet"), number("packets"), number("outputs")) {
            (Some(ns_per_packet), Some(packets), Some(outputs)) if outputs > 0.0 => {
                Ok(Sample { ns_per_packet, packets: packets as u64, outputs: outputs as u64 })
            }
            _ => Err(match answer.get("error").and_then(Value::as_str) {
                Some(error) => error.to_owned(),
                None => format!("it answered {answer}"),
            }),
        }
    }

    /// The next line that is an object; libraries may have other things to say.
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

impl Drop for Peer {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Runner for Peer {
    fn system(&self) -> System {
        self.system
    }

    fn left_out(&self, setting: Setting) -> Option<&'static str> {
        (self.left_out)(setting)
    }

    fn slice(&mut self, workload: &Workload, time: Duration) -> Result<Sample, Error> {
        let who = self.system.name();
        self.ask(workload, time).map_err(|why| Error::Failed { who, why })
    }
}
