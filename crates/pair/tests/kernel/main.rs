//! Programs whose connections are pairs do what they do with those of the kernel, which is the oracle: each program is run
//! both ways, by the same peer, and what it and the peer have seen must be the same.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod few;
mod hostile;
mod laws;
mod listeners;
mod resets;
mod waits;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pair::{CALLS, FLAGGED, Supervisor};

/// What all programs begin with.
const PRELUDE: &str = "
import ctypes, errno, fcntl, os, select, signal, socket, struct, sys, termios, threading, time
def say(*words): print(*words, flush=True)
def heard(): return sys.stdin.readline().strip()
def listens(kind=socket.AF_INET):
    s = socket.socket(kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('127.0.0.1' if kind == socket.AF_INET else '::1', 0))
    s.listen(64)
    say(s.getsockname()[1])
    return s
def tried(call, *arguments):
    try: return call(*arguments)
    except OSError as e: return errno.errorcode.get(e.errno, e)
def all_of(c, most=1 << 30):
    got = b''
    while len(got) < most:
        d = c.recv(65536)
        if not d: break
        got += d
    return got
";

/// Whether connections are pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Kernel,
    Pairs,
    /// As far as the supervisor has descriptors for them: two connections.
    Few,
}

/// A Python program that runs, and what answers its calls.
struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
    supervisor: Option<JoinHandle<std::io::Result<()>>>,
}

impl Program {
    fn start(way: Way, script: &str) -> Program {
        let mut command = Command::new("python3");
        command.args(["-u", "-c", &format!("{PRELUDE}{script}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (mut child, supervisor) = match way {
            Way::Kernel => (command.spawn().unwrap(), None),
            Way::Pairs | Way::Few => {
                let (tell, told) = channel::<OwnedFd>();
                // The filter is that thread's, and what it starts has it.
                let starter = std::thread::spawn(move || {
                    tell.send(sys::seccomp::answer_elsewhere(CALLS, FLAGGED, u64::MAX).unwrap())
                        .unwrap();
                    command.spawn().unwrap()
                });
                let mut supervisor = Supervisor::new(told.recv().unwrap()).unwrap();
                if way == Way::Few {
                    supervisor = supervisor.with_descriptors(4);
                }
                let serves = std::thread::spawn(move || supervisor.run());
                (starter.join().unwrap(), Some(serves))
            }
        };
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Program { child, stdin, lines, supervisor }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Where it listens.
    fn address(&mut self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.line().parse().unwrap()))
    }

    /// Waits until it has written this line.
    fn says(&mut self, line: &str) {
        loop {
            let next = self.line();
            assert!(!next.is_empty(), "it ends without `{line}`");
            if next == line {
                return;
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// What it has said until its end, which its supervisor sees, too.
    fn end(mut self) -> String {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        self.is_left();
        text
    }

    /// The supervisor ends when the program has.
    fn is_left(&mut self) {
        let Some(supervisor) = self.supervisor.take() else { return };
        let until = Instant::now() + Duration::from_secs(60);
        while !supervisor.is_finished() {
            assert!(Instant::now() < until, "the supervisor does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        supervisor.join().unwrap().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program both ways with this peer, which is told where it listens, and compares.
fn is_as_the_kernels(script: &str, peer: impl Fn(&mut Program, SocketAddr) -> String) {
    let [kernels, pairs] = [Way::Kernel, Way::Pairs].map(|way| {
        let mut program = Program::start(way, script);
        let address = program.address();
        let seen = peer(&mut program, address);
        (program.end(), seen)
    });
    assert_eq!(kernels, pairs);
    assert!(!kernels.0.contains("Traceback"), "{}", kernels.0);
}

/// The same for a program that connects to the peer, which is given the program's connection.
fn is_as_the_kernels_client(script: &str, peer: impl Fn(TcpStream) -> String) {
    let [kernels, pairs] = [Way::Kernel, Way::Pairs].map(|way| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut program = Program::start(way, script);
        program.tell(&listener.local_addr().unwrap().port().to_string());
        let seen = peer(listener.accept().unwrap().0);
        (program.end(), seen)
    });
    assert_eq!(kernels, pairs);
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// What comes until the end of the stream, and how that ends.
fn rest(mut stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => format!("{} bytes and the end", bytes.len()),
        Err(error) => format!("{} bytes and {}", bytes.len(), error.kind()),
    }
}

/// Ends a connection by a reset.
fn reset(stream: TcpStream) {
    let linger = [1_u8, 0, 0, 0, 0, 0, 0, 0];
    sys::stream::set_option(&stream, libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
}
