//! What a device refuses, and what it tells of that.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{Host, wait_until};

use super::as_user;
use super::lives::Peer;
use crate::setup::Ip;

/// `IBV_WC_REM_ACCESS_ERR`.
const REFUSED: &str = "status 10";

/// What the device of this host tells.
fn told(host: &Host) -> Value {
    let ended = host.output(&mut as_user(&["rdma", "stats", "--json"]));
    assert!(ended.status.success(), "{ended}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Connections of all its programs.
fn connections(told: &Value) -> usize {
    let programs = told["processes"].as_array().unwrap().iter();
    programs.map(|of| of["connections"].as_array().unwrap().len()).sum()
}

/// Each end lists the connection, and says why there is none any more.
#[test]
fn connections_are_listed_and_refusals_counted_by_their_reason() {
    let Some(peer) = Peer::new("refused") else { return };
    let hosts = [&peer.pair.server, &peer.pair.client];
    let devices = hosts.map(|host| {
        let mut device = host.spawn(&mut as_user(&["rdma"]));
        device.line_with("serves");
        device
    });
    let mut server = peer.serve("exit");
    let mut client = peer.call("misread");
    server.line_with("ready");
    let lists = hosts.map(|host| {
        assert!(wait_until(|| connections(&told(host)) == 1), "{}", told(host));
        let ended = host.output(&mut as_user(&["rdma", "list"]));
        let rows = ended.stdout.lines().filter(|line| line.contains(":5001"));
        let [row] = rows.collect::<Vec<_>>()[..] else { panic!("{ended}") };
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    let [at_server, at_client] = &lists;
    assert_eq!(
        [&at_server[0], &at_client[0]],
        [server.id(), client.id()].map(|id| id.to_string()).each_ref()
    );
    assert_eq!(at_server[2], format!("{}:5001", Ip::V4.server()));
    // What is here to one is there to the other.
    assert_eq!((&at_server[2], &at_server[3]), (&at_client[3], &at_client[2]));
    peer.go();
    assert_eq!(client.line_with("status"), REFUSED);
    let [server_told, client_told] = hosts.map(|host| {
        assert!(wait_until(|| connections(&told(host)) == 0), "{}", told(host));
        told(host)["total"].take()
    });
    let why = |told: &Value| {
        let names =
            ["stag_errors", "terminates_out", "terminates_in", "bounds_errors", "placed_bytes"];
        names.map(|name| told[name].as_u64().unwrap())
    };
    assert_eq!(why(&server_told), [1, 1, 0, 0, 0], "{server_told}");
    assert_eq!(why(&client_told), [0, 0, 1, 0, 0], "{client_told}");
    server.signal(Signal::HangUp);
    assert!(server.wait().status.success());
    drop(devices);
}

/// A request of RFC 5044 section 7.1.1.
fn request(revision: u8) -> Vec<u8> {
    const CRC: u8 = 0x40;
    [&b"MPA ID Req Frame"[..], &[CRC, revision, 0, 0]].concat()
}

/// Sends this to a program that listens; all that comes back until the connection is closed.
fn answer(peer: &Peer, sent: &[u8]) -> Vec<u8> {
    let mut stream = peer.pair.client.run(|| TcpStream::connect((Ip::V4.server(), 5001))).unwrap();
    // Longer than the 10 s that set-up may take.
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(sent).unwrap();
    let mut came = Vec::new();
    match stream.read_to_end(&mut came) {
        // Bytes that were not read make a reset of a close.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => came,
        ended => {
            ended.unwrap();
            came
        }
    }
}

#[test]
fn what_is_no_connection_of_mpa_is_closed() {
    const REPLY: &[u8] = b"MPA ID Rep Frame";
    const REJECTED: u8 = 0x20;
    let Some(peer) = Peer::new("rejected") else { return };
    let server = peer.serve("reject");
    // Of another protocol: at the first byte that tells.
    assert_eq!(answer(&peer, b"GET / HTTP/1.0\r\n\r\n"), b"");
    // Of a revision that is not yet there.
    let newer = answer(&peer, &request(9));
    assert_eq!((newer.get(..16), newer[16] & REJECTED), (Some(REPLY), REJECTED), "{newer:?}");
    // Less than a request, and then nothing: the time-out of set-up.
    assert_eq!(answer(&peer, &request(1)[..7]), b"");
    // The program says no: that, its words, and the end.
    let rejected = answer(&peer, &request(1));
    assert_eq!((rejected.get(..16), rejected[16] & REJECTED), (Some(REPLY), REJECTED));
    assert_eq!(&rejected[17..], b"\x01\0\x02no", "{rejected:?}");
    server.signal(Signal::HangUp);
    assert!(server.wait().status.success());
}
