//! What both lines of a pair have gone through, as far as it must be known: which calls would wait for ever, and what
//! is to come before an end is at rest.

use std::os::fd::AsFd;

use super::line::{Line, seen, state};
use super::options::OPTIONS;
use super::step::{ReceiveBy, SendBy, Step, Then, UNREAD_MOST, Waits};

/// `TCP_CLOSE` (include/net/tcp_states.h).
const CLOSE: u8 = 7;
/// `TCP_FIN_WAIT1`, `TCP_LAST_ACK` and `TCP_CLOSING`: the end of the stream was not acknowledged yet.
const UNACKNOWLEDGED: [u8; 3] = [4, 9, 11];

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    shut_read: bool,
    shut_write: bool,
    app_closed: bool,
    peer_shut: bool,
    peer_closed: bool,
    /// A reset has reached this end, or will.
    app_reset: bool,
    peer_reset: bool,
    is_nonblocking: bool,
    receive_timeout: bool,
    low_water: bool,
    lingers_not: bool,
    corked: bool,
    /// What is registered in each set, of the descriptor that is used.
    registered: [Option<u32>; 2],
    /// The same of others, which may be gone while the connection is not.
    others: [Vec<u32>; 2],
}

impl Model {
    fn is_over(&self) -> bool {
        let sent = (self.shut_write || self.app_closed, self.peer_shut || self.peer_closed);
        sent == (true, true) || self.app_reset || self.peer_reset
    }

    fn is_reset(&self) -> bool {
        self.app_reset || self.peer_reset
    }

    /// Whether the step is done: not if its call would wait for ever, or fill buffers. `kernel` is at rest.
    pub(super) fn admits(&self, step: &Step, kernel: &Line) -> bool {
        match step {
            Step::PeerSend(len) => !self.peer_closed && kernel.back.unread() + len <= UNREAD_MOST,
            Step::PeerReceive(_) | Step::PeerShut | Step::PeerClose { .. } => !self.peer_closed,
            _ if self.app_closed => matches!(step, Step::Move { .. }),
            // A reset may come between two messages.
            Step::Send { by: SendBy::SendMessages, .. } if self.peer_closed => false,
            // It may be bound once more.
            Step::Odd(_) => !self.is_over(),
            Step::Send { lens, .. } => {
                kernel.out.unread() + lens.iter().sum::<usize>() <= UNREAD_MOST
            }
            Step::Receive { by, lens, flags } => self.may_receive(*by, lens, *flags, kernel),
            Step::Blocked { call, then, .. } => self.may_wait(*call, *then, kernel),
            Step::Flood { .. } | Step::Fill { .. } => {
                !self.is_reset()
                    && !self.shut_read
                    && !self.shut_write
                    && !self.peer_shut
                    && !self.peer_closed
                    && !self.low_water
                    && !self.corked
            }
            _ => true,
        }
    }

