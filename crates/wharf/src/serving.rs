//! What the commands that run until they are stopped have in common.

use std::io;

use nic::control::Claim;
use sys::capability::{NET_ADMIN, NET_BIND_SERVICE};

use crate::error::Error;

/// How often wharf looks whether a worker has ended by itself.
pub(crate) const LOOK_EVERY: u64 = 1_000_000_000;

/// What cannot be: a client that outlives the control socket.
pub(crate) fn still_held() -> io::Error {
    io::Error::other("a control client holds on: what was held back is lost")
}

/// Gives up all capabilities but CAP_NET_ADMIN and CAP_NET_BIND_SERVICE. It stays user 0, who may write root's files; what
/// takes another capability (modules, other processes' memory, mounts, raw IO) is gone. CAP_NET_ADMIN is for
/// addresses and offloads while it runs, for what is to be put back at the end, and for another guard,
/// should the first one die; CAP_NET_BIND_SERVICE for connections that are put back to ports such as 80. To be called once
/// the ports are open, by the thread that starts what else is to have as much; the workers have given up all by themselves.
pub(crate) fn give_up_rights() -> Result<(), Error> {
    sys::capability::keep_only(&[NET_ADMIN, NET_BIND_SERVICE]).map_err(Error::Io)
}

/// Claims a wire in this network namespace until what is returned is dropped, or wharf dies. Where
/// it is taken, the caller is told what to do `instead`.
pub(crate) fn claim(wire: &str, index: u32, instead: &str) -> Result<Claim, Error> {
    Claim::wire(index).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => Error::Usage(format!(
            "a wharf (up or degen) runs on {wire} already: {instead}, or stop it"
        )),
        _ => Error::Io(cause),
    })
}
