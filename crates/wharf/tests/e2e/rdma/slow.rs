//! Receivers that are slow: TCP's window is closed for a long time, and the peer that has closed it is there.

use super::{Pair, as_user, built};
use crate::setup::Ip;

/// The receiver posts a receive now and then, for several times as long as a peer may answer nothing; then it takes all.
#[test]
fn a_peer_that_receives_slowly_is_not_given_up() {
    const PORT: &str = "5003";
    let Some(program) = built("slow.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
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
