//! What carries a stream: a connection, as it is read and written once MPA's start-up is over. Until then, and for whatever
//! opens and names connections, it is a socket of the kernel's (`manager`).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use sys::tcp::Answers;

use crate::stats::Calls;

/// See the module's documentation. Nothing here waits.
#[derive(Debug)]
pub(crate) struct Carrier {
    socket: TcpStream,
}

/// What came of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer has closed its direction.
    End,
    /// The connection is over in both directions: it was reset, or the peer does not answer.
    Failed,
}

impl Carrier {
    /// The connection of this socket, which does not block.
    pub(crate) fn new(socket: TcpStream) -> Self {
        Carrier { socket }
    }

    /// The largest segment that is sent, in bytes.
    pub(crate) fn segment_size(&self) -> usize {
        // What every host takes (RFC 9293, section 3.7.1).
        const LEAST: u32 = 536;
        let size = sys::tcp::segment_size(&self.socket).ok().filter(|size| *size > 0);
        size.unwrap_or(LEAST) as usize
    }

    /// The own address and the peer's.
    pub(crate) fn ends(&self) -> [io::Result<SocketAddr>; 2] {
        [self.socket.local_addr(), self.socket.peer_addr()]
    }

    /// Set-up is over: the NIC may have the connection, if there is one, and the library of handoff is loaded.
    pub(crate) fn hand_off(&self) {
        sys::handoff::hand_off(&self.socket);
    }

    /// Whether the NIC has it: reads and writes are of memory that it shares.
    pub(crate) fn is_handed_off(&self) -> bool {
        sys::handoff::is_handed_off(&self.socket)
    }

    /// Reads what has come at the kernel.
    pub(crate) fn read(&mut self, buffer: &mut [u8], calls: &mut Calls) -> Came {
        loop {
            let read = self.socket.read(buffer);
            calls.has_read(*read.as_ref().unwrap_or(&0), false);
            return match read {
                Ok(0) => Came::End,
                Ok(len) => Came::Bytes(len),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Came::Nothing,
                Err(_) => Came::Failed,
            };
        }
    }

    /// Shows what has come, and at most so many bytes of it, to `place` where the NIC has put them, if it has the connection;
    /// `place` takes all. `None` if the kernel has it.
    pub(crate) fn place(
        &self,
        most: usize,
        calls: &mut Calls,
        place: impl FnMut([&[u8]; 2]),
    ) -> Option<Came> {
        if !self.is_handed_off() {
            return None;
        }
        let placed = sys::handoff::receive(&self.socket, most, place);
        if placed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotConnected) {
            return None;
        }
        let len = *placed.as_ref().unwrap_or(&0);
        calls.has_read(len, true);
        calls.in_place_bytes.0 += len as u64;
        Some(match placed {
            Ok(0) => Came::End,
            Ok(len) => Came::Bytes(len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Came::Nothing,
            Err(_) => Came::Failed,
        })
    }

    /// Has `lay` write at most so many bytes where the NIC sends them from, in two parts, if it has the connection, and say how
    /// many; `keep` is shown them if they are not sent, as the connection has left meanwhile. `None` if the kernel has it.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; what send(2) says else: the connection is over.
    pub(crate) fn lay(
        &self,
        most: usize,
        calls: &mut Calls,
        lay: impl FnMut([&mut [u8]; 2]) -> usize,
        keep: impl FnMut([&[u8]; 2]),
    ) -> Option<io::Result<()>> {
        let laid = sys::handoff::transmit(&self.socket, most, lay, keep);
        if laid.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotConnected) {
            return None;
        }
        let len = *laid.as_ref().unwrap_or(&0);
        calls.has_written(len, true);
        calls.in_place_bytes.1 += len as u64;
        Some(laid.map(drop))
    }

    /// Writes as much as there is room for, and says how much.
    ///
    /// # Errors
    /// What send(2) says: the connection is over.
    pub(crate) fn write(&mut self, bytes: &[u8], calls: &mut Calls) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            let written = self.socket.write(&bytes[sent..]);
            calls.has_written(*written.as_ref().unwrap_or(&0), self.is_handed_off());
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Nothing more is written: the peer sees the end of the stream behind what was.
    ///
    /// # Errors
    /// What shutdown(2) says: the connection is over.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// How the peer answers to what was sent.
    ///
    /// # Errors
    /// What getsockopt(2) says: there is no connection.
    pub(crate) fn answers(&self) -> io::Result<Answers> {
        sys::tcp::answers(&self.socket)
    }

    /// The connection is reset when it is closed: its peer does not answer.
    pub(crate) fn reset(&self) {
        // Else TCP retransmits for a while.
        let _ = sys::tcp::reset_when_closed(&self.socket);
    }

    /// It is over at once, whatever waits.
    pub(crate) fn abandon(&self) {
        // Else it is over already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl AsFd for Carrier {
    /// To wait for what is to be read, or for room.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
