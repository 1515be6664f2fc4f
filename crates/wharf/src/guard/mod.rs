//! The guard: a small process that puts the wire back as it was, however wharf ends.
//!
//! `wharf up` starts it before it changes anything and keeps the only other end of its standard
//! input. That closes when wharf ends, by itself or by `kill -9`; the guard then waits until the
//! kernel has taken the host interface away and restores the wire. It has a process group and a
//! name of its own, so that what is meant for wharf (Ctrl-C, `pkill -9 wharf`) does not end it.
//! Should it die, wharf starts another.
//!
//! While wharf runs it is told what the host interface has, which is what the wire is to have then. A service manager
//! keeps the same, for the next wharf, should both be killed at once.

mod before;
mod kept;
mod link;
mod told;

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nic::handoff::guard::{GuardEnd, NicEnd, Survivors};
use nic::mirror::Latest;
use sys::interface::Interface;
use sys::netlink::neighbour::Resolved;
use sys::poll::{Interest, PollSet};

pub(crate) use before::Before;
pub(crate) use kept::{Keeping, put_back_earlier};

use self::link::Link;
use self::told::{Told, say_before, say_end, say_latest, say_made};
use crate::error::Error;
use crate::log::tell;
use crate::serving::give_up_rights;

/// The guard's name among processes.
const NAME: &str = "nic-guard";
/// How long the kernel may take to remove the interface of a process that has ended.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a guard may take to read what it is told at the start and at the end.
const READING_PATIENCE: Duration = Duration::from_secs(30);
/// The pause before a guard that has died is followed by another: none, then this, twice that ...
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// ... up to this. One that has lived for so long was well.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// wharf's hold on its guard.
#[derive(Debug)]
pub(crate) struct Guard {
    before: Before,
    /// The process, unless it has died.
    running: Option<(Child, Link)>,
    /// By which it is to be told of the host's connections, if that was not passed on yet.
    handoffs: Option<NicEnd>,
    /// When it started, or was last tried to.
    started: Instant,
    /// How long to wait after the next death.
    pause: Duration,
    /// When to start another.
    due: Option<Instant>,
    /// Said once wharf has made the host interface, whose end the guard then waits for.
    made: Option<u32>,
    latest: Option<Latest>,
    keeping: Option<Keeping>,
}

impl Guard {
    /// Starts a guard for a wire that looked like `before`.
    pub(crate) fn start(before: Before, keeping: Option<Keeping>) -> Result<Guard, Error> {
        let mut guard = Guard {
            before,
            running: None,
            handoffs: None,
            started: Instant::now(),
            pause: Duration::ZERO,
            due: None,
            made: None,
            latest: None,
            keeping,
        };
        guard.keep();
        guard.spawn().map_err(Error::Guard)?;
        Ok(guard)
    }

    /// The guard finds in its socket, from its first moment, all that there is room for; were it
    /// written later, a `kill -9` of wharf in between would leave a guard that knows nothing.
    fn spawn(&mut self) -> io::Result<()> {
        self.started = Instant::now();
        let (mut link, reader) = Link::new(self.all())?;
        link.flush()?;
        let (nic, own) = nic::handoff::guard::ends()?;
        if let Some(keeping) = &self.keeping {
            nic.tell_of(&keeping.inventory)?;
        }
        let mut child = Command::new("/proc/self/exe")
            .arg0(NAME)
            // So that a list of processes tells guards apart.
            .arg(&self.before.host)
            .process_group(0)
            .stdin(OwnedFd::from(reader))
            // Nothing is written there: it is what the NIC tells of the host's connections.
            .stdout(OwnedFd::from(own))
            .spawn()?;
        if let Err(error) = link.flush_all(Instant::now() + READING_PATIENCE) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        tracing::info!("process {} guards {}", child.id(), self.before.wire.saved.name);
        self.running = Some((child, link));
        self.handoffs = Some(nic);
        Ok(())
    }

    /// All that a guard is to know.
    fn all(&self) -> Vec<u8> {
        let mut all = say_before(&self.before);
        all.extend(self.made.map(say_made).unwrap_or_default());
        all.extend(self.latest.as_ref().map(say_latest).unwrap_or_default());
        all
    }

    /// Has the service manager keep that, too.
    fn keep(&mut self) {
        let all = self.all();
        if let Some(keeping) = &mut self.keeping {
            keeping.keep(&all);
        }
    }

    /// The service manager, if there is one.
    pub(crate) fn keeping(&self) -> Option<&Keeping> {
        self.keeping.as_ref()
    }

    /// By which the NIC tells this guard of the host's connections; once for each guard.
    pub(crate) fn handoffs(&mut self) -> Option<NicEnd> {
        self.handoffs.take()
    }

