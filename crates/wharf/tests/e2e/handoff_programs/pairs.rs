//! Programs that no library is loaded into: static ones, those in Go, those that use io_uring.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use sys::process::Signal;
use testkit::lab::{Program, wait_until};

use super::http::Http;
use super::web::{CONNECTIONS, LENGTHS, load};
use super::{Stage, connect, files};
use crate::ends::guards;
use crate::handoff::{bytes, echoes};
use crate::setup::{Ip, copy};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/handoff_programs/programs");
/// Both ways.
pub(super) const LONG: usize = 20_000_000;

impl Stage {
    /// Makes a program of a source, by this compiler and its arguments.
    pub(crate) fn build(&self, source: &str, compiler: &[&str], behind: &[&str]) -> String {
        let program = self.folder.text(source.split('.').next().unwrap());
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(["-o", &program]);
        command.arg(Path::new(SOURCES).join(source)).args(behind);
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        program
    }

    /// The server of HTTP in Go, with files of these lengths.
    pub(super) fn go(&self, policy: &str, lengths: &[usize]) -> (Program, Vec<(String, Vec<u8>)>) {
        let program = self.build("server.go", &["go", "build"], &[]);
        let files = files(&self.folder.0, lengths);
        (self.serve(policy, 8080, &[&program, "8080"]), files)
    }

    /// Where it serves by HTTP/2.
    pub(super) fn url(&self, port: u16) -> String {
        format!("https://{}:{port}/", Ip::V4.server())
    }

    /// The echo server by tokio, for this target.
    fn tokio(&self, target: Option<&str>) -> String {
        let source = Path::new(SOURCES).join("tokio");
        for (from, to) in [("manifest.toml", "Cargo.toml"), ("echo.rs", "echo.rs")] {
            std::fs::copy(source.join(from), self.folder.path(to)).unwrap();
        }
        // Of the versions that all else here is of.
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        std::fs::copy(lock, self.folder.path("Cargo.lock")).unwrap();
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tokio");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--target-dir"]).arg(&built);
        cargo.args(target.iter().flat_map(|target| ["--target", *target]));
        let ended = cargo.current_dir(&self.folder.0).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let program = built.join(target.unwrap_or_default()).join("debug/echo");
        program.to_str().unwrap().to_owned()
    }

    /// wharf is killed, and another started: what was open goes on, and connections move again.
    fn outlives(&mut self, port: u16, open: &mut [Http], files: &[(String, Vec<u8>)]) {
        self.restart_wharf();
        for (number, http) in open.iter_mut().enumerate() {
            let (name, bytes) = &files[number % files.len()];
            assert!(http.get(name).unwrap().body == *bytes, "{name} has other bytes");
        }
        let _open = load(&self.hosts, port, files, 12);
        self.shows(port, 1);
    }
}

fn is_same(http: &mut Http, seed: u64) {
    let sent = bytes(LONG, seed);
    assert!(http.post("", &sent).unwrap().body == sent, "other bytes came back");
}

#[test]
fn a_server_in_go_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["go"]) else { return };
    let (_go, files) = stage.go("at_accept", &LENGTHS);
    let mut open = load(&stage.hosts, 8080, &files, 20);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
    // Many answers, long ones among them, by one connection.
    for seed in 0..2 {
        is_same(&mut open[0], seed);
    }
    let stream = connect(&stage.hosts, 8080);
    let names = format!("{} {}", stream.peer_addr().unwrap(), stream.local_addr().unwrap());
    let found = Http::new(stream).get("names").unwrap().body;
    assert_eq!(String::from_utf8(found).unwrap(), names);
    stage.all_stayed();
    stage.outlives(8080, &mut open, &files);
}

#[test]
fn a_server_in_go_stays_with_the_kernel() {
    let Some(stage) = Stage::new(&["go"]) else { return };
    let (_go, files) = stage.go("none", &LENGTHS);
    let mut open = load(&stage.hosts, 8080, &files, 12);
    is_same(&mut open[0], 1);
    assert_eq!(stage.on_nic(8080), 0);
}

