//! `wharf handoff`: connections of programs move to the NIC, or back.

use std::net::SocketAddr;

use ::handoff::machine::Where;
use clap::{ArgGroup, Args, ValueEnum};
use nic::Nic;
use nic::control::Client;
use nic::handoff::Selection;
use serde_json::{Value, json};

use crate::connections::those_that_answer;
use crate::error::Error;
use crate::outcome::Asked;
use crate::print;

/// Move connections of programs to wharf's TCP, or back to the kernel
///
/// To the kernel they go at once. To the NIC a connection goes when its program, which is asked to hand it over, next
/// reads, writes or waits: after a second, or sooner if all have moved, the command says what has become of each.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("which").required(true).multiple(true),
    after_help = "Example: all connections go back to the kernel:\n  wharf handoff --to os --all\n\n\
                  Example: one of them, as wharf connections shows it:\n  \
                  wharf handoff --to nic 192.0.2.1:443 198.51.100.7:50123\n\n\
                  Example: those of one process:\n  wharf handoff --to nic --pid 4242"
)]
pub(crate) struct HandoffArgs {
    /// Where to
    #[arg(long, value_enum, value_name = "SIDE")]
    to: Side,
    /// All connections of the programs that wharf run has started
    #[arg(long, group = "which", conflicts_with_all = ["pid", "local"])]
    all: bool,
    /// All connections of this process, or the one that is named, if it has that
    #[arg(long, group = "which", value_name = "PID")]
    pid: Option<u32>,
    /// This end of the connection
    #[arg(group = "which", requires = "remote")]
    local: Option<SocketAddr>,
    /// The peer's end
    remote: Option<SocketAddr>,
    /// Only those of this wharf, if several run here: its host interface
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Do not wait to see what becomes of them
    #[arg(long)]
    no_wait: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Side {
    /// wharf's TCP
    Nic,
    /// The kernel
    Os,
}

const NO_CONNECTION: &str = "there is no such connection: see wharf connections";

/// What a wharf that runs does, and what it says about that.
pub(crate) fn hand_off(nic: &Nic, to_nic: bool, which: Selection) -> Result<Value, String> {
    let place = which.path.map(|path| nic.place_of(&path).ok_or(NO_CONNECTION)).transpose()?;
    let already = match to_nic {
        true => matches!(place, Some(Where::Nic | Where::Offered | Where::HandingOff)),
        false => matches!(place, Some(Where::Os | Where::Restoring)),
    };
    if already {
        return Ok(json!({"count": 0, "already": true}));
    }
    let count = if to_nic { nic.hand_to_nic(which) } else { nic.hand_to_os(which) };
    match (count, which) {
        (0, Selection { pid: Some(pid), path: None }) if to_nic => Err(format!(
            "process {pid} is none that wharf run has started, or has had no connection yet"
        )),
        (0, Selection { path: Some(_), .. }) if to_nic => {
            Err("it is no connection of a program that wharf run has started".to_owned())
        }
        // It has ended, or is another process's.
        (0, Selection { path: Some(_), .. }) => Err(NO_CONNECTION.to_owned()),
        _ => Ok(json!({"count": count, "already": false})),
    }
}

pub(crate) fn run(args: &HandoffArgs) -> Result<(), Error> {
    let to = match args.to {
        Side::Nic => "nic",
        Side::Os => "os",
    };
    let one = args.local.zip(args.remote);
    let path = one.map(|(local, remote)| [local, remote].map(|end| Some(end.to_string())));
    // Before they are asked: those that are at a NIC already do not move.
    let asked = match args.to {
        Side::Nic if !args.no_wait => Some(Asked::look(args.pid, path)?),
        _ => None,
    };
    let mut clients = Client::connect_each(args.host.clone().as_slice())?;
    let mut answers = Vec::new();
    for client in &mut clients {
        let answer = client.hand_off(to, args.pid, one);
        answers.push(answer.map(|answer| (client.host().to_owned(), answer)));
    }
    let answers = those_that_answer(answers)?;
    let moves = |answer: &Value| args.to == Side::Os && answer["count"].as_u64() > Some(0);
    let there = answers.iter().find(|(_, answer)| answer["already"] == true);
    // Another wharf may know it as one that the kernel has had.
    if let Some((_, there)) = there.filter(|_| !answers.iter().any(|(_, answer)| moves(answer))) {
        return print(words(args.to, true, there));
    }
    let line = |(host, answer): &(String, Value)| {
        let words = words(args.to, one.is_some(), answer);
        if answers.len() > 1 { format!("{host}: {words}") } else { words }
    };
    print(answers.iter().map(line).collect::<String>())?;
    asked.map_or(Ok(()), |asked| print(asked.outcome()?))
}

fn words(to: Side, is_one: bool, answer: &Value) -> String {
    let count = answer["count"].as_u64().unwrap_or(0);
    let s = if count == 1 { "" } else { "s" };
    match (to, answer["already"] == true) {
        (Side::Nic, true) => "it is on the NIC, or on the way there\n".to_owned(),
        (Side::Os, true) => "it is at the kernel, or on the way there\n".to_owned(),
        (Side::Os, false) => format!("{count} connection{s} on the way to the kernel\n"),
        (Side::Nic, false) => {
            let what = if is_one { "it moves" } else { "they move" };
            format!("{count} program{s} asked: {what} with the next call, or wait\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_words() {
        let of = |count: u64, already: bool| json!({"count": count, "already": already});
        assert_eq!(
            words(Side::Os, false, &of(3, false)),
            "3 connections on the way to the kernel\n"
        );
        assert_eq!(words(Side::Os, true, &of(1, false)), "1 connection on the way to the kernel\n");
        assert!(words(Side::Nic, false, &of(2, false)).starts_with("2 programs asked: they move "));
        assert!(words(Side::Nic, true, &of(0, true)).contains("on the NIC"));
        assert!(words(Side::Os, true, &json!(null)).starts_with("0 connections"));
    }
}
