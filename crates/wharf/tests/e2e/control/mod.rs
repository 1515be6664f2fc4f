//! The control socket, as clients of all kinds find it and as it finds them.

mod clean_end;
mod files;
mod ordinary;
mod rights;
mod strangers;

use std::os::unix::fs::MetadataExt;

use nic::control::Client;
use testkit::lab::{Host, Program};
use testkit::missing::lacks;

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

/// Whether this is root, in a place where its directory can be; a word if not.
fn only_root() -> bool {
    let is_root = sys::process::has_all_of_root();
    if !is_root {
        lacks("root, whose control socket is a file");
    }
    is_root
}

/// The path of the socket file of a wharf on a host.
pub(crate) fn socket(host: &Host, name: &str) -> String {
    let inode = host.run(|| std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    format!("/run/wharf/{inode}-{name}.sock")
}