#[test]
fn http_2_of_go_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["go", "curl"]) else { return };
    // A static one; the others may use libc.
    let program = stage.build("server.go", &["env", "CGO_ENABLED=0", "go", "build"], &[]);
    let files = files(&stage.folder.0, &[100, 300_000, LONG]);
    let _go = stage.serve("at_accept", 8443, &[&program, "8080", "8443"]);
    // Streams at a time in one connection, each with its file and its sum.
    let mut curl = Command::new("curl");
    curl.args(["-sSk", "--http2", "--parallel", "-w", "%{http_version} %{num_connects}\\n"]);
    for (name, _) in &files {
        let url = [stage.url(8443), name.clone()].concat();
        curl.args(["-o", &stage.folder.text(&format!("{name}.got")), &url]);
    }
    let ended = stage.hosts.client.output(&mut curl);
    assert!(ended.status.success(), "{ended}");
    let told: Vec<&str> = ended.stdout.split_whitespace().collect();
    let versions: Vec<&str> = told.iter().step_by(2).copied().collect();
    assert_eq!(versions, ["2"; 3], "{ended}");
    // One of them has made the connection.
    let connections = told.iter().skip(1).step_by(2);
    assert_eq!(connections.map(|count| count.parse::<u32>().unwrap()).sum::<u32>(), 1, "{ended}");
    for (name, bytes) in &files {
        let got = std::fs::read(stage.folder.path(&format!("{name}.got"))).unwrap();
        assert!(got == *bytes, "{name} has {} other bytes", got.len());
    }
    stage.were_handed_off(0, 1);
    // A body as long the other way.
    let sent = stage.folder.text(&files[2].0);
    let url = stage.url(8443);
    let got = stage.folder.text("back");
    let mut curl = Command::new("curl");
    curl.args(["-sSk", "--http2", "--data-binary", &format!("@{sent}"), "-o", &got, &url]);
    let ended = stage.hosts.client.output(&mut curl);
    assert!(ended.status.success(), "{ended}");
    assert!(std::fs::read(got).unwrap() == files[2].1, "other bytes came back");
    stage.were_handed_off(1, 1);
    stage.all_stayed();
}

/// Where rustup has it.
const MUSL: &str = "x86_64-unknown-linux-musl";

#[test]
fn a_server_in_rust_linked_with_musl_runs_on_the_nic() {
    let mut asked = Command::new("rustc");
    let libraries = asked.args(["--print", "target-libdir", "--target", MUSL]).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    if !Path::new(libraries.trim()).exists() {
        // The check says so: it adds the target if it can.
        eprintln!("left out: rustup target add {MUSL}");
        return;
    }
    let Some(mut stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.tokio(Some(MUSL));
    is_an_echo(&mut stage, &[], &program);
}

/// Its threads share an epoll set, and wait there before they have a connection.
#[test]
fn a_server_in_rust_with_four_threads_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.tokio(None);
    is_an_echo(&mut stage, &[], &program);
}

#[test]
fn a_static_server_by_edges_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("edges.c", &["gcc", "-O1", "-static"], &[]);
    is_an_echo(&mut stage, &[], &program);
}

#[test]
fn a_server_by_io_uring_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["gcc", "/usr/include/liburing.h"]) else { return };
    let program = stage.build("uring.c", &["gcc", "-O1"], &["-luring"]);
    is_an_echo(&mut stage, &["--bypass", "pair"], &program);
}

/// The library sees that a program accepts, and not that it reads: the connections stay with the kernel, and the reason is
/// shown.
#[test]
fn a_server_by_io_uring_keeps_its_connections_at_the_kernel() {
    let Some(stage) = Stage::new(&["gcc", "/usr/include/liburing.h"]) else { return };
    let program = stage.build("uring.c", &["gcc", "-O1"], &["-luring"]);
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", "preload"], &[&program, "7000"]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let streams: Vec<_> = (0..4).map(|_| crate::handoff::connect(&stage.hosts, Ip::V4)).collect();
    for (seed, stream) in (0..).zip(&streams) {
        echoes(stream, &bytes(1_000_000, seed));
    }
    let shown = || stage.hosts.wharf(&["connections"]).stdout.matches("io_uring").count();
    assert!(wait_until(|| shown() == 4), "{}", stage.hosts.wharf(&["connections"]));
    assert!(server.runs(), "{}", server.wait());
}

