//! `wharf run`: a program whose TCP connections the NIC may run.

mod elf;
pub(crate) mod library;
pub(crate) mod pair;
mod program;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use handoff::policy::{Policy, PolicyError};
use handoff::session::{NICS_MAX, VERSION};
use nic::control::{self, Client};

use crate::error::Error;

/// Run a program whose TCP connections wharf may take over
///
/// The kernel listens, accepts and connects as ever. Connections that the policy picks move to wharf's TCP while they
/// live, and back; the program notices nothing. It must be in the network namespace of a `wharf up`.
#[derive(Debug, Args)]
#[command(after_help = "Example: a web server whose connections move after 64 KB:\n  \
                        wharf run -- nginx -g 'daemon off;'\n\n\
                        Example: all connections of port 6379 at once:\n  \
                        wharf run --policy 'at_accept ports=6379' -- redis-server\n\n\
                        Example: a server in Go, which is seen by itself:\n  \
                        wharf run -- caddy run\n\n\
                        Example: connections of two NICs, and of no others:\n  \
                        wharf run --nic nic0,nic1 -- nginx -g 'daemon off;'\n\n\
                        Example: a program that uses io_uring:\n  \
                        wharf run --bypass pair -- server\n\n\
                        Example: a program that speaks verbs, with no RDMA hardware and no kernel module:\n  \
                        wharf run --rdma -- ib_write_bw -R 10.0.0.2")]
pub(crate) struct RunArgs {
    /// Only these wharfs, by their host interfaces. Without it all that run here, also those that are started later; each
    /// connection goes to the one that its route leads through
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    nic: Vec<String>,
    /// Which connections move, and when: none, by_hand, at_accept, after=64KB, after=2s; and of which ports:
    /// ports=80,443. Without it that of wharf (handoff.policy), which may change
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// How the program is reached: by a library that is loaded into it, or by pairs of Unix sockets in place of its
    /// connections, as static programs and those in Go need it. Without it wharf looks at the program
    #[arg(long, value_enum, value_name = "WAY")]
    bypass: Option<Bypass>,
    /// Give the program verbs (RDMA over TCP) instead: by the device of `wharf rdma`, or one of its own where none
    /// serves
    #[arg(long, conflicts_with_all = ["nic", "policy", "bypass"])]
    rdma: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How a program is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Bypass {
    /// A library is loaded into it
    Preload,
    /// It gets pairs of Unix sockets in place of its connections
    Pair,
}

/// The library of handoff.
const LIBRARY: &str = "libwharf.so";
/// That of verbs.
const RDMA_LIBRARY: &str = "libwharf_rdma.so";
/// A policy, where `--policy` does not say one.
const POLICY_VARIABLE: &str = "WHARF_HANDOFF_POLICY";

pub(crate) fn run(args: &RunArgs) -> Result<(), Error> {
    if args.rdma { with_verbs(args) } else { with_handoff(args) }
}

fn with_verbs(args: &RunArgs) -> Result<(), Error> {
    let library = library::rdma_library()?;
    let [program, arguments @ ..] = &args.command[..] else { return Ok(()) };
    let path = program::find(program)?;
    program::check(&path, Some(Bypass::Preload))?;
    let device = crate::rdma::device_for_this()?;
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments);
    command.env("LD_PRELOAD", before_others(library)).env("WHARF_RDMA", device);
    become_it(command, &path)
}

fn with_handoff(args: &RunArgs) -> Result<(), Error> {
    let policy = policy(args)?;
    let addresses = addresses(&args.nic)?;
    let library = library::handoff_library()?;
    let [program, arguments @ ..] = &args.command[..] else { return Ok(()) };
    let path = program::find(program)?;
    let bypass = program::check(&path, args.bypass)?;
    let mut environment = vec![("WHARF_HANDOFF", OsString::from(addresses))];
    environment.extend(policy.map(|policy| (POLICY_VARIABLE, policy.into())));
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments);
    match bypass {
        Bypass::Preload => {
            command.env("LD_PRELOAD", before_others(library)).envs(environment);
        }
        Bypass::Pair => {
            // The supervisor is a program whose connections the NIC runs.
            environment.push(("LD_PRELOAD", library.into_os_string()));
            pair::begin(&environment)?;
        }
    }
    become_it(command, &path)
}

/// Where the wharfs of these host interfaces are, or all if none is named, as the library is told.
fn addresses(nics: &[String]) -> Result<String, Error> {
    let clients = Client::connect_each(nics);
    let clients = clients.map_err(|error| Error::Usage(error.to_string()))?;
    let several = nics.is_empty() && clients.len() > 1;
    let mut all = Vec::new();
    for mut client in clients {
        let stats = client.stats()?;
        let host = client.host();
        match stats["handoff"].as_str() {
            Some(_) if stats["handoff_version"] != VERSION => {
                return Err(Error::Usage(format!(
                    "the wharf of {host} that runs is of another build than this one: restart it"
                )));
            }
            Some(address) => all.push(address.to_owned()),
            None if several => {}
            None => {
                return Err(Error::Usage(format!(
                    "the wharf of {host} takes no connections over: it needs handoff.connections",
                )));
            }
        }
    }
    if all.is_empty() {
        return Err(Error::Usage(
            "no wharf here takes connections over: one needs handoff.connections".to_owned(),
        ));
    }
    if all.len() > NICS_MAX {
        return Err(Error::Usage(format!(
            "a program has connections with {NICS_MAX} wharfs at most: choose some with --nic"
        )));
    }
    if nics.is_empty() && all.iter().any(|address| address.starts_with('/')) {
        // Those that are started later, too.
        all.retain(|address| !address.starts_with('/'));
        all.push(control::all_handoffs().map_err(Error::Io)?);
    }
    Ok(all.join(" "))
}

/// `LD_PRELOAD` with this library in front of those that are there already.
fn before_others(library: PathBuf) -> OsString {
    let before = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty());
    let mut preload = library.into_os_string();
    if let Some(before) = before {
        preload.push(":");
        preload.push(before);
    }
    preload
}

fn become_it(mut command: Command, path: &Path) -> Result<(), Error> {
    let error = command.exec();
    Err(Error::Usage(format!("cannot run {}: {error}", path.display())))
}

/// The policy that the program has of its own, if any.
fn policy(args: &RunArgs) -> Result<Option<String>, Error> {
    let from_outside =
        || env::var_os(POLICY_VARIABLE).map(|text| text.to_string_lossy().into_owned());
    let (name, text) = match &args.policy {
        Some(text) => ("--policy: ", Some(text.clone())),
        None => ("WHARF_HANDOFF_POLICY: ", from_outside()),
    };
    if let Some(text) = &text {
        text.parse::<Policy>()
            .map_err(|error: PolicyError| Error::Usage(format!("{name}{error}")))?;
    }
    Ok(text)
}
