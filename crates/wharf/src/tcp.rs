//! `wharf tcp`: the TCP engine with a service, which listens or connects.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args, Subcommand};
use nic::control::{Claim, Control, Handler, counters_json, settings_json};
use nic::counters::Entry;
use nic::degen;
use nic::tcp::{
    Address, Addresses, Endpoint, Own, Place, Plan, Reason, Report, Role, Service, Work,
};
use serde_json::{Value, json};
use sys::poll::{Interest, PollSet, Signals};
use sys::process::Signal;

use crate::args::{Settings, address, seconds};
use crate::error::Error;
use crate::guard::{Before, Guard};
use crate::lateness::Lateness;
use crate::log::tell;
use crate::serving::{claim, give_up_rights};
use crate::settings::WAN;
use crate::table::{Align, Table, thousands};
use crate::trace::{TraceArgs, Writing};
use crate::{print, settings};

/// How often it is looked whether there is something to tell.
const LOOK_EVERY: u64 = 50_000_000;
/// How often `--json` tells how it goes.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Probes for an address on a wire before it is used: as many as Linux sends for its IPv6 addresses
/// (`net.ipv6.conf.*.dad_transmits`).
pub(crate) const PROBES: u8 = 1;

/// Run wharf's own TCP with a simple service, behind an interface or on a wire
///
/// The address is the engine's alone: no kernel has it. It answers ARP, Neighbour Discovery and ping.
/// With --connect it opens connections itself, and runs the service on them.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: an echo server that this machine reaches by the interface nic0:\n  \
                        wharf tcp echo --host nic0 --host-address 10.0.0.1/24 \\\n    \
                        --address 10.0.0.2/24 --port 7\n  \
                        nc 10.0.0.2 7        # in another terminal\n\n\
                        Example: how fast does it send, on eth1, to a server that only reads?\n  \
                        wharf tcp source --wire eth1 --address 192.0.2.7/24 \\\n    \
                        --connect 192.0.2.1:9 --seconds 10"
)]
pub(crate) struct TcpArgs {
    #[command(subcommand)]
    service: ServiceArgs,
}

#[derive(Debug, Subcommand)]
enum ServiceArgs {
    /// Send back what comes (RFC 862)
    #[command(after_help = "Example: IPv4 and IPv6 at once:\n  \
                            wharf tcp echo --host nic0 --host-address 10.0.0.1/24 \\\n    \
                            --host-address fd00::1/64 --address 10.0.0.2/24 \\\n    \
                            --address fd00::2/64 --port 7\n\n\
                            Example: what happens on the first connection of a client?\n  \
                            wharf tcp echo --host nic0 --host-address 10.0.0.1/24 \\\n    \
                            --address 10.0.0.2/24 --port 7 \\\n    \
                            --trace 10.0.0.2:7-10.0.0.1:0 --trace-to trace.json")]
    Echo(Common),
    /// Read what comes, and print the number of bytes of each connection
    #[command(after_help = "Example: is it what a `wharf tcp source` sends?\n  \
                            wharf tcp sink --host nic0 --address 10.0.0.2/24 --port 9 --verify")]
    Sink {
        #[command(flatten)]
        common: Common,
        /// Compare what comes with what `wharf tcp source` sends
        #[arg(long)]
        verify: bool,
    },
    /// Send as fast as possible; what comes is read
    #[command(after_help = "Example: 1 GB to each client, whatever it asks for:\n  \
                            wharf tcp source --host nic0 --host-address 10.0.0.1/24 \\\n    \
                            --address 10.0.0.2/24 --port 80 --bytes 1000000000\n  \
                            curl --http0.9 http://10.0.0.2/ -o file")]
    Source {
        #[command(flatten)]
        common: Common,
        /// Bytes to send on each connection before it is closed [default: no limit]
        #[arg(long, value_name = "N")]
        bytes: Option<u64>,
    },
    /// Read what comes, and answer nothing (RFC 863)
    #[command(after_help = "Example:\n  \
                            wharf tcp discard --host nic0 --address 10.0.0.2/24 --port 9")]
    Discard(Common),
}

