//! wharf's device, and programs here that use it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::program::Here;
use crate::process::{ends_with_this, run_captured};
use crate::tree::Tree;

/// How many there were. Each has an address of its own.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// What wharf asks of peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// Where programs are found beside those of this machine, and where what they say goes.
    directory: PathBuf,
}

impl Device {
    pub(super) fn start(tree: &Tree, terms: Terms) -> Result<Self, String> {
        let wharf = tree.path("target/debug/wharf").display().to_string();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let address = format!("@wharf-siw-{}-{number}", std::process::id());
        let mut command = ends_with_this(&wharf);
        command.args(["rdma", "--no-nic", "--address", &address]);
        command.args(["--mpa-revision", &terms.revision.to_string()]);
        if !terms.crc {
            command.arg("--no-crc");
        }
        command.stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{wharf}: {error}"))?;
        let stdout = child.stdout.take();
        let device = Device { child, wharf, address, directory: tree.path("target/siw") };
        let mut line = String::new();
        let stdout = stdout.ok_or("wharf has no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        match line.is_empty() {
            true => Err("wharf rdma has not started".to_owned()),
            false => Ok(device),
        }
    }

    /// Begins a program here that uses the device.
    pub(super) fn program(&self, name: &str, line: &str) -> Result<Here, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = ends_with_this(&self.wharf);
        command
            .args(["run", "--rdma", "--"])
            .args(line.split_whitespace())
            .env("PATH", format!("{path}:{}", self.directory.display()))
            .env("WHARF_RDMA", &self.address);
        Here::start(&mut command, self.directory.join(format!("{name}.said")))
    }

    /// What the device tells of its connections and its counters.
    pub(super) fn symptoms(&self) -> String {
        let ask = |words: &[&str]| {
            let mut ask = Command::new("timeout");
            ask.args(["10", &self.wharf, "rdma"]).args(words).args(["--address", &self.address]);
            run_captured(&mut ask).map_or_else(|why| why, |(_, said)| said)
        };
        ask(&["list"]) + &ask(&["stats", "--json"])
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
