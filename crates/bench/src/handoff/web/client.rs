//! The clients of a web server: connections that ask for one file or page after the other, each no faster than a rate, and
//! are opened again after some.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use sys::epoll::Epoll;
use sys::poll::Interest;

use super::Load;
use super::files::File;
use super::request::Request;
use crate::Error;
use crate::hosts::Hosts;
use crate::sink::io as failed;

/// Bytes of one `read` at most.
const READ: usize = 64 << 10;
/// The longest header of an answer.
const HEADER: usize = 4_096;
/// How long it sleeps before it looks whether it is to end, in milliseconds.
const LOOK_EVERY: u64 = 20;
const SECOND: u64 = 1_000_000_000;

/// What they have got so far.
#[derive(Debug, Default)]
struct Got {
    bytes: AtomicU64,
    answers: AtomicU64,
    stop: AtomicBool,
}

/// All of them, in a thread at the client's host.
#[derive(Debug)]
pub(super) struct Clients {
    got: Arc<Got>,
    thread: Option<JoinHandle<sys::Result<io::Result<()>>>>,
}

impl Clients {
    /// Starts those of a load.
    pub(super) fn start(hosts: &Hosts, to: SocketAddr, load: &Load) -> Result<Clients, Error> {
        let got = Arc::new(Got::default());
        let load = *load;
        let thread = {
            let got = Arc::clone(&got);
            hosts.client.spawn(move || {
                // The NIC's descriptors may be as many as one table can have.
                sys::process::unshare_files()?;
                Crowd::new(to, load, &got)?.run()
            })?
        };
        Ok(Clients { got, thread: Some(thread) })
    }

    /// Bytes of files and pages, and how many those are.
    pub(super) fn got(&self) -> [u64; 2] {
        [&self.got.bytes, &self.got.answers].map(|count| count.load(Ordering::Relaxed))
    }

    /// Ends them: why they could not go on, if that is so.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        self.got.stop.store(true, Ordering::Relaxed);
        let panicked = |_| Ok(Err(io::Error::other("a thread panicked")));
        let ended = self.thread.take().map(|thread| thread.join().unwrap_or_else(panicked));
        ended.transpose()?.transpose().map_err(failed("be a web client")).map(drop)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Whoever wants the error has joined it.
        let _ = self.join();
    }
}

/// A connection, one after the other.
#[derive(Debug)]
pub(super) struct Client {
    stream: Option<TcpStream>,
    /// How long it waits with its first connection before it asks, if it has not waited yet.
    begin: Option<u64>,
    /// Requests that it still has.
    left: u32,
    /// What is asked for, and when it was.
    request: Request,
    asked: u64,
    /// The answer's header as far as it is there, and bytes after it that are not.
    header: Vec<u8>,
    pub(super) body: Option<usize>,
}

struct Crowd<'a> {
    to: SocketAddr,
    load: Load,
    got: &'a Got,
    epoll: Epoll,
    clients: Vec<Client>,
    /// Those that wait, by when they go on.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Requests that were drawn.
    drawn: u64,
    files: degen::Random,
    pages: degen::Random,
}

