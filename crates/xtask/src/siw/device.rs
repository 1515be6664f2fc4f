//! wharf's device, and programs here that use it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::guest::{Guest, IN_TIME};
use super::pair::{Client, Pair};
use crate::tree::Tree;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(40);
/// Until a server listens.
const TO_LISTEN: Duration = Duration::from_secs(10);

/// What wharf asks of peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) revision: u8,
    pub(super) crc: bool,
}

/// The device.
#[derive(Debug)]
pub(super) struct Device {
    child: Child,
    wharf: String,
    address: String,
    /// Where programs are found beside those of this machine.
    programs: String,
}

impl Device {
    pub(super) fn start(tree: &Tree, terms: Terms) -> Result<Self, String> {
        let wharf = tree.path("target/debug/wharf").display().to_string();
        let programs = tree.path("target/siw").display().to_string();
        let address = format!("@wharf-siw-{}", std::process::id());
        let mut command = Command::new(&wharf);
        command.args(["rdma", "--no-nic", "--address", &address]);
        command.args(["--mpa-revision", &terms.revision.to_string()]);
        if !terms.crc {
            command.arg("--no-crc");
        }
        command.stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{wharf}: {error}"))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("wharf has no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        match line.is_empty() {
            true => Err("wharf rdma has not started".to_owned()),
            false => Ok(Device { child, wharf, address, programs }),
        }
    }

    /// A program here that uses the device.
    fn program(&self, line: &str) -> Result<Child, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(&self.wharf);
        command
            .args(["run", "--rdma", "--"])
            .args(line.split_whitespace())
            .env("PATH", format!("{path}:{}", self.programs))
            .env("WHARF_RDMA", &self.address);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("{line}: {error}"))
    }

    /// Runs both; they are right if the client succeeds. What it says.
    pub(super) fn run(
        &self,
        guest: &mut Guest,
        pair: &Pair,
        client: Client,
    ) -> Result<String, String> {
        let line = pair.client(client);
        if client == Client::Here {
            guest.run(&format!("{IN_TIME} {} > /tmp/server 2>&1 &", pair.server))?;
            let ended = match guest.listens(pair.port)? {
                true => finish(self.program(&line)?),
                false => Err("the server does not listen".to_owned()),
            };
            let symptoms = guest.symptoms()?;
            let says = pair.says.map_or(Ok(true), |what| guest.comes("/tmp/server", what))?;
            // One that serves on and on is ended.
            let server = pair.server.split(' ').next().unwrap_or_default();
            let end = format!("killall -9 {server} 2> /dev/null; cat /tmp/server");
            let (_, said) = guest.run(&end)?;
            guest.listens_no_more(pair.port)?;
            let ended = ended.map_err(|why| format!("{why}\nthe server: {said}\n{symptoms}"))?;
            return if says { Ok(ended) } else { Err(format!("the server: {said}")) };
        }
        let server = self.program(&pair.server)?;
        let ended = match listens(pair.port) {
            true => guest.run(&format!("{IN_TIME} {line}")),
            false => Ok((false, "the server does not listen".to_owned())),
        };
        // One that serves on and on is ended.
        let served = if pair.says.is_some() { finish(server) } else { Ok(end(server)) };
        let served = served.unwrap_or_else(|why| why);
        match ended? {
            (true, _) if pair.says.is_some_and(|what| !served.contains(what)) => {
                Err(format!("the server: {served}"))
            }
            (true, said) => Ok(said),
            (false, why) => Err(format!("{}\nthe server: {served}\n{}", why, guest.symptoms()?)),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something listens here on this port.
fn listens(port: u16) -> bool {
    let begun = Instant::now();
    let port = format!(":{port:04X}");
    while begun.elapsed() < TO_LISTEN {
        let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
        let lines: String =
            tables.iter().filter_map(|table| std::fs::read_to_string(table).ok()).collect();
        let is_it = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(fields[..], [_, local, _, "0A", ..] if local.ends_with(&port))
        };
        if lines.lines().any(is_it) {
            return true;
        }
        sleep(Duration::from_millis(20));
    }
    false
}

/// Waits for a program, which is to succeed; what it says.
fn finish(mut program: Child) -> Result<String, String> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = program.try_wait().map_err(|error| error.to_string())? {
            let said = end(program);
            return if status.success() { Ok(said) } else { Err(format!("{status}: {said}")) };
        }
        sleep(Duration::from_millis(20));
    }
    Err(format!("it does not end: {}", end(program)))
}

/// Ends a program; what it has said.
fn end(mut program: Child) -> String {
    let _ = program.kill();
    match program.wait_with_output() {
        Ok(output) => {
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        }
        Err(error) => error.to_string(),
    }
}
