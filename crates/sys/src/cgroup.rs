//! Bounding the CPU time of some threads of this process, by a control group of version 1.
//!
//! The bound is CFS bandwidth control: so much CPU time in each short period, after which the group's threads
//! wait for the next (Documentation/scheduler/sched-bwc.rst). Version 1 takes threads one by one; version 2
//! does so only where the whole process lies in a tree of threaded groups, which is for the machine's
//! administrator to arrange.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result};

/// Length of a period, in microseconds: short, so that bounded threads run evenly.
const PERIOD: u64 = 10_000;
/// The shortest time in a period that the kernel accepts, in microseconds.
const LEAST: u64 = 1_000;

/// Removes the group at `$0` once standard input ends. Threads that are ending keep it for a while.
const REMOVE: &str = "while read -r _; do :; done; \
                      for _ in 1 2 3 4 5 6 7 8 9 10; do rmdir \"$0\" && exit; sleep 0.1; done";

/// A group of threads that share a bound on their CPU time. It is removed when this is dropped, or
/// when the process ends, however it does: a shell waits for that. The threads in it must have
/// ended by then; a thread that is started by one of them is in it, too.
#[derive(Debug)]
pub struct CpuGroup {
    path: PathBuf,
    guard: Child,
}

impl CpuGroup {
    /// Makes an empty group without a bound.
    ///
    /// # Errors
    /// [`Error::is_missing`] where no cpu controller of version 1 is mounted,
    /// [`Error::is_permission`] without the right to make groups.
    pub fn new() -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("wharf-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = own_group()?.join(name);
        let fail = |cause| Error::new(format!("make the control group {}", path.display()), cause);
        // Started before there is anything to remove.
        let guard = Command::new("sh")
            .args(["-c", REMOVE])
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(fail)?;
        let group = CpuGroup { path: path.clone(), guard };
        fs::create_dir(&path).map_err(fail)?;
        group.write("cpu.cfs_period_us", PERIOD.to_string())?;
        Ok(group)
    }

    /// Puts the calling thread into the group.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn join(&self) -> Result<()> {
        // 0 is the thread that writes.
        self.write("tasks", "0".to_owned())
    }

    /// Bounds the group to so much of one CPU, in per cent; `None` removes the bound.
    ///
    /// # Errors
    /// `InvalidInput` for less than 10 %, which the kernel refuses for so short a period.
    pub fn limit(&self, percent: Option<u32>) -> Result<()> {
        let quota = match percent.map(|percent| u64::from(percent) * PERIOD / 100) {
            None => "-1".to_owned(),
            Some(quota) if quota >= LEAST => quota.to_string(),
            Some(_) => {
                let cause = io::ErrorKind::InvalidInput.into();
                return Err(Error::new("bound a group to less than 10 % of a CPU", cause));
            }
        };
        self.write("cpu.cfs_quota_us", quota)
    }

    fn write(&self, file: &str, value: String) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value)
            .map_err(|cause| Error::new(format!("write {}", path.display()), cause))
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        // The shell may have been killed.
        let _ = fs::remove_dir(&self.path);
    }
}

/// The directory of the cpu controller's group that this process is in.
fn own_group() -> Result<PathBuf> {
    let read =
        |file| fs::read_to_string(file).map_err(|cause| Error::new(format!("read {file}"), cause));
    let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
    let missing = || {
        let cause = io::Error::from_raw_os_error(libc::ENOENT);
        Error::new("find a cpu controller of control groups, version 1", cause)
    };
    let (root, directory) = cpu_mount(&mounts).ok_or_else(missing)?;
    let own = cpu_group(&groups).ok_or_else(missing)?;
    // Only a part of the tree may be mounted, as in a container.
    let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
    Ok(Path::new(directory).join(below))
}

/// Root and mount point of the cpu controller (proc(5), mountinfo).
fn cpu_mount(mountinfo: &str) -> Option<(&str, &str)> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_cgroup = kind.next() == Some("cgroup");
        let options = kind.nth(1)?;
        let mut mount = mount.split(' ').skip(3);
        let (root, directory) = (mount.next()?, mount.next()?);
        (is_cgroup && options.split(',').any(|option| option == "cpu")).then_some((root, directory))
    })
}

/// The group of the cpu controller (cgroups(7), `/proc/PID/cgroup`).
fn cpu_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == "cpu").then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, process};
    use std::time::Duration;

    #[test]
    fn the_controller_is_found_among_others() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
                      32 31 0:29 /a /sys/fs/cgroup/cpu rw,relatime shared:3 - cgroup c rw,x,cpu\n";
        assert_eq!(cpu_mount(mounts), Some(("/a", "/sys/fs/cgroup/cpu")));
        assert_eq!(cpu_mount("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), None);
        assert_eq!(cpu_group("2:cpuacct:/b\n1:cpu,x:/a/b:c\n0::/\n"), Some("/a/b:c"));
        assert_eq!(cpu_group("0::/user.slice\n"), None);
    }

    #[test]
    fn a_group_bounds_its_threads_and_leaves_nothing() {
        let group = match CpuGroup::new() {
            Ok(group) => group,
            Err(error) => return testkit::missing::lacks(error),
        };
        assert!(group.limit(Some(9)).is_err());
        group.limit(Some(20)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                process::set_name("in-a-group").unwrap();
                group.join().unwrap();
                let (since, before) = (clock::now(), clock::thread_cpu());
                let elapsed = || clock::now() - since;
                while elapsed() < Duration::from_millis(200).as_nanos() as u64 {}
                // However busy the machine is, it is no more than the bound and a period or so.
                let used = clock::thread_cpu() - before;
                assert!(used < elapsed() / 2, "{used} of {} ns", elapsed());
                assert!(process::threads_cpu("in-a-group") >= used);
            });
        });
        let path = group.path.clone();
        assert!(path.exists());
        drop(group);
        assert!(!path.exists());
    }
}
