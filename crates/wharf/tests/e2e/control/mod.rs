//! The control socket, as clients of all kinds find it and as it finds them.

mod clean_end;

use nic::control::Client;
use testkit::lab::{Host, Program};

use super::setup::wharf;

/// Clients that stay: one that watches, one that has asked once, and one that has never asked.
struct Lingering {
    _watching: Program,
    _idle: [Client; 2],
}

impl Lingering {
    fn on(host: &Host) -> Self {
        let mut watching = host.spawn(wharf().args(["stats", "--watch", "--json"]));
        watching.line_with("counters");
        let connect = || host.run(|| Client::connect(None)).unwrap();
        let (silent, mut asked) = (connect(), connect());
        asked.stats().unwrap();
        Lingering { _watching: watching, _idle: [silent, asked] }
    }
}
