//! The kernel's part: what may be taken out, taking it out, and putting it back.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ::tcp::FourTuple;
use ::tcp::repair::Repair;
use handoff::Refusal;
use handoff::ring::BadSize;
use sys::foreign::Foreign;
use sys::tcp::{Obstacle, obstacle, owner_of, repair};

use super::host::{Host, Owner, Standing};
use crate::repair::{from_kernel, to_kernel};

/// A socket that was offered, and the connection that it had then.
#[derive(Debug)]
pub(super) struct Offered {
    socket: Foreign<OwnedFd>,
    local: SocketAddr,
    remote: SocketAddr,
    reuse_address: bool,
    /// Bytes that the peer has acknowledged, and that have come in order, before the current stay.
    carried: [u64; 2],
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

/// Reason why a connection stays at the kernel, and the socket that was offered.
pub(super) type Refused = (Refusal, Foreign<OwnedFd>);

/// Why a connection is not taken out of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotFrozen {
    /// The kernel has it as before.
    Refused(Refusal),
    /// It was taken, and neither its addresses could be reserved nor the kernel has it back: another socket has its
    /// addresses.
    Lost,
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
        socket: Foreign<OwnedFd>,
        host: &mut Host,
        pid: i32,
    ) -> Result<(Self, Standing), Refused> {
        match obstacle(&socket, host.namespace) {
            Ok(None) => {}
            Ok(Some(obstacle)) => return Err((refusal(obstacle), socket)),
            Err(_) => return Err((Refusal::Invalid, socket)),
        }
        // One that listens, or is not connected.
        let Ok((local, remote)) = sys::tcp::ends(&socket) else {
            return Err((Refusal::State, socket));
        };
        // A link-local address is one of a link, and the NIC is on one.
        if scope_of(remote).is_some_and(|scope| scope != host.interface) {
            return Err((Refusal::Route, socket));
        }
        let offered = Offered { socket, local, remote, reuse_address: false, carried: [0; 2] };
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
    pub(super) fn into_socket(self) -> Foreign<OwnedFd> {
        self.socket
    }

    /// The ends of the connection, as packets have them.
    pub(super) fn path(&self) -> FourTuple {
        path_of(self.local, self.remote)
    }

    /// Bytes that it has carried before the current stay at the kernel or at the NIC, both ways.
    pub(super) fn carried(&self) -> [u64; 2] {
        self.carried
    }

    /// A stay is over in which it has carried so much.
    pub(super) fn add_carried(&mut self, carried: [u64; 2]) {
        self.carried = added(self.carried, carried);
    }

    /// Whether its port may be shared, as the socket has it now.
    pub(super) fn reuses_address(&self) -> bool {
        sys::tcp::reuses_address(&self.socket, self.reuse_address)
    }

    /// Takes the connection out of the kernel, which keeps its addresses for it. Its state is shown to `keep` before the
    /// kernel loses it, which does not if there is no room for it there.
    pub(super) fn freeze(
        &mut self,
        keep: impl FnMut(&Repair) -> Result<(), BadSize>,
    ) -> Result<Repair, NotFrozen> {
        self.freeze_by(keep, |socket, ends, reuse| repair::reserve(socket, ends, reuse))
    }

    /// The same, with the call that has the kernel keep the addresses.
    fn freeze_by(
        &mut self,
        mut keep: impl FnMut(&Repair) -> Result<(), BadSize>,
        reserve: impl FnOnce(BorrowedFd<'_>, (SocketAddr, SocketAddr), bool) -> io::Result<()>,
    ) -> Result<Repair, NotFrozen> {
        let reuse_address = &mut self.reuse_address;
        let mut carried = [0; 2];
        let keep = |parts: repair::Parts| {
            (*reuse_address, carried) = (parts.reuse_address, parts.carried);
            let state = from_kernel(parts).ok_or(io::ErrorKind::InvalidInput)?;
            keep(&state).map_err(|_| io::ErrorKind::FileTooLarge)?;
            Ok(state)
        };
        let state = match repair::take_once(&self.socket, keep) {
            Ok(state) => state,
            // Its program has had it listen meanwhile, so that it could not leave repair mode.
            Err(_) if self.leave_repair() => return Err(NotFrozen::Lost),
            Err(error) => return Err(NotFrozen::Refused(not_taken(&error))),
        };
        self.add_carried(carried);
        let ends = (self.local, self.remote);
        if let Err(why) = reserve(self.socket.as_fd(), ends, self.reuse_address) {
            if let Err(error) = self.thaw(state) {
                tracing::error!("a connection to {} is lost: {why}, {error}", self.remote);
                self.leave_repair();
                return Err(NotFrozen::Lost);
            }
            return Err(NotFrozen::Refused(Refusal::State));
        }
        Ok(state)
    }

    /// Puts the connection back into the kernel.
    ///
    /// # Errors
    /// Why the kernel does not take it.
    pub(super) fn thaw(&mut self, state: Repair) -> Result<(), NotThawed> {
        let is_deaf = state.is_deaf;
        // The kernel counts what is unread as received once more (`tcp_send_rcvq`).
        self.carried[1] = self.carried[1].saturating_sub(state.recv_queue.len() as u64);
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

    /// The kernel has it, or is to end it if the application has closed it. Returns whether the socket was in repair mode,
    /// and is unconnected.
    pub(super) fn release(self) -> bool {
        self.leave_repair()
    }

    /// Has the kernel forget the connection if the socket is in repair mode, in which the application must not have it. Returns
    /// whether it was.
    fn leave_repair(&self) -> bool {
        match repair::release(&self.socket, self.reuse_address) {
            Ok(was_repaired) => was_repaired,
            Err(error) => {
                let remote = self.remote;
                tracing::error!(
                    "the socket of a connection to {remote} is in repair mode: {error}"
                );
                true
            }
        }
    }

    /// The peer, for the log.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }
}

/// Bytes of two stays, both ways.
pub(crate) fn added(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [one[0].saturating_add(other[0]), one[1].saturating_add(other[1])]
}

/// The ends of the connection of a socket, as packets have them, if it has one.
pub(super) fn ends_of(socket: impl AsFd) -> Option<FourTuple> {
    sys::tcp::ends(socket).ok().map(|(local, remote)| path_of(local, remote))
}

/// The interface that a link-local address is one of; `None` for other addresses.
fn scope_of(end: SocketAddr) -> Option<u32> {
    match end {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
        _ => None,
    }
}

/// Packets have no scope: the wire that they pass tells it.
fn path_of(local: SocketAddr, remote: SocketAddr) -> FourTuple {
    let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    FourTuple { local: plain(local), remote: plain(remote) }
}

/// Why the kernel has a connection as before that was to be taken.
fn not_taken(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            tracing::error!("connections cannot be handed off without CAP_NET_ADMIN");
            Refusal::Invalid
        }
        // The last is of one that receives as fast as it is looked at.
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::ResourceBusy => {
            Refusal::State
        }
        io::ErrorKind::FileTooLarge => Refusal::Buffer,
        io::ErrorKind::AddrNotAvailable => Refusal::Port,
        _ => Refusal::Invalid,
    }
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
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use sys::netns::Namespace;
    use testkit::missing::lacks;

    /// A connection that was offered, its program's descriptor, and the peer's.
    fn offered() -> (Offered, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (program, remote) = listener.accept().unwrap();
        let (socket, local) = (program.try_clone().unwrap(), program.local_addr().unwrap());
        let socket = Foreign::new(OwnedFd::from(socket), 1);
        (Offered { socket, local, remote, reuse_address: true, carried: [0; 2] }, program, peer)
    }

    /// Another socket that is the kernel's end of this connection.
    fn competitor(state: Repair, (local, remote): (SocketAddr, SocketAddr)) -> OwnedFd {
        let socket = sys::tcp::bind(local).unwrap();
        let parts = to_kernel(state).unwrap();
        repair::put_back(&socket, &repair::Parts { local, remote, ..parts }).unwrap();
        socket
    }

    fn in_namespace(test: impl FnOnce() + Send) {
        match Namespace::new() {
            Ok(namespace) => namespace
                .run(|| {
                    sys::interface::set_up("lo").unwrap();
                    test();
                })
                .unwrap(),
            Err(error) => lacks(error),
        }
    }

    #[test]
    fn a_connection_whose_ends_another_socket_takes_meanwhile_is_lost_and_not_in_repair_mode() {
        in_namespace(|| {
            let (mut offered, program, _peer) = offered();
            let mut shown = None;
            let keep = |state: &Repair| {
                shown = Some(state.clone());
                Ok(())
            };
            let state = offered.freeze(keep).unwrap();
            assert_eq!(shown.as_ref(), Some(&state));
            offered.thaw(state.clone()).unwrap();
            let mut other = None;
            let frozen = offered.freeze_by(
                |_| Ok(()),
                |socket, ends, reuse| {
                    other = Some(competitor(state.clone(), ends));
                    repair::reserve(socket, ends, reuse)
                },
            );
            assert_eq!(frozen, Err(NotFrozen::Lost));
            assert!(!repair::is_repaired(&program).unwrap());
            assert!(program.peer_addr().is_err());
            // It is given to no program in repair mode either if it could not be put back later.
            assert!(matches!(offered.thaw(state), Err(NotThawed::Kernel(_))));
            offered.discard();
            assert!(!repair::is_repaired(&program).unwrap());
        });
    }

    #[test]
    fn a_connection_whose_ends_cannot_be_reserved_stays_the_kernels() {
        in_namespace(|| {
            let (mut offered, program, peer) = offered();
            let refuse = |_: BorrowedFd<'_>, _, _| Err(io::ErrorKind::AddrNotAvailable.into());
            let frozen = offered.freeze_by(|_| Ok(()), refuse);
            assert_eq!(frozen, Err(NotFrozen::Refused(Refusal::State)));
            assert!(!offered.release());
            assert_eq!(program.peer_addr().unwrap(), peer.local_addr().unwrap());
        });
    }

    #[test]
    fn what_is_released_in_repair_mode_is_unconnected() {
        in_namespace(|| {
            let (offered, program, _peer) = offered();
            repair::take(&program).unwrap();
            assert!(offered.release());
            assert!(!repair::is_repaired(&program).unwrap());
            assert!(program.peer_addr().is_err());
        });
    }
}