impl<'a> Crowd<'a> {
    fn new(to: SocketAddr, load: Load, got: &'a Got) -> io::Result<Crowd<'a>> {
        let random = degen::Random::new(2);
        let mut begin = load.rate.map(|rate| in_the_midst(&random, rate));
        let client = |_| Client {
            stream: None,
            begin: begin.as_mut().and_then(Iterator::next),
            left: 0,
            request: Request::pick(0, None),
            asked: 0,
            header: Vec::with_capacity(HEADER),
            body: None,
        };
        let now = sys::clock::now();
        // They open their connections within the first tenth of a second.
        let connections = load.connections;
        let open = |number: usize| now + number as u64 * (SECOND / 10) / connections as u64;
        Ok(Crowd {
            to,
            load,
            got,
            epoll: Epoll::new()?,
            clients: (0..connections).map(client).collect(),
            waiting: (0..connections).map(|number| Reverse((open(number), number))).collect(),
            drawn: 0,
            files: degen::Random::new(1),
            pages: degen::Random::new(3),
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ];
        while !self.got.stop.load(Ordering::Relaxed) {
            let now = sys::clock::now();
            while let Some(&Reverse((at, number))) = self.waiting.peek() {
                if at > now {
                    break;
                }
                self.waiting.pop();
                self.go_on(number)?;
            }
            let until = self.waiting.peek().map_or(u64::MAX, |Reverse((at, _))| at - now);
            // A millisecond too late rather than awake all the time.
            let wait = until.div_ceil(1_000_000).min(LOOK_EVERY);
            self.epoll.wait(wait as u16)?;
            let ready: Vec<u64> = self.epoll.ready().collect();
            for number in ready {
                self.turn(number as usize, &mut buffer)?;
            }
        }
        Ok(())
    }

    /// Asks for something next, over another connection if this one has no more requests.
    fn go_on(&mut self, number: usize) -> io::Result<()> {
        let client = &mut self.clients[number];
        if client.stream.is_some() {
            return self.ask(number);
        }
        let socket = sys::tcp::bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        let stream = sys::tcp::begin_connect(socket, self.to)?;
        stream.set_nodelay(true)?;
        self.epoll.add_for(&stream, number as u64, Interest::Write)?;
        client.stream = Some(stream);
        client.left = self.load.requests;
        client.asked = 0;
        Ok(())
    }

    fn ask(&mut self, number: usize) -> io::Result<()> {
        self.drawn += 1;
        let client = &mut self.clients[number];
        let page = self.load.dynamic.then(|| self.pages.at(self.drawn));
        client.request = Request::pick(self.files.at(self.drawn), page);
        client.left -= 1;
        client.asked = sys::clock::now();
        let request = client.request.text(client.left == 0);
        match &mut client.stream {
            Some(stream) => stream.write_all(request.as_bytes()),
            None => Ok(()),
        }
    }

    /// What becomes of a connection at which something happened.
    fn turn(&mut self, number: usize, buffer: &mut [u8]) -> io::Result<()> {
        let client = &mut self.clients[number];
        let Some(stream) = &client.stream else { return Ok(()) };
        if client.asked == 0 {
            // It is open.
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            self.epoll.change(stream, number as u64, Interest::Read)?;
            let Some(begin) = client.begin.take() else { return self.ask(number) };
            client.asked = sys::clock::now();
            self.waiting.push(Reverse((client.asked + begin, number)));
            return Ok(());
        }
        loop {
            let client = &mut self.clients[number];
            let Some(stream) = &mut client.stream else { return Ok(()) };
            let count = match stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                other => other?,
            };
            if count == 0 {
                // The server closes what has had its requests.
                if client.left > 0 || client.body.is_some() {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                client.stream = None;
                let at = self.due(number);
                self.waiting.push(Reverse((at, number)));
                return Ok(());
            }
            let body = client.take(&buffer[..count])?;
            self.got.bytes.fetch_add(body as u64, Ordering::Relaxed);
            if client.body == Some(0) {
                client.body = None;
                self.got.answers.fetch_add(1, Ordering::Relaxed);
                if client.left > 0 {
                    let at = self.due(number);
                    self.waiting.push(Reverse((at, number)));
                }
            }
        }
    }

    /// When the client may ask again.
    fn due(&self, number: usize) -> u64 {
        let client = &self.clients[number];
        let bits = client.request.answer_len() as u64 * 8;
        client.asked + self.load.rate.map_or(0, |rate| bits * SECOND / rate)
    }
}

/// How long clients wait with such a rate before they ask for their first file, in nanoseconds: until the end of one that each
/// is in the midst of, as it would be if it had been there for long. Otherwise all would ask at once, and those with long
/// files would be slow to come again: in the first second they would receive half as much again as their rate.
fn in_the_midst(random: &degen::Random, rate: u64) -> impl Iterator<Item = u64> {
    let drawn = (0..).map(|n| (File::pick(random.at(2 * n)), random.at(2 * n + 1)));
    let drawn = drawn.map(|(file, byte)| (file.len() as u64, byte % File::LONGEST as u64));
    // The longer a file is, the more of the time is spent in it.
    drawn.filter(|(len, byte)| byte < len).map(move |(_, byte)| byte * 8 * SECOND / rate)
}

impl Client {
    /// Takes bytes of an answer: how many are behind its header.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
        let body = match self.body {
            Some(_) => bytes.len(),
            None => {
                let before = self.header.len();
                self.header.extend_from_slice(bytes);
                let Some(end) = self.header.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return match self.header.len() {
                        ..HEADER => Ok(0),
                        _ => Err(wrong("the server's answer has too long a header")),
                    };
                };
                let header = std::str::from_utf8(&self.header[..end]).unwrap_or_default();
                let length = format!("Content-Length: {}", self.request.answer_len());
                if !header.starts_with("HTTP/1.1 200 ")
                    || !header.lines().any(|line| line == length)
                {
                    return Err(wrong("the server did not answer with what it was asked for"));
                }
                self.header.clear();
                self.body = Some(self.request.answer_len());
                before + bytes.len() - (end + 4)
            }
        };
        let left = self.body.unwrap_or(0).checked_sub(body);
        self.body = Some(left.ok_or_else(|| wrong("the server's answer is too long"))?);
        Ok(body)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
pub(super) mod tests {
    use super::*;

    /// One that has asked for that.
    pub(crate) fn client(request: Request) -> Client {
        let header = Vec::new();
        Client { stream: None, begin: None, left: 1, request, asked: 1, header, body: None }
    }

    fn with_a_file() -> Client {
        client(Request::pick(0, None))
    }

    #[test]
    fn clients_ask_as_often_in_the_beginning_as_later() {
        const ALL: usize = 20_000;
        const BYTES: usize = 500;
        let lens: Vec<usize> =
            (0..ALL).map(|n| File::pick(degen::Random::new(7).at(n as u64)).len()).collect();
        // While there comes so much, so many of them reach the end of what they are in the midst of.
        let ended = lens.iter().map(|len| *len.min(&BYTES)).sum::<usize>() as f64;
        let expected = ended / lens.iter().sum::<usize>() as f64;
        let time = BYTES as u64 * 8 * SECOND / 400_000;
        let random = degen::Random::new(1);
        let soon = in_the_midst(&random, 400_000).take(ALL).filter(|begin| *begin < time).count();
        let found = soon as f64 / ALL as f64;
        assert!((found - expected).abs() < expected / 5.0, "{found} {expected}");
    }

    #[test]
    fn an_answer_is_the_same_however_it_is_cut() {
        let len = with_a_file().request.answer_len();
        let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nX: y\r\n\r\n");
        let answer = [header.as_bytes(), &vec![0x55; len]].concat();
        for cut in 1..answer.len() {
            let mut client = with_a_file();
            let (first, second) = answer.split_at(cut);
            assert_eq!(client.take(first).unwrap() + client.take(second).unwrap(), len);
            assert_eq!(client.body, Some(0));
        }
        let mut client = with_a_file();
        assert!(client.take(&[&answer[..], b"x"].concat()).is_err());
    }

    #[test]
    fn what_is_not_the_file_is_an_error() {
        for header in
            ["HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"]
        {
            assert!(with_a_file().take(header.as_bytes()).is_err(), "{header}");
        }
        assert!(with_a_file().take(&[b'x'; HEADER]).is_err());
        assert_eq!(with_a_file().take(b"HTTP/1.1 2").unwrap(), 0);
    }
}
