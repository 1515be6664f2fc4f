//! Linux as the peer.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::{LIMIT, Transfer};
use crate::tcp::server::Server;

/// Bytes of one read or write.
const CHUNK: usize = 64 << 10;

/// Connects from the calling thread's network namespace, with this congestion control, and moves all
/// bytes. What is sent has arrived when the server, which has read it, has closed as well.
pub(super) fn run(transfer: Transfer, congestion: &str) -> io::Result<Duration> {
    let mut stream = sys::tcp::connect(Server::at(), congestion)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let began = Instant::now();
    let in_time = || match began.elapsed() > LIMIT {
        true => Err(io::Error::from(io::ErrorKind::TimedOut)),
        false => Ok(()),
    };
    let mut buffer = vec![0; CHUNK];
    let mut left = transfer.bytes;
    while left > 0 {
        in_time()?;
        let most = left.min(CHUNK as u64) as usize;
        let moved = match transfer.way.is_send() {
            true => stream.write(&buffer[..most])?,
            false => stream.read(&mut buffer[..most])?,
        };
        if moved == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        left -= moved as u64;
    }
    if transfer.way.is_send() {
        stream.shutdown(std::net::Shutdown::Write)?;
        while stream.read(&mut buffer)? > 0 {}
    }
    Ok(began.elapsed())
}
