//! Hosts made of network namespaces, the wire between them, and programs that run on them.
//!
//! The namespaces are anonymous: they vanish when the test and the programs that it started have ended. A
//! [`Program`] that is dropped is killed.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::missing::lacks;
use sys::ethtool::{Ethtool, Offload};
use sys::interface::{self, Interface};
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::Namespace;
use sys::process::{Signal, kill};

/// How long a test waits for something before it fails. Nothing that works takes nearly as long, also on a
/// slow machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long the output of a program that has ended may stay open.
const GRACE: Duration = Duration::from_secs(1);

/// Time between two looks at a condition that a test waits for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until `done`. Returns whether it was within [`PATIENCE`].
pub fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    loop {
        if done() {
            return true;
        }
        if since.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A host: a network namespace with its loopback up.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
}

impl Host {
    /// A new host; `None` where this process may not make one, which is reported.
    ///
    /// # Panics
    /// If the kernel refuses for another reason than privilege.
    pub fn new() -> Option<Self> {
        match Namespace::new() {
            Ok(namespace) => {
                // A new namespace forwards where this machine does (`net.core.devconf_inherit_init_net`).
                let _ = namespace.run(|| sys::sysctl::write(&["ipv4", "ip_forward"], "0"));
                Some(Self { namespace })
            }
            Err(error) if error.is_permission() => {
                lacks(format!("root: {error}"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs `work` on this host, on a thread of its own. Sockets that it opens stay this host's.
    ///
    /// # Panics
    /// If the work does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self.namespace.run(work) {
            Ok(result) => result,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a program on this host: a child inherits the namespace of the thread that starts it.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Program {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let words = words(command);
        match self.run(|| command.spawn()) {
            Ok(child) => Program::new(child, words),
            Err(error) => panic!("cannot start `{words}`: {error}"),
        }
    }

    /// Runs a program on this host to its end.
    ///
    /// # Panics
    /// If it cannot be started, or does not end within [`PATIENCE`].
    pub fn output(&self, command: &mut Command) -> Ended {
        self.spawn(command).wait()
    }

    /// What a program writes to standard output; it must succeed.
    ///
    /// # Panics
    /// If it fails; the message has its output.
    pub fn succeed<S: AsRef<OsStr>>(&self, program: &str, arguments: &[S]) -> String {
        let ended = self.output(Command::new(program).args(arguments));
        assert!(ended.status.success(), "{ended}");
        ended.stdout
    }

    /// Ids of the processes that run on this host.
    pub fn processes(&self) -> Vec<u32> {
        let Ok(own) = self.run(|| fs::metadata("/proc/thread-self/ns/net")) else {
            return Vec::new();
        };
        let here = |pid: &u32| {
            let namespace = fs::metadata(format!("/proc/{pid}/ns/net"));
            namespace.is_ok_and(|namespace| namespace.ino() == own.ino())
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(here).collect()
    }

    /// The namespace itself.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

/// A wire between two hosts: a veth pair, both ends up.
#[derive(Debug, Clone, Copy)]
pub struct Wire<'a> {
    /// Name of the end at the first host.
    pub near: &'a str,
    /// Name of the end at the second host.
    pub far: &'a str,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Queues of each end, each way.
    pub queues: u32,
    /// Whether the near end offloads checksums and segmentation, as a veth does by default: frames then cross
    /// with partial checksums and, where the far end allows, as super-packets.
    pub offloads: bool,
}

impl Wire<'_> {
    /// Makes the wire.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn lay(&self, first: &Host, second: &Host) {
        let end = |name| VethEnd { mtu: Some(self.mtu), queues: self.queues, ..VethEnd::new(name) };
        let far = VethEnd { namespace: Some(second.namespace.as_fd()), ..end(self.far) };
        let near = end(self.near);
        let made = first.run(|| -> sys::Result<()> {
            create_veth(&near, &far)?;
            if !self.offloads {
                let features = Ethtool::open(self.near)?;
                features.set_offload(Offload::Tso, false)?;
                features.set_offload(Offload::TxChecksum, false)?;
            }
            interface::set_up(self.near)
        });
        let made = made.and_then(|()| second.run(|| interface::set_up(self.far)));
        made.unwrap_or_else(|error| panic!("{error}"));
        // Frames are lost that are sent before the kernel has activated an end, which it does after a while.
        let active = |host: &Host, name| {
            host.run(|| Interface::by_name(name).is_ok_and(|interface| interface.operational))
        };
        let both = || active(first, self.near) && active(second, self.far);
        assert!(wait_until(both), "the wire does not come up");
    }
}

/// A program that runs on a host. It is killed when this is dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    words: String,
    lines: Receiver<String>,
    /// Lines taken from `lines` so far.
    stdout: String,
    stderr: Arc<Mutex<String>>,
}

impl Program {
    fn new(mut child: Child, words: String) -> Self {
        let (sender, lines) = mpsc::channel();
        let stderr = Arc::new(Mutex::new(String::new()));
        let output = child.stdout.take().map(BufReader::new);
        // Both threads end when the program and all its children have closed their end.
        thread::spawn(move || {
            for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let (errors, collected) = (child.stderr.take(), Arc::clone(&stderr));
        thread::spawn(move || {
            let (mut errors, mut buffer) = (errors, [0; 4096]);
            while let Some(Ok(read @ 1..)) = errors.as_mut().map(|errors| errors.read(&mut buffer))
            {
                let text = String::from_utf8_lossy(&buffer[..read]);
                collected.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Self { child, words, lines, stdout: String::new(), stderr }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of standard output that contains `part`, and returns it.
    ///
    /// # Panics
    /// If there is none within [`PATIENCE`], or the program closes its output first.
    pub fn line_with(&mut self, part: &str) -> String {
        self.line_within(part, PATIENCE)
    }

    /// The same of a program that may take so long for it.
    ///
    /// # Panics
    /// As [`line_with`](Self::line_with).
    pub fn line_within(&mut self, part: &str, patience: Duration) -> String {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => {
                    self.stdout.push_str(&line);
                    self.stdout.push('\n');
                }
                Err(why) => {
                    let how = match why {
                        RecvTimeoutError::Timeout => "has written nothing more",
                        RecvTimeoutError::Disconnected => "has ended",
                    };
                    let (words, output, errors) = (&self.words, &self.stdout, self.errors());
                    panic!("`{words}` {how}; expected {part:?}\n{output}{errors}");
                }
            }
        }
    }

    /// What it has written to standard error so far.
    pub fn errors(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        // ESRCH cannot mean another process: the child's id is kept until it is waited for.
        let _ = kill(self.child.id(), signal);
    }

    /// Whether it is still running.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub fn wait(mut self) -> Ended {
        let mut status = None;
        let ended = wait_until(|| {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        let words = self.words.clone();
        let Some(status) = status.filter(|_| ended) else {
            panic!("`{words}` does not end\n{}{}", self.stdout, self.errors());
        };
        // Its output is complete when the pipes close; children that it left running may keep them open.
        let until = Instant::now() + GRACE;
        while let Ok(line) = self.lines.recv_timeout(GRACE) {
            self.stdout.push_str(&line);
            self.stdout.push('\n');
        }
        while Arc::strong_count(&self.stderr) > 1 && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
        Ended { words, status, stdout: std::mem::take(&mut self.stdout), stderr: self.errors() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already; a failure cannot be reported here.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            // It may say why the test fails.
            let errors = self.errors();
            if !errors.is_empty() {
                eprintln!("`{}` wrote to standard error:\n{errors}", self.words);
            }
        }
    }
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    words: String,
    /// How it ended.
    pub status: ExitStatus,
    /// All lines of its standard output that were not taken before.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`: {}\n{}{}", self.words, self.status, self.stdout, self.stderr)
    }
}

/// Whether all programs are installed; the first that is not is reported.
pub fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    match programs.iter().find(|program| !found(program)) {
        Some(missing) => {
            lacks(format!("{missing}, which cargo xtask check installs as root"));
            false
        }
        None => true,
    }
}

fn words(command: &Command) -> String {
    let program = [command.get_program()];
    let words = program.into_iter().chain(command.get_args()).map(OsStr::to_string_lossy);
    words.collect::<Vec<_>>().join(" ")
}
