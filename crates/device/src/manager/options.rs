//! Options of identifiers (`rdma_set_option`, level `RDMA_OPTION_ID`).

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
    /// An address of IPv6 is not one of IPv4 as well.
    is_alone: bool,
}

impl Options {
    /// A socket at this address.
    pub(super) fn bind(self, address: SocketAddr) -> Result<OwnedFd, i32> {
        let bind = if self.is_alone { sys::tcp::bind_alone } else { sys::tcp::bind };
        let socket = bind(address).map_err(|error| code(&error))?;
        if let Some(value) = self.type_of_service {
            sys::tcp::set_type_of_service(&socket, address.is_ipv6(), value)
                .map_err(|error| code(&error))?;
        }
        Ok(socket)
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
                of.options.is_alone = value != 0;
                Ok(())
            }
            // As with the kernel's manager (rdma_set_afonly), up to an address of a peer. A socket takes it only before it is
            // bound (ipv6(7)), so that another is.
            AFONLY if matches!(of.phase, Phase::Bound(_)) && of.remote.is_none() => {
                let local = of.local.ok_or(errno::EINVAL)?;
                let options = Options { is_alone: value != 0, ..of.options };
                if options.is_alone != of.options.is_alone {
                    of.phase = Phase::Bound(options.bind(local)?);
                    of.options = options;
                }
                Ok(())
            }
            AFONLY => Err(errno::EINVAL),
            // Sockets are bound so in any case; and TCP has timeouts of its own.
            REUSEADDR | ACK_TIMEOUT => Ok(()),
            _ => Err(errno::ENOSYS),
        }
    }
}
