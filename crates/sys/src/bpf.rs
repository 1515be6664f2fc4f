//! BPF programs that others have attached (`BPF_PROG_QUERY`): whether there are any.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// linux/bpf.h.
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_CGROUP_INET_INGRESS: u32 = 0;
const BPF_CGROUP_INET_EGRESS: u32 = 1;
const BPF_CGROUP_SOCK_OPS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
const BPF_F_QUERY_EFFECTIVE: u32 = 1;

/// Directories of control groups that are looked at for one.
const GROUPS_MAX: usize = 20_000;

/// The part of `union bpf_attr` for a query.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Query {
    /// A descriptor, or the index of an interface.
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    pad: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// How many programs are there.
fn count(target: u32, attach_type: u32, query_flags: u32) -> io::Result<u32> {
    let mut query = Query { target, attach_type, query_flags, ..Query::default() };
    let size = size_of::<Query>() as libc::c_uint;
    // SAFETY: the kernel reads and writes a live struct of the size given; without room for ids it writes none.
    let done = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(query.count) }
}

/// As [`count`], where a kernel that does not know what is asked for has none.
fn has(target: u32, attach_type: u32, query_flags: u32) -> io::Result<bool> {
    match count(target, attach_type, query_flags) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether programs are linked to the interface with this index (tcx, Linux 6.6), which tc(8) need not show.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in the first user namespace; `ENODEV` for an interface that is gone.
pub fn at_interface(index: u32) -> io::Result<bool> {
    Ok(has(index, BPF_TCX_INGRESS, 0)? || has(index, BPF_TCX_EGRESS, 0)?)
}

/// Whether programs of a control group of version 2, or of one above it, see packets of the group's sockets or follow its
/// connections (`BPF_CGROUP_INET_INGRESS`, `BPF_CGROUP_INET_EGRESS`, `BPF_CGROUP_SOCK_OPS`).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in the first user namespace.
pub fn at_group(group: BorrowedFd<'_>) -> io::Result<bool> {
    let target = group.as_raw_fd() as u32;
    for attach_type in [BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS, BPF_CGROUP_SOCK_OPS] {
        if has(target, attach_type, BPF_F_QUERY_EFFECTIVE)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The tree of control groups of version 2, as far as it is mounted here.
#[derive(Debug)]
pub struct Groups {
    directory: PathBuf,
}

impl Groups {
    /// Where it is mounted; `None` if it is nowhere, so that nothing can be attached by way of it.
    ///
    /// # Errors
    /// That `/proc/self/mountinfo` cannot be read.
    pub fn find() -> io::Result<Option<Groups>> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(mount_of(&mounts).map(|directory| Groups { directory: directory.into() }))
    }

    /// The group that a process is in. `None` if it is not seen here.
    ///
    /// # Errors
    /// What open(2) says.
    pub fn of_process(&self, pid: u32) -> io::Result<Option<Group>> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        group_of(&groups).map_or(Ok(None), |path| Group::open(&self.directory.join(path)))
    }

    /// The group of this number, as [`control_group`] has it: the one that process `pid` is in, if that is it, or
    /// another that is searched for. `None` if it is not there, as of a group that was removed.
    ///
    /// [`control_group`]: crate::netlink::diag::Shown::control_group
    ///
    /// # Errors
    /// What open(2) says.
    pub fn group(&self, number: u64, pid: u32) -> io::Result<Option<Group>> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let likely = group_of(&groups).map(|path| self.directory.join(path));
        if let Some(path) = likely.filter(|path| is(path, number)) {
            return Group::open(&path);
        }
        // The nearest first.
        let mut left = VecDeque::from([self.directory.clone()]);
        for _ in 0..GROUPS_MAX {
            let Some(path) = left.pop_front() else { break };
            if is(&path, number) {
                return Group::open(&path);
            }
            let Ok(entries) = fs::read_dir(&path) else { continue };
            let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            left.extend(entries.flatten().filter(is_group).map(|entry| entry.path()));
        }
        Ok(None)
    }
}

/// A control group of version 2.
#[derive(Debug)]
pub struct Group {
    directory: File,
}

