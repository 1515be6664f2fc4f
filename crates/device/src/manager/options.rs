//! Options of identifiers (`rdma_set_option`, level `RDMA_OPTION_ID`).

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::tcp::Sharing;

use super::{Identifier, Manager, Phase, code, errno};

/// `RDMA_OPTION_ID_TOS`.
const TOS: u32 = 0;
/// `RDMA_OPTION_ID_REUSEADDR`.
const REUSEADDR: u32 = 1;
/// `RDMA_OPTION_ID_AFONLY`.
const AFONLY: u32 = 2;
/// `RDMA_OPTION_ID_ACK_TIMEOUT`.
const ACK_TIMEOUT: u32 = 3;

/// What was set of an identifier before it has a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// The type of service of what it sends.
    type_of_service: Option<u8>,
    sharing: Sharing,
}

impl Options {
    /// A socket at this address.
    pub(super) fn bind(self, address: SocketAddr) -> Result<OwnedFd, i32> {
        let socket = sys::tcp::bind_sharing(address, self.sharing).map_err(|error| code(&error))?;
        if let Some(value) = self.type_of_service {
            sys::tcp::set_type_of_service(&socket, address.is_ipv6(), value)
                .map_err(|error| code(&error))?;
        }
        Ok(socket)
    }

    /// A socket at this address in place of another one there, which stays bound if there is none.
    fn bind_again(
        self,
        address: SocketAddr,
        before: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, i32> {
        let give_way = |gives| {
            before.map_or(Ok(()), |before| {
                sys::tcp::give_way(before, gives).map_err(|error| code(&error))
            })
        };
        give_way(true)?;
        self.bind(address).or_else(|error| give_way(false).and(Err(error)))
    }
}

impl Identifier {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.phase {
            Phase::Bound(socket) => Some(socket.as_fd()),
            Phase::Listening(socket, _) => Some(socket.as_fd()),
            _ => None,
        }
    }
}

impl Manager {
    /// Sets an option. What was connected before is as it was.
    pub(crate) fn set_option(&mut self, id: u32, option: u32, value: u32) -> Result<(), i32> {
        let of = self.get(id)?;
        match option {
            TOS => {
                let value = u8::try_from(value).map_err(|_| errno::EINVAL)?;
                of.options.type_of_service = Some(value);
                let is_ipv6 = of.local.is_some_and(|local| local.is_ipv6());
                match of.socket() {
                    Some(socket) => sys::tcp::set_type_of_service(socket, is_ipv6, value)
                        .map_err(|error| code(&error)),
                    None => Ok(()),
                }
            }
            AFONLY if matches!(of.phase, Phase::Idle) => {
                of.options.sharing.leaves_ipv4 = value != 0;
                Ok(())
            }
            // As with the kernel's manager (rdma_set_afonly), up to an address of a peer. A socket takes it only before it is
            // bound (ipv6(7)), so that another is.
            AFONLY if matches!(of.phase, Phase::Bound(_)) && of.remote.is_none() => {
                let local = of.local.ok_or(errno::EINVAL)?;
                let sharing = Sharing { leaves_ipv4: value != 0, ..of.options.sharing };
                if sharing != of.options.sharing {
                    let options = Options { sharing, ..of.options };
                    of.phase = Phase::Bound(options.bind_again(local, of.socket())?);
                    of.options = options;
                }
                Ok(())
            }
            AFONLY => Err(errno::EINVAL),
            // As with the kernel's manager (rdma_set_reuseaddr).
            REUSEADDR if of.phase.is_listening() => Err(errno::EINVAL),
            REUSEADDR if value != 0 || matches!(of.phase, Phase::Idle) => {
                of.options.sharing.is_shared = value != 0;
                match &of.phase {
                    Phase::Bound(socket) => {
                        sys::tcp::set_shared(socket, true).map_err(|error| code(&error))
                    }
                    _ => Ok(()),
                }
            }
            REUSEADDR => Err(errno::EINVAL),
            // TCP has timeouts of its own.
            ACK_TIMEOUT => Ok(()),
            _ => Err(errno::ENOSYS),
        }
    }
}
