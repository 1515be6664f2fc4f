//! The names of connections over IPv6 that are pairs on the NIC.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::Stage;
use crate::setup::Ip;

/// Tells each peer how accept(2), getpeername(2) and getsockname(2) call it; and, of a connection of its own to the port
/// that this peer says, how the last two do.
const TELLS: &str = "
import socket
def named(name): return '[%s]:%d' % name[:2]
s = socket.create_server(('::', 7000), family=socket.AF_INET6)
print('listens', flush=True)
while True:
    c, name = s.accept()
    assert c.family == socket.AF_INET6 and len(name) == len(c.getsockname()) == len(c.getpeername()) == 4
    c.sendall(' '.join(map(named, [name, c.getpeername(), c.getsockname()])).encode() + b'\\n')
    to = c.makefile().readline()
    own = socket.socket(socket.AF_INET6)
    own.connect((name[0], int(to)))
    own.sendall(' '.join(map(named, [own.getpeername(), own.getsockname()])).encode() + b'\\n')
    own.recv(1)
    own.close()
    c.close()
";

fn line(stream: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn a_pair_over_ipv6_has_the_names_of_its_connection() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let words = ["python3", "-u", "-c", TELLS];
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", "pair"], &words);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let to = SocketAddr::new(Ip::V6.server(), 7000);
    let (mut stream, listener) = stage.hosts.client.run(|| {
        let listener = TcpListener::bind((Ip::V6.client(), 0)).unwrap();
        (TcpStream::connect(to).unwrap(), listener)
    });
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let own = stream.local_addr().unwrap();
    assert_eq!(line(&stream), format!("{own} {own} {to}"));
    stage.shows(7000, 1);
    let port = listener.local_addr().unwrap().port();
    stream.write_all(format!("{port}\n").as_bytes()).unwrap();
    let (mut other, from) = listener.accept().unwrap();
    other.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(line(&other), format!("{} {from}", other.local_addr().unwrap()));
    stage.shows(port, 1);
    other.write_all(b"x").unwrap();
    stage.all_stayed();
}
