//! Receivers that are slow: TCP's window is closed for a long time, and the peer that has closed it is there.

use std::fs;
use std::path::PathBuf;

use testkit::lab::have;

use super::{Pair, as_user, build};
use crate::setup::Ip;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The receiver posts a receive now and then, for several times as long as a peer may answer nothing; then it takes all.
#[test]
fn a_peer_that_receives_slowly_is_not_given_up() {
    const PORT: &str = "5003";
    if !have(&["gcc"]) {
        return;
    }
    let Some(pair) = Pair::new(&[]) else { return };
    let folder = std::env::temp_dir().join(format!("wharf-slow-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let folder = Folder(folder);
    // Ordinary users run what is in it.
    let program = folder.0.join("slow");
    build("slow.c", &program);
    let program = program.to_str().unwrap();
    let _devices = [&pair.client, &pair.server].map(|host| {
        let mut device = host.spawn(&mut as_user(&["rdma", "--peer-timeout", "1"]));
        device.line_with("serves");
        device
    });
    let to = Ip::V4.server().to_string();
    let (server, client) =
        pair.both(5003, &[program, "serve", PORT], &[program, "call", &to, PORT]);
    assert!(server.stdout.contains("received"), "{server}");
    assert!(client.stdout.contains("sent"), "{client}");
}