    /// Tells the guard that the interface of this index is wharf's.
    pub(crate) fn host_made(&mut self, index: u32) {
        self.made = Some(index);
        if let Some((_, link)) = &mut self.running {
            link.say(&say_made(index));
        }
        self.keep();
        self.flush();
    }

    /// Tells the guard what the wire is to have in the end.
    pub(crate) fn learn(&mut self, latest: &Latest) {
        if let Some((_, link)) = &mut self.running {
            link.say_latest(say_latest(latest));
        }
        tracing::debug!("the guard is told what {} gets back", self.before.wire.saved.name);
        self.latest = Some(latest.clone());
        self.keep();
        self.flush();
    }

    /// What to wait for until [`flush`](Self::flush) can go on, if anything.
    pub(crate) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref().filter(|(_, link)| link.waits()).map(|(_, link)| link.as_fd())
    }

    /// Tells the guard what it has not been told yet, as far as it reads.
    pub(crate) fn flush(&mut self) {
        // One that is gone is found by `watch`.
        let _ = self.running.as_mut().map(|(_, link)| link.flush());
        self.keeping.iter_mut().for_each(Keeping::flush);
    }

    /// Starts another guard if this one has died, after a pause that grows when it dies again and
    /// again. To be called now and then, and when a child has ended.
    pub(crate) fn watch(&mut self) {
        if let Some((child, _)) = &mut self.running {
            match child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) => self.plan(&format!("the guard has died ({status})")),
                Err(error) => self.plan(&format!("the guard is lost ({error})")),
            }
            self.running = None;
        }
        if self.due.is_some_and(|due| Instant::now() >= due) {
            match self.spawn() {
                Ok(()) => self.due = None,
                Err(error) => self.plan(&format!("no guard can be started ({error})")),
            }
        }
    }

    /// Plans the start of another, and says so.
    fn plan(&mut self, why: &str) {
        if self.started.elapsed() > LONGEST_PAUSE {
            self.pause = Duration::ZERO;
        }
        let when = match self.pause {
            Duration::ZERO => "now".to_owned(),
            pause => format!("in {} ms", pause.as_millis()),
        };
        tell(&format!("{why}; another is started {when}"));
        self.due = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }

    /// Lets the guard restore the wire, and waits until it has. If it cannot, or has been killed
    /// just now, it is done from here.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let keeping = self.keeping.take();
        self.put_back()?;
        keeping.into_iter().for_each(Keeping::finish);
        Ok(())
    }

    fn put_back(mut self) -> Result<(), Error> {
        if let Some((mut child, mut link)) = self.running.take() {
            link.say(&say_end());
            let told = link.flush_all(Instant::now() + READING_PATIENCE);
            if told.is_err() {
                // It does not know the latest, so it must not act.
                let _ = child.kill();
            }
            drop(link);
            if child.wait().is_ok_and(|ended| ended.success()) {
                tracing::info!("the guard has put back {}", self.before.wire.saved.name);
                return Ok(());
            }
        }
        tracing::info!("no guard puts back {}: wharf does", self.before.wire.saved.name);
        Ok(self.before.restore(self.latest.as_ref(), &Resolved::default())?)
    }
}

impl Drop for Guard {
    /// What ends wharf before it is up is no death of its, and wharf says what it is.
    fn drop(&mut self) {
        if let Some((_, link)) = &mut self.running {
            link.say(&say_end());
            // A guard that does not read is not waited for.
            let _ = link.flush();
        }
    }
}

/// Whether this process was started as a guard.
pub(crate) fn is_this() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// The guard's own life.
pub(crate) fn run() -> Result<(), Error> {
    // What ends wharf is not for the guard; the signals stay blocked and unread.
    let _signals = sys::poll::Signals::block().map_err(Error::Io)?;
    let _ = sys::process::set_name(NAME);
    // All that it puts back is of the network; and it is to be put back in any case.
    let _ = give_up_rights();
    let wharf = Guarded::parent();
    let (told, survivors) = listen().map_err(Error::Io)?;
    if told.before().is_none() {
        let why = "guard is not for calling by hand: wharf up starts it";
        return Err(Error::Usage(why.to_owned()));
    }
    let result = put_back(&told, survivors, wharf.as_ref());
    // A wharf that lives tries again, and says what the matter is.
    if told.has_ended {
        result.map_err(|error| Error::LeftToOthers(Box::new(error)))
    } else {
        result
    }
}

