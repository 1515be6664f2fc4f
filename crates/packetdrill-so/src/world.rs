//! The engine of this process, its time, and who waits for what.
//!
//! packetdrill has two threads. The main one runs the script and lets time pass; calls that the script
//! says will block are made by the other. Time must not run on between the moment at which such a call
//! can return and the moment at which its thread has looked at the clock: that is what
//! [`World::leave`] and [`World::advance`] see to.

use std::collections::HashMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::IntoRawFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use packetdrill::sockets::{Call, Errno, Fd, Host, NAMES, Outcome, Settings, Stop};

/// Nanoseconds, as the engine counts.
pub(crate) type Nanos = u64;

/// How long, in real time, the other thread may take to look at the clock. It does at once; this is
/// only for a process that is being torn down.
const PATIENCE: Duration = Duration::from_secs(2);

/// After how long, in real time, without a call the main thread is taken to wait for the other one. It
/// does so for a second, and then gives up.
const IDLE: Duration = Duration::from_millis(300);

/// How long, in virtual time, a call of the main thread may block, and a packet may be waited for.
pub(crate) const LONGEST_WAIT: Nanos = 600_000_000_000;

static WORLD: OnceLock<World> = OnceLock::new();

/// All there is.
pub(crate) struct World {
    inside: Mutex<Inside>,
    changed: Condvar,
    main: ThreadId,
}

/// What the lock protects.
pub(crate) struct Inside {
    pub(crate) host: Host,
    /// packetdrill's descriptors, which it closes itself at the end: open files of this process.
    fds: HashMap<i32, Fd>,
    blocked: Option<Blocked>,
    /// A call has returned whose thread has not looked at the clock yet.
    returning: bool,
    /// Counts who came to look, so that a main thread that does nothing is seen.
    looks: u64,
}

struct Blocked {
    call: Call,
    result: Option<Result<Outcome, Stop>>,
}

/// Makes the engine, once.
pub(crate) fn begin() {
    WORLD.get_or_init(|| World {
        inside: Mutex::new(Inside {
            host: Host::new(IpAddr::from([192, 168, 0, 1]), settings()),
            fds: HashMap::new(),
            blocked: None,
            returning: false,
            looks: 0,
        }),
        changed: Condvar::new(),
        main: std::thread::current().id(),
    });
}

/// The engine; `None` in a process that was only preloaded.
pub(crate) fn get() -> Option<&'static World> {
    WORLD.get()
}

/// What new sockets begin with: what the namespace says and the engine has.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    for name in NAMES {
        if let Ok(value) = sys::sysctl::read(&["ipv4", name]) {
            // What the engine does not have it cannot follow; scripts that depend on it fail.
            let _ = settings.set(name, &value);
        }
    }
    let tun = sys::ethtool::Ethtool::open("tun0");
    let tso = tun.and_then(|tun| tun.offload(sys::ethtool::Offload::Tso));
    settings.super_packets = tso.unwrap_or(true);
    settings
}

