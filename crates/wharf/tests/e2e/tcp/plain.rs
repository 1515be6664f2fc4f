//! What users try first.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use nic::tcp::Pattern;
use sys::interface;
use sys::process::Signal;
use testkit::lab::{Host, have, wait_until};

use super::super::setup::{Ip, ping, wharf};
use super::super::traffic::whole;
use super::{Lab, TAP, connections, counter, read_pattern, write_pattern};

/// A shell's line on a host; it must succeed. What it writes.
fn shell(host: &Host, line: &str) -> String {
    host.succeed("sh", &["-c", line])
}

#[test]
fn echo_answers_nc_over_both_versions() {
    if !have(&["nc", "sh"]) {
        return;
    }
    let Some(lab) = Lab::start("echo --port 7") else { return };
    for ip in Ip::BOTH {
        let said = shell(&lab.host, &format!("echo hello | nc -N {} 7", ip.server()));
        assert_eq!(said, "hello\n");
    }
    lab.end();
}

#[test]
fn curl_gets_a_file_from_a_source() {
    if !have(&["curl", "sh"]) {
        return;
    }
    const BYTES: usize = 3_000_000;
    let Some(lab) = Lab::start(&format!("source --port 80 --bytes {BYTES}")) else { return };
    let pattern: Vec<u8> = Pattern::default().at(0).iter().cycle().copied().take(BYTES).collect();
    for (ip, url) in [(Ip::V4, "http://ADDRESS/file"), (Ip::V6, "http://[ADDRESS]/file")] {
        let url = url.replace("ADDRESS", &ip.server().to_string());
        let file = std::env::temp_dir().join(format!("wharf-tcp-{}-{ip:?}", std::process::id()));
        let get = format!("curl --silent --show-error --http0.9 '{url}' -o {}", file.display());
        shell(&lab.host, &get);
        let got = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(got == pattern, "{ip:?}: {} bytes, and not those that were sent", got.len());
    }
    lab.end();
}

#[test]
fn telnet_of_curl_speaks_with_the_echo() {
    if !have(&["curl", "sh"]) {
        return;
    }
    let Some(lab) = Lab::start("echo --port 7") else { return };
    let ip = Ip::V4.server();
    // It does not close its half, so it is stopped when nothing more has come for long.
    let said =
        shell(&lab.host, &format!("(echo ahoy; sleep 1) | curl -sN -m 5 telnet://{ip}:7; true"));
    assert_eq!(said, "ahoy\n");
    lab.end();
}

#[test]
fn it_answers_ping() {
    let Some(lab) = Lab::start("discard --port 9") else { return };
    for ip in Ip::BOTH {
        ping(&lab.host, ip.server(), &[]);
        ping(&lab.host, ip.server(), &["-s", "1400", "-M", "do"]);
    }
    lab.end();
}

/// Duplicate address detection (RFC 4862 section 5.4): the engine's address is taken.
#[test]
fn the_kernel_does_not_take_the_engines_address() {
    if !have(&["ip"]) {
        return;
    }
    let Some(lab) = Lab::start("discard --port 9") else { return };
    let taken = Ip::V6.server();
    let add = format!("-6 address add {taken}/64 dev {TAP}");
    lab.host.succeed("ip", &add.split(' ').collect::<Vec<_>>());
    let failed = || {
        let show = lab.host.succeed("ip", &["-6", "address", "show", "dev", TAP]);
        show.contains("dadfailed")
    };
    assert!(wait_until(failed), "the kernel has the same address");
    lab.end();
}

#[test]
fn a_client_may_close_its_half_first() {
    let Some(lab) = Lab::start("echo --port 7") else { return };
    for ip in Ip::BOTH {
        let mut socket = lab.connect(ip, 7);
        socket.write_all(b"the last words").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        assert_eq!(said, "the last words");
    }
    lab.end();
    let Some(lab) = Lab::start("source --port 80 --bytes 1000000") else { return };
    let socket = lab.connect(Ip::V4, 80);
    socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_pattern(&socket), 1_000_000);
    lab.end();
}

