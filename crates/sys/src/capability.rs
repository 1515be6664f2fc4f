//! Capabilities of the calling thread: capabilities(7).
//!
//! Capabilities belong to threads, not to processes: a thread inherits those of the thread that starts it,
//! and can drop its own only.

use std::io;

use crate::error::check;

/// Binds ports that ordinary users may not (`net.ipv4.ip_unprivileged_port_start`).
pub const NET_BIND_SERVICE: u32 = 10;
/// Configures the network: interfaces, addresses, routes, offloads, nftables.
pub const NET_ADMIN: u32 = 12;
/// Files of others, whatever their modes say.
pub const DAC_OVERRIDE: u32 = 1;
/// Memory and descriptors of other processes.
pub const SYS_PTRACE: u32 = 19;
pub(crate) const SYS_ADMIN: u32 = 21;
pub(crate) const BPF: u32 = 39;

/// Capabilities of a thread, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sets {
    effective: u64,
    permitted: u64,
    inheritable: u64,
}

/// capget(2) and capset(2), version 3.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// The lower or the upper half of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

/// Whether the calling thread has a capability in effect.
///
/// # Errors
/// None are known.
pub fn has(capability: u32) -> io::Result<bool> {
    Sets::get().map(|sets| sets.effective >> capability & 1 == 1)
}

impl Sets {
    /// Those of the calling thread.
    fn get() -> io::Result<Self> {
        let mut header = Header { version: VERSION_3, pid: 0 };
        let mut data = [Data::default(); 2];
        // SAFETY: version 3 reads one header and writes two data structs, laid out as above.
        let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
        check(result as libc::c_int)?;
        let whole =
            |half: fn(&Data) -> u32| u64::from(half(&data[1])) << 32 | u64::from(half(&data[0]));
        Ok(Sets {
            effective: whole(|data| data.effective),
            permitted: whole(|data| data.permitted),
            inheritable: whole(|data| data.inheritable),
        })
    }

    fn set(self) -> io::Result<()> {
        let mut header = Header { version: VERSION_3, pid: 0 };
        let half = |shift: u32| Data {
            effective: (self.effective >> shift) as u32,
            permitted: (self.permitted >> shift) as u32,
            inheritable: (self.inheritable >> shift) as u32,
        };
        let data = [half(0), half(32)];
        // SAFETY: version 3 reads one header and two data structs, laid out as above.
        let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
        check(result as libc::c_int).map(drop)
    }
}

/// Drops all capabilities of the calling thread but those in `kept`, for good: neither it, nor a thread that
/// it starts, nor a program that one of them executes, gains another (`PR_SET_NO_NEW_PRIVS`). Those that are
/// kept stay in each set in which they are, so that a program executed later still has them.
///
/// # Errors
/// None are known since Linux 3.5.
pub fn keep_only(kept: &[u32]) -> io::Result<()> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes numbers, the unused ones 0.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    bound(kept)?;
    let kept = kept.iter().fold(0, |all, capability| all | 1 << capability);
    let sets = Sets::get()?;
    // What is neither permitted nor inheritable is not ambient either (capabilities(7)).
    let left = Sets {
        effective: sets.effective & kept,
        permitted: sets.permitted & kept,
        inheritable: sets.inheritable & kept,
    };
    left.set()
}

/// Removes all others from the bounding set, which limits what executing a program gives. Without
/// `CAP_SETPCAP` the set stays, but no new privileges can be gained either.
fn bound(kept: &[u32]) -> io::Result<()> {
    for capability in (0..64).filter(|capability| !kept.contains(capability)) {
        // SAFETY: PR_CAPBSET_DROP takes numbers, the unused ones 0.
        match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            // The kernel has no more capabilities.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_proc(set: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
    }

    #[test]
    fn capabilities_are_those_of_proc() {
        let sets = Sets::get().unwrap();
        assert_eq!(sets.effective, of_proc("CapEff"));
        assert_eq!(sets.permitted, of_proc("CapPrm"));
        assert_eq!(sets.inheritable, of_proc("CapInh"));
    }

    #[test]
    fn dropped_capabilities_are_gone_in_this_thread_and_its_children() {
        let sets = ["CapEff", "CapPrm", "CapInh", "CapAmb"];
        let before = sets.map(of_proc);
        let inside = || {
            keep_only(&[NET_ADMIN]).unwrap();
            let own = sets.map(of_proc);
            let child = std::thread::spawn(move || sets.map(of_proc)).join().unwrap();
            assert_eq!(own, before.map(|set| set & 1 << NET_ADMIN));
            assert_eq!(child, own);
            // There is nothing to give up the second time, and it is no error.
            keep_only(&[]).unwrap();
            assert_eq!(sets.map(of_proc), [0; 4]);
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap());
        assert_eq!(sets.map(of_proc), before, "other threads keep theirs");
    }
}
