//! Calls that may block.

use std::net::SocketAddr;

use tcp::Nanos;

use super::{EpollEvent, Fd, Host, Stop};

/// One of poll()'s descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollFd {
    /// The descriptor; a negative one is ignored.
    pub fd: Fd,
    /// Events that are requested.
    pub events: i16,
    /// Events that have occurred.
    pub revents: i16,
}

/// A call in progress.
#[derive(Clone, Debug)]
pub enum Call {
    /// connect()
    Connect {
        /// The socket.
        fd: Fd,
        /// Address of the peer.
        to: SocketAddr,
        /// Whether it has begun, and waits.
        begun: bool,
    },
    /// accept()
    Accept {
        /// The listener.
        fd: Fd,
    },
    /// recv()
    Receive {
        /// The socket.
        fd: Fd,
        /// Most bytes.
        len: usize,
        /// MSG_*
        flags: i32,
    },
    /// send()
    Send {
        /// The socket.
        fd: Fd,
        /// The bytes to send.
        bytes: Vec<u8>,
        /// Bytes that were queued already.
        done: usize,
        /// MSG_*
        flags: i32,
    },
    /// poll()
    Poll {
        /// The descriptors.
        fds: Vec<PollFd>,
        /// Deadline; `None` for none.
        until: Option<Nanos>,
    },
    /// epoll_wait()
    EpollWait {
        /// The epoll descriptor.
        fd: Fd,
        /// Most events.
        most: usize,
        /// Deadline; `None` for none.
        until: Option<Nanos>,
    },
}

/// Result of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// A new socket, and its peer.
    Accepted(Fd, SocketAddr),
    /// Bytes that were read.
    Received(Vec<u8>),
    /// Number of bytes that were queued.
    Sent(usize),
    /// The descriptors, with the events that have occurred.
    Polled(Vec<PollFd>),
    /// Events.
    Events(Vec<EpollEvent>),
}

impl Outcome {
    /// The call's return value.
    pub fn value(&self) -> i64 {
        match self {
            Outcome::Done => 0,
            Outcome::Accepted(fd, _) => i64::from(*fd),
            Outcome::Received(bytes) => bytes.len() as i64,
            Outcome::Sent(count) => *count as i64,
            Outcome::Polled(fds) => fds.iter().filter(|fd| fd.revents != 0).count() as i64,
            Outcome::Events(events) => events.len() as i64,
        }
    }
}

impl Call {
    /// When the call times out.
    pub fn deadline(&self) -> Option<Nanos> {
        match self {
            Call::Poll { until, .. } | Call::EpollWait { until, .. } => *until,
            _ => None,
        }
    }

    /// Continues the call as far as possible now.
    ///
    /// # Errors
    /// [`Stop::Block`] to try again later, or the call's error.
    pub fn attempt(&mut self, host: &mut Host) -> Result<Outcome, Stop> {
        match self {
            Call::Connect { fd, to, begun } => {
                let result = if *begun { host.finish_connect(*fd) } else { host.connect(*fd, *to) };
                *begun = true;
                result.map(|()| Outcome::Done)
            }
            Call::Accept { fd } => host.accept(*fd).map(|(fd, peer)| Outcome::Accepted(fd, peer)),
            Call::Receive { fd, len, flags } => {
                let mut buffer = vec![0; *len];
                let count = host.receive(*fd, &mut buffer, *flags)?;
                buffer.truncate(count);
                Ok(Outcome::Received(buffer))
            }
            Call::Send { fd, bytes, done, flags } => send(host, *fd, bytes, done, *flags),
            Call::Poll { fds, until } => {
                for fd in fds.iter_mut() {
                    fd.revents = host.poll_one(fd.fd, fd.events);
                }
                let some = fds.iter().any(|fd| fd.revents != 0);
                if some || is_over(*until, host) {
                    Ok(Outcome::Polled(fds.clone()))
                } else {
                    Err(Stop::Block)
                }
            }
            Call::EpollWait { fd, most, until } => {
                let events = host.epoll_take(*fd, *most)?;
                if events.is_empty() && !is_over(*until, host) {
                    return Err(Stop::Block);
                }
                Ok(Outcome::Events(events))
            }
        }
    }
}

fn is_over(until: Option<Nanos>, host: &Host) -> bool {
    until.is_some_and(|until| until <= host.now())
}

/// A blocking call returns when all is queued; one that does not block returns what was queued.
fn send(
    host: &mut Host,
    fd: Fd,
    bytes: &[u8],
    done: &mut usize,
    flags: i32,
) -> Result<Outcome, Stop> {
    loop {
        match host.send(fd, &bytes[*done..], flags) {
            Ok(count) => {
                *done += count;
                if *done == bytes.len() {
                    return Ok(Outcome::Sent(*done));
                }
            }
            Err(Stop::Errno(_)) if *done > 0 => return Ok(Outcome::Sent(*done)),
            Err(stop) => return Err(stop),
        }
    }
}
