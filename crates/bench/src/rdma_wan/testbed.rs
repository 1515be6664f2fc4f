//! The nodes of a run, with the router between them, their programs and their devices.

use std::process::Command;
use std::time::Duration;

use nic::degen::Settings;
use serde_json::Value;
use sys::netns::Namespace;

use super::measured::{Reading, Told, value};
use super::placement::{Cpus, Places};
use super::{By, CLIENTS, Carrier, Case, Options, Placement, Point};
use crate::hosts::{Hosts, PEER, SERVER, WIRE};
use crate::peers::Program;
use crate::running::{self, Running};
use crate::sink::io;
use crate::{Error, link};

/// How long clients send before the computation begins; and as many round trips of the path.
const RAMP: Duration = Duration::from_millis(100);
const RAMP_ROUND_TRIPS: u32 = 4;
/// How long devices and NICs may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What all runs need.
#[derive(Debug)]
pub(super) struct Ready<'a> {
    pub(super) options: &'a Options,
    program: Program,
    cpus: Cpus,
    /// Rounds of the program's computation a millisecond.
    rounds: u64,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) point: Point,
    pub(super) by: By,
    pub(super) placement: Placement,
    pub(super) seed: u64,
}

/// Both ends, connected; the client ends first, and what it went by last.
struct Testbed {
    client: Running,
    server: Running,
    _devices: Vec<Running>,
    hosts: Hosts,
}

impl<'a> Ready<'a> {
    /// Measures how fast the computation is.
    pub(super) fn new(
        options: &'a Options,
        program: Program,
        cpus: Cpus,
    ) -> Result<Ready<'a>, Error> {
        let mut command = Command::new(program.path());
        command.arg("rounds");
        let line = Running::start(command, cpus.alone())?.hear()?;
        let rounds = line.trim().parse().map_err(|_| failed("wharf", &line))?;
        Ok(Ready { options, program, cpus, rounds })
    }

    /// How long the computation of so many microseconds takes with nothing beside it, in milliseconds.
    pub(super) fn alone(&self, time: u32) -> Result<f64, Error> {
        let cpu = self.cpus.alone();
        let mut command = self.command("serve", By::Sockets);
        command.args(["cpu", "-", "0", "0", "1"]);
        command.args([self.rounds(time).to_string(), "0".to_owned(), cpu.to_string()]);
        let mut program = Running::start(command, cpu)?;
        expect(&mut program, "ready", By::Sockets)?;
        let told = self.computed(&mut program, By::Sockets)?;
        value(&told, "run_time").ok_or_else(|| failed("wharf", ""))
    }

    fn rounds(&self, time: u32) -> u64 {
        self.rounds * u64::from(time) / 1_000
    }

    fn command(&self, work: &str, by: By) -> Command {
        let transport = if by == By::Sockets { "tcp" } else { "verbs" };
        let mut command = Command::new(self.program.path());
        command.args([work, transport]);
        command
    }

    /// Runs it.
    pub(super) fn measure(&self, task: &Task) -> Result<Vec<Reading>, Error> {
        let mut testbed = self.testbed(task)?;
        let by = task.by;
        let readings = match kind(task) {
            "cpu" => self.beside_clients(&mut testbed, task)?,
            "latency" => testbed.measure(task)?,
            _ => {
                expect(&mut testbed.client, "connected", by)?;
                expect(&mut testbed.server, "filled", by)?;
                testbed.client.say()?;
                testbed.measure(task)?
            }
        };
        if self.options.carrier == Carrier::Nic && by != By::Sockets {
            testbed.was_on_nic()?;
        }
        Ok(readings)
    }

    /// The computation, while clients send.
    fn beside_clients(&self, testbed: &mut Testbed, task: &Task) -> Result<Vec<Reading>, Error> {
        let Testbed { client, server, .. } = testbed;
        expect(client, "ready", task.by)?;
        expect(server, "ready", task.by)?;
        client.say()?;
        told(client, task.by)?;
        let round_trip = Duration::from_millis(2 * u64::from(task.point.delay));
        std::thread::sleep(RAMP + RAMP_ROUND_TRIPS * round_trip);
        client.say()?;
        let before = told(client, task.by)?;
        let mut readings = self.computed(server, task.by)?;
        client.say()?;
        let after = told(client, task.by)?;
        let bits = 8.0 * (after.bytes - before.bytes);
        let value = bits / (after.nanoseconds - before.nanoseconds) * 1e9;
        readings.push(Reading { metric: "throughput", unit: "bit/s", value });
        Ok(readings)
    }

    /// Lets a program that is ready compute.
    fn computed(&self, program: &mut Running, by: By) -> Result<Vec<Reading>, Error> {
        program.say()?;
        Ok(told(program, by)?.readings(Case::Cpu))
    }

    /// Starts all of it, each process on its CPU.
    fn testbed(&self, task: &Task) -> Result<Testbed, Error> {
        let places = self.cpus.places(task.point.case, task.placement);
        let hosts = self.hosts(task, &places)?;
        let ends = [
            (&hosts.client, (PEER, "client"), places.client_device),
            (&hosts.server, (WIRE, "server"), places.server_device),
        ];
        let (mut devices, mut addresses) = (Vec::new(), Vec::new());
        if task.by != By::Sockets {
            let carrier = self.options.carrier;
            for (namespace, (wire, name), cpu) in ends {
                if carrier == Carrier::Nic {
                    devices.push(nic(namespace, (wire, name), cpu)?);
                }
                devices.push(device(namespace, name, carrier, cpu)?);
                addresses.push(address(name));
            }
            // A device ends before the NIC that it is on.
            devices.reverse();
        }
        let command = |of: usize, work: &str, port: &str| {
            let Point { bytes, time, case, .. } = task.point;
            let connections = if case == Case::Cpu { CLIENTS } else { 1 };
            let duration = self.options.duration.as_millis();
            let mut command = self.command(work, task.by);
            command.args([kind(task), &SERVER.to_string(), port]);
            command.args([duration.to_string(), bytes.to_string(), self.rounds(time).to_string()]);
            command.args([connections.to_string(), places.computation.to_string()]);
            if let Some(address) = addresses.get(of) {
                running::with_verbs(&mut command, &self.options.library, address);
            }
            command
        };
        let mut server = Running::start_in(&hosts.server, command(1, "serve", "0"), places.server)?;
        let port = server.hear()?;
        if port.trim().parse::<u16>().is_err() {
            return Err(failed(task.by.system(), &port));
        }
        let client =
            Running::start_in(&hosts.client, command(0, "run", port.trim()), places.client)?;
        Ok(Testbed { client, server, _devices: devices, hosts })
    }

    fn hosts(&self, task: &Task, places: &Places) -> Result<Hosts, Error> {
        let Point { case, delay, .. } = task.point;
        let hosts = if case == Case::Lan {
            Hosts::new()?
        } else {
            let mut settings = Settings { seed: Some(task.seed), ..Settings::default() };
            for config in &mut settings.configs {
                config.delay = u64::from(delay) * 1_000_000;
            }
            for (key, value) in &self.options.path {
                let set = settings.set(key, value);
                set.map_err(|error| Error::Usage(error.to_string()))?;
            }
            let hosts = Hosts::through(&settings, self.options.mode)?;
            if let Some(thread) = sys::process::thread(link::DEGEN) {
                let pinned = sys::affinity::pin_thread(thread, places.degen);
                pinned.map_err(io("choose degen's CPU"))?;
            }
            hosts
        };
        hosts.bare_kernel()?;
        Ok(hosts)
    }
}

