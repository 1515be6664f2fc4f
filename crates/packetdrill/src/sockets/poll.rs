//! Readiness of sockets for poll() (`tcp_poll` in Linux).

use super::{Entry, Fd, Host, Progress, SocketState};

const IN: i32 = (libc::POLLIN | libc::POLLRDNORM) as i32;
const OUT: i32 = (libc::POLLOUT | libc::POLLWRNORM) as i32;
const HUP: i32 = libc::POLLHUP as i32;
const ERR: i32 = libc::POLLERR as i32;

impl Host {
    /// Events that hold of a descriptor now: POLLIN, POLLOUT and so on.
    pub(super) fn ready(&mut self, fd: Fd) -> i32 {
        let socket = match self.entries.get(&fd) {
            Some(Entry::Tcp(socket)) => socket,
            Some(Entry::Epoll(_)) => return if self.epoll_has_events(fd) { IN } else { 0 },
            None => return i32::from(libc::POLLNVAL),
        };
        let error = if socket.error == 0 { 0 } else { ERR };
        match &socket.state {
            SocketState::New { .. } => OUT | HUP | error,
            SocketState::Listening { queue, .. } => {
                if queue.is_empty() {
                    0
                } else {
                    IN
                }
            }
            SocketState::Connection { progress: Progress::Connecting, .. } if error == 0 => 0,
            SocketState::Connection { id, .. } => error | self.ready_connection(fd, *id),
        }
    }

    fn ready_connection(&mut self, fd: Fd, id: tcp::Id) -> i32 {
        let (shut_write, low_water) = match self.tcp(fd) {
            Ok(socket) => (socket.shut_write, socket.receive_low_water as usize),
            Err(_) => (true, 1),
        };
        let ended = self.has_ended(fd, id);
        let over = self.stack.connection(id).is_none_or(|connection| connection.end().is_some());
        let readable = self.stack.connection(id).map_or(0, |c| c.readable_len());
        let mut ready = 0;
        if over || (ended && shut_write) {
            ready |= HUP;
        }
        if ended {
            ready |= IN | libc::POLLRDHUP as i32;
        }
        if readable >= low_water.max(1) {
            ready |= IN;
        }
        if shut_write || over || self.is_writable(fd, id) {
            ready |= OUT;
        }
        if self.stack.connection(id).is_some_and(|connection| connection.is_urgent()) {
            ready |= libc::POLLPRI as i32;
        }
        ready
    }

    /// Result of poll() for one descriptor: the events requested, and those always reported.
    pub(super) fn poll_one(&mut self, fd: Fd, events: i16) -> i16 {
        if fd < 0 {
            return 0;
        }
        let always = ERR | HUP | i32::from(libc::POLLNVAL);
        (self.ready(fd) & (i32::from(events) | always)) as i16
    }
}
