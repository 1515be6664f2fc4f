//! The hosts, wharf, and the program at the server.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nic::Nic;
use nic::config::Config;
use nic::degen::Settings;
use nic::handoff::Listener;
use nic::port::spent;
use sys::affinity;

use super::program::Work;
use super::{Options, Place};
use crate::Error;
use crate::hosts::{Hosts, SERVER};
use crate::load::request_response::ask;
use crate::load::streams::{Clients, Direction};
use crate::sink::io;

/// The thread of wharf's one worker, and its agent beside the kernel.
const WORKER: &str = "wharf-0";
const AGENT: &str = "handoff";
/// What does not happen in so long will not.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads of all clients, which share the connections.
pub(super) const CLIENT_THREADS: usize = 1;
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Two hosts, wharf in front of the server, and the server's program.
#[derive(Debug)]
pub(super) struct Testbed {
    pub(super) hosts: Hosts,
    pub(super) nic: Nic,
    library: PathBuf,
    /// The CPU of wharf's worker, if there are others.
    own: Option<usize>,
    /// Where the program and its clients run: wharf has another CPU, if there is one.
    others: Vec<usize>,
}

impl Testbed {
    pub(super) fn new(options: &Options, connections: usize) -> Result<Testbed, Error> {
        // More than are there: the NIC gives back what is idle when it is short of places.
        let room = (connections + connections / 8).max(1_024) as u32;
        Testbed::with_room(options, room.max(options.config.handoff.connections))
    }

    /// The same, whose NIC has room for so many connections.
    pub(super) fn with_room(options: &Options, room: u32) -> Result<Testbed, Error> {
        Testbed::behind(Hosts::new()?, configured(options, room), options)
    }

    /// One whose hosts are so far apart, by degen, with room for so many connections and those that are closing.
    pub(super) fn at_a_distance(
        options: &Options,
        connections: usize,
        one_way: Duration,
    ) -> Result<Testbed, Error> {
        let config = configured(options, (connections * 4).max(4_096) as u32);
        let mut path = Settings::default();
        path.configs.iter_mut().for_each(|config| config.delay = one_way.as_nanos() as u64);
        let hosts = match one_way {
            Duration::ZERO => Hosts::new()?,
            _ => Hosts::through(&path, config.wire.mode)?,
        };
        Testbed::behind(hosts, config, options)
    }

    fn behind(hosts: Hosts, config: Config, options: &Options) -> Result<Testbed, Error> {
        let nic = hosts.wharf(config)?;
        let listener =
            hosts.server.run(|| Listener::named("wharf-bench"))?.map_err(io("listen"))?;
        hosts.server.run(|| nic.begin_handoffs(listener))?.map_err(io("hand off connections"))?;
        if nic.ports().host != "TAP" {
            let why = "it measures a host behind a TAP, which this user may not make";
            return Err(Error::Usage(why.to_owned()));
        }
        let cpus = affinity::cpus().map_err(io("look for CPUs"))?;
        let (own, others) = match &cpus[..] {
            [own, others @ ..] if !others.is_empty() => {
                let worker = sys::process::thread(WORKER);
                worker
                    .map_or(Ok(()), |id| affinity::pin_thread(id, *own))
                    .map_err(io("pin wharf"))?;
                // It would otherwise be woken where the worker goes on running.
                sys::process::thread(AGENT)
                    .map_or(Ok(()), |id| affinity::pin_thread(id, others[0]))
                    .map_err(io("pin wharf's agent"))?;
                (Some(*own), others.to_vec())
            }
            all => (None, all.to_vec()),
        };
        spent::measure();
        Ok(Testbed { hosts, nic, library: options.library.clone(), own, others })
    }

    /// Lets the calling thread, and those that it starts, run where wharf's worker does not.
    fn step_aside(&self) -> Result<(), Error> {
        match &self.others[..] {
            [cpu] => affinity::pin(*cpu).map_err(io("pin a thread")),
            _ => Ok(()),
        }
    }

    /// The clients of a program, which send or receive as much as they can.
    pub(super) fn clients(
        &self,
        to: SocketAddr,
        direction: Direction,
        connections: usize,
    ) -> Result<Clients, Error> {
        self.aside(|| Clients::start(&self.hosts, to, direction, connections, CLIENT_THREADS))
    }

    /// What a client is told that asks for one byte after the other: the times in nanoseconds.
    pub(super) fn ask(&self, to: SocketAddr, duration: Duration) -> Result<Vec<u64>, Error> {
        self.aside(|| ask(to, duration, None))
    }

