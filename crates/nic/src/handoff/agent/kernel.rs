//! The kernel's part: what may be taken out, taking it out, and putting it back.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use ::tcp::FourTuple;
use ::tcp::repair::Repair;
use handoff::Refusal;
use handoff::ring::BadSize;
use sys::tcp::{Obstacle, obstacle, owner_of, repair};

use super::host::{Host, Owner, Standing};
use crate::repair::{from_kernel, to_kernel};

/// A socket that was offered, and the connection that it had then.
#[derive(Debug)]
pub(super) struct Offered {
    socket: OwnedFd,
    local: SocketAddr,
    remote: SocketAddr,
    reuse_address: bool,
}

/// A connection on its way back, which the kernel has no memory for now.
#[derive(Debug)]
pub(super) struct Waiting {
    parts: repair::Parts,
    is_deaf: bool,
    /// The kernel has it, but for so many bytes at the end of its send queue.
    missing: Option<usize>,
}

/// Why the kernel does not have a connection back.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotThawed {
    /// It may be tried again.
    #[error("the kernel has no memory for it (net.ipv4.tcp_mem)")]
    NoMemory(Box<Waiting>),
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

impl From<io::ErrorKind> for NotThawed {
    fn from(kind: io::ErrorKind) -> Self {
        NotThawed::Kernel(kind.into())
    }
}

impl Offered {
    /// Looks whether the connection of this process may be handed off, and how it stands.
    ///
    /// # Errors
    /// Why not, and the socket.
    pub(super) fn look(
        socket: OwnedFd,
        host: &mut Host,
        pid: i32,
    ) -> Result<(Self, Standing), (Refusal, OwnedFd)> {
        match obstacle(&socket, host.namespace) {
            Ok(None) => {}
            Ok(Some(obstacle)) => return Err((refusal(obstacle), socket)),
            Err(_) => return Err((Refusal::Invalid, socket)),
        }
        let (socket, names) = names_of(socket);
        // One that listens, or is not connected.
        let Some((local, remote)) = names else { return Err((Refusal::State, socket)) };
        let offered = Offered { socket, local, remote, reuse_address: false };
        let standing = match owner_of(&offered) {
            Ok(user) => host.admit(&offered.path(), Owner { pid, user }),
            Err(_) => Err(Refusal::Invalid),
        };
        match standing {
            Ok(standing) => Ok((offered, standing)),
            Err(why) => Err((why, offered.socket)),
        }
    }

    /// The socket, which stays the kernel's.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// The ends of the connection, as packets have them.
    pub(super) fn path(&self) -> FourTuple {
        path_of(self.local, self.remote)
    }

    /// Whether its port may be shared, as the socket has it now.
    pub(super) fn reuses_address(&self) -> bool {
        sys::tcp::reuses_address(&self.socket, self.reuse_address)
    }

