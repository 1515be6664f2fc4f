//! BSD sockets on the TCP engine, in virtual time.
//!
//! A [`Host`] has one stack, a clock that moves only by [`Host::advance`], a table of descriptors, and a wire
//! that is a queue of IP packets. Calls never sleep: where the kernel would block the caller, they return
//! [`Stop::Block`], and the caller tries them again after the clock has moved ([`Call`]).

mod call;
mod connect;
mod epoll;
mod errno;
mod info;
mod io;
mod options;
pub(crate) mod packet;
mod poll;
mod settings;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tcp::{Config, Events, Id, Keepalive, ListenerId, Nanos, Reason, Stack, StackConfig, State};

pub use call::{Call, Outcome, PollFd};
pub use epoll::{EpollEvent, Operation};
pub use errno::{Errno, Stop};
pub use info::{FIELDS, TcpInfo};
pub use packet::Dropped;
pub use settings::{NAMES, Refused, Settings, SynCookies};

use epoll::Epoll;
use errno::{fail, of_reason};

/// Number of a descriptor.
pub type Fd = i32;

/// A packet that the stack has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// When it was sent.
    pub at: Nanos,
    /// The IP packet.
    pub packet: Vec<u8>,
}

/// A host: a stack, its sockets and its clock.
pub struct Host {
    stack: Stack,
    now: Nanos,
    settings: Settings,
    address: IpAddr,
    out: VecDeque<Sent>,
    entries: BTreeMap<Fd, Entry>,
    owners: HashMap<Id, Fd>,
    listeners: HashMap<ListenerId, Fd>,
    next_port: u16,
    /// Counts events, so that edges can be distinguished from levels.
    edges: u64,
}

enum Entry {
    Tcp(Box<TcpSocket>),
    Epoll(Epoll),
}

/// A socket.
struct TcpSocket {
    family: i32,
    nonblocking: bool,
    config: Config,
    keepalive: Keepalive,
    keepalive_on: bool,
    linger: Option<u32>,
    cork: bool,
    /// The last send had MSG_MORE.
    more: bool,
    reuse_address: bool,
    /// Bound of the send queue in bytes, if the application has set it (SO_SNDBUF, doubled).
    send_limit: Option<u32>,
    receive_limit: Option<u32>,
    receive_low_water: u32,
    state: SocketState,
    /// Error to be reported once (`sk_err`).
    error: i32,
    shut_read: bool,
    shut_write: bool,
    /// When something last happened, by [`Host::edges`].
    edge: u64,
}

enum SocketState {
    /// Neither listening nor connected.
    New { bound: Option<SocketAddr> },
    /// Waiting for connections.
    Listening { id: ListenerId, queue: VecDeque<Id>, bound: SocketAddr },
    /// A connection, or one that is being opened.
    Connection { id: Id, progress: Progress, last: State },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// connect() has not succeeded yet.
    Connecting,
    /// It has succeeded, and the caller does not know yet.
    Connected,
    /// connect() has reported that it has succeeded.
    Reported,
}

fn stack(settings: &Settings) -> Stack {
    Stack::new(StackConfig {
        // Any secret will do: initial sequence numbers are mapped where they are compared.
        secret: *b"virtual time, no",
        half_open: settings.syn_cookies.half_open(),
        connections: 1 << 20,
    })
}

impl Host {
    /// A host with this address, at time 0.
    pub fn new(address: IpAddr, settings: Settings) -> Self {
        Host {
            stack: stack(&settings),
            now: 0,
            settings,
            address,
            out: VecDeque::new(),
            entries: BTreeMap::new(),
            owners: HashMap::new(),
            listeners: HashMap::new(),
            next_port: 32_768,
            edges: 0,
        }
    }

    /// The time, in nanoseconds.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Settings of sockets that are made from now on.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings of sockets that are made from now on. Settings of the whole host change only
    /// while it has no socket.
    pub fn set_settings(&mut self, settings: Settings) {
        if self.entries.is_empty() && settings.syn_cookies != self.settings.syn_cookies {
            self.stack = stack(&settings);
        }
        self.settings = settings;
    }