/// A program that begins to use io_uring when its connection is at the NIC gets it back, when the next one begins.
#[test]
fn a_connection_goes_back_when_its_program_begins_to_use_io_uring() {
    let Some(stage) = Stage::new(&["gcc", "/usr/include/liburing.h"]) else { return };
    let program = stage.build("uring_late.c", &["gcc", "-O1"], &["-luring"]);
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", "preload"], &[&program, "7000"]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let stream = crate::handoff::connect(&stage.hosts, Ip::V4);
    stage.shows(7000, 1);
    (&stream).write_all(b"r").unwrap();
    server.line_with("ring");
    let shown = || {
        drop(crate::handoff::connect(&stage.hosts, Ip::V4));
        let all = stage.hosts.wharf(&["connections"]).stdout;
        // The first one's, in a line of its own.
        let port = format!(":{} ", stream.local_addr().unwrap().port());
        all.lines().any(|line| line.contains(&port) && line.contains("io_uring"))
    };
    assert!(wait_until(shown), "{}", stage.hosts.wharf(&["connections"]));
    server.signal(Signal::HangUp);
    echoes(&stream, &bytes(1_000_000, 1));
}

/// Echoes on the NIC, while wharf is killed, and at the kernel.
fn is_an_echo(stage: &mut Stage, options: &[&str], program: &str) {
    let mut run = stage.wharf_run_with("at_accept", options, &[program, "7000"]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let streams: Vec<_> = (0..4).map(|_| crate::handoff::connect(&stage.hosts, Ip::V4)).collect();
    for (seed, stream) in (0..).zip(&streams) {
        echoes(stream, &bytes(3_000_000, seed));
    }
    stage.shows(7000, streams.len());
    stage.all_stayed();
    let (first, sent) = (&streams[0], bytes(LONG, 9));
    std::thread::scope(|scope| {
        let echoed = scope.spawn(|| echoes(first, &sent));
        stage.wharf.signal(Signal::Kill);
        echoed.join().unwrap();
    });
    assert!(wait_until(|| !stage.wharf.runs() && guards(&stage.hosts).is_empty()));
    for (seed, stream) in (0..).zip(&streams) {
        echoes(stream, &bytes(300_000, seed));
    }
    assert!(server.runs(), "{}", server.wait());
}

#[test]
fn busyboxs_server_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["busybox"]) else { return };
    let files = files(&stage.folder.0, &LENGTHS);
    let words = ["busybox", "httpd", "-f", "-p", "8080", "-h", "."];
    let run = stage.wharf_run_with("at_accept", &["--bypass", "pair"], &words);
    let _server = stage.serves(run, 8080);
    for (name, bytes) in files.iter().cycle().take(12) {
        let mut stream = connect(&stage.hosts, 8080);
        write!(stream, "GET /{name} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
        assert!(answer[body..] == *bytes, "{name} has {} other bytes", answer.len() - body);
    }
    stage.were_handed_off(0, 12);
}

#[test]
fn caddy_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["caddy"]) else { return };
    let files = files(&stage.folder.0, &LENGTHS);
    let words = ["caddy", "file-server", "--listen", ":8080", "--root", "."];
    let mut run = stage.wharf_run_with("after=64KB", &[], &words);
    run.env("HOME", stage.folder.text("home"));
    let _caddy = stage.serves(run, 8080);
    let mut open = load(&stage.hosts, 8080, &files, 12);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
    stage.outlives(8080, &mut open, &files);
}

