//! The loop: calls of the program's are answered, and bytes moved, as they come.

mod asking;
mod making;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use sys::epoll::Epoll;
use sys::seccomp::{Listener, State, Waiting};

use crate::accepts::Accepts;
use crate::call::Call;
use crate::caller::{Caller, Done, Fault};
use crate::connects::Connects;
use crate::relays::{Cookie, Relays};

/// Numbers in the set: the listener's, and by their highest bits those of connections and of calls that wait.
const LISTENER: u64 = 0;
const KIND: u64 = 3 << 62;
const RELAY: u64 = 1 << 62;
const ACCEPT: u64 = 2 << 62;
const CONNECT: u64 = 3 << 62;

/// Calls that are answered before bytes are moved.
const CALLS_AT_ONCE: usize = 32;
/// How often, in milliseconds, it is looked whether calls that wait were interrupted, of which nothing tells.
const LOOK_AFTER: u16 = 100;

/// Descriptors that are left for what passes: those of answers, and its own.
const RESERVE: u64 = 64;

/// See the module's documentation.
pub struct Supervisor {
    listener: Listener,
    epoll: Epoll,
    relays: Relays,
    accepts: Accepts,
    connects: Connects,
    /// The pair of the next connection, made before that is accepted: it is nobody's loss if there can be none.
    pair: Option<(UnixStream, UnixStream)>,
    /// Descriptors that connections and calls that wait may have.
    most: u64,
    is_short: bool,
    /// Of calls that wait.
    next: u64,
    looked: Instant,
    /// When the first of them has waited long enough, or an earlier instant.
    due: Option<Instant>,
}

impl Supervisor {
    /// For the program whose calls this descriptor brings: see [`sys::seccomp::answer_elsewhere`].
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn new(listener: OwnedFd) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER)?;
        let allowed = sys::process::open_files_allowed()?;
        Ok(Supervisor {
            listener: listener.into(),
            epoll,
            relays: Relays::new(RELAY),
            accepts: Accepts::default(),
            connects: Connects::default(),
            pair: None,
            most: allowed.saturating_sub(RESERVE).max(allowed / 2),
            is_short: false,
            next: 0,
            looked: Instant::now(),
            due: None,
        })
    }

    /// With so many descriptors for connections, and for calls that wait, instead of nearly all that the process may have:
    /// what comes when they are used is the kernel's.
    #[must_use]
    pub fn with_descriptors(mut self, most: u64) -> Self {
        self.most = most;
        self
    }

    /// Serves the program and what it starts, until all of that has ended, and all that they have sent is TCP's.
    ///
    /// # Errors
    /// Those of epoll_wait(2), and of the ioctl(2) that receives calls.
    pub fn run(mut self) -> io::Result<()> {
        let mut is_over = false;
        while !(is_over && self.relays.is_empty()) {
            self.epoll.wait(self.patience())?;
            let ready: Vec<u64> = self.epoll.ready().collect();
            for number in ready {
                match number & KIND {
                    RELAY => self.relays.turn(&self.epoll, number & !KIND),
                    ACCEPT => self.try_accept(number & !KIND),
                    CONNECT => self.try_connect(number & !KIND),
                    _ => is_over |= self.answer_all()?,
                }
            }
            while let Some(number) = self.accepts.parked_with_spare() {
                // It is answered by this, or waits no more.
                self.try_accept(number);
            }
            self.relays.turn_all(&self.epoll);
            if self.has_parked() && self.until_looked() == 0 {
                self.look_after();
            }
        }
        Ok(())
    }

    /// Whether there are descriptors for another connection. Without them it is the kernel's, with all that it has there: the
    /// program may have more than its supervisor, who needs two for each of its own.
    fn has_room(&mut self) -> bool {
        let waiting = self.accepts.parked.len() + self.connects.all.len();
        let has = ((2 * self.relays.len() + waiting) as u64) < self.most;
        if !has && !std::mem::replace(&mut self.is_short, true) {
            let most = self.most;
            tracing::warn!(
                "connections stay with the kernel from now on while {most} descriptors are in use"
            );
        }
        has
    }

    fn has_parked(&self) -> bool {
        !self.accepts.parked.is_empty() || !self.connects.all.is_empty() || self.accepts.has_spare()
    }

    /// How long to wait, in milliseconds.
    fn patience(&self) -> u16 {
        match () {
            () if self.relays.has_more() => 0,
            () if self.has_parked() => self.until_looked(),
            () => u16::MAX,
        }
    }

    /// When to look after calls that wait: in so many milliseconds.
    fn until_looked(&self) -> u16 {
        let next = self.looked + Duration::from_millis(LOOK_AFTER.into());
        let next = self.due.map_or(next, |due| due.min(next));
        let left = next.saturating_duration_since(Instant::now());
        // Not before that.
        left.as_micros().div_ceil(1000).try_into().unwrap_or(LOOK_AFTER)
    }

    /// A call waits until then.
    fn waits_until(&mut self, until: Option<Instant>) {
        self.due = until.into_iter().chain(self.due).min();
    }

    /// Answers calls that wait. Returns whether there will be none any more.
    fn answer_all(&mut self) -> io::Result<bool> {
        for _ in 0..CALLS_AT_ONCE {
            match self.listener.state()? {
                State::Quiet => break,
                State::Over => {
                    self.epoll.remove(&self.listener)?;
                    self.accepts.parked.clear();
                    self.connects.all.clear();
                    return Ok(true);
                }
                State::Waits => {
                    if let Some(waiting) = self.listener.receive()? {
                        self.answer(waiting);
                    }
                }
            }
        }
        Ok(false)
    }

    fn answer(&mut self, waiting: Waiting) {
        let result = self.call(waiting);
        Caller::new(&self.listener, waiting).end(result);
    }

    fn call(&mut self, waiting: Waiting) -> Result<Done, Fault> {
        if !matches!(waiting.call, libc::SYS_connect | libc::SYS_getsockopt) {
            self.connects.forget(waiting.thread);
        }
        let Some((fd, call)) = Call::of(&waiting) else {
            // The others make epoll sets.
            self.connects.sets.forget();
            return Err(Fault::Kernel);
        };
        let socket = Caller::new(&self.listener, waiting).file(fd)?;
        // What has none is no socket.
        let cookie = Cookie::of(&socket).map_err(|_| Fault::Kernel)?;
        match call {
            Call::Accept { peer, flags } => self.accept(waiting, (socket, cookie), peer, flags),
            Call::Connect { to, len } => self.connect(waiting, fd, (socket, cookie), (to, len)),
            Call::Name { whose, room } => self.name(waiting, cookie, whose, room),
            Call::Option { key, room } => self.option(waiting, (socket, cookie), key, room),
            Call::SetOption { key, value, len } => {
                self.set_option(waiting, cookie, key, (value, len))
            }
            Call::Errors => self.errors(cookie),
        }
    }
}
