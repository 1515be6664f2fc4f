//! Servers of many runtimes, unmodified under `wharf run`, while their connections move between NIC and kernel every 50 ms.
//!
//! [`table!`] has a row for each server. The server is started anew for each policy; clients send, and compare every byte
//! that comes back, until connections have moved often enough both ways. Rows that are `checked` run always, those that are
//! `asked` with `WHARF_RUNTIMES=all` in the environment.

mod clients;
mod mqtt;
mod origin;
mod packaged;
mod rust;
mod servers;
mod turns;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use testkit::lab::{Program, have};

use self::turns::{Moves, Turns};
use crate::handoff_programs::Stage;
use crate::setup::Hosts;

/// Port of every server, as each has a host of its own.
const PORT: u16 = 7000;
/// The least number of times that the clients do all that they do.
const PASSES: usize = 3;
/// Name of the variable that has all rows run.
const ASKED: &str = "WHARF_RUNTIMES";

/// A server that listens.
struct Server {
    program: Program,
    /// Programs and threads that server or clients need.
    beside: Vec<Program>,
    /// The file that the server logs to, if that is not standard error.
    log: Option<PathBuf>,
}

impl Server {
    fn log(&self) -> String {
        let file = self.log.as_ref().map(std::fs::read);
        let file = file.and_then(Result::ok).unwrap_or_default();
        self.program.errors() + &String::from_utf8_lossy(&file)
    }
}

/// A row of the table.
struct Row {
    /// Programs and files that the machine must have.
    needs: &'static [&'static str],
    /// Starts the server by this policy. `None`, and a word why, if the machine lacks something.
    start: fn(&Stage, &str) -> Option<Server>,
    /// All that the clients do, once.
    pass: fn(&Hosts),
    /// Which connections can move by this policy.
    moves: fn(&str) -> Moves,
    /// Words in the log of a server that has lost one of its processes.
    faults: &'static [&'static str],
}

fn all(_: &str) -> Moves {
    Moves::All
}

fn none(_: &str) -> Moves {
    Moves::None
}

/// A process has no way to move connections that another has passed to it (`SCM_RIGHTS`); that one has.
fn of_the_primary(policy: &str) -> Moves {
    if policy == "at_accept" { Moves::All } else { Moves::None }
}

/// Whether rows run that do so only when they are asked for.
fn is_asked() -> bool {
    std::env::var(ASKED).is_ok_and(|value| value == "all")
}

fn run(row: &Row, policy: &str) {
    if !have(row.needs) {
        return;
    }
    let Some(stage) = Stage::new(&[]) else { return };
    let Some(mut server) = (row.start)(&stage, policy) else { return };
    let mut passes = 0;
    let served = catch_unwind(AssertUnwindSafe(|| {
        turns::during(&stage, (row.moves)(policy), |turns: &Turns<'_>| {
            while passes < PASSES || turns.must_go_on() {
                (row.pass)(&stage.hosts);
                passes += 1;
            }
        });
        // Connections that nothing moves, but the policy.
        (row.pass)(&stage.hosts);
    }));
    let log = server.log();
    if let Err(failed) = served {
        let ended = if server.program.runs() { None } else { Some(server.program.wait()) };
        eprintln!("{policy}: pass {passes}, {:?}\n{log}", stage.counters());
        eprintln!("{}", ended.map_or("the server runs".to_owned(), |ended| ended.to_string()));
        resume_unwind(failed);
    }
    assert!(server.program.runs(), "{}", server.program.wait());
    let fault = row.faults.iter().find(|words| log.contains(**words));
    assert!(fault.is_none(), "{fault:?}: {log}");
    println!("{policy}: {passes} passes, {:?}", stage.counters());
}

