//! A client of HTTP/1.1 that keeps its connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A connection.
pub(super) struct Http(BufReader<TcpStream>);

/// An answer.
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    /// The server closes the connection behind it.
    pub(super) is_last: bool,
}

impl Http {
    pub(super) fn new(stream: TcpStream) -> Self {
        Http(BufReader::new(stream))
    }

    pub(super) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.ask(&format!("GET /{path} HTTP/1.1\r\nHost: server\r\n\r\n"))?;
        self.answer()
    }

    /// Sends these bytes and gets an answer, while both are on their way.
    pub(super) fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        let len = body.len();
        self.ask(&format!(
            "POST /{path} HTTP/1.1\r\nHost: server\r\nContent-Length: {len}\r\n\r\n"
        ))?;
        let mut out = self.0.get_ref().try_clone()?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || out.write_all(body));
            let answer = self.answer();
            sent.join().unwrap()?;
            answer
        })
    }

    fn ask(&mut self, head: &str) -> io::Result<()> {
        self.0.get_mut().write_all(head.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let status = self.line()?;
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let (mut length, mut is_last) = (None, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap();
            match name {
                "content-length" => length = Some(value.parse().unwrap()),
                "connection" => is_last = value == "close",
                _ => {}
            }
        }
        let body = match length {
            Some(length) => self.bytes(length)?,
            None => self.chunks()?,
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
