//! `wharf connections`: the connections of programs that `wharf run` has started.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use handoff::machine::Where;
use handoff::session::status::Why;
use handoff::{Named, Refusal, RestoreReason};
use nic::control::{Client, ClientError};
use nic::handoff::Listed;
use serde_json::{Value, json};

use crate::error::Error;
use crate::print;
use crate::table::{Align, Table};
use crate::text::escaped_json;
use crate::units::{bytes, time};

const EXAMPLES: &str = "Example: those that the kernel has, and why:\n  wharf connections --where os\n\n\
     Example: one object a line, those of one program:\n  \
     wharf connections --json --pid 4242\n\n\
     `wharf connections --help` lists the reasons.";

/// The examples, and each reason that the column WHY may have.
fn examples_and_reasons() -> String {
    let (examples, _) = EXAMPLES.rsplit_once("\n\n").unwrap_or((EXAMPLES, ""));
    let refused = Refusal::ALL.iter().map(|why| (why.name(), why.description()));
    let restored = RestoreReason::ALL.iter().map(|why| (why.name(), why.description()));
    format!(
        "{examples}\n\n\
         Why a connection was refused, and stays with the kernel (refused: ...):\n{}\n\
         Why a connection has come back to the kernel (restored: ...):\n{}",
        lines(refused),
        lines(restored)
    )
}

/// A line for each name, with its description.
fn lines(all: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    all.map(|(name, description)| format!("  {name}:{description}\n")).collect()
}

/// Show connections of programs that `wharf run` has started: those on the NIC, and why others are not
///
/// A connection at the kernel was refused, has come back, or was not offered, as when its policy has it wait. The last are shown
/// to users that may trace the program (ptrace(2)). `ss -ti` shows more of them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = examples_and_reasons())]
pub(crate) struct ConnectionsArgs {
    /// Only those that are there
    #[arg(long = "where", value_enum, value_name = "SIDE")]
    place: Option<Place>,
    /// Only those of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Only those of this wharf, if several run here: its host interface. Those that were not offered are of none
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// One JSON object a line for each connection
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Place {
    /// At the kernel
    Os,
    /// On the NIC
    Nic,
    /// On their way
    Moving,
}

pub(crate) const OS: &str = "os";
pub(crate) const NIC: &str = "nic";
pub(crate) const MOVING: &str = "moving";

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Os => OS,
            Place::Nic => NIC,
            Place::Moving => MOVING,
        }
    }
}

/// A connection, as `wharf up` tells it.
pub(crate) fn object(listed: &Listed) -> Value {
    let Listed { path, pid, uid, cid, place, why, figures, .. } = listed;
    let place = match place {
        Where::Os => OS,
        Where::Nic => NIC,
        _ => MOVING,
    };
    let (refused, restored) = match why {
        Some(Why::Refused(reason)) => (Some(reason.name()), None),
        Some(Why::Restored(reason)) => (None, Some(reason.name())),
        None => (None, None),
    };
    json!({
        "local": path.local.to_string(), "remote": path.remote.to_string(), "where": place,
        "nic": null,
        "pid": pid, "uid": uid, "cid": cid,
        "state": figures.map(|figures| figures.state.to_string()),
        "sent": listed.sent(), "received": listed.received(),
        "rtt": figures.map(|figures| figures.rtt).filter(|rtt| *rtt > 0),
        "cwnd": figures.map(|figures| figures.cwnd),
        "refused": refused, "restored": restored,
    })
}

pub(crate) fn run(args: &ConnectionsArgs) -> Result<(), Error> {
    let (mut all, untold) = of_each(args.host.as_deref())?;
    if untold > 0 {
        tracing::warn!(
            "connections of {untold} processes that were not offered are not shown: that takes the right to trace them, which \
             root has"
        );
    }
    let is_asked_for = |one: &Value| {
        args.place.is_none_or(|place| one["where"] == place.name())
            && args.pid.is_none_or(|pid| one["pid"] == pid)
    };
    all.retain(is_asked_for);
    all.sort_by_cached_key(ends);
    print(match args.json {
        true => all.iter().map(|one| format!("{}\n", escaped_json(&one.to_string()))).collect(),
        false => table(&all),
    })
}

/// Those of this wharf, or of all that run here, each with the host interface of its wharf, and then those that were offered to
/// none, too; and of how many processes the latter are not known.
pub(crate) fn of_each(host: Option<&str>) -> Result<(Vec<Value>, usize), Error> {
    let mut clients = Client::connect_each(host.map(str::to_owned).as_slice())?;
    // Before wharfs are asked: what moves in the meantime is in an answer.
    let (at_kernel, untold) = match host {
        Some(_) => (Vec::new(), 0),
        None => of_programs(&mut clients)?,
    };
    let answers = clients.iter_mut().map(|client| {
        let mut all = client.connections()?;
        for one in all.iter_mut().filter_map(Value::as_object_mut) {
            one.insert("nic".to_owned(), client.host().into());
        }
        Ok(all)
    });
    let mut all: Vec<Value> = those_that_answer(answers.collect())?.into_iter().flatten().collect();
    leave_out_refused_elsewhere(&mut all);
    let known: HashSet<Names> = all.iter().map(names).collect();
    all.extend(at_kernel.into_iter().filter(|one| !known.contains(&names(one))));
    Ok((all, untold))
}