    fn may_receive(&self, by: ReceiveBy, lens: &[usize], flags: i32, kernel: &Line) -> bool {
        let takes_flags = !matches!(by, ReceiveBy::Read | ReceiveBy::Readv | ReceiveBy::Splice);
        let flags = if takes_flags { flags } else { 0 };
        let is_bounded = self.is_nonblocking
            || self.receive_timeout
            || flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) != 0;
        if is_bounded {
            return true;
        }
        let total: usize = lens.iter().sum();
        if matches!(by, ReceiveBy::Read | ReceiveBy::Readv) && total == 0 {
            return true;
        }
        let at = seen(kernel.app(), false);
        let over = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let has_all = kernel.back.unread() >= total.max(1) || at.revents & over != 0;
        let waits_for_all = flags & libc::MSG_WAITALL != 0;
        at.revents & libc::POLLIN != 0 && (has_all || !waits_for_all)
    }

    fn may_wait(&self, call: Waits, then: Then, kernel: &Line) -> bool {
        let is_quiet = !self.is_over()
            && !self.shut_read
            && !self.shut_write
            && !self.peer_shut
            && !self.peer_closed
            && !self.low_water
            && !self.is_nonblocking
            && !self.receive_timeout
            && !self.corked;
        let unread = kernel.back.unread();
        let room = match then {
            Then::Signals { .. } => unread == 0,
            then => then.sends(call).is_none_or(|len| unread + len <= UNREAD_MOST),
        };
        is_quiet
            && room
            && match call {
                Waits::Receive { len, flags } => match then.sends(call) {
                    Some(sent) if flags & libc::MSG_WAITALL != 0 => unread + sent >= len,
                    // One segment: of several the first may be read alone.
                    Some(sent) => unread == 0 && sent <= 1000,
                    // What was there is given before the error.
                    None => unread == 0,
                },
                Waits::Poll(_) => true,
                Waits::Epoll { set } => self.registered[set].is_some_and(|events| {
                    let in_only = libc::EPOLLIN as u32;
                    events & in_only != 0
                        && events & libc::EPOLLONESHOT as u32 == 0
                        && self.others[set].is_empty()
                }),
            }
    }

    /// The step was done on the kernel's line, with this first result.
    pub(super) fn took(&mut self, step: &Step, unread: (usize, usize), result: i64) {
        let (app_unread, peer_unread) = unread;
        let done = result >= 0;
        match step {
            Step::Send { .. } if result > 0 && self.peer_closed => self.app_reset = true,
            Step::PeerSend(_) if result > 0 => self.peer_sent(),
            Step::PeerShut if done => self.peer_shut = true,
            Step::PeerClose { resets } => {
                if !self.is_over() && (*resets || peer_unread > 0) {
                    self.app_reset = true;
                }
                self.peer_closed = true;
            }
            Step::Shutdown(how) if done => self.app_shuts(*how),
            Step::Dup(_) | Step::Turn if done => self.turns(),
            Step::Close { dup_only: false, .. } => {
                if !self.is_over() && (self.lingers_not || app_unread > 0) {
                    self.peer_reset = true;
                }
                self.app_closed = true;
            }
            Step::SetOption(which, value) if done => self.option(*which, *value),
            Step::NonBlocking { on, .. } if done => self.is_nonblocking = *on,
            Step::EpollAdd { set, events } | Step::EpollModify { set, events } if done => {
                self.registered[*set] = Some(*events);
            }
            Step::EpollDelete { set } if done => self.registered[*set] = None,
            Step::Blocked { call, then, .. } => match then {
                then if then.sends(*call).is_some() => self.peer_sent(),
                Then::PeerSends(_) | Then::Signals { .. } => {}
                Then::PeerShuts => self.peer_shut = true,
                Then::PeerResets => {
                    self.app_reset = true;
                    self.peer_closed = true;
                }
                Then::AppShuts(how) => self.app_shuts(*how),
            },
            _ => {}
        }
    }

    /// Another descriptor is used from now on.
    fn turns(&mut self) {
        for (registered, others) in self.registered.iter_mut().zip(&mut self.others) {
            others.extend(registered.take());
        }
    }

    fn app_shuts(&mut self, how: i32) {
        self.shut_read |= how != libc::SHUT_WR;
        self.shut_write |= how != libc::SHUT_RD;
    }

    /// Data of the peer's, which the kernel answers with a reset if nobody reads it (tcp_rcv_state_process).
    fn peer_sent(&mut self) {
        let unwanted = self.shut_read && self.shut_write;
        if (self.app_closed || unwanted) && !self.peer_shut && !self.is_reset() {
            self.peer_reset = true;
            self.app_reset = true;
        }
    }

    fn option(&mut self, which: usize, value: usize) {
        let option = &OPTIONS[which];
        let Some(value) = option.values.get(value % option.values.len().max(1)) else { return };
        let value = *value;
        match (option.level, option.name) {
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => self.receive_timeout = value != 0,
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => self.low_water = value > 1,
            (libc::SOL_SOCKET, libc::SO_LINGER) => self.lingers_not = value == 0,
            (libc::IPPROTO_TCP, libc::TCP_CORK) => self.corked = value != 0,
            _ => {}
        }
    }

    /// What a line waits for before it is at rest, if it does.
    pub(super) fn awaits(&self, line: &Line) -> Option<&'static str> {
        if let Some(app) = &line.app {
            let (app, flow) = (seen(app.as_fd(), false), &line.back);
            if self.is_over() && app.is_connected {
                return Some("the application is to see the end of the connection");
            }
            if self.app_reset {
                // What was unread is unread still, and no more comes.
            } else if app.unread != flow.unread() as i64 {
                return Some("the application is to see all bytes of the peer's");
            } else if (self.peer_shut || self.peer_closed) && app.revents & libc::POLLRDHUP == 0 {
                return Some("the application is to see the end of the stream");
            }
        }
        // The peer may delay the acknowledgment, which is an edge of its own.
        let tells_edges = [0, 1].into_iter().any(|set| self.is_edge(set));
        if let Some(app) = line.app.as_ref().filter(|_| self.shut_write && tells_edges)
            && UNACKNOWLEDGED.contains(&state(app.as_fd()))
        {
            return Some("the end of the application's stream is to be acknowledged");
        }
        if let Some(peer) = &line.peer {
            let (peer_seen, flow) = (seen(peer.as_fd(), true), &line.out);
            if self.peer_reset {
                if state(peer.as_fd()) != CLOSE {
                    return Some("the peer is to see a reset");
                }
            } else if !self.app_reset && peer_seen.unread != flow.unread() as i64 {
                return Some("the peer is to see all bytes of the application's");
            } else if (self.shut_write || self.app_closed)
                && peer_seen.revents & libc::POLLRDHUP == 0
            {
                return Some("the peer is to see the end of the stream");
            }
        }
        None
    }

    /// Whether there is nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        self.app_closed && self.peer_closed
    }

    /// Whether a set reports each change once.
    pub(super) fn is_edge(&self, set: usize) -> bool {
        let once = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
        let mut all = self.registered[set].iter().chain(&self.others[set]);
        all.any(|events| events & once == libc::EPOLLET as u32)
    }
}
