//! Claims on wires: a wire is used by one wharf at a time.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use sys::process::{self, Owner};

use super::directory::{Directory, Taken};
use super::place;

/// A claim on a wire, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Claim {
    _taken: Option<Taken>,
    _listener: Option<UnixListener>,
}

impl Claim {
    /// Claims the interface of this index in the network namespace of the calling thread.
    /// Root takes a lock in its directory, and an abstract name if that is free: the name is for a root of
    /// another mount namespace, which has another directory. An ordinary user may take that name first, which
    /// keeps only other ordinary users from the wire. Where there is no directory the name alone is the
    /// claim.
    ///
    /// # Errors
    /// `AddrInUse` if another wharf has a claim.
    pub fn wire(index: u32) -> io::Result<Claim> {
        let address = SocketAddr::from_abstract_name(format!("wharf-wire/{index}"))?;
        let taken = match Directory::lock() {
            Ok(directory) => {
                directory.sweep();
                Some(directory.take(&format!("{}.wire{index}", place::namespace()?))?)
            }
            Err(_) => None,
        };
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Claim { _taken: taken, _listener: Some(listener) }),
            Err(_) if taken.is_some() && !is_trusted(&address) => {
                Ok(Claim { _taken: taken, _listener: None })
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether root or this user listens at the name.
fn is_trusted(address: &SocketAddr) -> bool {
    let owner = sys::unix::connect(address).and_then(|stream| process::peer_credentials(&stream));
    owner.is_ok_and(|peer| matches!(process::owner(peer.uid), Owner::Root | Owner::Own))
}