#[test]
fn nobody_answers_on_other_ports() {
    let Some(lab) = Lab::start("echo --port 7") else { return };
    for ip in Ip::BOTH {
        let to = SocketAddr::new(ip.server(), 8);
        let error = lab.host.run(|| TcpStream::connect(to)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{ip:?}");
    }
    lab.end();
}

#[test]
fn a_sink_tells_what_it_has_read_and_whether_it_was_the_pattern() {
    let Some(lab) = Lab::start("sink --port 9 --verify --json") else { return };
    let end = |mut socket: TcpStream| assert_eq!(whole(|| socket.read(&mut [0])).unwrap(), 0);
    let right = lab.connect(Ip::V4, 9);
    write_pattern(&right, 100_000);
    end(right);
    let mut wrong = lab.connect(Ip::V6, 9);
    wrong.write_all(&Pattern::default().at(0)[..500]).unwrap();
    wrong.write_all(b"something else").unwrap();
    wrong.shutdown(Shutdown::Write).unwrap();
    end(wrong);
    let Lab { engine, host: _host } = lab;
    engine.signal(Signal::Interrupt);
    let ended = engine.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    let told = connections(&ended);
    assert_eq!((&told[0]["read"], &told[0]["mismatch"]), (&100_000.into(), &().into()));
    assert_eq!((&told[1]["read"], &told[1]["mismatch"]), (&514.into(), &500.into()));
    assert_eq!(counter(&ended, "service", "mismatches"), 1);
}

/// Peers are told when the engine goes, and nothing of it stays.
#[test]
fn it_ends_cleanly_with_connections_open() {
    let Some(lab) = Lab::start("echo --port 7") else { return };
    let mut sockets = Ip::BOTH.map(|ip| lab.connect(ip, 7));
    for socket in &mut sockets {
        socket.write_all(b"hello").unwrap();
        socket.read_exact(&mut [0; 5]).unwrap();
    }
    let stats = lab.host.output(wharf().args(["stats", "--json"]));
    let stats: serde_json::Value = serde_json::from_str(&stats.stdout).unwrap();
    assert_eq!(stats["host"], TAP);
    let refused = lab.host.output(wharf().args(["set", "tcp.sack", "false"]));
    assert!(refused.stderr.contains("while"), "{refused}");
    let (ended, host) = lab.end();
    assert!(ended.stdout.contains("bytes_read"), "{ended}");
    for mut socket in sockets {
        let error = whole(|| socket.read(&mut [0])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    assert!(host.run(|| interface::index(TAP)).is_err(), "the interface is still there");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_word() {
    let Some(host) = Host::new() else { return };
    for (line, part) in [
        ("echo --host t0 --port 7", "--address"),
        ("echo --address 10.0.0.2/24 --port 7", "--host"),
        ("echo --host t0 --wire e0 --address 10.0.0.2/24 --port 7", "cannot be used with"),
        ("echo --host t0 --address 10.0.0.2/24", "--port"),
        ("echo --host t0 --address 10.0.0.2/33 --port 7", "prefix"),
        ("echo --host t0 --address 224.0.0.1/24 --port 7", "cannot be the address"),
        ("echo --host t0 --address 10.0.0.2/24 --port 0", "0"),
        ("echo --host t0 --address 10.0.0.2/24 --port 7 --gateway 10.0.1.1", "none of"),
        ("echo --host t0 --address 10.0.0.2/24 --connect [::1]:7", "same IP version"),
        ("echo --host t0 --address 10.0.0.2/24 --connect 10.0.0.1", "HOST:PORT"),
        ("echo --host a/b --address 10.0.0.2/24 --port 7", "interface's name"),
        ("echo --wire nothing --address 10.0.0.2/24 --port 7", "no interface"),
        ("echo --host t0 --host-address 10.0.0.2/24 --address 10.0.0.2/24 --port 7", "both"),
        ("echo --host t0 --address 10.0.0.2/24 --port 7 --set tcp.sac=false", "tcp.sack"),
    ] {
        let ended = host.output(wharf().arg("tcp").args(line.split(' ')));
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert!(ended.stderr.contains(part), "{ended}");
    }
}
