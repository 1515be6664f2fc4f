//! Senders that count duplicate acknowledgments, as a kernel does where there is no SACK.

use std::io::Read;

use testkit::lab::Host;

use super::super::setup::Ip;
use super::super::traffic::whole;
use super::lossy::Network;
use super::{Lab, counter, write_pattern};

const BYTES: u64 = 4 << 20;

/// What a window permits at once arrives at once: in one batch.
#[test]
fn a_kernel_without_sack_gets_a_duplicate_for_each_segment_out_of_order() {
    let Some(host) = Host::new() else { return };
    host.run(|| sys::sysctl::write(&["ipv4", "tcp_sack"], "0")).unwrap();
    let network = Network::of("without-sack", "delay = '5ms'\nloss = '1%'");
    let line = format!("sink --port 9 --json --set lro.enable=false {}", network.words());
    let Some(lab) = Lab::on(host, &line) else { return };
    let mut socket = lab.connect(Ip::V4, 9);
    write_pattern(&socket, BYTES);
    assert_eq!(whole(|| socket.read(&mut [0])).unwrap(), 0);
    let (ended, _host) = lab.end();
    let [disorder, duplicates] =
        ["out_of_order", "duplicate_acks"].map(|name| counter(&ended, "tcp", name));
    assert!(disorder > 0, "{ended}");
    // Of those that one batch brings together with what fills their hole none is a duplicate's. That is sent
    // a round trip after the third duplicate, so that the first three of each hole are.
    assert!(2 * duplicates > disorder, "{duplicates} for {disorder}: {ended}");
}