    /// Does it in a thread that runs where wharf's worker does not, as those do that it starts.
    pub(super) fn aside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.hosts.client.run(|| self.step_aside().and_then(|()| work()))?
    }

    /// Starts a program, whose connections are to be there. At the NIC it has the library, and hands off what it
    /// accepts, or what it is asked for.
    pub(super) fn program(
        &self,
        place: Place,
        policy: &str,
        (work, connections, call): (Work, usize, usize),
    ) -> Result<Program, Error> {
        let mut command = command(work, connections, call)?;
        let child = self.spawn(place, policy, &mut command).map_err(io("start a program"))?;
        let mut program = Program::of(child)?;
        let port = program.hear()?;
        program.to.set_port(port as u16);
        Ok(program)
    }

    /// Starts a program at the server; at the NIC it has the library.
    pub(super) fn spawn(
        &self,
        place: Place,
        policy: &str,
        command: &mut Command,
    ) -> std::io::Result<Child> {
        if place == Place::Nic {
            let address = self.nic.handoff_address().unwrap_or_default();
            command.env("LD_PRELOAD", OsString::from(&self.library)).env("WHARF_HANDOFF", address);
            command.env("WHARF_HANDOFF_POLICY", policy);
        }
        let spawned = self.hosts.server.run(|| {
            self.step_aside().map_err(std::io::Error::other)?;
            command.spawn()
        });
        spawned.map_err(std::io::Error::other)?
    }

    /// Lets a program's one thread run where wharf's worker does.
    pub(super) fn join(&self, program: u32) -> Result<(), Error> {
        self.own
            .map_or(Ok(()), |cpu| affinity::pin_thread(program, cpu))
            .map_err(io("pin a program"))
    }

    /// Starts a client with connections to a program's, in a process of its own: in this one the NIC has descriptors
    /// enough.
    pub(super) fn idle_clients(&self, to: &Program, connections: usize) -> Result<Program, Error> {
        let mut command = command(Work::Connect, connections, to.to.port().into())?;
        let spawn = || command.spawn().map_err(io("start a program"));
        Program::of(self.hosts.client.run(spawn)??)
    }

    /// A counter of the NIC's.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let all = self.nic.counters();
        all.iter().find(|one| (one.group, one.name) == ("handoff", name)).map_or(0, |one| one.value)
    }

    /// Waits until that is so.
    pub(super) fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Error> {
        let begun = Instant::now();
        while !is_so() {
            if begun.elapsed() > PATIENCE {
                let (seconds, why) = (PATIENCE.as_secs(), self.reasons());
                let why =
                    format!("{what} took more than {seconds} s: {} at the NIC{why}", self.at_nic());
                return Err(Error::Failed { system: "wharf", why });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Why connections were refused or went back, and how many.
    fn reasons(&self) -> String {
        let groups = ["handoff_refused", "handoff_restored"];
        let all = self.nic.counters();
        let some = all.iter().filter(|one| groups.contains(&one.group) && one.value > 0);
        some.map(|one| format!(", {} {} {}", one.value, one.group, one.name)).collect()
    }

    /// Connections that were to be at the NIC are not.
    pub(super) fn stayed(&self) -> Error {
        let why = format!(
            "connections did not stay at the NIC: {} are there{}",
            self.at_nic(),
            self.reasons()
        );
        Error::Failed { system: "wharf", why }
    }

    /// How many connections the NIC runs.
    pub(super) fn at_nic(&self) -> usize {
        self.nic.handed_off()
    }

    /// The thread of its worker.
    pub(super) fn worker_thread(&self) -> Option<u32> {
        sys::process::thread(WORKER)
    }

    /// CPU time of a worker's, which all that wharf does for packets is.
    pub(super) fn worker_cpu(&self) -> u64 {
        sys::process::threads_cpu(WORKER)
    }

    /// Neither LRO nor GSO: each segment is a packet.
    pub(super) fn without_offloads(&self) -> Result<(), Error> {
        for (key, value) in [("lro.enable", "false"), ("gso.tcp", "false")] {
            let set = self.nic.set(key, value);
            set.map_err(|error| Error::Failed { system: "wharf", why: error.to_string() })?;
        }
        Ok(())
    }

    /// The NIC gives connections back when it has too many for its time.
    pub(super) fn under_control(&self) -> Result<(), Error> {
        let set = self.nic.set("handoff.load", "true");
        set.map_err(|error| Error::Failed { system: "wharf", why: error.to_string() })
    }

    /// Ends wharf.
    pub(super) fn stop(self) -> Result<(), Error> {
        self.nic.stop().map(drop).map_err(io("end wharf"))
    }
}

/// wharf's settings with one worker, which has room for so many connections.
fn configured(options: &Options, room: u32) -> Config {
    let mut config = options.config.clone();
    config.workers = 1;
    config.handoff.connections = room.max(1);
    config.handoff.connections_per_uid = 0;
    // As many are on the NIC as it says, however much they load it.
    config.handoff.load = false;
    config
}

/// The server's program, or the client's. It ends with this.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Where it listens.
    pub(super) to: SocketAddr,
}

/// This program, as one of the testbed's.
fn command(work: Work, connections: usize, call: usize) -> Result<Command, Error> {
    let own = std::env::current_exe().map_err(io("find this program"))?;
    let mut command = Command::new(own);
    command.args(["bench", "handoff-program", work.name()]);
    command.args([connections.to_string(), call.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

impl Program {
    fn of(mut child: Child) -> Result<Program, Error> {
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(gone());
        };
        Ok(Program { child, stdin, stdout: BufReader::new(stdout), to: (SERVER, 0).into() })
    }

    /// A number that it says.
    fn hear(&mut self) -> Result<u64, Error> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).map_err(io("hear a program"))?;
        line.trim().parse().map_err(|_| gone())
    }

    /// Waits until it has all its connections.
    pub(super) fn accepted(&mut self) -> Result<(), Error> {
        self.hear().map(drop)
    }

    /// How many bytes it has received or sent.
    pub(super) fn done(&mut self) -> Result<u64, Error> {
        self.stdin.write_all(b"?").map_err(io("ask a program"))?;
        self.hear()
    }

    /// Its process, and its one thread.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of its thread, in nanoseconds.
    pub(super) fn cpu(&self) -> u64 {
        sys::process::process_cpu(self.child.id()).unwrap_or(0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gone() -> Error {
    Error::Failed { system: "the server's program", why: "it ended early".to_owned() }
}
