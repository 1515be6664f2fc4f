//! The device's Unix socket: who may connect, and a thread for each process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma::mpa::Config;
use rdma::session::{MESSAGE_MAX, Reply, Request};
use serde_json::Value;
use sys::foreign::Foreign;
use sys::packets::{PacketListener, PacketSocket, Received};
use sys::poll::{Signals, poll};
use sys::process::{Owner, PeerCredentials, Signal, owner, uid};
use sys::process_memory::ProcessMemory;

use crate::process::Serving;
use crate::stats::{Registry, Served};
use crate::terms::Terms;

/// Most processes at once.
const PROCESSES_MAX: usize = 256;
/// How long a process may need for its first message, or to read counters, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;
/// How long the device rests when it could accept nobody.
const REST: u64 = 100_000_000;
/// What asks for counters, as the first message.
const STATS: &[u8] = b"stats";
/// Bytes of a message with some of them.
const CHUNK: usize = 32 << 10;
const EPERM: i32 = 1;

/// Why there is no device, or no answer of one.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another serves there.
    #[error("a device serves at {0} already; `wharf rdma stats` shows it")]
    Taken(String),
    /// No device is there.
    #[error("no device serves at {0}; start one with `wharf rdma`")]
    None(String),
    /// Whoever serves there is another user.
    #[error("the device at {address} is of {owner}, who is neither you nor root")]
    Stranger {
        /// Where.
        address: String,
        /// Who.
        owner: Owner,
    },
    /// A peer that is shown with this process's user id may be anybody.
    #[error(
        "user {0} is what this user namespace calls everybody whom it does not know, so that a device and its programs \
         cannot tell their own user from others: be another user there, as by `unshare --map-root-user`"
    )]
    Anybody(u32),
    /// The kernel says no.
    #[error("{0}")]
    Os(#[from] io::Error),
}

/// The address at which a user's device serves, if no other is given: in the abstract namespace (unix(7)), which belongs
/// to the network namespace, as the TCP sockets of the device do.
pub fn default_address() -> String {
    format!("@wharf-rdma-{}", uid())
}

/// That this process's user is told from others, by credentials of Unix sockets.
fn is_somebody() -> Result<(), ServeError> {
    match owner(uid()) {
        Owner::Unknown => Err(ServeError::Anybody(uid())),
        _ => Ok(()),
    }
}

fn parse(address: &str) -> io::Result<SocketAddr> {
    match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(address),
    }
}

/// A device that serves.
#[derive(Debug)]
pub struct Device {
    listener: PacketListener,
    terms: Terms,
    registry: Registry,
}