#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("place").required(true).args(["host", "wire"])))]
#[command(group(ArgGroup::new("role").required(true).args(["port", "connect"])))]
struct Common {
    /// Name of the interface to make: what this machine sends there, the engine receives
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Ethernet interface to use instead; the engine receives all frames that arrive there
    #[arg(long, value_name = "IF")]
    wire: Option<String>,
    /// An address of the engine, with the length of its network's prefix
    #[arg(long, value_name = "ADDRESS/LEN", required = true, value_parser = address)]
    address: Vec<Address>,
    /// An address that this machine gets on the interface; or give it some by `ip address add`
    #[arg(long, value_name = "ADDRESS/LEN", conflicts_with = "wire", value_parser = address)]
    host_address: Vec<Address>,
    /// Use the addresses on the wire at once, without duplicate address detection, which takes a second
    #[arg(long, requires = "wire")]
    no_dad: bool,
    /// Where packets for other networks go; one for IPv4, one for IPv6
    #[arg(long, value_name = "ADDRESS")]
    gateway: Vec<IpAddr>,
    /// TCP port to listen on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Open connections to HOST:PORT, run the service on them, and end when they have ended
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// How many connections to open at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "connect",
          value_parser = clap::value_parser!(u32).range(1..=28_000))]
    connections: u32,
    /// Stop after this time: a source closes its connections, other services reset theirs
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// A WAN in front of the engine: a settings file of `wharf degen`, whose forward direction is that of
    /// what the engine sends
    #[arg(long, value_name = "FILE")]
    degen: Option<PathBuf>,
    /// One JSON object a line: progress each second, connections that ended, and all counters at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    settings: Settings,
}

/// Runs until a signal, or until all is done.
pub(crate) fn run(args: &TcpArgs) -> Result<(), Error> {
    let work = |service| Work { service, bytes: None, verify: false };
    match &args.service {
        ServiceArgs::Echo(common) => serve(common, work(Service::Echo)),
        ServiceArgs::Sink { common, verify } => {
            serve(common, Work { verify: *verify, ..work(Service::Sink) })
        }
        ServiceArgs::Source { common, bytes } => {
            serve(common, Work { bytes: *bytes, ..work(Service::Source) })
        }
        ServiceArgs::Discard(common) => serve(common, work(Service::Discard)),
    }
}

fn usage(error: impl std::fmt::Display) -> Error {
    Error::Usage(error.to_string())
}

/// Checks everything that can be checked before anything is made.
fn plan(args: &Common, work: Work) -> Result<Plan, Error> {
    let config = settings::load(&args.settings)?;
    let wan = args.degen.as_deref().map(settings::load_degen).transpose()?;
    let addresses = Addresses::new(args.address.clone(), args.gateway.clone()).map_err(usage)?;
    let place = match (&args.host, &args.wire) {
        (Some(name), _) => Place::Host { name: name.clone(), addresses: args.host_address.clone() },
        (None, Some(name)) => Place::Wire { name: name.clone() },
        (None, None) => return Err(usage("either --host or --wire is needed")),
    };
    if let Some(fault) = sys::interface::name_fault(place.name()) {
        return Err(usage(format!("{:?} cannot be an interface's name: {fault}", place.name())));
    }
    if let Some(both) = args.host_address.iter().find(|host| addresses.is_own(host.ip)) {
        return Err(usage(format!("{} cannot be both the engine's and this machine's", both.ip)));
    }
    args.trace.check(&addresses)?;
    let role = match (args.port, &args.connect) {
        (Some(port), _) => Role::Listen { port },
        (None, Some(to)) => {
            Role::Connect { to: resolve(to, &addresses)?, connections: args.connections }
        }
        (None, None) => return Err(usage("either --port or --connect is needed")),
    };
    let run = args.seconds.map(|seconds| seconds.as_nanos() as u64);
    let probes = if args.no_dad { 0 } else { PROBES };
    let own = Own { addresses, probes, role, work, run };
    Ok(Plan { place, own, config, wan })
}