#[test]
fn a_client_in_go_asks_by_the_nic() {
    let Some(stage) = Stage::new(&["go", "python3"]) else { return };
    let program = stage.build("server.go", &["go", "build"], &[]);
    let files = files(&stage.folder.0, &LENGTHS);
    let root = stage.folder.text("");
    let words = ["-m", "http.server", "9000", "--directory", &root];
    let mut origin = Command::new("python3");
    let _origin = stage.hosts.client.spawn(origin.args(words));
    let from = stage.hosts.client.run(|| Ip::V4.client());
    let _go = stage.serve("at_accept ports=9000", 8080, &[&program, "8080"]);
    let before = stage.counter("handoff", "handoffs");
    let mut http = Http::new(connect(&stage.hosts, 8080));
    for (name, bytes) in &files {
        let path = format!("from?url=http://{from}:9000/{name}");
        let found = wait_until(|| http.get(&path).is_ok_and(|answer| answer.body == *bytes));
        assert!(found, "{name} has other bytes");
    }
    stage.were_handed_off(before, 4);
    // Nobody listens there, which is told as it is.
    let body = http.get(&format!("from?url=http://{from}:9001/")).unwrap().body;
    assert!(String::from_utf8_lossy(&body).contains("connection refused"), "{body:?}");
}

/// Connects a socket that is in a set of epoll, where a pair in its place would not be.
const IN_A_SET: &str = "
import select, socket, sys
c = socket.socket()
e = select.epoll()
e.register(c, select.EPOLLIN)
c.connect((sys.argv[1], 7000))
c.sendall(b'x')
print('got', len(e.poll(60)), c.recv(1), flush=True)
";

#[test]
fn a_socket_that_is_not_a_pair_stays_with_the_kernel() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let (listener, to) = stage.hosts.client.run(|| {
        let to = Ip::V4.client();
        (TcpListener::bind((to, 7000)).unwrap(), to.to_string())
    });
    let words = ["python3", "-c", IN_A_SET, &to];
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", "pair"], &words);
    let mut client = stage.hosts.server.spawn(&mut run);
    let answers = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"y").unwrap();
        stream
    });
    assert_eq!(client.line_with("got"), "got 1 b'y'");
    drop(answers.join().unwrap());
}

/// Whether the supervisor of a program runs on the server.
pub(super) fn supervisors(stage: &Stage) -> Vec<u32> {
    let is_one = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "nic-pair\n")
    };
    stage.hosts.server.processes().into_iter().filter(is_one).collect()
}

/// Waits for a connection, then for its bytes, and for another connection, and says how each has ended.
const WAITS: &str = "
import errno, socket
s = socket.socket()
s.bind(('', 7000)); s.listen(8); print('listens', flush=True)
def tried(call, *arguments):
    try: return call(*arguments)
    except OSError as e: return errno.errorcode[e.errno]
c = s.accept()[0]
print('got', c.recv(1), flush=True)
print('then', tried(c.recv, 1) in (b'', 'ECONNRESET'), tried(s.accept), tried(c.getpeername), flush=True)
";

#[test]
fn a_supervisor_that_is_killed_ends_the_programs_connections() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let words = ["python3", "-u", "-c", WAITS];
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", "pair"], &words);
    let mut program = stage.hosts.server.spawn(&mut run);
    program.line_with("listens");
    let mut stream = crate::handoff::connect(&stage.hosts, Ip::V4);
    stream.write_all(b"x").unwrap();
    program.line_with("got b'x'");
    stage.shows(7000, 1);
    let [supervisor] = supervisors(&stage)[..] else { panic!("one supervisor") };
    sys::process::kill(supervisor, Signal::Kill).unwrap();
    // What is trapped has nobody to answer it; what is not is the pair's.
    program.line_with("then True ENOSYS ENOSYS");
    let ended = stream.read(&mut [0; 1]);
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    assert!(program.wait().status.success());
}

