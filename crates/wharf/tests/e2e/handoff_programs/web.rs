//! Servers of HTTP.

use std::fs;
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::Program;

use super::http::{Failed, Http};
use super::{Stage, connect, files};
use crate::handoff::bytes;
use crate::setup::Hosts;

/// Connections at a time.
pub(crate) const CONNECTIONS: usize = 8;
/// From what fits a segment to what is larger than all that is in flight.
pub(super) const LENGTHS: [usize; 4] = [100, 20_000, 300_000, 3_000_000];

/// Static files by sendfile(2), two workers, and connections that are kept.
const NGINX: &str = "
daemon off; worker_processes 2; pid pid; error_log errors info;
events { worker_connections 256; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server { listen 8080 reuseport; root files; }
}
";

/// Clients that ask for all files, over and over, and compare them. Connections that the server has closed between two
/// answers, as HTTP lets it, are opened again. Returns those that are open in the end.
pub(crate) fn load(
    hosts: &Hosts,
    port: u16,
    files: &[(String, Vec<u8>)],
    rounds: usize,
) -> Vec<Http> {
    let client = |number: usize| {
        let mut http = Http::new(connect(hosts, port));
        let mut has_answered = false;
        for round in 0..rounds {
            let (name, bytes) = &files[(number + round) % files.len()];
            let answer = loop {
                match http.get(name) {
                    Ok(answer) => break answer,
                    // What has given no answer yet, the server has no reason to close.
                    Err(Failed::Unanswered(_)) if has_answered => {
                        http = Http::new(connect(hosts, port));
                        has_answered = false;
                    }
                    Err(failed) => panic!("{name}: {failed}"),
                }
            };
            has_answered = true;
            assert!(answer.body == *bytes, "{name} has {} other bytes", answer.body.len());
            if answer.is_last {
                http = Http::new(connect(hosts, port));
                has_answered = false;
            }
        }
        http
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CONNECTIONS).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

fn nginx(stage: &Stage, policy: &str) -> (Program, Vec<(String, Vec<u8>)>) {
    let folder = stage.folder.path("files");
    fs::create_dir(&folder).unwrap();
    let files = files(&folder, &LENGTHS);
    // Its workers are of another user, who may not look where temporary files are of root alone.
    let user = if sys::process::is_root() { "user root;" } else { "" };
    fs::write(stage.folder.path("conf"), format!("{user}{NGINX}")).unwrap();
    let (at, conf) = (format!("{}/", stage.folder.0.display()), stage.folder.text("conf"));
    let words = ["nginx", "-p", &at, "-e", "errors", "-c", &conf];
    (stage.serve(policy, 8080, &words), files)
}

#[test]
fn nginx_runs_on_the_nic_and_reloads_under_load() {
    let Some(stage) = Stage::new(&["nginx"]) else { return };
    let (nginx, files) = nginx(&stage, "at_accept");
    let open = load(&stage.hosts, 8080, &files, 20);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
    drop(open);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| load(&stage.hosts, 8080, &files, 60));
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(200));
            nginx.signal(Signal::HangUp);
        }
        clients.join().unwrap();
    });
    let open = load(&stage.hosts, 8080, &files, 4);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
    drop(open);
}

#[test]
fn nginx_outlives_a_wharf_that_is_killed() {
    let Some(mut stage) = Stage::new(&["nginx"]) else { return };
    let (_nginx, files) = nginx(&stage, "after=64KB");
    let mut open = load(&stage.hosts, 8080, &files, 12);
    stage.shows(8080, CONNECTIONS);
    stage.restart_wharf();
    for (number, http) in open.iter_mut().enumerate() {
        let (name, bytes) = &files[number % files.len()];
        assert!(http.get(name).unwrap().body == *bytes, "{name} has other bytes");
    }
    drop(open);
    load(&stage.hosts, 8080, &files, 12);
}

#[test]
fn pythons_http_server_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let files = files(&stage.folder.0, &LENGTHS);
    let words = ["python3", "-u", "-c", PYTHON];
    let _python = stage.serve("at_accept", 8080, &words);
    let _open = load(&stage.hosts, 8080, &files, 12);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
}

/// `python3 -m http.server`, whose command line of old versions has no `--protocol`.
const PYTHON: &str = "
from http.server import *
SimpleHTTPRequestHandler.protocol_version = 'HTTP/1.1'
ThreadingHTTPServer(('', 8080), SimpleHTTPRequestHandler).serve_forever()
";

