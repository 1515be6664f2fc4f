//! The kernel's notifications about addresses, routes and neighbours of interfaces.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::neighbour::{self, Neighbour};
use super::route::Route;
use super::{RECEIVE_BUFFER, number};
use crate::{Error, Result};

/// linux/rtnetlink.h (`enum rtnetlink_groups`): NEIGH, IPV4_IFADDR, IPV4_ROUTE, IPV6_IFADDR,
/// IPV6_ROUTE.
const GROUPS: [u32; 5] = [3, 5, 7, 9, 11];
const NLMSG_HEADER: usize = 16;

/// A netlink socket that receives every change of addresses, routes and neighbours in the network namespace
/// in which it was opened.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
}

impl Monitor {
    /// Receives all changes from now on.
    pub fn open() -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.set_non_blocking(true)?;
            GROUPS.into_iter().try_for_each(|group| socket.add_membership(group))?;
            Ok(socket)
        };
        let socket = open().map_err(|cause| Error::new("watch addresses and routes", cause))?;
        Ok(Self { socket })
    }

    /// Reads all notifications. Returns whether any is about one of these interfaces. Of neighbours only
    /// static ones count, and the removal of one of `known`.
    pub fn changed(&self, interfaces: [u32; 2], known: &[Neighbour]) -> io::Result<bool> {
        let mut changed = false;
        let mut datagram = Vec::with_capacity(RECEIVE_BUFFER);
        loop {
            datagram.clear();
            match self.socket.recv(&mut datagram, 0) {
                Ok(_) => changed |= concerns(&datagram, interfaces, known),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                // The socket's buffer has overflowed: anything may have changed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn concerns(datagram: &[u8], interfaces: [u32; 2], known: &[Neighbour]) -> bool {
    let mut rest = datagram;
    while rest.len() >= NLMSG_HEADER {
        let Ok(message) = NetlinkBuffer::new_checked(rest) else { return true };
        if about(message.message_type(), message.payload(), interfaces, known) {
            return true;
        }
        rest = rest.get((message.length() as usize).next_multiple_of(4)..).unwrap_or(&[]);
    }
    false
}

fn about(kind: u16, payload: &[u8], interfaces: [u32; 2], known: &[Neighbour]) -> bool {
    let is_ours = |index: u32| interfaces.contains(&index);
    match kind {
        libc::RTM_NEWADDR | libc::RTM_DELADDR => {
            payload.get(4..8).and_then(number).is_some_and(is_ours)
        }
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => Route::new(payload.to_vec())
            .is_some_and(|route| interfaces.iter().any(|index| route.leaves_through(*index))),
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
            let ours = neighbour::index_of(payload).is_some_and(is_ours);
            let destination = neighbour::find_destination(payload);
            // A static one that is deleted is reported as failed.
            ours && (Neighbour::new(payload.to_vec()).is_some()
                || known.iter().any(|known| Some(known.ip()) == destination))
        }
        _ => false,
    }
}