impl World {
    /// Nothing in here panics half way, so what a panicked thread left is whole.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inside> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.looks += 1;
        inside
    }

    fn wait<'a>(&'a self, inside: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        self.changed.wait_timeout(inside, PATIENCE).unwrap_or_else(PoisonError::into_inner).0
    }

    fn is_main(&self) -> bool {
        std::thread::current().id() == self.main
    }

    /// Waits until the other thread has seen at what time its call returned.
    fn settled<'a>(&'a self, mut inside: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        if inside.returning && self.is_main() {
            inside = self.wait(inside);
            inside.returning = false;
        }
        inside
    }

    /// Lets time pass up to `to`, stopping where a call returns.
    pub(crate) fn advance<'a>(
        &'a self,
        mut inside: MutexGuard<'a, Inside>,
        to: Nanos,
    ) -> MutexGuard<'a, Inside> {
        loop {
            inside = self.settled(inside);
            if inside.host.now() >= to {
                return inside;
            }
            inside.step(to);
            self.go_on(&mut inside);
        }
    }

    /// A step of [`advance`](Self::advance): to `to` or to what is due before.
    pub(crate) fn step<'a>(
        &'a self,
        inside: MutexGuard<'a, Inside>,
        to: Nanos,
    ) -> MutexGuard<'a, Inside> {
        let mut inside = self.settled(inside);
        inside.step(to);
        self.go_on(&mut inside);
        self.settled(inside)
    }

    /// A call that is blocked may be able to go on.
    pub(crate) fn go_on(&self, inside: &mut Inside) {
        let Inside { host, blocked, returning, .. } = inside;
        if let Some(Blocked { call, result: result @ None }) = blocked {
            match call.attempt(host) {
                Err(Stop::Block) => {}
                done => {
                    *result = Some(done);
                    *returning = true;
                    self.changed.notify_all();
                }
            }
        }
    }

    /// The thread of a call that was blocked looks at the clock: time may pass again. Gives whether it
    /// was that thread, and the first time that it looks. (Before it makes a call, it lets time pass as
    /// the main thread does.)
    pub(crate) fn leave(&self, inside: &mut Inside) -> bool {
        if self.is_main() || !inside.returning {
            return false;
        }
        inside.returning = false;
        self.changed.notify_all();
        true
    }

    /// Makes a call, and waits if it has to.
    pub(crate) fn call(&self, mut call: Call) -> Result<Outcome, Errno> {
        let mut inside = self.lock();
        let first = call.attempt(&mut inside.host);
        self.go_on(&mut inside);
        match first {
            Ok(outcome) => return Ok(outcome),
            Err(Stop::Errno(errno)) => return Err(errno),
            Err(Stop::Block) => {}
        }
        let done = if self.is_main() {
            self.pass_time_for(inside, call)
        } else {
            self.sleep_for(inside, call)
        };
        done.map_err(|stop| match stop {
            Stop::Errno(errno) => errno,
            Stop::Block => Errno(libc::EDEADLK),
        })
    }

    /// The main thread blocks: nothing will happen but what time brings.
    fn pass_time_for<'a>(
        &'a self,
        mut inside: MutexGuard<'a, Inside>,
        mut call: Call,
    ) -> Result<Outcome, Stop> {
        let until = inside.host.now() + LONGEST_WAIT;
        loop {
            let deadline = call.deadline().unwrap_or(until).min(until);
            inside = self.step(inside, deadline);
            match call.attempt(&mut inside.host) {
                Err(Stop::Block) if inside.host.now() < until => {}
                done => return done,
            }
        }
    }

    /// The other thread blocks until the main thread has completed its call. If the main thread has
    /// nothing left to do but to wait for this one, which it does without a call of ours, time passes
    /// here.
    fn sleep_for(&self, mut inside: MutexGuard<'_, Inside>, call: Call) -> Result<Outcome, Stop> {
        inside.blocked = Some(Blocked { call, result: None });
        loop {
            let before = inside.looks;
            let (after, timeout) =
                self.changed.wait_timeout(inside, IDLE).unwrap_or_else(PoisonError::into_inner);
            inside = after;
            if timeout.timed_out() && before == inside.looks {
                let until = inside.host.now() + LONGEST_WAIT;
                inside.step(until);
                self.go_on(&mut inside);
            }
            if let Some(Blocked { result: Some(_), .. }) = &inside.blocked {
                let done = inside.blocked.take().and_then(|blocked| blocked.result);
                return done.unwrap_or(Err(Stop::Block));
            }
        }
    }
}

impl Inside {
    fn step(&mut self, to: Nanos) {
        let deadline = self.blocked.as_ref().and_then(|blocked| blocked.call.deadline());
        let deadline = deadline.filter(|deadline| *deadline > self.host.now());
        self.host.advance(deadline.map_or(to, |deadline| deadline.min(to)));
    }

    /// A descriptor of the process for one of the engine.
    pub(crate) fn publish(&mut self, fd: Fd) -> Result<i32, Errno> {
        let file = File::open("/dev/null").map_err(|_| Errno(libc::EMFILE))?;
        let public = file.into_raw_fd();
        self.fds.insert(public, fd);
        Ok(public)
    }

    /// The engine's descriptor for one of the process.
    pub(crate) fn fd(&self, public: i32) -> Result<Fd, Errno> {
        self.fds.get(&public).copied().ok_or(Errno(libc::EBADF))
    }

    /// The descriptor is closed.
    pub(crate) fn withdraw(&mut self, public: i32) {
        self.fds.remove(&public);
    }
}