    /// When a timer is due; `None` if there is none.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.stack.next_deadline()
    }

    /// Moves the clock to `to`, or to the first time before it at which a timer is due. Returns the new time.
    pub fn advance(&mut self, to: Nanos) -> Nanos {
        let due = self.stack.next_deadline().filter(|due| *due <= to);
        self.now = self.now.max(due.unwrap_or(to));
        if due.is_some() {
            self.stack.on_time(self.now);
            self.settle();
        }
        self.now
    }

    /// Delivers an IP packet to the host.
    ///
    /// # Errors
    /// Why it was dropped before any connection received it.
    pub fn deliver(&mut self, packet: &[u8]) -> Result<(), Dropped> {
        packet::deliver(&mut self.stack, packet, self.now)?;
        self.settle();
        Ok(())
    }

    /// The next packet that was sent.
    pub fn next_packet(&mut self) -> Option<Sent> {
        self.out.pop_front()
    }

    /// Sends what may be sent, and passes events to the sockets.
    fn settle(&mut self) {
        while let Some(transmit) = self.stack.poll_transmit(self.now) {
            let packets = if self.settings.super_packets {
                vec![packet::encode(&transmit)]
            } else {
                packet::cut(&transmit)
            };
            let at = self.now;
            self.out.extend(packets.into_iter().map(|packet| Sent { at, packet }));
        }
        while let Some((id, events)) = self.stack.next_event() {
            self.on_event(id, events);
        }
        self.remember_states();
    }

    fn on_event(&mut self, id: Id, events: Events) {
        self.edges += 1;
        let listener = self.stack.connection(id).and_then(|connection| connection.listener());
        if events.any(Events::ACCEPTED)
            && let Some(fd) = listener.and_then(|listener| self.listeners.get(&listener))
            && let Some(Entry::Tcp(socket)) = self.entries.get_mut(fd)
            && let SocketState::Listening { queue, .. } = &mut socket.state
        {
            queue.push_back(id);
            socket.edge = self.edges;
        }
        let ended = self.stack.connection(id).and_then(|connection| connection.end());
        let Some(fd) = self.owners.get(&id) else { return };
        let Some(Entry::Tcp(socket)) = self.entries.get_mut(fd) else { return };
        socket.edge = self.edges;
        let SocketState::Connection { progress, last, .. } = &mut socket.state else { return };
        if events.any(Events::CONNECTED) && *progress == Progress::Connecting {
            *progress = Progress::Connected;
        }
        if events.any(Events::CLOSED)
            && let Some(reason) = ended
        {
            // A reset after the peer's FIN breaks a pipe (tcp_reset in Linux).
            let half_closed = *last == State::CloseWait && reason == Reason::Reset;
            socket.error = if half_closed { libc::EPIPE } else { of_reason(reason) };
        }
    }

    /// Records the states of connections: the error of a reset depends on the state before it.
    fn remember_states(&mut self) {
        for entry in self.entries.values_mut() {
            if let Entry::Tcp(socket) = entry
                && let SocketState::Connection { id, last, .. } = &mut socket.state
                && let Some(connection) = self.stack.connection(*id)
                && connection.state() != State::Closed
            {
                *last = connection.state();
            }
        }
    }

    /// `socket()`.
    ///
    /// # Errors
    /// EAFNOSUPPORT, or EPROTONOSUPPORT for all but TCP.
    pub fn socket(&mut self, family: i32, kind: i32, protocol: i32) -> Result<Fd, Stop> {
        if family != libc::AF_INET && family != libc::AF_INET6 {
            return fail(libc::EAFNOSUPPORT);
        }
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        if kind & !flags != libc::SOCK_STREAM || (protocol != 0 && protocol != libc::IPPROTO_TCP) {
            return fail(libc::EPROTONOSUPPORT);
        }
        let mut socket = TcpSocket::new(family, &self.settings);
        socket.nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        Ok(self.insert(Entry::Tcp(Box::new(socket))))
    }

    /// The lowest free number, as the kernel gives it.
    fn insert(&mut self, entry: Entry) -> Fd {
        let mut fd = 3;
        while self.entries.contains_key(&fd) {
            fd += 1;
        }
        self.entries.insert(fd, entry);
        fd
    }

    fn tcp(&mut self, fd: Fd) -> Result<&mut TcpSocket, Stop> {
        match self.entries.get_mut(&fd) {
            Some(Entry::Tcp(socket)) => Ok(socket),
            Some(Entry::Epoll(_)) => fail(libc::ENOTSOCK),
            None => fail(libc::EBADF),
        }
    }

    /// Whether a call on this socket would wait.
    pub fn is_nonblocking(&self, fd: Fd) -> bool {
        matches!(self.entries.get(&fd), Some(Entry::Tcp(socket)) if socket.nonblocking)
    }

    /// `fcntl(F_SETFL)`; only O_NONBLOCK has an effect.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub fn set_nonblocking(&mut self, fd: Fd, nonblocking: bool) -> Result<(), Stop> {
        self.tcp(fd)?.nonblocking = nonblocking;
        Ok(())
    }

    /// `close()`: what was not read yet resets the connection (RFC 2525 section 2.17).
    ///
    /// # Errors
    /// EBADF.
    pub fn close(&mut self, fd: Fd) -> Result<(), Stop> {
        let Some(entry) = self.entries.remove(&fd) else { return fail(libc::EBADF) };
        self.forget_in_epolls(fd);
        let Entry::Tcp(socket) = entry else { return Ok(()) };
        match socket.state {
            SocketState::New { .. } => {}
            SocketState::Listening { id, queue, .. } => {
                self.listeners.remove(&id);
                self.stack.unlisten(id);
                for id in queue {
                    if let Some(mut connection) = self.stack.socket(id, self.now) {
                        connection.abort();
                    }
                }
            }
            SocketState::Connection { id, .. } => {
                self.owners.remove(&id);
                if let Some(mut connection) = self.stack.socket(id, self.now) {
                    if socket.linger == Some(0) {
                        connection.abort();
                    } else {
                        connection.set_cork(false);
                        connection.close();
                    }
                }
            }
        }
        self.settle();
        Ok(())
    }

    /// The connection of a socket, if it has one.
    fn connection_of(&self, fd: Fd) -> Option<Id> {
        match self.entries.get(&fd) {
            Some(Entry::Tcp(socket)) => match socket.state {
                SocketState::Connection { id, .. } => Some(id),
                _ => None,
            },
            _ => None,
        }
    }

    /// Addresses of this end and of the peer.
    pub fn path(&self, fd: Fd) -> Option<tcp::FourTuple> {
        let id = self.connection_of(fd)?;
        self.stack.connection(id).map(|connection| connection.path())
    }

    /// Calls `act` on the connection, and processes its effects.
    fn with_connection<T>(
        &mut self,
        id: Id,
        act: impl FnOnce(&mut tcp::Socket<'_>) -> T,
    ) -> Option<T> {
        let mut connection = self.stack.socket(id, self.now)?;
        let result = act(&mut connection);
        drop(connection);
        self.settle();
        Some(result)
    }

    fn config_of(&self, socket: &TcpSocket) -> Arc<Config> {
        let mut config = socket.config.clone();
        if let Some(limit) = socket.receive_limit {
            config.receive_buffer = limit / 2;
            config.receive_buffer_max = limit / 2;
        }
        config.keepalive = socket.keepalive_on.then_some(socket.keepalive);
        Arc::new(config)
    }
}

