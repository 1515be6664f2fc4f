//! Many bytes, each of which is compared.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

use sys::ethtool::{Ethtool, Offload};

use super::super::setup::Ip;
use super::super::traffic::{bytes, whole};
use super::{Lab, TAP, connections, counter, read_pattern, write_pattern};

const BYTES: u64 = 32 << 20;

fn goes_in(lab: Lab) {
    for ip in Ip::BOTH {
        let mut socket = lab.connect(ip, 9);
        write_pattern(&socket, BYTES);
        assert_eq!(whole(|| socket.read(&mut [0])).unwrap(), 0);
    }
    let (ended, _host) = lab.end();
    for told in connections(&ended) {
        assert_eq!((&told["read"], &told["mismatch"]), (&BYTES.into(), &().into()), "{told}");
    }
    assert_eq!(counter(&ended, "service", "failed"), 0);
    assert_eq!(counter(&ended, "drop", "tcp_checksum"), 0);
}

fn comes_out(lab: Lab) {
    for ip in Ip::BOTH {
        let socket = lab.connect(ip, 80);
        assert_eq!(read_pattern(&socket), BYTES);
    }
    lab.end();
}

#[test]
fn what_a_kernel_sends_arrives() {
    if let Some(lab) = Lab::start("sink --port 9 --verify --json") {
        goes_in(lab);
    }
}

/// Frames of the MTU's size, with checksums that the engine has to verify.
#[test]
fn what_a_kernel_without_offloads_sends_arrives() {
    let Some(lab) = Lab::start("sink --port 9 --verify --json") else { return };
    let off = || {
        let features = Ethtool::open(TAP)?;
        features.set_offload(Offload::Tso, false)?;
        features.set_offload(Offload::TxChecksum, false)
    };
    lab.host.run(off).unwrap();
    goes_in(lab);
}

#[test]
fn what_the_engine_sends_arrives() {
    if let Some(lab) = Lab::start(&format!("source --port 80 --bytes {BYTES}")) {
        comes_out(lab);
    }
}

#[test]
fn jumbo_packets_go_both_ways() {
    if let Some(lab) = Lab::start("sink --port 9 --verify --json --set host.mtu=9000") {
        goes_in(lab);
    }
    let source = format!("source --port 80 --bytes {BYTES} --set host.mtu=9000");
    if let Some(lab) = Lab::start(&source) {
        comes_out(lab);
    }
}

/// Without timestamps, SACK or window scaling, in small segments, with small buffers, by NewReno.
#[test]
fn the_plainest_tcp_does_as_well() {
    let plain = "--set tcp.timestamps=false --set tcp.sack=false --set tcp.window_scaling=false \
                 --set tcp.mss=536 --set tcp.congestion=newreno --set tcp.send_buffer=20000 \
                 --set tcp.receive_buffer=20000 --set tcp.receive_buffer_max=20000";
    let Some(lab) = Lab::start(&format!("echo --port 7 {plain}")) else { return };
    both_ways(&lab, 4 << 20);
    lab.end();
}

/// Bytes that never repeat themselves, there and back at once, over both versions at once.
#[test]
fn echo_carries_bulk_both_ways_at_once() {
    let Some(lab) = Lab::start("echo --port 7") else { return };
    both_ways(&lab, BYTES as usize);
    lab.end();
}

fn both_ways(lab: &Lab, len: usize) {
    let sent = bytes(len);
    thread::scope(|scope| {
        for ip in Ip::BOTH {
            let socket = lab.connect(ip, 7);
            let mut writer = socket.try_clone().unwrap();
            let sent = &sent;
            scope.spawn(move || {
                writer.write_all(sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let (mut socket, mut received) = (socket, Vec::new());
                socket.read_to_end(&mut received).unwrap();
                assert!(
                    received == *sent,
                    "{ip:?}: {} bytes came back, not the same",
                    received.len()
                );
            });
        }
    });
}
