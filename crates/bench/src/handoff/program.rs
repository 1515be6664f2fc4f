//! The program at the server whose connections the NIC runs, or the kernel: a process of its own, into which
//! `libwharf.so` is loaded. It says on standard output what it has done, when it reads a byte from standard input.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use sys::epoll::Epoll;
use sys::poll::Interest;
use sys::tcp::{set_congestion_control, zero_copy};

use crate::hosts::SERVER;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;
/// Calls on one connection before another has its turn.
const TURN: usize = 64;
/// Number of standard input in the epoll set.
const COMMANDS: u64 = u64::MAX;
/// How long it waits at a time, in milliseconds.
const WAIT: u16 = 1_000;

/// errno(3).
const ENOBUFS: i32 = 105;

/// How long it leaves alone what it does not read.
const LEFT_ALONE: Duration = Duration::from_millis(1);

/// What it does with its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// It reads as much as it gets.
    Receive,
    /// It writes as much as it can.
    Send,
    /// The same without a copy, by `MSG_ZEROCOPY`.
    SendZeroCopy,
    /// It sends each byte back, and sleeps meanwhile.
    Echo,
    /// The same, without sleeping.
    EchoAwake,
    /// It waits, and leaves unread what comes.
    Idle,
    /// It is the client: it opens connections to a port of the server's, which the size of its calls is, and keeps them.
    Connect,
}

impl Work {
    const ALL: [Work; 7] = [
        Work::Receive,
        Work::Send,
        Work::SendZeroCopy,
        Work::Echo,
        Work::EchoAwake,
        Work::Idle,
        Work::Connect,
    ];

    /// Its name on the program's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Receive => "receive",
            Work::Send => "send",
            Work::SendZeroCopy => "send-zero-copy",
            Work::Echo => "echo",
            Work::EchoAwake => "echo-awake",
            Work::Idle => "idle",
            Work::Connect => "connect",
        }
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Work::ALL.into_iter().find(|work| work.name() == text);
        found.ok_or_else(|| format!("there is no work {text}"))
    }
}

/// Listens, tells its port, accepts so many connections, says so, and works in calls of so many bytes until its input
/// ends.
///
/// # Errors
/// What the kernel says.
pub fn run(work: Work, connections: usize, call: usize) -> io::Result<()> {
    sys::process::allow_open_files(connections as u64 + 100)?;
    if work == Work::Connect {
        return connect(connections, call as u16);
    }
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    sys::tcp::set_backlog(&listener, BACKLOG)?;
    // What a machine has that lacks it is told by its figures.
    let _ = set_congestion_control(&listener, "cubic");
    say(listener.local_addr()?.port().into())?;
    let mut streams = Vec::with_capacity(connections);
    for _ in 0..connections {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(work != Work::Echo)?;
        stream.set_nodelay(true)?;
        if work == Work::SendZeroCopy {
            zero_copy::allow(&stream)?;
        }
        streams.push(stream);
    }
    say(streams.len() as u64)?;
    match (work, &mut streams[..]) {
        (Work::Echo | Work::EchoAwake, [stream, ..]) => echo(stream),
        _ => serve(work, &streams, call),
    }
}

/// A line with a number.
fn say(number: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{number}")?;
    out.flush()
}

fn serve(work: Work, streams: &[TcpStream], call: usize) -> io::Result<()> {
    let mut epoll = Epoll::new()?;
    epoll.add(io::stdin(), COMMANDS)?;
    let interest = match work {
        Work::Send | Work::SendZeroCopy => Interest::Write,
        _ => Interest::Read,
    };
    for (stream, number) in streams.iter().zip(0..) {
        epoll.add_for(stream, number, interest)?;
    }
    let mut buffer = vec![0; call];
    // It is sent for as long as the program runs.
    let sent: &'static [u8] = vec![0x55; call].leak();
    let mut done = 0;
    loop {
        epoll.wait(WAIT)?;
        for number in epoll.ready() {
            if number == COMMANDS {
                if io::stdin().read(&mut [0])? == 0 {
                    return Ok(());
                }
                say(done)?;
            } else if work == Work::Idle {
                // It is told again and again.
                std::thread::sleep(LEFT_ALONE);
            } else if let Some(stream) = streams.get(number as usize) {
                done += turn(work, stream, &mut buffer, sent)?;
            }
        }
    }
}

/// The client's part: connections that are there until its input ends.
fn connect(connections: usize, port: u16) -> io::Result<()> {
    let connect = |_| TcpStream::connect((SERVER, port));
    let streams = (0..connections).map(connect).collect::<io::Result<Vec<TcpStream>>>()?;
    say(streams.len() as u64)?;
    let ended = io::stdin().read(&mut [0]).map(drop);
    drop(streams);
    ended
}

/// Bytes of one connection's turn, of which each call receives into a buffer, or sends the same.
fn turn(
    work: Work,
    mut stream: &TcpStream,
    buffer: &mut [u8],
    sent: &'static [u8],
) -> io::Result<u64> {
    if work == Work::SendZeroCopy {
        zero_copy::done(stream)?;
    }
    let mut done = 0;
    for _ in 0..TURN {
        let result = match work {
            Work::Send => stream.write(sent),
            Work::SendZeroCopy => zero_copy::send(stream, sent),
            _ => stream.read(buffer),
        };
        match result {
            // The peer has gone: the measurement is over.
            Ok(0) => break,
            Err(error) if is_gone(&error) || is_full(&error) => break,
            Ok(count) => done += count as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Whether the peer has ended the connection.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Whether more was sent without a copy than the kernel keeps account of, until it has said what is done.
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENOBUFS)
}

/// Sends each byte back until the peer goes.
fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let mut byte = [0; 1];
    loop {
        match stream.read(&mut byte) {
            Ok(0) => return Ok(()),
            Err(error) if is_gone(&error) => return Ok(()),
            Ok(_) => stream.write_all(&byte)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
}