impl Group {
    fn open(path: &Path) -> io::Result<Option<Group>> {
        match File::open(path) {
            Ok(directory) => Ok(Some(Group { directory })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

fn is(path: &Path, number: u64) -> bool {
    path.metadata().is_ok_and(|found| found.ino() == number)
}

/// Mount point of control groups of version 2 (proc(5), mountinfo).
fn mount_of(mountinfo: &str) -> Option<&str> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        (kind.split(' ').next()? == "cgroup2").then_some(())?;
        mount.split(' ').nth(4)
    })
}

/// The group of version 2 (cgroups(7), `/proc/PID/cgroup`), as a path below the mount point.
fn group_of(groups: &str) -> Option<&str> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // Outside of what is seen here.
    (!path.starts_with("..")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check;
    use std::os::fd::{FromRawFd, OwnedFd};

    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_LINK_CREATE: libc::c_int = 28;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    const BPF_PROG_TYPE_CGROUP_SKB: u32 = 8;

    fn bpf(command: libc::c_int, attributes: &[u64]) -> io::Result<OwnedFd> {
        let size = size_of_val(attributes) as libc::c_uint;
        // SAFETY: the kernel reads `attributes`, and what they point to, which their makers keep alive.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size) };
        let fd = check(fd as libc::c_int)?;
        // SAFETY: the call has just made this descriptor, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A program that lets all pass: `r0 = 1; exit`.
    fn program(kind: u32, attach_type: u32) -> io::Result<OwnedFd> {
        let code = [0x0000_0001_0000_00b7_u64, 0x95];
        let license = c"GPL";
        let mut attributes = [0; 10];
        attributes[0] = u64::from(kind) | 2 << 32;
        attributes[1] = code.as_ptr() as u64;
        attributes[2] = license.as_ptr() as u64;
        // `expected_attach_type`, at byte 68.
        attributes[8] = u64::from(attach_type) << 32;
        bpf(BPF_PROG_LOAD, &attributes)
    }

    fn link(program: &OwnedFd, target: u32, attach_type: u32) -> io::Result<OwnedFd> {
        let of = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        bpf(BPF_LINK_CREATE, &[of(program.as_raw_fd() as u32, target), of(attach_type, 0)])
    }

    #[test]
    fn mount_and_group_are_found_among_others() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      33 31 0:30 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 none rw\n";
        assert_eq!(mount_of(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mount_of("1 2 0:3 / /x rw - tmpfs cgroup2 rw\n"), None);
        assert_eq!(group_of("1:cpu:/a\n0::/system.slice/x\n"), Some("system.slice/x"));
        assert_eq!(group_of("0::/\n"), Some(""));
        assert_eq!(group_of("0::/../x\n"), None);
    }

    #[test]
    fn programs_of_a_group_are_seen_in_it_and_below() {
        let Some(groups) = Groups::find().unwrap() else {
            return testkit::missing::lacks("control groups of version 2");
        };
        let own = std::process::id();
        let outer = groups.directory.join(format!("wharf-bpf-{own}"));
        let inner = outer.join("inner");
        if let Err(error) = fs::create_dir(&outer).and_then(|()| fs::create_dir(&inner)) {
            return testkit::missing::lacks(format!("the right to make a control group: {error}"));
        }
        let number = inner.metadata().unwrap().ino();
        let group = groups.group(number, own).unwrap().unwrap();
        let above = File::open(&outer).unwrap();
        let seen = || Ok::<_, io::Error>([at_group(group.as_fd())?, at_group(above.as_fd())?]);
        let looked = || {
            let before = seen()?;
            let program = program(BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS)?;
            let link = link(&program, above.as_raw_fd() as u32, BPF_CGROUP_INET_EGRESS)?;
            let with = seen()?;
            drop(link);
            Ok::<_, io::Error>([before, with, seen()?])
        };
        let looked = looked();
        fs::remove_dir(&inner).and_then(|()| fs::remove_dir(&outer)).unwrap();
        assert!(groups.group(number, own).unwrap().is_none());
        match looked {
            Ok(looked) => assert_eq!(looked, [[false; 2], [true; 2], [false; 2]]),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                testkit::missing::lacks("root, to load a BPF program");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn programs_linked_to_an_interface_are_seen() {
        use crate::netlink::link::{VethEnd, create_veth};
        if !crate::process::has_bpf() {
            return testkit::missing::lacks("root, to load a BPF program");
        }
        let namespace = crate::netns::Namespace::new().unwrap();
        let seen = namespace.run(|| {
            create_veth(&VethEnd::new("near0"), &VethEnd::new("far0")).unwrap();
            let near = crate::interface::index("near0").unwrap();
            let before = at_interface(near)?;
            let program = program(BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_EGRESS)?;
            let link = link(&program, near, BPF_TCX_EGRESS)?;
            let with = at_interface(near)?;
            drop(link);
            Ok::<_, io::Error>([before, with, at_interface(near)?])
        });
        match seen.unwrap() {
            Ok(seen) => assert_eq!(seen, [false, true, false]),
            // Before Linux 6.6.
            Err(error) => testkit::missing::lacks(format!("tcx: {error}")),
        }
    }
}
