//! Packets on the control socket: behind the answer to `capture` come records in place of lines.
//!
//! ```text
//!   bytes  0 .. 4    kind: a packet, or how many there were
//!          4 .. 8    of a packet, its length on the wire
//!          8 .. 16   when it passed, in nanoseconds since 1970; else how many were captured
//!         16 .. 20   bytes that follow
//!         24 .. 32   how many were dropped so far
//! ```
//!
//! Numbers are little-endian. The last record says how many there were.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use sys::poll::poll;

use crate::capture::{Captured, Packet};
use crate::nic::Capturing;

/// Bytes after which packets are sent.
const BATCH: usize = 256 << 10;
/// How often it is looked whether the client has had enough, when there is nothing to send.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Bytes before those of a packet.
pub(super) const HEADER: usize = 32;
/// Bytes of a packet at most: an aggregate of 64 KB with its headers is the longest.
pub(super) const PACKET_MAX: u32 = 1 << 18;

const PACKET: u32 = 1;
const TOTALS: u32 = 2;

/// What a wharf that runs tells of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A packet that passed, and how many were dropped so far.
    Packet(Packet, u64),
    /// It is over.
    Totals {
        /// Packets that were captured.
        captured: u64,
        /// Packets that were dropped, as they came faster than they were read.
        dropped: u64,
    },
}

/// What a header says of what follows.
#[derive(Debug)]
pub(super) struct Header {
    kind: u32,
    original_len: u32,
    number: u64,
    /// Bytes that follow.
    pub(super) len: usize,
    dropped: u64,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, original_len, number, data, dropped) = match self {
            Record::Packet(packet, dropped) => {
                (PACKET, packet.original_len, packet.time, &packet.data[..], *dropped)
            }
            Record::Totals { captured, dropped } => (TOTALS, 0, *captured, &[][..], *dropped),
        };
        let mut bytes = Vec::with_capacity(HEADER + data.len());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(original_len.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(dropped.to_le_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    /// With the bytes that its header announces.
    pub(super) fn of(header: &Header, data: Vec<u8>) -> Record {
        let Header { original_len, number, dropped, .. } = *header;
        match header.kind {
            PACKET => Record::Packet(Packet { time: number, original_len, data }, dropped),
            _ => Record::Totals { captured: number, dropped },
        }
    }
}

impl Header {
    /// From bytes.
    ///
    /// # Errors
    /// `InvalidData` for what is none.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> io::Result<Header> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let (kind, len) = (word(0), word(16));
        let is_one = kind == PACKET && len <= PACKET_MAX || kind == TOTALS && len == 0;
        if !is_one {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (original_len, number, dropped) = (word(4), long(8), long(24));
        Ok(Header { kind, original_len, number, len: len as usize, dropped })
    }
}

/// Sends what is captured until the client ends that, by closing its direction of the stream, or wharf does. A client
/// that reads nothing for so long is not waited for any more.
///
/// # Errors
/// What write(2) says.
pub(super) fn send(
    mut stream: &UnixStream,
    capturing: &Capturing,
    patience: Duration,
) -> io::Result<()> {
    stream.set_write_timeout(Some(patience))?;
    let captured = capturing.captured();
    while !has_more(stream)? {
        stream.write_all(&batch(captured, LOOK_EVERY))?;
    }
    capturing.stop();
    // Workers see that before their next packet: what comes in the meantime is one of the last.
    loop {
        let last = batch(captured, Duration::ZERO);
        if last.is_empty() {
            break;
        }
        stream.write_all(&last)?;
    }
    let (captured, dropped) = captured.counts();
    stream.write_all(&Record::Totals { captured, dropped }.encode())
}

/// Packets that wait, some at a time, or the first that comes within so long.
fn batch(captured: &Captured, patience: Duration) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = captured.next(patience);
    while let Some(packet) = next {
        let (_, dropped) = captured.counts();
        bytes.extend(Record::Packet(packet, dropped).encode());
        next = if bytes.len() < BATCH { captured.next(Duration::ZERO) } else { None };
    }
    bytes
}

/// Whether the client has said something more, or nothing more will come of it.
fn has_more(stream: &UnixStream) -> io::Result<bool> {
    Ok(!poll(&[stream.as_fd()], Some(0))?.is_empty())
}

/// Packets that a wharf captures.
#[derive(Debug)]
pub struct Feed {
    stream: Arc<UnixStream>,
    /// What has come of the next records.
    buffer: Vec<u8>,
    /// How much of it was given out.
    at: usize,
    has_ended: bool,
}

impl Feed {
    pub(super) fn new(stream: Arc<UnixStream>, buffer: Vec<u8>) -> Feed {
        Feed { stream, buffer, at: 0, has_ended: false }
    }

    /// The next record, if one has come: else more is to be [received](Self::receive).
    ///
    /// # Errors
    /// `InvalidData` for what is none.
    pub fn take(&mut self) -> io::Result<Option<Record>> {
        let rest = &self.buffer[self.at..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header::decode(header)?;
        let Some(data) = rest.get(..header.len) else { return Ok(None) };
        let record = Record::of(&header, data.to_vec());
        self.at += HEADER + header.len;
        Ok(Some(record))
    }

    /// Receives more, when [the stream](AsFd) is readable. Returns whether more may come.
    ///
    /// # Errors
    /// What read(2) says.
    pub fn receive(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let mut chunk = [0; 1 << 16];
        match (&*self.stream).read(&mut chunk) {
            Ok(0) => Ok(false),
            Ok(read) => {
                self.buffer.extend_from_slice(&chunk[..read]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Asks for the end: what was captured before still comes, and then how much there was.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            // One that has ended by itself needs none.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(
            time: u64, original_len: u32, data: Vec<u8>, dropped: u64, is_packet: bool, odd: [u8; HEADER],
        ) {
            let record = match is_packet {
                true => Record::Packet(Packet { time, original_len, data }, dropped),
                false => Record::Totals { captured: time, dropped },
            };
            let bytes = record.encode();
            let header = Header::decode(bytes.first_chunk().unwrap()).unwrap();
            prop_assert_eq!(header.len, bytes.len() - HEADER);
            prop_assert_eq!(Record::of(&header, bytes[HEADER..].to_vec()), record);
            let _ = Header::decode(&odd);
        }
    }
}
