//! What a device refuses, and what it tells of that.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{Host, wait_until};

use super::lives::Peer;
use super::{Pair, as_user};
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

/// The lines that wharf's library has written to a program's standard error.
fn lines_of_wharf(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.starts_with("wharf: ")).collect()
}

/// The program itself says that a call has failed, and not why.
#[test]
fn a_program_that_connects_by_hand_says_once_what_to_do() {
    let Some(pair) = Pair::new(&["ibv_rc_pingpong", "ib_write_bw"]) else { return };
    let server_ip = Ip::V4.server().to_string();
    for (port, words) in [
        (18_515, &["ibv_rc_pingpong", "-g", "0"][..]),
        // Two queue pairs, and one line.
        (18_516, &["ib_write_bw", "-p", "18516", "-q", "2", "-n", "5"]),
    ] {
        let server = pair.serve(port, words);
        let client = pair.call(&[words, &[&server_ip]].concat());
        // A client whose server has ended may not come so far.
        assert!(!client.status.success(), "{client}");
        assert!(lines_of_wharf(&client.stderr).len() <= 1, "{client}");
        let server = server.wait();
        assert!(!server.status.success(), "{server}");
        let [line] = lines_of_wharf(&server.stderr)[..] else { panic!("{server}") };
        for part in ["by hand", "RTR", "librdmacm", "-R"] {
            assert!(line.contains(part), "{part:?} is not in: {server}");
        }
    }
    // By the option that the line names it runs.
    let words = ["ib_write_bw", "-p", "18517", "-n", "5", "-R"];
    for ended in <[_; 2]>::from(pair.both(18_517, &words, &[&words[..], &[&server_ip]].concat())) {
        assert!(lines_of_wharf(&ended.stderr).is_empty(), "{ended}");
    }
}

#[test]
fn a_program_of_another_type_of_queue_pairs_says_which_there_are() {
    let Some(pair) = Pair::new(&["ibv_ud_pingpong"]) else { return };
    let ended = pair.call(&["ibv_ud_pingpong", "-g", "0"]);
    assert!(!ended.status.success(), "{ended}");
    let [line] = lines_of_wharf(&ended.stderr)[..] else { panic!("{ended}") };
    assert!(line.contains("UD") && line.contains("type RC alone"), "{ended}");
}