impl TcpSocket {
    fn new(family: i32, settings: &Settings) -> Self {
        TcpSocket {
            family,
            nonblocking: false,
            config: settings.config.clone(),
            keepalive: settings.keepalive,
            keepalive_on: false,
            linger: None,
            cork: false,
            more: false,
            reuse_address: false,
            send_limit: None,
            receive_limit: None,
            receive_low_water: 1,
            state: SocketState::New { bound: None },
            error: 0,
            shut_read: false,
            shut_write: false,
            edge: 0,
        }
    }

    /// The socket of an accepted connection, with its listener's options.
    fn child(&self, id: Id, state: State) -> Self {
        TcpSocket {
            family: self.family,
            nonblocking: false,
            config: self.config.clone(),
            keepalive: self.keepalive,
            keepalive_on: self.keepalive_on,
            linger: self.linger,
            cork: self.cork,
            more: false,
            reuse_address: self.reuse_address,
            send_limit: self.send_limit,
            receive_limit: self.receive_limit,
            receive_low_water: self.receive_low_water,
            state: SocketState::Connection { id, progress: Progress::Reported, last: state },
            error: 0,
            shut_read: false,
            shut_write: false,
            edge: 0,
        }
    }

    /// The pending error, which is cleared.
    fn take_error(&mut self) -> i32 {
        std::mem::take(&mut self.error)
    }
}