impl Device {
    /// Serves at this address: a path, or `@` and an abstract name.
    ///
    /// # Errors
    /// [`ServeError::Taken`], [`ServeError::Anybody`]; what bind(2) says.
    pub fn bind(address: &str) -> Result<Self, ServeError> {
        is_somebody()?;
        let listener = match PacketListener::bind(&parse(address)?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ServeError::Taken(address.to_owned()));
            }
            other => other?,
        };
        Ok(Device { listener, terms: Terms::default(), registry: Registry::default() })
    }

    /// The same, with connections that are asked for by this revision of MPA (1 is RFC 5044, 2 RFC 6581), and with CRCs
    /// whoever wants them, or if the peer does.
    #[must_use]
    pub fn with(self, revision: u8, crc: bool) -> Self {
        let mpa = Config { revision, crc, ..self.terms.mpa };
        Device { terms: Terms { mpa, ..self.terms }, ..self }
    }

    /// The same, with connections that end when their peers answer nothing for so long.
    #[must_use]
    pub fn with_peer_timeout(self, peer_timeout: Duration) -> Self {
        Device { terms: Terms { peer_timeout, ..self.terms }, ..self }
    }

    /// Serves until a signal says that it is enough, or until `owner` has ended, if there is one, and no process uses the
    /// device any more.
    ///
    /// # Errors
    /// What ppoll(2) and read(2) say.
    pub fn run(&self, owner: Option<OwnedFd>, signals: &Signals) -> Result<(), ServeError> {
        let mut all = vec![self.listener.as_fd(), signals.as_fd()];
        all.extend(owner.as_ref().map(AsFd::as_fd));
        loop {
            let ready = poll(&all, None)?;
            if ready.contains(0) && !self.accept() {
                // It would be ready again at once.
                poll(&all[1..], Some(REST))?;
            }
            if ready.contains(1) && is_enough(signals)? {
                return Ok(());
            }
            if ready.contains(2) {
                return self.run_out(signals);
            }
        }
    }

    /// Serves until the last process is gone.
    fn run_out(&self, signals: &Signals) -> Result<(), ServeError> {
        const LOOK_EVERY: u64 = 100_000_000;
        loop {
            let ready = poll(&[self.listener.as_fd(), signals.as_fd()], Some(LOOK_EVERY))?;
            if ready.contains(0) {
                if !self.accept() {
                    poll(&[signals.as_fd()], Some(REST))?;
                }
            } else if ready.contains(1) {
                if is_enough(signals)? {
                    return Ok(());
                }
            } else if self.registry.count() == 0 {
                return Ok(());
            }
        }
    }

    /// Whether it can accept: it may have no descriptor left.
    fn accept(&self) -> bool {
        let socket = match self.listener.accept() {
            Ok(socket) => socket,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        let (registry, terms) = (self.registry.clone(), self.terms);
        let (Ok(peer), Ok(last)) = (socket.peer(), socket.as_fd().try_clone_to_owned()) else {
            return true;
        };
        // The last of the socket's descriptors, as to close that may take long.
        let last = Foreign::new(last, peer.uid);
        let pid = peer.pid;
        if let Err(error) = may_connect(peer) {
            drop(socket);
            tracing::warn!("process {pid} has no session: {error}");
            return true;
        }
        let work = move || {
            if let Err(error) = greet(socket, &registry, terms) {
                tracing::warn!("process {pid} has no session: {error}");
            }
            drop(last);
        };
        let started = std::thread::Builder::new().name(format!("rdma-{pid}")).spawn(work);
        if let Err(error) = started {
            tracing::warn!("process {pid} has no session: {error}");
        }
        true
    }
}

/// Whether one of the signals that have come is to end it. Children are not its own: as the first process of a container it
/// gets those that others leave behind.
fn is_enough(signals: &Signals) -> io::Result<bool> {
    while let Some(signal) = signals.read()? {
        if signal != Signal::Child {
            return Ok(true);
        }
    }
    Ok(false)
}

