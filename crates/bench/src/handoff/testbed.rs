//! The hosts, wharf, and the program at the server.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nic::Nic;
use nic::config::Config;
use nic::counters::Entry;
use nic::degen::Settings;
use nic::handoff::{Listener, Selection};
use nic::port::spent;
use sys::affinity;
use sys::process::threads;

use super::program::Work;
use super::{Options, Place};
use crate::hosts::{Hosts, PEER, SERVER};
use crate::load::request_response::ask;
use crate::load::streams::{Clients, Direction};
use crate::sink::io;
use crate::{Error, link};

/// The thread of wharf's one worker, and its agent beside the kernel.
const WORKER: &str = "wharf-0";
const AGENT: &str = "handoff";
/// What does not happen in so long will not.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads of all clients, which share the connections.
pub(super) const CLIENT_THREADS: usize = 1;
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Two hosts, wharf in front of the server, at each of its wires, and the server's program.
#[derive(Debug)]
pub(super) struct Testbed {
    pub(super) hosts: Hosts,
    nics: Vec<Nic>,
    library: PathBuf,
    /// The CPU of wharf's worker, the first NIC's, if there are others.
    own: Option<usize>,
    /// Where the program and its clients run: wharf has another CPU, if there is one.
    others: Vec<usize>,
}

impl Testbed {
    pub(super) fn new(options: &Options, connections: usize) -> Result<Testbed, Error> {
        // More than are there: the NIC gives back what is idle when it is short of places.
        let room = (connections + connections / 8).max(1_024) as u32;
        Testbed::with_room(options, 1, room.max(options.config.handoff.connections))
    }

    /// The same with so many NICs, each of which has room for so many connections.
    pub(super) fn with_room(options: &Options, nics: usize, room: u32) -> Result<Testbed, Error> {
        Testbed::behind(Hosts::by_wires(nics)?, configured(options, room), options)
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
        let nics = hosts.wharfs(&config)?;
        for (number, nic) in nics.iter().enumerate() {
            let named = || Listener::named(&format!("wharf-bench-{number}"));
            let listener = hosts.server.run(named)?.map_err(io("listen"))?;
            hosts
                .server
                .run(|| nic.begin_handoffs(listener))?
                .map_err(io("hand off connections"))?;
            if nic.ports().host != "TAP" {
                let why = "it measures a host behind a TAP, which this user may not make";
                return Err(Error::Usage(why.to_owned()));
            }
        }
        let cpus = affinity::cpus().map_err(io("look for CPUs"))?;
        // One for each worker, if others are left.
        let (own, others) = cpus.split_at(nics.len().min(cpus.len().saturating_sub(1)));
        for (worker, cpu) in threads(WORKER).into_iter().zip(own.iter().cycle()) {
            affinity::pin_thread(worker, *cpu).map_err(io("pin wharf"))?;
        }
        // They would otherwise be woken where workers go on running.
        for (agent, cpu) in threads(AGENT).into_iter().zip(others.iter().cycle()) {
            affinity::pin_thread(agent, *cpu).map_err(io("pin wharf's agent"))?;
        }
        spent::measure();
        let (own, others) = (own.first().copied(), others.to_vec());
        Ok(Testbed { hosts, nics, library: options.library.clone(), own, others })
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
        self.begin(place, policy, command(work, connections, call)?)
    }