/// The connections that the kernel has of programs that may offer them, and the number of processes that do not show theirs.
fn of_programs(clients: &mut [Client]) -> Result<(Vec<Value>, usize), Error> {
    let mut programs = BTreeMap::new();
    for client in clients {
        programs.extend(client.programs()?);
    }
    let (all, untold) = nic::handoff::of_processes(&programs);
    Ok((all.iter().map(object).collect(), untold))
}

fn is_not_offered(one: &Value) -> bool {
    one["where"] == OS && one["refused"].is_null() && one["restored"].is_null()
}

/// A connection that one wharf has, and that another one has refused or given back before, is shown once.
fn leave_out_refused_elsewhere(all: &mut Vec<Value>) {
    let away = all.iter().filter(|one| one["where"] != OS);
    let away: HashSet<Names> = away.map(names).collect();
    all.retain(|one| one["where"] != OS || !away.contains(&names(one)));
}

/// Both ends.
pub(crate) type Names = [Option<String>; 2];

pub(crate) fn names(one: &Value) -> Names {
    ["local", "remote"].map(|end| one[end].as_str().map(str::to_owned))
}

/// What wharfs have answered. Others that run here may be such that refuse, as long as one does not.
pub(crate) fn those_that_answer<T>(
    answers: Vec<Result<T, ClientError>>,
) -> Result<Vec<T>, ClientError> {
    let (mut all, mut refused) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(answer) => all.push(answer),
            Err(error @ ClientError::Refused(_)) => refused = refused.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// By which connections are sorted: what is no address comes first.
pub(crate) fn ends(one: &Value) -> [Option<SocketAddr>; 2] {
    ["local", "remote"].map(|end| one[end].as_str().and_then(|end| end.parse().ok()))
}

fn table(all: &[Value]) -> String {
    use Align::{Left, Right};
    let mut table =
        Table::new(&[Left, Left, Left, Left, Right, Right, Left, Right, Right, Right, Right, Left]);
    table.row([
        "LOCAL", "REMOTE", "WHERE", "NIC", "PID", "UID", "STATE", "SENT", "RECEIVED", "RTT",
        "CWND", "WHY",
    ]);
    for one in all {
        let text = |name: &str| match &one[name] {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let number = |name: &str, shown: fn(u64) -> String| {
            one[name].as_u64().map_or_else(|| "-".to_owned(), shown)
        };
        let why = ["refused", "restored"].into_iter().find_map(|how| {
            let reason = one[how].as_str()?;
            Some(format!("{how}: {reason}"))
        });
        let not_offered =
            || if is_not_offered(one) { "not offered".to_owned() } else { String::new() };
        table.row([
            text("local"),
            text("remote"),
            text("where"),
            text("nic"),
            text("pid"),
            text("uid"),
            text("state"),
            number("sent", bytes),
            number("received", bytes),
            number("rtt", time),
            number("cwnd", bytes),
            why.unwrap_or_else(not_offered),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_units_and_reasons() {
        let nic = json!({
            "local": "10.0.0.1:80", "remote": "10.0.0.2:4000", "where": "nic", "nic": "host0", "pid": 7, "uid": 33,
            "cid": 3, "state": "ESTABLISHED", "sent": 1_234_567, "received": 999, "rtt": 12_345_678,
            "cwnd": 14_480, "refused": null, "restored": null,
        });
        let os = json!({
            "local": "10.0.0.1:80", "remote": "10.0.0.2:5", "where": "os", "nic": "h1", "pid": 7, "uid": 33,
            "cid": null, "state": "CLOSE-WAIT", "sent": null, "received": null, "rtt": null,
            "cwnd": 5_360, "refused": "quota", "restored": null,
        });
        assert_eq!(
            table(&[nic, os]),
            "LOCAL        REMOTE         WHERE  NIC    PID  UID  STATE          SENT  RECEIVED      RTT     CWND  WHY\n\
             10.0.0.1:80  10.0.0.2:4000  nic    host0    7   33  ESTABLISHED  1.2 MB     999 B  12.3 ms  14.4 KB\n\
             10.0.0.1:80  10.0.0.2:5     os     h1       7   33  CLOSE-WAIT        -         -        -   5.3 KB  refused: quota\n"
        );
    }

    #[test]
    fn an_answer_of_another_shape_is_shown_all_the_same() {
        let odd = json!({"local": 3, "sent": "much", "where": {"a": "\u{1b}[2J"}});
        let text = table(&[odd.clone(), json!(null)]);
        assert!(text.lines().count() == 3 && !text.contains('\u{1b}'), "{text}");
        assert_eq!(ends(&odd), [None, None]);
    }

    #[test]
    fn a_connection_that_another_wharf_has_refused_is_shown_once() {
        let one = |remote: &str, place: &str, nic: &str| json!({"local": "10.0.0.1:80", "remote": remote, "where": place, "nic": nic});
        let refused = one("10.0.0.2:1", OS, "nic0");
        let (has, other) = (one("10.0.0.2:1", NIC, "nic1"), one("10.0.0.2:2", OS, "nic0"));
        let mut all = vec![refused, has.clone(), other.clone()];
        leave_out_refused_elsewhere(&mut all);
        assert_eq!(all, [has, other]);
    }

    #[test]
    fn connections_are_sorted_by_their_numbers() {
        let one = |local: &str| json!({"local": local, "remote": "10.0.0.2:1"});
        let mut all = ["10.0.0.10:80", "10.0.0.9:443", "10.0.0.9:80"].map(one);
        all.sort_by_cached_key(ends);
        assert_eq!(
            all.map(|one| one["local"].clone()),
            ["10.0.0.9:80", "10.0.0.9:443", "10.0.0.10:80"]
        );
    }
}
