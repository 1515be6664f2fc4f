//! Data transfer: send, receive, shutdown, and the lengths of queues.

use tcp::State;

use super::{Fd, Host, Progress, SocketState, Stop, fail};

impl Host {
    /// `send()`, and `write()` without flags: as much as there is room for.
    ///
    /// # Errors
    /// EPIPE, EAGAIN, or the error of the connection.
    pub fn send(&mut self, fd: Fd, bytes: &[u8], flags: i32) -> Result<usize, Stop> {
        let socket = self.tcp(fd)?;
        let blocks = !(socket.nonblocking || flags & libc::MSG_DONTWAIT != 0);
        let wait = || if blocks { Err(Stop::Block) } else { fail(libc::EAGAIN) };
        if socket.error != 0 {
            return fail(socket.take_error());
        }
        let id = match &socket.state {
            SocketState::Connection { progress: Progress::Connecting, .. } => return wait(),
            SocketState::Connection { id, .. } => *id,
            _ => return fail(libc::EPIPE),
        };
        if socket.shut_write || self.stack.connection(id).is_none_or(|c| c.end().is_some()) {
            return fail(libc::EPIPE);
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let room = self.send_room(fd, id);
        if room == 0 {
            return wait();
        }
        let more = flags & libc::MSG_MORE != 0;
        let urgent = flags & libc::MSG_OOB != 0;
        let (cork, was_more) = match self.tcp(fd) {
            Ok(socket) => (socket.cork, std::mem::replace(&mut socket.more, more)),
            Err(stop) => return Err(stop),
        };
        let taken = &bytes[..bytes.len().min(room)];
        let sent = self.with_connection(id, |connection| {
            if more {
                connection.set_cork(true);
            }
            let sent = if urgent { connection.send_urgent(taken) } else { connection.send(taken) };
            if was_more && !more && !cork {
                connection.set_cork(false);
            }
            sent
        });
        match sent {
            Some(Ok(0)) => wait(),
            Some(Ok(count)) => Ok(count),
            Some(Err(_)) | None => fail(libc::EPIPE),
        }
    }

    /// Bytes that may be queued now.
    fn send_room(&mut self, fd: Fd, id: tcp::Id) -> usize {
        let Some(connection) = self.stack.connection(id) else { return 0 };
        let (space, queued) = (connection.send_space(), connection.unacknowledged());
        match self.tcp(fd).map(|socket| socket.send_limit) {
            Ok(Some(limit)) => space.min((limit as usize).saturating_sub(queued)),
            Ok(None) => space,
            Err(_) => 0,
        }
    }

    /// Whether there is room enough for poll() to report the socket writable (`sk_stream_is_writeable`).
    pub(super) fn is_writable(&mut self, fd: Fd, id: tcp::Id) -> bool {
        let room = self.send_room(fd, id);
        let queued = self.stack.connection(id).map_or(0, |connection| connection.unacknowledged());
        room >= queued / 2 && room > 0
    }

    /// `recv()`, and `read()` without flags.
    ///
    /// # Errors
    /// ENOTCONN, EAGAIN, or the error of the connection; with MSG_OOB also EINVAL.
    pub fn receive(&mut self, fd: Fd, into: &mut [u8], flags: i32) -> Result<usize, Stop> {
        let socket = self.tcp(fd)?;
        let blocks = !(socket.nonblocking || flags & libc::MSG_DONTWAIT != 0);
        let wait = || if blocks { Err(Stop::Block) } else { fail(libc::EAGAIN) };
        if flags & libc::MSG_ERRQUEUE != 0 {
            return fail(libc::EAGAIN);
        }
        let id = match &socket.state {
            SocketState::Connection { progress: Progress::Connecting, .. } => {
                return match socket.take_error() {
                    0 => wait(),
                    error => fail(error),
                };
            }
            SocketState::Connection { id, .. } => *id,
            _ => return fail(libc::ENOTCONN),
        };
        if flags & libc::MSG_OOB != 0 {
            return self.receive_urgent(fd, id, into, flags);
        }
        let whole = flags & libc::MSG_WAITALL != 0;
        let waiting = self.stack.connection(id).map_or(0, |c| c.readable_len());
        let least = if whole { into.len() } else { 1 };
        if waiting > 0 && !into.is_empty() && (waiting >= least || self.has_ended(fd, id)) {
            let peek = flags & libc::MSG_PEEK != 0;
            return Ok(self.copy_out(id, into, peek));
        }
        if into.is_empty() {
            return Ok(0);
        }
        let socket = self.tcp(fd)?;
        match socket.take_error() {
            0 => {}
            error => return fail(error),
        }
        if socket.shut_read || self.has_ended(fd, id) { Ok(0) } else { wait() }
    }

    /// Whether no more data will come.
    pub(super) fn has_ended(&mut self, fd: Fd, id: tcp::Id) -> bool {
        let shut = self.tcp(fd).is_ok_and(|socket| socket.shut_read);
        let open = self.stack.connection(id).is_some_and(|connection| {
            connection.end().is_none()
                && (connection.state().may_receive() || connection.state() == State::SynReceived)
        });
        shut || !open
    }

    fn copy_out(&mut self, id: tcp::Id, into: &mut [u8], peek: bool) -> usize {
        if !peek {
            let received = self.with_connection(id, |connection| connection.receive(into));
            return received.and_then(Result::ok).unwrap_or(0);
        }
        let copied = self.with_connection(id, |connection| {
            let mut at = 0;
            for piece in connection.readable() {
                let count = piece.len().min(into.len() - at);
                into[at..at + count].copy_from_slice(&piece[..count]);
                at += count;
            }
            at
        });
        copied.unwrap_or(0)
    }

    /// The urgent byte, out of the stream (`tcp_recv_urg` in Linux).
    fn receive_urgent(
        &mut self,
        fd: Fd,
        id: tcp::Id,
        into: &mut [u8],
        flags: i32,
    ) -> Result<usize, Stop> {
        if self.tcp(fd)?.config.urgent_inline {
            return fail(libc::EINVAL);
        }
        let peek = flags & libc::MSG_PEEK != 0;
        if peek {
            return fail(libc::EOPNOTSUPP);
        }
        match self.with_connection(id, |connection| connection.receive_urgent()).flatten() {
            Some(byte) => {
                if let Some(first) = into.first_mut() {
                    *first = byte;
                }
                Ok(1)
            }
            None if self.has_ended(fd, id) => Ok(0),
            None => fail(libc::EINVAL),
        }
    }

    /// `shutdown()`.
    ///
    /// # Errors
    /// ENOTCONN, EINVAL.
    pub fn shutdown(&mut self, fd: Fd, how: i32) -> Result<(), Stop> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return fail(libc::EINVAL),
        };
        let socket = self.tcp(fd)?;
        let id = match &mut socket.state {
            SocketState::Connection { id, .. } => *id,
            SocketState::Listening { id, queue, bound } if read => {
                let (id, bound) = (*id, *bound);
                let waiting = std::mem::take(queue);
                socket.state = SocketState::New { bound: Some(bound) };
                self.listeners.remove(&id);
                self.stack.unlisten(id);
                for id in waiting {
                    self.with_connection(id, |connection| connection.abort());
                }
                return Ok(());
            }
            SocketState::Listening { .. } => return Ok(()),
            SocketState::New { .. } => return fail(libc::ENOTCONN),
        };
        if self.stack.connection(id).is_none_or(|connection| connection.end().is_some()) {
            return fail(libc::ENOTCONN);
        }
        let socket = self.tcp(fd)?;
        socket.shut_read |= read;
        socket.shut_write |= write;
        socket.edge += 1;
        if write {
            self.with_connection(id, |connection| {
                connection.set_cork(false);
                connection.shutdown();
            });
        }
        Ok(())
    }

    /// `ioctl(SIOCINQ)`: bytes that can be read.
    ///
    /// # Errors
    /// EINVAL for a listener.
    pub fn readable_len(&mut self, fd: Fd) -> Result<usize, Stop> {
        match &self.tcp(fd)?.state {
            SocketState::Listening { .. } => fail(libc::EINVAL),
            SocketState::New { .. } => Ok(0),
            SocketState::Connection { id, .. } => {
                let id = *id;
                Ok(self.stack.connection(id).map_or(0, |c| c.readable_len()))
            }
        }
    }

    /// `ioctl(SIOCOUTQ)`: bytes that were not acknowledged, sent or not.
    ///
    /// # Errors
    /// EINVAL for a listener.
    pub fn unacknowledged(&mut self, fd: Fd) -> Result<usize, Stop> {
        match &self.tcp(fd)?.state {
            SocketState::Listening { .. } => fail(libc::EINVAL),
            SocketState::New { .. } => Ok(0),
            SocketState::Connection { id, .. } => {
                let id = *id;
                Ok(self.stack.connection(id).map_or(0, |c| c.unacknowledged()))
            }
        }
    }

    /// `ioctl(SIOCOUTQNSD)`: bytes that were never sent.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub fn unsent(&mut self, fd: Fd) -> Result<usize, Stop> {
        self.tcp(fd)?;
        let connection = self.connection_of(fd).and_then(|id| self.stack.connection(id));
        Ok(connection.map_or(0, |connection| connection.unsent()))
    }
}