/// Puts back what a wharf has left that has died.
fn put_back(told: &Told, survivors: Survivors, wharf: Option<&Guarded>) -> Result<(), Error> {
    let nothing = || io::Error::other("nothing says how the wire was");
    let before = told.before().ok_or_else(nothing).map_err(Error::Io)?;
    let has_addresses = told.made.filter(|_| before.takes_addresses());
    let resolved = has_addresses.map_or_else(Resolved::default, Resolved::of);
    // While the host interface has the addresses; it goes after this.
    let taken = survivors.take_over().map_err(Error::Io)?;
    let Some(mut outcome) = taken else { return Ok(()) };
    if let Some(far_end) = &before.far_end {
        delete_veth(far_end);
    }
    if let Some(index) = told.made {
        end(index);
    }
    let result = before.restore(told.latest().as_ref(), &resolved);
    wharf.into_iter().for_each(Guarded::wait_until_gone);
    let (restored, lost) = outcome.resume();
    if !told.has_ended || restored + lost.len() > 0 {
        let name = &before.wire.saved.name;
        tell(&death(name, result.is_ok(), restored, lost.len()));
        lost.iter().for_each(|why| tell(why));
    }
    result?;
    outcome.finish();
    Ok(())
}

/// What is logged of the death of a wharf: what became of its wire, and of the connections that it ran.
fn death(wire: &str, is_back: bool, restored: usize, lost: usize) -> String {
    let wire = match is_back {
        true => format!("{wire} is as it was before"),
        false => format!("{wire} is not as it was before"),
    };
    match restored + lost {
        0 => format!("wharf has died: {wire}; there were no connections to put back"),
        _ => format!(
            "wharf has died: {wire}; {restored} connections are the kernel's again, {lost} are lost"
        ),
    }
}

/// The wharf that is guarded.
#[derive(Debug)]
struct Guarded {
    pid: u32,
    pidfd: OwnedFd,
}

impl Guarded {
    /// None if it has ended already.
    fn parent() -> Option<Guarded> {
        let pid = std::os::unix::process::parent_id();
        sys::process::pidfd_open(pid).ok().map(|pidfd| Guarded { pid, pidfd })
    }

    /// Waits until all is closed that it had, if it has been killed: the guard hears of its end before. Until then the wire
    /// may drop what the kernel sends and is sent, and a second passes until what a connection sends first is sent again.
    fn wait_until_gone(&self) {
        // One that ends in order waits for its guard; one that dies has lost its memory first (proc_pid_statm(5)).
        let memory = std::fs::read_to_string(format!("/proc/{}/statm", self.pid));
        if !memory.is_ok_and(|memory| memory.starts_with("0 ")) {
            return;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match sys::poll::poll(&[self.pidfd.as_fd()], Some(left.as_nanos() as u64)) {
                // A signal has come.
                Ok(ready) if ready.is_empty() && !left.is_zero() => {}
                _ => return,
            }
        }
    }
}

/// Takes what is told until wharf has ended.
fn listen() -> io::Result<(Told, Survivors)> {
    let (mut told, mut survivors) = (Told::default(), Survivors::default());
    let mut handoffs = Some(GuardEnd::from(io::stdout().as_fd().try_clone_to_owned()?));
    let mut stdin = io::stdin().lock();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut set = PollSet::new();
        let first = set.add(stdin.as_fd(), Interest::Read)?;
        let second = match &handoffs {
            Some(handoffs) => Some(set.add(handoffs.as_fd(), Interest::Read)?),
            None => None,
        };
        set.wait(None)?;
        let (is_told, is_told_more) =
            (set.readable(first), second.is_some_and(|second| set.readable(second)));
        let hears_on = match &handoffs {
            Some(end) if is_told_more => survivors.hear(end).unwrap_or(false),
            _ => true,
        };
        handoffs = handoffs.filter(|_| hears_on);
        if !is_told {
            continue;
        }
        match stdin.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => told.hear(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(end) = &handoffs {
        // What was told last; that the other end is closed ends it.
        let _ = survivors.hear(end);
    }
    Ok((told, survivors))
}

/// Deletes a host interface that is a veth, by its far end, which nothing else uses: wharf
/// may have died before it could say that it had made it.
fn delete_veth(far_end: &str) {
    let found = Interface::by_name(far_end);
    if found.is_ok_and(|found| found.kind.as_deref() == Some("veth")) {
        let _ = sys::netlink::link::delete(far_end);
    }
}

/// Deletes a host interface that is a TAP, of which the service manager may have a queue, and waits until it is gone.
fn end(index: u32) {
    if let Ok(found) = Interface::by_index(index)
        && found.kind.as_deref() == Some("tun")
    {
        let _ = sys::netlink::link::delete(&found.name);
    }
    let since = Instant::now();
    while Interface::by_index(index).is_ok() {
        if since.elapsed() > PATIENCE {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
