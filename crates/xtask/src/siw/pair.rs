//! Pairs of programs: a server and a client, one of them in the guest.

use std::fmt;

use super::network::{GUEST, HERE};

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// By wharf's device.
    Here,
    /// By siw.
    Guest,
}

impl Side {
    pub(super) const BOTH: [Side; 2] = [Side::Here, Side::Guest];

    pub(super) fn other(self) -> Side {
        match self {
            Side::Here => Side::Guest,
            Side::Guest => Side::Here,
        }
    }

    fn address(self) -> &'static str {
        match self {
            Side::Here => HERE,
            Side::Guest => GUEST,
        }
    }
}

/// As the side of a client.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Here => "siw serves",
            Side::Guest => "siw is the client",
        })
    }
}

/// A pair of command lines.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) server: String,
    /// With `@` for the server's address.
    client: String,
    /// Where the server listens.
    pub(super) port: u16,
    pub(super) name: String,
    /// What matters of its server.
    server_is: Served,
}

/// What a server does in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Served {
    /// It ends, and tells of no error.
    Ends,
    /// It serves on and on.
    GoesOn,
    /// It tells that nothing was written to it that it has not allowed.
    Denies,
    /// It does so if it is told of a read that was denied, which siw does not in time.
    DeniesRead,
}

impl Pair {
    /// The client's command line, if it runs here.
    pub(super) fn client(&self, side: Side) -> String {
        self.client.replace('@', side.other().address())
    }

    /// Whether the server ends when its client has.
    pub(super) fn ends(&self, client: Side) -> bool {
        match self.server_is {
            Served::Ends | Served::Denies => true,
            Served::GoesOn => false,
            Served::DeniesRead => client == Side::Guest,
        }
    }

    /// What the server is to say. One that is to say nothing tells of no error.
    pub(super) fn says(&self, client: Side) -> Option<&'static str> {
        let denies = self.server_is == Served::Denies
            || self.server_is == Served::DeniesRead && client == Side::Guest;
        denies.then_some("nothing was written")
    }

    pub(super) fn rping(what: &str) -> Pair {
        const PORT: u16 = 7_471;
        Pair {
            server: format!("rping -s -a 0.0.0.0 -p {PORT} -V {what}"),
            client: format!("rping -c -a @ -p {PORT} -V {what}"),
            port: PORT,
            name: format!("rping {what}"),
            server_is: Served::Ends,
        }
    }

    /// One of perftest's.
    pub(super) fn perftest(program: &str, what: &str) -> Pair {
        const PORT: u16 = 18_515;
        let line = format!("{program} -R -F -p {PORT} {what}");
        Pair {
            client: format!("{line} @"),
            server: line,
            port: PORT,
            name: format!("{program} {what}"),
            server_is: Served::Ends,
        }
    }

    pub(super) fn qperf(tests: &str) -> Pair {
        Pair {
            server: "qperf".to_owned(),
            client: format!("qperf -t 1 -cm 1 @ {tests}"),
            port: 19_765,
            name: format!("qperf {tests}"),
            server_is: Served::GoesOn,
        }
    }

    /// One whose client writes what the server has not allowed.
    pub(super) fn denied_write() -> Pair {
        Pair::denied("write", Served::Denies)
    }

    /// One whose client reads it.
    pub(super) fn denied_read() -> Pair {
        Pair::denied("read", Served::DeniesRead)
    }

    fn denied(kind: &str, server_is: Served) -> Pair {
        const PORT: u16 = 7_472;
        Pair {
            server: format!("siw-denied serve {PORT}"),
            client: format!("siw-denied {kind} @ {PORT}"),
            port: PORT,
            name: format!("a {kind} that is not allowed"),
            server_is,
        }
    }
}