/// The first of the addresses behind a name that the engine has an address of the same version for.
fn resolve(to: &str, addresses: &Addresses) -> Result<SocketAddr, Error> {
    let all = to.to_socket_addrs().map_err(|error| {
        usage(format!(
            "--connect {to:?}: {error}; it is HOST:PORT, such as 10.0.0.1:9 or [fd00::1]:9"
        ))
    })?;
    let reachable = |to: &SocketAddr| addresses.source_for(to.ip()).is_some() && to.port() != 0;
    let found = all.into_iter().find(reachable).ok_or_else(|| {
        usage(format!("--connect {to:?}: the engine has no --address of the same IP version"))
    })?;
    match addresses.next_hop(found.ip()) {
        Some(_) => Ok(found),
        None => Err(usage(format!(
            "no route to {}: it is in the network of no --address; name a router by --gateway",
            found.ip()
        ))),
    }
}

fn serve(args: &Common, work: Work) -> Result<(), Error> {
    let mut plan = plan(args, work)?;
    let seed = plan.wan.as_mut().map(degen::Settings::fix_seed);
    let name = plan.place.name().to_owned();
    // As `wharf up`: two for one interface would undo each other's work.
    let control =
        Control::bind(&name, &plan.config.control).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => usage(format!(
                "a wharf runs on {name} here already: choose another name, or stop it"
            )),
            _ => Error::Io(error),
        })?;
    let signals = Signals::block().map_err(Error::Io)?;
    let (trace, writing) = args.trace.start()?;
    let mut wire = match &plan.place {
        Place::Host { .. } => None,
        Place::Wire { name } => Some(Taken::take(name)?),
    };
    let config = plan.config.clone();
    let service = Running { args, work, seed, role: plan.own.role };
    let result = Endpoint::start_traced(plan, trace).map_err(Error::from).and_then(|endpoint| {
        give_up_rights()?;
        control.notice().into_iter().for_each(tell);
        let endpoint = Arc::new(Mutex::new(endpoint));
        let answers = Answers { endpoint: Arc::clone(&endpoint), config };
        let serving = control.serve(answers).map_err(Error::Io)?;
        let result = service.run(&endpoint, &signals, wire.as_mut());
        drop(serving);
        result
    });
    let result = result.and(wire.map_or(Ok(()), |wire| wire.guard.finish()));
    result.and(writing.map_or(Ok(()), Writing::finish))
}

/// A wire that is this process's.
struct Taken {
    guard: Guard,
    _claim: Claim,
}

impl Taken {
    fn take(name: &str) -> Result<Taken, Error> {
        let info = nic::find_wire(name)?;
        let claim = claim(name, info.index, "choose another --wire")?;
        Ok(Taken { guard: Guard::start(Before::look_at(name)?, None)?, _claim: claim })
    }
}

/// What is shown of an endpoint at work.
struct Running<'a> {
    args: &'a Common,
    work: Work,
    seed: Option<u64>,
    role: Role,
}

