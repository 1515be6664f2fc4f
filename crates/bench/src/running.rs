//! Programs of a bench, each on a CPU and in a network namespace, and the RDMA device that serves them.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use sys::netns::Namespace;
use sys::process::Signal;

use crate::Error;
use crate::sink::io;

/// A process that ends with this.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// How long it has to end by itself when it is told to.
    patience: Duration,
}

/// How often it is looked whether it has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl Running {
    /// It is told to end, and killed only if it has not after so long.
    pub(crate) fn ends_by_itself(mut self, patience: Duration) -> Running {
        self.patience = patience;
        self
    }

    /// Starts it on this CPU, in the caller's network namespace.
    pub(crate) fn start(command: Command, cpu: usize) -> Result<Running, Error> {
        // It inherits the CPU of the thread that starts it.
        let spawned = std::thread::scope(|scope| scope.spawn(|| spawn(command, cpu)).join());
        spawned.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The same in another network namespace.
    pub(crate) fn start_in(
        namespace: &Namespace,
        command: Command,
        cpu: usize,
    ) -> Result<Running, Error> {
        namespace.run(|| spawn(command, cpu))?
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it begin.
    pub(crate) fn say(&mut self) -> Result<(), Error> {
        let said = self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"go\n"));
        said.map_err(io("tell a program to begin"))
    }

    /// A line that it says; none if it has ended.
    pub(crate) fn hear(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).map_err(io("hear a program"))?;
        Ok(line)
    }
}

fn spawn(mut command: Command, cpu: usize) -> Result<Running, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    sys::affinity::pin(cpu).map_err(io("choose a CPU"))?;
    let mut child = command.spawn().map_err(io("start a program"))?;
    let stdin = child.stdin.take();
    match child.stdout.take() {
        Some(stdout) => {
            let stdout = BufReader::new(stdout);
            Ok(Running { child, stdin, stdout, patience: Duration::ZERO })
        }
        None => Err(Error::Failed { system: "wharf", why: "a program has no output".to_owned() }),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let begun = Instant::now();
        if !self.patience.is_zero() {
            // What cannot be told to is killed below.
            let _ = sys::process::kill(self.child.id(), Signal::Terminate);
        }
        while begun.elapsed() < self.patience && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK_AGAIN);
        }
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What starts an RDMA device that serves at this address; it says when it does.
pub(crate) fn device(address: &str) -> Result<Command, Error> {
    let own = std::env::current_exe().map_err(io("find this program"))?;
    let mut command = Command::new(own);
    command.args(["rdma", "--address", address]);
    Ok(command)
}

/// Has a program speak verbs to the device at this address, as `wharf run --rdma` does.
pub(crate) fn with_verbs(command: &mut Command, library: &Path, address: &str) {
    command.env("LD_PRELOAD", library).env("WHARF_RDMA", address);
}
