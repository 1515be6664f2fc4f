//! Clients that compare every byte.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;

use super::PORT;
use crate::handoff::{bytes, echoes, ends};
use crate::handoff_programs::http::Http;
use crate::handoff_programs::web::{CONNECTIONS, load};
use crate::setup::{Hosts, Ip};

/// Lengths of files, and of what is echoed: from less than a segment to more than a socket's buffer has room for.
pub(super) const LENGTHS: [usize; 4] = [1, 700, 40_000, 400_000];
/// Clients at a time that have what they send echoed, and the streams that each sends.
const CLIENTS: usize = 6;
const STREAMS: usize = 8;
/// Where a client's own tunnel listens, at its host.
pub(super) const TUNNEL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7001);
/// Rows of a table, and transactions.
const ROWS: u32 = 300;
const EVENTS: u32 = 100;
/// The last number of those that a query is answered with.
const NUMBERS: u32 = 100_000;

pub(super) fn connect(hosts: &Hosts, to: SocketAddr) -> TcpStream {
    let stream = hosts.client.run(|| TcpStream::connect(to)).unwrap();
    stream.set_read_timeout(Some(testkit::lab::PATIENCE)).unwrap();
    stream.set_write_timeout(Some(testkit::lab::PATIENCE)).unwrap();
    stream
}

/// Clients of a server that echoes.
pub(super) fn echo(hosts: &Hosts) {
    echo_at(hosts, SocketAddr::new(Ip::V4.server(), PORT));
}

/// The same through a tunnel.
pub(super) fn tls(hosts: &Hosts) {
    echo_at(hosts, TUNNEL);
}

fn echo_at(hosts: &Hosts, to: SocketAddr) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || echo_one(hosts, to, client));
        }
    });
}

/// One connection that is always busy, one that rests meanwhile, and short ones.
fn echo_one(hosts: &Hosts, to: SocketAddr, client: usize) {
    let [busy, resting] = [0; 2].map(|_| connect(hosts, to));
    for stream in 0..STREAMS {
        let sent = |seed: usize| {
            bytes(
                LENGTHS[(client + stream) % LENGTHS.len()],
                (client * STREAMS + stream + seed) as u64,
            )
        };
        echoes(&busy, &sent(1));
        let short = connect(hosts, to);
        echoes(&short, &sent(1000));
        ends(short);
    }
    echoes(&resting, &bytes(LENGTHS[1], client as u64));
    [busy, resting].into_iter().for_each(ends);
}

/// The files of a server of HTTP.
fn files() -> Vec<(String, Vec<u8>)> {
    let file = |(at, len): (usize, &usize)| (format!("file{at}"), bytes(*len, at as u64 + 1));
    LENGTHS.iter().enumerate().map(file).collect()
}

/// Clients of a server of HTTP.
pub(super) fn web(hosts: &Hosts) {
    // Connections that are kept for some requests, and then others.
    for _ in 0..2 {
        drop(load(hosts, PORT, &files(), LENGTHS.len()));
    }
}

/// Clients of one that sends back what it was sent, too.
pub(super) fn web_and_posts(hosts: &Hosts) {
    web(hosts);
    thread::scope(|scope| {
        for client in 0..CONNECTIONS {
            scope.spawn(move || {
                let to = SocketAddr::new(Ip::V4.server(), PORT);
                let mut http = Http::new(connect(hosts, to));
                let sent = bytes(LENGTHS[3], client as u64);
                let answer = http.post("", &sent).unwrap_or_else(|failed| panic!("{failed}"));
                assert!(answer.body == sent, "other bytes came back");
            });
        }
    });
}

/// Clients of a database: what sysbench finds wrong it says, and a long answer is compared.
pub(super) fn sql(hosts: &Hosts) {
    let host = Ip::V4.server().to_string();
    let port = PORT.to_string();
    let sysbench = |what: &str| {
        let mut client = Command::new("sysbench");
        client.args(["oltp_read_write", "--mysql-user=root", "--mysql-db=test", "--tables=1"]);
        client.args(["--threads=4", "--time=0"]).arg(format!("--mysql-host={host}"));
        client.args([format!("--mysql-port={port}"), format!("--events={EVENTS}")]);
        client.args([format!("--table-size={ROWS}"), what.to_owned()]);
        let ended = hosts.client.output(&mut client);
        assert!(ended.status.success() && !ended.stderr.contains("FATAL"), "{ended}");
        ended.stdout
    };
    let ask = |query: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", &host, "-P", &port, "-u", "root", "--skip-ssl"]);
        let ended = hosts.client.output(client.args(["-N", "-e", query]));
        assert!(ended.status.success(), "{ended}");
        ended.stdout
    };
    ask("drop database if exists test; create database test");
    sysbench("prepare");
    let told = sysbench("run");
    let lost: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("ignored errors") || line.contains("reconnects"))
        .filter_map(|line| line.split_whitespace().find(|word| word.parse::<u32>().is_ok()))
        .collect();
    assert_eq!(lost.last(), Some(&"0"), "connections were lost: {told}");
    assert!(told.contains(&format!("total number of events:              {EVENTS}")), "{told}");
    let all: String = (1..=NUMBERS).map(|number| format!("{number}\n")).collect();
    let got = ask(&format!("select seq from test.seq_1_to_{NUMBERS}"));
    assert!(got == all, "other rows came");
}
