//! Lines of JSON on a socket, bounded in length and in time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest line either side accepts, in bytes.
pub(super) const LINE_MAX: usize = 64 * 1024;

/// A stream of lines. Bytes behind the end of a line are kept for the next.
#[derive(Debug)]
pub(super) struct Lines {
    stream: Arc<UnixStream>,
    buffer: Vec<u8>,
}

impl Lines {
    pub(super) fn new(stream: Arc<UnixStream>) -> Self {
        Lines { stream, buffer: Vec::new() }
    }

    /// Waits up to `patience` for the whole of the next line; `None` at the end of the stream.
    ///
    /// # Errors
    /// `TimedOut`, `InvalidData` for a line that is longer than [`LINE_MAX`], `UnexpectedEof` for one without
    /// an end, and errors of the read.
    pub(super) fn read(&mut self, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + patience;
        let mut chunk = [0; 4096];
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(line));
            }
            if self.buffer.len() > LINE_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // The line has one deadline, however slowly its bytes arrive.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match (&*self.stream).read(&mut chunk) {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The stream itself, for what is no line.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The stream, and what was read of it already.
    pub(super) fn into_parts(self) -> (Arc<UnixStream>, Vec<u8>) {
        (self.stream, self.buffer)
    }

    /// Writes one value as a line. Fails after `patience` if the peer does not read.
    pub(super) fn write(&mut self, value: &Value, patience: Duration) -> io::Result<()> {
        let mut line = value.to_string();
        line.push('\n');
        self.stream.set_write_timeout(Some(patience))?;
        (&*self.stream).write_all(line.as_bytes())
    }
}