/// Files by streams, and what was posted back.
const NODE: &str = "
const http = require('http'), fs = require('fs');
const server = http.createServer((request, response) => {
    const from = request.method == 'POST' ? request : fs.createReadStream('.' + request.url);
    from.pipe(response);
});
// By default it closes what rests for five seconds.
server.keepAliveTimeout = 0;
server.listen(8080, '0.0.0.0');
";

#[test]
fn node_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["node"]) else { return };
    let files = files(&stage.folder.0, &LENGTHS);
    let _node = stage.serve("at_accept", 8080, &["node", "-e", NODE]);
    let mut open = load(&stage.hosts, 8080, &files, 12);
    stage.shows(8080, CONNECTIONS);
    for (number, http) in open.iter_mut().enumerate() {
        let sent = bytes(2_000_000, number as u64);
        assert!(http.post("", &sent).unwrap().body == sent, "other bytes came back");
    }
    stage.all_stayed();
}

/// Files by FileChannel.transferTo, what was posted back, and one thread for all connections: NIO, which waits by epoll.
const JAVA: &str = r#"
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import static java.nio.charset.StandardCharsets.ISO_8859_1;

class Server {
    static final class Client {
        final ByteBuffer in = ByteBuffer.allocate(65536);
        ByteBuffer out;
        FileChannel file;
        long at, echo;

        /// Whether there is nothing more to send of this answer.
        boolean write(SocketChannel to) throws Exception {
            while (out != null && out.hasRemaining()) if (to.write(out) == 0) return false;
            out = null;
            while (file != null && at < file.size()) {
                long sent = file.transferTo(at, file.size() - at, to);
                if (sent == 0) return false;
                at += sent;
            }
            if (file != null) file.close();
            file = null;
            return true;
        }

        void begin(String head) throws Exception {
            String path = head.split(" ")[1];
            long length;
            if (head.startsWith("POST")) {
                int from = head.indexOf("Content-Length: ") + 16;
                length = echo = Long.parseLong(head.substring(from, head.indexOf('\r', from)));
            } else {
                file = FileChannel.open(Path.of("." + path));
                at = 0;
                length = file.size();
            }
            String answer = "HTTP/1.1 200 OK\r\nContent-Length: " + length + "\r\n\r\n";
            out = ByteBuffer.wrap(answer.getBytes(ISO_8859_1));
        }

        /// What can be done now. Returns what is waited for, or -1 at the end of the stream.
        int run(SocketChannel with) throws Exception {
            while (true) {
                if (!write(with)) return SelectionKey.OP_WRITE;
                if (echo == 0) {
                    String all = new String(in.array(), 0, in.position(), ISO_8859_1);
                    int end = all.indexOf("\r\n\r\n");
                    if (end >= 0) {
                        begin(all.substring(0, end + 2));
                        in.flip().position(end + 4);
                        in.compact();
                        continue;
                    }
                } else if (in.position() > 0) {
                    in.flip();
                    out = ByteBuffer.allocate((int) Math.min(in.remaining(), echo));
                    while (out.hasRemaining()) out.put(in.get());
                    echo -= out.flip().remaining();
                    in.compact();
                    continue;
                }
                int got = with.read(in);
                if (got < 0) return -1;
                if (got == 0) return SelectionKey.OP_READ;
            }
        }
    }

    public static void main(String[] none) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(8080)).configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel client = listener.accept();
                    if (client == null) continue;
                    client.configureBlocking(false);
                    client.register(selector, SelectionKey.OP_READ, new Client());
                    continue;
                }
                int wants = ((Client) key.attachment()).run((SocketChannel) key.channel());
                if (wants < 0) key.channel().close();
                else key.interestOps(wants);
            }
            selector.selectedKeys().clear();
        }
    }
}
"#;

#[test]
fn java_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["java"]) else { return };
    let files = files(&stage.folder.0, &LENGTHS);
    fs::write(stage.folder.path("Server.java"), JAVA).unwrap();
    // Little memory, and no file of its own in the folder for what is temporary.
    let words = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "Server.java"];
    let _java = stage.serve("at_accept", 8080, &words);
    let mut open = load(&stage.hosts, 8080, &files, 12);
    stage.shows(8080, CONNECTIONS);
    for (number, http) in open.iter_mut().enumerate() {
        let sent = bytes(2_000_000, number as u64);
        assert!(http.post("", &sent).unwrap().body == sent, "other bytes came back");
    }
    stage.all_stayed();
}