    /// Takes the connection out of the kernel, which keeps its addresses for it. Its state is shown to `keep` before the
    /// kernel loses it, which does not if there is no room for it there.
    pub(super) fn freeze(
        &mut self,
        mut keep: impl FnMut(&Repair) -> Result<(), BadSize>,
    ) -> Result<Repair, Refusal> {
        let reuse_address = &mut self.reuse_address;
        let keep = |parts: repair::Parts| {
            *reuse_address = parts.reuse_address;
            let state = from_kernel(parts).ok_or(io::ErrorKind::InvalidInput)?;
            keep(&state).map_err(|_| io::ErrorKind::FileTooLarge)?;
            Ok(state)
        };
        let state = repair::take_once(&self.socket, keep).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                tracing::error!("connections cannot be handed off without CAP_NET_ADMIN");
                Refusal::Invalid
            }
            // The last is of one that receives as fast as it is looked at.
            io::ErrorKind::InvalidInput
            | io::ErrorKind::NotConnected
            | io::ErrorKind::ResourceBusy => Refusal::State,
            io::ErrorKind::FileTooLarge => Refusal::Buffer,
            io::ErrorKind::AddrNotAvailable => Refusal::Port,
            _ => Refusal::Invalid,
        })?;
        let ends = (self.local, self.remote);
        if let Err(why) = repair::reserve(&self.socket, ends, self.reuse_address) {
            if let Err(error) = self.thaw(state) {
                tracing::error!("a connection to {} is lost: {why}, {error}", self.remote);
            }
            return Err(Refusal::State);
        }
        Ok(state)
    }

    /// Puts the connection back into the kernel.
    ///
    /// # Errors
    /// Why the kernel does not take it.
    pub(super) fn thaw(&mut self, state: Repair) -> Result<(), NotThawed> {
        let is_deaf = state.is_deaf;
        let parts = to_kernel(state).ok_or(io::ErrorKind::InvalidInput)?;
        let parts = repair::Parts { local: self.local, remote: self.remote, ..parts };
        self.thaw_waiting(Box::new(Waiting { parts, is_deaf, missing: None }))
    }

    /// Puts one back that the kernel had no memory for.
    ///
    /// # Errors
    /// As [`thaw`](Self::thaw).
    pub(super) fn thaw_waiting(&mut self, mut waiting: Box<Waiting>) -> Result<(), NotThawed> {
        let Waiting { parts, missing, is_deaf } = &mut *waiting;
        let left = match *missing {
            Some(missing) => repair::write_rest(&self.socket, parts, missing)?,
            None => match self.put_back(parts) {
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                    // The addresses stay reserved, and the application has no socket in repair mode.
                    let ends = (self.local, self.remote);
                    repair::reserve(&self.socket, ends, self.reuse_address)?;
                    return Err(NotThawed::NoMemory(waiting));
                }
                put_back => put_back?,
            },
        };
        if left > 0 {
            *missing = Some(left);
            return Err(NotThawed::NoMemory(waiting));
        }
        if *is_deaf {
            // Before the kernel hears its peer.
            sys::tcp::shut_for_reading(&self.socket)?;
        }
        Ok(())
    }

    fn put_back(&mut self, parts: &mut repair::Parts) -> io::Result<usize> {
        // The application may have changed it since.
        self.reuse_address = self.reuses_address();
        parts.reuse_address = self.reuse_address;
        // What was written to the placeholder, past the library that serves its calls, comes behind all else.
        parts.append_unsent(&repair::dissolve(&self.socket).unwrap_or_default());
        repair::put_back(&self.socket, parts)
    }

    /// Makes the kernel forget it, without a packet.
    pub(super) fn discard(self) {
        if let Err(error) = repair::discard(&self.socket, self.reuses_address()) {
            tracing::warn!("the kernel keeps a placeholder of a connection that is over: {error}");
        }
    }

    /// The kernel has it, or is to end it if the application has closed it.
    pub(super) fn release(self) {
        sys::tcp::close_apart(self.socket);
    }

    /// The peer, for the log.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }
}

/// The names of a connection's socket, if it has both.
fn names_of(socket: OwnedFd) -> (OwnedFd, Option<(SocketAddr, SocketAddr)>) {
    let stream = TcpStream::from(socket);
    let names = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
    (stream.into(), names.ok())
}

/// The ends of the connection of a socket, as packets have them, if it has one.
pub(super) fn ends_of(socket: OwnedFd) -> (OwnedFd, Option<FourTuple>) {
    let (socket, names) = names_of(socket);
    (socket, names.map(|(local, remote)| path_of(local, remote)))
}

fn path_of(local: SocketAddr, remote: SocketAddr) -> FourTuple {
    let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    FourTuple { local: plain(local), remote: plain(remote) }
}

fn refusal(obstacle: Obstacle) -> Refusal {
    match obstacle {
        Obstacle::NotTcp | Obstacle::Shut => Refusal::State,
        Obstacle::Mptcp => Refusal::Mptcp,
        Obstacle::Namespace => Refusal::Namespace,
        Obstacle::Ktls => Refusal::Ktls,
        Obstacle::Ulp => Refusal::Ulp,
        Obstacle::Authenticated => Refusal::TcpAo,
        Obstacle::Filter => Refusal::SocketFilter,
        Obstacle::Mark => Refusal::Mark,
        Obstacle::BoundToDevice => Refusal::BoundElsewhere,
        Obstacle::IpOptions => Refusal::IpOptions,
        Obstacle::PeekOffset => Refusal::PeekOffset,
        Obstacle::Options => Refusal::Options,
    }
}

impl AsFd for Offered {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
