//! `wharf rdma`: the RDMA device `wharf0`.

use std::env;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, Subcommand};
use device::server::{ask_stats, connect, default_address};
use device::{Device, ServeError};
use serde_json::Value;
use sys::poll::Signals;

use crate::args::seconds_within;
use crate::error::Error;
use crate::loaded::{again_on_nic, is_on_nic};
use crate::print;
use crate::service_manager::tell_up;
use crate::table::{Align, Table, thousands};

/// Serve an RDMA device to programs that speak verbs: iWARP over TCP, the kernel's or that of `wharf up`
///
/// Without a command it serves the device wharf0 to programs of the same user that `wharf run --rdma` starts in the same
/// network namespace, until it is ended. It needs no RDMA hardware, no kernel module and no root. Where a `wharf up` runs,
/// connections are handed off to it once they are set up, and go back to the kernel when it ends.
#[derive(Debug, Args)]
#[command(after_help = "Example: a device, and a program that uses it:\n  \
                        wharf rdma &\n  wharf run --rdma -- ib_write_bw -R\n\n\
                        Example: what its connections have done:\n  wharf rdma stats --json")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RdmaArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// Connect without CRCs where the peer wants none: faster, and errors that TCP's checksum does not see go unnoticed
    #[arg(long)]
    no_crc: bool,
    /// Ask for connections by this revision of MPA: 1 is RFC 5044, 2 is RFC 6581
    #[arg(long, value_name = "1|2", default_value = "2", value_parser = clap::value_parser!(u8).range(1..=2))]
    mpa_revision: u8,
    /// Whose TCP carries the connections: that of these wharfs, by their host interfaces. Without it of all that run here,
    /// and the kernel's where none runs
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "no_nic")]
    nic: Vec<String>,
    /// Leave the connections to the kernel's TCP
    #[arg(long)]
    no_nic: bool,
    /// How long a peer may answer nothing before its connection ends, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = peer_timeout)]
    peer_timeout: Duration,
    /// End with this process, once no other uses the device
    #[arg(long, hide = true, value_name = "PID")]
    until: Option<u32>,
    #[command(subcommand)]
    command: Option<RdmaCommand>,
}

#[derive(Debug, Args)]
struct AddressArgs {
    /// Where it serves: a path, or @ and an abstract name. WHARF_RDMA, or @wharf-rdma-UID, if not given
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
}

#[derive(Debug, Subcommand)]
enum RdmaCommand {
    /// List the device and the connections of each process that uses it
    #[command(after_help = "Example:\n  wharf rdma list")]
    List(ShowArgs),
    /// Show the objects and counters of each process that uses the device, and the sums since it began
    #[command(after_help = "Example:\n  wharf rdma stats --json")]
    Stats(ShowArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Names the device's address for programs.
const VARIABLE: &str = "WHARF_RDMA";

impl AddressArgs {
    fn get(&self) -> String {
        self.address.clone().or_else(named).unwrap_or_else(default_address)
    }
}

fn peer_timeout(text: &str) -> Result<Duration, String> {
    seconds_within(text, 1.0..=3600.0)
}

/// The address that the environment names.
fn named() -> Option<String> {
    env::var(VARIABLE).ok().filter(|given| !given.is_empty())
}

pub(crate) fn run(args: &RdmaArgs) -> Result<(), Error> {
    match &args.command {
        None => serve(args),
        Some(RdmaCommand::List(show)) => list(show),
        Some(RdmaCommand::Stats(show)) => stats(show),
    }
}

fn serve(args: &RdmaArgs) -> Result<(), Error> {
    if !args.no_nic && !is_on_nic() {
        let error = again_on_nic(&args.nic);
        if !args.nic.is_empty() {
            return Err(error);
        }
        tracing::info!("connections stay with the kernel's TCP: {error}");
    }
    // The first process of a container is ended by no signal that it does not wait for (pid_namespaces(7)).
    let signals = Signals::block().map_err(Error::Io)?;
    let address = args.address.get();
    let device = Device::bind(&address)?
        .with(args.mpa_revision, !args.no_crc)
        .with_peer_timeout(args.peer_timeout);
    let owner = args.until.map(sys::process::pidfd_open).transpose().map_err(Error::Io)?;
    // Each connection is a descriptor.
    if let Err(error) = sys::process::allow_most_open_files() {
        tracing::warn!("no more files than usual can be open: {error}");
    }
    print(format!("{} serves at {address}\n", device::NAME))?;
    // That of one program is no service, whatever the program is.
    if owner.is_none() {
        tell_up();
    }
    Ok(device.run(owner, &signals)?)
}

/// The address of the device that serves this process, which is started if there is none: it ends with the process, and
/// those that this has started.
pub(crate) fn device_for_this() -> Result<String, Error> {
    let named = named();
    let address = named.clone().unwrap_or_else(default_address);
    match connect(&address) {
        Ok(_) => return Ok(address),
        Err(ServeError::None(_)) => {}
        // Anybody can take a name, and in user namespaces there are several users with one id.
        Err(ServeError::Stranger { .. }) if named.is_none() => {}
        Err(error) => return Err(error.into()),
    }
    let id = std::process::id();
    let own = format!("{}-{id}", default_address());
    let program = env::current_exe().map_err(Error::Io)?;
    let mut command = Command::new(program);
    command.args(["rdma", "--address", &own, "--until", &id.to_string()]);
    // It is not the terminal's: what ends the program there ends the device after it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(Error::Io)?;
    let mut byte = [0];
    let said = child.stdout.take().map(|mut stdout| stdout.read(&mut byte));
    if !matches!(said, Some(Ok(1))) {
        return Err(Error::Service("the device has not started; `wharf rdma` says why".into()));
    }
    Ok(own)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn processes(stats: &Value) -> &[Value] {
    stats["processes"].as_array().map_or(&[], Vec::as_slice)
}

fn list(show: &ShowArgs) -> Result<(), Error> {
    let stats = ask_stats(&show.address.get())?;
    if show.json {
        return print(format!("{stats}\n"));
    }
    let mut table = Table::new(&[Align::Right, Align::Right, Align::Left, Align::Left]);
    table.line(device::NAME);
    table.row(["PID", "QP", "LOCAL", "REMOTE"]);
    for process in processes(&stats) {
        let connections = process["connections"].as_array().map_or(&[][..], Vec::as_slice);
        if connections.is_empty() {
            table.row([&text(&process["pid"]), "-", "-", "-"]);
        }
        for of in connections {
            let row = [&process["pid"], &of["qp"], &of["local"], &of["remote"]];
            table.row(row.map(text));
        }
    }
    print(table.to_string())
}

fn stats(show: &ShowArgs) -> Result<(), Error> {
    let stats = ask_stats(&show.address.get())?;
    if show.json {
        return print(format!("{stats}\n"));
    }
    let mut table = Table::new(&[Align::Left, Align::Right]);
    for process in processes(&stats) {
        table.line(format!("process {}", process["pid"]));
        for group in ["objects", "counters"] {
            add_values(&mut table, &process[group]);
        }
    }
    table.line("all, and those that have ended");
    add_values(&mut table, &stats["total"]);
    print(table.to_string())
}

/// A row for each value that is not zero.
fn add_values(table: &mut Table, values: &Value) {
    let values = values.as_object().into_iter().flatten();
    values.filter(|(_, value)| value.as_u64() != Some(0)).for_each(|(name, value)| {
        table.row([format!("  {name}"), thousands(value.as_u64().unwrap_or(0))]);
    });
}
