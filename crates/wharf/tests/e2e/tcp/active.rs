//! The engine opens connections itself.

use std::io::{Read, Write};
use std::thread;

use testkit::lab::{Host, Program};

use super::super::setup::Ip;
use super::super::traffic::whole;
use super::{Lab, connections, counter, listen, patient, read_pattern, write_pattern};

const BYTES: u64 = 4 << 20;

/// An engine that opens connections to a port of the host that it is behind.
fn towards(host: &Host, line: &str, ip: Ip, port: u16) -> Program {
    let to = match ip {
        Ip::V4 => format!("{}:{port}", ip.client()),
        Ip::V6 => format!("[{}]:{port}", ip.client()),
    };
    Lab::spawn(host, &format!("{line} --connect {to} --json"))
}

/// A listener that has its address before the interface is there.
fn anywhere(host: &Host, ip: Ip) -> (std::net::TcpListener, u16) {
    listen(host, if ip == Ip::V4 { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() })
}

#[test]
fn a_source_sends_to_a_kernel() {
    for ip in Ip::BOTH {
        let Some(host) = Host::new() else { return };
        let (listener, port) = anywhere(&host, ip);
        let line = format!("source --bytes {BYTES} --connections 8");
        let engine = towards(&host, &line, ip, port);
        thread::scope(|scope| {
            for _ in 0..8 {
                let socket = patient(listener.accept().unwrap().0);
                scope.spawn(move || assert_eq!(read_pattern(&socket), BYTES));
            }
        });
        let ended = engine.wait();
        assert!(ended.status.success(), "{ended}");
        assert_eq!(counter(&ended, "service", "bytes_written"), 8 * BYTES);
        assert!(connections(&ended).iter().all(|told| told["end"] == "closed"), "{ended}");
    }
}

#[test]
fn a_sink_reads_what_a_kernel_sends() {
    let Some(host) = Host::new() else { return };
    let (listener, port) = anywhere(&host, Ip::V6);
    let engine = towards(&host, "sink --verify", Ip::V6, port);
    write_pattern(&patient(listener.accept().unwrap().0), BYTES);
    let ended = engine.wait();
    assert!(ended.status.success(), "{ended}");
    let told = connections(&ended);
    assert_eq!((&told[0]["read"], &told[0]["mismatch"]), (&BYTES.into(), &().into()));
}

#[test]
fn an_echo_answers_whom_it_calls() {
    let Some(host) = Host::new() else { return };
    let (listener, port) = anywhere(&host, Ip::V4);
    let engine = towards(&host, "echo", Ip::V4, port);
    let mut socket = patient(listener.accept().unwrap().0);
    for _ in 0..100 {
        socket.write_all(b"?").unwrap();
        socket.read_exact(&mut [0]).unwrap();
    }
    drop(socket);
    let ended = engine.wait();
    assert!(ended.status.success(), "{ended}");
    assert_eq!(counter(&ended, "service", "bytes_written"), 100);
}

#[test]
fn who_is_refused_says_so() {
    let Some(host) = Host::new() else { return };
    let ended = towards(&host, "source", Ip::V4, 1).wait();
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert_eq!(connections(&ended)[0]["end"], "connection refused", "{ended}");
}

/// A source has time to end in order, what it sent included; a sink goes away.
#[test]
fn a_time_that_is_over_ends_all_connections() {
    let Some(host) = Host::new() else { return };
    let (listener, port) = anywhere(&host, Ip::V4);
    let engine = towards(&host, "source --seconds 2", Ip::V4, port);
    let read = read_pattern(&patient(listener.accept().unwrap().0));
    let ended = engine.wait();
    assert!(ended.status.success(), "{ended}");
    assert_eq!(counter(&ended, "service", "bytes_written"), read);

    let engine = towards(&host, "sink --verify --seconds 2", Ip::V4, port);
    let mut socket = patient(listener.accept().unwrap().0);
    let ended = engine.wait();
    assert!(ended.status.success(), "{ended}");
    let error = whole(|| socket.read(&mut [0])).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
