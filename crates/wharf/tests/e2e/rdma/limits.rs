//! How much a process may have, as programs are told it (ibv_query_device(3)).

use std::time::Duration;

use sys::process::Signal;
use testkit::lab::PATIENCE;

use super::{Pair, as_user, built};
use crate::setup::Ip;

/// Bytes of regions are counted in the crate rdma's tests: there is not so much memory. `WHARF_RDMA_WINDOWS=1` is the long run,
/// with the 65,536 regions and windows that there may be.
#[test]
fn what_is_allowed_is_given_and_no_more() {
    let Some(program) = built("limits.c") else { return };
    let Some(pair) = Pair::new(&[]) else { return };
    let mut device = pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let own = Ip::V4.client().to_string();
    let mut fills = pair.client.spawn(&mut pair.run(&[program, &own, "fill"]));
    // Each is a request of its own.
    let is_long = std::env::var_os("WHARF_RDMA_WINDOWS").is_some();
    let patience = if is_long { Duration::from_secs(600) } else { PATIENCE };
    // First of objects, and then of the memory of their queues.
    for _ in 0..2 {
        fills.line_within("full", patience);
        // No other process has less for that.
        let ended = pair.call(&[program, &own, "write"]);
        assert!(ended.status.success(), "{ended}");
        fills.signal(Signal::HangUp);
        fills.line_within("empty", patience);
    }
    let ended = fills.wait();
    assert!(ended.status.success() && ended.stdout.ends_with("all\n"), "{ended}");
}
