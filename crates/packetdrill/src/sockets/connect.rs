//! Beginning of connections: bind, listen, accept, connect.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use tcp::{FourTuple, State};

use super::{Entry, Fd, Host, Progress, SocketState, Stop, TcpSocket, fail};

impl Host {
    /// `bind()`.
    ///
    /// # Errors
    /// EINVAL for a socket that has an address already, EADDRINUSE for one that another listens on.
    pub fn bind(&mut self, fd: Fd, address: SocketAddr) -> Result<(), Stop> {
        let taken = self.entries.values().any(|entry| match entry {
            Entry::Tcp(socket) => matches!(&socket.state, SocketState::Listening { bound, .. }
                if bound.port() == address.port()),
            Entry::Epoll(_) => false,
        });
        match &mut self.tcp(fd)?.state {
            SocketState::New { bound: bound @ None } if !taken => {
                *bound = Some(address);
                Ok(())
            }
            SocketState::New { bound: None } => fail(libc::EADDRINUSE),
            _ => fail(libc::EINVAL),
        }
    }

    /// `listen()`. The engine's queue of connections has no bound, so the backlog is ignored.
    ///
    /// # Errors
    /// EINVAL for a connected socket, EADDRINUSE.
    pub fn listen(&mut self, fd: Fd) -> Result<(), Stop> {
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let bound = match &self.tcp(fd)?.state {
            SocketState::New { bound } => bound.unwrap_or(any),
            SocketState::Listening { .. } => return Ok(()),
            SocketState::Connection { .. } => return fail(libc::EINVAL),
        };
        let port = if bound.port() == 0 { self.free_port() } else { bound.port() };
        let config = match self.entries.get(&fd) {
            Some(Entry::Tcp(socket)) => self.config_of(socket),
            _ => return fail(libc::EBADF),
        };
        let address = Some(bound.ip()).filter(|ip| !ip.is_unspecified());
        let Ok(id) = self.stack.listen(address, port, config) else {
            return fail(libc::EADDRINUSE);
        };
        self.listeners.insert(id, fd);
        let bound = SocketAddr::new(bound.ip(), port);
        self.tcp(fd)?.state = SocketState::Listening { id, queue: VecDeque::new(), bound };
        Ok(())
    }

    /// Options of a listener hold for its later connections: the engine gets them by listening again.
    /// Connections that wait to be accepted stay.
    pub(super) fn listen_again(&mut self, fd: Fd) {
        let Some(Entry::Tcp(socket)) = self.entries.get(&fd) else { return };
        let SocketState::Listening { id, bound, .. } = &socket.state else { return };
        let (old, bound) = (*id, *bound);
        let config = self.config_of(socket);
        self.stack.unlisten(old);
        let address = Some(bound.ip()).filter(|ip| !ip.is_unspecified());
        let Ok(new) = self.stack.listen(address, bound.port(), config) else { return };
        self.listeners.insert(new, fd);
        if let Ok(TcpSocket { state: SocketState::Listening { id, .. }, .. }) = self.tcp(fd) {
            *id = new;
        }
    }

