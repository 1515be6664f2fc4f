//! Notifications that something about the network namespace's interfaces has changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Error, Result};

/// linux/rtnetlink.h: links, and the settings of IPv4 and IPv6 (`RTM_NEWNETCONF`).
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV4_NETCONF: u32 = 24;
const RTNLGRP_IPV6_NETCONF: u32 = 25;

/// Most notifications taken by one call. If there are more, the next call takes them.
const MOST: usize = 1024;

/// Notifications about links (made, changed, moved into a bridge, deleted) and about `forwarding`, in the
/// network namespace in which the thread was at [`new`](Self::new). They report only that something has
/// changed; the state is read anew, so that no change can be missed.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Notifications from now on.
    ///
    /// # Errors
    /// The kernel's error. The groups of settings are missing before Linux 3.8.
    pub fn new() -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in [RTNLGRP_LINK, RTNLGRP_IPV4_NETCONF, RTNLGRP_IPV6_NETCONF] {
                socket.add_membership(group)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|cause| Error::new("watch the interfaces", cause))?;
        Ok(Self { socket })
    }

    /// Whether something has changed since the last call.
    pub fn changed(&self) -> bool {
        let mut changed = false;
        let mut datagram = Vec::with_capacity(4096);
        for _ in 0..MOST {
            datagram.clear();
            match self.socket.recv(&mut datagram, libc::MSG_DONTWAIT) {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS: some were dropped (netlink(7)), so much has changed.
                Err(_) => return true,
            }
        }
        changed
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