impl Running<'_> {
    fn run(
        &self,
        endpoint: &Mutex<Endpoint>,
        signals: &Signals,
        wire: Option<&mut Taken>,
    ) -> Result<(), Error> {
        lock(endpoint).notices().iter().for_each(|notice| tell(notice));
        // That it is not read is no error.
        let _ = print(self.first_line(&lock(endpoint)));
        let mut lateness = Lateness::default();
        let result = self.wait(endpoint, signals, wire, &mut lateness);
        let mut endpoint = lock(endpoint);
        let ended = endpoint.stop().map_err(Error::Io);
        if let Some(wan) = endpoint.wan() {
            lateness.sum_up(&wan.snapshot());
        }
        self.tell_reports(&endpoint);
        let _ = print(self.last_lines(&endpoint.counters()));
        result.and(ended).and_then(|()| self.verdict(&endpoint.counters()))
    }

    fn first_line(&self, endpoint: &Endpoint) -> String {
        let service = match self.work.service {
            Service::Echo => "echo",
            Service::Sink => "sink",
            Service::Source => "source",
            Service::Discard => "discard",
        };
        let to = match self.role {
            Role::Listen { port } => format!("port {port}"),
            Role::Connect { to, connections } => format!("{connections} to {to}"),
        };
        let own = self.args.address.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let seed = self.seed.map(|seed| format!(", degen with seed {seed}")).unwrap_or_default();
        let (name, port) = (endpoint.name(), endpoint.port());
        match self.args.json {
            true => format!(
                "{}\n",
                json!({"tcp": service, "interface": name, "port": port, "seed": self.seed})
            ),
            false => format!("tcp: {service} {own} on {name}, {to} ({port}{seed})\n"),
        }
    }

    /// Until there is a reason to end.
    fn wait(
        &self,
        endpoint: &Mutex<Endpoint>,
        signals: &Signals,
        mut wire: Option<&mut Taken>,
        lateness: &mut Lateness,
    ) -> Result<(), Error> {
        let mut meter = Meter::new();
        loop {
            let mut set = PollSet::new();
            set.add(signals.as_fd(), Interest::Read).map_err(|full| Error::Io(full.into()))?;
            set.wait(Some(LOOK_EVERY)).map_err(Error::Io)?;
            while let Some(signal) = signals.read().map_err(Error::Io)? {
                match signal {
                    Signal::Child => {}
                    _ => return Ok(()),
                }
            }
            if let Some(wire) = &mut wire {
                wire.guard.watch();
            }
            let endpoint = lock(endpoint);
            if let Some(wan) = endpoint.wan() {
                lateness.look(&wan.snapshot());
            }
            self.tell_reports(&endpoint);
            if self.args.json
                && let Some(line) = meter.line(&endpoint.counters())
            {
                let _ = print(line);
            }
            if endpoint.is_finished() {
                // `stop` tells why.
                return Ok(());
            }
            endpoint.look_at_queues()?;
        }
    }

    fn tell_reports(&self, endpoint: &Endpoint) {
        for report in endpoint.reports() {
            if self.args.json {
                let _ = print(report_json(&report));
            } else if self.work.service == Service::Sink {
                let _ = print(report_text(&report));
            } else if self.opens() && report.end != Reason::Closed {
                tell(&format!("{}: {}", report.remote, report.end));
            }
        }
    }

    fn opens(&self) -> bool {
        matches!(self.role, Role::Connect { .. })
    }

    fn last_lines(&self, counters: &[Entry]) -> String {
        if self.args.json {
            return format!("{}\n", json!({"counters": counters_json(counters.iter().copied())}));
        }
        let mut table = Table::new(&[Align::Left, Align::Left, Align::Right]);
        let mut last_group = "";
        for Entry { group, name, value } in counters.iter().filter(|entry| entry.value > 0) {
            let shown = if *group == last_group { "" } else { group };
            last_group = group;
            table.row([shown.to_owned(), (*name).to_owned(), thousands(*value)]);
        }
        table.to_string()
    }

    /// Connections that the endpoint opened and that failed are a failure.
    fn verdict(&self, counters: &[Entry]) -> Result<(), Error> {
        let (failed, wrong) = (service(counters, "failed"), service(counters, "mismatches"));
        if wrong > 0 {
            return Err(Error::Service(format!("{wrong} connections did not carry the pattern")));
        }
        match self.role {
            Role::Connect { connections, .. } if failed > 0 => {
                Err(Error::Service(format!("{failed} of {connections} connections failed")))
            }
            _ => Ok(()),
        }
    }
}

