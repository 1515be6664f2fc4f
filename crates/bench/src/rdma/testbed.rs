//! The programs of the two ends, and the device of each.

use std::net::Ipv4Addr;
use std::process::Command;

use serde_json::Value;

use super::{Memory, Options, Row, System};
use crate::Error;
use crate::peers::Program;
use crate::running::{self, Running};

/// Where the server listens.
const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Payload that was moved one way.
    pub(super) bytes: f64,
    /// Messages that it was.
    pub(super) messages: f64,
    pub(super) seconds: f64,
    /// Of round trips, in nanoseconds.
    pub(super) median: f64,
    pub(super) p99: f64,
    /// CPU time of each process, in nanoseconds, by the metric that it is for.
    pub(super) cpu: Vec<(&'static str, f64)>,
}

/// Both ends, connected.
#[derive(Debug)]
pub(super) struct Testbed {
    system: System,
    client: Running,
    _server: Running,
    _devices: Vec<Running>,
    /// The processes whose CPU time is told.
    watched: Vec<(&'static str, u32)>,
}

impl Testbed {
    /// Starts all of it, each process on its CPU, and waits until a short run is over.
    pub(super) fn new(
        row: &Row,
        system: System,
        options: &Options,
        program: &Program,
    ) -> Result<Testbed, Error> {
        let [client_cpu, server_cpu] = row.cpus;
        let ends = [("client", client_cpu), ("server", server_cpu)];
        let (mut devices, mut addresses) = (Vec::new(), Vec::new());
        if system == System::Wharf {
            for (name, cpu) in ends {
                let address = format!("@wharf-bench-{}-{name}", std::process::id());
                devices.push(device(&address, cpu)?);
                addresses.push(address);
            }
        }
        let command = |of: usize, work: &str| {
            let mut command = Command::new(program.path());
            command.args([work, system.transport(), row.case.name(), &HOST.to_string()]);
            if let Some(address) = addresses.get(of) {
                running::with_verbs(&mut command, &options.library, address);
            }
            match options.memory {
                Memory::Private => command.env_remove("MEMORY"),
                Memory::File => command.env("MEMORY", "file"),
            };
            command
        };
        let mut server = Running::start(command(1, "serve"), server_cpu)?;
        let port = server.hear()?;
        if port.trim().parse::<u16>().is_err() {
            return Err(failed(system, &port));
        }
        let milliseconds = options.duration.as_millis().to_string();
        let mut client = command(0, "run");
        client.args([port.trim(), &milliseconds]);
        let mut client = Running::start(client, client_cpu)?;
        match client.hear()?.trim() {
            "ready" => {}
            why => return Err(failed(system, why)),
        }
        let mut watched = vec![("client_cpu", client.id()), ("server_cpu", server.id())];
        let names = ["client_device_cpu", "server_device_cpu"];
        watched.extend(names.into_iter().zip(devices.iter().map(Running::id)));
        Ok(Testbed { system, client, _server: server, _devices: devices, watched })
    }

    /// One run.
    pub(super) fn measure(mut self) -> Result<Measured, Error> {
        let before = self.cpu();
        self.client.say()?;
        let line = self.client.hear()?;
        let after = self.cpu();
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let number = |name: &str| told[name].as_f64();
        let (Some(bytes), Some(messages), Some(nanoseconds), Some(median), Some(p99)) = (
            number("bytes"),
            number("messages"),
            number("nanoseconds"),
            number("median"),
            number("p99"),
        ) else {
            return Err(failed(self.system, &line));
        };
        let spent = before.into_iter().zip(after);
        let cpu = spent.map(|((name, before), (_, after))| (name, after - before)).collect();
        Ok(Measured { bytes, messages, seconds: nanoseconds / 1e9, median, p99, cpu })
    }

    fn cpu(&self) -> Vec<(&'static str, f64)> {
        let of = |id| sys::process::all_threads_cpu(id).unwrap_or(0) as f64;
        self.watched.iter().map(|(name, id)| (*name, of(*id))).collect()
    }
}

/// The program said this in place of what it should.
fn failed(system: System, line: &str) -> Error {
    let why = match line.trim() {
        "" => "its program ended early".to_owned(),
        line => format!("its program says {line}"),
    };
    Error::Failed { system: system.name(), why }
}

/// A device that serves at this address.
fn device(address: &str, cpu: usize) -> Result<Running, Error> {
    let mut device = Running::start(running::device(address)?, cpu)?;
    // It serves when it says so.
    device.hear()?;
    Ok(device)
}