/// Makes a module of each row, with a test for each policy.
macro_rules! table {
    ($($(#[$only:meta])* $name:ident: $when:ident, $row:expr;)*) => {$(
        $(#[$only])*
        mod $name {
            use super::*;

            const ROW: Row = $row;

            #[test]
            fn at_accept() {
                super::$when(&ROW, "at_accept");
            }

            #[test]
            fn learned() {
                super::$when(&ROW, "learned");
            }
        }
    )*};
}

/// Runs a row in every check.
fn checked(row: &Row, policy: &str) {
    run(row, policy);
}

/// Runs a row where all are asked for.
fn asked(row: &Row, policy: &str) {
    if is_asked() {
        run(row, policy);
    } else {
        println!("left out: WHARF_RUNTIMES=all runs it");
    }
}

table! {
    tokio: checked, Row { needs: &[], start: rust::start_tokio, pass: clients::echo, moves: all, faults: &[] };
    // It waits by system calls of its own (rustix), so that the library leaves its connections to the kernel.
    smol: checked, Row { needs: &[], start: rust::start_smol, pass: clients::echo, moves: none, faults: &[] };
    smol_by_pairs: asked, Row {
        needs: &[],
        start: rust::start_smol_by_pairs,
        pass: clients::echo,
        moves: all,
        faults: &[],
    };
    go: asked, Row { needs: &["go"], start: servers::go, pass: clients::web_and_posts, moves: all, faults: &["panic:"] };
    asio: checked, Row {
        needs: &["g++", "/usr/include/asio.hpp"],
        start: servers::asio,
        pass: clients::echo,
        moves: all,
        faults: &[],
    };
    java_nio: asked, Row {
        needs: &["java"],
        start: servers::java_nio,
        pass: clients::echo,
        moves: all,
        faults: &["Exception"],
    };
    #[cfg(target_arch = "x86_64")]
    netty: asked, Row {
        needs: &["java", "mvn"],
        start: servers::netty,
        pass: clients::echo,
        moves: all,
        faults: &["Exception", "WARNING"],
    };
    node_passes: asked, Row {
        needs: &["node"],
        start: servers::node_passes,
        pass: clients::echo,
        moves: of_the_primary,
        faults: &["a worker has ended"],
    };
    node_shares: checked, Row {
        needs: &["node"],
        start: servers::node_shares,
        pass: clients::echo,
        moves: all,
        faults: &["a worker has ended"],
    };
    asyncio: checked, Row {
        needs: &["python3"],
        start: servers::asyncio,
        pass: clients::echo,
        moves: all,
        faults: &["Exception", "Traceback"],
    };
    uvloop: asked, Row {
        needs: &[servers::PYTHON, "/usr/lib/python3/dist-packages/uvloop/__init__.py"],
        start: servers::uvloop,
        pass: clients::echo,
        moves: all,
        faults: &["Exception", "Traceback"],
    };
    erlang: checked, Row {
        needs: &["escript"],
        start: servers::erlang,
        pass: clients::echo,
        moves: all,
        faults: &["CRASH REPORT", "Error in process"],
    };
    gunicorn: asked, Row {
        needs: &["/usr/bin/gunicorn", "/usr/lib/python3/dist-packages/gevent/__init__.py"],
        start: servers::gunicorn,
        pass: clients::web_and_posts,
        moves: all,
        faults: &["was terminated", "was sent SIG", "WORKER TIMEOUT", "Traceback"],
    };
    php: asked, Row {
        needs: &["php"],
        start: servers::php,
        pass: clients::web_and_posts,
        moves: all,
        faults: &["PHP Fatal"],
    };
    apache: checked, Row {
        needs: &["apache2", "setpriv"],
        start: packaged::apache,
        pass: clients::web,
        moves: all,
        faults: &["exit signal"],
    };
    lighttpd: asked, Row {
        needs: &["lighttpd"],
        start: packaged::lighttpd,
        pass: clients::web,
        moves: all,
        faults: &[],
    };
    varnish: checked, Row {
        needs: &["varnishd", "lighttpd"],
        start: packaged::varnish,
        pass: clients::web,
        moves: all,
        faults: &["died", "Panic"],
    };
    haproxy: asked, Row {
        needs: &["haproxy"],
        start: packaged::haproxy,
        pass: clients::echo,
        moves: all,
        faults: &["exited with code"],
    };
    stunnel: asked, Row {
        needs: &["stunnel4", "openssl"],
        start: packaged::stunnel,
        pass: clients::tls,
        moves: all,
        faults: &["INTERNAL ERROR"],
    };
    mariadb: asked, Row {
        needs: &["mariadbd", "mariadb-install-db", "mariadb", "sysbench"],
        start: packaged::mariadb,
        pass: clients::sql,
        moves: all,
        faults: &["got signal", "[ERROR]"],
    };
    mariadb_thread_pool: asked, Row {
        needs: &["mariadbd", "mariadb-install-db", "mariadb", "sysbench"],
        start: packaged::mariadb_thread_pool,
        pass: clients::sql,
        moves: all,
        faults: &["got signal", "[ERROR]"],
    };
    mosquitto: asked, Row {
        needs: &["mosquitto"],
        start: packaged::mosquitto,
        pass: mqtt::pass,
        moves: all,
        faults: &["rror"],
    };
    rabbitmq: asked, Row {
        needs: &[packaged::RABBITMQ],
        start: packaged::rabbitmq,
        pass: mqtt::pass,
        moves: all,
        faults: &["CRASH REPORT", "[error]"],
    };
}
