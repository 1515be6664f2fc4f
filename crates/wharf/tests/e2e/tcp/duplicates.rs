//! Senders that count duplicate acknowledgments, as a kernel does where there is no SACK.

use std::io::Read;

use testkit::lab::Host;
use testkit::snmp;

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
    let pure_acks = |lab: &Lab| snmp::counters(&lab.host)["TcpExtTCPPureAcks"];
    let before = pure_acks(&lab);
    let mut socket = lab.connect(Ip::V4, 9);
    write_pattern(&socket, BYTES);
    assert_eq!(whole(|| socket.read(&mut [0])).unwrap(), 0);
    let counted = pure_acks(&lab) - before;
    let (ended, _host) = lab.end();
    let disorder = counter(&ended, "tcp", "out_of_order");
    assert!(disorder > 0, "{ended}");
    // The network loses some, and what comes together with what fills its hole draws none.
    assert!(2 * counted > disorder, "{counted} for {disorder}: {ended}");
}
