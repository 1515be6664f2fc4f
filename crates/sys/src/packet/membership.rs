//! Frames for other addresses than the interface's own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::sockopt;

/// Which frames an interface accepts beside those for its own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All multicast (`PACKET_MR_ALLMULTI`).
    AllMulticast,
    /// All (`PACKET_MR_PROMISC`).
    Promiscuous,
}

/// Widens what a network card accepts for as long as it is held, or the process lives.
///
/// A card drops multicast that its own interface has not joined: behind a wire whose addresses
/// moved to another interface, IPv6 neighbour discovery needs this, with whichever port.
#[derive(Debug)]
pub struct Membership {
    _fd: OwnedFd,
}

impl Membership {
    /// Widens the filter of the interface `ifindex`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` if there is no such interface.
    pub fn hold(ifindex: u32, filter: Filter) -> io::Result<Self> {
        let fd = super::socket(0)?;
        let request = libc::packet_mreq {
            mr_ifindex: libc::c_int::try_from(ifindex)
                .map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
            mr_type: match filter {
                Filter::AllMulticast => libc::PACKET_MR_ALLMULTI as u16,
                Filter::Promiscuous => libc::PACKET_MR_PROMISC as u16,
            },
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sockopt::set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)?;
        Ok(Self { _fd: fd })
    }
}
