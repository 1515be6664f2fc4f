//! Connections that move while no byte passes.

use testkit::lab::wait_until;

use crate::handoff::{EVENTS, THREADS, bytes, connect, echoes, ends, serve, up};
use crate::setup::Ip;

/// Connections that wait for their peer in poll(2) or epoll_wait(2) move when that is asked for.
#[test]
fn idle_connections_go_to_the_nic_by_hand() {
    // With a timeout, Python waits in poll and not in recv.
    let polls = THREADS.replace("def serve(c):", "def serve(c):\n    c.settimeout(60)");
    for script in [EVENTS, &polls] {
        let Some(up) = up() else { return };
        let _server = serve(&up.hosts, "by_hand", script);
        let streams: Vec<_> = (0..40).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
        streams.iter().for_each(|stream| echoes(stream, &bytes(10, 1)));
        let all_are = wait_until(|| {
            let ended = up.hosts.wharf(&["handoff", "--to", "nic", "--all"]);
            assert!(ended.status.success(), "{ended}");
            up.all_counted();
            up.counter("handoff", "connections") == 40
        });
        assert!(all_are, "{} moved", up.counter("handoff", "handoffs"));
        streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 2)));
        streams.into_iter().for_each(ends);
        up.nothing_went_wrong();
    }
}
