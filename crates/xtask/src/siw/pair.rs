//! Pairs of programs: a server and a client, one of them in the guest.

use std::fmt;

use super::network::{GUEST, HERE};

/// The side that a client runs on; its server is on the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Client {
    /// By wharf's device.
    Here,
    /// By siw.
    Guest,
}

impl Client {
    pub(super) const BOTH: [Client; 2] = [Client::Here, Client::Guest];

    /// The address of the server.
    fn server(self) -> &'static str {
        match self {
            Client::Here => GUEST,
            Client::Guest => HERE,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Client::Here => "siw serves",
            Client::Guest => "siw is the client",
        })
    }
}

/// A pair of command lines.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) server: String,
    /// Without the server's address, which is its last word, or the one at `@`.
    client: String,
    /// Where the server listens.
    pub(super) port: u16,
    pub(super) name: String,
    /// What the server is to say in the end, if it matters.
    pub(super) says: Option<&'static str>,
}

impl Pair {
    pub(super) fn client(&self, side: Client) -> String {
        self.client.replace('@', side.server())
    }

    fn rping(what: &str) -> Pair {
        const PORT: u16 = 7_471;
        Pair {
            server: format!("rping -s -a 0.0.0.0 -p {PORT} -V {what}"),
            client: format!("rping -c -a @ -p {PORT} -V {what}"),
            port: PORT,
            name: format!("rping {what}"),
            says: None,
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
            says: None,
        }
    }

    fn qperf(tests: &str) -> Pair {
        Pair {
            server: "qperf".to_owned(),
            client: format!("qperf -t 1 -cm 1 @ {tests}"),
            port: 19_765,
            name: format!("qperf {tests}"),
            says: None,
        }
    }

    /// One whose client does what the server has not allowed, of this kind.
    pub(super) fn denied(kind: &str) -> Pair {
        const PORT: u16 = 7_472;
        Pair {
            server: format!("siw-denied serve {PORT}"),
            client: format!("siw-denied {kind} @ {PORT}"),
            port: PORT,
            name: format!("a {kind} that is not allowed"),
            // siw's program is not told in time of a read of the peer's that siw has refused.
            says: (kind == "write").then_some("nothing was written"),
        }
    }
}

/// What runs on all terms.
pub(super) fn on_all_terms() -> Vec<Pair> {
    let mut pairs = vec![Pair::rping("-C 20"), Pair::rping("-C 5 -S 65000")];
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        pairs.push(Pair::perftest(program, "-s 65536 -n 100"));
        // The last FPDU of each message is padded.
        pairs.push(Pair::perftest(program, "-s 1021 -n 1000"));
    }
    for program in ["ib_read_lat", "ib_send_lat"] {
        pairs.push(Pair::perftest(program, "-s 64 -n 100"));
    }
    // Others need immediate data, or longer queues than siw has.
    pairs.push(Pair::qperf("rc_lat"));
    pairs.extend(["write", "read"].map(Pair::denied));
    pairs
}

/// What runs on the terms that siw and wharf have by themselves.
pub(super) fn on_usual_terms() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        pairs.push(Pair::perftest(program, "-a -n 5"));
        pairs.push(Pair::perftest(program, "-b -s 65536 -n 100"));
    }
    for program in ["ib_read_bw", "ib_send_bw", "ib_read_lat", "ib_send_lat"] {
        pairs.push(Pair::perftest(program, "-e -s 4096 -n 100"));
    }
    pairs
}

/// The server of this one sends first. A responder may not (RFC 5044 section 7.1), unless the initiator has said that it is
/// ready, which siw offers in no case by itself.
pub(super) fn server_first() -> Pair {
    Pair::perftest("ib_write_lat", "-s 64 -n 100")
}

/// What runs where siw asks for CRCs, and says that it is ready.
pub(super) fn where_siw_asks() -> [Pair; 3] {
    [Pair::rping("-C 20"), Pair::perftest("ib_write_bw", "-s 65536 -n 100"), server_first()]
}
