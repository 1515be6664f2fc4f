//! Programs that no library is loaded into: the supervisor that stands between them and their sockets, and its start.
//!
//! The program keeps the process of `wharf run`, so that signals, its exit status and a service manager's idea of it are as
//! ever. The supervisor is nobody's child, so that no program waits for it, and has a process group and a name of its own,
//! so that what is meant for the program or for wharf (Ctrl-C, `pkill -9 wharf`) does not end it. It ends when the program
//! has, and all that it started.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use handoff::session::PAST_SUPERVISOR;
use pair::{CALLS, FLAGGED, Supervisor};
use sys::capability::{DAC_OVERRIDE, SYS_PTRACE};
use sys::packets::PacketSocket;
use sys::poll::{Interest, PollSet};
use sys::seccomp::{self, Listener};

use crate::error::Error;

/// The supervisor's name among processes.
const NAME: &str = "nic-pair";
/// What it is told to do: to start the one that serves, or to serve.
const START: &str = "start";
const SERVE: &str = "serve";
/// How long it may take to be there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a supervisor with this environment, which has the library. The calls of this process, and of what it executes, are
/// answered there from then on.
pub(super) fn begin(environment: &[(&str, OsString)]) -> Result<(), Error> {
    let cannot = |why: io::Error| {
        Error::Usage(format!("cannot start what stands between the program and its sockets: {why}"))
    };
    let (own, others) = PacketSocket::pair().map_err(Error::Io)?;
    let others = others.as_fd().try_clone_to_owned().map_err(Error::Io)?;
    let mut start = Command::new("/proc/self/exe");
    start.arg0(NAME).arg(START).stdin(others).stdout(Stdio::null()).process_group(0);
    start.envs(environment.iter().map(|(name, value)| (name, value)));
    let ended = start.status().map_err(cannot)?;
    if !ended.success() {
        return Err(cannot(io::Error::other(format!("it has ended ({ended})"))));
    }
    let listener = seccomp::answer_elsewhere(CALLS, FLAGGED, PAST_SUPERVISOR);
    let listener = listener.map_err(|cause| match cause.kind() {
        io::ErrorKind::ResourceBusy => Error::Usage(
            "another supervisor of system calls is there already (seccomp), and there can be one only: run it outside of \
             that, or with --bypass preload"
                .to_owned(),
        ),
        _ => cannot(cause),
    })?;
    let listener = Listener::from(listener);
    if !listener.can_give() {
        return Err(Error::Usage(
            "pairs need Linux 5.14 or newer (SECCOMP_ADDFD_FLAG_SEND)".to_owned(),
        ));
    }
    own.send(&[0], &[listener.as_fd()]).map_err(cannot)?;
    drop(listener);
    hear(&own).map(drop).map_err(cannot)
}

/// Waits for a message: its descriptors.
fn hear(socket: &PacketSocket) -> io::Result<Vec<OwnedFd>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut set = PollSet::<1>::empty();
        set.add(socket.as_fd(), Interest::Read)?;
        set.wait(Some(left.as_nanos() as u64))?;
        match socket.receive(&mut [0; 1]) {
            Ok(received) if received.len == 1 => return Ok(received.descriptors),
            Ok(_) => return Err(io::Error::other("the other end has closed")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !left.is_zero() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether this process was started as a supervisor.
pub(crate) fn is_this() -> bool {
    env::args_os().next().is_some_and(|name| name == NAME)
}

/// The supervisor's own life.
pub(crate) fn run() -> Result<(), Error> {
    match env::args().nth(1).as_deref() {
        Some(START) => start().map_err(Error::Io),
        Some(SERVE) => serve().map_err(Error::Io),
        _ => Err(Error::Usage(format!("{NAME} is not for calling by hand: wharf run starts it"))),
    }
}

/// Starts the one that serves, which is nobody's child when this one has ended.
fn start() -> io::Result<()> {
    let mut serve = Command::new("/proc/self/exe");
    serve.arg0(NAME).arg(SERVE).process_group(0).spawn().map(drop)
}

fn serve() -> io::Result<()> {
    // What ends the program is not for its supervisor; the signals stay blocked and unread.
    let _signals = sys::poll::Signals::block()?;
    let _ = sys::process::set_name(NAME);
    // No folder is kept from being unmounted.
    let _ = env::set_current_dir("/");
    // Two of a connection are here, where the program has one.
    let _ = sys::process::allow_most_open_files();
    // It looks at processes of other users, if root's. All else the program could do itself, or may not have done.
    sys::capability::keep_only(&[DAC_OVERRIDE, SYS_PTRACE])?;
    let link = PacketSocket::from(io::stdin().as_fd().try_clone_to_owned()?);
    let listener = hear(&link)?.pop().ok_or_else(|| io::Error::other("nothing to answer to"))?;
    let supervisor = Supervisor::new(listener)?;
    link.send(&[0], &[])?;
    drop(link);
    supervisor.run()
}