#[test]
fn the_program_is_the_process_that_was_started_and_its_supervisor_ends_with_it() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let words = ["sh", "-c", "kill -0 $PPID; echo $$; exit 7"];
    let run = |words: &[&str]| stage.wharf_run_with("none", &["--bypass", "pair"], words);
    let ended = stage.hosts.server.output(&mut run(&words));
    assert_eq!(ended.status.code(), Some(7), "{ended}");
    assert!(ended.stderr.is_empty(), "{ended}");
    assert!(wait_until(|| supervisors(&stage).is_empty()));
    // It has no child that it knows nothing of, and no variable of wharf's.
    let script = "import os, errno\n\
                  try: os.wait()\n\
                  except ChildProcessError: print([name for name in os.environ if name in ('LD_PRELOAD', 'WHARF_HANDOFF')])";
    let ended = stage.hosts.server.output(&mut run(&["python3", "-c", script]));
    assert_eq!(ended.stdout, "[]\n", "{ended}");
    let server = stage.hosts.server.spawn(&mut run(&["sleep", "1000"]));
    assert!(wait_until(|| supervisors(&stage).len() == 1));
    server.signal(Signal::Terminate);
    assert!(!server.wait().status.success());
    assert!(wait_until(|| supervisors(&stage).is_empty()));
}

#[test]
fn pairs_move_by_hand_while_bytes_pass() {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("edges.c", &["gcc", "-O1", "-static"], &[]);
    let mut run = stage.wharf_run_with("by_hand", &[], &[&program, "7000"]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let stream = crate::handoff::connect(&stage.hosts, Ip::V4);
    echoes(&stream, &bytes(100_000, 1));
    let sent = bytes(LONG, 2);
    std::thread::scope(|scope| {
        let echoed = scope.spawn(|| echoes(&stream, &sent));
        for (to, count) in [("nic", "handoffs"), ("os", "restored"), ("nic", "handoffs")] {
            let before = stage.counter("handoff", count);
            let ended = stage.hosts.wharf(&["handoff", "--to", to, "--all"]);
            assert!(ended.status.success(), "{ended}");
            let moves = || echoed.is_finished() || stage.counter("handoff", count) > before;
            assert!(wait_until(moves), "to {to}: {:?}", stage.counters());
        }
        echoed.join().unwrap();
    });
    let moves = || {
        stage.hosts.wharf(&["handoff", "--to", "nic", "--all"]);
        echoes(&stream, &bytes(1000, 4));
        stage.counter("handoff", "handoffs") > 0
    };
    assert!(wait_until(moves), "{:?}", stage.counters());
    // wharf is stopped, and the connection goes on at the kernel.
    stage.wharf.signal(Signal::Interrupt);
    echoes(&stream, &bytes(3_000_000, 3));
    assert!(server.runs(), "{}", server.wait());
}

/// The server in Go of an ordinary user, with files of these lengths.
pub(super) fn ordinary(stage: &Stage, lengths: &[usize]) -> (Program, Vec<(String, Vec<u8>)>) {
    let program = stage.build("server.go", &["go", "build"], &[]);
    let files = files(&stage.folder.0, lengths);
    let wharf = stage.folder.text("wharf");
    copy(env!("CARGO_BIN_EXE_wharf").as_ref(), wharf.as_ref());
    std::fs::copy(crate::handoff::library(), stage.folder.text("libwharf.so")).unwrap();
    let mut run = Command::new("setpriv");
    run.args(["--reuid", "4242", "--regid", "4242", "--clear-groups", &wharf, "run"]);
    run.args(["--policy", "at_accept", "--", &program, "8080"]).current_dir(&stage.folder.0);
    (stage.serves(run, 8080), files)
}

/// An ordinary user's program gains no rights by its filter, nor does it need any.
#[test]
fn an_ordinary_users_server_in_go_runs_on_the_nic() {
    if !sys::process::has_bpf() {
        return;
    }
    let Some(stage) = Stage::new(&["go", "setpriv"]) else { return };
    let (_go, files) = ordinary(&stage, &LENGTHS);
    let _open = load(&stage.hosts, 8080, &files, 8);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
}
