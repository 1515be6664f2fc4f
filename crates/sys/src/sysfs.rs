//! Interface settings under `/sys/class/net`, of the calling thread's network namespace.
//!
//! `/sys` shows the network namespace in which it was mounted, so a thread that has moved to another one
//! needs a mount of its own. [`Sysfs`] is attached to no directory: no other process sees it, and it vanishes
//! with the descriptor.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr;

use crate::{Error, Result};

/// The command of `fsconfig` that makes a file system (`FSCONFIG_CMD_CREATE` of linux/mount.h).
const CMD_CREATE: libc::c_uint = 6;

/// A sysfs of the network namespace in which it was mounted.
#[derive(Debug)]
pub struct Sysfs(OwnedFd);

impl Sysfs {
    /// Mounts it.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` in the mount namespace, `ENOSYS` before Linux 5.2.
    pub fn mount() -> Result<Self> {
        mount(c"sysfs").map(Self).map_err(|cause| Error::new("mount a sysfs", cause))
    }

    /// One setting of an interface, such as `gro_flush_timeout`, to be written again and again.
    ///
    /// # Errors
    /// [`Error::is_missing`] if there is no such interface or setting.
    pub fn setting(&self, interface: &str, name: &str) -> Result<Setting> {
        self.open(interface, &[name])
    }

    /// One setting of a receive queue of an interface, such as `rps_cpus`.
    ///
    /// # Errors
    /// [`Error::is_missing`] if there is no such interface, queue or setting.
    pub fn queue_setting(&self, interface: &str, queue: u32, name: &str) -> Result<Setting> {
        self.open(interface, &["queues", &format!("rx-{queue}"), name])
    }

    fn open(&self, interface: &str, parts: &[&str]) -> Result<Setting> {
        let name = parts.last().copied().unwrap_or_default();
        let fail = |cause| Error::new(format!("open {name} of"), cause).on(interface);
        let leaves = |part: &&str| part.starts_with('.') || part.contains('/');
        if leaves(&interface) || parts.iter().any(leaves) {
            return Err(fail(io::ErrorKind::InvalidInput.into()));
        }
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        path.extend(["class", "net", interface].iter().chain(parts));
        OpenOptions::new().write(true).open(path).map(Setting).map_err(fail)
    }
}

/// An open setting.
#[derive(Debug)]
pub struct Setting(File);

impl Setting {
    /// Writes a value; it holds when this returns.
    ///
    /// # Errors
    /// The kernel's error, such as `EINVAL` for a value out of range.
    pub fn set(&self, value: &str) -> io::Result<()> {
        self.0.write_all_at(value.as_bytes(), 0)
    }
}

/// A new file system of this kind, mounted nowhere.
fn mount(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: fsopen reads a string that ends in NUL, and touches no other memory.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOSE) })?;
    let no_text = ptr::null::<libc::c_char>();
    // SAFETY: with CMD_CREATE fsconfig takes neither key nor value, and touches no memory.
    let created = unsafe {
        let fd = context.as_raw_fd();
        libc::syscall(libc::SYS_fsconfig, fd, CMD_CREATE, no_text, no_text, 0)
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fsmount takes integers.
    descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOSE, 0) })
}

/// `FSOPEN_CLOEXEC` and `FSMOUNT_CLOEXEC` alike.
const CLOSE: libc::c_uint = 1;

/// The descriptor that a system call has made.
fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(result) {
        // SAFETY: the call has just made this descriptor, which nothing else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_name_leaves_its_directory() {
        let Ok(sysfs) = Sysfs::mount() else {
            return testkit::missing::lacks("the right to mount a sysfs");
        };
        for (interface, name) in [("..", "mtu"), ("lo", "../lo/mtu"), ("lo", "."), ("a/b", "mtu")] {
            assert!(sysfs.setting(interface, name).is_err(), "{interface} {name}");
        }
        assert!(sysfs.setting("no-such-if", "mtu").unwrap_err().is_missing());
        sysfs.setting("lo", "mtu").unwrap();
    }
}
