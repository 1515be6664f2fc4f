//! How much a process may have, as programs are told it (ibv_query_device(3)).

use sys::process::Signal;

use super::{Pair, as_user, built};
use crate::setup::Ip;

/// Bytes of regions are counted in the crate rdma's tests: there is not so much memory.
#[test]
fn what_is_allowed_is_given_and_no_more() {
    let Some(program) = built("limits.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let own = Ip::V4.client().to_string();
    let mut fills = pair.client.spawn(&mut pair.run(&[program, &own, "fill"]));
    // First of objects, and then of the memory of their queues.
    for _ in 0..2 {
        fills.line_with("full");
        // No other process has less for that.
        let ended = pair.call(&[program, &own, "write"]);
        assert!(ended.status.success(), "{ended}");
        fills.signal(Signal::HangUp);
        fills.line_with("empty");
    }
    let ended = fills.wait();
    assert!(ended.status.success() && ended.stdout.ends_with("all\n"), "{ended}");
}