/// That this process's user, and no other, may have a session.
fn may_connect(peer: PeerCredentials) -> io::Result<()> {
    let (whose, own) = (owner(peer.uid), uid());
    if whose != Owner::Own && (whose, own) != (Owner::Root, 0) {
        let error = format!("it is of {whose}, and the device of user {own}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
    }
    Ok(())
}

/// A process, or one that asks for counters.
fn greet(socket: PacketSocket, registry: &Registry, terms: Terms) -> Result<(), ServeError> {
    let peer = socket.peer()?;
    if !poll(&[socket.as_fd()], Some(PATIENCE))?.contains(0) {
        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
    }
    let mut message = [0; MESSAGE_MAX];
    let Received { len, descriptors } = socket.receive(&mut message)?;
    if len == 0 {
        // Whoever it was only wanted to know whether there is a device.
        return Ok(());
    }
    if &message[..len] == STATS {
        return tell(&socket, &registry.json());
    }
    let pid = peer.pid;
    let Some(served) = registry.add(pid, PROCESSES_MAX) else {
        let _ = refuse(&socket, crate::manager::errno::ENOMEM);
        return Err(io::Error::other(format!("there are {PROCESSES_MAX} others")).into());
    };
    match begin(&message[..len], descriptors) {
        Ok((memory, seen)) => serve(socket, memory, seen, terms, served),
        Err(error) => {
            let _ = refuse(&socket, EPERM);
            Err(error)
        }
    }
}

fn refuse(socket: &PacketSocket, errno: i32) -> io::Result<()> {
    let message = Reply::error(errno).encode().map_err(|_| io::ErrorKind::InvalidInput)?;
    socket.send(&message, &[])
}

/// The memory that a Hello brings, tried by a read and a write, and what is at the probe then.
fn begin(message: &[u8], descriptors: Vec<OwnedFd>) -> Result<(ProcessMemory, u64), ServeError> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let (probe, nonce) = match Request::decode(message) {
        Ok(Request::Hello { probe, nonce }) => (probe, nonce),
        Ok(_) => return Err(invalid("it did not begin with a Hello".into()).into()),
        Err(error) => return Err(invalid(error.to_string()).into()),
    };
    let [memory] = <[OwnedFd; 1]>::try_from(descriptors)
        .map_err(|_| invalid("it sent no descriptor of its memory".into()))?;
    let memory = ProcessMemory::new(memory)?;
    let mut there = [0; 8];
    let read = memory.read(probe, &mut there, &[(0, 8)])?;
    if read != 8 || u64::from_ne_bytes(there) != nonce {
        return Err(invalid("the memory that it sent is not its own".into()).into());
    }
    let seen = !nonce;
    if memory.write(probe, &[&seen.to_ne_bytes()])? != 8 {
        return Err(invalid("its memory cannot be written".into()).into());
    }
    Ok((memory, seen))
}

fn serve(
    socket: PacketSocket,
    memory: ProcessMemory,
    seen: u64,
    terms: Terms,
    served: Arc<Served>,
) -> Result<(), ServeError> {
    // A process in another PID namespace has no id here: its socket says when it is gone.
    let pidfd = u32::try_from(served.pid).ok().filter(|pid| *pid > 0);
    let pidfd = pidfd.map(sys::process::pidfd_open).transpose()?;
    let serving = Serving::begin(socket, pidfd, memory, terms, served)?;
    serving.welcome(seen)?;
    serving.run();
    Ok(())
}

/// Sends counters, in as many messages as they need.
fn tell(socket: &PacketSocket, stats: &Value) -> Result<(), ServeError> {
    let begun = Instant::now();
    for part in stats.to_string().as_bytes().chunks(CHUNK) {
        while let Err(error) = socket.send(part, &[]) {
            // One that does not read is not waited for.
            if error.kind() != io::ErrorKind::WouldBlock
                || begun.elapsed() > Duration::from_nanos(PATIENCE)
            {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Connects to the device at this address, which must be the user's own or root's.
///
/// # Errors
/// [`ServeError::None`], [`ServeError::Stranger`], [`ServeError::Anybody`]; what connect(2) says.
pub fn connect(address: &str) -> Result<PacketSocket, ServeError> {
    is_somebody()?;
    let socket = PacketSocket::connect(&parse(address)?).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            ServeError::None(address.to_owned())
        }
        _ => ServeError::Os(error),
    })?;
    match owner(socket.peer()?.uid) {
        Owner::Root | Owner::Own => Ok(socket),
        owner => Err(ServeError::Stranger { address: address.to_owned(), owner }),
    }
}

/// What the device at this address tells of itself.
///
/// # Errors
/// As [`connect`]; `InvalidData` for an answer that is none.
pub fn ask_stats(address: &str) -> Result<Value, ServeError> {
    let socket = connect(address)?;
    socket.send(STATS, &[])?;
    let (mut all, mut part) = (Vec::new(), vec![0; CHUNK]);
    loop {
        if !poll(&[socket.as_fd()], Some(PATIENCE))?.contains(0) {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        match socket.receive(&mut part)?.len {
            0 => break,
            len => all.extend_from_slice(&part[..len]),
        }
    }
    serde_json::from_slice(&all).map_err(|error| io::Error::from(error).into())
}
