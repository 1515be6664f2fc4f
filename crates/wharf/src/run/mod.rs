//! `wharf run`: a program whose TCP connections the NIC may run.

pub(crate) mod pair;
mod program;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};
use handoff::policy::{Policy, PolicyError};

use program::Purpose;

use crate::error::Error;
use crate::loaded::{ADDRESS_VARIABLE, POLICY_VARIABLE, addresses, before_others, library};

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
                        Example: a script that starts servers in C and in Go:\n  \
                        wharf run --bypass both -- ./servers.sh\n\n\
                        Example: a proxy between connections, of which the NIC moves what it can:\n  \
                        wharf run --splice -- haproxy -db -f proxy.cfg\n\n\
                        Example: a program that speaks verbs, with no RDMA hardware and no kernel module:\n  \
                        wharf run --rdma -- ib_write_bw -R 10.0.0.2")]
pub(crate) struct RunArgs {
    /// Only these wharfs, by their host interfaces. Without it all that run here, also those that are started later; each
    /// connection goes to the one that its route leads through
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    nic: Vec<String>,
    /// Which connections move, and when: none, by_hand, learned, at_accept, after=64KB, after=2s; and of which ports:
    /// ports=80,443. Without it that of wharf (handoff.policy), which may change
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// How the program is reached: by a library that is loaded into it, or by pairs of Unix sockets in place of its
    /// connections, as static programs and those in Go need it, or by both, each where it reaches. Without it wharf looks at
    /// the program
    #[arg(long, value_enum, value_name = "WAY")]
    bypass: Option<Bypass>,
    /// What the program moves by splice(2) and a pipe from one connection to another, again and again, the NIC goes on to move
    /// by itself. For a proxy that does nothing else with a connection it has begun to do so with, such as haproxy in mode
    /// tcp: of most of these bytes it hears nothing, and does not count them
    #[arg(long)]
    splice: bool,
    /// Give the program verbs (RDMA over TCP) instead: by the device of `wharf rdma`, or one of its own where none
    /// serves
    #[arg(long, conflicts_with_all = ["nic", "policy", "bypass", "splice"])]
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
    /// A library is loaded where one can be: into the program, and into what it starts; what makes its calls past that
    /// gets pairs
    Both,
}

/// Whether `--splice` was said.
const SPLICE_VARIABLE: &str = "WHARF_HANDOFF_SPLICE";
/// Whether a supervisor answers what comes past the library.
const SUPERVISOR_VARIABLE: &str = "WHARF_HANDOFF_SUPERVISOR";

pub(crate) fn run(args: &RunArgs) -> Result<(), Error> {
    if args.rdma { with_verbs(args) } else { with_handoff(args) }
}

fn with_verbs(args: &RunArgs) -> Result<(), Error> {
    let library = library::rdma_library()?;
    let [program, arguments @ ..] = &args.command[..] else { return Ok(()) };
    let path = program::find(program)?;
    program::check(&path, Purpose::Verbs)?;
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
    let bypass = program::check(&path, Purpose::Handoff(args.bypass))?;
    let mut environment = vec![(ADDRESS_VARIABLE, OsString::from(addresses))];
    environment.extend(policy.map(|policy| (POLICY_VARIABLE, policy.into())));
    if args.splice {
        environment.push((SPLICE_VARIABLE, "1".into()));
    }
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments);
    if bypass != Bypass::Pair {
        command.env("LD_PRELOAD", before_others(library.clone())).envs(environment.clone());
    }
    if bypass == Bypass::Both {
        command.env(SUPERVISOR_VARIABLE, "1");
    }
    if bypass != Bypass::Preload {
        // The supervisor is a program whose connections the NIC runs.
        environment.push(("LD_PRELOAD", library.into_os_string()));
        pair::begin(&environment)?;
    }
    become_it(command, &path)
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