impl Testbed {
    /// What the client measures.
    fn measure(&mut self, task: &Task) -> Result<Vec<Reading>, Error> {
        expect(&mut self.client, "ready", task.by)?;
        self.client.say()?;
        Ok(told(&mut self.client, task.by)?.readings(task.point.case))
    }

    /// Whether the server's device has received by its NIC: a connection may be refused there.
    fn was_on_nic(&self) -> Result<(), Error> {
        let own = std::env::current_exe().map_err(io("find this program"))?;
        let mut command = Command::new(own);
        command.args(["rdma", "stats", "--json", "--address", &address("server")]);
        let output = self.hosts.server.run(|| command.output())?.map_err(io("ask the device"))?;
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match told["processes"][0]["counters"]["nic_bytes_in"].as_u64() {
            Some(1..) => Ok(()),
            _ => {
                let why = "connections of verbs did not come to the NIC: `wharf doctor` says why";
                Err(Error::Failed { system: "wharf", why: why.to_owned() })
            }
        }
    }
}

/// Where the device of an end serves.
fn address(name: &str) -> String {
    format!("@wharf-bench-wan-{}-{name}", std::process::id())
}

/// The interface that the NIC of an end makes.
fn host(name: &str) -> String {
    format!("{name}0")
}

/// What the program calls it.
fn kind(task: &Task) -> &'static str {
    match (task.point.case, task.by) {
        (Case::Rendezvous, By::Sockets) => "latency",
        (Case::Rendezvous, by) => by.name(),
        (Case::Progress, _) => "progress",
        (Case::Cpu, _) => "cpu",
        (Case::Latency | Case::Lan | Case::Overlap, _) => "latency",
    }
}

/// The device of an end.
fn device(
    namespace: &Namespace,
    name: &str,
    carrier: Carrier,
    cpu: usize,
) -> Result<Running, Error> {
    let mut command = running::device(&address(name))?;
    match carrier {
        Carrier::Kernel => command.arg("--no-nic"),
        Carrier::Nic => command.args(["--nic", &host(name)]),
    };
    let mut device = Running::start_in(namespace, command, cpu)?.ends_by_itself(PATIENCE);
    // It serves when it says so.
    if device.hear()?.is_empty() {
        let why = "the RDMA device did not start".to_owned();
        return Err(Error::Failed { system: "wharf", why });
    }
    Ok(device)
}

/// A NIC of the node's, with its addresses.
fn nic(namespace: &Namespace, (wire, name): (&str, &str), cpu: usize) -> Result<Running, Error> {
    let own = std::env::current_exe().map_err(io("find this program"))?;
    let mut command = Command::new(own);
    command.args(["up", "--wire", wire, "--take-addresses", "--set", "workers=1", "--host"]);
    command.arg(host(name));
    // It leaves connections to the kernel, and the wire as it was.
    let mut nic = Running::start_in(namespace, command, cpu)?.ends_by_itself(PATIENCE);
    // It says what it found until it is up.
    loop {
        let line = nic.hear()?;
        if line.starts_with("up: ") {
            return Ok(nic);
        }
        if line.is_empty() {
            let why = "wharf up did not start".to_owned();
            return Err(Error::Failed { system: "wharf", why });
        }
    }
}

fn told(program: &mut Running, by: By) -> Result<Told, Error> {
    let line = program.hear()?;
    Told::read(&line).ok_or_else(|| failed(by.system(), &line))
}

fn expect(program: &mut Running, word: &str, by: By) -> Result<(), Error> {
    let line = program.hear()?;
    if line.trim() == word { Ok(()) } else { Err(failed(by.system(), &line)) }
}

/// A program said this in place of what it should.
fn failed(system: &'static str, line: &str) -> Error {
    let why = match line.trim() {
        "" => "the program of verbs and sockets ended early".to_owned(),
        line => format!("the program of verbs and sockets says {line}"),
    };
    Error::Failed { system, why }
}
