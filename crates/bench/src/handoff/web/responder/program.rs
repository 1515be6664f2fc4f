//! What the responder's process does: it answers whoever connects to it, one after the other.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use sys::epoll::Epoll;
use sys::poll::Interest;

use super::content::Content;
use super::fastcgi::Input;

/// Number of the listening socket in the epoll set.
const LISTENER: u64 = u64::MAX;
/// Connections of a server that asks for something over each of its own at once, and more.
const CONNECTIONS: u64 = 8_192;
/// Bytes of one `read` at most.
const READ: usize = 64 << 10;

/// Answers for as long as it is let run, with the files there.
///
/// # Errors
/// What the kernel says.
pub(super) fn run(listener: &UnixListener, root: &Path) -> io::Result<()> {
    sys::process::allow_open_files(CONNECTIONS)?;
    listener.set_nonblocking(true)?;
    let mut content = Content::open(root)?;
    let mut epoll = Epoll::new()?;
    epoll.add(listener, LISTENER)?;
    let mut connections = HashMap::new();
    let mut next = 0;
    let mut buffer = vec![0; READ];
    loop {
        epoll.wait_forever()?;
        let ready: Vec<u64> = epoll.ready().collect();
        for number in ready {
            if number == LISTENER {
                while let Some(stream) = accept(listener)? {
                    epoll.add(&stream, next)?;
                    connections.insert(next, Connection::new(stream));
                    next += 1;
                }
                continue;
            }
            let Some(connection) = connections.get_mut(&number) else { continue };
            match connection.turn(&mut content, &mut buffer) {
                Ok(Some(interest)) if interest == connection.interest => {}
                Ok(Some(interest)) => {
                    epoll.change(&connection.stream, number, interest)?;
                    connection.interest = interest;
                }
                // The server sees that it is gone, and tells its client.
                Ok(None) | Err(_) => drop(connections.remove(&number)),
            }
        }
    }
}

fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    match listener.accept() {
        Ok((stream, _)) => stream.set_nonblocking(true).map(|()| Some(stream)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A connection of the server's.
struct Connection {
    stream: UnixStream,
    /// What it is reported for.
    interest: Interest,
    input: Input,
    /// What is to be sent, and how much of it has been.
    out: Vec<u8>,
    sent: usize,
    /// Whether it ends once all is sent.
    is_last: bool,
}

impl Connection {
    fn new(stream: UnixStream) -> Connection {
        let (input, out) = (Input::default(), Vec::new());
        Connection { stream, interest: Interest::Read, input, out, sent: 0, is_last: false }
    }

    /// Sends what is to be sent, and then answers what has come: what it waits for, `None` if it has ended.
    fn turn(&mut self, content: &mut Content, buffer: &mut [u8]) -> io::Result<Option<Interest>> {
        if self.interest == Interest::Read {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                other => other?,
            };
            self.input.take(&buffer[..count]);
        }
        loop {
            if !self.flush()? {
                return Ok(Some(Interest::Write));
            }
            if self.is_last {
                return Ok(None);
            }
            let Some(request) = self.input.next().map_err(io::Error::other)? else {
                return Ok(Some(Interest::Read));
            };
            self.is_last = !request.keep;
            request.answer(&content.answer(&request)?, &mut self.out);
        }
    }

    /// Whether all is sent.
    fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        // Connections are many, and some pages long.
        self.out = Vec::new();
        self.sent = 0;
        Ok(true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use std::fs;

    use super::super::super::files::{File, Files};
    use super::super::super::page::Page;
    use super::super::fastcgi::tests::{read_answer, sent};
    use super::*;

    /// The page of a file, asked for over a connection.
    fn ask(stream: &mut UnixStream, file: File, keep: bool) -> Vec<u8> {
        let query = ("QUERY_STRING".to_owned(), file.path());
        let script = ("SCRIPT_NAME".to_owned(), Page::Standard.script().to_owned());
        stream.write_all(&sent(9, keep, &[query, script], b"", 30)).unwrap();
        read_answer(stream).unwrap()
    }

    #[test]
    fn pages_are_answered_over_many_connections_at_once() {
        let root = std::env::temp_dir().join(format!("wharf-pages-{}", std::process::id()));
        let files = Files::write(&root).unwrap();
        let socket = root.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        // It ends with the tests.
        std::thread::spawn(move || run(&listener, &root));
        let mut streams: Vec<UnixStream> =
            (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        for _ in 0..2 {
            for (stream, n) in streams.iter_mut().zip(0..) {
                // The fourth class has files that take more than the socket has room for.
                let file = File::parse(&format!("{}/{}-{}", n % 20, n % 4, n % 9)).unwrap();
                let answer = ask(stream, file, true);
                let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
                let (header, page) = answer.split_at(end);
                let header = str::from_utf8(header).unwrap();
                let length = format!("\r\nContent-Length: {}\r\n", page.len());
                assert!(header.starts_with("Status: 200 OK\r\n") && header.contains(&length));
                assert_eq!(page.len(), Page::Standard.len(file));
                assert!(page.windows(file.len()).any(|part| part.iter().all(|b| *b == 0x55)));
            }
        }
        // What is no file's name, and a connection that is not to be kept.
        let stream = &mut streams[0];
        let script = ("SCRIPT_NAME".to_owned(), "/dynamic/../conf".to_owned());
        stream.write_all(&sent(9, true, &[script], b"", 30)).unwrap();
        assert!(read_answer(&mut *stream).unwrap().starts_with(b"Status: 400 "));
        ask(stream, File::parse("0/0-0").unwrap(), false);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        drop(files);
        assert!(fs::metadata(socket).is_err());
    }
}
