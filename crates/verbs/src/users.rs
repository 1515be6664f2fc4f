//! Whose a device may be that is given this process's memory.
//!
//! The kernel shows a user whom this user namespace does not know by one number, `overflowuid` (user_namespaces(7)): whoever
//! has that number here cannot be told from all of those. Only the initial namespace knows everybody.

use std::fs;

use libc::c_int;

use crate::os;

/// `overflowuid`, where it cannot be read.
const OVERFLOW: u32 = 65_534;

/// That this process's user is told from others.
///
/// # Errors
/// `EACCES`, and what to do.
pub(crate) fn is_somebody() -> Result<(), (c_int, String)> {
    let own = os::uid();
    if anybody() != Some(own) {
        return Ok(());
    }
    let why = format!(
        "user {own} is what this user namespace calls everybody whom it does not know, so that this program cannot tell \
         whose a device is: run it as another user there, as by `unshare --map-root-user`"
    );
    Err((libc::EACCES, why))
}

/// Whether this user's device, or root's, is at the other end of a Unix socket.
pub(crate) fn is_trusted(peer: u32) -> bool {
    is_own_or_root(peer, os::uid(), anybody())
}

fn is_own_or_root(peer: u32, own: u32, anybody: Option<u32>) -> bool {
    anybody != Some(peer) && (peer == own || peer == 0)
}

/// The number that may be anybody's, if there is one.
fn anybody() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map");
    if map.is_ok_and(|map| is_initial(&map)) {
        return None;
    }
    let set = fs::read_to_string("/proc/sys/kernel/overflowuid");
    Some(set.ok().and_then(|uid| uid.trim().parse().ok()).unwrap_or(OVERFLOW))
}

/// Whether this is the map of the initial user namespace, in which every number is a user's own.
fn is_initial(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_this_users_or_roots() {
        const ALICE: u32 = 1000;
        for (own, anybody) in [(ALICE, None), (ALICE, Some(OVERFLOW)), (OVERFLOW, None)] {
            assert!(is_own_or_root(own, own, anybody) && is_own_or_root(0, own, anybody));
            assert!(!is_own_or_root(ALICE + 1, own, anybody));
        }
        // Its own number, but not for sure its own user.
        assert!(!is_own_or_root(OVERFLOW, OVERFLOW, Some(OVERFLOW)));
        assert!(!is_own_or_root(OVERFLOW, ALICE, Some(OVERFLOW)));
        assert!(!is_own_or_root(0, 0, Some(0)), "overflowuid can be set to any number");
    }

    #[test]
    fn only_the_initial_namespace_knows_everybody() {
        assert!(is_initial("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 65536\n", "0 1000 1\n1 100000 65535\n"] {
            assert!(!is_initial(map), "{map}");
        }
    }
}
