//! `wharf handoff`: connections of programs move to the NIC, or back.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use nic::control::Client;

use crate::error::Error;
use crate::print;

/// Move connections of programs to wharf's TCP, or back to the kernel
#[derive(Debug, Args)]
#[command(
    after_help = "Example: all connections go back to the kernel:\n  wharf handoff --to os --all\n\n\
                        Example: one of them, as wharf connections shows it:\n  \
                        wharf handoff --to os 192.0.2.1:443 198.51.100.7:50123"
)]
pub(crate) struct HandoffArgs {
    /// Where to: nic (all connections of the programs that wharf run has started), or os
    #[arg(long, value_enum, value_name = "SIDE")]
    to: Side,
    /// All connections
    #[arg(long, conflicts_with_all = ["local", "remote"], required_unless_present = "local")]
    all: bool,
    /// This end of the connection
    #[arg(requires = "remote")]
    local: Option<SocketAddr>,
    /// The peer's end
    remote: Option<SocketAddr>,
    /// Which wharf, if several run here: its host interface
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Side {
    /// wharf's TCP
    Nic,
    /// The kernel
    Os,
}

pub(crate) fn hand_off(args: &HandoffArgs) -> Result<(), Error> {
    let to = match args.to {
        Side::Nic => "nic",
        Side::Os => "os",
    };
    let ends = args.local.zip(args.remote).map(|(l, r)| (l.to_string(), r.to_string()));
    let one = ends.as_ref().map(|(local, remote)| (&local[..], &remote[..]));
    let count = Client::connect(args.host.as_deref())?.hand_off(to, one)?;
    let plural = if count == 1 { "" } else { "s" };
    print(match args.to {
        Side::Os => format!("{count} connection{plural} on the way back to the kernel\n"),
        Side::Nic => format!("{count} program{plural} asked\n"),
    })
}
