//! Connections that outlive the NIC: what a guard, another process, is told while the NIC runs, and what it does when
//! that has died.
//!
//! ```text
//!   agent ── descriptors of mirror, TAP, sessions and sockets ──> guard
//!                                                                   |  wharf is killed
//!   kernel <── TCP_REPAIR ── record + rings ────────────────────────+
//!   application <── status: at the OS ──────────────────────────────+
//! ```
//!
//! A service manager may keep the same descriptors, and give them to the next wharf, which does that then if the guard
//! has not: see [`store`].

#[cfg(any(test, feature = "given"))]
pub(crate) mod given;
mod inventory;
mod message;
mod side_by_side;
pub mod store;
mod take_over;
mod told;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use handoff::Cid;
use handoff::session::Layout;
use sys::foreign::Foreign;
use sys::packets::PacketSocket;
use sys::process::close_first;
use sys::shared::SharedMemory;
use sys::shared_event::SharedEvent;
use sys::tap::TapQueue;
use sys::tcp::repair;
use wire::Mac;

pub(super) use self::message::Message;
pub(super) use self::told::ToGuard;

use super::process::SharedProcess;

pub use inventory::Inventory;
pub use take_over::Outcome;

/// What a guard knows of the NIC's connections.
#[derive(Debug, Default)]
pub struct Survivors {
    /// The records, and how many there may be.
    mirror: Option<(SharedMemory, usize)>,
    host: Option<(TapQueue, Mac)>,
    sessions: HashMap<u32, SharedProcess>,
    /// By their places.
    taken: HashMap<u32, Taken>,
    /// What a service manager keeps of the same.
    inventory: Option<Inventory>,
}

/// A socket whose connection the NIC may have.
#[derive(Debug)]
struct Taken {
    socket: Foreign<OwnedFd>,
    session: u32,
    cid: Cid,
    reuse_address: bool,
}

impl Taken {
    /// Whether its port may be shared, which its application may have changed since it was taken.
    fn reuses_address(&self) -> bool {
        sys::tcp::reuses_address(&self.socket, self.reuse_address)
    }

    /// Has the kernel forget the connection if its socket is in repair mode, in which its application must not have it.
    fn release(&self) {
        if let Err(error) = repair::release(&self.socket, self.reuse_address) {
            tracing::error!("a socket of a program is in repair mode: {error}");
        }
    }
}

impl Survivors {
    /// Takes what the NIC has told. Returns whether more may come.
    ///
    /// # Errors
    /// What recvmsg says.
    pub fn hear(&mut self, socket: &GuardEnd) -> io::Result<bool> {
        loop {
            let mut bytes = [0; message::LEN];
            match socket.0.receive(&mut bytes) {
                Ok(received) if received.len == 0 => return Ok(false),
                Ok(received) => {
                    if let Some(message) = Message::decode(&bytes[..received.len]) {
                        self.take(message, received.descriptors);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                // One whose descriptors found no room: its connection is lost with the NIC.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What cannot be used is as if it had not been told: its connections are lost with the NIC.
    fn take(&mut self, message: Message, descriptors: Vec<OwnedFd>) {
        let owner = message.owner();
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next();
        match message {
            Message::Mirror { places } => {
                let memory = next().and_then(|fd| SharedMemory::open(fd).ok());
                self.mirror = memory.map(|memory| (memory, places as usize));
            }
            Message::Host { mac } => self.host = next().map(|fd| (TapQueue::from(fd), mac)),
            Message::Session { number, layout } => {
                if let (Some(memory), Some(wake), Some(alive)) = (next(), next(), next())
                    && let Some(process) = process(owner, layout, memory, (wake, alive))
                {
                    self.sessions.insert(number, process);
                }
            }
            Message::SessionEnd { number } => drop(self.sessions.remove(&number)),
            Message::Take { place, session, cid, reuse_address } => {
                if let Some(socket) = next() {
                    let socket = Foreign::new(socket, owner);
                    self.taken.insert(place, Taken { socket, session, cid, reuse_address });
                }
            }
            Message::Gone { place } => drop(self.taken.remove(&place)),
            Message::Inventory => {
                self.inventory = next().and_then(|fd| Inventory::open(fd).ok());
            }
        }
    }
}

fn process(
    owner: u32,
    layout: Layout,
    memory: OwnedFd,
    (wake, alive): (OwnedFd, OwnedFd),
) -> Option<SharedProcess> {
    let memory = SharedMemory::open(memory).ok()?;
    SharedProcess::of_another(layout, memory, SharedEvent::of(wake, owner), alive.into()).ok()
}

/// The guard's end of what it is told by.
#[derive(Debug)]
pub struct GuardEnd(PacketSocket);

/// The NIC's.
#[derive(Debug)]
pub struct NicEnd(pub(crate) PacketSocket);

impl NicEnd {
    /// A service manager keeps what the guard is about to be told.
    ///
    /// # Errors
    /// What sendmsg says.
    pub fn tell_of(&self, inventory: &Inventory) -> io::Result<()> {
        self.0.send(&Message::Inventory.encode(), &[inventory.as_fd()])
    }
}

/// Both ends.
///
/// # Errors
/// What socketpair says.
pub fn ends() -> io::Result<(NicEnd, GuardEnd)> {
    let (nic, guard) = PacketSocket::pair()?;
    Ok((NicEnd(close_first(nic)), GuardEnd(guard)))
}

/// As another process was given it.
impl From<OwnedFd> for GuardEnd {
    fn from(socket: OwnedFd) -> Self {
        GuardEnd(socket.into())
    }
}

impl From<GuardEnd> for OwnedFd {
    fn from(end: GuardEnd) -> Self {
        end.0.into()
    }
}

impl AsFd for GuardEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