fn lock(endpoint: &Mutex<Endpoint>) -> std::sync::MutexGuard<'_, Endpoint> {
    endpoint.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A counter of the service.
fn service(counters: &[Entry], name: &str) -> u64 {
    let found = counters.iter().find(|entry| entry.group == "service" && entry.name == name);
    found.map_or(0, |entry| entry.value)
}

fn report_json(report: &Report) -> String {
    let Report { local, remote, read, written, nanos, end, mismatch } = report;
    let seconds = *nanos as f64 / 1e9;
    let line = json!({"connection": {
        "local": local.to_string(), "remote": remote.to_string(), "read": read, "written": written,
        "seconds": seconds, "end": end.to_string(), "mismatch": mismatch,
    }});
    format!("{line}\n")
}

fn report_text(report: &Report) -> String {
    let Report { remote, read, nanos, end, mismatch, .. } = report;
    let seconds = *nanos as f64 / 1e9;
    let wrong = mismatch.map(|at| format!(", not the pattern from byte {at} on"));
    let (read, wrong) = (thousands(*read), wrong.unwrap_or_default());
    format!("{remote}: {read} bytes in {seconds:.3} s, {end}{wrong}\n")
}

/// How it goes, each second.
struct Meter {
    since: Instant,
    before: (Instant, u64, u64),
}

impl Meter {
    fn new() -> Self {
        let now = Instant::now();
        Meter { since: now, before: (now, 0, 0) }
    }

    /// A line, if it is time for one.
    fn line(&mut self, counters: &[Entry]) -> Option<String> {
        let now = Instant::now();
        let (then, read_before, written_before) = self.before;
        let passed = now.duration_since(then);
        if passed < TELL_EVERY {
            return None;
        }
        let of = |name| service(counters, name);
        let (read, written) = (of("bytes_read"), of("bytes_written"));
        self.before = (now, read, written);
        let rate = |bytes: u64| (bytes as f64 * 8.0 / passed.as_secs_f64()).round();
        let line = json!({
            "seconds": now.duration_since(self.since).as_secs_f64(),
            "connections": of("connections"), "begun": of("begun"), "ended": of("ended"),
            "read": read, "written": written,
            "read_bits_per_second": rate(read - read_before),
            "written_bits_per_second": rate(written - written_before),
        });
        Some(format!("{line}\n"))
    }
}

/// What the control socket answers.
struct Answers {
    endpoint: Arc<Mutex<Endpoint>>,
    config: nic::config::Config,
}

impl Handler for Answers {
    fn stats(&self) -> Value {
        let endpoint = lock(&self.endpoint);
        json!({
            "host": endpoint.name(), "port": endpoint.port(),
            "counters": counters_json(endpoint.counters()),
        })
    }

    fn get(&self, key: Option<&str>) -> Result<Value, String> {
        let Some(of_wan) = key.and_then(|key| key.strip_prefix(WAN)) else {
            return settings_json(&self.config, key);
        };
        let endpoint = lock(&self.endpoint);
        let wan = endpoint.wan().ok_or("there is no WAN: it begins with --degen FILE")?;
        let entries = degen::entries(&wan.snapshot().configs, Some(of_wan));
        let entries = entries.map_err(|error| error.under(WAN).to_string())?;
        let entry = |(key, value)| json!({"key": format!("{WAN}{key}"), "value": value});
        Ok(entries.into_iter().map(entry).collect())
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        let Some(of_wan) = key.strip_prefix(WAN) else {
            self.config.get(key).map_err(|error| error.to_string())?;
            return Err(format!(
                "`{key}` cannot change while an endpoint runs: start it with --set {key}=VALUE"
            ));
        };
        let endpoint = lock(&self.endpoint);
        let wan = endpoint.wan().ok_or("there is no WAN: it begins with --degen FILE")?;
        wan.set(of_wan, value).map_err(|error| error.under(WAN).to_string())
    }
}
