//! Processes that arrive at the agent, and what they say on their sockets.

use std::io;
use std::time::{Duration, Instant};

use sys::foreign::Foreign;

use super::admission::{Newcomer, Said};
use super::session::{Next, Session};
use super::{FIRST, SharedProcess, Work};

/// Processes that are accepted before others are heard.
const ACCEPTS: usize = 64;

impl Work {
    /// Accepts processes that want a session, some at a time.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let socket = match self.listener.socket.accept() {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!("a process could not begin a session: {error}");
                    // No descriptor is left: it stays in the queue, and a loop without a pause would spin.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            };
            let Ok(peer) = socket.peer() else { continue };
            let socket = Foreign::new(socket, peer.uid);
            if self.common.is_stopping {
                continue;
            }
            let Work { sessions, admission, set, .. } = self;
            let is_free = |number: &u32| !sessions.contains_key(number) && !admission.has(*number);
            let number = (0..).find(is_free).unwrap_or_default();
            // One that is not admitted is counted.
            let Ok(fd) = admission.admit(number, socket, peer, Instant::now()) else { continue };
            if let Err(error) = set.add(fd, FIRST + u64::from(number)) {
                // It loses its place as one that says nothing.
                tracing::warn!("a process could not begin a session: {error}");
            }
        }
    }

    /// Reads what the process of this number has said.
    pub(super) fn read(&mut self, number: u32) {
        let Some(session) = self.sessions.get_mut(&number) else { return self.hear_first(number) };
        match session.read(&mut self.common) {
            Next::GoOn => return,
            Next::End => {}
            Next::Broken(why) => self.admission.is_broken(session.owner(), &why),
        }
        if let Some(session) = self.sessions.remove(&number) {
            self.end(number, session);
        }
    }

    /// What a process says first.
    fn hear_first(&mut self, number: u32) {
        match self.admission.read(number) {
            Said::Nothing => {}
            Said::Hello(newcomer) => self.begin(number, newcomer),
            Said::Gone(newcomer, broken) => {
                if let Some(why) = broken {
                    self.admission.is_broken(newcomer.peer, &why);
                }
                self.turn_away(&newcomer);
            }
        }
    }

    /// Begins the session of a process.
    fn begin(&mut self, number: u32, newcomer: Newcomer) {
        let peer = newcomer.peer;
        let process = match SharedProcess::new(self.layout, peer.uid) {
            Ok(process) => process,
            Err(error) => {
                tracing::warn!("process {} could not begin a session: {error}", peer.pid);
                return self.turn_away(&newcomer);
            }
        };
        let session = Session::new(number, newcomer.socket, peer, process);
        session.say_policy(&self.policy);
        if let Err(error) = session.welcome(&mut self.common) {
            tracing::warn!("process {} could not begin a session: {error}", peer.pid);
            self.end(number, session);
        } else {
            self.sessions.insert(number, session);
        }
    }

    /// A session is over: what is left of it is told by the worker.
    fn end(&mut self, number: u32, mut session: Session) {
        let _ = self.set.remove(session.as_fd());
        session.end(&self.common);
        self.sessions.insert(number, session);
    }

    /// Processes that have not said Hello in time are not waited for any longer.
    pub(super) fn drop_silent(&mut self) {
        let now = Instant::now();
        while let Some(newcomer) = self.admission.next_silent(now) {
            self.turn_away(&newcomer);
        }
    }

    /// A process has no session. Its socket may be closed some time later.
    fn turn_away(&mut self, newcomer: &Newcomer) {
        let _ = self.set.remove(&newcomer.socket);
        self.admission.leave(newcomer.peer.uid);
    }
}