    /// The same, run by another program such as valgrind.
    pub(super) fn program_by(
        &self,
        mut by: Command,
        place: Place,
        policy: &str,
        (work, connections, call): (Work, usize, usize),
    ) -> Result<Program, Error> {
        let own = command(work, connections, call)?;
        by.arg(own.get_program()).args(own.get_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        self.begin(place, policy, by)
    }

    fn begin(&self, place: Place, policy: &str, mut command: Command) -> Result<Program, Error> {
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
            let addresses: Vec<&str> = self.nics.iter().filter_map(Nic::handoff_address).collect();
            command.env("LD_PRELOAD", OsString::from(&self.library));
            command.env("WHARF_HANDOFF", addresses.join(" "));
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

    /// Has the client's kernel receive where the client runs, not where wharf sends; on one CPU that is so already.
    pub(super) fn client_receives_aside(&self) -> Result<(), Error> {
        match (self.own, self.others.first()) {
            (Some(_), Some(cpu)) => link::steer(&self.hosts.client, PEER, *cpu),
            _ => Ok(()),
        }
    }

    /// CPU time of the kernel's own thread that receives on wharf's CPU, or of those of all CPUs where wharf has none.
    pub(super) fn softirq_cpu(&self) -> u64 {
        let of = |cpu| {
            // Those of other CPUs whose numbers begin so were started later, and are found later.
            let thread = sys::process::find(&format!("ksoftirqd/{cpu}"))?;
            sys::process::process_cpu(thread)
        };
        self.own.map_or_else(sys::process::ksoftirqd_cpu, of).unwrap_or(0)
    }

    /// Starts a client with connections to a program's, in a process of its own: in this one the NIC has descriptors
    /// enough.
    pub(super) fn idle_clients(&self, to: &Program, connections: usize) -> Result<Program, Error> {
        let mut command = command(Work::Connect, connections, to.to.port().into())?;
        let spawn = || command.spawn().map_err(io("start a program"));
        Program::of(self.hosts.client.run(spawn)??)
    }

    /// Counters of the NIC's, or of all of them.
    pub(super) fn counters(&self) -> impl Iterator<Item = Entry> {
        self.nics.iter().flat_map(Nic::counters)
    }

    /// Packets of the wire, both ways.
    pub(super) fn wire_packets(&self) -> u64 {
        let is_it =
            |one: &Entry| one.group == "wire" && ["rx_packets", "tx_packets"].contains(&one.name);
        self.counters().filter(is_it).map(|one| one.value).sum()
    }

    /// A counter of the NIC's.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let its = self.counters().filter(|one| (one.group, one.name) == ("handoff", name));
        its.map(|one| one.value).sum()
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
        let some = self.counters().filter(|one| groups.contains(&one.group) && one.value > 0);
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
        self.nics.iter().map(Nic::handed_off).sum()
    }

    /// The thread of its worker; with several NICs, the first's.
    pub(super) fn worker_thread(&self) -> Option<u32> {
        sys::process::thread(WORKER)
    }

    /// CPU time of all workers, which all that wharf does for packets is.
    pub(super) fn worker_cpu(&self) -> u64 {
        sys::process::threads_cpu(WORKER)
    }

    /// Neither LRO nor GSO: each segment is a packet.
    pub(super) fn without_offloads(&self) -> Result<(), Error> {
        self.set("lro.enable", "false")?;
        self.set("gso.tcp", "false")
    }

    /// The NIC gives connections back when it has too many for its time.
    pub(super) fn under_control(&self) -> Result<(), Error> {
        self.set("handoff.load", "true")
    }

    fn set(&self, key: &str, value: &str) -> Result<(), Error> {
        self.nics
            .iter()
            .try_for_each(|nic| nic.set(key, value))
            .map_err(|error| Error::Failed { system: "wharf", why: error.to_string() })
    }

    /// Asks for connections to move, all of them.
    pub(super) fn ask_to_move(&self, to: Place) {
        for nic in &self.nics {
            match to {
                Place::Nic => nic.hand_to_nic(Selection::default()),
                Place::Os => nic.hand_to_os(Selection::default()),
            };
        }
    }

    /// Ends wharf.
    pub(super) fn stop(self) -> Result<(), Error> {
        let stop = |nic: Nic| nic.stop().map(drop).map_err(io("end wharf"));
        self.nics.into_iter().try_for_each(stop)
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

pub(super) fn gone() -> Error {
    Error::Failed { system: "the server's program", why: "it ended early".to_owned() }
}
