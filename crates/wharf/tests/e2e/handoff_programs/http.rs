//! A client of HTTP/1.1 that keeps its connections.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

/// Parts that a body is sent or received in.
pub(super) const PARTS: usize = 8;

/// A connection.
pub(crate) struct Http(BufReader<TcpStream>);

/// Why there is no answer, or not all of it.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The connection has ended before the first byte of an answer, as a server may end it (RFC 9112, section 9.5).
    Unanswered(io::Error),
    /// It has ended in the middle of an answer, or was waited for in vain.
    Cut(io::Error),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Unanswered(error) => write!(f, "no answer: {error}"),
            Failed::Cut(error) => write!(f, "no whole answer: {error}"),
        }
    }
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    /// The server closes the connection behind it.
    pub(crate) is_last: bool,
}

impl Http {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Http(BufReader::new(stream))
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Answer, Failed> {
        self.get_by_parts(path, |_| {})
    }

    /// Tells of each of the [`PARTS`] of a body when it has come, by its number. The next one is not read before.
    pub(super) fn get_by_parts(
        &mut self,
        path: &str,
        told: impl FnMut(usize),
    ) -> Result<Answer, Failed> {
        self.ask(&format!("GET /{path} HTTP/1.1\r\nHost: server\r\n\r\n"))?;
        self.answer(told)
    }

    /// Sends these bytes and gets an answer, while both are on their way.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> Result<Answer, Failed> {
        self.post_by_parts(path, body, |_| {})
    }

    /// Tells of each of the [`PARTS`] of a body when it is written, by its number. The next one is not written before.
    pub(super) fn post_by_parts(
        &mut self,
        path: &str,
        body: &[u8],
        mut told: impl FnMut(usize) + Send,
    ) -> Result<Answer, Failed> {
        let len = body.len();
        self.ask(&format!(
            "POST /{path} HTTP/1.1\r\nHost: server\r\nContent-Length: {len}\r\n\r\n"
        ))?;
        let mut out = self.0.get_ref().try_clone().unwrap();
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || {
                (1..=PARTS).try_for_each(|part| {
                    out.write_all(&body[start_of(part - 1, len)..start_of(part, len)])?;
                    told(part);
                    Ok(())
                })
            });
            let answer = self.answer(|_| {});
            sent.join().unwrap().map_err(Failed::Cut)?;
            answer
        })
    }

    fn ask(&mut self, head: &str) -> Result<(), Failed> {
        assert!(self.0.buffer().is_empty(), "bytes behind an answer: {:?}", self.0.buffer());
        self.0.get_mut().write_all(head.as_bytes()).map_err(unanswered)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if line.ends_with('\n') {
            Ok(line.trim_end().to_owned())
        } else {
            Err(ErrorKind::UnexpectedEof.into())
        }
    }

    fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn answer(&mut self, told: impl FnMut(usize)) -> Result<Answer, Failed> {
        match self.0.fill_buf() {
            Ok([]) => Err(unanswered(ErrorKind::UnexpectedEof.into())),
            Ok(_) => self.rest(told).map_err(Failed::Cut),
            Err(error) => Err(unanswered(error)),
        }
    }

    /// An answer that has begun.
    fn rest(&mut self, mut told: impl FnMut(usize)) -> io::Result<Answer> {
        let status = self.line()?;
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let (mut length, mut is_in_chunks, mut is_last) = (None, false, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap();
            match name {
                "content-length" => length = Some(value.parse().unwrap()),
                "transfer-encoding" => is_in_chunks = value == "chunked",
                "connection" => is_last = value == "close",
                _ => {}
            }
        }
        let body = match length {
            Some(length) => {
                let mut body = vec![0; length];
                for part in 1..=PARTS {
                    let of_part = start_of(part - 1, length)..start_of(part, length);
                    self.0.read_exact(&mut body[of_part])?;
                    told(part);
                }
                body
            }
            None if is_in_chunks => self.chunks()?,
            None => {
                is_last = true;
                let mut body = Vec::new();
                self.0.read_to_end(&mut body)?;
                body
            }
        };
        Ok(Answer { body, is_last })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let len = usize::from_str_radix(&self.line()?, 16).unwrap();
            all.extend(self.bytes(len)?);
            assert_eq!(self.line()?, "");
            if len == 0 {
                return Ok(all);
            }
        }
    }
}

fn start_of(part: usize, len: usize) -> usize {
    len * part / PARTS
}

/// There is no byte of an answer: the connection has ended, or nothing came.
fn unanswered(error: io::Error) -> Failed {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => Failed::Unanswered(error),
        _ => Failed::Cut(error),
    }
}

#[test]
fn an_answer_that_is_cut_is_none() {
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n2\r\n89\r\n0\r\n\r\n",
    ];
    for answer in answers {
        for len in 0..=answer.len() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut http = Http::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (mut server, _) = listener.accept().unwrap();
            server.write_all(&answer.as_bytes()[..len]).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            match http.get("file") {
                Ok(got) => assert!(len == answer.len() && got.body == b"0123456789", "{len}"),
                Err(Failed::Unanswered(_)) => assert_eq!(len, 0),
                Err(Failed::Cut(_)) => assert!((1..answer.len()).contains(&len), "{len}"),
            }
        }
    }
}