    fn free_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(32_769);
        self.next_port
    }

    /// `accept()`: the new socket, and its peer.
    ///
    /// # Errors
    /// EINVAL if it does not listen, EAGAIN.
    pub fn accept(&mut self, fd: Fd) -> Result<(Fd, SocketAddr), Stop> {
        let socket = self.tcp(fd)?;
        let SocketState::Listening { queue, .. } = &mut socket.state else {
            return fail(libc::EINVAL);
        };
        let Some(id) = queue.pop_front() else { return socket.would_block() };
        let connection = self.stack.connection(id);
        let end = connection.and_then(|connection| connection.end());
        let (state, peer) = match connection {
            Some(connection) => (connection.state(), connection.path().remote),
            None => return fail(libc::ECONNABORTED),
        };
        let mut child = self.tcp(fd)?.child(id, state);
        child.error = end.map_or(0, super::of_reason);
        let new = self.insert(Entry::Tcp(Box::new(child)));
        self.owners.insert(id, new);
        Ok((new, peer))
    }

    /// `connect()`: begins, or reports its progress.
    ///
    /// # Errors
    /// EINPROGRESS, EALREADY, EISCONN, or the error of the connection.
    pub fn connect(&mut self, fd: Fd, to: SocketAddr) -> Result<(), Stop> {
        match &self.tcp(fd)?.state {
            SocketState::New { .. } => self.begin(fd, to)?,
            SocketState::Listening { .. } => return fail(libc::EISCONN),
            SocketState::Connection { progress: Progress::Connecting, .. } => {
                // A second call finds the first still in progress, or its failure.
                self.finish_connect(fd)?;
                return Ok(());
            }
            SocketState::Connection { .. } => {}
        }
        if self.is_nonblocking(fd) && self.is_connecting(fd) {
            return fail(libc::EINPROGRESS);
        }
        self.finish_connect(fd)
    }

    fn begin(&mut self, fd: Fd, to: SocketAddr) -> Result<(), Stop> {
        let bound = match &self.tcp(fd)?.state {
            SocketState::New { bound } => *bound,
            _ => None,
        };
        let ip = bound.map(|bound| bound.ip()).filter(|ip| !ip.is_unspecified());
        let port = bound.map_or(0, |bound| bound.port());
        let port = if port == 0 { self.free_port() } else { port };
        let local = SocketAddr::new(ip.unwrap_or(self.address), port);
        let config = match self.entries.get(&fd) {
            Some(Entry::Tcp(socket)) => self.config_of(socket),
            _ => return fail(libc::EBADF),
        };
        let path = FourTuple { local, remote: to };
        let Ok(id) = self.stack.connect(path, config, self.now) else {
            return fail(libc::EADDRNOTAVAIL);
        };
        self.owners.insert(id, fd);
        let progress = Progress::Connecting;
        let socket = self.tcp(fd)?;
        socket.state = SocketState::Connection { id, progress, last: State::SynSent };
        self.settle();
        Ok(())
    }

    fn is_connecting(&mut self, fd: Fd) -> bool {
        matches!(
            self.tcp(fd).map(|socket| &socket.state),
            Ok(SocketState::Connection { progress: Progress::Connecting, .. })
        ) && self.tcp(fd).is_ok_and(|socket| socket.error == 0)
    }

    /// Result of a connect() that has begun.
    pub(super) fn finish_connect(&mut self, fd: Fd) -> Result<(), Stop> {
        let Some(id) = self.connection_of(fd) else { return fail(libc::EINVAL) };
        let over = self.stack.connection(id).is_none_or(|connection| connection.end().is_some());
        let socket = self.tcp(fd)?;
        let SocketState::Connection { progress, .. } = &mut socket.state else {
            return fail(libc::EINVAL);
        };
        match *progress {
            Progress::Reported => fail(libc::EISCONN),
            Progress::Connected => {
                *progress = Progress::Reported;
                Ok(())
            }
            Progress::Connecting if socket.error != 0 => {
                let error = socket.take_error();
                self.forget_connection(fd, id);
                fail(error)
            }
            Progress::Connecting if over => {
                self.forget_connection(fd, id);
                fail(libc::ECONNABORTED)
            }
            Progress::Connecting if socket.nonblocking => fail(libc::EALREADY),
            Progress::Connecting => Err(Stop::Block),
        }
    }

    /// Makes the socket as new.
    pub(super) fn forget_connection(&mut self, fd: Fd, id: tcp::Id) {
        self.owners.remove(&id);
        self.with_connection(id, |connection| connection.abort());
        if let Ok(socket) = self.tcp(fd) {
            socket.state = SocketState::New { bound: None };
            socket.shut_read = false;
            socket.shut_write = false;
        }
    }

    /// `connect()` with AF_UNSPEC: releases the connection, with a reset.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub fn disconnect(&mut self, fd: Fd) -> Result<(), Stop> {
        self.tcp(fd)?;
        if let Some(id) = self.connection_of(fd) {
            self.forget_connection(fd, id);
        }
        Ok(())
    }
}

impl TcpSocket {
    /// Result of a call that would have to wait.
    pub(super) fn would_block<T>(&self) -> Result<T, Stop> {
        if self.nonblocking { fail(libc::EAGAIN) } else { Err(Stop::Block) }
    }
}
